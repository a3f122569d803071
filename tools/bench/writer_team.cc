#include "bench/writer_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tailrace::tool {

namespace {

Status too_few(uint32_t threads, const std::string& what) {
    return Status(Code::out_of_memory,
                  fmt::format("{} threads were asked for: {}; choose fewer --writers", threads, what));
}

// Those that OpenMP keeps from the last team: a smaller one ends the rest.
uint32_t kept_threads = 1;

uintmax_t threads_now() {
    std::error_code none;
    return std::filesystem::hard_link_count("/proc/self/task", none);  // two more, or a constant
}

}  // namespace

Status check_team(uint32_t threads) {
    if (threads <= kept_threads) return Status();
    const uintmax_t before = threads_now();
    std::latch enough(1);
    std::vector<std::thread> team(threads - kept_threads);
    Status status;
    for (uint32_t i = 0; i < team.size() && status.ok(); ++i) {
        try {
            team[i] = std::thread([&] { enough.wait(); });
        } catch (const std::system_error&) {
            status =
                too_few(threads, fmt::format("the system gives {}; ulimit -u, ulimit -v or a control group "
                                             "may hold more back",
                                             kept_threads + i));
        }
    }
    enough.count_down();
    for (std::thread& thread : team)
        if (thread.joinable()) thread.join();
    // The system counts a thread for a moment after it was joined, and OpenMP is to have its place.
    for (int i = 0; i < 1000 && threads_now() > before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return status;
}

#ifdef _OPENMP

Status run_team(uint32_t threads, const std::function<void(uint32_t)>& body) {
    TAILRACE_TRY(check_team(threads));
    omp_set_dynamic(0);
    int there = 0;
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
#pragma omp single
        there = omp_get_num_threads();
        if (static_cast<uint32_t>(there) == threads) body(static_cast<uint32_t>(omp_get_thread_num()));
    }
    kept_threads = static_cast<uint32_t>(there);
    if (kept_threads == threads) return Status();
    return too_few(threads, fmt::format("OpenMP gave {}; OMP_THREAD_LIMIT may hold more back", there));
}

std::string team_name() {
    return fmt::format("OpenMP {}", _OPENMP);
}

#else

Status run_team(uint32_t threads, const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> team;
    Status status;
    try {
        for (uint32_t i = 1; i < threads; ++i) team.emplace_back(body, i);
        body(0);
    } catch (const std::system_error& error) {
        status = too_few(threads, error.what());
    }
    for (std::thread& thread : team) thread.join();
    return status;
}

std::string team_name() {
    return "std::thread";
}

#endif

}  // namespace tailrace::tool
