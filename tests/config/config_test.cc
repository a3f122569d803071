// Every key by every way in, and every refusal.
#include "config/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/units.h"
#include "config/failure_domain.h"
#include "config/signal_names.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;

using ::testing::HasSubstr;

// A value of each key that is not its default.
const std::map<std::string, std::string>& other_values() {
    static const std::map<std::string, std::string> values = {{"name", "galaxy-7_b"},
                                                              {"local_dir", "/mnt/local disk"},
                                                              {"shared_dir", "/päth/shared"},
                                                              {"files", "6"},
                                                              {"leaders_per_file", "3"},
                                                              {"writers", "5"},
                                                              {"buffer_bytes", "8MiB"},
                                                              {"buffers", "12"},
                                                              {"block_bytes", "64KiB"},
                                                              {"stripe_align", "1MiB"},
                                                              {"placement", "contiguous"},
                                                              {"direct_io", "uncached"},
                                                              {"io_engine", "posix"},
                                                              {"queue_depth", "7"},
                                                              {"checksum", "no"},
                                                              {"copy_threads", "2"},
                                                              {"keep_local", "1"},
                                                              {"keep_shared", "9"},
                                                              {"keep_outputs", "4"},
                                                              {"purpose", "outputs"},
                                                              {"files_as", "original"},
                                                              {"shared_every", "4"},
                                                              {"flush_at_close", "no"},
                                                              {"queue_epochs", "3"},
                                                              {"queue_policy", "drop_oldest"},
                                                              {"redundancy", "rs:2"},
                                                              {"redundancy_set", "4"},
                                                              {"failure_domain", "file:/etc/racks"},
                                                              {"redundancy_every", "3"},
                                                              {"bandwidth_cap", "1000001"},
                                                              {"background_nice", "19"},
                                                              {"local_sync", "yes"},
                                                              {"agent", "required"},
                                                              {"agent_carries", "yes"},
                                                              {"ranks_per_node", "2"},
                                                              {"record", "no"},
                                                              {"record_dir", "/tmp/records"},
                                                              {"started_by", "run 1"},
                                                              {"record_bytes", "1MiB"},
                                                              {"trace_dir", "/tmp/traces"},
                                                              {"save_interval", "10min"},
                                                              {"save_every", "100"},
                                                              {"mtbf", "1d"},
                                                              {"job_end", "1795543200"},
                                                              {"job_minutes", "90"},
                                                              {"stop_before", "90s"},
                                                              {"stop_signals", "TERM, SIGUSR1"}};
    return values;
}

// Sets an environment variable until the end of the block.
class Variable {
  public:
    Variable(std::string name, const std::string& value) : name_(std::move(name)) {
        ::setenv(name_.c_str(), value.c_str(), 1);
    }
    ~Variable() { ::unsetenv(name_.c_str()); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    std::string name_;
};

class ConfigTest : public ::testing::Test {
  protected:
    ConfigTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace config XXXXXX").string();
        directory_ = ::mkdtemp(pattern.data());
        set_log_callback([this](LogLevel, std::string_view message) {
            std::lock_guard lock(mutex_);
            logged_ += std::string(message) + "\n";
        });
    }
    ~ConfigTest() override {
        set_log_callback({});
        std::filesystem::remove_all(directory_);
    }

    std::string write(const std::string& text) {
        std::string path = directory_ + "/tail race.toml";
        std::ofstream(path) << text;
        return path;
    }
    // The sentence with which a file of that text is refused.
    std::string refusal(const std::string& text) {
        Config config;
        Status status = load_config_file(config, write(text));
        EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
        return status.message();
    }
    static std::string refusal(std::string_view key, std::string_view value) {
        Config config;
        Status status = set_config(config, key, value);
        EXPECT_EQ(status.code(), Code::invalid_argument)
            << key << " = " << value << ": " << status.to_string();
        return status.message();
    }
    // A configuration that complete_config accepts.
    static Config complete() {
        Config config;
        config.shared_dir = "/tmp/shared";
        return config;
    }
    static std::string incomplete(const Config& config, int rank_count = 4) {
        Config changed = config;
        Status status = complete_config(changed, rank_count);
        EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
        return status.message();
    }

    std::string directory_;
    std::mutex mutex_;
    std::string logged_;
};

TEST_F(ConfigTest, TheTableNamesEveryKeyOnceWithItsDefault) {
    std::set<std::string_view> names;
    for (const ConfigKey& key : config_keys()) {
        EXPECT_TRUE(names.insert(key.name).second) << key.name;
        EXPECT_EQ(key.default_value, get_config(Config{}, key.name).value()) << key.name;
        EXPECT_FALSE(key.help.empty()) << key.name;
        EXPECT_FALSE(key.type.empty()) << key.name;
        EXPECT_TRUE(other_values().contains(std::string(key.name))) << key.name << " has no test value";
    }
    EXPECT_EQ(names.size(), other_values().size());
    EXPECT_EQ(names.size(), 47u);
}

TEST_F(ConfigTest, EveryKeyRoundTripsThroughText) {
    for (const auto& [key, value] : other_values()) {
        Config config;
        EXPECT_NE(get_config(config, key).value(), value) << key;
        ASSERT_TRUE(set_config(config, key, value).ok()) << key;
        EXPECT_EQ(get_config(config, key).value(), value) << key;
        for (const ConfigKey& other : config_keys()) {
            if (other.name == key) continue;
            EXPECT_EQ(get_config(config, other.name).value(), other.default_value)
                << key << " changed " << other.name;
        }
    }
}

TEST_F(ConfigTest, EveryKeyComesFromAFile) {
    std::string text;
    for (const auto& [key, value] : other_values()) text += key + " = \"" + value + "\"\n";
    Config config;
    Status status = load_config_file(config, write(text));
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const auto& [key, value] : other_values()) EXPECT_EQ(get_config(config, key).value(), value);
}

TEST_F(ConfigTest, EveryKeyComesFromTheEnvironment) {
    for (const auto& [key, value] : other_values()) {
        std::string name = "TAILRACE_" + key;
        for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        Variable variable(name, value);
        Config config;
        ASSERT_TRUE(load_config_environment(config).ok()) << key;
        EXPECT_EQ(get_config(config, key).value(), value);
    }
    EXPECT_EQ(logged_, "");
}

TEST_F(ConfigTest, FilesMayUseNumbersAndTruthValues) {
    Config config;
    Status status = load_config_file(
        config, write("# a comment\nfiles = 3\nbuffer_bytes = 1048576\nchecksum = false\nlocal_sync = true\n"
                      "direct_io = false\nbandwidth_cap = \"2 GiB\"\n"));
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(config.files, 3u);
    EXPECT_EQ(config.buffer_bytes, MiB);
    EXPECT_FALSE(config.checksum);
    EXPECT_TRUE(config.local_sync);
    EXPECT_EQ(config.direct_io, DirectIo::off);
    EXPECT_EQ(config.bandwidth_cap, 2 * GiB);
}

TEST_F(ConfigTest, AnUnknownKeyIsRefusedWithItsLineAndTheNearest) {
    const std::string sentence = refusal("\n# two lines before\nfile = 3\n");
    EXPECT_THAT(sentence, HasSubstr("tail race.toml, line 3"));
    EXPECT_THAT(sentence, HasSubstr("no key \"file\""));
    EXPECT_THAT(sentence, HasSubstr("nearest is \"files\""));
    EXPECT_THAT(refusal("shared-dirs", "x"), HasSubstr("\"shared_dir\""));
    EXPECT_THAT(refusal("", ""), HasSubstr("no key \"\""));
    EXPECT_THAT(refusal("banana", "x"), HasSubstr("no key \"banana\"; `tailrace config` lists all"));
}

TEST_F(ConfigTest, ABadValueIsRefusedWithItsLine) {
    const std::string sentence = refusal("files = 2\nbuffers = -3\n");
    EXPECT_THAT(sentence, HasSubstr("line 2"));
    EXPECT_THAT(sentence, HasSubstr("buffers = \"-3\""));
    EXPECT_THAT(sentence, HasSubstr("from 1 to"));
}

TEST_F(ConfigTest, AFileThatIsNoTomlIsRefusedWithItsLine) {
    EXPECT_THAT(refusal("files = 2\nbuffers 3\n"), HasSubstr("tail race.toml, line 2: "));
    EXPECT_THAT(refusal("files = 2\nfiles = 3\n"), HasSubstr("line 2"));
}

TEST_F(ConfigTest, WrongTypesInAFileAreRefused) {
    EXPECT_THAT(refusal("shared_dir = 7\n"), HasSubstr("text in quotes"));
    EXPECT_THAT(refusal("files = 2.5\n"), HasSubstr("type number"));
    EXPECT_THAT(refusal("files = true\n"), HasSubstr("files = \"on\""));
    EXPECT_THAT(refusal("files = [2]\n"), HasSubstr("type number"));
    EXPECT_THAT(refusal("[files]\nx = 1\n"), HasSubstr("type number"));
    EXPECT_THAT(refusal("[general]\nfiles = 1\n"), HasSubstr("no key \"general\""));
    EXPECT_THAT(refusal("checksum = 2\n"), HasSubstr("yes or no"));
}

TEST_F(ConfigTest, ARefusedFileChangesNothing) {
    Config config;
    EXPECT_FALSE(load_config_file(config, write("files = 2\nbuffers = 0\n")).ok());
    EXPECT_EQ(config.files, 1u);
}

TEST_F(ConfigTest, FilesThatCannotBeReadAreNamed) {
    Config config;
    Status missing = load_config_file(config, directory_ + "/none.toml");
    EXPECT_EQ(missing.code(), Code::not_found);
    EXPECT_THAT(missing.message(), HasSubstr(directory_ + "/none.toml"));
    Status directory = load_config_file(config, directory_);
    EXPECT_EQ(directory.code(), Code::invalid_argument);
    EXPECT_THAT(directory.message(), HasSubstr(directory_));
    Status huge = load_config_file(config, write(std::string(2 * MiB, '#')));
    EXPECT_EQ(huge.code(), Code::invalid_argument);
    EXPECT_THAT(huge.message(), HasSubstr("1 MiB"));
    const auto nested = [&](int dots) {
        std::string key = "a";
        for (int i = 0; i < dots; ++i) key += ".a";
        return load_config_file(config, write(key + " = 1\n")).message();
    };
    EXPECT_THAT(nested(1000), HasSubstr("line 1"));
    EXPECT_THAT(nested(50000), HasSubstr("1000 dots"));
    const std::string pipe = directory_ + "/pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const Status piped = load_config_file(config, pipe);  // nobody will ever write there
    EXPECT_EQ(piped.code(), Code::invalid_argument);
    EXPECT_THAT(piped.message(), HasSubstr("it is a pipe"));
    EXPECT_TRUE(load_config_file(config, "/dev/null").ok());
}

TEST_F(ConfigTest, WhatIsLongIsRepeatedInPart) {
    const std::string endless(512 * KiB, 'x');
    for (const std::string& text :
         {endless + " = 1", "files = \"" + endless + "\"", "checksum = \"" + endless + "\"",
          "block_bytes = \"" + endless + "\"", "name = \"" + endless + "\"", "name = \"" + endless + "/\"",
          "x = " + endless, "shared_dir = " + endless, "\"" + endless}) {
        const std::string sentence = refusal(text);
        EXPECT_LT(sentence.size(), 600u) << text.substr(0, 30) << " gave " << sentence.size();
    }
}

TEST_F(ConfigTest, LaterSourcesWin) {
    Config config;
    ASSERT_TRUE(load_config_file(config, write("files = 2\nbuffers = 3\nwriters = 4\n")).ok());
    Variable buffers("TAILRACE_BUFFERS", "5"), writers("TAILRACE_WRITERS", "6");
    ASSERT_TRUE(load_config_environment(config).ok());
    ASSERT_TRUE(set_config(config, "writers", "7").ok());
    EXPECT_EQ(config.files, 2u);
    EXPECT_EQ(config.buffers, 5u);
    EXPECT_EQ(config.writers, 7u);
}

TEST_F(ConfigTest, ABadEnvironmentValueIsRefusedWithTheVariable) {
    Variable first("TAILRACE_FILES", "2"), bad("TAILRACE_QUEUE_POLICY", "waite");
    Config config;
    Status status = load_config_environment(config);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("TAILRACE_QUEUE_POLICY"));
    EXPECT_THAT(status.message(), HasSubstr("nearest is \"wait\""));
    EXPECT_EQ(config.files, 1u) << "nothing is taken when something is refused";
}

TEST_F(ConfigTest, AVariableThatIsNearlyASettingIsRefused) {
    Variable good("TAILRACE_WRITERS", "3"), slip("TAILRACE_FIELS", "2");
    Config config;
    const Status status = load_config_environment(config);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(status.message(),
              "the environment variable TAILRACE_FIELS is not a setting of tailrace; the nearest is "
              "TAILRACE_FILES");
    EXPECT_EQ(config.writers, 0u) << "nothing is taken when something is refused";
}

TEST_F(ConfigTest, AMistypedNameOfTheFileIsRefusedToo) {
    Variable slip("TAILRACE_CONFGI", "tailrace.toml");
    Config config;
    const Status status = load_config_environment(config);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("the nearest is TAILRACE_CONFIG"));
}

TEST_F(ConfigTest, AVariableOfAnotherKindIsWarnedOf) {
    Variable module("TAILRACE_ROOT", "/opt/tailrace"), near_name("TAILRACE_HOME", "/opt/tailrace"),
        not_a_key("TAILRACE_CONFIG", "x"), log_level("TAILRACE_LOG", "x"), seed("TAILRACE_SEED", "1"),
        foreign("TAILRAC_FILES", "7"), of_collective_io("TAILRACE_COLLECTIVE_LAYOUT", "x"),
        of_the_interposer("TAILRACE_MPIIO", "off");
    Config config;
    EXPECT_TRUE(load_config_environment(config).ok());
    EXPECT_EQ(config.files, 1u);
    EXPECT_THAT(logged_, HasSubstr("TAILRACE_ROOT is not a setting of tailrace"));
    EXPECT_THAT(logged_, HasSubstr("TAILRACE_HOME is not a setting of tailrace"));
    EXPECT_EQ(std::count(logged_.begin(), logged_.end(), '\n'), 2) << logged_;
}

TEST_F(ConfigTest, AnEmptyVariableIsUnset) {
    Variable empty("TAILRACE_FILES", "");
    Config config;
    config.files = 3;
    EXPECT_TRUE(load_config_environment(config).ok());
    EXPECT_EQ(config.files, 3u);
}

TEST_F(ConfigTest, NumbersAreRefusedOutsideTheirLimits) {
    EXPECT_THAT(refusal("files", "0"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("files", "1048577"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("leaders_per_file", "1025"), HasSubstr("from 0 to"));
    EXPECT_THAT(refusal("writers", "1025"), HasSubstr("from 0 to"));
    EXPECT_THAT(refusal("buffers", "0"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("queue_depth", "0"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("copy_threads", "257"), HasSubstr("from 0 to"));
    EXPECT_THAT(refusal("keep_local", "0"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("shared_every", "0"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("queue_epochs", "0"), HasSubstr("from 1 to"));
    EXPECT_THAT(refusal("background_nice", "20"), HasSubstr("from 0 to 19"));
    EXPECT_THAT(refusal("ranks_per_node", "99999999999999999999"), HasSubstr("whole number"));
    EXPECT_THAT(refusal("files", "2x"), HasSubstr("whole number"));
    EXPECT_THAT(refusal("files", ""), HasSubstr("whole number"));
    EXPECT_THAT(refusal("files", " 2"), HasSubstr("whole number"));
}

TEST_F(ConfigTest, SizesAreRefusedWithWhatIsAllowed) {
    EXPECT_THAT(refusal("buffer_bytes", "64 MBytes"), HasSubstr("buffer_bytes: "));
    EXPECT_THAT(refusal("bandwidth_cap", "-1"), HasSubstr("is not a size"));
    EXPECT_THAT(refusal("block_bytes", "99999999999TiB"), HasSubstr("is not a size"));
}

TEST_F(ConfigTest, ChoicesAreRefusedWithTheNearest) {
    EXPECT_THAT(refusal("placement", "apend"), HasSubstr("nearest is \"append\""));
    EXPECT_THAT(refusal("direct_io", "automatic"), HasSubstr("nearest is \"auto\""));
    EXPECT_THAT(refusal("io_engine", "iouring"), HasSubstr("one of auto, posix, io_uring"));
    EXPECT_THAT(refusal("io_engine", "iouring"), HasSubstr("nearest is \"io_uring\""));
    EXPECT_THAT(refusal("queue_policy", "drop-old"), HasSubstr("nearest is \"drop_oldest\""));
    EXPECT_THAT(refusal("checksum", "ye"), HasSubstr("nearest is \"yes\""));
}

TEST_F(ConfigTest, YesAndNoHaveFourSpellingsEach) {
    for (const char* yes : {"yes", "true", "on", "1"}) {
        Config config;
        EXPECT_TRUE(set_config(config, "local_sync", yes).ok());
        EXPECT_TRUE(config.local_sync) << yes;
    }
    for (const char* no : {"no", "false", "off", "0"}) {
        Config config;
        EXPECT_TRUE(set_config(config, "checksum", no).ok());
        EXPECT_FALSE(config.checksum) << no;
    }
}

TEST_F(ConfigTest, JobNamesThatWouldBreakFileNamesAreRefused) {
    EXPECT_THAT(refusal("name", "a.b"), HasSubstr("name = \"a.b\""));
    refusal("name", "");
    refusal("name", "a/b");
    refusal("name", std::string(101, 'a'));
    EXPECT_THAT(refusal("shared_dir", std::string_view("a\0b", 3)), HasSubstr("NUL"));
}

TEST_F(ConfigTest, CompletingWithoutASharedDirectorySaysHowToSetOne) {
    const std::string sentence = incomplete(Config{});
    EXPECT_THAT(sentence, HasSubstr("shared_dir"));
    EXPECT_THAT(sentence, HasSubstr("TAILRACE_SHARED_DIR"));
}

TEST_F(ConfigTest, CompletingFillsInWhatTheMachineDecides) {
    Config config = complete();
    ASSERT_TRUE(complete_config(config, 4).ok());
    EXPECT_THAT(config.local_dir, ::testing::EndsWith("/tailrace-" + std::to_string(::getuid())));
    EXPECT_GE(config.writers, 1u);
    EXPECT_LE(config.writers, 4u);
    EXPECT_GE(config.copy_threads, 1u);
    EXPECT_LE(config.copy_threads, 4u);
    EXPECT_EQ(config.block_bytes, 0u) << "only the file system can tell";
}

TEST_F(ConfigTest, CompletingKeepsWhatIsSet) {
    Config config;
    for (const auto& [key, value] : other_values()) ASSERT_TRUE(set_config(config, key, value).ok());
    config.purpose = Purpose::checkpoints;  // outputs get another directory and retention
    ASSERT_TRUE(complete_config(config, 4).ok());
    for (const auto& [key, value] : other_values())
        EXPECT_EQ(get_config(config, key).value(), key == "purpose" ? "checkpoints" : value);
}

TEST_F(ConfigTest, TheEndOfTheJobComesFromTheSettingOrElseFromSlurm) {
    const int64_t now =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    const auto end_with = [&](const std::string& of_slurm, const std::string& set) {
        const Variable slurm("SLURM_JOB_END_TIME", of_slurm);
        Config config = complete();
        config.job_end = set;
        EXPECT_TRUE(complete_config(config, 1).ok());
        return config.job_end;
    };
    EXPECT_EQ(end_with("", ""), "");
    EXPECT_EQ(end_with(std::to_string(now + 1000), ""), std::to_string(now + 1000));
    EXPECT_EQ(end_with(std::to_string(now - 1000), ""), "") << "another job's, left in the environment";
    EXPECT_EQ(end_with("soon", ""), "");
    EXPECT_EQ(end_with(std::to_string(now + 1000), "2026-11-24T18:00Z"), "1795543200");
}

TEST_F(ConfigTest, SignalsAreNamesInAList) {
    EXPECT_THAT(parse_signals("TERM, sigusr1 USR1\tHUP").value(),
                ::testing::ElementsAre(SIGTERM, SIGUSR1, SIGHUP));
    EXPECT_TRUE(parse_signals("").value().empty());
    EXPECT_TRUE(parse_signals(" , ").value().empty());
    EXPECT_THAT(parse_signals("TREM").status().message(), HasSubstr("nearest is \"TERM\""));
    EXPECT_FALSE(parse_signals("KILL").ok());
    EXPECT_FALSE(parse_signals("15").ok());
    EXPECT_EQ(signal_text(SIGUSR2), "USR2");
    EXPECT_EQ(signal_text(SIGKILL), "signal 9");
    EXPECT_THAT(refusal("stop_signals", "SEGV"),
                HasSubstr("stop_signals = \"SEGV\": \"SEGV\" is not a signal"));
    EXPECT_THAT(refusal("job_end", "tomorrow"), HasSubstr("not a point in time"));
    EXPECT_THAT(refusal("save_interval", "10"), HasSubstr("a unit"));
}

TEST_F(ConfigTest, CompletingMakesPathsAbsolute) {
    Config config;
    config.shared_dir = "some/../check points//";
    config.local_dir = ".";
    ASSERT_TRUE(complete_config(config, 1).ok());
    EXPECT_EQ(config.shared_dir, std::filesystem::current_path().string() + "/check points");
    EXPECT_EQ(config.local_dir, std::filesystem::current_path().string());
}

TEST_F(ConfigTest, FilesAreLimitedByTheRanks) {
    Config config = complete();
    config.files = 256;
    EXPECT_TRUE(complete_config(config, 4).ok());
    config.files = 257;
    EXPECT_THAT(incomplete(config), HasSubstr("256 for 4 ranks"));
    config.files = 0;
    EXPECT_THAT(incomplete(config), HasSubstr("files"));
}

TEST_F(ConfigTest, BuffersMustFitCheckBlocksAndBlocks) {
    Config config = complete();
    for (uint64_t bytes : {uint64_t{0}, 256 * KiB + 4096, uint64_t{4096}, GiB + 256 * KiB}) {
        config.buffer_bytes = bytes;
        EXPECT_THAT(incomplete(config), HasSubstr("buffer_bytes")) << bytes;
    }
    config.buffer_bytes = 256 * KiB;
    EXPECT_TRUE(complete_config(config, 4).ok());
    config.block_bytes = 512 * KiB;
    EXPECT_THAT(incomplete(config), HasSubstr("not a multiple of block_bytes"));
    config.buffer_bytes = GiB;
    EXPECT_TRUE(complete_config(config, 4).ok());
}

TEST_F(ConfigTest, StripesAreAlignedToWholeBlocks) {
    Config config = complete();
    for (uint64_t bytes : {uint64_t{1}, uint64_t{4097}, (uint64_t{1} << 40) + 4096}) {
        config.stripe_align = bytes;
        EXPECT_THAT(incomplete(config), HasSubstr("stripe_align")) << bytes;
    }
    config.stripe_align = 12'288;
    EXPECT_TRUE(complete_config(config, 4).ok());
    config.block_bytes = 8192;
    EXPECT_THAT(incomplete(config), HasSubstr("a multiple of 4KiB and of block_bytes"));
}

TEST_F(ConfigTest, BlocksMustBePowersOfTwoFrom4KiB) {
    Config config = complete();
    for (uint64_t bytes : {uint64_t{1}, uint64_t{2048}, 3 * 4096 * uint64_t{1}, uint64_t{4097}}) {
        config.block_bytes = bytes;
        EXPECT_THAT(incomplete(config), HasSubstr("power of two")) << bytes;
    }
    config.block_bytes = 4096;
    EXPECT_TRUE(complete_config(config, 4).ok());
}

TEST_F(ConfigTest, AStructFilledInByHandIsCheckedToo) {
    for (auto spoil : std::vector<void (*)(Config&)>{
             [](Config& config) { config.leaders_per_file = 1025; },
             [](Config& config) { config.buffers = 0; }, [](Config& config) { config.keep_local = 0; },
             [](Config& config) { config.queue_epochs = 0; }, [](Config& config) { config.name = "a b"; },
             [](Config& config) { config.placement = static_cast<Placement>(7); }}) {
        Config config = complete();
        spoil(config);
        incomplete(config);
    }
}

TEST_F(ConfigTest, SharedSettingsTellWhatRanksMustAgreeOn) {
    Config config = complete();
    const std::string before = shared_settings(config);
    EXPECT_THAT(before, HasSubstr("files=1 "));
    EXPECT_THAT(before, HasSubstr("buffer_bytes=64MiB "));
    EXPECT_THAT(before, ::testing::EndsWith(" shared_dir=/tmp/shared"));
    Config local = config;
    local.local_dir = "/elsewhere";
    local.writers = 3;
    local.copy_threads = 3;
    EXPECT_EQ(shared_settings(local), before) << "nodes may differ in this";
    for (const char* key :
         {"name", "files", "leaders_per_file", "buffer_bytes", "block_bytes", "stripe_align", "placement",
          "shared_every", "queue_epochs", "queue_policy", "ranks_per_node", "record", "redundancy",
          "redundancy_set", "redundancy_every", "save_every", "flush_at_close", "files_as", "shared_dir"}) {
        Config other = config;
        ASSERT_TRUE(set_config(other, key, other_values().at(key)).ok());
        EXPECT_NE(shared_settings(other), before) << key;
    }
}

TEST_F(ConfigTest, RedundancyAndFailureDomainHaveTheirForms) {
    Config config;
    for (const auto* value : {"none", "partner", "xor", "rs:1", "rs:127"})
        EXPECT_TRUE(set_config(config, "redundancy", value).ok()) << value;
    for (const auto* value : {"", "mirror", "rs:0", "rs:128"})
        EXPECT_THAT(set_config(config, "redundancy", value).message(), HasSubstr("rs:K is expected"))
            << value;
    for (const auto* value : {"", "file:/etc/racks", "command:rack"})
        EXPECT_TRUE(set_config(config, "failure_domain", value).ok()) << value;
    for (const auto* value : {"rack", "file:", "command:", "/etc/racks"})
        EXPECT_THAT(set_config(config, "failure_domain", value).message(), HasSubstr("command:CMD")) << value;
}

TEST_F(ConfigTest, FailureDomainsComeFromHostFileOrCommand) {
    const auto path = std::filesystem::temp_directory_path() / fmt::format("tailrace-racks-{}", ::getpid());
    std::ofstream(path) << "# host domain\nm1 rack-a and more\n\nm2\nm3   rack-b\n";
    const std::string file = "file:" + path.string();
    EXPECT_EQ(*find_failure_domain("", "m1"), "m1");
    EXPECT_EQ(*find_failure_domain(file, "m1"), "rack-a");
    EXPECT_EQ(*find_failure_domain(file, "m3"), "rack-b");
    EXPECT_EQ(find_failure_domain(file, "m2").status().code(), Code::not_found);
    EXPECT_THAT(find_failure_domain("file:/dev/zero", "m1").status().message(), HasSubstr("is not a file"));
    std::filesystem::remove(path);
    EXPECT_EQ(find_failure_domain(file, "m1").status().code(), Code::not_found);
    EXPECT_EQ(*find_failure_domain("command:echo rack-c; echo more", "m1"), "rack-c");
    EXPECT_THAT(find_failure_domain("command:true", "m1").status().message(), HasSubstr("printed nothing"));
    EXPECT_THAT(find_failure_domain("command:echo x; exit 3", "m1").status().message(),
                HasSubstr("status 3"));
    EXPECT_EQ(*find_failure_domain("command:echo \"it's\" 'rack d'", "m1"), "it's rack d");
    EXPECT_EQ(*find_failure_domain("command:yes", "m1"), "y") << "it ends by SIGPIPE";
}

TEST_F(ConfigTest, ACommandForAFailureDomainThatHangsOrIsKilledIsNotBelieved) {
    EXPECT_THAT(find_failure_domain("command:echo x; sleep 1000", "m1", 1s).status().message(),
                HasSubstr("was killed; it may take 1 s at most"));
    EXPECT_THAT(find_failure_domain("command:echo x; kill -TERM $$", "m1").status().message(),
                HasSubstr("status 143"));
}

}  // namespace
}  // namespace tailrace::internal
