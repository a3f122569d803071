// Annotations for Clang's analysis of locks (-Wthread-safety): which mutex guards what, and which a function
// needs. Other compilers ignore them.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define TAILRACE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TAILRACE_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(name) TAILRACE_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY TAILRACE_THREAD_ANNOTATION(scoped_lockable)
// A member that is read and written with the mutex held only; what a pointer leads to.
#define GUARDED_BY(mutex) TAILRACE_THREAD_ANNOTATION(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) TAILRACE_THREAD_ANNOTATION(pt_guarded_by(mutex))
// A function whose caller holds the mutex; one whose caller must not.
#define REQUIRES(...) TAILRACE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TAILRACE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// A function that takes the mutex, or releases it.
#define ACQUIRE(...) TAILRACE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) TAILRACE_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TAILRACE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) TAILRACE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) TAILRACE_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
// A scoped lock releases what it took, alone or shared.
#define RELEASE_GENERIC(...) TAILRACE_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define ACQUIRED_BEFORE(...) TAILRACE_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
// Where the analysis cannot follow. A comment says why the code is right.
#define NO_THREAD_SAFETY_ANALYSIS TAILRACE_THREAD_ANNOTATION(no_thread_safety_analysis)
