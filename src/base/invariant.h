// INVARIANT states what must hold if our own code is right. Bytes of files and of other ranks are
// no invariants. They are checked always, and give errors.
//
// A broken invariant is logged together with the last steps of this process, and thrown as
// BrokenInvariant. No code continues with a wrong state: the thread's owner catches it
// (base/caught.h), the session fails with its sentence, and the program goes on. A test installs a
// handler that ends the process instead, because an orderly failure would look like any other.
//
// A destructor must not throw. There, INVARIANT_HOLDS says whether the condition is true, and reports
// it in the same way if it is not.
//
// COSTLY_INVARIANT is for conditions that take longer than a comparison. Builds with tests check
// it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tailrace::internal {

class BrokenInvariant : public std::logic_error {
    using std::logic_error::logic_error;
};

// Sets a handler that is called instead of the throw, and should not return. Null, the default:
// none. Not thread-safe.
void on_broken_invariant(void (*handler)(const std::string& sentence));

// Also called by libraries that see nothing else of this part (tailrace_mpi).
[[noreturn, gnu::visibility("default")]] void broken_invariant(const char* condition, const char* file,
                                                               int line);
// Does all of that but the throw. Returns false.
bool report_broken_invariant(const char* condition, const char* file, int line) noexcept;

// Remembers that something decisive happened: a literal, and two numbers with the details. The last
// 32 steps of all threads are kept. Cheap, and safe from any thread.
void note_step(const char* what, uint64_t a = 0, uint64_t b = 0) noexcept;
// The last steps, one per line, oldest first.
std::string last_steps();

}  // namespace tailrace::internal

#define INVARIANT(condition)            \
    ((condition) ? static_cast<void>(0) \
                 : ::tailrace::internal::broken_invariant(#condition, __FILE__, __LINE__))

#define INVARIANT_HOLDS(condition) \
    ((condition) || ::tailrace::internal::report_broken_invariant(#condition, __FILE__, __LINE__))

#if defined(TAILRACE_COSTLY_INVARIANTS)
#define COSTLY_INVARIANT(condition) INVARIANT(condition)
#else
#define COSTLY_INVARIANT(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#endif
