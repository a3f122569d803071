// What the tests of failing flushes have in common: small clusters on storages in memory, and a quiet log.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "aggregate/cluster.h"
#include "base/log.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal {

// Injected faults are expected: their log lines say nothing here.
class AggregatorFaultsTest : public testing::Test {
  protected:
    void SetUp() override {
        set_log_callback([](LogLevel, std::string_view) {});
        (void)memory->make_directories(Cluster::shared_dir);
    }
    void TearDown() override { set_log_callback({}); }

    std::shared_ptr<MemoryStorage> local = std::make_shared<MemoryStorage>();
    std::shared_ptr<MemoryStorage> memory = std::make_shared<MemoryStorage>();
};

inline bool directory_is_empty(Storage& storage) {
    auto entries = storage.list(Cluster::shared_dir);
    return entries.ok() && entries->empty();
}

}  // namespace tailrace::internal
