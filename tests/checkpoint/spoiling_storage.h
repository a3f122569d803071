// SpoilingStorage: passes everything on to another storage, and lets something happen to a file as soon as it
// was renamed: what somebody else does to it at the worst of times.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "storage/storage.h"

namespace tailrace::testing_support {

class SpoilingStorage : public Storage {
  public:
    SpoilingStorage(std::shared_ptr<Storage> inner, std::function<void(const std::string& path)> spoil)
        : inner_(std::move(inner)), spoil_(std::move(spoil)) {}
    Status rename(const std::string& from, const std::string& to) override {
        TAILRACE_TRY(inner_->rename(from, to));
        spoil_(to);
        return {};
    }
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        return inner_->open(path, options);
    }
    Status remove(const std::string& path) override { return inner_->remove(path); }
    Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return inner_->list(path); }
    Status make_directories(const std::string& path) override { return inner_->make_directories(path); }
    Status sync_directory(const std::string& path) override { return inner_->sync_directory(path); }
    Result<SpaceInfo> space(const std::string& path) override { return inner_->space(path); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path) override {
        return inner_->lock_directory(path);
    }
    std::string_view name() const override { return "spoiling"; }

  private:
    const std::shared_ptr<Storage> inner_;
    const std::function<void(const std::string&)> spoil_;
};

}  // namespace tailrace::testing_support
