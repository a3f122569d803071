// A file that is written as memory and appears complete or not at all.
//
// create() makes PATH.partial and reserves all its space, so that filling the memory cannot fail
// for lack of space. commit() renames it to PATH. The destructor removes a file that was not
// committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace tailrace::internal::tool {

class OutputFile {
  public:
    // already_exists if `path` exists and `replace` is not set.
    static Result<std::unique_ptr<OutputFile>> create(const std::string& path, uint64_t bytes, bool replace);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    std::span<std::byte> memory() const { return memory_; }
    Status commit();

  private:
    explicit OutputFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}

    const std::string path_, partial_;
    int descriptor_ = -1;
    std::span<std::byte> memory_;
};

}  // namespace tailrace::internal::tool
