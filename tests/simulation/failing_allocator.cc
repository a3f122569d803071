#include "simulation/failing_allocator.h"

#include <cstdlib>
#include <new>

#include "simulation/virtual_executor.h"

namespace tailrace::internal::testing_support {

namespace {

bool counting = false;
uint64_t counted = 0, first_failing = 0, after_failing = 0;

bool fails_now() {
    if (!counting || VirtualExecutor::OwnWork::is_done()) return false;
    ++counted;
    return first_failing <= counted && counted < after_failing;
}

}  // namespace

void FailingAllocator::begin(uint64_t n, uint64_t failures) {
    counted = 0;
    first_failing = n;
    after_failing = n == 0 ? 0 : n + failures;
}
void FailingAllocator::count(bool on) {
    counting = on;
}
uint64_t FailingAllocator::allocations() {
    return counted;
}

}  // namespace tailrace::internal::testing_support

void* operator new(size_t bytes) {
    if (tailrace::internal::testing_support::fails_now()) throw std::bad_alloc();
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}
