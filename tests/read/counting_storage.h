// CountingStorage: passes everything on to another storage and keeps a list of the reads, for tests that ask
// how often, how much and in which direction files are read.
//
// Thread-safety: files may be read by several threads at once; the log is looked at when they have ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/storage.h"

namespace tailrace::internal::testing_support {

// A read.
struct Call {
    std::string path;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

struct CallLog {
    std::mutex mutex;
    std::vector<Call> calls;
    std::atomic<int> open_files{0};
    Route route = Route::direct;  // what files say that are not to stay in the page cache
    bool only_cached = false;     // others are unsupported

    void add(Call call) {
        std::lock_guard lock(mutex);
        calls.push_back(std::move(call));
    }
    void clear() { calls.clear(); }
    uint64_t bytes() const {
        uint64_t sum = 0;
        for (const Call& call : calls) sum += call.bytes;
        return sum;
    }
    // How often a call starts before the end of the last one in the same file.
    size_t backward_steps() const {
        size_t steps = 0;
        std::map<std::string, uint64_t> end;
        for (const Call& call : calls) {
            if (call.offset < end[call.path]) ++steps;
            end[call.path] = call.offset + call.bytes;
        }
        return steps;
    }
};

class CountingFile final : public File {
  public:
    CountingFile(std::unique_ptr<File> file, Route route, CallLog& log)
        : file_(std::move(file)), route_(route), log_(log) {
        ++log_.open_files;
    }
    ~CountingFile() override { --log_.open_files; }
    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        log_.add({file_->path(), offset, target.size()});
        return file_->read_at(target, offset);
    }
    Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset) override {
        uint64_t bytes = 0;
        for (const Piece& piece : targets) bytes += piece.size();
        log_.add({file_->path(), offset, bytes});
        return file_->read_pieces(targets, offset);
    }
    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        return file_->write_at(source, offset);
    }
    Status reserve(uint64_t offset, uint64_t bytes) override { return file_->reserve(offset, bytes); }
    Status truncate(uint64_t bytes) override { return file_->truncate(bytes); }
    Status sync() override { return file_->sync(); }
    Result<uint64_t> size() override { return file_->size(); }
    Status close() override { return file_->close(); }
    const std::string& path() const override { return file_->path(); }
    Route route() const override { return route_; }

  private:
    std::unique_ptr<File> file_;
    const Route route_;
    CallLog& log_;
};

class CountingStorage final : public Storage {
  public:
    CountingStorage(Storage& storage, CallLog& log) : storage_(storage), log_(log) {}
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        if (log_.only_cached && options.direct != DirectIo::off)
            return Status(Code::unsupported, path + " is only for the page cache");
        TAILRACE_ASSIGN(auto file, storage_.open(path, options));
        return std::unique_ptr<File>(std::make_unique<CountingFile>(
            std::move(file), options.direct == DirectIo::off ? Route::cached : log_.route, log_));
    }
    Status rename(const std::string& from, const std::string& to) override {
        return storage_.rename(from, to);
    }
    Status remove(const std::string& path) override { return storage_.remove(path); }
    Status remove_directory(const std::string& path) override { return storage_.remove_directory(path); }
    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        return storage_.list(directory);
    }
    Status make_directories(const std::string& path) override { return storage_.make_directories(path); }
    Status sync_directory(const std::string& path) override { return storage_.sync_directory(path); }
    Result<SpaceInfo> space(const std::string& path) override { return storage_.space(path); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind kind) override {
        return storage_.lock_directory(path, kind);
    }
    std::string_view name() const override { return "counting"; }

  private:
    Storage& storage_;
    CallLog& log_;
};

}  // namespace tailrace::internal::testing_support
