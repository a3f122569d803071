// environment.h - a directory of its own as the working directory, and none of SCR's environment variables,
// for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace scr_on_tailrace {

class InOwnDirectory : public testing::Test {
  protected:
    InOwnDirectory() : before_(std::filesystem::current_path()) {
        for (const auto& name : variables())
            if (name.starts_with("SCR_")) ::unsetenv(name.c_str());
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace scr XXXXXX").string();
        top_ = std::filesystem::canonical(::mkdtemp(pattern.data()));
        std::filesystem::current_path(top_);
    }
    ~InOwnDirectory() override {
        for (const auto& name : set_) ::unsetenv(name.c_str());
        std::filesystem::current_path(before_);
        std::filesystem::remove_all(top_);
    }

    void set(const std::string& name, const std::string& value) {
        set_.push_back(name);
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    static void write(const std::string& path, const std::string& text) {
        const auto parent = std::filesystem::path(path).parent_path();
        if (!parent.empty()) std::filesystem::create_directories(parent);
        std::ofstream(path, std::ios::binary) << text;
    }
    static std::string read(const std::string& path) {
        std::ifstream in(path, std::ios::binary);
        return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "nothing: " + path;
    }

    std::string top_;

  private:
    static std::vector<std::string> variables() {
        std::vector<std::string> names;
        for (char** entry = environ; *entry != nullptr; ++entry)
            names.push_back(std::string(*entry).substr(0, std::string(*entry).find('=')));
        return names;
    }

    const std::filesystem::path before_;
    std::vector<std::string> set_;
};

}  // namespace scr_on_tailrace
