#include "sessions.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "epochs_directory.h"

namespace scr_on_tailrace {

namespace {

// A node-local tier of each user's own, in a directory that is everybody's.
std::string tier_in(const std::string& base) {
    return base + "/tailrace-" + std::to_string(::getuid());
}

}  // namespace

Sessions::Sessions(on_tailrace::Ranks& ranks, const Settings& settings, std::string directory)
    : ranks_(ranks), settings_(settings), directory_(std::move(directory)) {}

tailrace::Options Sessions::options(const char* purpose) const {
    tailrace::Options options;
    options.set("name", job);
    options.set("shared_dir", directory_);
    options.set("purpose", purpose);
    if (!settings_.cache_base.empty()) options.set("local_dir", tier_in(settings_.cache_base));
    for (const auto& [key, value] : settings_.session)
        if (!settings_.bypass || key != "redundancy") options.set(key, value);
    return options;
}

void Sessions::open_checkpoints() {
    auto chosen = options("checkpoints");
    // The epochs of the bypass way have no data, and every one is needed.
    if (settings_.bypass) chosen.set("shared_every", "1");
    checkpoints_ = ranks_.open(chosen);
}

void Sessions::open_outputs() {
    if (outputs_) return;
    auto chosen = options("outputs");
    const bool said = std::getenv("TAILRACE_FILES_AS") != nullptr ||
                      std::any_of(settings_.session.begin(), settings_.session.end(),
                                  [](const auto& setting) { return setting.first == "files_as"; });
    if (!said) chosen.set("files_as", "original");
    // What is said of these, here or in the environment, is for checkpoints. Every output is needed.
    chosen.set("keep_shared", "0");
    chosen.set("shared_every", "1");
    chosen.set("queue_policy", "wait");
    chosen.set("flush_at_close", "yes");
    outputs_ = ranks_.open(chosen);
}

void Sessions::close() {
    std::exception_ptr failure;
    for (auto* session : {&outputs_, &checkpoints_}) {
        if (!*session) continue;
        try {
            std::exchange(*session, std::nullopt)->close();
        } catch (const tailrace::Error&) {
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

tailrace::Session& Sessions::of(const Dataset& dataset) {
    return dataset.is_checkpoint() ? *checkpoints_ : *outputs_;
}

std::string Sessions::files_of_output(uint64_t id) const {
    if (outputs_->setting("files_as") != "original") return {};
    std::array<char, 32> epoch{};
    std::snprintf(epoch.data(), epoch.size(), "e%09llu", static_cast<unsigned long long>(id));
    return outputs_in(directory_) + "/" + job + ".files/" + epoch.data();
}

size_t Sessions::most_unplaced() const {
    const auto kept = outputs_ ? std::stoull(outputs_->setting("keep_outputs")) : 0;
    return kept == 0 ? SIZE_MAX : kept;
}

}  // namespace scr_on_tailrace
