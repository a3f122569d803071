// NodeAgent, work in the shared directory, at rank 0's node: names of committed epochs, retention, and what
// failed flushes have left. Two threads do it: a waiting program must not wait for the removal of something
// old.
#include <fmt/format.h>

#include "agent/node_agent.h"
#include "base/log.h"
#include "shared/epoch_files.h"
#include "shared/retention.h"

namespace tailrace {

void NodeAgent::commit(const EpochEnded& ended) {
    {
        std::lock_guard lock(mutex_);
        open_.insert(ended.key);
        ++being_named_;
    }
    naming_.add([this, ended = EpochEnded(ended)]() mutable {
        const auto& config = *setup_.config;
        const auto in_place = check_shared_directory();
        const auto named = in_place.ok() ? name_shared_epoch(*setup_.shared, config.shared_dir, config.name,
                                                             ended.key, config.files)
                                         : Status();
        if (!in_place.ok()) {
            ended.state = EpochState::failed;
            ended.why = in_place;
        } else if (named.code() == Code::not_found) {
            ended.state = EpochState::failed;
            ended.why = named.with_context("a file of it was written, and has disappeared");
        } else {
            if (!named.ok())
                log(LogLevel::warning, "{} is committed, but its files keep their unfinished names: {}",
                    to_string(ended.key), named.message());
            removing_.add([this, key = ended.key] { apply_retention(key); });
        }
        std::lock_guard lock(mutex_);
        --being_named_;
        if (setup_.quiet) {
            open_.erase(ended.key);
            changed_.notify_all();
        } else {
            named_.push_back(ended);
            setup_.transport->wake();
        }
    });
}

// A directory that has taken the place of the one that this session has locked may be another session's.
Status NodeAgent::check_shared_directory() const {
    if (setup_.shared_lock == nullptr || setup_.shared_lock->still_in_place()) return {};
    return Status(Code::failed_state,
                  fmt::format("{} is not the directory any more that this session opened: somebody has moved "
                              "or replaced it. Nothing in it is touched; close the session and open another",
                              setup_.config->shared_dir));
}

void NodeAgent::apply_retention(EpochKey key) {
    if (!check_shared_directory().ok()) return;
    known_complete_.push_back(key);
    auto removed = apply_shared_retention(*setup_.shared, setup_.config->shared_dir, setup_.config->name,
                                          setup_.config->keep_shared, known_complete_, known_damaged_);
    if (!removed.ok())
        log(LogLevel::warning, "older epochs could not be removed from {}: {}", setup_.config->shared_dir,
            removed.message());
}

void NodeAgent::found_damaged(EpochKey key) {
    removing_.add([this, key] {
        std::erase(known_complete_, key);
        known_damaged_.insert(key);
    });
}

void NodeAgent::remove_leftovers(std::vector<EpochKey> keys) {
    for (const auto& key : keys)
        removing_.add([this, key] {
            if (!check_shared_directory().ok()) return;
            auto removed =
                remove_shared_epoch(*setup_.shared, setup_.config->shared_dir, setup_.config->name, key);
            if (!removed.ok())
                log(LogLevel::warning, "files of {}, which failed, stay in {}: {}", to_string(key),
                    setup_.config->shared_dir, removed.message());
        });
}

}  // namespace tailrace
