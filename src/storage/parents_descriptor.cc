#include "storage/parents_descriptor.h"

#include <pthread.h>

#include <set>
#include <utility>

#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

struct All {
    Mutex mutex;
    std::set<Descriptor*> descriptors GUARDED_BY(mutex);
};
All& all() {
    static All& descriptors = *new All;  // never destroyed: a program may fork while it exits
    return descriptors;
}

// The forking thread holds the mutex from the first of these to the last, in parent and child.
void before_fork() ACQUIRE(all().mutex) {
    all().mutex.lock();
}
void after_fork() RELEASE(all().mutex) {
    all().mutex.unlock();
}
void close_in_child() RELEASE(all().mutex) {
    for (Descriptor* descriptor : all().descriptors) (void)descriptor->close();
    all().mutex.unlock();
}

}  // namespace

ParentsDescriptor::ParentsDescriptor(Descriptor descriptor)
    : descriptor_(std::make_unique<Descriptor>(std::move(descriptor))) {
    static const int registered = pthread_atfork(before_fork, after_fork, close_in_child);
    (void)registered;  // if there is no memory for that, children keep it
    MutexLock lock(all().mutex);
    all().descriptors.insert(descriptor_.get());
}

ParentsDescriptor::~ParentsDescriptor() {
    if (!descriptor_) return;
    MutexLock lock(all().mutex);
    all().descriptors.erase(descriptor_.get());
}

}  // namespace tailrace::internal
