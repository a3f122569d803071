#include "carrier/carrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/caught.h"
#include "base/log.h"
#include "capture/local_tier.h"

namespace tailrace::internal {

Status Carrier::hear(int client, LineSender::Send send, std::span<const std::byte> bytes,
                     std::vector<TakeLock> locks) {
    auto& line = lines_[client];
    if (!line.sender) line.sender = std::make_shared<LineSender>(std::move(send));
    if (line.locks.empty()) line.locks = std::move(locks);
    TAILRACE_ASSIGN(const auto message, line::decode(bytes));
    return hear(line, message);
}

Status Carrier::hear(Line& line, const line::Message& message) {
    if (std::holds_alternative<line::Ping>(message)) {
        line.sender->send(line::Pong{});
        return {};
    }
    if (const auto* piece = std::get_if<line::JobPiece>(&message)) {
        if (line.node != nullptr) return Status(Code::transport, "a line has joined already");
        TAILRACE_TRY(take_piece(line.pieces, piece->bytes));
        if (piece->last) line.sender->send(line::Answer{catching([&] { return begin_node(line); })});
        return {};
    }
    if (const auto* join = std::get_if<line::Join>(&message)) {
        const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) {
            return node->session() == join->session && node->node() == join->node;
        });
        const int rank = static_cast<int>(std::min<uint32_t>(join->rank, INT32_MAX));
        const Status joined = line.node != nullptr ? Status(Code::transport, "a line has joined already")
                              : found == nodes_.end()
                                  ? Status(Code::not_found, "this agent does not carry that session")
                                  : (*found)->connect(rank, line.sender);
        if (joined.ok()) {
            line.node = found->get();
            line.rank = rank;
        }
        line.sender->send(line::Answer{joined});
        return {};
    }
    if (line.node == nullptr)
        return Status(Code::transport, "a line has sent a message before it has joined");
    const bool represents = line.rank == line.node->representative();
    if (const auto* mail = std::get_if<line::Mail>(&message)) {
        TAILRACE_TRY(take_piece(line.mail, mail->bytes));
        return mail->last ? line.node->mail_from(line.rank, std::exchange(line.mail, {})) : Status();
    }
    if (const auto* goodbye = std::get_if<line::Goodbye>(&message)) {
        line.goodbye = true;
        if (goodbye->give_up) line.node->give_up(Status(Code::aborted, "the session has given up"));
        line.node->left(line.rank, true);
        return {};
    }
    if (!represents)
        return Status(Code::transport, "a rank has sent a message for its node, which it does not represent");
    if (const auto* piece = std::get_if<line::BeginPiece>(&message)) {
        TAILRACE_TRY(take_piece(line.pieces, piece->bytes));
        if (!piece->last) return {};
        const auto begun = catching([&]() -> Status {
            const auto bytes = std::exchange(line.pieces, {});
            TAILRACE_ASSIGN(auto recovered, decode_flush_jobs(bytes));
            return line.node->begin(std::move(recovered));
        });
        line.sender->send(line::Answer{begun});
    } else if (const auto* damaged = std::get_if<line::Damaged>(&message)) {
        line.node->found_damaged(damaged->key);
    } else if (std::holds_alternative<line::Close>(message)) {
        line.node->close_asked();
    } else {
        return Status(Code::transport, "a rank has sent a message that only agents send");
    }
    return {};
}

Status Carrier::take_piece(std::vector<std::byte>& pieces, std::span<const std::byte> piece) {
    if (pieces.size() + piece.size() > line::most_bytes_of_pieces)
        return Status(Code::transport, fmt::format("a session sends more than {} bytes in pieces",
                                                   line::most_bytes_of_pieces));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
    return {};
}

Status Carrier::begin_node(Line& line) {
    const auto bytes = std::exchange(line.pieces, {});
    TAILRACE_ASSIGN(auto job, decode_carried_job(bytes, place().agents));
    const auto& config = job.context.config;
    if (config.local_dir != options_.local_dir)
        return Status(Code::invalid_argument,
                      fmt::format("the session's local_dir is {}, but this agent serves {}", config.local_dir,
                                  options_.local_dir));
    if (job.agent_of_node[static_cast<size_t>(job.context.node)] != place().agent)
        return Status(Code::invalid_argument,
                      fmt::format("node {} belongs to another agent", job.context.node));
    TAILRACE_ASSIGN(auto locks, take_locks(line, job));
    TAILRACE_ASSIGN(auto local, options_.local(config));
    TAILRACE_ASSIGN(auto shared, options_.shared(config));
    const int rank = job.rank;
    TAILRACE_ASSIGN(auto node, CarriedNode::create(std::move(job), world_, std::move(local),
                                                   std::move(shared), std::move(locks), options_.changed));
    TAILRACE_TRY(node->connect(rank, line.sender));
    nodes_.push_back(std::move(node));  // may lack memory, so nothing refers to the node before
    line.node = nodes_.back().get();
    line.rank = rank;
    return {};
}

Result<CarriedNode::Locks> Carrier::take_locks(Line& line, const CarriedJob& job) const {
    CarriedNode::Locks locks;
    const auto brought = std::exchange(line.locks, {});
    const size_t said = size_t{job.brings_local_lock} + size_t{job.brings_shared_lock};
    if (brought.size() != said)
        return Status(Code::transport,
                      fmt::format("a session brings {} locks, not {}", brought.size(), said));
    auto next = brought.begin();
    if (job.brings_local_lock) {
        TAILRACE_ASSIGN(locks.local, (*next++)(job.context.tier.directory(job.context.node)));
    }
    if (job.brings_shared_lock) {
        TAILRACE_ASSIGN(locks.shared, (*next++)(job.context.config.shared_dir));
    }
    return locks;
}

void Carrier::client_gone(int client) {
    const auto found = lines_.find(client);
    if (found == lines_.end()) return;
    if (found->second.node != nullptr && !found->second.goodbye)
        found->second.node->left(found->second.rank, false);
    lines_.erase(found);
}

std::vector<int> Carrier::step() {
    world_->look();
    std::vector<int> clients;
    for (auto node = nodes_.begin(); node != nodes_.end();) {
        if (!(*node)->has_ended()) {
            ++node;
            continue;
        }
        for (auto line = lines_.begin(); line != lines_.end();) {
            if (line->second.node != node->get()) {
                ++line;
                continue;
            }
            (void)line->second.sender->flush();
            clients.push_back(line->first);
            line = lines_.erase(line);
        }
        node = nodes_.erase(node);
    }
    return clients;
}

bool Carrier::make_way(const std::string& shared_dir) {
    // The dead program may have named the directory in another way, through a link.
    const auto resolved = local_tier({}, shared_dir, {}).shared_text;
    bool none = true;
    for (const auto& node : nodes_) {
        if (node->shared_dir() != resolved || node->program_lives()) continue;
        node->give_up(Status(Code::aborted, "a new session takes its epochs over"));
        none = false;
    }
    return none;
}

void Carrier::give_up(const Status& why) {
    for (const auto& node : nodes_) node->give_up(why);
}

size_t Carrier::ending_count() const {
    return static_cast<size_t>(
        std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->ends(); }));
}

std::vector<CarriedStatus> Carrier::status() const {
    std::vector<CarriedStatus> all;
    for (const auto& node : nodes_) all.push_back(node->status());
    return all;
}

}  // namespace tailrace::internal
