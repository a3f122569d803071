// SpoilingStorage: passes everything on to another storage, and lets something happen to a file as soon as it
// was renamed: what somebody else does to it at the worst of times.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "storage/forwarding_storage.h"

namespace tailrace::internal::testing_support {

class SpoilingStorage : public test::ForwardingStorage {
  public:
    SpoilingStorage(std::shared_ptr<Storage> inner, std::function<void(const std::string& path)> spoil)
        : ForwardingStorage(std::move(inner)), spoil_(std::move(spoil)) {}
    Status rename(const std::string& from, const std::string& to) override {
        TAILRACE_TRY(inner().rename(from, to));
        spoil_(to);
        return {};
    }

  private:
    const std::function<void(const std::string&)> spoil_;
};

}  // namespace tailrace::internal::testing_support
