#include "agent/node_flusher.h"

#include "agent/flush_setup.h"
#include "base/caught.h"
#include "base/invariant.h"
#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

// Everything that matters wakes the thread. Waking up now and then costs nothing, and a lost
// wake-up does no harm.
constexpr auto longest_sleep = 200ms;

}  // namespace

Result<std::unique_ptr<NodeFlusher>> NodeFlusher::create(const JobContext& context, Recorder* recorder) {
    std::unique_ptr<NodeFlusher> flusher(new NodeFlusher(context, recorder));
    TAILRACE_ASSIGN(flusher->aggregator_, make_aggregator(context, [raw = flusher.get()] { raw->wake(); }));
    return flusher;
}

void NodeFlusher::begin() {
    const Priority priority = background_priority(context_.config);
    reading_.begin("tailrace reads", priority, [this] {
        const Status why = caught_status();
        MutexLock lock(mutex_);
        if (thrown_.ok()) thrown_ = why;
        woken_ = true;
        changed_.notify_all();
    });
    worker_ = Worker("tailrace agent", priority, [this](const std::stop_token& stop) { run(stop); });
}

NodeFlusher::~NodeFlusher() {
    worker_.request_stop();
    wake();
    worker_.join();
    writing_originals_.close();
    reading_.finish();
    aggregator_.reset();  // its writers call wake(), so they end first
}

void NodeFlusher::wake() {
    MutexLock lock(mutex_);
    woken_ = true;
    changed_.notify_all();
}

void NodeFlusher::run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        const auto moved = catching([&] { return step(); });
        if (!moved.ok()) break_down(moved.status());
        if (moved.ok() && *moved) continue;
        MutexLock lock(mutex_);
        const auto until = SteadyClock::now() + longest_sleep;
        while (!woken_ && !stop.stop_requested() && SteadyClock::now() < until)
            changed_.wait_until(lock, until);
    }
}

void NodeFlusher::break_down(const Status& why) noexcept {
    log(LogLevel::error, "node {} flushes nothing any more: {}", context_.node, why.message());
    (void)catching([&] {
        std::unique_ptr<Aggregator> ended;
        MutexLock lock(mutex_);
        if (broken_.ok()) broken_ = why;
        ended.swap(aggregator_);
        lock.unlock();  // its writers call wake()
    });
    (void)catching([&] { return Result<bool>(fail_jobs(why)); });  // otherwise step() does it
}

bool NodeFlusher::fail_jobs(const Status& why) {
    MutexLock lock(mutex_);
    const bool any = !open_.empty();
    jobs_.clear();
    while (!open_.empty()) {
        FlushResult result;
        result.key = *open_.begin();
        result.status = why;
        result.group = group_of_node(context_.node, context_.node_count(), context_.config.files).index;
        results_.push_back(std::move(result));
        open_.erase(open_.begin());
    }
    changed_.notify_all();
    return any;
}

Result<bool> NodeFlusher::step() {
    std::deque<FlushJob> jobs;
    std::deque<std::pair<EpochKey, Status>> prepared;
    Status broken, thrown;
    {
        MutexLock lock(mutex_);
        jobs.swap(jobs_);
        prepared.swap(prepared_);
        woken_ = false;
        broken = broken_;
        thrown = thrown_;
    }
    if (!broken.ok()) return fail_jobs(broken);
    TAILRACE_TRY(thrown);
    bool moved = !jobs.empty() || !prepared.empty();
    for (auto& job : jobs) {
        prepare(job);
        job.may_commit = false;
        aggregator_->start(std::move(job));
    }
    for (const auto& [key, status] : prepared)
        if (status.ok())
            aggregator_->allow(key);
        else
            aggregator_->give_up(key, status);
    moved |= aggregator_->step();
    {
        MutexLock lock(mutex_);
        bytes_under_way_ = aggregator_->bytes_under_way();
    }
    for (const auto& result : aggregator_->take_results()) {
        report_flush(context_, recorder_, result);
        MutexLock lock(mutex_);
        INVARIANT(open_.contains(result.key));
        results_.push_back(result);
        open_.erase(result.key);
        changed_.notify_all();
        moved = true;
    }
    return moved;
}

void NodeFlusher::prepare(const FlushJob& job) {
    std::vector<PartPlace> parts;
    for (const auto& stream : job.streams)
        parts.push_back({job.key, stream.path, stream.path_offset - part_header_bytes});
    reading_.add([this, key = job.key, parts = std::move(parts), written = job.originals_written] {
        const Status prepared = written ? verify_before_commit(context_, parts)
                                        : prepare_commit(context_, parts, writing_originals_);
        {
            MutexLock lock(mutex_);
            prepared_.emplace_back(key, prepared);
        }
        wake();
    });
}

void NodeFlusher::start(FlushJob job) {
    {
        MutexLock lock(mutex_);
        const bool fresh = open_.insert(job.key).second;
        INVARIANT(fresh);  // one flush of an epoch at a time
        jobs_.push_back(std::move(job));
    }
    wake();
}

std::vector<FlushResult> NodeFlusher::take_results() {
    MutexLock lock(mutex_);
    return std::exchange(results_, {});
}

bool NodeFlusher::wait_result(std::optional<std::chrono::steady_clock::time_point> deadline) {
    MutexLock lock(mutex_);
    while (results_.empty())
        if (!changed_.wait_before(lock, deadline)) return false;
    return true;
}

uint64_t NodeFlusher::buffer_bytes_used() const {
    MutexLock lock(mutex_);
    return aggregator_ ? aggregator_->most_buffers_used() * context_.config.buffer_bytes : 0;
}

uint64_t NodeFlusher::bytes_under_way() const {
    MutexLock lock(mutex_);
    return bytes_under_way_;
}

}  // namespace tailrace::internal
