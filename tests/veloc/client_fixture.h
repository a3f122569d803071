// client_fixture.h - a client of one process in a directory of its own, for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "client.h"

namespace veloc_on_tailrace {

using on_tailrace::single_process;

class VelocClientTest : public testing::Test {
  protected:
    VelocClientTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace veloc XXXXXX").string();
        top_ = ::mkdtemp(pattern.data());
    }
    ~VelocClientTest() override {
        client_.reset();
        std::filesystem::remove_all(top_);
    }

    // Begins a client, as a program that is started: of process `id`, with these lines more.
    void start(const std::string& more = "", unsigned int id = 0, bool persistent = true,
               const std::string& mode = "async") {
        client_.reset();
        const auto file = top_ + "/veloc.cfg";
        std::ofstream(file) << "scratch = " << top_ << "/scratch\n"
                            << (persistent ? "persistent = " + top_ + "/persistent\n" : "")
                            << "mode = " << mode << "\n"
                            << "tailrace_buffer_bytes = 1MiB\ntailrace_record = no\n"
                            << more;
        client_ = Client::open(single_process(id), file);
        ASSERT_NE(client_, nullptr);
    }
    // What a call says on stderr, and that it fails.
    std::string failure_of(const std::function<bool()>& call) {
        testing::internal::CaptureStderr();
        const bool good = call();
        const auto said = testing::internal::GetCapturedStderr();
        return good ? "it did not fail" : said;
    }
    bool protect(int id, std::vector<int>& values, const std::string& group = default_group) {
        return client_->mem_protect(id, values.data(), values.size(), sizeof(int), group);
    }
    bool save(const std::string& name, int version) {
        return client_->checkpoint(name, version) && client_->checkpoint_wait();
    }
    int newest(const std::string& name, int limit = 0) { return client_->restart_test(name, limit, -1); }

    std::string top_;
    std::unique_ptr<Client> client_;
};

inline std::vector<int> counted(size_t count, int first) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

}  // namespace veloc_on_tailrace
