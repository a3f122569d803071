#include "collective/member_part.h"

namespace tailrace::collective {

MemberPart::MemberPart(CallContext& context, const RequestList& list, const MemoryList& memory)
    : context_(context), stream_(list, memory) {
    const auto rank = static_cast<size_t>(context.rank());
    if (context.groups.aggregator_of_rank[rank] == context.rank() || context.ranks[rank].shares_bytes) return;
    windows_left_ = windows_of(list, context.domains).size();
}

Status MemberPart::handle(int source, const Word& word) {
    if (word.window == every_window) {
        windows_left_ = 0;
        return Status();
    }
    --windows_left_;
    if (!word.failed) {
        Attachments& attachments = context_.memory.attachments;
        auto packed = attachments.at(source, attached_packed, word.data);
        auto runs = attachments.at(source, attached_runs + static_cast<int>(word.slot), word.list);
        if (packed.ok() && runs.ok()) {
            copy(context_.domains.window(word.window), as_requests(*runs, word.count),
                 context_.slot_of(*packed, word));
        } else {
            context_.fail(packed.ok() ? runs.status() : packed.status());
        }
    }
    if (!word.answer) return Status();
    Word answer;
    answer.kind = word.kind == Word::Kind::place ? Word::Kind::placed : Word::Kind::taken;
    answer.window = word.window;
    return context_.post(source, answer, word.step);
}

void MemberPart::copy(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed) {
    const Stopwatch stopwatch(context_.statistics.copy);
    if (context_.writes)
        stream_.copy_out(window, runs, packed);
    else
        stream_.copy_in(window, runs, packed);
}

}  // namespace tailrace::collective
