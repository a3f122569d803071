// MapStorage: files as byte vectors that a test may look at and spoil. For tests of the catalog, which reads
// only; nothing here knows of durability. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/storage.h"

namespace tailrace::internal {

using Bytes = std::vector<std::byte>;

class MapFile : public File {
  public:
    MapFile(std::string path, Bytes& bytes, uint64_t failing_offset)
        : path_(std::move(path)), bytes_(bytes), failing_offset_(failing_offset) {}

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        if (offset + target.size() > failing_offset_) return Status(Code::io_error, "reading " + path_);
        if (offset >= bytes_.size()) return size_t{0};
        size_t count = std::min<size_t>(target.size(), bytes_.size() - offset);
        std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), count, target.begin());
        return count;
    }
    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        bytes_.resize(std::max<size_t>(bytes_.size(), offset + source.size()));
        std::copy(source.begin(), source.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
        return Status();
    }
    Status reserve(uint64_t offset, uint64_t bytes) override {
        bytes_.resize(std::max<size_t>(bytes_.size(), offset + bytes));
        return Status();
    }
    Status truncate(uint64_t bytes) override {
        bytes_.resize(bytes);
        return Status();
    }
    Status sync() override { return Status(); }
    Result<uint64_t> size() override { return uint64_t{bytes_.size()}; }
    Status close() override { return Status(); }
    const std::string& path() const override { return path_; }

  private:
    std::string path_;
    Bytes& bytes_;
    uint64_t failing_offset_;
};

class MapStorage : public Storage {
  public:
    std::map<std::string, Bytes> files;  // by path
    // Every directory that some file's path starts with, and this one, exist.
    std::string empty_directory;
    std::string subdirectory;  // path of a directory that list() shows
    std::string failing_path;  // of a file whose bytes from failing_offset on cannot be read
    uint64_t failing_offset = 0;

    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        if (path == subdirectory) return Status(Code::io_error, "opening " + path + ": it is a directory");
        if (options.access == Access::read && !files.contains(path)) return missing("opening", path);
        return std::unique_ptr<File>(
            std::make_unique<MapFile>(path, files[path], path == failing_path ? failing_offset : UINT64_MAX));
    }
    Status rename(const std::string& from, const std::string& to) override {
        auto found = files.find(from);
        if (found == files.end()) return missing("renaming", from);
        files[to] = std::move(found->second);
        files.erase(from);
        return Status();
    }
    Status remove(const std::string& path) override {
        return files.erase(path) == 1 ? Status() : missing("removing", path);
    }
    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        std::vector<DirectoryEntry> entries;
        std::string prefix = directory + "/";
        for (const auto& [path, bytes] : files)
            if (path.starts_with(prefix))
                entries.push_back({path.substr(prefix.size()), bytes.size(), false, {}});
        if (subdirectory.starts_with(prefix))
            entries.push_back({subdirectory.substr(prefix.size()), 0, true, {}});
        if (entries.empty() && directory != empty_directory) return missing("listing", directory);
        return entries;
    }
    Status make_directories(const std::string&) override { return Status(); }
    Status sync_directory(const std::string&) override { return Status(); }
    Result<SpaceInfo> space(const std::string&) override { return SpaceInfo(); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind) override {
        return Status(Code::unsupported, "locking " + path);
    }
    std::string_view name() const override { return "map"; }

  private:
    static Status missing(std::string_view attempted, const std::string& path) {
        return Status(Code::not_found, std::string(attempted) + " " + path + ": it is not there");
    }
};

}  // namespace tailrace::internal
