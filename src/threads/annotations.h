// Annotations for Clang's analysis of locks (-Wthread-safety). They say which mutex guards what,
// and which mutex a function needs. Other compilers ignore them.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define TAILRACE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TAILRACE_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(name) TAILRACE_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY TAILRACE_THREAD_ANNOTATION(scoped_lockable)
// A member that may be used only with the mutex held; for a pointer, what it leads to.
#define GUARDED_BY(mutex) TAILRACE_THREAD_ANNOTATION(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) TAILRACE_THREAD_ANNOTATION(pt_guarded_by(mutex))
// A function whose caller must hold the mutex, and one whose caller must not.
#define REQUIRES(...) TAILRACE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TAILRACE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// A function that locks the mutex, and one that unlocks it.
#define ACQUIRE(...) TAILRACE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) TAILRACE_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TAILRACE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) TAILRACE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) TAILRACE_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
// A scoped lock releases what it holds, alone or shared.
#define RELEASE_GENERIC(...) TAILRACE_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define ACQUIRED_BEFORE(...) TAILRACE_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
// For code that the analysis cannot follow. A comment there says why the code is right.
#define NO_THREAD_SAFETY_ANALYSIS TAILRACE_THREAD_ANNOTATION(no_thread_safety_analysis)
