// The way from the machine and the job into a Config, and the checks of values against each other.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"
#include "base/time_text.h"
#include "base/units.h"
#include "config/config.h"
#include "config/local_directory.h"
#include "format/manifest.h"
#include "format/outputs_directory.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_files_per_rank = 64;
constexpr uint64_t max_buffer_bytes = GiB;
constexpr uint64_t min_block_bytes = 4096;
constexpr uint64_t max_stripe_align = uint64_t{1} << 40;

int64_t unix_seconds_now() {
    return static_cast<int64_t>(unix_ms_now() / 1000);
}

// The number of hardware threads that this process may run on.
uint32_t own_hardware_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    // With more than CPU_SETSIZE processors the call fails, and the machine's count is as good.
    if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

// A rank that is bound to some of the machine's threads has these to itself. Unbound ranks share
// all threads, at worst with every other rank. One thread reaches about the copy speed of a small
// machine, and four saturate a socket's memory. Half of a rank's threads is what a pause of the
// program can be asked to give.
uint32_t default_copy_threads(uint32_t own_threads, uint32_t machine_threads, int rank_count) {
    const bool bound = own_threads < machine_threads;
    const uint32_t share = bound ? own_threads : own_threads / static_cast<uint32_t>(std::max(1, rank_count));
    return share < 4 ? 1 : std::min(4u, share / 2);
}

// Where programs keep their state between runs (XDG base directories). Empty if there is no home
// directory.
std::string default_record_dir() {
    const char* state = std::getenv("XDG_STATE_HOME");
    if (state != nullptr && *state == '/') return fmt::format("{}/tailrace", state);
    const char* home = std::getenv("HOME");
    if (home != nullptr && *home == '/') return fmt::format("{}/.local/state/tailrace", home);
    return "";
}

// What the batch system says of this job's end. Text that is no time in the future was left in the
// environment by another job.
std::string end_of_batch_job() {
    const char* text = std::getenv("SLURM_JOB_END_TIME");
    if (text == nullptr || *text == '\0') return "";
    const int64_t now = unix_seconds_now();
    const auto end = parse_moment(text, now);
    if (end.ok() && *end > now) return std::to_string(*end);
    log(LogLevel::info, "SLURM_JOB_END_TIME is \"{}\", which is not a time in the future, so it is not used",
        shortened(text));
    return "";
}

Status make_absolute(std::string& path) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(path, error);
    if (error)
        return Status(Code::io_error, fmt::format("making the path {} absolute: {}", path, error.message()));
    path = absolute.lexically_normal().string();
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return {};
}

Status check_block_and_buffer(const Config& config) {
    const uint64_t block = config.block_bytes, buffer = config.buffer_bytes;
    if (block != 0 && (block < min_block_bytes || (block & (block - 1)) != 0))
        return Status(
            Code::invalid_argument,
            fmt::format("block_bytes = {}: a power of two from 4KiB is expected, or 0 to ask the file "
                        "system",
                        block));
    if (buffer == 0 || buffer > max_buffer_bytes || buffer % check_block_bytes != 0)
        return Status(
            Code::invalid_argument,
            fmt::format("buffer_bytes = {}: a multiple of 256KiB, at most 1GiB, is expected", buffer));
    if (block != 0 && buffer % block != 0)
        return Status(Code::invalid_argument,
                      fmt::format("buffer_bytes = {} is not a multiple of block_bytes = {}", buffer, block));
    if (config.stripe_align > max_stripe_align || config.stripe_align % std::max(block, min_block_bytes) != 0)
        return Status(Code::invalid_argument, fmt::format("stripe_align = {}: a multiple of 4KiB and of "
                                                          "block_bytes, at most 1TiB, is expected, or 0 to "
                                                          "follow the file system",
                                                          config.stripe_align));
    return {};
}

// A Config may have been filled in as a struct. So values that set_config would refuse are refused
// here, too.
Status check_each_value(const Config& config) {
    for (const ConfigKey& key : config_keys()) {
        Config scratch;
        TAILRACE_ASSIGN(const auto value, get_config(config, key.name));
        TAILRACE_TRY(set_config(scratch, key.name, value));
    }
    return {};
}

// Outputs have a directory of their own, so nothing that looks for checkpoints finds them.
Status complete_purpose(Config& config) {
    if (config.purpose != Purpose::outputs) return {};
    const auto directory = fmt::format("/{}", outputs_directory(config.name));
    const bool is_complete = config.shared_dir.ends_with(directory);  // or the user has named it so
    if (config.keep_shared != 0 && !(is_complete && config.keep_shared == config.keep_outputs))
        return Status(Code::invalid_argument,
                      fmt::format("keep_shared = {} does not count outputs: set keep_outputs instead",
                                  config.keep_shared));
    if (!is_complete) config.shared_dir += directory;
    config.keep_shared = config.keep_outputs;
    return {};
}

}  // namespace

Status complete_config(Config& config, int rank_count) {
    TAILRACE_TRY(check_each_value(config));
    if (config.shared_dir.empty())
        return Status(
            Code::invalid_argument,
            "shared_dir is not set: name the directory for the checkpoint files, as shared_dir = "
            "\"...\" in the configuration file, TAILRACE_SHARED_DIR in the environment, or the option "
            "\"shared_dir\" in the program");
    const auto ranks = static_cast<uint64_t>(std::max(1, rank_count));
    const uint64_t max_files_of_ranks = max_files_per_rank * ranks;
    if (config.files > max_files_of_ranks)
        return Status(Code::invalid_argument,
                      fmt::format("files = {}: at most {} per rank are allowed, {} for {}", config.files,
                                  max_files_per_rank, max_files_of_ranks, counted(ranks, "rank")));
    TAILRACE_TRY(check_block_and_buffer(config));

    if (config.local_dir.empty()) config.local_dir = default_local_dir();
    TAILRACE_TRY(make_absolute(config.local_dir));
    TAILRACE_TRY(make_absolute(config.shared_dir));
    TAILRACE_TRY(complete_purpose(config));
    if (config.record_dir.empty()) config.record_dir = default_record_dir();
    if (!config.record_dir.empty()) TAILRACE_TRY(make_absolute(config.record_dir));
    if (!config.trace_dir.empty()) TAILRACE_TRY(make_absolute(config.trace_dir));
    if (config.job_end.empty()) {
        config.job_end = end_of_batch_job();
    } else {
        TAILRACE_ASSIGN(const int64_t end, parse_moment(config.job_end, unix_seconds_now()));
        config.job_end = std::to_string(end);
    }
    const uint32_t own_threads = own_hardware_threads();
    const auto machine_threads = static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    // Writers wait for the storage most of the time, so few processors are no reason for fewer
    // writers.
    if (config.writers == 0) config.writers = std::clamp(own_threads, 4u, 8u);
    if (config.copy_threads == 0)
        config.copy_threads = default_copy_threads(own_threads, machine_threads, rank_count);
    return {};
}

}  // namespace tailrace::internal
