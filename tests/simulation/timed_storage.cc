#include "simulation/timed_storage.h"

#include <algorithm>
#include <numeric>

namespace tailrace::internal::testing_support {

void Server::serve(std::string_view operation, uint64_t bytes) {
    executor_.note(operation, bytes);
    auto takes = costs_.operation +
                 std::chrono::nanoseconds(dice_.below(static_cast<uint64_t>(costs_.jitter.count()) + 1));
    if (costs_.bytes_per_second > 0)
        takes += std::chrono::nanoseconds(
            static_cast<int64_t>(static_cast<double>(bytes) / costs_.bytes_per_second * 1e9));
    if (takes.count() == 0) return executor_.pause();
    free_from_ = std::max(free_from_, SteadyClock::now()) + takes;
    busy_ += takes;
    const auto done = free_from_;
    while (SteadyClock::now() < done) executor_.wait(&done, done);
}

namespace {

class TimedFile final : public File {
  public:
    TimedFile(std::unique_ptr<File> inner, std::shared_ptr<Server> server)
        : inner_(std::move(inner)), server_(std::move(server)) {}

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        server_->serve("read", target.size());
        const VirtualExecutor::OwnWork own;
        return inner_->read_at(target, offset);
    }
    Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset) override {
        server_->serve("read",
                       std::accumulate(targets.begin(), targets.end(), uint64_t{0},
                                       [](uint64_t sum, const Piece& piece) { return sum + piece.size(); }));
        return inner_->read_pieces(targets, offset);
    }
    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        server_->serve("write", source.size());
        const VirtualExecutor::OwnWork own;
        return server_->loses_this_write() ? Status() : inner_->write_at(source, offset);
    }
    Status reserve(uint64_t offset, uint64_t bytes) override {
        server_->serve("reserve", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->reserve(offset, bytes);
    }
    Status truncate(uint64_t bytes) override {
        server_->serve("truncate", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->truncate(bytes);
    }
    Status sync() override {
        server_->serve("sync", 0);
        const VirtualExecutor::OwnWork own;
        return server_->loses_syncs() ? Status() : inner_->sync();
    }
    Result<uint64_t> size() override { return inner_->size(); }
    Result<std::span<std::byte>> map(uint64_t bytes) override { return inner_->map(bytes); }
    Result<View> view(uint64_t offset, uint64_t bytes) override { return inner_->view(offset, bytes); }
    Route route() const override { return inner_->route(); }
    Route read_route(uint64_t offset, uint64_t bytes) const override {
        return inner_->read_route(offset, bytes);
    }
    void will_read(uint64_t offset, uint64_t bytes) override { inner_->will_read(offset, bytes); }
    void drop_cache() override { inner_->drop_cache(); }
    Status close() override { return inner_->close(); }
    const std::string& path() const override { return inner_->path(); }

  private:
    const std::unique_ptr<File> inner_;
    const std::shared_ptr<Server> server_;
};

class TimedStorage final : public Storage {
  public:
    TimedStorage(std::shared_ptr<Storage> inner, std::shared_ptr<Server> server, Renamed renamed)
        : inner_(std::move(inner)), server_(std::move(server)), renamed_(std::move(renamed)) {}

    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        server_->serve("open", 0);
        const VirtualExecutor::OwnWork own;
        TAILRACE_ASSIGN(auto file, inner_->open(path, options));
        return std::unique_ptr<File>(std::make_unique<TimedFile>(std::move(file), server_));
    }
    Status rename(const std::string& from, const std::string& to) override {
        server_->serve("rename", 0);
        const VirtualExecutor::OwnWork own;
        TAILRACE_TRY(inner_->rename(from, to));
        if (renamed_) renamed_(to);
        return {};
    }
    Status remove(const std::string& path) override {
        server_->serve("remove", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->remove(path);
    }
    Status remove_directory(const std::string& path) override {
        server_->serve("rmdir", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->remove_directory(path);
    }
    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        server_->serve("list", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->list(directory);
    }
    Status make_directories(const std::string& path) override {
        server_->serve("mkdir", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->make_directories(path);
    }
    Status sync_directory(const std::string& path) override {
        server_->serve("sync", 0);
        const VirtualExecutor::OwnWork own;
        return inner_->sync_directory(path);
    }
    Result<SpaceInfo> space(const std::string& path) override { return inner_->space(path); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind kind) override {
        return inner_->lock_directory(path, kind);
    }
    Result<std::unique_ptr<NumberLock>> lock_number(const std::string& path, uint64_t number) override {
        return inner_->lock_number(path, number);
    }
    void use_memory(std::span<std::byte> region) override { inner_->use_memory(region); }
    void forget_memory() override { inner_->forget_memory(); }
    std::string_view name() const override { return inner_->name(); }

  private:
    const std::shared_ptr<Storage> inner_;
    const std::shared_ptr<Server> server_;
    const Renamed renamed_;
};

}  // namespace

std::shared_ptr<Storage> timed(std::shared_ptr<Storage> inner, std::shared_ptr<Server> server,
                               Renamed renamed) {
    return std::make_shared<TimedStorage>(std::move(inner), std::move(server), std::move(renamed));
}

}  // namespace tailrace::internal::testing_support
