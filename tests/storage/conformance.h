// The conformance suite: what every Storage must do, whatever is behind it. A backend joins by naming a case
// in an INSTANTIATE_TEST_SUITE_P of its own test file.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "storage/storage.h"

namespace tailrace::internal::test {

// A storage and a directory in it that is empty and may be used freely.
struct StorageFixture {
    std::shared_ptr<Storage> storage;
    std::string directory;
    std::shared_ptr<void> keep;  // whatever must live as long as the test
};

struct StorageCase {
    std::string name;
    std::function<StorageFixture()> make;
    DirectIo direct = DirectIo::off;
};

inline void PrintTo(const StorageCase& test_case, std::ostream* stream) {
    *stream << test_case.name;
}

inline std::string case_name(const testing::TestParamInfo<StorageCase>& info) {
    return info.param.name;
}

class StorageConformance : public testing::TestWithParam<StorageCase> {
  protected:
    void SetUp() override {
        fixture_ = GetParam().make();
        ASSERT_NE(fixture_.storage, nullptr);
    }
    Storage& storage() { return *fixture_.storage; }
    std::string path(const std::string& name) { return join_path(fixture_.directory, name); }
    const std::string& directory() { return fixture_.directory; }
    Result<std::unique_ptr<File>> open(const std::string& name, Access access) {
        return storage().open(path(name), {access, GetParam().direct});
    }
    // A new file with that content, or a failure of the test.
    std::unique_ptr<File> file_with(const std::string& name, std::span<const std::byte> content);
    void expect_content(const std::string& name, std::span<const std::byte> content);
    bool exists(const std::string& name);

    StorageFixture fixture_;
};

}  // namespace tailrace::internal::test
