#include "doubles/faulty_storage.h"

#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// Decides what happens to each operation. One lock, never held while the wrapped storage works.
class FaultyStorage::Fate {
  public:
    Fate(uint64_t seed, FaultPlan plan) : random_(seed), plan_(std::move(plan)) {}

    using Rate = double FaultPlan::*;
    using Count = uint64_t FaultCounts::*;

    // Counts an operation. ok, or aborted when the process is dead by now. `dies_here` is set when this very
    // operation is the last one.
    Status begin(std::string_view doing, const std::string& path, bool* dies_here = nullptr) {
        std::chrono::microseconds delay{0};
        bool dead = false;
        std::function<void(const std::string&)> before_death;
        {
            MutexLock lock(mutex_);
            ++operations_;
            const bool first = !dead_ && plan_.die_at_operation != 0 && operations_ >= plan_.die_at_operation;
            if (first) dead_ = true;
            if (dies_here != nullptr) *dies_here = first;
            dead = dead_;
            if (dead) {
                before_death = plan_.before_death;
            } else if (plan_.delay.count() > 0) {
                delay = std::chrono::microseconds(random_() % static_cast<uint64_t>(plan_.delay.count() + 1));
            }
        }
        if (before_death) before_death(path);
        if (dead)
            return Status(Code::aborted, fmt::format("{} '{}': the process died (injected)", doing, path));
        if (delay.count() > 0) sleep_for(delay);
        return Status();
    }

    Status begin_sync(std::string_view doing, const std::string& path) {
        {
            MutexLock lock(mutex_);
            if (++syncs_ == plan_.die_at_sync) dead_ = true;
        }
        return begin(doing, path);
    }

    bool strikes(Rate rate, Count count, const std::string& path) {
        MutexLock lock(mutex_);
        if (plan_.*rate <= 0 || path.find(plan_.path_filter) == std::string::npos) return false;
        if (std::uniform_real_distribution<double>(0, 1)(random_) >= plan_.*rate) return false;
        ++(counts_.*count);
        return true;
    }

    // io_error when the fault strikes.
    Status maybe(Rate rate, Count count, std::string_view doing, const std::string& path) {
        if (!strikes(rate, count, path)) return Status();
        return Status(Code::io_error, fmt::format("{} '{}': input/output error (injected)", doing, path));
    }

    uint64_t below(uint64_t bound) {  // uniform in [0, bound)
        MutexLock lock(mutex_);
        return bound == 0 ? 0 : random_() % bound;
    }

    void set_plan(FaultPlan plan) {
        MutexLock lock(mutex_);
        plan_ = std::move(plan);
        syncs_ = 0;
    }
    FaultCounts counts() const {
        MutexLock lock(mutex_);
        return counts_;
    }
    uint64_t operations() const {
        MutexLock lock(mutex_);
        return operations_;
    }
    bool dead() const {
        MutexLock lock(mutex_);
        return dead_;
    }
    void die() {
        MutexLock lock(mutex_);
        dead_ = true;
    }

  private:
    mutable Mutex mutex_;
    std::mt19937_64 random_ GUARDED_BY(mutex_);
    FaultPlan plan_ GUARDED_BY(mutex_);
    FaultCounts counts_ GUARDED_BY(mutex_);
    uint64_t operations_ GUARDED_BY(mutex_) = 0;
    uint64_t syncs_ GUARDED_BY(mutex_) = 0;  // since the plan was set
    bool dead_ GUARDED_BY(mutex_) = false;
};

class FaultyStorage::FaultyFile : public File {
  public:
    FaultyFile(std::shared_ptr<Fate> fate, std::unique_ptr<File> inner)
        : fate_(std::move(fate)), inner_(std::move(inner)) {}

    const std::string& path() const override { return inner_->path(); }

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        const Piece piece = target;
        return read_pieces(std::span<const Piece>(&piece, 1), offset);
    }

    Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset) override {
        TAILRACE_TRY(fate_->begin("reading", path()));
        TAILRACE_TRY(fate_->maybe(&FaultPlan::read_error, &FaultCounts::read_error, "reading", path()));
        TAILRACE_ASSIGN(size_t count, inner_->read_pieces(targets, offset));
        if (count > 0 && fate_->strikes(&FaultPlan::short_read, &FaultCounts::short_read, path())) {
            count = static_cast<size_t>(fate_->below(count));
        }
        if (count > 0 && fate_->strikes(&FaultPlan::read_flip, &FaultCounts::read_flip, path())) {
            uint64_t bit = fate_->below(uint64_t{count} * 8);
            for (const Piece& target : targets) {
                if (bit < uint64_t{target.size()} * 8) {
                    flip(target, bit);
                    break;
                }
                bit -= uint64_t{target.size()} * 8;
            }
        }
        return count;
    }

    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        bool dies_here = false;
        if (Status status = fate_->begin("writing", path(), &dies_here); !status.ok()) {
            if (dies_here) write_prefix(source, offset);
            return status;
        }
        if (Status status =
                fate_->maybe(&FaultPlan::write_error, &FaultCounts::write_error, "writing", path());
            !status.ok()) {
            write_prefix(source, offset);
            return status;
        }
        if (fate_->strikes(&FaultPlan::write_no_space, &FaultCounts::write_no_space, path())) {
            write_prefix(source, offset);
            return Status(Code::no_space, fmt::format("writing {} bytes at offset {} to '{}': no space left "
                                                      "(injected)",
                                                      source.size(), offset, path()));
        }
        if (!source.empty() && fate_->strikes(&FaultPlan::write_flip, &FaultCounts::write_flip, path())) {
            std::vector<std::byte> damaged(source.begin(), source.end());
            flip(damaged, fate_->below(uint64_t{damaged.size()} * 8));
            return inner_->write_at(damaged, offset);
        }
        return inner_->write_at(source, offset);
    }

    Status reserve(uint64_t offset, uint64_t bytes) override {
        TAILRACE_TRY(fate_->begin("reserving", path()));
        if (fate_->strikes(&FaultPlan::write_no_space, &FaultCounts::write_no_space, path())) {
            return Status(Code::no_space,
                          fmt::format("reserving {} bytes at offset {} of '{}': no space left (injected)",
                                      bytes, offset, path()));
        }
        return inner_->reserve(offset, bytes);
    }

    Status truncate(uint64_t bytes) override {
        TAILRACE_TRY(fate_->begin("setting the length of", path()));
        TAILRACE_TRY(fate_->maybe(&FaultPlan::write_error, &FaultCounts::write_error, "setting the length of",
                                  path()));
        return inner_->truncate(bytes);
    }

    Status sync() override {
        TAILRACE_TRY(fate_->begin_sync("syncing", path()));
        if (sync_failed_.load()) {
            return Status(Code::io_error,
                          fmt::format("syncing '{}': an earlier sync of it failed (injected)", path()));
        }
        Status status = fate_->maybe(&FaultPlan::sync_error, &FaultCounts::sync_error, "syncing", path());
        if (!status.ok()) {
            sync_failed_.store(true);
            return status;
        }
        return inner_->sync();
    }

    Result<uint64_t> size() override {
        TAILRACE_TRY(fate_->begin("asking the size of", path()));
        return inner_->size();
    }
    Result<std::span<std::byte>> map(uint64_t bytes) override {
        TAILRACE_TRY(fate_->begin("mapping", path()));
        return inner_->map(bytes);
    }
    Result<View> view(uint64_t offset, uint64_t bytes) override {
        TAILRACE_TRY(fate_->begin("viewing", path()));
        TAILRACE_TRY(fate_->maybe(&FaultPlan::read_error, &FaultCounts::read_error, "viewing", path()));
        return inner_->view(offset, bytes);
    }
    Route route() const override { return inner_->route(); }
    Route read_route(uint64_t offset, uint64_t bytes) const override {
        return inner_->read_route(offset, bytes);
    }
    void will_read(uint64_t offset, uint64_t bytes) override { inner_->will_read(offset, bytes); }
    void drop_cache() override { inner_->drop_cache(); }
    Status close() override {  // always releases the file, as the death of a process does
        Status fate = fate_->begin("closing", path());
        Status closed = inner_->close();
        return fate.ok() ? closed : fate;
    }

  private:
    static void flip(std::span<std::byte> bytes, uint64_t bit) {
        bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    }
    void write_prefix(std::span<const std::byte> source, uint64_t offset) {
        (void)inner_->write_at(source.first(static_cast<size_t>(fate_->below(uint64_t{source.size()} + 1))),
                               offset);
    }

    const std::shared_ptr<Fate> fate_;
    const std::unique_ptr<File> inner_;
    std::atomic<bool> sync_failed_{false};
};

FaultyStorage::FaultyStorage(std::shared_ptr<Storage> inner, uint64_t seed, FaultPlan plan)
    : inner_(std::move(inner)), fate_(std::make_shared<Fate>(seed, std::move(plan))) {}
FaultyStorage::~FaultyStorage() = default;

void FaultyStorage::set_plan(FaultPlan plan) {
    fate_->set_plan(std::move(plan));
}
FaultCounts FaultyStorage::counts() const {
    return fate_->counts();
}
uint64_t FaultyStorage::operations() const {
    return fate_->operations();
}
bool FaultyStorage::dead() const {
    return fate_->dead();
}
void FaultyStorage::die() {
    fate_->die();
}

Result<std::unique_ptr<File>> FaultyStorage::open(const std::string& path, const OpenOptions& options) {
    TAILRACE_TRY(fate_->begin("opening", path));
    TAILRACE_TRY(fate_->maybe(&FaultPlan::open_error, &FaultCounts::open_error, "opening", path));
    TAILRACE_ASSIGN(auto file, inner_->open(path, options));
    return std::unique_ptr<File>(std::make_unique<FaultyFile>(fate_, std::move(file)));
}

Status FaultyStorage::rename(const std::string& from, const std::string& to) {
    bool dies_here = false;
    if (Status status = fate_->begin("renaming", from, &dies_here); !status.ok()) {
        // Killed in the call: the rename has happened, or has not.
        if (dies_here && fate_->below(2) == 1) (void)inner_->rename(from, to);
        return status;
    }
    TAILRACE_TRY(fate_->maybe(&FaultPlan::rename_error, &FaultCounts::rename_error, "renaming", from));
    return inner_->rename(from, to);
}

Status FaultyStorage::remove(const std::string& path) {
    TAILRACE_TRY(fate_->begin("removing", path));
    TAILRACE_TRY(fate_->maybe(&FaultPlan::rename_error, &FaultCounts::rename_error, "removing", path));
    return inner_->remove(path);
}

Status FaultyStorage::remove_directory(const std::string& path) {
    TAILRACE_TRY(fate_->begin("removing the directory", path));
    TAILRACE_TRY(
        fate_->maybe(&FaultPlan::rename_error, &FaultCounts::rename_error, "removing the directory", path));
    return inner_->remove_directory(path);
}

Result<std::vector<DirectoryEntry>> FaultyStorage::list(const std::string& directory) {
    TAILRACE_TRY(fate_->begin("listing", directory));
    TAILRACE_TRY(fate_->maybe(&FaultPlan::list_error, &FaultCounts::list_error, "listing", directory));
    return inner_->list(directory);
}

Status FaultyStorage::make_directories(const std::string& path) {
    TAILRACE_TRY(fate_->begin("making the directory", path));
    return inner_->make_directories(path);
}

Status FaultyStorage::sync_directory(const std::string& path) {
    TAILRACE_TRY(fate_->begin_sync("syncing the directory", path));
    TAILRACE_TRY(
        fate_->maybe(&FaultPlan::sync_error, &FaultCounts::sync_error, "syncing the directory", path));
    return inner_->sync_directory(path);
}

Result<SpaceInfo> FaultyStorage::space(const std::string& path) {
    TAILRACE_TRY(fate_->begin("asking for the space of", path));
    return inner_->space(path);
}

Result<std::unique_ptr<DirectoryLock>> FaultyStorage::lock_directory(const std::string& path, LockKind kind) {
    TAILRACE_TRY(fate_->begin("locking the directory", path));
    return inner_->lock_directory(path, kind);
}

Result<std::unique_ptr<NumberLock>> FaultyStorage::lock_number(const std::string& path, uint64_t number) {
    TAILRACE_TRY(fate_->begin("locking a number by", path));
    return inner_->lock_number(path, number);
}

void FaultyStorage::use_memory(std::span<std::byte> region) {
    inner_->use_memory(region);
}
void FaultyStorage::forget_memory() {
    inner_->forget_memory();
}

}  // namespace tailrace::internal
