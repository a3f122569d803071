// WatchedStorage: passes everything on to another storage and keeps a list of what was done, for tests that
// ask in which order things happened, or how far a reader has come. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/forwarding_storage.h"

namespace tailrace::internal {

struct WatchedCall {
    std::string what;  // "open", "write", "sync", "rename", ...
    std::string path;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

class WatchedStorage : public test::ForwardingStorage {
  public:
    explicit WatchedStorage(std::shared_ptr<Storage> inner) : ForwardingStorage(std::move(inner)) {}

    std::vector<WatchedCall> calls() const {
        std::lock_guard lock(log_->mutex);
        return log_->calls;
    }
    // Of all reads of files whose path ends so.
    uint64_t bytes_read(const std::string& ending) const {
        std::lock_guard lock(log_->mutex);
        uint64_t sum = 0;
        for (const auto& [path, bytes] : log_->read) {
            if (path.size() >= ending.size() &&
                path.compare(path.size() - ending.size(), ending.size(), ending) == 0)
                sum += bytes;
        }
        return sum;
    }

    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        log_->add({"open", path});
        TAILRACE_ASSIGN(auto file, inner().open(path, options));
        return std::unique_ptr<File>(new WatchedFile(std::move(file), log_));
    }
    Status rename(const std::string& from, const std::string& to) override {
        log_->add({"rename", to});
        return inner().rename(from, to);
    }
    Status remove(const std::string& path) override {
        log_->add({"remove", path});
        return inner().remove(path);
    }
    Status sync_directory(const std::string& path) override {
        log_->add({"sync_directory", path});
        return inner().sync_directory(path);
    }

  private:
    struct Log {
        mutable std::mutex mutex;
        std::vector<WatchedCall> calls;
        std::map<std::string, uint64_t> read;
        void add(WatchedCall call) {
            std::lock_guard lock(mutex);
            calls.push_back(std::move(call));
        }
    };
    class WatchedFile : public File {
      public:
        WatchedFile(std::unique_ptr<File> inner, std::shared_ptr<Log> log)
            : inner_(std::move(inner)), log_(std::move(log)) {}
        Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
            auto bytes = inner_->read_at(target, offset);
            std::lock_guard lock(log_->mutex);
            if (bytes.ok()) log_->read[path()] += *bytes;
            return bytes;
        }
        Status write_at(std::span<const std::byte> source, uint64_t offset) override {
            log_->add({"write", path(), offset, source.size()});
            return inner_->write_at(source, offset);
        }
        Status reserve(uint64_t offset, uint64_t bytes) override {
            log_->add({"reserve", path(), offset, bytes});
            return inner_->reserve(offset, bytes);
        }
        Status truncate(uint64_t bytes) override {
            log_->add({"truncate", path(), 0, bytes});
            return inner_->truncate(bytes);
        }
        Status sync() override {
            log_->add({"sync", path()});
            return inner_->sync();
        }
        Result<uint64_t> size() override { return inner_->size(); }
        Status close() override { return inner_->close(); }
        const std::string& path() const override { return inner_->path(); }

      private:
        const std::unique_ptr<File> inner_;
        const std::shared_ptr<Log> log_;
    };

    const std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

}  // namespace tailrace::internal
