// NoThreads: a system that gives no threads, for tests of what happens then.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace tailrace::internal::testing_support {

// As long as it lives, no thread can be made: each would need more stack than there are addresses.
class NoThreads {
  public:
    NoThreads() {
        pthread_attr_t huge;
        EXPECT_EQ(pthread_getattr_default_np(&usual_), 0);
        EXPECT_EQ(pthread_getattr_default_np(&huge), 0);
        EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
        EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
        pthread_attr_destroy(&huge);
    }
    ~NoThreads() {
        EXPECT_EQ(pthread_setattr_default_np(&usual_), 0);
        pthread_attr_destroy(&usual_);
    }

  private:
    pthread_attr_t usual_;
};

}  // namespace tailrace::internal::testing_support
