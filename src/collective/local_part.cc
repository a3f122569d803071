#include "collective/local_part.h"

#include <algorithm>
#include <cstring>

namespace tailrace::collective {

namespace {

bool touches(const RequestList& list, const FileWindow& window) {
    const RequestList::Range range = list.within(window);
    for (size_t i = range.first; i < range.last; ++i)
        if (clip(list.all()[i], window).bytes > 0) return true;
    return false;
}

}  // namespace

LocalPart::LocalPart(CallContext& context, MemberPart& own) : context_(context), own_(own) {
    for (const int rank : context.groups.members(context.rank()))
        if (context.ranks[static_cast<size_t>(rank)].list.requests > 0) members_.push_back(rank);
    lists_missing_ = members_.size();
}

LocalPart::~LocalPart() {
    for (Slot& slot : slots_)
        for (Transfer* transfer : {slot.runs_transfer.get(), slot.data_transfer.get()})
            if (transfer != nullptr) (void)transfer->take_back();
    for (const auto& [window, transfer] : asking_) (void)transfer->take_back();
}

Status LocalPart::start() {
    if (!own_.list().empty()) {
        lists_[context_.rank()] = own_.list();
        --lists_missing_;
    }
    if (lists_missing_ == 0) return begin();
    return Status();
}

Status LocalPart::begin() {
    begun_ = true;
    if (members_.empty()) return Status();
    std::vector<uint64_t> ids;
    for (const auto& [rank, list] : lists_) {
        const std::vector<uint64_t> touched = windows_of(list, context_.domains);
        const auto middle = static_cast<std::ptrdiff_t>(ids.size());
        ids.insert(ids.end(), touched.begin(), touched.end());
        std::inplace_merge(ids.begin(), ids.begin() + middle, ids.end());
    }
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    windows_left_ = ids.size();

    // Every owner that the ranks' summaries let expect something gets a word, though it may be empty.
    FileWindow range{UINT64_MAX, 0};
    for (const int rank : members_) {
        const ListSummary& list = context_.ranks[static_cast<size_t>(rank)].list;
        range.begin = std::min(range.begin, list.begin);
        range.end = std::max(range.end, list.end);
    }
    std::vector<Word> words(context_.globals.size());
    for (const uint64_t id : ids) words[static_cast<size_t>(context_.domains.owner(id))].ids.push_back(id);
    for (size_t owner = 0; owner < words.size(); ++owner) {
        if (!context_.domains.may_touch(range, static_cast<int>(owner))) continue;
        words[owner].kind = Word::Kind::windows;
        TAILRACE_TRY(context_.post(context_.globals[owner], words[owner]));
    }
    for (const uint64_t id : ids)
        if (context_.open_from_the_beginning(id)) TAILRACE_TRY(opened(id));
    return Status();
}

Status LocalPart::opened(uint64_t window) {
    if (!context_.writes) return offer_runs(window);
    opened_.push_back(window);
    return Status();
}

Status LocalPart::handle(int source, const Word& word) {
    switch (word.kind) {
        case Word::Kind::lists: {
            auto memory = context_.memory.attachments.at(source, attached_list, word.list);
            if (memory.ok()) {
                lists_[source] = RequestList(as_requests(*memory, word.count),
                                             context_.ranks[static_cast<size_t>(source)].list.overlapping);
            } else {
                context_.fail(memory.status());
                Word give_up;
                give_up.kind = Word::Kind::take;
                give_up.window = every_window;
                give_up.failed = true;
                TAILRACE_TRY(context_.post(source, give_up));
            }
            if (--lists_missing_ == 0) return begin();
            return Status();
        }
        case Word::Kind::open:
            return opened(word.window);
        case Word::Kind::ready:
            ready_.push_back(word.window);
            return Status();
        case Word::Kind::placed:
        case Word::Kind::taken: {
            Slot* slot = slot_of(word.window);
            if (slot == nullptr || slot->members_left == 0) break;
            if (--slot->members_left > 0) return Status();
            const auto index = static_cast<size_t>(slot - slots_);
            if (word.kind == Word::Kind::placed) return offer(index);
            release(index);
            return Status();
        }
        case Word::Kind::done: {
            Slot* slot = slot_of(word.window);
            if (slot == nullptr) break;
            slot->waits_for_done = false;
            return Status();
        }
        default:
            break;
    }
    return Status(Code::transport, "a local aggregator received a message out of order");
}

Result<bool> LocalPart::step() {
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
    for (size_t slot = 0; slot < local_slots; ++slot) {
        if (slots_[slot].stage != Stage::moving) continue;
        TAILRACE_ASSIGN(const bool advanced, advance(slot));
        moved = moved || advanced;
    }
    return moved;
}

bool LocalPart::done() const {
    return begun_ && windows_left_ == 0 && asking_.empty() &&
           std::all_of(std::begin(slots_), std::end(slots_),
                       [](const Slot& slot) { return slot.stage == Stage::free; });
}

// ---- where things are ---------------------------------------------------------------------------------

int LocalPart::owner(uint64_t window) const {
    return context_.globals[static_cast<size_t>(context_.domains.owner(window))];
}
bool LocalPart::inside(uint64_t window) const {
    return owner(window) == context_.rank();
}
bool LocalPart::by_memory(uint64_t window) const {
    return !alone() && !inside(window) && context_.same_node(owner(window));
}

std::optional<size_t> LocalPart::free_slot() const {
    for (size_t slot = 0; slot < local_slots; ++slot)
        if (slots_[slot].stage == Stage::free) return slot;
    return std::nullopt;
}

LocalPart::Slot* LocalPart::slot_of(uint64_t window) {
    for (Slot& slot : slots_)
        if (slot.stage != Stage::free && slot.window == window) return &slot;
    return nullptr;
}

std::span<const Request> LocalPart::runs(uint64_t window) const {
    for (const Slot& slot : slots_)
        if (slot.stage != Stage::free && slot.window == window) return slot.runs;
    const auto asked = asked_.find(window);
    return asked == asked_.end() ? std::span<const Request>() : asked->second;
}

std::span<std::byte> LocalPart::packed(uint64_t window) {
    const Slot* slot = slot_of(window);
    return slot == nullptr ? std::span<std::byte>() : slot->packed;
}

MergeCounts LocalPart::merge_window(const FileWindow& window, std::vector<Request>& runs) {
    const Stopwatch stopwatch(context_.statistics.gather);
    std::vector<std::span<const Request>> parts;
    for (const auto& [rank, list] : lists_) {
        const RequestList::Range range = list.within(window);
        if (range.first < range.last)
            parts.push_back(list.all().subspan(range.first, range.last - range.first));
    }
    return merge(parts, window, runs);
}

// Finds the memory for the packed bytes of slot.runs, and shows the runs to the members.
Status LocalPart::prepare(size_t index) {
    Slot& slot = slots_[index];
    const uint64_t bytes = total_bytes(slot.runs);
    if (alone()) {
        slot.packed = own_.memory_of(context_.domains.window(slot.window));
        if (!slot.packed.empty()) return Status();
    }
    const uint64_t slot_bytes = context_.domains.window_bytes();
    TAILRACE_TRY(context_.memory.packed.ensure(slot_bytes * local_slots));
    slot.packed = context_.memory.packed.memory().subspan(static_cast<size_t>(index * slot_bytes),
                                                          static_cast<size_t>(bytes));
    if (alone()) return Status();
    SharedMemory& shown = context_.memory.runs[index];
    TAILRACE_TRY(shown.ensure(slot.runs.size() * sizeof(Request)));
    std::memcpy(shown.memory().data(), slot.runs.data(), slot.runs.size() * sizeof(Request));
    return Status();
}

Status LocalPart::tell_members(size_t index, Word::Kind kind) {
    Slot& slot = slots_[index];
    if (alone()) return Status();
    Word word;
    word.kind = kind;
    word.window = slot.window;
    word.failed = slot.failed;
    word.shared = true;
    word.count = slot.runs.size();
    word.bytes = slot.packed.size();
    word.slot_begin = index * context_.domains.window_bytes();
    word.list = context_.memory.runs[index].name();
    word.data = context_.memory.packed.name();
    const FileWindow window = context_.domains.window(slot.window);
    for (const auto& [rank, list] : lists_) {
        if (rank == context_.rank() || !touches(list, window)) continue;
        ++slot.members_left;
        TAILRACE_TRY(context_.post(rank, word));
    }
    return Status();
}

void LocalPart::release(size_t index) {
    slots_[index] = Slot();
    --windows_left_;
}

// ---- writes -------------------------------------------------------------------------------------------

// Of the windows that are open, the one of the earliest round; within a round local aggregators begin at
// different owners, so that not all of them send to the first one at once.
Status LocalPart::take_up(size_t index) {
    const auto owners = static_cast<uint64_t>(context_.domains.owners());
    const auto& all = context_.groups.aggregators;
    const auto me =
        static_cast<uint64_t>(std::lower_bound(all.begin(), all.end(), context_.rank()) - all.begin());
    const uint64_t first = me * owners / all.size();
    const auto turn = [&](uint64_t id) {
        return std::pair(id / owners, (id % owners + owners - first) % owners);
    };
    const auto next = std::min_element(opened_.begin(), opened_.end(),
                                       [&](uint64_t a, uint64_t b) { return turn(a) < turn(b); });
    Slot& slot = slots_[index];
    slot.stage = Stage::filling;
    slot.window = *next;
    opened_.erase(next);

    const FileWindow window = context_.domains.window(slot.window);
    context_.statistics.overlapping_bytes += merge_window(window, slot.runs).overlapping_bytes;
    if (Status status = prepare(index); !status.ok()) {
        context_.fail(status);
        slot.failed = true;
    }
    TAILRACE_TRY(tell_members(index, Word::Kind::place));
    if (!slot.failed && lists_.contains(context_.rank()) &&
        !(alone() && slot.packed.data() == own_.memory_of(window).data())) {
        const Stopwatch stopwatch(context_.statistics.copy);
        own_.copy(window, slot.runs, slot.packed);
    }
    return slot.members_left == 0 ? offer(index) : Status();
}

Status LocalPart::offer(size_t index) {
    Slot& slot = slots_[index];
    slot.stage = Stage::moving;
    const int target = owner(slot.window);
    Word word;
    word.kind = Word::Kind::offer;
    word.window = slot.window;
    word.failed = slot.failed;
    word.count = slot.failed ? 0 : slot.runs.size();
    word.bytes = slot.failed ? 0 : slot.packed.size();
    if (inside(slot.window) || slot.failed) {
        slot.waits_for_done = !slot.failed;
    } else if (by_memory(slot.window)) {
        slot.waits_for_done = true;
        word.shared = true;
        word.slot_begin = index * context_.domains.window_bytes();
        word.list = context_.memory.runs[index].name();
        word.data = context_.memory.packed.name();
    } else {
        if (slot.runs.size() <= most_runs_in_word) {
            word.runs = slot.runs;
        } else {
            ++context_.statistics.messages;
            TAILRACE_ASSIGN(slot.runs_transfer, context_.transport.start_send(target, runs_tag(slot.window),
                                                                              as_bytes(slot.runs)));
        }
        ++context_.statistics.messages;
        TAILRACE_ASSIGN(slot.data_transfer,
                        context_.transport.start_send(target, data_tag(slot.window), slot.packed));
    }
    return context_.post(target, word);
}

// ---- reads --------------------------------------------------------------------------------------------

Status LocalPart::offer_runs(uint64_t window) {
    std::vector<Request>& runs = asked_[window];
    context_.statistics.overlapping_bytes +=
        merge_window(context_.domains.window(window), runs).overlapping_bytes;
    Word word;
    word.kind = Word::Kind::offer;
    word.window = window;
    word.count = runs.size();
    word.bytes = total_bytes(runs);
    if (!inside(window)) {
        if (runs.size() <= most_runs_in_word) {
            word.runs = runs;
        } else {
            ++context_.statistics.messages;
            TAILRACE_ASSIGN(asking_[window],
                            context_.transport.start_send(owner(window), runs_tag(window), as_bytes(runs)));
        }
    }
    return context_.post(owner(window), word);
}

Status LocalPart::grant(size_t index) {
    Slot& slot = slots_[index];
    slot.stage = Stage::moving;
    slot.window = ready_.front();
    ready_.pop_front();
    // Their transfer may still look at the runs, which stay in place when the vector is moved; advance()
    // waits for its end.
    slot.runs = std::move(asked_[slot.window]);
    asked_.erase(slot.window);
    if (Status status = prepare(index); !status.ok()) {
        context_.fail(status);
        slot.failed = true;
    }
    Word word;
    word.kind = Word::Kind::grant;
    word.window = slot.window;
    word.failed = slot.failed;
    if (inside(slot.window) && !slot.failed) {
        slot.waits_for_done = true;
    } else if (by_memory(slot.window) && !slot.failed) {
        slot.waits_for_done = true;
        word.shared = true;
        word.slot_begin = index * context_.domains.window_bytes();
        word.data = context_.memory.packed.name();
    } else if (!slot.failed) {
        TAILRACE_ASSIGN(slot.data_transfer, context_.transport.start_receive(
                                                owner(slot.window), data_tag(slot.window), slot.packed));
    }
    return context_.post(owner(slot.window), word);
}

// The packed bytes are here.
Status LocalPart::filled(size_t index) {
    Slot& slot = slots_[index];
    slot.stage = Stage::emptying;
    TAILRACE_TRY(tell_members(index, Word::Kind::take));
    const FileWindow window = context_.domains.window(slot.window);
    if (!slot.failed && lists_.contains(context_.rank()) &&
        !(alone() && slot.packed.data() == own_.memory_of(window).data())) {
        const Stopwatch stopwatch(context_.statistics.copy);
        own_.copy(window, slot.runs, slot.packed);
    }
    if (slot.members_left == 0) release(index);
    return Status();
}

Result<bool> LocalPart::advance(size_t index) {
    Slot& slot = slots_[index];
    for (std::unique_ptr<Transfer>* transfer : {&slot.runs_transfer, &slot.data_transfer}) {
        if (!*transfer) continue;
        TAILRACE_ASSIGN(const auto complete, (*transfer)->test());
        if (!complete) return false;
        transfer->reset();
    }
    if (slot.waits_for_done || asking_.contains(slot.window)) return false;
    if (context_.writes)
        release(index);
    else
        TAILRACE_TRY(filled(index));
    return true;
}

}  // namespace tailrace::collective
