#include "agent/recorder.h"

#include <fmt/format.h>

#include <span>

#include "agent/node_protection.h"
#include "base/caught.h"
#include "base/log.h"
#include "tailrace.h"  // for its version
#include "threads/executor.h"
#include "threads/mutex.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

namespace {

// A trace of this many bytes holds some millions of events, which is more than a viewer can show.
constexpr uint64_t max_trace_bytes = uint64_t{256} << 20;
// A directory keeps the records of this many jobs. Each job has two files at most.
constexpr size_t max_record_files = 256;

int64_t steady_to_unix_us() {
    using std::chrono::duration_cast, std::chrono::microseconds;
    const auto unix_time = time_of_day().time_since_epoch();
    const auto steady = SteadyClock::now().time_since_epoch();
    return duration_cast<microseconds>(unix_time).count() - duration_cast<microseconds>(steady).count();
}

std::string_view name_of(EpochState state) {
    if (state == EpochState::committed) return "committed";
    return state == EpochState::kept_local ? "kept_local" : "failed";
}

// The first entry of the record and of the trace.
SessionRecord session_record(const JobContext& context) {
    const auto& config = context.config;
    SessionRecord session;
    session.job = config.name;
    session.run = context.run;
    session.run_uid = context.run_uid;
    session.version =
        fmt::format("{}.{}.{}", TAILRACE_VERSION_MAJOR, TAILRACE_VERSION_MINOR, TAILRACE_VERSION_PATCH);
    session.host = context.transport->host();
    session.shared_dir = config.shared_dir;
    if (const auto space = context.shared->space(config.shared_dir); space.ok())
        session.file_system = space->file_system;
    session.io_engine = context.shared->name();
    session.ranks = static_cast<uint32_t>(context.rank_count());
    session.nodes = static_cast<uint32_t>(context.node_count());
    const auto now = time_of_day().time_since_epoch();
    session.began_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    for (const ConfigKey& key : config_keys())
        if (auto value = get_config(config, key.name); value.ok())
            session.settings.emplace_back(key.name, std::move(*value));
    return session;
}

}  // namespace

std::unique_ptr<Recorder> Recorder::create(const JobContext& context) {
    const auto& config = context.config;
    const bool keeps_record = context.node == 0 && config.record && !config.record_dir.empty();
    if (!keeps_record && config.trace_dir.empty()) return nullptr;
    return std::make_unique<Recorder>(config, session_record(context), context.node, keeps_record,
                                      *context.local, redundancy_every(context));
}

Recorder::Recorder(const Config& config, SessionRecord session, int node, bool keeps_record, Storage& storage,
                   uint32_t redundancy_every)
    : session_(std::move(session)),
      node_(node),
      keeps_record_(keeps_record),
      storage_(storage),
      redundancy_every_(redundancy_every),
      steady_to_unix_us_(steady_to_unix_us()),
      book_(session_.nodes),
      record_(storage, record_path(config.record_dir, config.name, config.shared_dir), config.record_bytes) {
    end_.run_uid = session_.run_uid;
    if (!config.trace_dir.empty())
        trace_path_ = join_path(config.trace_dir,
                                fmt::format("{}.r{:04}.node{}.trace.json", config.name, session_.run, node_));
}

Recorder::~Recorder() {
    finish();
}

void Recorder::begin(Priority priority) {
    writing_.begin("tailrace record", priority, [] {
        log(LogLevel::warning, "the record or the trace is incomplete: {}", caught_status().message());
    });
    if (keeps_record_) {
        append(to_json_line(session_));
        writing_.add([this] {
            // Every file that this session begins later starts with it.
            record_.set_head(to_json_line(session_));
            const std::string& path = record_.path();
            drop_old_records(storage_, path.substr(0, path.rfind('/')), max_record_files);
        });
    }
    if (!trace_path_.empty()) writing_.add([this] { append_trace(trace_head(session_, node_)); });
}

// ---- news ---------------------------------------------------------------------------------------

void Recorder::hear(const AgentMessage& message) {
    if (!keeps_record_) return;
    MutexLock lock(mutex_);
    if (finished_) return;
    if (const auto* captured = std::get_if<NodeCaptured>(&message)) hear(*captured);
    if (const auto* safe = std::get_if<NodeProtected>(&message)) hear(*safe);
    if (const auto* flushed = std::get_if<NodeFlushed>(&message)) hear(*flushed);
    if (const auto* ended = std::get_if<EpochEnded>(&message)) hear(*ended);
    write(book_.take_whole());
}

void Recorder::hear(const NodeCaptured& news) {
    if (news.keys.size() != 1) return;
    book_.captured(news.keys.front(), news.capture,
                   redundancy_every_ > 0 && news.sequence % redundancy_every_ == 0);
}

void Recorder::hear(const NodeProtected& news) {
    book_.node_protected(news.key, news.node);
}

void Recorder::hear(const NodeFlushed& news) {
    book_.flushed(news.key, news.node);
}

void Recorder::hear(const EpochEnded& news) {
    EpochRecord record;
    record.key = news.key;
    record.state = name_of(news.state);
    record.why = news.why.ok() ? news.note : news.why.message();
    record.ended_unix_ms = static_cast<int64_t>(unix_ms_now());
    record.flush_seconds = news.seconds;
    book_.ended(std::move(record));
}

void Recorder::trace(const FlushResult& result) {
    MutexLock lock(mutex_);
    if (finished_ || trace_path_.empty() || result.statistics.events.empty()) return;
    writing_.add([this, key = result.key, events = result.statistics.events] {
        append_trace(to_trace_lines(key, node_, events, steady_to_unix_us_));
    });
}

bool Recorder::waiting() const {
    MutexLock lock(mutex_);
    return book_.waiting();
}

void Recorder::finish() {
    {
        MutexLock lock(mutex_);
        if (finished_) return;
        finished_ = true;
        try {  // destructors call this
            write(book_.take_rest());
            end_.ended_unix_ms = static_cast<int64_t>(unix_ms_now());
            end_.seconds = std::chrono::duration<double>(SteadyClock::now() - began_).count();
            if (keeps_record_) append(to_json_line(end_));
            if (!trace_path_.empty()) writing_.add([this] { append_trace(trace_tail); });
        } catch (...) {
            log(LogLevel::warning, "the record or the trace is incomplete: {}", caught_status().message());
        }
    }
    writing_.finish();
}

// ---- writing ------------------------------------------------------------------------------------

void Recorder::write(const std::vector<EpochRecord>& records) {
    for (const EpochRecord& record : records) {
        ++end_.epochs;
        end_.blocked_seconds += record.capture.most_blocked_seconds;
        append(to_json_line(record, session_));
    }
}

void Recorder::append(std::string text) {
    writing_.add([this, text = std::move(text)] {
        if (record_failed_) return;
        const Status written = record_.append(text);
        if (written.ok()) return;
        record_failed_ = true;
        give_up("the record of this session's epochs ends", written);
    });
}

void Recorder::append_trace(std::string_view text) {
    if (trace_failed_) return;
    auto write = [&]() -> Status {
        if (trace_bytes_ + text.size() > max_trace_bytes)
            return Status(Code::no_space,
                          fmt::format("{} has grown to {} bytes, the most that a trace may have", trace_path_,
                                      trace_bytes_));
        TAILRACE_TRY(storage_.make_own_directories(trace_path_.substr(0, trace_path_.rfind('/'))));
        TAILRACE_ASSIGN(auto file, storage_.open(trace_path_, {Access::write, DirectIo::off, true}));
        if (trace_bytes_ == 0) TAILRACE_TRY(file->truncate(0));
        TAILRACE_TRY(file->write_at(std::as_bytes(std::span(text.data(), text.size())), trace_bytes_));
        return file->close();
    };
    const Status written = write();
    trace_bytes_ += text.size();
    if (written.ok()) return;
    trace_failed_ = true;
    give_up("the trace of this session ends", written);
}

void Recorder::give_up(const std::string& what, const Status& why) {
    log(LogLevel::info, "{}; checkpoints go on: {}", what, why.message());
}

}  // namespace tailrace::internal
