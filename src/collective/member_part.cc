#include "collective/member_part.h"

#include <cstring>

namespace tailrace::collective {

MemberPart::MemberPart(CallContext& context, const RequestList& list, const MemoryList& memory)
    : context_(context), list_(list), memory_(memory) {
    stream_begins_.reserve(list.all().size());
    uint64_t begin = 0;
    for (const Request& request : list.all()) {
        stream_begins_.push_back(begin);
        begin += request.bytes;
    }
}

Status MemberPart::start() {
    const int aggregator = context_.groups.aggregator_of_rank[static_cast<size_t>(context_.rank())];
    if (aggregator == context_.rank() || list_.empty()) return Status();
    windows_left_ = windows_of(list_, context_.domains).size();
    Word word;
    word.kind = Word::Kind::lists;
    word.count = list_.all().size();
    word.shared = true;
    word.list = context_.memory.list.name();
    return context_.post(aggregator, word);
}

Status MemberPart::handle(int source, const Word& word) {
    if (word.window == every_window) {
        windows_left_ = 0;
        return Status();
    }
    --windows_left_;
    if (!word.failed) {
        auto packed = context_.memory.attachments.at(source, attached_packed, word.data);
        const int which = attached_runs + static_cast<int>(word.slot_begin > 0 ? 1 : 0);
        auto runs = context_.memory.attachments.at(source, which, word.list);
        if (packed.ok() && runs.ok()) {
            const Stopwatch stopwatch(context_.statistics.copy);
            copy(context_.domains.window(word.window), as_requests(*runs, word.count),
                 packed->subspan(static_cast<size_t>(word.slot_begin), static_cast<size_t>(word.bytes)));
        } else {
            context_.fail(packed.ok() ? runs.status() : packed.status());
        }
    }
    Word answer;
    answer.kind = word.kind == Word::Kind::place ? Word::Kind::placed : Word::Kind::taken;
    answer.window = word.window;
    return context_.post(source, answer);
}

void MemberPart::copy(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed) {
    const std::span<const Request> all = list_.all();
    const RequestList::Range range = list_.within(window);
    RunWalk walk(runs);
    for (size_t i = range.first; i < range.last; ++i) {
        const Request part = clip(all[i], window);
        if (part.bytes == 0) continue;
        const std::span<std::byte> place =
            packed.subspan(static_cast<size_t>(walk.place(part)), static_cast<size_t>(part.bytes));
        const uint64_t begin = stream_begin(i) + (part.offset - all[i].offset);
        if (context_.writes)
            memory_.copy_out(begin, place);
        else
            memory_.copy_in(begin, place);
    }
}

std::span<std::byte> MemberPart::memory_of(const FileWindow& window) const {
    if (list_.overlapping()) return {};
    const RequestList::Range range = list_.within(window);
    if (range.first == range.last) return {};
    const std::span<const Request> all = list_.all();
    const Request first = clip(all[range.first], window), last = clip(all[range.last - 1], window);
    const uint64_t begin = stream_begin(range.first) + (first.offset - all[range.first].offset);
    const uint64_t end = stream_begin(range.last - 1) + (last.end() - all[range.last - 1].offset);
    return memory_.contiguous(begin, end - begin);
}

}  // namespace tailrace::collective
