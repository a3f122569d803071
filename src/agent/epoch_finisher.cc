#include "agent/epoch_finisher.h"

#include <fmt/format.h>

#include "base/caught.h"
#include "base/invariant.h"
#include "base/log.h"
#include "shared/epoch_files.h"
#include "shared/originals.h"
#include "shared/retention.h"
#include "threads/mutex.h"

namespace tailrace::internal {

void EpochFinisher::begin(Priority priority, std::function<void()> thrown) {
    naming_.begin("tailrace names", priority, std::move(thrown));
    removing_.begin("tailrace remove", priority, [] {
        log(LogLevel::warning, "old or failed epochs stay in the shared directory: {}",
            caught_status().message());
    });
}

void EpochFinisher::finish() {
    naming_.finish();
    removing_.finish();
}

// Counts an epoch that is being named, as long as it lives.
class EpochFinisher::BeingNamed {
  public:
    explicit BeingNamed(EpochFinisher& finisher) : finisher_(finisher) {
        MutexLock lock(finisher_.mutex_);
        ++finisher_.being_named_;
    }
    ~BeingNamed() {
        MutexLock lock(finisher_.mutex_);
        --finisher_.being_named_;
        finisher_.changed_.notify_all();
    }
    BeingNamed(const BeingNamed&) = delete;
    BeingNamed& operator=(const BeingNamed&) = delete;

  private:
    EpochFinisher& finisher_;
};

void EpochFinisher::commit(const EpochEnded& ended, Named named) {
    // The work holds the count, so it ends with the work: also if something is thrown, and if the
    // work cannot even be added.
    naming_.add([this, counted = std::make_shared<BeingNamed>(*this), ended = EpochEnded(ended),
                 named = std::move(named)] { named(give_names(ended)); });
}

EpochEnded EpochFinisher::give_names(EpochEnded ended) {
    INVARIANT(ended.state == EpochState::committed);
    note_step("epoch and run get their names", ended.key.epoch, ended.key.run);
    const auto& config = context_.config;
    if (const Status in_place = check_directory(); !in_place.ok()) {
        ended.state = EpochState::failed;
        ended.why = in_place;
        return ended;
    }
    const auto named =
        name_shared_epoch(*context_.shared, config.shared_dir, config.name, ended.key, config.files);
    if (named.code() == Code::not_found) {
        ended.state = EpochState::failed;
        ended.why = named.with_context("one of its files was written, but has disappeared");
        return ended;
    }
    if (!named.ok())
        log(LogLevel::warning, "{} is committed, but its files keep their unfinished names: {}",
            to_string(ended.key), named.message());
    complete_originals({*context_.shared, config.shared_dir, config.name}, ended.key, Replace::yes);
    removing_.add([this, key = ended.key] { apply_retention(key); });
    return ended;
}

// Another directory may have taken the place of the one that this session has locked. It may be in
// use by another session.
Status EpochFinisher::check_directory() const {
    if (context_.shared_lock == nullptr || context_.shared_lock->still_in_place()) return {};
    return Status(Code::failed_state,
                  fmt::format("{} is no longer the directory that this session opened: somebody has moved "
                              "or replaced it. Nothing in it is touched; close the session and open another",
                              context_.config.shared_dir));
}

void EpochFinisher::found_damaged(EpochKey key) {
    removing_.add([this, key] {
        std::erase(known_complete_, key);
        known_damaged_.insert(key);
    });
}

void EpochFinisher::apply_retention(EpochKey key) {
    if (!check_directory().ok()) return;
    const auto& config = context_.config;
    known_complete_.push_back(key);
    auto removed = apply_shared_retention(*context_.shared, config.shared_dir, config.name,
                                          config.keep_shared, known_complete_, known_damaged_);
    if (!removed.ok())
        log(LogLevel::warning, "older epochs could not be removed from {}: {}", config.shared_dir,
            removed.message());
}

void EpochFinisher::remove_leftovers(const std::vector<EpochKey>& keys) {
    for (const auto& key : keys)
        removing_.add([this, key] {
            if (!check_directory().ok()) return;
            const auto& config = context_.config;
            auto removed = remove_shared_epoch(*context_.shared, config.shared_dir, config.name, key);
            if (!removed.ok())
                log(LogLevel::warning, "files of {}, which failed, could not be removed from {}: {}",
                    to_string(key), config.shared_dir, removed.message());
        });
}

bool EpochFinisher::naming() const {
    MutexLock lock(mutex_);
    return being_named_ > 0;
}

bool EpochFinisher::wait_named(std::optional<std::chrono::steady_clock::time_point> deadline) {
    MutexLock lock(mutex_);
    while (being_named_ > 0)
        if (!changed_.wait_before(lock, deadline)) return false;
    return true;
}

}  // namespace tailrace::internal
