// ForwardingStorage: passes every call on to another storage. What tests derive from it does something else
// in one call or two.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/storage.h"

namespace tailrace::internal::test {

class ForwardingStorage : public Storage {
  public:
    explicit ForwardingStorage(std::shared_ptr<Storage> inner) : inner_(std::move(inner)) {}

    std::string_view name() const override { return "forwarding"; }
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        return inner_->open(path, options);
    }
    Status rename(const std::string& from, const std::string& to) override {
        return inner_->rename(from, to);
    }
    Status remove(const std::string& path) override { return inner_->remove(path); }
    Status remove_directory(const std::string& path) override { return inner_->remove_directory(path); }
    Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return inner_->list(path); }
    Status make_directories(const std::string& path) override { return inner_->make_directories(path); }
    Status sync_directory(const std::string& path) override { return inner_->sync_directory(path); }
    Result<SpaceInfo> space(const std::string& path) override { return inner_->space(path); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind kind) override {
        return inner_->lock_directory(path, kind);
    }
    Result<std::unique_ptr<NumberLock>> lock_number(const std::string& path, uint64_t number) override {
        return inner_->lock_number(path, number);
    }

  protected:
    Storage& inner() { return *inner_; }

  private:
    const std::shared_ptr<Storage> inner_;
};

}  // namespace tailrace::internal::test
