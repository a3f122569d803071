// The exchange of a round goes on while the round before it is in the file: the file system's first write
// waits until the data of the next window have arrived, which without an overlap they never do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "collective/team.h"
#include "doubles/memory_storage.h"
#include "transport/in_process.h"

namespace tailrace::internal::collective {

namespace {

// How many transfers have arrived at the aggregator.
class Arrivals {
  public:
    void add() {
        std::lock_guard lock(mutex_);
        ++count_;
        changed_.notify_all();
    }
    bool wait_for(int count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= count; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int count_ = 0;
};

class WatchedTransfer final : public Transfer {
  public:
    WatchedTransfer(std::unique_ptr<Transfer> inner, Arrivals& arrivals)
        : inner_(std::move(inner)), arrivals_(arrivals) {}
    Result<std::optional<uint64_t>> test() override {
        auto complete = inner_->test();
        if (complete.ok() && *complete) arrivals_.add();
        return complete;
    }
    bool take_back() override { return inner_->take_back(); }

  private:
    std::unique_ptr<Transfer> inner_;
    Arrivals& arrivals_;
};

class WatchedTransport final : public Transport {
  public:
    WatchedTransport(std::unique_ptr<Transport> inner, Arrivals& arrivals)
        : inner_(std::move(inner)), arrivals_(arrivals) {}
    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::string host() const override { return inner_->host(); }
    bool concurrent() const override { return inner_->concurrent(); }
    Status post(int target, std::span<const std::byte> message) override {
        return inner_->post(target, message);
    }
    Result<std::optional<Message>> poll() override { return inner_->poll(); }
    Result<bool> posts_delivered() override { return inner_->posts_delivered(); }
    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        return inner_->start_send(target, tag, source);
    }
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_ASSIGN(auto transfer, inner_->start_receive(source, tag, target));
        return std::unique_ptr<Transfer>(std::make_unique<WatchedTransfer>(std::move(transfer), arrivals_));
    }
    void wait(std::chrono::microseconds longest, bool busy) override { inner_->wait(longest, busy); }
    void wake() override { inner_->wake(); }
    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        return inner_->allgather(mine);
    }
    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        return exchange_by_allgather(*this, sends, receives);
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        return inner_->broadcast(root, bytes);
    }

  private:
    const std::unique_ptr<Transport> inner_;
    Arrivals& arrivals_;
};

// The first write ends when `arrivals` has seen two transfers.
class PatientFile final : public File {
  public:
    PatientFile(std::unique_ptr<File> inner, Arrivals& arrivals, bool& overlapped)
        : inner_(std::move(inner)), arrivals_(arrivals), overlapped_(overlapped) {}
    Status write_at(std::span<const std::byte> bytes, uint64_t offset) override {
        if (!std::exchange(written_, true)) overlapped_ = arrivals_.wait_for(2);
        return inner_->write_at(bytes, offset);
    }
    Result<size_t> read_at(std::span<std::byte> bytes, uint64_t offset) override {
        return inner_->read_at(bytes, offset);
    }
    Status reserve(uint64_t offset, uint64_t bytes) override { return inner_->reserve(offset, bytes); }
    Result<uint64_t> size() override { return inner_->size(); }
    Status truncate(uint64_t bytes) override { return inner_->truncate(bytes); }
    Status sync() override { return inner_->sync(); }
    Status close() override { return inner_->close(); }
    const std::string& path() const override { return inner_->path(); }

  private:
    std::unique_ptr<File> inner_;
    Arrivals& arrivals_;
    bool& overlapped_;
    bool written_ = false;
};

class PatientStorage final : public MemoryStorage {
  public:
    explicit PatientStorage(Arrivals& arrivals) : arrivals_(arrivals) {}
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        TAILRACE_ASSIGN(auto file, MemoryStorage::open(path, options));
        return std::unique_ptr<File>(std::make_unique<PatientFile>(std::move(file), arrivals_, overlapped));
    }
    bool overlapped = false;

  private:
    Arrivals& arrivals_;
};

}  // namespace

TEST(CollectiveOverlapTest, TheNextRoundIsExchangedWhileARoundIsInTheFile) {
    // Rank 0 owns the file; all bytes come from rank 1, on another node, in two windows.
    Options options;
    options.mode = Mode::write;
    options.plan.global_aggregators = 1;
    options.plan.exchange = Exchange::always;
    options.plan.domains.window_bytes = 4096;
    const std::vector<Request> list = {{0, 2 * 4096}};
    Arrivals arrivals;
    const auto storage = std::make_shared<PatientStorage>(arrivals);
    auto transports = make_in_process_transports({"a", "b"});
    {
        std::vector<std::jthread> threads;
        for (size_t rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank] {
                std::shared_ptr<Transport> transport;
                if (rank == 0)
                    transport = std::make_shared<WatchedTransport>(std::move(transports[rank]), arrivals);
                else
                    transport = std::move(transports[rank]);
                auto file = open_collective_file(std::move(transport), storage, team_path, options);
                ASSERT_TRUE(file.ok()) << file.status().message();
                const std::vector<Request> mine = rank == 1 ? list : std::vector<Request>();
                Data data = data_for(mine);
                const auto written = (*file)->write({mine, data.memory()});
                EXPECT_TRUE(written.ok()) << written.status().message();
                EXPECT_EQ((*file)->own_statistics().rounds, rank == 0 ? 2u : 0u);
                EXPECT_TRUE((*file)->close().ok());
            });
        }
    }
    EXPECT_TRUE(storage->overlapped) << "the second window had not arrived after 20 s";
    EXPECT_EQ(whole_file(*storage, team_path), data_for(list).stream);
}

}  // namespace tailrace::internal::collective
