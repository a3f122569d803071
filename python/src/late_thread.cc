// Threads that are still in foreign code when Python ends.
//
// Until Python 3.14 such a thread is unwound when it asks for the GIL (pthread_exit). C++
// extensions let no exception out of the place where they ask. So the unwinding ends the process by
// std::terminate and SIGABRT, after the program has done all of its work. From 3.14 on Python lets
// the thread sleep for ever, and so do we.
#include <dlfcn.h>
#include <unistd.h>

#include <exception>
#include <mutex>

#include "bindings.h"

namespace tailrace::internal::python {

namespace {

thread_local bool may_be_late = false;
std::terminate_handler handler_before = nullptr;

// Python's own question. It is public from 3.13 on, and the limited API of 3.12 has neither name, so
// the running interpreter is asked for it.
int (*python_ends)() = nullptr;

void find_python_ends() {
    for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"})
        if (void* found = dlsym(RTLD_DEFAULT, name); found != nullptr && python_ends == nullptr)
            python_ends = reinterpret_cast<int (*)()>(found);
}

[[noreturn]] void sleep_or_terminate() {
    while (may_be_late && python_ends != nullptr && python_ends() != 0) pause();
    if (handler_before != nullptr) handler_before();
    std::abort();
}

}  // namespace

void this_thread_may_be_late() {
    if (may_be_late || gettid() == getpid()) return;  // the main thread is the one that ends Python
    static std::once_flag once;
    std::call_once(once, [] {
        find_python_ends();
        handler_before = std::set_terminate(sleep_or_terminate);
    });
    may_be_late = true;
}

void bind_late_thread(nb::module_& module) {
    module.def("this_thread_may_be_late", &this_thread_may_be_late);
}

}  // namespace tailrace::internal::python
