// Versions, names, errors, log and settings.
#include <fstream>
#include <thread>

#include "c_api/fixture.h"

using ::testing::HasSubstr;

namespace {

class OptionsTest : public CApiTest {
  protected:
    // What a session opened with `options` uses for `key`.
    static std::string setting(const tailrace_options* options, const char* key) {
        tailrace_session* session = nullptr;
        EXPECT_TRUE(ok(tailrace_open(options, &session)));
        const char* value = tailrace_setting(session, key);
        const std::string copy = value == nullptr ? "(null)" : value;
        EXPECT_TRUE(ok(tailrace_close(session)));
        return copy;
    }
    std::string write_config(const std::string& text) {
        const std::string path = directory_ + "/settings" + std::to_string(++files_written_) + ".toml";
        std::ofstream(path) << text;
        return path;
    }

    int files_written_ = 0;
};

TEST_F(OptionsTest, VersionIsTheHeaders) {
    const std::string expected = std::to_string(TAILRACE_VERSION_MAJOR) + "." +
                                 std::to_string(TAILRACE_VERSION_MINOR) + "." +
                                 std::to_string(TAILRACE_VERSION_PATCH);
    EXPECT_EQ(tailrace_version(), expected);
}

TEST_F(OptionsTest, EveryCodeHasAName) {
    EXPECT_STREQ(tailrace_code_name(TAILRACE_OK), "ok");
    EXPECT_STREQ(tailrace_code_name(TAILRACE_NO_SPACE), "no space");
    for (int code = TAILRACE_OK; code <= TAILRACE_ABORTED; ++code)
        EXPECT_STRNE(tailrace_code_name(static_cast<tailrace_code>(code)), "unknown code") << code;
}

TEST_F(OptionsTest, LastErrorBelongsToItsThreadAndItsCall) {
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_open(nullptr, nullptr), "NULL"));
    std::string elsewhere = "unset";
    std::thread([&] { elsewhere = tailrace_last_error(); }).join();
    EXPECT_EQ(elsewhere, "");
    tailrace_options* made = tailrace_options_new();
    EXPECT_STRNE(tailrace_last_error(), "") << "only calls that return a code change it";
    EXPECT_TRUE(ok(tailrace_options_set(made, "files", "2")));
    EXPECT_STREQ(tailrace_last_error(), "");
    tailrace_options_free(made);
}

TEST_F(OptionsTest, BadSettingsAreRefusedAtOnce) {
    tailrace_options* made = options();
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_set(made, "fiels", "2"), "\"files\""));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_set(made, "files", "none"), "files"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_set(made, nullptr, "2"), "key"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_set(made, "files", nullptr), "value"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_set(nullptr, "files", "2"), "options"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_load(made, nullptr), "toml_path"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_options_load(made, "no such.toml"), "no such.toml"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_options_load(made, write_config("files = 2\nfile = 3\n").c_str()), "line 2"));
    EXPECT_EQ(setting(made, "files"), "1") << "what was refused has changed nothing";
    tailrace_options_free(made);
}

TEST_F(OptionsTest, FreedOptionsAreRecognised) {
    tailrace_options* made = options();
    tailrace_options_free(made);
    tailrace_options_free(made);
    tailrace_options_free(nullptr);
    tailrace_session* session = nullptr;
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_options_set(made, "files", "2"), "options"));
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_open(made, &session), "options"));
    EXPECT_EQ(session, nullptr);
}

TEST_F(OptionsTest, CodeWinsOverEnvironmentOverFiles) {
    tailrace_options* made = options({{"writers", "3"}});
    ASSERT_TRUE(ok(tailrace_options_load(
        made, write_config("files = 2\nbuffers = 5\nwriters = 7\nqueue_epochs = 9\n").c_str())));
    ASSERT_TRUE(ok(tailrace_options_load(made, write_config("queue_epochs = 4\n").c_str())));
    ::setenv("TAILRACE_BUFFERS", "6", 1);
    ::setenv("TAILRACE_WRITERS", "8", 1);
    EXPECT_EQ(setting(made, "files"), "2");
    EXPECT_EQ(setting(made, "queue_epochs"), "4");
    EXPECT_EQ(setting(made, "buffers"), "6");
    EXPECT_EQ(setting(made, "writers"), "3");
    EXPECT_EQ(setting(made, "no such key"), "(null)");
    ::unsetenv("TAILRACE_BUFFERS");
    ::unsetenv("TAILRACE_WRITERS");
    tailrace_options_free(made);
}

TEST_F(OptionsTest, WithoutOptionsEnvironmentAndItsFileCount) {
    ::setenv("TAILRACE_CONFIG", write_config("files = 3\nshared_dir = \"" + shared_ + "\"\n").c_str(), 1);
    ::setenv("TAILRACE_LOCAL_DIR", (directory_ + "/local").c_str(), 1);
    EXPECT_EQ(setting(nullptr, "files"), "3");
    EXPECT_EQ(setting(nullptr, "local_dir"), directory_ + "/local");
    tailrace_options* made = options();
    EXPECT_EQ(setting(made, "files"), "3") << "no file was loaded into these";
    ASSERT_TRUE(ok(tailrace_options_load(made, write_config("buffers = 2\n").c_str())));
    EXPECT_EQ(setting(made, "files"), "1") << "a loaded file stands in for TAILRACE_CONFIG";
    ::setenv("TAILRACE_CONFIG", "/no/such.toml", 1);
    tailrace_session* session = nullptr;
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_open(nullptr, &session), "TAILRACE_CONFIG"));
    ::unsetenv("TAILRACE_CONFIG");
    ::unsetenv("TAILRACE_LOCAL_DIR");
    tailrace_options_free(made);
}

TEST_F(OptionsTest, ABadEnvironmentIsRefusedByOpen) {
    ::setenv("TAILRACE_FILES", "many", 1);
    tailrace_session* session = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, try_open({}, &session), "TAILRACE_FILES"));
    EXPECT_EQ(session, nullptr);
    ::unsetenv("TAILRACE_FILES");
}

TEST_F(OptionsTest, WithoutASharedDirectoryOpenSaysHowToSetOne) {
    tailrace_session* session = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, try_open({{"shared_dir", ""}}, &session), "shared_dir"));
}

TEST_F(OptionsTest, LogGoesToTheCallbackAsFarAsTheLevelLets) {
    ::setenv("TAILRACE_ROOT", "/opt", 1);
    EXPECT_TRUE(ok(tailrace_close(open())));
    EXPECT_THAT(logged(), HasSubstr("TAILRACE_ROOT"));
    const std::string before = logged();
    tailrace_set_log_level(TAILRACE_LOG_ERROR);
    EXPECT_TRUE(ok(tailrace_close(open())));
    EXPECT_EQ(logged(), before);
    tailrace_set_log_level(TAILRACE_LOG_WARNING);
    ::unsetenv("TAILRACE_ROOT");
}

}  // namespace
