#include "record/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace tailrace::internal {

namespace {

using Json = nlohmann::ordered_json;

// Bytes that are not UTF-8 (in a path, for example) must not cost the line.
std::string line(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

double seconds_of_us(uint64_t us) {
    return static_cast<double>(us) * 1e-6;
}

Json json_of(const WriterStatistics& writer) {
    return {{"local_bytes", writer.local_bytes},
            {"received_bytes", writer.received_bytes},
            {"local_chunks", writer.local_chunks},
            {"received_chunks", writer.received_chunks},
            {"read_seconds", writer.read_seconds},
            {"local_write_seconds", writer.local_write_seconds},
            {"received_write_seconds", writer.received_write_seconds},
            {"idle_seconds", writer.idle_seconds}};
}

Json json_of(const NodeRecord& node) {
    const FlushStatistics& numbers = node.statistics;
    Json json{{"node", node.node},
              {"group", node.group},
              {"role", numbers.leader ? "leader" : "follower"},
              {"seconds", numbers.seconds}};
    if (!numbers.leader) {
        json["sent_bytes"] = numbers.sent_bytes;
        json["sent_chunks"] = numbers.chunks_sent;
        json["credit_wait_seconds"] = numbers.credit_wait_seconds;
        return json;
    }
    json["plan_seconds"] = numbers.plan_seconds;
    json["prepare_seconds"] = numbers.prepare_seconds;
    json["move_seconds"] = numbers.move_seconds;
    json["commit_seconds"] = numbers.commit_seconds;
    json["local_bytes"] = numbers.local_bytes;
    json["received_bytes"] = numbers.received_bytes;
    json["received_chunks"] = numbers.chunks_received;
    json["chunk_wait_seconds"] = seconds_of_us(numbers.chunk_wait_us);
    json["longest_chunk_wait_seconds"] = seconds_of_us(numbers.largest_chunk_wait_us);
    json["write_seconds"] = numbers.write_seconds;
    json["sync_seconds"] = numbers.sync_seconds;
    json["threads"] = Json::array();
    for (const WriterStatistics& writer : numbers.writers) json["threads"].push_back(json_of(writer));
    return json;
}

Json json_of(const ProtectionRecord& node) {
    Json json{{"node", node.node},
              {"protected", node.done},
              {"seconds", node.seconds},
              {"sent_bytes", node.sent_bytes},
              {"kept_bytes", node.kept_bytes}};
    if (!node.why.empty()) json["why"] = node.why;
    return json;
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
    Json settings = Json::object();
    for (const auto& [key, value] : session.settings) settings[key] = value;
    return line({{"record", "session"},
                 {"run_uid", uid_text(session.run_uid)},
                 {"job", session.job},
                 {"run", session.run},
                 {"began_unix_ms", session.began_unix_ms},
                 {"tailrace", session.version},
                 {"host", session.host},
                 {"shared_dir", session.shared_dir},
                 {"file_system", session.file_system},
                 {"io_engine", session.io_engine},
                 {"ranks", session.ranks},
                 {"nodes", session.nodes},
                 {"settings", std::move(settings)}});
}

std::string to_json_line(const EpochRecord& epoch, const SessionRecord& session) {
    const CaptureNumbers& capture = epoch.capture;
    Json json{{"record", "epoch"},
              {"run_uid", uid_text(session.run_uid)},
              {"epoch", epoch.key.epoch},
              {"run", epoch.key.run},
              {"state", epoch.state},
              {"ended_unix_ms", epoch.ended_unix_ms},
              {"flush_seconds", epoch.flush_seconds}};
    if (!epoch.why.empty()) json["why"] = epoch.why;
    if (capture.ranks > 0)
        json["capture"] = {{"ranks", capture.ranks},
                           {"bytes", capture.bytes},
                           {"least_seconds", capture.least_seconds},
                           {"mean_seconds", capture.sum_seconds / capture.ranks},
                           {"most_seconds", capture.most_seconds},
                           {"most_wait_seconds", capture.most_wait_seconds},
                           {"most_blocked_seconds", capture.most_blocked_seconds}};
    if (!epoch.protections.empty()) {
        json["protected"] = epoch.is_protected;
        json["protection"] = Json::array();
        for (const ProtectionRecord& node : epoch.protections) json["protection"].push_back(json_of(node));
    }
    json["nodes"] = Json::array();
    for (const NodeRecord& node : epoch.nodes) json["nodes"].push_back(json_of(node));
    return line(json);
}

std::string to_json_line(const SessionEnd& end) {
    return line({{"record", "end"},
                 {"run_uid", uid_text(end.run_uid)},
                 {"ended_unix_ms", end.ended_unix_ms},
                 {"seconds", end.seconds},
                 {"epochs", end.epochs},
                 {"blocked_seconds", end.blocked_seconds}});
}

std::string trace_head(const SessionRecord& session, int node) {
    auto named = [node](const char* what, int track, const std::string& name) {
        Json json{{"ph", "M"}, {"name", what}, {"pid", node}};
        if (track > 0) json["tid"] = track;
        json["args"] = {{"name", name}};
        return json.dump(-1, ' ', false, Json::error_handler_t::replace);
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
        const Json json{
            {"ph", "X"},
            {"name", name_of(event.kind)},
            {"pid", node},
            {"tid", track_of(event)},
            {"ts", us_of(event.begin) + steady_to_unix_us},
            {"dur", us_of(event.end) - us_of(event.begin)},
            {"args", {{"epoch", key.epoch}, {"run", key.run}, {"bytes", event.bytes}, {"rank", event.rank}}}};
        text += ",\n" + json.dump();
    }
    return text;
}

}  // namespace tailrace::internal
