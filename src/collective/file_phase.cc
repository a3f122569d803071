#include "collective/file_phase.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/caught.h"
#include "base/units.h"
#include "requests/statistics.h"

namespace tailrace::internal::collective {

namespace {

// The submitter's images bound the tasks under way. This bound only has to be larger.
constexpr size_t most_tasks = 64;

constexpr uint64_t local_read_hole = 8 * KiB;
constexpr uint64_t remote_hole = 64 * KiB;

}  // namespace

bool is_local(std::string_view file_system) {
    constexpr std::array names = {"ext4", "xfs",     "btrfs", "tmpfs", "ramfs",
                                  "zfs",  "overlay", "f2fs",  "vfat",  "memory"};
    return std::find(names.begin(), names.end(), file_system) != names.end();
}

Sieving sieving_for(std::string_view file_system, Sieve reads, Sieve writes) {
    const bool local = is_local(file_system);
    Sieving sieving;
    if (reads != Sieve::never)
        sieving.read_hole_bytes = local && reads == Sieve::automatic ? local_read_hole : remote_hole;
    if (writes == Sieve::always || (writes == Sieve::automatic && !local))
        sieving.write_hole_bytes = remote_hole;
    return sieving;
}

std::vector<Stretch> make_stretches(std::span<const Request> runs, uint64_t hole_bytes, uint64_t file_bytes,
                                    uint64_t block_bytes) {
    std::vector<Stretch> stretches;
    for (const Request& run : runs) {
        if (!stretches.empty()) {
            Stretch& last = stretches.back();
            const uint64_t hole = run.offset - last.end;
            const uint64_t first_new = std::max(last.end, file_bytes);
            const bool new_block = align_up(first_new, block_bytes) + block_bytes <= run.offset;
            if (hole <= hole_bytes && (file_bytes == UINT64_MAX || !new_block)) {
                last.end = run.end();
                continue;
            }
        }
        stretches.push_back({run.offset, run.end()});
    }
    return stretches;
}

FilePhase::FilePhase(OpenFile open_file, Sieving sieving, uint64_t block_bytes, std::function<void()> wake)
    : open_file_(std::move(open_file)),
      sieving_(sieving),
      block_bytes_(block_bytes),
      wake_(std::move(wake)),
      tasks_(most_tasks),
      worker_("tailrace-file", {}, [this](std::stop_token) { run(); }) {}

FilePhase::~FilePhase() {
    tasks_.close();
    worker_.join();
}

void FilePhase::submit(FileTask* task) {
    tasks_.push(task);
}

void FilePhase::run() {
    // Opening takes a while on a file system behind a network. The first task will see its result.
    (void)catching([&] { return open_file_(); });
    while (std::optional<FileTask*> next = tasks_.pop()) {
        FileTask& task = **next;
        {
            const Stopwatch stopwatch(task.seconds);
            task.status = catching([&]() -> Status {
                              TAILRACE_ASSIGN(File* const file, open_file_());
                              return carry_out(*file, task);
                          }).with_context("a window of the file");
        }
        task.finished.store(true, std::memory_order_release);
        wake_();
    }
}

Status FilePhase::carry_out(File& file, FileTask& task) {
    std::vector<Request> runs;
    task.merged = merge(task.lists, runs);
    task.runs = runs.size();
    task.at_begin = !runs.empty() && runs.front().offset == task.window.begin;
    task.at_end = !runs.empty() && runs.back().end() == task.window.end;
    return task.writes ? write(file, task, runs) : read(file, task, runs);
}

Status FilePhase::write(File& file, FileTask& task, const std::vector<Request>& runs) {
    uint64_t file_bytes = 0;
    if (sieving_.write_hole_bytes > 0 && runs.size() > 1) {
        TAILRACE_ASSIGN(file_bytes, file.size());
    }
    size_t run = 0;
    for (const Stretch& stretch : make_stretches(runs, sieving_.write_hole_bytes, file_bytes, block_bytes_)) {
        const size_t first = run;
        while (run < runs.size() && runs[run].offset < stretch.end) ++run;
        TAILRACE_TRY(write_stretch(file, task, std::span(runs).subspan(first, run - first)));
    }
    return Status();
}

// Writes the bytes between the runs of a stretch along with them, and zeros beyond the end of the
// file. A hole that has a whole block and only zeros is left out, because it may be a hole of the
// file.
Status FilePhase::write_stretch(File& file, FileTask& task, std::span<const Request> runs) {
    uint64_t begin = runs.front().offset;
    const auto write_until = [&](uint64_t end) {
        ++task.operations;
        return file.write_at(task.image.subspan(begin - task.window.begin, end - begin), begin);
    };
    if (runs.size() > 1) {
        const uint64_t first_hole = runs.front().end();
        const auto around = static_cast<size_t>(runs.back().offset - first_hole);
        if (spare_.size() < around) spare_.resize(around);
        const auto spare = std::span(spare_).first(around);
        ++task.operations;
        TAILRACE_ASSIGN(const size_t got, file.read_at(spare, first_hole));
        std::fill(spare.begin() + static_cast<std::ptrdiff_t>(got), spare.end(), std::byte{0});
        for (size_t i = 1; i < runs.size(); ++i) {
            const uint64_t hole = runs[i - 1].end(), end = runs[i].offset;
            const auto found = spare.subspan(hole - first_hole, end - hole);
            const bool has_block = align_up(hole, block_bytes_) + block_bytes_ <= end;
            if (has_block &&
                std::all_of(found.begin(), found.end(), [](std::byte b) { return b == std::byte{0}; })) {
                TAILRACE_TRY(write_until(hole));
                begin = end;
            } else {
                std::copy(found.begin(), found.end(),
                          task.image.begin() + static_cast<std::ptrdiff_t>(hole - task.window.begin));
            }
        }
    }
    return write_until(runs.back().end());
}

Status FilePhase::read(File& file, FileTask& task, const std::vector<Request>& runs) {
    for (const Stretch& stretch : make_stretches(runs, sieving_.read_hole_bytes, UINT64_MAX, block_bytes_)) {
        const std::span<std::byte> target =
            task.image.subspan(stretch.begin - task.window.begin, stretch.end - stretch.begin);
        ++task.operations;
        TAILRACE_ASSIGN(const size_t got, file.read_at(target, stretch.begin));
        if (got == target.size()) continue;
        task.file_end = std::min(task.file_end, stretch.begin + got);
        std::fill(target.begin() + static_cast<std::ptrdiff_t>(got), target.end(), std::byte{0});
    }
    return Status();
}

}  // namespace tailrace::internal::collective
