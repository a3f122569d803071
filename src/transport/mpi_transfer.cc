// One large transfer; the protocol is in the header.
#include "transport/mpi_transfer.h"

#include <chrono>
#include <new>

#include "threads/executor.h"

namespace tailrace::internal {

namespace {

// Some MPI libraries move a large transfer a piece at a time within our calls, and do not say so. A
// test of a transfer takes about 1 us if nothing moves. If it took longer than this, it has moved
// bytes, and the next one should follow soon. Within a node this makes the difference between 400
// MiB/s and memory speed. If a thread switch is mistaken for a move, one nap is shorter.
constexpr std::chrono::microseconds longest_empty_look(10);

// Describes `bytes` bytes of memory to MPI: as that many bytes or, beyond an int's range, as one
// element of a type made of blocks and a rest. The two sides may describe the same bytes
// differently.
class Layout {
  public:
    Layout() = default;
    Layout(Layout&& other) noexcept
        : count_(other.count_), type_(std::exchange(other.type_, MPI_DATATYPE_NULL)), made_(other.made_) {
        other.made_ = false;
    }
    Layout& operator=(Layout&& other) noexcept {
        std::swap(count_, other.count_);
        std::swap(type_, other.type_);
        std::swap(made_, other.made_);
        return *this;
    }
    ~Layout() {
        if (made_) MPI_Type_free(&type_);
    }

    static Result<Layout> of(uint64_t bytes, uint64_t plain_bytes) {
        Layout layout;
        if (bytes <= plain_bytes) {
            layout.count_ = static_cast<int>(bytes);
            layout.type_ = MPI_BYTE;
            return layout;
        }
        const uint64_t block_bytes = std::min<uint64_t>(uint64_t{1} << 20, plain_bytes);
        std::array<int, 2> lengths = {static_cast<int>(bytes / block_bytes),
                                      static_cast<int>(bytes % block_bytes)};
        std::array<MPI_Aint, 2> places = {0, static_cast<MPI_Aint>(bytes / block_bytes * block_bytes)};
        MPI_Datatype block = MPI_DATATYPE_NULL;
        TAILRACE_MPI_TRY(MPI_Type_contiguous(static_cast<int>(block_bytes), MPI_BYTE, &block),
                         "describing {} bytes to MPI", bytes);
        std::array<MPI_Datatype, 2> types = {block, MPI_BYTE};
        const int code =
            MPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &layout.type_);
        MPI_Type_free(&block);
        TAILRACE_MPI_TRY(code, "describing {} bytes to MPI", bytes);
        layout.made_ = true;
        TAILRACE_MPI_TRY(MPI_Type_commit(&layout.type_), "describing {} bytes to MPI", bytes);
        layout.count_ = 1;
        return layout;
    }

    int count() const { return count_; }
    MPI_Datatype type() const { return type_; }

  private:
    int count_ = 0;
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
    bool made_ = false;
};

struct Announcement {
    uint64_t bytes = 0;
    uint64_t data_tag = 0;
};

}  // namespace

class MpiTransfer : public Transfer {
  public:
    MpiTransfer(std::shared_ptr<MpiProgress> progress, MpiChannel channel, std::string attempted)
        : progress_(std::move(progress)), channel_(channel), attempted_(std::move(attempted)) {}

    Result<std::optional<uint64_t>> test() final {
        if (!end_) {
            const auto begin = SteadyClock::now();
            progress_->advance();
            Result<std::optional<uint64_t>> step = advance();
            if (step.ok() && !step->has_value()) {
                if (SteadyClock::now() - begin > longest_empty_look) progress_->nap.reset();
                return step;
            }
            progress_->nap.reset();
            end_ = std::move(step);
        }
        return *end_;
    }

    bool take_back() final { return data_request_ == MPI_REQUEST_NULL && !data_lost_; }

  protected:
    virtual Result<std::optional<uint64_t>> advance() = 0;

    // Whether this request is over. A null request is. After an error MPI promises nothing about a
    // request: it may not be usable again, and MPI may still access its memory.
    Result<bool> announced() { return over(announcement_request_, announcement_lost_); }
    Result<bool> moved() { return over(data_request_, data_lost_); }
    // Leaves the announcement's memory to MPI, if MPI may still access it.
    void abandon_announcement() { (void)announcement_.release(); }

    const std::shared_ptr<MpiProgress> progress_;
    const MpiChannel channel_;
    const std::string attempted_;
    std::unique_ptr<Announcement> announcement_ = std::make_unique<Announcement>();
    MPI_Request announcement_request_ = MPI_REQUEST_NULL;
    MPI_Request data_request_ = MPI_REQUEST_NULL;
    bool announcement_lost_ = false, data_lost_ = false;  // the request ended with an error

  private:
    Result<bool> over(MPI_Request& request, bool& lost) {
        int complete = 0;
        const int code = MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS) return complete != 0;
        request = MPI_REQUEST_NULL;
        lost = true;
        return mpi_status(code, attempted_);
    }

    std::optional<Result<std::optional<uint64_t>>> end_;
};

class MpiSend final : public MpiTransfer {
  public:
    using MpiTransfer::MpiTransfer;

    // MPI cannot take back a send, so memory that it may still read is left to it. This happens
    // only after a failure elsewhere.
    ~MpiSend() override {
        if (announcement_request_ != MPI_REQUEST_NULL || announcement_lost_) abandon_announcement();
        for (MPI_Request* request : {&announcement_request_, &data_request_})
            if (*request != MPI_REQUEST_NULL) MPI_Request_free(request);
    }

    Status start(std::span<const std::byte> source, int data_tag) {
        TAILRACE_ASSIGN(layout_, Layout::of(source.size(), channel_.plain_bytes));
        *announcement_ = {source.size(), static_cast<uint64_t>(data_tag)};
        TAILRACE_MPI_TRY(MPI_Isend(announcement_.get(), 2, MPI_UINT64_T, channel_.peer, channel_.tag,
                                   channel_.announcements, &announcement_request_),
                         "{}", attempted_);
        TAILRACE_MPI_TRY(MPI_Isend(source.data(), layout_.count(), layout_.type(), channel_.peer, data_tag,
                                   channel_.data, &data_request_),
                         "{}", attempted_);
        return Status();
    }

  private:
    Result<std::optional<uint64_t>> advance() override {
        TAILRACE_ASSIGN(const bool announcement_sent, announced());
        TAILRACE_ASSIGN(const bool data_sent, moved());
        if (!announcement_sent || !data_sent) return std::optional<uint64_t>();
        return std::optional<uint64_t>(announcement_->bytes);
    }

    Layout layout_;
};

class MpiReceive final : public MpiTransfer {
  public:
    using MpiTransfer::MpiTransfer;

    // A receive can be taken back as long as nothing has matched it. If something has, it soon
    // ends. This happens only after a failure elsewhere.
    ~MpiReceive() override {
        std::erase(progress_->unannounced, this);
        if (announcement_lost_) abandon_announcement();
        if (data_lost_) (void)spare_.release();
        for (MPI_Request* request : {&announcement_request_, &data_request_}) {
            if (*request == MPI_REQUEST_NULL) continue;
            MPI_Cancel(request);
            MPI_Wait(request, MPI_STATUS_IGNORE);
        }
    }

    Status start(std::span<std::byte> target) {
        target_ = target;
        TAILRACE_MPI_TRY(MPI_Irecv(announcement_.get(), 2, MPI_UINT64_T, channel_.peer, channel_.tag,
                                   channel_.announcements, &announcement_request_),
                         "{}", attempted_);
        progress_->unannounced.push_back(this);
        return Status();
    }

    // True once this transfer no longer waits for its announcement, because it came or cannot come.
    bool look_for_announcement() {
        Result<bool> came = announced();
        if (came.ok() && !*came) return false;
        announced_ = true;
        trouble_ = came.ok() ? receive_data() : came.status();
        progress_->nap.reset();
        return true;
    }

  private:
    Result<std::optional<uint64_t>> advance() override {
        if (!announced_) return std::optional<uint64_t>();
        TAILRACE_TRY(trouble_);
        TAILRACE_ASSIGN(const bool received, moved());
        if (!received) return std::optional<uint64_t>();
        if (announcement_->bytes > target_.size()) return too_large();
        return std::optional<uint64_t>(announcement_->bytes);
    }

    Status receive_data() {
        std::byte* memory = target_.data();
        if (announcement_->bytes > target_.size()) {
            spare_.reset(new (std::nothrow) std::byte[announcement_->bytes]);
            if (!spare_) return too_large();
            memory = spare_.get();
        }
        TAILRACE_ASSIGN(layout_, Layout::of(announcement_->bytes, channel_.plain_bytes));
        TAILRACE_MPI_TRY(MPI_Irecv(memory, layout_.count(), layout_.type(), channel_.peer,
                                   static_cast<int>(announcement_->data_tag), channel_.data, &data_request_),
                         "{}", attempted_);
        return Status();
    }

    Status too_large() const {
        return Status(Code::transport,
                      fmt::format("{}: {} bytes were sent, more than fit; nothing was written to the memory",
                                  attempted_, announcement_->bytes));
    }

    std::span<std::byte> target_;
    bool announced_ = false;
    Status trouble_;  // the reason why no data can come
    Layout layout_;
    std::unique_ptr<std::byte[]> spare_;
};

void MpiProgress::advance() {
    std::erase_if(unannounced, [](MpiReceive* receive) { return receive->look_for_announcement(); });
}

Result<std::unique_ptr<Transfer>> start_mpi_send(std::shared_ptr<MpiProgress> progress, MpiChannel channel,
                                                 int data_tag, std::span<const std::byte> source,
                                                 std::string attempted) {
    auto send = std::make_unique<MpiSend>(std::move(progress), channel, std::move(attempted));
    TAILRACE_TRY(send->start(source, data_tag));
    return std::unique_ptr<Transfer>(std::move(send));
}

Result<std::unique_ptr<Transfer>> start_mpi_receive(std::shared_ptr<MpiProgress> progress, MpiChannel channel,
                                                    std::span<std::byte> target, std::string attempted) {
    auto receive = std::make_unique<MpiReceive>(std::move(progress), channel, std::move(attempted));
    TAILRACE_TRY(receive->start(target));
    return std::unique_ptr<Transfer>(std::move(receive));
}

}  // namespace tailrace::internal
