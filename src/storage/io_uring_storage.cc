// Design notes
//
// Transfers. A transfer of more than one request is cut into requests. A ring keeps up to
// queue_depth of them in flight, and the call returns when none is left. If a request is not done
// at once (short, interrupted, failed, refused by the ring), plain system calls do the rest
// afterwards, in order. These know how to retry, and report errors and the end of the file as they
// do without a ring. A transfer of one request uses plain system calls from the start.
//
// Rings. A ring belongs to one call at a time. A call takes one from the engine's idle list, or
// makes one, and puts it back. So there are as many rings as threads ever moved data at once, and
// they are freed with the engine. If no further ring can be made, the call uses plain system calls.
//
// Registered buffers. Memory from use_memory() is registered with a ring in pieces, each when the
// ring first meets a request from it. The reason is that registering pins all pages of a piece, and
// a pool's untouched buffers must cost nothing. The kernel may refuse (an old one, or the limit of
// locked memory). Then that ring writes from it as from any memory. Registered memory belongs to
// one set of regions (`generation`).
//
// The uncached route uses plain system calls. The kernel cannot start a write into the page cache
// without waiting, so a ring would hand each write to one of its own threads. A read gets its
// read-ahead without a ring.
//
// A broken ring (the kernel refuses to take requests) is never reused. Requests that it had taken
// are awaited first, because the kernel holds the caller's memory until then.
#include "storage/io_uring_storage.h"

#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "storage/posix_storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

constexpr size_t piece_bytes = 4 * MiB;
constexpr size_t most_pieces_registered = 1 << 14;  // the kernel's limit for one ring

// The memory to register, as use_memory() named it. It is replaced as a whole, so that a ring may
// keep an old one.
struct Regions {
    uint64_t generation = 0;
    std::vector<std::span<std::byte>> spans;

    bool contain(const iovec& memory) const {
        return std::any_of(spans.begin(), spans.end(), [&](std::span<std::byte> span) {
            const auto at = reinterpret_cast<uintptr_t>(memory.iov_base);
            const auto start = reinterpret_cast<uintptr_t>(span.data());
            return at >= start && at - start < span.size();
        });
    }
};

class Ring {
  public:
    Ring() = default;
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring() {
        if (made_) io_uring_queue_exit(&ring_);
    }

    int create(unsigned depth) {  // 0 or an errno value
        const int result = io_uring_queue_init(depth, &ring_, 0);
        made_ = result == 0;
        return -result;
    }
    io_uring* get() { return &ring_; }

    void use(const Regions& regions) {
        if (regions.generation == generation_) return;
        let_go();
        generation_ = regions.generation;
        size_t pieces = 0;
        for (std::span<std::byte> span : regions.spans)
            pieces += (span.size() + piece_bytes - 1) / piece_bytes;
        pieces = std::min(pieces, most_pieces_registered);
        if (pieces == 0) return;
        const int result = io_uring_register_buffers_sparse(&ring_, static_cast<unsigned>(pieces));
        if (result != 0) return refused(-result);
        spans_ = regions.spans;
        there_.assign(pieces, false);
    }

    // Unregisters memory that does not belong to us any more, because other memory may come to lie
    // at the same address.
    void let_go_unless(const Regions& regions) {
        if (regions.generation != generation_) let_go();
    }

    // The registered buffer that holds all of `memory`, or -1.
    int buffer_of(const iovec& memory) {
        const auto begin = reinterpret_cast<uintptr_t>(memory.iov_base);
        size_t first_piece = 0;
        for (std::span<std::byte> span : spans_) {
            const auto start = reinterpret_cast<uintptr_t>(span.data());
            if (begin >= start && begin - start < span.size()) {
                const size_t within = (begin - start) / piece_bytes, piece = first_piece + within;
                const size_t end = std::min(span.size(), (within + 1) * piece_bytes);
                if (begin - start + memory.iov_len > end || piece >= there_.size()) return -1;
                return there_[piece] ||
                               enter(piece, span.subspan(within * piece_bytes, end - within * piece_bytes))
                           ? static_cast<int>(piece)
                           : -1;
            }
            first_piece += (span.size() + piece_bytes - 1) / piece_bytes;
        }
        return -1;
    }

  private:
    bool enter(size_t piece, std::span<std::byte> memory) {
        const iovec entry{memory.data(), memory.size()};
        const int result =
            io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(piece), &entry, nullptr, 1);
        if (result != 1) {
            refused(-result);
            spans_.clear();  // no further attempts; the registered pieces are freed with the rest
            return false;
        }
        there_[piece] = true;
        return true;
    }
    static void refused(int error) {
        log(LogLevel::debug, "io_uring works without registered buffers: {}", std::strerror(error));
    }
    void let_go() {
        if (!there_.empty()) (void)io_uring_unregister_buffers(&ring_);
        there_.clear();
        spans_.clear();
        generation_ = 0;
    }

    io_uring ring_{};
    bool made_ = false;
    uint64_t generation_ = 0;
    std::vector<std::span<std::byte>> spans_;
    std::vector<bool> there_;  // registered pieces; empty if there is no table
};

struct Request {
    std::vector<iovec> pieces;
    uint64_t offset = 0;
    size_t bytes = 0;
    size_t done = 0;
};

class IoUringEngine : public TransferEngine {
  public:
    IoUringEngine(unsigned depth, uint64_t request_bytes)
        : depth_(std::clamp(depth, 1u, 4096u)),
          request_bytes_(align_up(std::clamp<uint64_t>(request_bytes, 1, GiB), direct_unit_bytes)) {}

    // Makes the first ring, to learn whether one can be made. Returns 0 or an errno value.
    int probe() {
        auto ring = std::make_unique<Ring>();
        if (const int error = ring->create(depth_); error != 0) return error;
        io_uring_probe* known = io_uring_get_probe_ring(ring->get());
        const bool enough = known != nullptr && io_uring_opcode_supported(known, IORING_OP_READ) &&
                            io_uring_opcode_supported(known, IORING_OP_WRITE);
        io_uring_free_probe(known);
        if (!enough) return ENOSYS;
        MutexLock lock(mutex_);
        idle_.push_back(std::move(ring));
        return 0;
    }

    std::string_view name() const override { return "io_uring"; }

    Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) override {
        if (route == Route::uncached) return plain_.read(descriptor, targets, offset, route);
        return transfer(descriptor, targets, offset, route, /*writing=*/false);
    }

    Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) override {
        if (route == Route::uncached) return plain_.write(descriptor, source, offset, route);
        const iovec piece{const_cast<std::byte*>(source.data()), source.size()};
        return transfer(descriptor, std::span<const iovec>(&piece, 1), offset, route, /*writing=*/true);
    }

    int sync(int descriptor) override { return plain_.sync(descriptor); }

    void use_memory(std::span<std::byte> region) override {
        MutexLock lock(mutex_);
        auto regions = std::make_shared<Regions>(*regions_);
        ++regions->generation;
        if (!region.empty()) regions->spans.push_back(region);
        regions_ = std::move(regions);
    }

    void forget_memory() override {
        MutexLock lock(mutex_);
        auto regions = std::make_shared<Regions>();
        regions->generation = regions_->generation + 1;
        regions_ = std::move(regions);
        // Rings at work unregister it when they are put back.
        for (auto& ring : idle_) ring->let_go_unless(*regions_);
    }

  private:
    Moved transfer(int descriptor, std::span<const iovec> pieces, uint64_t offset, Route route,
                   bool writing) {
        std::vector<Request> requests = cut(pieces, offset);
        std::unique_ptr<Ring> ring;
        if (requests.size() > 1) ring = take_ring(requests);
        if (ring && run(*ring, descriptor, requests, writing)) give_ring(std::move(ring));
        // Does the rest, in order.
        Moved total;
        for (Request& request : requests) {
            if (request.done < request.bytes) total.error = finish(descriptor, request, route, writing);
            total.bytes += request.done;
            if (request.done < request.bytes) break;
        }
        return total;
    }

    std::vector<Request> cut(std::span<const iovec> pieces, uint64_t offset) const {
        constexpr size_t most_pieces = 64;  // this many small pieces travel together
        std::vector<Request> requests;
        for (const iovec& piece : pieces) {
            for (size_t at = 0; at < piece.iov_len;) {
                if (requests.empty() || requests.back().bytes >= request_bytes_ ||
                    requests.back().pieces.size() >= most_pieces) {
                    requests.push_back({});
                    requests.back().offset = offset;
                }
                Request& request = requests.back();
                const auto count = std::min<size_t>(piece.iov_len - at, request_bytes_ - request.bytes);
                request.pieces.push_back({static_cast<char*>(piece.iov_base) + at, count});
                request.bytes += count;
                offset += count;
                at += count;
            }
        }
        return requests;
    }

    // Sends all requests through the ring and waits for them. False if the ring is broken.
    bool run(Ring& ring, int descriptor, std::vector<Request>& requests, bool writing) {
        size_t prepared = 0, submitted = 0, completed = 0;
        bool stopping = false;  // after an unfinished request: start nothing new, wait for requests under way
        bool broken = false;
        while (true) {
            while (!stopping && !broken && prepared < requests.size() && prepared - completed < depth_) {
                io_uring_sqe* entry = io_uring_get_sqe(ring.get());
                if (entry == nullptr) break;
                prepare(ring, entry, descriptor, requests[prepared], writing);
                io_uring_sqe_set_data64(entry, prepared);
                ++prepared;
            }
            if (!broken && submitted < prepared) {
                const int result = io_uring_submit(ring.get());
                if (result > 0) {
                    submitted += static_cast<size_t>(result);
                } else if (result != -EINTR && submitted == completed) {
                    broken = true;  // refused, and no request is under way whose end could change that
                } else if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
                    broken = true;
                }
            }
            if (submitted == completed) {
                if (broken || submitted == prepared) break;
                continue;
            }
            io_uring_cqe* entry = nullptr;
            if (io_uring_wait_cqe(ring.get(), &entry) != 0) {
                std::this_thread::yield();  // interrupted: the kernel still has our memory, so wait again
                continue;
            }
            do {
                Request& request = requests[io_uring_cqe_get_data64(entry)];
                if (entry->res > 0) request.done = static_cast<size_t>(entry->res);
                if (request.done < request.bytes) stopping = true;
                io_uring_cqe_seen(ring.get(), entry);
                ++completed;
            } while (io_uring_peek_cqe(ring.get(), &entry) == 0);
        }
        if (broken)
            log(LogLevel::warning, "an io_uring ring broke; its transfer goes on with plain system calls");
        return !broken;
    }

    static void prepare(Ring& ring, io_uring_sqe* entry, int descriptor, const Request& request,
                        bool writing) {
        const iovec& first = request.pieces.front();
        const auto count = static_cast<unsigned>(request.pieces.size());
        if (count > 1) {
            writing ? io_uring_prep_writev(entry, descriptor, request.pieces.data(), count, request.offset)
                    : io_uring_prep_readv(entry, descriptor, request.pieces.data(), count, request.offset);
            return;
        }
        const auto bytes = static_cast<unsigned>(first.iov_len);
        if (const int buffer = ring.buffer_of(first); buffer >= 0) {
            writing
                ? io_uring_prep_write_fixed(entry, descriptor, first.iov_base, bytes, request.offset, buffer)
                : io_uring_prep_read_fixed(entry, descriptor, first.iov_base, bytes, request.offset, buffer);
        } else {
            writing ? io_uring_prep_write(entry, descriptor, first.iov_base, bytes, request.offset)
                    : io_uring_prep_read(entry, descriptor, first.iov_base, bytes, request.offset);
        }
    }

    // Does the part of a request that the ring did not do. Returns 0 or an errno value.
    int finish(int descriptor, Request& request, Route route, bool writing) {
        if (route == Route::direct && request.done % direct_unit_bytes != 0)
            return 0;  // the caller goes on without direct I/O
        size_t skip = request.done;
        auto first = request.pieces.begin();
        while (skip >= first->iov_len) skip -= (first++)->iov_len;
        first->iov_base = static_cast<char*>(first->iov_base) + skip;
        first->iov_len -= skip;
        request.pieces.erase(request.pieces.begin(), first);
        const uint64_t offset = request.offset + request.done;
        Moved moved;
        if (writing) {  // a write has one piece
            const iovec& piece = request.pieces.front();
            moved = plain_.write(descriptor, {static_cast<const std::byte*>(piece.iov_base), piece.iov_len},
                                 offset, route);
        } else {
            moved = plain_.read(descriptor, request.pieces, offset, route);
        }
        request.done += moved.bytes;
        return moved.error;
    }

    std::unique_ptr<Ring> take_ring(const std::vector<Request>& requests) {
        std::unique_ptr<Ring> ring;
        std::shared_ptr<const Regions> regions;
        {
            MutexLock lock(mutex_);
            regions = regions_;
            if (!idle_.empty()) {
                ring = std::move(idle_.back());
                idle_.pop_back();
            }
        }
        if (!ring) {
            ring = std::make_unique<Ring>();
            if (const int error = ring->create(depth_); error != 0) {
                if (!told_.exchange(true)) {
                    log(LogLevel::info,
                        "there is no further io_uring ring ({}), so the rest uses plain system calls",
                        std::strerror(error));
                }
                return nullptr;
            }
        }
        if (regions->contain(requests.front().pieces.front())) {
            ring->use(*regions);
        } else {
            ring->let_go_unless(*regions);
        }
        return ring;
    }

    void give_ring(std::unique_ptr<Ring> ring) {
        MutexLock lock(mutex_);
        ring->let_go_unless(*regions_);
        idle_.push_back(std::move(ring));
    }

    const unsigned depth_;
    const uint64_t request_bytes_;
    PosixEngine plain_;
    std::atomic<bool> told_{false};
    Mutex mutex_;  // guards everything below
    std::vector<std::unique_ptr<Ring>> idle_ GUARDED_BY(mutex_);
    std::shared_ptr<const Regions> regions_ GUARDED_BY(mutex_) = std::make_shared<Regions>();
};

}  // namespace

Result<std::shared_ptr<Storage>> make_io_uring_storage(unsigned queue_depth, uint64_t request_bytes,
                                                       const FileRules& rules) {
    auto engine = std::make_shared<IoUringEngine>(queue_depth, request_bytes);
    if (const int error = engine->probe(); error != 0) {
        return Status(Code::unsupported,
                      fmt::format("the kernel gives no io_uring ring ({}); choose posix or auto",
                                  std::strerror(error)));
    }
    return make_file_storage(std::move(engine), rules);
}

}  // namespace tailrace::internal
