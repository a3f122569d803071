// What Client does to restore.
#include <algorithm>
#include <charconv>
#include <climits>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>

#include "client.h"
#include "log.h"

namespace veloc_on_tailrace {

namespace {

constexpr int none = VELOC_FAILURE;

[[noreturn]] void refuse(tailrace_code code, const std::string& why) {
    throw tailrace::Error(code, why);
}

// An epoch as a version; nothing if it is none, or above `version` (0: no limit).
std::optional<int> as_version(uint64_t epoch, int version) {
    if (epoch > INT_MAX || (version > 0 && epoch > static_cast<uint64_t>(version))) return std::nullopt;
    return static_cast<int>(epoch);
}

// The epochs that names of files tell, greatest first.
std::set<uint64_t, std::greater<>> epochs_named_in(const std::string& directory) {
    const std::string beginning = std::string(Stream::job) + ".e";
    std::set<uint64_t, std::greater<>> epochs;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
        const auto file = entry->path().filename().string();
        uint64_t epoch = 0;
        if (!file.starts_with(beginning)) continue;
        if (std::from_chars(file.data() + beginning.size(), file.data() + file.size(), epoch).ec ==
            std::errc())
            epochs.insert(epoch);
    }
    return epochs;
}

}  // namespace

// Left-behind versions come last in the list, so the first one that fits is the newest that the program has
// reached.
int Client::newest_up_to(const std::string& name, int version) {
    auto& stream = stream_of(name);
    stream.wait_for_pending();
    const auto versions = stream.versions();
    if (versions.empty() && !configuration_.import_from.empty()) return import_newest(name, version);
    for (const auto epoch : versions) {
        // What is captured and not ended is in the list, too.
        const bool unfinished =
            checkpoint_ && checkpoint_->name == name && epoch == static_cast<uint64_t>(checkpoint_->version);
        const auto found = as_version(epoch, version);
        if (found && !unfinished && has_all_ranks(name, *found)) return *found;
    }
    return none;
}

// Collective. A rank that has saved nothing has nothing to restore.
bool Client::has_all_ranks(const std::string& name, int version) {
    uint32_t saved_by = 0;
    const bool opened = guarded("Restart_test", [&] {
        saved_by = stream_of(name).open(version).rank_count();
        return true;
    });
    if (!ranks_->all(opened)) return false;
    const auto here = static_cast<uint32_t>(ranks_->count());
    if (saved_by != here && ranks_->rank() == 0)
        complain("Restart_test", "version " + std::to_string(version) + " of " + name + " was saved by " +
                                     std::to_string(saved_by) + " ranks, and this program has " +
                                     std::to_string(here) +
                                     (saved_by < here ? "; it is restored on as many as have saved it"
                                                      : "; what the others have saved is left out"));
    return saved_by >= here;
}

// Rank 0 chooses, so that all try the same versions.
int Client::import_newest(const std::string& name, int version) {
    const auto identity = ranks_->identity();
    const Owner owner{identity.empty() ? ranks_->rank() : std::stoi(identity), ranks_->count(),
                      !identity.empty()};
    std::vector<int> candidates;
    if (ranks_->rank() == 0) candidates = versions_in(configuration_.import_from, name, owner);
    std::erase_if(candidates, [&](int candidate) { return version > 0 && candidate > version; });
    for (size_t i = 0;; ++i) {
        const int candidate = ranks_->of_first(i < candidates.size() ? candidates[i] : none);
        if (candidate < 0 || import_version(name, candidate, owner)) return candidate;
    }
}

bool Client::import_version(const std::string& name, int version, const Owner& owner) {
    std::optional<OldCheckpoint> old;
    const bool opened = guarded("Restart_test", [&] {
        old.emplace(configuration_.import_from, name, version, owner);
        return true;
    });
    if (!ranks_->all(opened)) return false;
    auto& stream = stream_of(name);
    stream.begin(version);
    const bool captured = guarded("Restart_test", [&] {
        std::vector<Piece> pieces;
        for (const auto& piece : old->pieces())
            // It is read only.
            pieces.push_back({region_name(default_group, piece.id),
                              const_cast<std::byte*>(piece.bytes.data()), piece.bytes.size()});
        stream.capture(version, pieces);
        return true;
    });
    const bool saved = guarded("Restart_test", [&] {
        if (captured)
            stream.save(version);
        else
            stream.give_up(version, "a version of VELOC's could not be copied");
        const auto failures = stream.wait();
        for (const auto& failure : failures) complain("Restart_test", failure);
        return captured && failures.empty();
    });
    if (!ranks_->all(saved)) return false;
    if (ranks_->rank() == 0)
        inform("version " + std::to_string(version) + " of " + name +
               " was taken over from VELOC's files in " + configuration_.import_from);
    return true;
}

// A call of one rank: looks at the newest version, and then at those below the one that is named.
int Client::newest_in_directory(const std::string& name, int version) const {
    const auto directory = Stream::directory(*ranks_, configuration_, name);
    const auto opened = [&](uint64_t epoch) -> std::optional<int> {
        tailrace_reader* reader = nullptr;
        const auto code = tailrace_reader_open_directory(directory.c_str(), Stream::job, epoch, &reader);
        if (code != TAILRACE_OK) return std::nullopt;
        return as_version(tailrace::Reader(reader).epoch(), version);
    };
    if (const auto newest = opened(TAILRACE_NEWEST)) return *newest;
    if (version > 0)
        for (const auto epoch : epochs_named_in(directory))
            if (as_version(epoch, version))
                if (const auto found = opened(epoch)) return *found;
    return none;
}

int Client::restart_test(const std::string& name, int version, int target_rank) {
    const bool sensible = guarded("Restart_test", [&] {
        if (version < 0)
            refuse(TAILRACE_INVALID_ARGUMENT, "version " + std::to_string(version) + " is below 0");
        check_name(name);
        return true;
    });
    if (!sensible) return none;
    int found = none;
    const bool answered = guarded("Restart_test", [&] {
        found = target_rank < 0 ? newest_up_to(name, version) : newest_in_directory(name, version);
        return true;
    });
    if (target_rank >= 0) return found;
    if (ranks_->all(answered)) {
        unanswered_.erase(name);
        return found;
    }
    if (answered)
        complain("Restart_test", "another rank cannot say which versions of " + name + " there are");
    unanswered_.insert(name);
    return none;
}

bool Client::restart(const std::string& name, int version, int target_rank) {
    return restart_begin(name, version, target_rank) && recover_mem(VELOC_RECOVER_ALL, {}) &&
           restart_end(true);
}

void Client::open_restart(const std::string& name, int version, int target_rank) {
    restart_.emplace(Restart{name,
                             stream_of(name).open(version),
                             static_cast<uint32_t>(target_rank < 0 ? ranks_->rank() : target_rank),
                             {}});
    for (const auto& region : restart_->reader.regions(restart_->rank)) {
        if (const auto id = id_of_region(region.name)) restart_->stored[*id] = {region.name, region.bytes};
        if (region.name == Stream::file_region) restart_->has_file = true;
    }
}

bool Client::restart_begin(const std::string& name, int version, int target_rank) {
    end_restart();  // also where this one is refused: what follows means it, and not the one before
    const bool allowed = guarded("Restart_begin", [&] {
        if (checkpoint_)
            refuse(TAILRACE_FAILED_STATE,
                   "a checkpoint of " + checkpoint_->name + " has begun and not ended; call Checkpoint_end");
        check_name(name);
        if (version < 0)
            refuse(TAILRACE_INVALID_ARGUMENT, "version " + std::to_string(version) + " is below 0");
        return true;
    });
    // All ranks begin it, or none does.
    if (!ranks_->all(allowed)) return false;
    bool mine = guarded("Restart_begin", [&] {
        open_restart(name, version, target_rank);
        return true;
    });
    bool everywhere = ranks_->all(mine);
    if (everywhere) {
        mine = restore_files(version);
        everywhere = ranks_->all(mine);
    }
    if (everywhere) return true;
    if (mine) complain("Restart_begin", "another rank cannot restore version " + std::to_string(version));
    end_restart();
    return false;
}

size_t Client::recover_size(int id) {
    size_t bytes = 0;
    guarded("Recover_size", [&] {
        if (!restart_) refuse(TAILRACE_FAILED_STATE, "no version is open; call Restart_begin first");
        if (const auto found = restart_->stored.find(id); found != restart_->stored.end())
            bytes = found->second.second;
        return true;
    });
    return bytes;
}

void Client::fill(const Region& region, int id) const {
    const auto& [name, bytes] = restart_->stored.at(id);
    if (!region.deserialize) {
        restart_->reader.read(restart_->rank, name, std::span(static_cast<std::byte*>(region.memory), bytes));
        return;
    }
    std::string text(bytes, '\0');
    restart_->reader.read(restart_->rank, name, std::span(text.data(), text.size()));
    std::istringstream in(std::move(text));
    if (!region.deserialize(in))
        refuse(TAILRACE_CORRUPT,
               "the deserializer of id " + std::to_string(id) + " does not accept what it wrote");
}

bool Client::recover_mem(int mode, const std::set<int>& ids) {
    return guarded("Recover_mem", [&] {
        if (!restart_) refuse(TAILRACE_FAILED_STATE, "no version is open; call Restart_begin first");
        const auto choice = choice_of(mode);
        const auto [group_name, group] = regions_.of_checkpoint(restart_->name);
        std::vector<int> wanted;
        for (const auto& [id, stored] : restart_->stored)
            if (chosen(choice, ids, id)) wanted.push_back(id);
        if (wanted.empty() && choice != Choice::rest)
            refuse(TAILRACE_NOT_FOUND, "the version has none of these ids");
        // Before anything is written.
        for (const int id : wanted) {
            if (!group->contains(id))
                refuse(TAILRACE_INVALID_ARGUMENT, "id " + std::to_string(id) +
                                                      " is in the version and is not protected in group " +
                                                      group_name + "; nothing was restored");
            const auto bytes = restart_->stored.at(id).second;
            if (const Region& region = group->at(id); !region.deserialize && region.bytes < bytes)
                refuse(TAILRACE_INVALID_ARGUMENT,
                       "id " + std::to_string(id) + " was saved with " + std::to_string(bytes) +
                           " bytes and is protected with " + std::to_string(region.bytes) +
                           "; ask Recover_size and protect as many; nothing was "
                           "restored");
        }
        for (const int id : wanted) fill(group->at(id), id);
        return true;
    });
}

bool Client::restart_end(bool) {
    end_restart();
    return true;
}

}  // namespace veloc_on_tailrace
