#include "collective/call.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "collective/global_part.h"
#include "collective/local_part.h"
#include "collective/member_part.h"
#include "storage/file_size_signal.h"

namespace tailrace::collective {

namespace {

// Before it sleeps, a rank lets others run and looks again: the word it waits for is usually a moment away.
constexpr int looks_before_sleeping = 30;
constexpr std::chrono::microseconds shortest_sleep(30), longest_sleep(1000);

// Never much longer than what was waited anyway.
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
        auto last_moved = std::chrono::steady_clock::now();
        for (int idle = 0; !done();) {
            TAILRACE_ASSIGN(const bool moved, step());
            if (moved) {
                idle = 0;
                last_moved = std::chrono::steady_clock::now();
            } else if (++idle <= looks_before_sleeping) {
                sched_yield();
            } else {
                context_.transport.wait(sleep_after(std::chrono::steady_clock::now() - last_moved), true);
            }
        }
        return Status();
    }

  private:
    bool done() const { return member_.done() && (!local_ || local_->done()) && global_->done(); }

    Result<bool> step() {
        bool moved = false;
        for (;;) {
            if (!context_.to_myself.empty()) {
                const Word word = std::move(context_.to_myself.front());
                context_.to_myself.pop_front();
                moved = true;
                TAILRACE_TRY(handle(context_.rank(), word));
                continue;
            }
            TAILRACE_ASSIGN(const std::optional<Message> message, context_.transport.poll());
            if (!message) break;
            moved = true;
            TAILRACE_ASSIGN(const Word word, decode_word(message->bytes));
            context_.note_step(word.step);
            TAILRACE_TRY(handle(message->source, word));
        }
        if (local_) {
            TAILRACE_ASSIGN(const bool advanced, local_->step());
            moved = moved || advanced;
        }
        TAILRACE_ASSIGN(const bool advanced, global_->step());
        return moved || advanced;
    }

    Status handle(int source, const Word& word) {
        switch (word.kind) {
            case Word::Kind::place:
            case Word::Kind::take:
                return member_.handle(source, word);
            case Word::Kind::windows:
            case Word::Kind::offer:
            case Word::Kind::grant:
                return global_->handle(source, word);
            default:
                if (local_) return local_->handle(word);
                return Status(Code::transport, "a rank that is no local aggregator received a word for one");
        }
    }

    CallContext& context_;
    MemberPart member_;
    std::optional<LocalPart> local_;
    std::optional<GlobalPart> global_;
};

}  // namespace

Status exchange(CallContext& context, const RequestList& list, const MemoryList& memory) {
    return Call(context, list, memory).run();
}

void access_directly(CallContext& context, Result<File*> file, const RequestList& list,
                     const MemoryList& memory) {
    Statistics& statistics = context.statistics;
    statistics.requests_after_local += list.all().size();
    statistics.requests_after_global += list.all().size();
    if (list.empty()) return;
    if (!file.ok()) return context.fail(file.status());
    const Stopwatch stopwatch(statistics.file);
    const FileSizeSignalBlocked blocked;  // this is the program's thread
    uint64_t begin = 0;
    Status status;
    for (const Request& request : list.all()) {
        memory.for_each(begin, request.bytes, [&](MemoryList::Memory piece, size_t done) {
            if (!status.ok()) return;
            ++statistics.file_operations;
            const uint64_t offset = request.offset + done;
            if (context.writes) {
                status = (*file)->write_at(piece, offset);
                return;
            }
            const Result<size_t> got = (*file)->read_at(piece, offset);
            status = got.status();
            if (!got.ok() || *got == piece.size()) return;
            context.file_end = std::min(context.file_end, offset + *got);
            std::fill(piece.begin() + static_cast<std::ptrdiff_t>(*got), piece.end(), std::byte{0});
        });
        begin += request.bytes;
    }
    context.fail(status);
}

}  // namespace tailrace::collective
