#include "bench/bench_run.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>

#include "aggregate/local_reader.h"
#include "aggregate/segment_writer.h"
#include "base/units.h"
#include "bench/writer_team.h"
#include "format/epoch_key.h"
#include "memory/buffer_pool.h"
#include "storage/own_directories.h"
#include "threads/mutex.h"

namespace tailrace::internal::tool {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view directory_prefix = "tailrace-bench.", parts_suffix = ".parts",
                           part_prefix = "part";
constexpr int most_names = 100;
constexpr size_t pool_alignment = 4096;
constexpr uint64_t huge_page_bytes = 2 * MiB;
// The space to leave free beside a run: a tenth of it, and at least this.
constexpr uint64_t least_margin = 256 * MiB;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Fills with numbers that no file system can compress or deduplicate: a new sequence for each seed.
void fill(std::span<std::byte> memory, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t at = 0; at + 8 <= memory.size(); at += 8) {
        const uint64_t number = random();
        std::memcpy(memory.data() + at, &number, 8);
    }
}

// A line of /proc/meminfo. Nothing if the system has no such line.
std::optional<uint64_t> memory_info(const std::string& name) {
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);) {
        unsigned long long kib = 0;
        if (line.starts_with(name + ":") && std::sscanf(line.c_str() + name.size() + 1, "%llu", &kib) == 1)
            return kib * KiB;
    }
    return std::nullopt;
}

// The bytes that the system has still to write, of all programs.
uint64_t dirty_bytes_now() {
    return memory_info("Dirty").value_or(0) + memory_info("Writeback").value_or(0);
}

// Leaves out syncs, for runs that need not be durable.
class UnsyncedFile final : public File {
  public:
    explicit UnsyncedFile(std::unique_ptr<File> inner) : inner_(std::move(inner)) {}
    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        return inner_->read_at(target, offset);
    }
    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        return inner_->write_at(source, offset);
    }
    Status reserve(uint64_t offset, uint64_t bytes) override { return inner_->reserve(offset, bytes); }
    Status truncate(uint64_t bytes) override { return inner_->truncate(bytes); }
    Status sync() override { return Status(); }
    Result<uint64_t> size() override { return inner_->size(); }
    Status close() override { return inner_->close(); }
    const std::string& path() const override { return inner_->path(); }

  private:
    const std::unique_ptr<File> inner_;
};

class UnsyncedStorage final : public Storage {
  public:
    explicit UnsyncedStorage(Storage& inner) : inner_(inner) {}
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        TAILRACE_ASSIGN(auto file, inner_.open(path, options));
        return std::unique_ptr<File>(std::make_unique<UnsyncedFile>(std::move(file)));
    }
    Status rename(const std::string& from, const std::string& to) override { return inner_.rename(from, to); }
    Status remove(const std::string& path) override { return inner_.remove(path); }
    Status remove_directory(const std::string& path) override { return inner_.remove_directory(path); }
    Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return inner_.list(path); }
    Status make_directories(const std::string& path) override { return inner_.make_directories(path); }
    Status sync_directory(const std::string&) override { return Status(); }
    Result<SpaceInfo> space(const std::string& path) override { return inner_.space(path); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind kind) override {
        return inner_.lock_directory(path, kind);
    }
    std::string_view name() const override { return inner_.name(); }

  private:
    Storage& inner_;
};

// The prepared buffers, on loan to the writers. A writer that finds none free waits, as in the
// library.
class Buffers {
  public:
    explicit Buffers(BufferPool& pool) {
        while (true) {
            Buffer buffer = pool.try_take();
            if (!buffer.valid()) break;
            free_.push_back(std::move(buffer));
        }
    }
    // Before the writers begin.
    std::vector<Buffer>& all() {
        MutexLock lock(mutex_);
        return free_;
    }
    Buffer take() {
        MutexLock lock(mutex_);
        while (free_.empty()) returned_.wait(lock);
        Buffer buffer = std::move(free_.back());
        free_.pop_back();
        return buffer;
    }
    void give_back(Buffer buffer) {
        MutexLock lock(mutex_);
        free_.push_back(std::move(buffer));
        returned_.notify_one();
    }

  private:
    Mutex mutex_;
    Condition returned_;
    std::vector<Buffer> free_ GUARDED_BY(mutex_);
};

struct WriterTimes {
    double read_seconds = 0, buffer_wait_seconds = 0, write_seconds = 0;
};

// What the writers of one run share.
class Run {
  public:
    Run(const BenchCase& bench, const FlushPlan& plan, SegmentWriter& segment, LocalReader& local,
        Buffers& buffers, const std::atomic<bool>& stop, const std::function<void(uint64_t)>& on_bytes)
        : bench_(bench),
          dealt_(deal_chunks(bench, plan)),
          block_bytes_(plan.block_bytes),
          segment_(segment),
          local_(local),
          buffers_(buffers),
          stop_(stop),
          on_bytes_(on_bytes),
          times_(bench.writers) {}

    // All the work of one writer. Received chunks come first.
    void write(uint32_t writer) {
        if (bench_.placement == BenchPlacement::append) {
            const auto& shared = dealt_.front();
            for (size_t i = next_++; i < shared.size(); i = next_++)
                if (!write_chunk(writer, shared[i], std::nullopt)) return;
        } else {
            for (const BenchChunk& chunk : dealt_[writer])
                if (!write_chunk(writer, chunk, std::nullopt)) return;
        }
        while (const auto piece = next_local())
            if (!write_chunk(writer, {piece->rank, piece->stream_offset, piece->bytes}, piece)) return;
    }

    Status failure() const {
        MutexLock lock(mutex_);
        return failure_;
    }
    const std::vector<WriterTimes>& times() const { return times_; }
    uint64_t written() const { return written_; }
    void report_rest() { report(); }

  private:
    std::optional<LocalChunk> next_local() {
        MutexLock lock(mutex_);
        return local_.next();
    }
    bool fail(Status why) {
        MutexLock lock(mutex_);
        if (failure_.ok()) failure_ = std::move(why);
        failed_ = true;
        return false;
    }
    void report() {
        const uint64_t written = written_;
        if (on_bytes_ && written > reported_) on_bytes_(written - reported_);
        reported_ = written;
    }
    bool write_chunk(uint32_t writer, const BenchChunk& chunk, const std::optional<LocalChunk>& piece) {
        if (failed_) return false;
        if (stop_) return fail(Status(Code::aborted, "the run was interrupted"));
        WriterTimes& times = times_[writer];
        auto start = Clock::now();
        Buffer buffer = buffers_.take();
        times.buffer_wait_seconds += seconds_since(start);
        Result<LocalBytes> source = LocalBytes{nullptr, {}, chunk.bytes};
        if (piece) {
            start = Clock::now();
            source = local_.fetch(*piece, block_bytes_, buffer.memory());
            times.read_seconds += seconds_since(start);
        }
        start = Clock::now();
        Status status = source.status();
        if (status.ok())
            status = segment_.write(chunk.rank, chunk.stream_offset, source->blocks, buffer.memory(),
                                    source->buffered_bytes);
        times.write_seconds += seconds_since(start);
        buffers_.give_back(std::move(buffer));
        if (!status.ok()) return fail(std::move(status));
        written_ += chunk.bytes;
        if (writer == 0) report();
        return true;
    }

    const BenchCase& bench_;
    const std::vector<std::vector<BenchChunk>> dealt_;
    const uint64_t block_bytes_;
    SegmentWriter& segment_;
    LocalReader& local_;
    Buffers& buffers_;
    const std::atomic<bool>& stop_;
    const std::function<void(uint64_t)>& on_bytes_;
    std::vector<WriterTimes> times_;  // each writer changes its own entry
    std::atomic<size_t> next_ = 0;
    std::atomic<uint64_t> written_ = 0;
    std::atomic<bool> failed_ = false;
    uint64_t reported_ = 0;  // only the first writer uses it
    mutable Mutex mutex_;    // also held where `local_` advances
    Status failure_ GUARDED_BY(mutex_);
};

// Calls `work` for each file, on as many threads as there are writers.
Status for_files(const BenchCase& bench, const std::function<Status(uint32_t)>& work) {
    std::vector<Status> statuses(bench.files);
    const uint32_t threads = std::min(bench.writers, bench.files);
    TAILRACE_TRY(run_team(threads, [&](uint32_t thread) {
        for (uint32_t file = thread; file < bench.files; file += threads) statuses[file] = work(file);
    }));
    for (const Status& status : statuses) TAILRACE_TRY(status);
    return Status();
}

// Removes a directory of the benchmark and what is in it.
void remove_directory(Storage& storage, const std::string& path) {
    if (auto entries = storage.list(path); entries.ok())
        for (const DirectoryEntry& entry : *entries) (void)storage.remove(join_path(path, entry.name));
    (void)::rmdir(path.c_str());
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether the name is that of a benchmark's own directory or file.
bool is_own_directory(std::string_view name) {
    if (!name.starts_with(directory_prefix)) return false;
    name.remove_prefix(directory_prefix.size());
    if (name.ends_with(parts_suffix)) name.remove_suffix(parts_suffix.size());
    return is_number(name);
}
bool is_own_file(const DirectoryEntry& entry) {
    if (entry.is_directory) return false;
    const std::string_view name = entry.name;
    if (name.starts_with(part_prefix)) return is_number(name.substr(part_prefix.size()));
    const auto shared = parse_shared_file_name(name);
    return shared && shared->unfinished && shared->job == bench_job;
}

// Anybody may make directories where a benchmark runs, so others' directories and links are left
// alone. If the system does not know the path, it is in a storage in memory, which has only one
// user.
bool is_ours(const std::string& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) != 0 || why_no_own_directory(info, ::geteuid()).empty();
}

// Removes the directories that killed benchmarks have left. A directory that holds anything else
// belongs to somebody else.
Status remove_left(Storage& storage, const std::string& parent) {
    TAILRACE_ASSIGN(const auto entries, storage.list(parent));
    for (const DirectoryEntry& entry : entries) {
        if (!entry.is_directory || !is_own_directory(entry.name)) continue;
        const std::string left = join_path(parent, entry.name);
        if (!is_ours(left)) continue;
        const auto lock = storage.lock_directory(left);
        if (!lock.ok()) continue;
        const auto files = storage.list(left);
        if (files.ok() && std::all_of(files->begin(), files->end(), is_own_file))
            remove_directory(storage, left);
    }
    return Status();
}

std::vector<uint64_t> wanted_parts(const BenchCase& bench) {
    std::vector<uint64_t> bytes;
    const NodeOffer own = offers_of(bench).front();
    for (const StreamInfo& stream : own.streams) bytes.push_back(stream.stream_bytes);
    return bytes;
}

// If the system cannot tell, the two are taken to share a device.
bool share_a_device(const std::string& a, const std::string& b) {
    struct stat of_a {
    }, of_b{};
    return ::stat(a.c_str(), &of_a) != 0 || ::stat(b.c_str(), &of_b) != 0 || of_a.st_dev == of_b.st_dev;
}

// Makes an empty directory of our own and locks it. Process numbers repeat in containers, which may
// share a file system. So if the name is taken, the next number is tried.
Result<BenchSpace::OwnDirectory> take_directory(Storage& storage, const std::string& parent,
                                                std::string_view suffix) {
    TAILRACE_TRY(storage.make_directories(parent));
    TAILRACE_TRY(remove_left(storage, parent));
    Status taken;
    for (int i = 0; i < most_names; ++i) {
        std::string path = join_path(parent, fmt::format("{}{}{}", directory_prefix, ::getpid() + i, suffix));
        TAILRACE_TRY(storage.make_own_directories(path));
        if (!is_ours(path)) {
            taken = Status(Code::busy, fmt::format("'{}' belongs to another user, or is a link", path));
            continue;
        }
        auto lock = storage.lock_directory(path);
        if (!lock.ok() && lock.status().code() != Code::unsupported && lock.status().code() != Code::busy &&
            lock.status().code() != Code::not_found)
            return lock.status();
        const bool locked = lock.ok() || lock.status().code() == Code::unsupported;
        // Another benchmark that cleans up may have removed it before it was locked.
        const auto there = storage.list(path);
        if (locked && there.ok() && there->empty())
            return BenchSpace::OwnDirectory{std::move(path), lock.ok() ? std::move(*lock) : nullptr};
        taken = !locked ? lock.status() : there.status();
    }
    return taken.ok() ? Status(Code::busy,
                               fmt::format("all names for a benchmark's directory are taken in '{}'", parent))
                      : taken;
}

}  // namespace

// ---- space -------------------------------------------------------------------------------------------

Result<std::unique_ptr<BenchSpace>> BenchSpace::create(Storage& storage, const std::string& shared_dir,
                                                       const std::string& local_dir) {
    std::unique_ptr<BenchSpace> space(new BenchSpace(storage));
    TAILRACE_ASSIGN(space->shared_, take_directory(storage, shared_dir, ""));
    TAILRACE_ASSIGN(space->local_, take_directory(storage, local_dir, parts_suffix));
    return space;
}

BenchSpace::~BenchSpace() {
    remove_parts();
    for (const OwnDirectory* own : {&shared_, &local_})
        if (!own->path.empty()) remove_directory(storage_, own->path);
}

void BenchSpace::remove_parts() {
    for (const std::string& path : parts_) (void)storage_.remove(path);
    parts_.clear();
    part_bytes_.clear();
}

// 1. the parts and the files fit on their disks, or on one disk if they share it
// 2. the buffers fit in memory, together with the files that lie in memory
// 3. the system can start enough threads
Status BenchSpace::check_room(const BenchCase& bench) {
    auto check = [](const std::string& directory, const SpaceInfo& space, uint64_t needed) {
        const uint64_t margin = std::max(least_margin, needed / 10);
        if (needed + margin <= space.free_bytes) return Status();
        return Status(
            Code::no_space,
            fmt::format("a run needs {} in {} and leaves {} free beside it, but only {} are free there: "
                        "choose a smaller --size, fewer --processes or fewer --followers",
                        format_bytes(needed), directory, format_bytes(margin),
                        format_bytes(space.free_bytes)));
    };
    TAILRACE_ASSIGN(const auto shared, storage_.space(shared_.path));
    TAILRACE_ASSIGN(const auto local, storage_.space(local_.path));
    TAILRACE_ASSIGN(const auto plan, plan_of(bench, block_of(bench, shared.block_bytes)));
    const uint64_t of_files = disk_bytes(plan);
    uint64_t of_parts = 0;
    if (const auto wanted = wanted_parts(bench); wanted != part_bytes_) {
        // The parts of another case are removed first.
        const uint64_t there = std::accumulate(part_bytes_.begin(), part_bytes_.end(), uint64_t{0});
        const uint64_t bytes = std::accumulate(wanted.begin(), wanted.end(), uint64_t{0});
        of_parts = bytes - std::min(bytes, there);
    }
    if (share_a_device(shared_.path, local_.path)) {
        TAILRACE_TRY(check(fmt::format("{} and {}", shared_.path, local_.path), shared, of_files + of_parts));
    } else {
        TAILRACE_TRY(check(shared_.path, shared, of_files));
        TAILRACE_TRY(check(local_.path, local, of_parts));
    }

    const auto available = memory_info("MemAvailable");
    if (!available) return check_team(bench.writers);
    const uint64_t buffer = std::min(bench.buffer_bytes, align_up(used_buffer_bytes(plan), huge_page_bytes));
    const uint64_t needed =
        bench.buffers * buffer + (shared.in_memory ? of_files : 0) + (local.in_memory ? of_parts : 0);
    if (needed <= *available) return check_team(bench.writers);
    return Status(
        Code::out_of_memory,
        fmt::format("a run needs {} of memory ({} buffers of {}, and those of its files that lie in "
                    "memory), but only {} are available: choose fewer --buffers, a smaller --buffer "
                    "or a smaller --size",
                    format_bytes(needed), bench.buffers, format_bytes(bench.buffer_bytes),
                    format_bytes(*available)));
}

Result<std::vector<std::string>> BenchSpace::parts(const BenchCase& bench, const std::atomic<bool>& stop) {
    const std::vector<uint64_t> wanted = wanted_parts(bench);
    if (wanted == part_bytes_) return parts_;
    remove_parts();
    std::vector<std::byte> block(4 * MiB);
    fill(block, bench.seed);
    for (size_t i = 0; i < wanted.size(); ++i) {
        parts_.push_back(join_path(local_.path, fmt::format("{}{}", part_prefix, i)));
        TAILRACE_ASSIGN(auto file, storage_.open(parts_.back(), {Access::create_new, DirectIo::off}));
        for (uint64_t at = 0; at < wanted[i]; at += block.size()) {
            if (stop) return Status(Code::aborted, "the run was interrupted");
            const auto bytes = std::min<uint64_t>(block.size(), wanted[i] - at);
            TAILRACE_TRY(file->write_at(std::span(block).first(bytes), at));
        }
        TAILRACE_TRY(file->sync());
        TAILRACE_TRY(file->close());
    }
    part_bytes_ = wanted;
    return parts_;
}

// ---- run ---------------------------------------------------------------------------------------------

Result<BenchResult> run_case(const BenchCase& bench, BenchSpace& space, Storage& shared,
                             const std::atomic<bool>& stop, const std::function<void(uint64_t)>& on_bytes) {
    TAILRACE_TRY(check_case(bench));
    TAILRACE_TRY(space.check_room(bench));
    TAILRACE_ASSIGN(const auto paths, space.parts(bench, stop));
    TAILRACE_ASSIGN(const auto info, shared.space(space.shared_dir()));
    BenchResult result;
    result.engine = shared.name();
    result.block_bytes = block_of(bench, info.block_bytes);
    TAILRACE_ASSIGN(const auto made, plan_of(bench, result.block_bytes));
    const auto plan = std::make_shared<const FlushPlan>(made);

    std::vector<LocalStream> streams;
    for (size_t i = 0; i < paths.size(); ++i) {
        streams.push_back({plan->offers.front().streams[i], paths[i], 0});
        TAILRACE_ASSIGN(auto part, space.storage().open(paths[i], {Access::read, DirectIo::off}));
        part->drop_cache();
    }
    LocalReader local(space.storage(), streams, plan->chunk_bytes);
    TAILRACE_ASSIGN(auto pool, BufferPool::create(bench.buffers, bench.buffer_bytes, pool_alignment));
    Buffers buffers(*pool);
    for (size_t i = 0; i < buffers.all().size(); ++i)
        fill(buffers.all()[i].memory().first(used_buffer_bytes(*plan)), bench.seed + i);

    UnsyncedStorage unsynced(shared);
    Storage& target = bench.durable ? shared : unsynced;
    Throttle throttle(0);
    SegmentWriter segment(plan, 0, target, space.shared_dir(), {Access::write, bench.direct}, throttle);
    shared.use_memory(pool->region());
    Run run(bench, *plan, segment, local, buffers, stop, on_bytes);

    auto timed = [](double& seconds, const std::function<Status()>& work) {
        const auto start = Clock::now();
        Status status = work();
        seconds = seconds_since(start);
        return status;
    };
    Status status = timed(result.prepare_seconds, [&] {
        return for_files(bench, [&](uint32_t file) { return segment.prepare(file); });
    });
    if (status.ok())
        status = timed(result.write_seconds, [&]() -> Status {
            TAILRACE_TRY(run_team(bench.writers, [&](uint32_t writer) { run.write(writer); }));
            return run.failure();
        });
    if (status.ok())
        status = timed(result.commit_seconds, [&] {
            return for_files(bench, [&](uint32_t file) -> Status {
                TAILRACE_TRY(segment.seal(file));
                return segment.commit(file);
            });
        });
    result.dirty_bytes = dirty_bytes_now();
    run.report_rest();
    shared.forget_memory();
    if (!bench.durable) {
        for (uint32_t file = 0; file < bench.files; ++file)
            if (auto left =
                    shared.open(working_path(space.shared_dir(), *plan, file), {Access::write, bench.direct});
                left.ok())
                (void)(*left)->sync();
    }
    discard(shared, space.shared_dir(), *plan);
    TAILRACE_TRY(status);

    result.local_bytes = local_bytes(bench);
    result.received_bytes = segment.written().bytes - result.local_bytes;
    result.least_writer_seconds = run.times().front().write_seconds;
    for (const WriterTimes& times : run.times()) {
        result.read_seconds += times.read_seconds;
        result.buffer_wait_seconds += times.buffer_wait_seconds;
        result.least_writer_seconds = std::min(result.least_writer_seconds, times.write_seconds);
        result.most_writer_seconds = std::max(result.most_writer_seconds, times.write_seconds);
    }
    return result;
}

}  // namespace tailrace::internal::tool
