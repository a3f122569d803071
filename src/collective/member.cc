#include "collective/member.h"

namespace tailrace::internal::collective {

Member::Member(CallContext& context, const RequestList& list, const MemoryList& memory)
    : context_(context), stream_(list, memory) {
    const auto rank = static_cast<size_t>(context.rank());
    if (context.groups.aggregator_of_rank[rank] == context.rank() || context.ranks[rank].shares_bytes) return;
    windows_left_ = windows_of(list, context.domains).size();
}

Status Member::handle(int source, const CallMessage& message) {
    if (message.window == every_window) {
        windows_left_ = 0;
        return Status();
    }
    if (windows_left_ == 0)
        return Status(Code::transport, "a rank received a message about a window in which it has nothing");
    --windows_left_;
    if (!message.failed) {
        if (message.slot >= most_local_slots)
            return Status(Code::transport, "a rank received a message about a slot that does not exist");
        Attachments& attachments = context_.memory.attachments;
        auto packed = attachments.at(source, attached_packed, message.data);
        auto runs = attachments.at(source, attached_runs + static_cast<int>(message.slot), message.list);
        if (packed.ok() && runs.ok()) {
            TAILRACE_ASSIGN(const auto requests, as_requests(*runs, message.count));
            TAILRACE_ASSIGN(const auto place, context_.slot_of(*packed, message));
            TAILRACE_TRY(copy(context_.domains.window(message.window), requests, place));
        } else {
            context_.fail(packed.ok() ? runs.status() : packed.status());
        }
    }
    if (!message.answer) return Status();
    CallMessage answer;
    answer.kind =
        message.kind == CallMessage::Kind::place ? CallMessage::Kind::placed : CallMessage::Kind::taken;
    answer.window = message.window;
    return context_.post(source, answer, message.step);
}

Status Member::copy(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed) {
    const Stopwatch stopwatch(context_.statistics.copy);
    return context_.writes ? stream_.copy_out(window, runs, packed) : stream_.copy_in(window, runs, packed);
}

}  // namespace tailrace::internal::collective
