#include "collective/call.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "collective/global_aggregator.h"
#include "collective/local_aggregator.h"
#include "collective/member.h"
#include "storage/file_size_signal.h"
#include "threads/executor.h"

namespace tailrace::internal::collective {

namespace {

// Before it sleeps, a rank yields and looks again, because the message it waits for is usually a
// moment away. At the beginning of a call it looks longer if that pays, which is when calls are
// small.
constexpr int looks_before_sleeping = 30;
constexpr std::chrono::microseconds shortest_sleep(30), longest_sleep(1000);

// A sleep never lasts much longer than the wait so far.
std::chrono::microseconds sleep_after(std::chrono::steady_clock::duration waited) {
    return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(waited / 4), shortest_sleep,
                      longest_sleep);
}

class Call {
  public:
    Call(CallContext& context, const RequestList& list, const MemoryList& memory)
        : context_(context), member_(context, list, memory) {
        const int rank = context.rank();
        if (context.groups.aggregator_of_rank[static_cast<size_t>(rank)] == rank)
            local_.emplace(context, member_);
        global_.emplace(context, local_ ? &*local_ : nullptr);
    }

    Status run() {
        if (local_) TAILRACE_TRY(local_->start());
        const auto begin = SteadyClock::now();
        auto last_moved = begin;
        LongLook& long_look = context_.memory.long_look;
        bool looks_on = long_look.may(), looked_on = false;
        for (int idle = 0; !done();) {
            TAILRACE_ASSIGN(const bool moved, step());
            if (moved) {
                idle = 0;
                last_moved = SteadyClock::now();
            } else if (++idle <= looks_before_sleeping) {
                sched_yield();
            } else if (looks_on && SteadyClock::now() - begin < LongLook::longest) {
                looked_on = true;
                sched_yield();
            } else {
                if (std::exchange(looks_on, false)) long_look.was_in_vain();
                context_.transport.wait(sleep_after(SteadyClock::now() - last_moved), true);
            }
        }
        if (looks_on && looked_on) long_look.paid();
        return Status();
    }

  private:
    bool done() const { return member_.done() && (!local_ || local_->done()) && global_->done(); }

    Result<bool> step() {
        bool moved = false;
        for (;;) {
            if (!context_.to_myself.empty()) {
                const CallMessage message = std::move(context_.to_myself.front());
                context_.to_myself.pop_front();
                moved = true;
                TAILRACE_TRY(handle(context_.rank(), message));
                continue;
            }
            TAILRACE_ASSIGN(const std::optional<Message> arrived, context_.transport.poll());
            if (!arrived) break;
            moved = true;
            TAILRACE_ASSIGN(const CallMessage message, decode_call_message(arrived->bytes));
            context_.note_step(message.step);
            TAILRACE_TRY(handle(arrived->source, message));
        }
        if (local_) {
            TAILRACE_ASSIGN(const bool advanced, local_->step());
            moved = moved || advanced;
        }
        TAILRACE_ASSIGN(const bool advanced, global_->step());
        return moved || advanced;
    }

    Status handle(int source, const CallMessage& message) {
        switch (message.kind) {
            case CallMessage::Kind::place:
            case CallMessage::Kind::take:
                return member_.handle(source, message);
            case CallMessage::Kind::windows:
            case CallMessage::Kind::offer:
            case CallMessage::Kind::grant:
                return global_->handle(source, message);
            default:
                if (local_) return local_->handle(message);
                return Status(Code::transport,
                              "a rank that is not a local aggregator received a message for one");
        }
    }

    CallContext& context_;
    Member member_;
    std::optional<LocalAggregator> local_;
    std::optional<GlobalAggregator> global_;
};

}  // namespace

Status exchange(CallContext& context, const RequestList& list, const MemoryList& memory) {
    return Call(context, list, memory).run();
}

namespace {

// Moves one request after the other between a file and a rank's memory. Memory pieces that are
// worth a file operation move directly. Smaller ones are gathered first.
class DirectAccess {
  public:
    DirectAccess(CallContext& context, File& file, const MemoryList& memory)
        : context_(context), file_(file), memory_(memory) {}

    // Moves the memory's bytes from `begin` on.
    Status move(const Request& request, uint64_t begin) {
        for (uint64_t done = 0; done < request.bytes;) {
            const uint64_t left = request.bytes - done;
            MemoryList::Memory piece = memory_.piece_from(begin + done);
            if (piece.size() >= std::min(left, direct_piece_bytes)) {
                piece = piece.first(static_cast<size_t>(std::min<uint64_t>(left, piece.size())));
                TAILRACE_TRY(move(piece, request.offset + done));
            } else {
                const auto bytes = static_cast<size_t>(std::min(left, direct_gather_bytes));
                if (gathered_.size() < bytes) gathered_.resize(bytes);
                piece = std::span(gathered_).first(bytes);
                if (context_.writes) memory_.copy_out(begin + done, piece);
                TAILRACE_TRY(move(piece, request.offset + done));
                if (!context_.writes) memory_.copy_in(begin + done, piece);
            }
            done += piece.size();
        }
        return Status();
    }

  private:
    Status move(MemoryList::Memory piece, uint64_t offset) {
        ++context_.statistics.file_operations;
        if (context_.writes) return file_.write_at(piece, offset);
        TAILRACE_ASSIGN(const size_t got, file_.read_at(piece, offset));
        if (got == piece.size()) return Status();
        context_.file_end = std::min(context_.file_end, offset + got);
        std::fill(piece.begin() + static_cast<std::ptrdiff_t>(got), piece.end(), std::byte{0});
        return Status();
    }

    CallContext& context_;
    File& file_;
    const MemoryList& memory_;
    std::vector<std::byte> gathered_;
};

}  // namespace

void access_directly(CallContext& context, Result<File*> file, const RequestList& list,
                     const MemoryList& memory) {
    Statistics& statistics = context.statistics;
    statistics.requests_after_local += list.all().size();
    statistics.requests_after_global += list.all().size();
    if (list.empty()) return;
    if (!file.ok()) return context.fail(file.status());
    const Stopwatch stopwatch(statistics.file);
    const FileSizeSignalBlocked blocked;  // this is the program's thread
    DirectAccess access(context, **file, memory);
    Status status;
    uint64_t begin = 0;
    try {
        for (const Request& request : list.all()) {
            status = access.move(request, begin);
            if (!status.ok()) break;
            begin += request.bytes;
        }
    } catch (const std::bad_alloc&) {
        status = Status(Code::out_of_memory, "there is no memory to gather small pieces in");
    }
    context.fail(status);
}

}  // namespace tailrace::internal::collective
