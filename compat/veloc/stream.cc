#include "stream.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>

namespace veloc_on_tailrace {

namespace {

// Without a background only a call that waits makes progress.
constexpr std::chrono::milliseconds shortest_wait(1);
constexpr size_t longest_name = 127;  // of VELOC

}  // namespace

// It names a directory.
void check_name(const std::string& name) {
    const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
    const bool good = !name.empty() && name.size() <= longest_name && name != "." && name != ".." &&
                      std::all_of(name.begin(), name.end(), allowed);
    if (!good)
        throw tailrace::Error(
            TAILRACE_INVALID_ARGUMENT,
            "the name \"" + name +
                "\" should have 1 to 127 letters, digits, dots, hyphens or underscores, and be "
                "neither . nor ..");
}

Stream::Stream(Ranks& ranks, const Configuration& configuration, const std::string& name)
    : ranks_(ranks), configuration_(configuration), name_(name) {
    open_session();
}

std::string Stream::directory(const Ranks& ranks, const Configuration& configuration,
                              const std::string& name) {
    const auto& top = configuration.persistent.empty() ? configuration.scratch : configuration.persistent;
    const auto identity = ranks.identity();
    return top + "/" + name + (identity.empty() ? "" : "/" + identity);
}

void Stream::open_session() {
    tailrace::Options options;
    options.set("name", job);
    options.set("local_dir", configuration_.scratch);
    options.set("shared_dir", directory(ranks_, configuration_, name_));
    for (const auto& [key, value] : configuration_.session) options.set(key, value);
    session_ = ranks_.open(options);
    registered_.clear();
    files_begun_ = false;
    routed_.clear();
    last_.reset();
    told_.clear();
}

void Stream::begin(int version) {
    if (ascends(version)) return;
    close_session();
    open_session();
}

void Stream::register_all(const std::vector<Piece>& pieces) {
    std::map<std::string, std::pair<void*, uint64_t>> wanted;
    for (const auto& piece : pieces) wanted[piece.name] = {piece.memory, piece.bytes};
    for (auto known = registered_.begin(); known != registered_.end();) {
        if (wanted.contains(known->first)) {
            ++known;
        } else {
            session_->remove(known->first);
            known = registered_.erase(known);
        }
    }
    for (const auto& piece : pieces) {
        const std::pair place(piece.memory, piece.bytes);
        const auto known = registered_.find(piece.name);
        if (known == registered_.end())
            session_->add(piece.name, piece.memory, piece.bytes);
        else if (known->second != place)
            session_->update(piece.name, piece.memory, piece.bytes);
        registered_[piece.name] = place;
    }
}

void Stream::capture(int version, const std::vector<Piece>& pieces) {
    register_all(pieces);
    session_->capture(static_cast<uint64_t>(version));
}

void Stream::enter(int version, const std::function<void(uint64_t)>& save) {
    const auto epoch = static_cast<uint64_t>(version);
    last_ = epoch;
    try {
        save(epoch);
    } catch (const tailrace::Error& error) {
        told_.insert(error.what());
        told_.insert(session_->state(epoch).why);
        throw;
    }
    pending_.push_back(epoch);
    forget_ended();
}

void Stream::save(int version) {
    enter(version, [this](uint64_t epoch) { session_->save(epoch); });
}

std::string Stream::route_file() {
    if (!files_begun_) session_->begin_files();
    files_begun_ = true;
    routed_ = session_->route_file(file_name);
    return routed_;
}

void Stream::save_file(int version) {
    register_all({});  // what an earlier version has captured is none of this one
    files_begun_ = false;
    routed_.clear();
    enter(version, [this](uint64_t epoch) { session_->save_files(epoch); });
}

void Stream::give_up(int version, const std::string& why) {
    last_ = static_cast<uint64_t>(version);
    told_.insert(why);
    if (std::error_code ignored; !routed_.empty())
        std::filesystem::remove(std::exchange(routed_, {}), ignored);
    session_->give_up(*last_, why);
}

void Stream::restore_files(int version, bool of_all_ranks) {
    register_all({});  // otherwise it would be filled
    session_->restore_files(static_cast<uint64_t>(version), of_all_ranks);
}

void Stream::note_failure(uint64_t version, const std::string& why) {
    const auto known = session_->state(version);
    const bool lost = known.state == tailrace::State::failed;
    if (lost) told_.insert(known.why);
    told_.insert(why);
    failures_.push_back("version " + std::to_string(version) + " of " + name_ + (lost ? " is lost: " : ": ") +
                        why);
}

void Stream::forget_ended() {
    std::erase_if(pending_, [this](uint64_t epoch) {
        const auto known = session_->state(epoch);
        if (known.state == tailrace::State::failed) note_failure(epoch, known.why);
        return known.state == tailrace::State::failed || known.state == tailrace::State::committed ||
               known.state == tailrace::State::kept_local;
    });
}

bool Stream::settle() {
    forget_ended();
    if (ranks_.has_background()) return pending_.empty();
    std::erase_if(pending_, [this](uint64_t epoch) {
        try {
            return session_->wait_for(epoch, shortest_wait);
        } catch (const tailrace::Error& error) {
            note_failure(epoch, error.what());
            return true;
        }
    });
    return pending_.empty();
}

void Stream::wait_for_pending() {
    for (const auto epoch : std::exchange(pending_, {})) {
        try {
            session_->wait(epoch);
        } catch (const tailrace::Error& error) {
            note_failure(epoch, error.what());
        }
    }
}

std::vector<std::string> Stream::wait() {
    wait_for_pending();
    return std::exchange(failures_, {});
}

void Stream::close_session() {
    auto failures = wait();
    try {
        std::exchange(session_, std::nullopt)->close();
    } catch (const tailrace::Error& error) {
        const std::string sentence = error.what();
        const bool said = std::any_of(told_.begin(), told_.end(), [&](const std::string& why) {
            return !why.empty() && sentence.find(why) != std::string::npos;
        });
        if (!said) failures.push_back("closing " + name_ + ": " + sentence);
    }
    failures_ = std::move(failures);
}

std::vector<std::string> Stream::close() {
    if (session_) close_session();
    return std::exchange(failures_, {});
}

std::vector<uint64_t> Stream::versions() {
    std::vector<uint64_t> found;
    for (const auto& epoch : session_->list()) found.push_back(epoch.epoch);
    return found;
}

}  // namespace veloc_on_tailrace
