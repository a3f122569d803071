#include "session/agent_lines.h"

#include <algorithm>

namespace tailrace::internal::testing_support {

namespace {

constexpr size_t most_on_their_way = 8;

Status gone() {
    return Status(Code::transport, "the other end of the line is gone");
}

}  // namespace

// ---- the program's side ---------------------------------------------------------------------------

class AgentLines::LentLock final : public DirectoryLock {
  public:
    explicit LentLock(std::shared_ptr<DirectoryLock> lock) : lock_(std::move(lock)) {}
    void let_go() { lock_.reset(); }

  private:
    std::shared_ptr<DirectoryLock> lock_;
};

class AgentLines::RankEnd final : public AgentLine {
  public:
    RankEnd(std::shared_ptr<Hub> hub, std::shared_ptr<Line> line, int client, DuplicateLock duplicate)
        : hub_(std::move(hub)), line_(std::move(line)), client_(client), duplicate_(std::move(duplicate)) {}
    ~RankEnd() override {
        {
            MutexLock lock(hub_->mutex);
            line_->rank_gone = true;
        }
        hub_->woken();
    }

    Status post(std::span<const std::byte> message, std::span<const int> descriptors) override {
        Come come{client_, {message.begin(), message.end()}, {}};
        for (const int descriptor : descriptors) {
            auto duplicate = duplicate_(descriptor);
            if (!duplicate) return Status(Code::invalid_argument, "there is no such lock");
            auto lock = std::make_shared<LentLock>(std::move(duplicate));
            {
                MutexLock inner(hub_->mutex);
                hub_->lent.push_back(lock);
            }
            come.locks.emplace_back([lock = std::move(lock)](const std::string&) {
                return Result<std::shared_ptr<DirectoryLock>>(lock);
            });
        }
        {
            MutexLock lock(hub_->mutex);
            if (line_->rank_gone || line_->agent_gone) return gone();
            line_->to_agent.push_back(std::move(come));
        }
        hub_->woken();
        return {};
    }

    Result<std::optional<std::vector<std::byte>>> poll() override {
        MutexLock lock(hub_->mutex);
        if (line_->rank_gone) return gone();
        if (!line_->to_rank.empty()) {
            std::optional<std::vector<std::byte>> message(std::move(line_->to_rank.front()));
            line_->to_rank.pop_front();
            return message;
        }
        if (line_->agent_gone) return gone();
        return std::optional<std::vector<std::byte>>();
    }

    void wait(std::chrono::microseconds longest) override {
        MutexLock lock(hub_->mutex);
        const auto until = SteadyClock::now() + longest;
        while (line_->to_rank.empty() && !line_->rank_gone && !line_->agent_gone && !line_->wake &&
               SteadyClock::now() < until)
            line_->come.wait_until(lock, until);
        line_->wake = false;
    }
    void wake() override {
        MutexLock lock(hub_->mutex);
        line_->wake = true;
        line_->come.notify_all();
    }

  private:
    const std::shared_ptr<Hub> hub_;
    const std::shared_ptr<Line> line_;
    const int client_;
    const DuplicateLock duplicate_;
};

Result<std::unique_ptr<AgentLine>> AgentLines::connect(DuplicateLock duplicate) {
    auto line = std::make_shared<Line>();
    MutexLock lock(hub_->mutex);
    if (hub_->ended) return Status(Code::not_found, "no agent listens");
    const int client = hub_->next_client++;
    hub_->lines[client] = line;
    return std::unique_ptr<AgentLine>(
        std::make_unique<RankEnd>(hub_, std::move(line), client, std::move(duplicate)));
}

void AgentLines::cut() {
    {
        MutexLock lock(hub_->mutex);
        for (const auto& [client, line] : hub_->lines) {
            line->rank_gone = true;
            line->come.notify_all();
        }
    }
    hub_->woken();
}

// ---- the agent's side -----------------------------------------------------------------------------

std::optional<AgentLines::Come> AgentLines::next() {
    MutexLock lock(hub_->mutex);
    for (const auto& [client, line] : hub_->lines) {
        if (line->to_agent.empty()) continue;
        std::optional<Come> come(std::move(line->to_agent.front()));
        line->to_agent.pop_front();
        return come;
    }
    return std::nullopt;
}

std::vector<int> AgentLines::take_gone() {
    MutexLock lock(hub_->mutex);
    std::vector<int> clients;
    for (auto line = hub_->lines.begin(); line != hub_->lines.end();) {
        const bool left = line->second->rank_gone && line->second->to_agent.empty();
        if (left) clients.push_back(line->first);
        line = left ? hub_->lines.erase(line) : std::next(line);
    }
    return clients;
}

LineSender::Send AgentLines::sender(int client) {
    MutexLock lock(hub_->mutex);
    const auto found = hub_->lines.find(client);
    const auto line = found == hub_->lines.end() ? nullptr : found->second;
    return [hub = hub_, line](std::span<const std::byte> bytes) -> Result<bool> {
        MutexLock inner(hub->mutex);
        if (!line || line->rank_gone || line->agent_gone) return gone();
        if (line->to_rank.size() >= most_on_their_way) return false;
        line->to_rank.emplace_back(bytes.begin(), bytes.end());
        line->come.notify_all();
        return true;
    };
}

void AgentLines::drop(int client) {
    MutexLock lock(hub_->mutex);
    const auto found = hub_->lines.find(client);
    if (found == hub_->lines.end()) return;
    found->second->agent_gone = true;
    found->second->come.notify_all();
    hub_->lines.erase(found);
}

// Locks that nobody has taken over are let go of, without the mutex.
void AgentLines::end() {
    std::map<int, std::shared_ptr<Line>> ended;
    std::deque<Come> unread;
    MutexLock lock(hub_->mutex);
    hub_->ended = true;
    ended.swap(hub_->lines);
    for (const auto& [client, line] : ended) {
        line->agent_gone = true;
        line->come.notify_all();
        std::move(line->to_agent.begin(), line->to_agent.end(), std::back_inserter(unread));
        line->to_agent.clear();
    }
}

void AgentLines::let_go_of_locks() {
    std::vector<std::weak_ptr<LentLock>> lent;
    {
        MutexLock lock(hub_->mutex);
        lent.swap(hub_->lent);
    }
    for (const auto& weak : lent)
        if (const auto lock = weak.lock()) lock->let_go();
}

}  // namespace tailrace::internal::testing_support
