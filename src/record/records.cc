#include "record/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "record/json_text.h"

namespace tailrace::internal {

namespace {

double seconds_of_us(uint64_t us) {
    return static_cast<double>(us) * 1e-6;
}

std::string json_of(const WriterStatistics& writer) {
    return JsonObject()
        .put("local_bytes", writer.local_bytes)
        .put("received_bytes", writer.received_bytes)
        .put("local_chunks", writer.local_chunks)
        .put("received_chunks", writer.received_chunks)
        .put("read_seconds", writer.read_seconds)
        .put("local_write_seconds", writer.local_write_seconds)
        .put("received_write_seconds", writer.received_write_seconds)
        .put("idle_seconds", writer.idle_seconds)
        .text();
}

std::string json_of(const NodeRecord& node) {
    const FlushStatistics& numbers = node.statistics;
    JsonObject json;
    json.put("node", node.node)
        .put("group", node.group)
        .put("role", numbers.leader ? "leader" : "follower")
        .put("seconds", numbers.seconds);
    if (!numbers.leader)
        return json.put("sent_bytes", numbers.sent_bytes)
            .put("sent_chunks", numbers.chunks_sent)
            .put("credit_wait_seconds", numbers.credit_wait_seconds)
            .text();
    return json.put("plan_seconds", numbers.plan_seconds)
        .put("prepare_seconds", numbers.prepare_seconds)
        .put("move_seconds", numbers.move_seconds)
        .put("commit_seconds", numbers.commit_seconds)
        .put("local_bytes", numbers.local_bytes)
        .put("received_bytes", numbers.received_bytes)
        .put("received_chunks", numbers.chunks_received)
        .put("chunk_wait_seconds", seconds_of_us(numbers.chunk_wait_us))
        .put("longest_chunk_wait_seconds", seconds_of_us(numbers.largest_chunk_wait_us))
        .put("write_seconds", numbers.write_seconds)
        .put("sync_seconds", numbers.sync_seconds)
        .put_json("threads", json_array(numbers.writers, [](const auto& writer) { return json_of(writer); }))
        .text();
}

std::string json_of(const ProtectionRecord& node) {
    JsonObject json;
    json.put("node", node.node)
        .put("protected", node.done)
        .put("seconds", node.seconds)
        .put("sent_bytes", node.sent_bytes)
        .put("kept_bytes", node.kept_bytes);
    if (!node.why.empty()) json.put("why", node.why);
    return json.text();
}

std::string json_of(const CaptureNumbers& capture) {
    return JsonObject()
        .put("ranks", capture.ranks)
        .put("bytes", capture.bytes)
        .put("least_seconds", capture.least_seconds)
        .put("mean_seconds", capture.sum_seconds / capture.ranks)
        .put("most_seconds", capture.most_seconds)
        .put("most_wait_seconds", capture.most_wait_seconds)
        .put("most_blocked_seconds", capture.most_blocked_seconds)
        .text();
}

std::string uid_text(uint64_t uid) {
    return fmt::format("{:016x}", uid);
}

std::string_view name_of(FlushEvent::Kind kind) {
    static constexpr std::string_view names[] = {"wait for the plan and buffers",
                                                 "make the files",
                                                 "move the data",
                                                 "commit",
                                                 "read local",
                                                 "write local",
                                                 "write received",
                                                 "receive",
                                                 "send"};
    return names[static_cast<size_t>(kind)];
}

// The track of an event in a trace. Transfers overlap, so each kind has a track of its own, in
// which viewers stack them.
int track_of(const FlushEvent& event) {
    if (event.writer >= 0) return 10 + event.writer;
    if (event.kind == FlushEvent::Kind::receive) return 2;
    return event.kind == FlushEvent::Kind::send ? 3 : 1;
}

int64_t us_of(std::chrono::steady_clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

}  // namespace

void CaptureNumbers::add(const CaptureNumbers& other) {
    if (other.ranks == 0) return;
    least_seconds = ranks == 0 ? other.least_seconds : std::min(least_seconds, other.least_seconds);
    most_seconds = std::max(most_seconds, other.most_seconds);
    sum_seconds += other.sum_seconds;
    most_wait_seconds = std::max(most_wait_seconds, other.most_wait_seconds);
    most_blocked_seconds = std::max(most_blocked_seconds, other.most_blocked_seconds);
    ranks += other.ranks;
    bytes += other.bytes;
}

CaptureNumbers capture_numbers(uint64_t bytes, double seconds, double wait_seconds) {
    return {1, bytes, seconds, seconds, seconds, wait_seconds, wait_seconds + seconds};
}

std::string to_json_line(const SessionRecord& session) {
    JsonObject settings;
    for (const auto& [key, value] : session.settings) settings.put(key, value);
    return JsonObject()
               .put("record", "session")
               .put("run_uid", uid_text(session.run_uid))
               .put("job", session.job)
               .put("run", session.run)
               .put("began_unix_ms", session.began_unix_ms)
               .put("tailrace", session.version)
               .put("host", session.host)
               .put("shared_dir", session.shared_dir)
               .put("file_system", session.file_system)
               .put("io_engine", session.io_engine)
               .put("ranks", session.ranks)
               .put("nodes", session.nodes)
               .put_json("settings", settings.text())
               .text() +
           "\n";
}

std::string to_json_line(const EpochRecord& epoch, const SessionRecord& session) {
    JsonObject json;
    json.put("record", "epoch")
        .put("run_uid", uid_text(session.run_uid))
        .put("epoch", epoch.key.epoch)
        .put("run", epoch.key.run)
        .put("state", epoch.state)
        .put("ended_unix_ms", epoch.ended_unix_ms)
        .put("flush_seconds", epoch.flush_seconds);
    if (!epoch.why.empty()) json.put("why", epoch.why);
    if (epoch.capture.ranks > 0) json.put_json("capture", json_of(epoch.capture));
    const auto text_of = [](const auto& node) { return json_of(node); };
    if (!epoch.protections.empty())
        json.put("protected", epoch.is_protected)
            .put_json("protection", json_array(epoch.protections, text_of));
    return json.put_json("nodes", json_array(epoch.nodes, text_of)).text() + "\n";
}

std::string to_json_line(const SessionEnd& end) {
    return JsonObject()
               .put("record", "end")
               .put("run_uid", uid_text(end.run_uid))
               .put("ended_unix_ms", end.ended_unix_ms)
               .put("seconds", end.seconds)
               .put("epochs", end.epochs)
               .put("blocked_seconds", end.blocked_seconds)
               .text() +
           "\n";
}

std::string trace_head(const SessionRecord& session, int node) {
    const auto named = [node](const char* what, int track, const std::string& name) {
        JsonObject json;
        json.put("ph", "M").put("name", what).put("pid", node);
        if (track > 0) json.put("tid", track);
        return json.put_json("args", JsonObject().put("name", name).text()).text();
    };
    std::string head = "[\n" + named("process_name", 0, fmt::format("{}, node {}", session.job, node));
    head += ",\n" + named("thread_name", 1, "phases");
    head += ",\n" + named("thread_name", 2, "receiving");
    head += ",\n" + named("thread_name", 3, "sending");
    return head;
}

std::string to_trace_lines(EpochKey key, int node, const std::vector<FlushEvent>& events,
                           int64_t steady_to_unix_us) {
    std::string text;
    for (const FlushEvent& event : events) {
        const std::string about = JsonObject()
                                      .put("epoch", key.epoch)
                                      .put("run", key.run)
                                      .put("bytes", event.bytes)
                                      .put("rank", event.rank)
                                      .text();
        text += ",\n" + JsonObject()
                            .put("ph", "X")
                            .put("name", name_of(event.kind))
                            .put("pid", node)
                            .put("tid", track_of(event))
                            .put("ts", us_of(event.begin) + steady_to_unix_us)
                            .put("dur", us_of(event.end) - us_of(event.begin))
                            .put_json("args", about)
                            .text();
    }
    return text;
}

}  // namespace tailrace::internal
