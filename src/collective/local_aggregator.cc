#include "collective/local_aggregator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/invariant.h"

namespace tailrace::internal::collective {

namespace {

bool touches(const RequestList& list, const FileWindow& window) {
    const RequestList::Range range = list.within(window);
    for (size_t i = range.first; i < range.last; ++i)
        if (clip(list.all()[i], window).bytes > 0) return true;
    return false;
}

// Checks that a member's list is what its summary says. All plans and places follow from the
// summaries.
Status check_list(int rank, std::span<const Request> requests, const ListSummary& said) {
    const auto found = summarise(requests, false, "a member's list");
    if (found.ok() && *found == said) return Status();
    return Status(Code::transport,
                  fmt::format("the list of {} requests that rank {} shows in shared memory is not the one "
                              "it announced{}",
                              requests.size(), rank, found.ok() ? "" : ": " + found.status().message()));
}

}  // namespace

LocalAggregator::LocalAggregator(CallContext& context, Member& own)
    : context_(context), own_(own), slots_(context.slots) {
    for (const int rank : context.groups.members(context.rank()))
        if (context.ranks[static_cast<size_t>(rank)].list.requests > 0) members_.push_back(rank);
}

LocalAggregator::~LocalAggregator() {
    for (Slot& slot : slots_)
        for (Transfer* transfer : {slot.runs_transfer.get(), slot.data_transfer.get()})
            if (transfer != nullptr) (void)transfer->take_back();
    for (const auto& [window, transfer] : asking_) (void)transfer->take_back();
}

// 1. The members' lists.
Status LocalAggregator::start() {
    for (const int rank : members_) {
        if (rank == context_.rank()) {
            lists_[rank] = own_.stream().list();
            continue;
        }
        const RankSummary& member = context_.ranks[static_cast<size_t>(rank)];
        auto memory = context_.memory.attachments.at(rank, attached_list, member.memory);
        if (memory.ok()) {
            TAILRACE_ASSIGN(const auto requests, as_requests(*memory, member.list.requests));
            TAILRACE_TRY(check_list(rank, requests, member.list));
            lists_[rank] = RequestList(requests, member.list.overlapping);
            const size_t list_bytes = requests.size_bytes();
            if (member.shares_bytes && member.list.bytes > memory->size() - list_bytes)
                return Status(Code::transport,
                              fmt::format("rank {} says that it has laid {} bytes, but there are {}", rank,
                                          member.list.bytes, memory->size() - list_bytes));
            if (member.shares_bytes)
                laid_.try_emplace(rank, lists_[rank],
                                  memory->subspan(list_bytes, static_cast<size_t>(member.list.bytes)));
            continue;
        }
        context_.fail(memory.status());
        if (member.shares_bytes) continue;  // this member waits for nothing
        CallMessage give_up;
        give_up.kind = CallMessage::Kind::take;
        give_up.window = every_window;
        give_up.failed = true;
        TAILRACE_TRY(context_.post(rank, give_up, 0));
    }
    return members_.empty() ? Status() : begin();
}

// 2. Their windows.
Status LocalAggregator::begin() {
    std::vector<uint64_t> ids;
    for (const auto& [rank, list] : lists_) {
        const std::vector<uint64_t> touched = windows_of(list, context_.domains);
        const auto middle = static_cast<std::ptrdiff_t>(ids.size());
        ids.insert(ids.end(), touched.begin(), touched.end());
        std::inplace_merge(ids.begin(), ids.begin() + middle, ids.end());
    }
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    windows_ = windows_left_ = ids.size();

    // Every owner that the ranks' summaries let expect something gets a message, though it may be
    // empty.
    FileWindow range{UINT64_MAX, 0};
    for (const int rank : members_) {
        const ListSummary& list = context_.ranks[static_cast<size_t>(rank)].list;
        range.begin = std::min(range.begin, list.begin);
        range.end = std::max(range.end, list.end);
    }
    std::vector<CallMessage> messages(context_.globals.size());
    for (const uint64_t id : ids) messages[static_cast<size_t>(context_.domains.owner(id))].ids.push_back(id);
    for (size_t owner = 0; owner < messages.size(); ++owner) {
        if (!context_.domains.may_touch(range, static_cast<int>(owner))) continue;
        CallMessage& message = messages[owner];
        if (!message.ids.empty() && context_.open_from_the_beginning(message.ids.front())) {
            unsaid_[context_.globals[owner]] = std::move(message.ids);
            continue;
        }
        message.kind = CallMessage::Kind::windows;
        TAILRACE_TRY(context_.post(context_.globals[owner], message, 0));
    }
    for (const uint64_t id : ids)
        if (context_.open_from_the_beginning(id)) TAILRACE_TRY(opened(id, 0));
    return Status();
}

Status LocalAggregator::opened(uint64_t window, uint64_t steps) {
    if (!context_.writes) return ask(window, steps);
    opened_[window] = steps;
    return Status();
}

Status LocalAggregator::handle(const CallMessage& message) {
    switch (message.kind) {
        case CallMessage::Kind::open:
            return opened(message.window, message.step);
        case CallMessage::Kind::ready:
            ready_.emplace_back(message.window, message.step);
            return Status();
        case CallMessage::Kind::placed:
        case CallMessage::Kind::taken: {
            Slot* slot = slot_of(message.window);
            if (slot == nullptr || slot->members_left == 0) break;
            slot->steps = std::max(slot->steps, message.step);
            if (--slot->members_left > 0) return Status();
            const auto index = static_cast<size_t>(slot - slots_.data());
            if (message.kind == CallMessage::Kind::placed) return offer(index);
            release(index);
            return Status();
        }
        case CallMessage::Kind::done: {
            Slot* slot = slot_of(message.window);
            if (slot == nullptr) break;
            slot->steps = std::max(slot->steps, message.step);
            slot->waits_for_done = false;
            return Status();
        }
        default:
            break;
    }
    return Status(Code::transport, "a local aggregator received a message out of order");
}

Result<bool> LocalAggregator::step() {
    bool moved = false;
    for (std::optional<size_t> slot = free_slot(); slot && !opened_.empty(); slot = free_slot()) {
        TAILRACE_TRY(take_up(*slot));
        moved = true;
    }
    for (std::optional<size_t> slot = free_slot(); slot && !ready_.empty(); slot = free_slot()) {
        TAILRACE_TRY(grant(*slot));
        moved = true;
    }
    for (auto transfer = asking_.begin(); transfer != asking_.end();) {
        TAILRACE_ASSIGN(const auto complete, transfer->second->test());
        transfer = complete ? asking_.erase(transfer) : std::next(transfer);
    }
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
        if (slots_[slot].stage != Stage::moving) continue;
        TAILRACE_ASSIGN(const bool advanced, advance(slot));
        moved = moved || advanced;
    }
    return moved;
}

bool LocalAggregator::done() const {
    return windows_left_ == 0 && asking_.empty();  // a window counts until its slot is free
}

// ---- where things are ---------------------------------------------------------------------------

int LocalAggregator::owner(uint64_t window) const {
    return context_.globals[static_cast<size_t>(context_.domains.owner(window))];
}
bool LocalAggregator::inside(uint64_t window) const {
    return owner(window) == context_.rank();
}
bool LocalAggregator::by_memory(uint64_t window) const {
    return !alone() && !inside(window) && context_.same_node(owner(window));
}

std::optional<size_t> LocalAggregator::free_slot() const {
    for (size_t slot = 0; slot < slots_.size(); ++slot)
        if (slots_[slot].stage == Stage::free) return slot;
    return std::nullopt;
}

LocalAggregator::Slot* LocalAggregator::slot_of(uint64_t window) {
    for (Slot& slot : slots_)
        if (slot.stage > Stage::spent && slot.window == window) return &slot;
    return nullptr;
}

std::span<const Request> LocalAggregator::runs(uint64_t window) const {
    for (const Slot& slot : slots_)
        if (slot.stage > Stage::spent && slot.window == window) return slot.runs;
    const auto asked = asked_.find(window);
    return asked == asked_.end() ? std::span<const Request>() : asked->second;
}

std::span<std::byte> LocalAggregator::packed(uint64_t window) {
    const Slot* slot = slot_of(window);
    return slot == nullptr ? std::span<std::byte>() : slot->packed;
}

MergeCounts LocalAggregator::merge_window(const FileWindow& window, std::vector<Request>& runs) {
    const Stopwatch stopwatch(context_.statistics.gather);
    std::vector<std::span<const Request>> parts;
    for (const auto& [rank, list] : lists_) {
        const RequestList::Range range = list.within(window);
        if (range.first < range.last)
            parts.push_back(list.all().subspan(range.first, range.last - range.first));
    }
    const MergeCounts merged = merge(parts, window, runs);
    context_.statistics.cuts_after_local += cuts_.note(window, runs);
    return merged;
}

// Finds memory for the packed bytes of slot.runs, and shows the runs to the members.
Status LocalAggregator::prepare(size_t index) {
    Slot& slot = slots_[index];
    const uint64_t bytes = total_bytes(slot.runs);
    if (alone()) {
        slot.packed = own_.stream().memory_of(context_.domains.window(slot.window));
        if (!slot.packed.empty()) return Status();
    }
    const uint64_t slot_bytes = context_.domains.window_bytes();
    INVARIANT(bytes <= slot_bytes);
    TAILRACE_TRY(context_.memory.packed.ensure(slot_bytes * slots_.size()));
    slot.packed = context_.memory.packed.memory().subspan(static_cast<size_t>(index * slot_bytes),
                                                          static_cast<size_t>(bytes));
    const bool all_laid = laid_.size() + lists_.count(context_.rank()) == members_.size();
    if (alone() || (all_laid && !by_memory(slot.window))) return Status();  // no other rank looks
    SharedMemory& shown = context_.memory.runs[index];
    const uint64_t shown_bytes = slot.runs.size() * sizeof(Request);
    TAILRACE_TRY(shown.ensure(shown_bytes, spare_of_list(shown_bytes)));
    std::memcpy(shown.memory().data(), slot.runs.data(), slot.runs.size() * sizeof(Request));
    return Status();
}

Status LocalAggregator::tell_members(size_t index, CallMessage::Kind kind) {
    Slot& slot = slots_[index];
    if (alone()) return Status();
    CallMessage message;
    message.kind = kind;
    message.window = slot.window;
    message.failed = slot.failed;
    message.answer = kind == CallMessage::Kind::place || reuses_slots();
    message.shared = true;
    message.count = slot.runs.size();
    message.bytes = slot.packed.size();
    message.slot = static_cast<uint32_t>(index);
    message.list = context_.memory.runs[index].name();
    message.data = context_.memory.packed.name();
    const FileWindow window = context_.domains.window(slot.window);
    for (const auto& [rank, list] : lists_) {
        if (rank == context_.rank() || laid_.contains(rank) || !touches(list, window)) continue;
        if (message.answer) ++slot.members_left;
        TAILRACE_TRY(context_.post(rank, message, slot.steps));
    }
    return Status();
}

void LocalAggregator::release(size_t index) {
    INVARIANT(windows_left_ > 0 && slots_[index].members_left == 0);
    INVARIANT(!slots_[index].data_transfer && !slots_[index].runs_transfer);
    const uint64_t steps = slots_[index].steps;
    slots_[index] = Slot();
    slots_[index].steps = steps;
    if (!reuses_slots()) slots_[index].stage = Stage::spent;
    --windows_left_;
}

// ---- writes -------------------------------------------------------------------------------------

// Takes the open window of the earliest round. Within a round local aggregators begin at different
// owners, so that they do not all send to the first one at once.
Status LocalAggregator::take_up(size_t index) {
    const auto owners = static_cast<uint64_t>(context_.domains.owners());
    const auto& all = context_.groups.aggregators;
    const auto me =
        static_cast<uint64_t>(std::lower_bound(all.begin(), all.end(), context_.rank()) - all.begin());
    const uint64_t first = me * owners / all.size();
    const auto turn = [&](uint64_t id) {
        return std::pair(id / owners, (id % owners + owners - first) % owners);
    };
    const auto next = std::min_element(opened_.begin(), opened_.end(),
                                       [&](auto& a, auto& b) { return turn(a.first) < turn(b.first); });
    Slot& slot = slots_[index];
    slot.stage = Stage::filling;
    slot.window = next->first;
    slot.steps = std::max(slot.steps, next->second);
    opened_.erase(next);

    const FileWindow window = context_.domains.window(slot.window);
    context_.statistics.overlapping_bytes += merge_window(window, slot.runs).overlapping_bytes;
    if (Status status = prepare(index); !status.ok()) {
        context_.fail(status);
        slot.failed = true;
    }
    TAILRACE_TRY(tell_members(index, CallMessage::Kind::place));
    TAILRACE_TRY(copy_own(slot));
    if (!slot.failed) {
        const Stopwatch stopwatch(context_.statistics.copy);
        for (const auto& [rank, laid] : laid_)
            TAILRACE_TRY(laid.stream.copy_out(window, slot.runs, slot.packed));
    }
    return slot.members_left == 0 ? offer(index) : Status();
}

Status LocalAggregator::offer(size_t index) {
    Slot& slot = slots_[index];
    INVARIANT(slot.stage == Stage::filling && slot.members_left == 0);
    slot.stage = Stage::moving;
    const int target = owner(slot.window);
    CallMessage message;
    message.kind = CallMessage::Kind::offer;
    message.window = slot.window;
    message.failed = slot.failed;
    message.count = slot.failed ? 0 : slot.runs.size();
    message.bytes = slot.failed ? 0 : slot.packed.size();
    if (slot.failed) {
    } else if (inside(slot.window)) {
        slot.waits_for_done = message.answer = true;  // it receives no messages
    } else if (by_memory(slot.window)) {
        slot.waits_for_done = message.answer = reuses_slots();
        message.shared = true;
        message.slot = static_cast<uint32_t>(index);
        message.list = context_.memory.runs[index].name();
        message.data = context_.memory.packed.name();
    } else {
        if (slot.runs.size() <= most_runs_in_message) {
            message.runs = slot.runs;
        } else {
            ++context_.statistics.messages;
            TAILRACE_ASSIGN(slot.runs_transfer,
                            context_.transport.start_send(target, runs_tag(context_.domains, slot.window),
                                                          as_bytes(slot.runs)));
        }
        ++context_.statistics.messages;
        TAILRACE_ASSIGN(
            slot.data_transfer,
            context_.transport.start_send(target, data_tag(context_.domains, slot.window), slot.packed));
    }
    return post_offer(message, slot.steps);
}

// The first message to an owner names the windows that the owner may expect.
Status LocalAggregator::post_offer(CallMessage& message, uint64_t after) {
    const int target = owner(message.window);
    if (const auto unsaid = unsaid_.find(target); unsaid != unsaid_.end()) {
        message.ids = std::move(unsaid->second);
        unsaid_.erase(unsaid);
    }
    return context_.post(target, message, after);
}

// ---- reads --------------------------------------------------------------------------------------

Status LocalAggregator::ask(uint64_t window, uint64_t steps) {
    std::vector<Request> runs;
    context_.statistics.overlapping_bytes +=
        merge_window(context_.domains.window(window), runs).overlapping_bytes;
    CallMessage message;
    message.kind = CallMessage::Kind::offer;
    message.window = window;
    message.count = runs.size();
    message.bytes = total_bytes(runs);
    if (!inside(window)) {
        if (runs.size() <= most_runs_in_message) {
            message.runs = runs;
        } else {
            // The transfer reads the runs, which stay in place when the vector is moved. advance()
            // waits for its end.
            ++context_.statistics.messages;
            TAILRACE_ASSIGN(asking_[window],
                            context_.transport.start_send(owner(window), runs_tag(context_.domains, window),
                                                          as_bytes(runs)));
        }
    }
    if (const std::optional<size_t> index = free_slot()) {
        Slot& slot = slots_[*index];
        slot.window = window;
        slot.runs = std::move(runs);
        slot.steps = steps = std::max(slot.steps, steps);
        TAILRACE_TRY(give_memory(*index, message));
        // After a failure here the window must still be read, because the runs are on their way.
        message.granted = true;
    } else {
        asked_[window] = std::move(runs);
    }
    return post_offer(message, steps);
}

// Finds memory for the packed bytes of slot.runs, and puts its place into the message.
Status LocalAggregator::give_memory(size_t index, CallMessage& message) {
    Slot& slot = slots_[index];
    slot.stage = Stage::moving;
    if (Status status = prepare(index); !status.ok()) {
        context_.fail(status);
        slot.failed = message.failed = true;
        return Status();
    }
    if (inside(slot.window) || by_memory(slot.window)) {
        slot.waits_for_done = true;
        message.shared = by_memory(slot.window);
        message.slot = static_cast<uint32_t>(index);
        message.data = context_.memory.packed.name();
        return Status();
    }
    TAILRACE_ASSIGN(slot.data_transfer,
                    context_.transport.start_receive(owner(slot.window),
                                                     data_tag(context_.domains, slot.window), slot.packed));
    return Status();
}

Status LocalAggregator::grant(size_t index) {
    Slot& slot = slots_[index];
    slot.window = ready_.front().first;
    slot.steps = std::max(slot.steps, ready_.front().second);
    ready_.pop_front();
    slot.runs = std::move(asked_[slot.window]);
    asked_.erase(slot.window);
    CallMessage message;
    message.kind = CallMessage::Kind::grant;
    message.window = slot.window;
    TAILRACE_TRY(give_memory(index, message));
    return context_.post(owner(slot.window), message, slot.steps);
}

// The packed bytes have arrived.
Status LocalAggregator::filled(size_t index) {
    Slot& slot = slots_[index];
    INVARIANT(!context_.writes && slot.stage == Stage::moving);
    slot.stage = Stage::emptying;
    TAILRACE_TRY(tell_members(index, CallMessage::Kind::take));
    TAILRACE_TRY(copy_own(slot));
    if (slot.members_left == 0) release(index);
    return Status();
}

// Copies between this rank's memory and the slot, unless the slot is that memory.
Status LocalAggregator::copy_own(Slot& slot) {
    if (slot.failed || !lists_.contains(context_.rank())) return Status();
    const FileWindow window = context_.domains.window(slot.window);
    if (alone() && slot.packed.data() == own_.stream().memory_of(window).data()) return Status();
    return own_.copy(window, slot.runs, slot.packed);
}

Result<bool> LocalAggregator::advance(size_t index) {
    Slot& slot = slots_[index];
    for (std::unique_ptr<Transfer>* transfer : {&slot.runs_transfer, &slot.data_transfer}) {
        if (!*transfer) continue;
        TAILRACE_ASSIGN(const auto complete, (*transfer)->test());
        if (!complete) return false;
        transfer->reset();
        // Data come without the number of steps that led to them: it is that of the offer or grant,
        // plus two.
        if (!context_.writes) context_.note_step(slot.steps += 2);
    }
    if (slot.waits_for_done || asking_.contains(slot.window)) return false;
    if (context_.writes)
        release(index);
    else
        TAILRACE_TRY(filled(index));
    return true;
}

}  // namespace tailrace::internal::collective
