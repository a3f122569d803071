#include "collective/global_aggregator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/invariant.h"
#include "base/units.h"

namespace tailrace::internal::collective {

namespace {

// Images begin at a multiple of this in memory and in the file, as direct I/O prefers.
constexpr uint64_t image_alignment = 4096;

}  // namespace

uint64_t image_bytes(uint64_t window_bytes) {
    return align_up(window_bytes, image_alignment) + image_alignment;
}

Status make_images(CallMemory& memory, uint64_t window_bytes) {
    if (memory.images) return Status();
    TAILRACE_ASSIGN(memory.images,
                    BufferPool::create(global_images + 1, image_bytes(window_bytes), image_alignment, false));
    return Status();
}

GlobalAggregator::GlobalAggregator(CallContext& context, LocalAggregator* local)
    : context_(context), local_(local) {
    const auto mine = std::find(context.globals.begin(), context.globals.end(), context.rank());
    if (mine == context.globals.end()) return;
    index_ = static_cast<int>(mine - context.globals.begin());
    if (context.domains.window_bytes() >= 2 * MiB) context.memory.images->use_huge_pages();
    // The groups that may have something here. Each of them tells what, even if it is nothing.
    std::map<int, FileWindow> ranges;
    for (size_t rank = 0; rank < context.ranks.size(); ++rank) {
        const ListSummary& list = context.ranks[rank].list;
        if (list.requests == 0) continue;
        const auto [range, added] =
            ranges.try_emplace(context.groups.aggregator_of_rank[rank], FileWindow{list.begin, list.end});
        range->second.begin = std::min(range->second.begin, list.begin);
        range->second.end = std::max(range->second.end, list.end);
    }
    for (const auto& [aggregator, range] : ranges)
        if (context.domains.may_touch(range, index_)) ++groups_missing_;
}

GlobalAggregator::~GlobalAggregator() {
    for (const std::unique_ptr<Window>& window : open_) {
        while (window->stage == Window::Stage::in_file &&
               !window->task.finished.load(std::memory_order_acquire))
            context_.transport.wait(std::chrono::milliseconds(1), true);
        for (Contribution& contribution : window->contributions)
            for (Transfer* transfer : {contribution.runs_transfer.get(), contribution.data_transfer.get()})
                if (transfer != nullptr) (void)transfer->take_back();
    }
}

Status GlobalAggregator::handle(int source, const CallMessage& message) {
    if (message.kind == CallMessage::Kind::windows || !message.ids.empty())
        TAILRACE_TRY(announced(source, message.ids));
    if (message.kind == CallMessage::Kind::windows) return Status();
    const auto [window, contribution] = find(message.window, source);
    if (contribution == nullptr)
        return Status(Code::transport, "a global aggregator received a message out of order");
    window->steps = std::max(window->steps, message.step);
    using Stage = Contribution::Stage;
    const bool is_offer = message.kind == CallMessage::Kind::offer;
    if (contribution->stage != (is_offer ? Stage::expected : Stage::waiting))
        return Status(Code::transport, "a global aggregator received a message out of order");
    if (is_offer) return offered(*window, *contribution, message);
    contribution->grant = message;
    return serve(*window, *contribution);
}

// A group has said to which windows it contributes. Those of the first rounds are open from then
// on.
Status GlobalAggregator::announced(int source, const std::vector<uint64_t>& ids) {
    if (!ids.empty()) ++context_.statistics.receives;
    if (groups_missing_ == 0)
        return Status(Code::transport, "a global aggregator was told twice what a group contributes");
    for (const uint64_t id : ids) {
        if (context_.domains.owner(id) != index_ || context_.domains.round(id) >= context_.domains.rounds())
            return Status(
                Code::transport,
                fmt::format("rank {} contributes to window {}, which does not belong to this global "
                            "aggregator",
                            source, id));
        if (!context_.open_from_the_beginning(id)) {
            contributors_[id].push_back(source);
            continue;
        }
        const auto open = std::find_if(open_.begin(), open_.end(), [&](auto& o) { return o->id == id; });
        (open == open_.end() ? open_window(id) : **open).contributions.emplace_back().source = source;
    }
    if (--groups_missing_ > 0) return Status();
    return open_windows();
}

std::pair<GlobalAggregator::Window*, GlobalAggregator::Contribution*> GlobalAggregator::find(uint64_t window,
                                                                                             int source) {
    for (const std::unique_ptr<Window>& open : open_) {
        if (open->id != window) continue;
        for (Contribution& contribution : open->contributions)
            if (contribution.source == source) return {open.get(), &contribution};
    }
    return {nullptr, nullptr};
}

GlobalAggregator::Window& GlobalAggregator::open_window(uint64_t id) {
    ++context_.statistics.rounds;
    auto window = std::make_unique<Window>();
    window->id = id;
    window->range = context_.domains.window(id);
    window->buffer = context_.memory.images->try_take();
    INVARIANT(window->buffer.valid());
    INVARIANT(window->range.begin % image_alignment + window->range.bytes() <=
              window->buffer.memory().size());
    window->image =
        window->buffer.memory().subspan(static_cast<size_t>(window->range.begin % image_alignment),
                                        static_cast<size_t>(window->range.bytes()));
    window->steps = steps_;
    return *open_.emplace_back(std::move(window));
}

Status GlobalAggregator::open_windows() {
    while (groups_missing_ == 0 && !contributors_.empty() && open_.size() < global_images) {
        const auto next = contributors_.begin();
        Window& window = open_window(next->first);
        for (const int source : next->second) {
            window.contributions.emplace_back().source = source;
            CallMessage message;
            message.kind = CallMessage::Kind::open;
            message.window = window.id;
            TAILRACE_TRY(context_.post(source, message, window.steps));
        }
        contributors_.erase(next);
    }
    return Status();
}

bool GlobalAggregator::done() const {
    return groups_missing_ == 0 && contributors_.empty() && open_.empty();
}

Status GlobalAggregator::offered(Window& window, Contribution& contribution, const CallMessage& message) {
    contribution.stage = Contribution::Stage::described;
    contribution.bytes = message.bytes;
    context_.statistics.requests_after_local += message.count;
    if (message.count > message.bytes || message.bytes > window.range.bytes())
        return Status(Code::transport,
                      fmt::format("rank {} offers {} runs of {} bytes for a window of {} bytes",
                                  contribution.source, message.count, message.bytes, window.range.bytes()));
    if (message.granted) contribution.grant = message;
    if (message.failed && context_.writes) {
        contribution.stage = Contribution::Stage::settled;
        return Status();
    }
    if (contribution.source == context_.rank()) {
        const std::span<const Request> runs = local_->runs(window.id);
        contribution.runs.assign(runs.begin(), runs.end());
        if (context_.writes) {
            scatter(window, contribution.runs, local_->packed(window.id));
            contribution.stage = Contribution::Stage::settled;
            return say_done(contribution.source, window);
        }
        return Status();
    }
    if (context_.writes && message.shared) {
        if (message.slot >= most_local_slots)
            return Status(Code::transport, "a global aggregator was told of a slot that does not exist");
        Attachments& attachments = context_.memory.attachments;
        auto packed = attachments.at(contribution.source, attached_packed, message.data);
        auto runs =
            attachments.at(contribution.source, attached_runs + static_cast<int>(message.slot), message.list);
        if (packed.ok() && runs.ok()) {
            TAILRACE_ASSIGN(const auto seen, as_requests(*runs, message.count));
            contribution.runs.assign(seen.begin(), seen.end());
            TAILRACE_TRY(check_runs(contribution.runs, window.range, message.bytes));
            TAILRACE_ASSIGN(const auto place, context_.slot_of(*packed, message));
            scatter(window, contribution.runs, place);
        } else {
            context_.fail(packed.ok() ? runs.status() : packed.status());
        }
        contribution.stage = Contribution::Stage::settled;
        return message.answer ? say_done(contribution.source, window) : Status();
    }
    contribution.runs = message.runs;
    if (contribution.runs.size() == message.count)
        return check_runs(contribution.runs, window.range, message.bytes);
    contribution.runs.resize(static_cast<size_t>(message.count));
    TAILRACE_ASSIGN(
        contribution.runs_transfer,
        context_.transport.start_receive(contribution.source, runs_tag(context_.domains, window.id),
                                         std::as_writable_bytes(std::span(contribution.runs))));
    return Status();
}

// Continues when the window has been read and the group has said where its packed bytes go.
Status GlobalAggregator::serve(Window& window, Contribution& contribution) {
    INVARIANT(contribution.grant && window.stage == Window::Stage::serving);
    CallMessage& message = *contribution.grant;
    message.bytes = contribution.bytes;
    contribution.stage = Contribution::Stage::settled;
    if (message.failed) return Status();
    if (contribution.source == context_.rank()) {
        gather(window, contribution.runs, local_->packed(window.id));
        return say_done(contribution.source, window);
    }
    if (message.shared) {
        auto packed = context_.memory.attachments.at(contribution.source, attached_packed, message.data);
        if (packed.ok()) {
            TAILRACE_ASSIGN(const auto place, context_.slot_of(*packed, message));
            gather(window, contribution.runs, place);
        } else {
            context_.fail(packed.status());
        }
        return say_done(contribution.source, window);
    }
    contribution.stage = Contribution::Stage::moving;
    return Status();
}

Status GlobalAggregator::say_done(int target, const Window& window) {
    CallMessage message;
    message.kind = CallMessage::Kind::done;
    message.window = window.id;
    return context_.post(target, message, window.steps);
}

Result<bool> GlobalAggregator::step() {
    if (index_ < 0) return false;
    bool moved = false;
    for (const std::unique_ptr<Window>& window : open_) {
        TAILRACE_ASSIGN(const bool advanced, advance(*window));
        moved = moved || advanced;
    }
    const size_t ended = std::erase_if(open_, [&](const std::unique_ptr<Window>& window) {
        if (!window->contributions.empty()) return false;
        steps_ = std::max(steps_, window->steps);
        return true;
    });
    if (ended > 0) TAILRACE_TRY(open_windows());
    return moved || ended > 0;
}

Result<bool> GlobalAggregator::advance(Window& window) {
    bool moved = false;
    for (Contribution& contribution : window.contributions) {
        TAILRACE_ASSIGN(const bool advanced, advance(window, contribution));
        moved = moved || advanced;
    }
    const auto all = [&](auto is) {
        return std::all_of(window.contributions.begin(), window.contributions.end(), is);
    };
    const auto settled = [](const Contribution& c) { return c.stage == Contribution::Stage::settled; };
    switch (window.stage) {
        case Window::Stage::collecting: {
            const bool complete = context_.writes ? all(settled) : all([](const Contribution& c) {
                return c.stage == Contribution::Stage::described && !c.runs_transfer;
            });
            if (!complete || groups_missing_ > 0) return moved;
            TAILRACE_TRY(submit(window));
            return true;
        }
        case Window::Stage::in_file:
            if (!window.task.finished.load(std::memory_order_acquire)) return moved;
            TAILRACE_TRY(run_file_phase(window));
            return true;
        case Window::Stage::serving:
            if (!all(settled)) return moved;
            window.contributions.clear();
            return true;
    }
    return moved;
}

// Continues a contribution that comes from, or goes to, another node.
Result<bool> GlobalAggregator::advance(Window& window, Contribution& contribution) {
    if (contribution.runs_transfer) {
        TAILRACE_ASSIGN(const auto complete, contribution.runs_transfer->test());
        if (!complete) return false;
        contribution.runs_transfer.reset();
        TAILRACE_TRY(check_runs(contribution.runs, window.range, contribution.bytes));
    }
    if (context_.writes && contribution.stage == Contribution::Stage::described)
        contribution.stage = Contribution::Stage::moving;
    if (contribution.stage != Contribution::Stage::moving) return false;
    if (!contribution.data_transfer) {
        if (!find_room(window, contribution)) return false;
        if (context_.writes) {
            TAILRACE_ASSIGN(
                contribution.data_transfer,
                context_.transport.start_receive(contribution.source, data_tag(context_.domains, window.id),
                                                 contribution.packed));
        } else {
            if (contribution.in_scratch) gather(window, contribution.runs, contribution.packed);
            ++context_.statistics.messages;
            TAILRACE_ASSIGN(
                contribution.data_transfer,
                context_.transport.start_send(contribution.source, data_tag(context_.domains, window.id),
                                              contribution.packed));
        }
    }
    TAILRACE_ASSIGN(const auto complete, contribution.data_transfer->test());
    if (!complete) return false;
    contribution.data_transfer.reset();
    if (context_.writes && contribution.in_scratch) scatter(window, contribution.runs, contribution.packed);
    give_room_back(contribution);
    contribution.stage = Contribution::Stage::settled;
    return true;
}

Status GlobalAggregator::submit(Window& window) {
    INVARIANT(window.stage == Window::Stage::collecting && groups_missing_ == 0);
    window.stage = Window::Stage::in_file;
    window.task.writes = context_.writes;
    window.task.window = window.range;
    window.task.image = window.image;
    for (const Contribution& contribution : window.contributions)
        window.task.lists.push_back(contribution.runs);
    context_.file_phase->submit(&window.task);
    return Status();
}

Status GlobalAggregator::run_file_phase(Window& window) {
    context_.fail(window.task.status);
    context_.file_end = std::min(context_.file_end, window.task.file_end);
    Statistics& statistics = context_.statistics;
    statistics.requests_after_global += window.task.runs;
    statistics.cuts_after_global += cuts_.note(window.range, window.task.at_begin, window.task.at_end);
    statistics.file_operations += window.task.operations;
    statistics.overlapping_bytes += window.task.merged.overlapping_bytes;
    statistics.file += window.task.seconds;
    if (context_.writes) {
        window.contributions.clear();
        return Status();
    }
    window.stage = Window::Stage::serving;
    CallMessage message;
    message.kind = CallMessage::Kind::ready;
    message.window = window.id;
    for (Contribution& contribution : window.contributions) {
        if (contribution.grant) {
            TAILRACE_TRY(serve(window, contribution));
            continue;
        }
        contribution.stage = Contribution::Stage::waiting;
        TAILRACE_TRY(context_.post(contribution.source, message, window.steps));
    }
    return Status();
}

// ---- packed bytes and images --------------------------------------------------------------------

std::span<std::byte> GlobalAggregator::place_in_image(Window& window, const Request& run) {
    return window.image.subspan(static_cast<size_t>(run.offset - window.range.begin),
                                static_cast<size_t>(run.bytes));
}

void GlobalAggregator::scatter(Window& window, std::span<const Request> runs,
                               std::span<const std::byte> packed) {
    const Stopwatch stopwatch(context_.statistics.scatter);
    size_t at = 0;
    for (const Request& run : runs) {
        const std::span<std::byte> place = place_in_image(window, run);
        std::memcpy(place.data(), packed.data() + at, place.size());
        at += place.size();
    }
}

void GlobalAggregator::gather(Window& window, std::span<const Request> runs, std::span<std::byte> packed) {
    const Stopwatch stopwatch(context_.statistics.scatter);
    size_t at = 0;
    for (const Request& run : runs) {
        const std::span<std::byte> place = place_in_image(window, run);
        std::memcpy(packed.data() + at, place.data(), place.size());
        at += place.size();
    }
}

bool GlobalAggregator::find_room(Window& window, Contribution& contribution) {
    if (contribution.runs.size() == 1) {
        contribution.packed = place_in_image(window, contribution.runs.front());
        return true;
    }
    if (!scratch_.valid()) scratch_ = context_.memory.images->try_take();
    const auto bytes = static_cast<size_t>(contribution.bytes);
    if (scratch_used_ + bytes > scratch_.memory().size()) return false;
    contribution.packed = scratch_.memory().subspan(scratch_used_, bytes);
    contribution.in_scratch = true;
    scratch_used_ += bytes;
    ++scratch_users_;
    return true;
}

void GlobalAggregator::give_room_back(Contribution& contribution) {
    if (!contribution.in_scratch) return;
    INVARIANT(scratch_users_ > 0);
    if (--scratch_users_ == 0) scratch_used_ = 0;
}

}  // namespace tailrace::internal::collective
