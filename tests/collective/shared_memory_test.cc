// Memory that processes of a node share.
#include "collective/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>

namespace tailrace::internal::collective {

TEST(SharedMemoryTest, AnotherProcessSeesWhatIsWritten) {
    auto shared = SharedMemory::create(10000);
    ASSERT_TRUE(shared.ok());
    ASSERT_GE(shared->memory().size(), 10000u);
    const SharedName name = shared->name();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        auto attached = AttachedMemory::attach(name);
        if (!attached.ok()) _exit(1);
        std::memcpy(attached->memory().data() + 9000, "hello", 6);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_STREQ(reinterpret_cast<const char*>(shared->memory().data() + 9000), "hello");
}

TEST(SharedMemoryTest, GrowsByBecomingAnother) {
    SharedMemory shared;
    ASSERT_TRUE(shared.ensure(100).ok());
    const SharedName first = shared.name();
    ASSERT_TRUE(shared.ensure(4096).ok());
    EXPECT_EQ(shared.name(), first);
    ASSERT_TRUE(shared.ensure(100000).ok());
    EXPECT_NE(shared.name(), first);
    EXPECT_GE(shared.memory().size(), 100000u);
}

TEST(SharedMemoryTest, AttachmentsFollowTheName) {
    SharedMemory shared;
    Attachments attachments;
    ASSERT_TRUE(shared.ensure(100).ok());
    auto seen = attachments.at(3, 0, shared.name());
    ASSERT_TRUE(seen.ok());
    shared.memory()[5] = std::byte{7};
    EXPECT_EQ((*seen)[5], std::byte{7});
    EXPECT_EQ(attachments.at(3, 0, shared.name())->data(), seen->data());
    ASSERT_TRUE(shared.ensure(100000).ok());
    shared.memory()[99999] = std::byte{8};
    auto again = attachments.at(3, 0, shared.name());
    ASSERT_TRUE(again.ok());
    EXPECT_EQ((*again)[99999], std::byte{8});
}

TEST(SharedMemoryTest, BeyondALimitOnFilesThereIsMemoryThatIsNotShared) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(SharedMemory::is_limited());
    const rlimit low{4096, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    const auto shared = SharedMemory::create(1 << 20);
    const bool limited = SharedMemory::is_limited();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_TRUE(limited);
    ASSERT_TRUE(shared.ok());
    shared->memory()[(1 << 20) - 1] = std::byte{1};
    EXPECT_EQ(shared->name().process, 0u);
    EXPECT_FALSE(AttachedMemory::attach(shared->name()).ok());
}

TEST(SharedMemoryTest, WhatIsGoneCannotBeAttachedTo) {
    std::optional<SharedMemory> shared = std::move(*SharedMemory::create(100));
    const SharedName name = shared->name();
    shared.reset();
    EXPECT_FALSE(AttachedMemory::attach(name).ok());
}

}  // namespace tailrace::internal::collective
