#include "bench/writer_team.h"

#include <fmt/format.h>

#ifdef _OPENMP
#include <omp.h>
#else
#include <system_error>
#include <thread>
#include <vector>
#endif

namespace tailrace::tool {

namespace {

Status too_few(uint32_t threads, const std::string& what) {
    return Status(Code::out_of_memory, fmt::format("{} threads were asked for: {}", threads, what));
}

}  // namespace

#ifdef _OPENMP

Status run_team(uint32_t threads, const std::function<void(uint32_t)>& body) {
    omp_set_dynamic(0);
    int there = 0;
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
#pragma omp single
        there = omp_get_num_threads();
        if (static_cast<uint32_t>(there) == threads) body(static_cast<uint32_t>(omp_get_thread_num()));
    }
    if (static_cast<uint32_t>(there) == threads) return Status();
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
