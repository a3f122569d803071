// INVARIANT: what must hold if our own code is right. Bytes of files and of other ranks are no such thing:
// they are checked always, and give errors.
//
// A broken invariant is told to the log together with the last steps of this process, and thrown as
// BrokenInvariant. Nothing above continues with what is wrong: the thread's owner catches it (base/caught.h),
// and the session fails with its sentence. The program goes on. A test installs a handler that ends the
// process instead, because what fails in order would look like any other failure.
//
// COSTLY_INVARIANT is for what takes longer than a comparison. It is checked in builds that have tests.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tailrace::internal {

class BrokenInvariant : public std::logic_error {
    using std::logic_error::logic_error;
};

// What happens in place of the throw. It should not return. Null: nothing; the default. Not thread-safe.
void on_broken_invariant(void (*handler)(const std::string& sentence));

[[noreturn]] void broken_invariant(const char* condition, const char* file, int line);

// Remembers that something decisive happened: a literal, and two numbers that tell which. The last 32 steps
// of all threads are kept. Cheap, and safe from any thread.
void note_step(const char* what, uint64_t a = 0, uint64_t b = 0) noexcept;
// One line for each, the oldest first.
std::string last_steps();

}  // namespace tailrace::internal

#define INVARIANT(condition)            \
    ((condition) ? static_cast<void>(0) \
                 : ::tailrace::internal::broken_invariant(#condition, __FILE__, __LINE__))

#if defined(TAILRACE_COSTLY_INVARIANTS)
#define COSTLY_INVARIANT(condition) INVARIANT(condition)
#else
#define COSTLY_INVARIANT(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#endif
