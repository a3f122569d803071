#include "bench/writer_team.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <limits>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tailrace::internal::tool {

namespace {

Status too_few(uint32_t threads, const std::string& what) {
    return Status(Code::out_of_memory,
                  fmt::format("{} threads are needed, but {}; choose fewer --writers", threads, what));
}

// The threads that OpenMP keeps from the last team. A smaller team ends the others.
uint32_t kept_threads = 1;

// /proc/self/task has a link for each thread, and two more. Some kernels report a constant; then
// nobody waits.
uintmax_t threads_now() {
    std::error_code none;
    return std::filesystem::hard_link_count("/proc/self/task", none);
}

}  // namespace

Status check_team(uint32_t threads) {
    if (threads <= kept_threads) return Status();
    const uintmax_t before = threads_now();
    std::latch enough(1);
    std::vector<pthread_t> team(threads - kept_threads);
    size_t started = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (const size_t bytes = team_stack_bytes(std::getenv("OMP_STACKSIZE")); bytes != 0)
        pthread_attr_setstacksize(&attributes, bytes);  // EINVAL if it is too small; the default stays
    const auto wait = [](void* latch) -> void* {
        static_cast<std::latch*>(latch)->wait();
        return nullptr;
    };
    while (started < team.size() && pthread_create(&team[started], &attributes, wait, &enough) == 0)
        ++started;
    pthread_attr_destroy(&attributes);
    enough.count_down();
    for (size_t i = 0; i < started; ++i) pthread_join(team[i], nullptr);
    // The system still counts a thread for a moment after it was joined. OpenMP must find its place
    // free.
    for (int i = 0; i < 1000 && threads_now() > before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (started == team.size()) return Status();
    return too_few(threads,
                   fmt::format("the system gives {}; ulimit -u, ulimit -v, OMP_STACKSIZE or a control group "
                               "may limit them",
                               kept_threads + started));
}

size_t team_stack_bytes(const char* text) {
    if (text == nullptr) return 0;
    char* end = nullptr;
    const unsigned long long number = std::strtoull(text, &end, 10);
    if (end == text) return 0;
    while (*end == ' ') ++end;
    const std::string_view unit(end);
    static constexpr std::string_view units = "BKMG";
    const size_t step = unit.empty() ? 1 : units.find(static_cast<char>(std::toupper(unit.front())));
    if (step == std::string_view::npos || number > (std::numeric_limits<size_t>::max() >> (10 * step)))
        return 0;
    return static_cast<size_t>(number) << (10 * step);
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
    return too_few(threads, fmt::format("OpenMP gave {}; OMP_THREAD_LIMIT may limit them", there));
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

}  // namespace tailrace::internal::tool
