#include "threads/worker.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tailrace::internal {

namespace {

// Under Linux both calls affect only the calling thread. They may fail: a thread that may not lower
// its priority still does its work.
void apply(const Priority& priority) {
    if (priority.nice > 0) {
        const auto self = static_cast<id_t>(syscall(SYS_gettid));
        (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + priority.nice);
    }
    if (priority.idle_io) {
        constexpr int who_process = 1, class_best_effort = 2, class_shift = 13, lowest_level = 7;
        (void)syscall(SYS_ioprio_set, who_process, 0, (class_best_effort << class_shift) | lowest_level);
    }
}

}  // namespace

Worker::Worker(std::string name, Priority priority, std::function<void(std::stop_token)> body)
    : stop_(std::stop_source()) {
    auto run = [body = std::move(body), stop = stop_.get_token()] { body(stop); };
    if (Executor* executor = Executor::installed()) {
        task_ = executor->start(name, std::move(run));
        return;
    }
    // Signals belong to the program's threads. A worker blocks them all, from its first
    // instruction. The caller gets its signal mask back, even if no thread can be started
    // (std::system_error).
    struct SignalsBlocked {
        sigset_t before;
        SignalsBlocked() {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    } blocked;
    thread_ = std::thread([name = std::move(name), priority, run = std::move(run)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        apply(priority);
        run();
    });
}

void Worker::join() {
    if (thread_.joinable()) thread_.join();
    if (task_) Executor::installed()->join(*task_);
    task_.reset();
}

}  // namespace tailrace::internal
