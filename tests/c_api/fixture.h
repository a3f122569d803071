// What the tests of the C interface share: a fresh directory with a difficult name, and sessions in it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <tailrace.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A failed call, with its sentence: ASSERT_TRUE(ok(tailrace_save(...))).
inline testing::AssertionResult ok(tailrace_code code) {
    if (code == TAILRACE_OK) {
        if (std::string_view(tailrace_last_error()).empty()) return testing::AssertionSuccess();
        return testing::AssertionFailure() << "OK, but the last error is \"" << tailrace_last_error() << "\"";
    }
    return testing::AssertionFailure() << tailrace_code_name(code) << ": " << tailrace_last_error();
}

// The call failed in that way and has a sentence that contains `part`.
inline testing::AssertionResult fails(tailrace_code expected, tailrace_code code,
                                      std::string_view part = "") {
    const std::string sentence = tailrace_last_error();
    if (code != expected)
        return testing::AssertionFailure() << tailrace_code_name(code) << " instead of "
                                           << tailrace_code_name(expected) << ": " << sentence;
    if (sentence.empty()) return testing::AssertionFailure() << "no sentence";
    if (sentence.find(part) == std::string::npos)
        return testing::AssertionFailure() << "\"" << part << "\" is missing in: " << sentence;
    return testing::AssertionSuccess();
}

// Of any number of dimensions. What is not named is zero, as a program's `tailrace_array array = {0};` makes
// it.
inline tailrace_array array_of(tailrace_type type, int dimensions, const uint64_t* global_shape,
                               const uint64_t* offset, const uint64_t* local_shape) {
    tailrace_array array{};
    array.type = type;
    array.dimensions = dimensions;
    array.global_shape = global_shape;
    array.offset = offset;
    array.local_shape = local_shape;
    return array;
}

class CApiTest : public testing::Test {
  protected:
    using Settings = std::vector<std::pair<std::string, std::string>>;

    CApiTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace ä XXXXXX").string();
        directory_ = ::mkdtemp(pattern.data());
        shared_ = directory_ + "/shared dir";
        tailrace_set_log(
            [](tailrace_log_level, const char* message, void* user) {
                auto* test = static_cast<CApiTest*>(user);
                std::lock_guard lock(test->mutex_);
                test->logged_ += std::string(message) + "\n";
            },
            this);
    }
    ~CApiTest() override {
        tailrace_set_log(nullptr, nullptr);
        std::filesystem::remove_all(directory_);
    }

    tailrace_options* options(const Settings& settings = {}) {
        tailrace_options* made = tailrace_options_new();
        Settings all = {
            {"shared_dir", shared_}, {"local_dir", directory_ + "/local dir"}, {"buffer_bytes", "1MiB"}};
        all.insert(all.end(), settings.begin(), settings.end());
        for (const auto& [key, value] : all)
            EXPECT_TRUE(ok(tailrace_options_set(made, key.c_str(), value.c_str())));
        return made;
    }
    tailrace_code try_open(const Settings& settings, tailrace_session** session) {
        tailrace_options* made = options(settings);
        const tailrace_code code = tailrace_open(made, session);
        const std::string sentence = tailrace_last_error();
        tailrace_options_free(made);
        EXPECT_EQ(sentence, tailrace_last_error()) << "freeing options keeps the last error";
        return code;
    }
    tailrace_session* open(const Settings& settings = {}) {
        tailrace_session* session = nullptr;
        EXPECT_TRUE(ok(try_open(settings, &session)));
        return session;
    }
    std::string logged() {
        std::lock_guard lock(mutex_);
        return logged_;
    }
    std::vector<std::string> shared_files() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(shared_))
            names.push_back(entry.path().filename().string());
        return names;
    }

    std::string directory_, shared_;

  private:
    std::mutex mutex_;
    std::string logged_;
};
