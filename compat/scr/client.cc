#include "client.h"

#include <scr.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "epochs_directory.h"

const char* const on_tailrace::interface_name = "scr";

namespace scr_on_tailrace {

namespace {

// Of datasets that are complete once they are captured. The session's queue is as long (queue_epochs).
constexpr size_t most_in_flight = 2;

[[noreturn]] void refuse(const std::string& why) {
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, why);
}

std::string title(const Dataset& dataset) {
    return "dataset " + std::to_string(dataset.id) + " (" + dataset.name + ")";
}

// Whether all ranks have what rank 0 has, of what decides which calls are collective and where files lie.
// tailrace's session compares the others. Collective.
bool agreed(Ranks& ranks, const Settings& mine) {
    const std::pair<const char*, std::string> keys[] = {{"SCR_ENABLE", mine.enabled ? "1" : "0"},
                                                        {"SCR_PREFIX", mine.prefix},
                                                        {"SCR_CACHE_BYPASS", mine.bypass ? "1" : "0"},
                                                        {"SCR_FLUSH_ASYNC", mine.flush_async ? "1" : "0"},
                                                        {"SCR_CURRENT", mine.first_current}};
    bool same = true;
    for (const auto& [key, value] : keys) {
        const auto of_rank_0 = ranks.of_first(value);
        if (value == of_rank_0) continue;
        complain("SCR_Init", std::string(key) + " is \"" + value + "\" here and \"" + of_rank_0 +
                                 "\" on rank 0; give all ranks the same");
        same = false;
    }
    return ranks.all(same);
}

// Which file two ranks claim; empty if there is none. `claims` holds lines, by rank.
std::string claimed_twice(const std::vector<std::string>& claims) {
    std::map<std::string, size_t> owners;
    for (size_t rank = 0; rank < claims.size(); ++rank)
        for (size_t begin = 0; begin < claims[rank].size();) {
            const auto end = claims[rank].find('\n', begin);
            const auto [owner, added] = owners.emplace(claims[rank].substr(begin, end - begin), rank);
            if (!added)
                return "ranks " + std::to_string(owner->second) + " and " + std::to_string(rank) +
                       " have both routed " + owner->first +
                       "; a file of several ranks cannot be cached: set SCR_CACHE_BYPASS=1";
            begin = end + 1;
        }
    return {};
}

}  // namespace

// ---- begin and end ------------------------------------------------------------------------------

Client::Client(std::unique_ptr<Ranks> ranks, Settings settings)
    : Together(std::move(ranks)),
      settings_(std::move(settings)),
      prefix_(settings_.prefix),
      index_(settings_.prefix + "/.scr/tailrace-index"),
      sessions_(*ranks_, settings_, settings_.prefix + "/.scr/tailrace") {}

std::unique_ptr<Client> Client::open(std::unique_ptr<Ranks> ranks, std::optional<Settings> settings) {
    const bool usable = settings.has_value();
    if (!ranks->all(usable)) {
        if (usable) complain("SCR_Init", "another rank cannot use its configuration");
        return nullptr;
    }
    if (!agreed(*ranks, *settings)) return nullptr;
    if (!settings->enabled) {
        if (ranks->rank() == 0) complain("SCR_Init", "SCR_ENABLE is 0, so nothing is begun");
        return nullptr;
    }
    std::unique_ptr<Client> client(new Client(std::move(ranks), std::move(*settings)));
    if (!client->open_sessions()) return nullptr;
    if (client->ranks_->rank() == 0)
        for (const auto& note : client->settings_.notes) inform(note);
    return client;
}

bool Client::open_sessions() {
    constexpr const char* call = "SCR_Init";
    const auto& shared = sessions_.directory();
    if (!on_first(call, [&] { std::filesystem::create_directories(shared); })) return false;
    if (!everywhere(call, guarded(call, [&] { sessions_.open_checkpoints(); }))) return false;
    const auto had_outputs =
        from_first(call, [&] { return std::filesystem::exists(outputs_in(shared)) ? "yes" : "no"; });
    if (!had_outputs) return false;
    // Without them a program can restart all the same. Its first output tries again.
    const bool have_outputs =
        had_outputs == "yes" && everywhere(call, guarded(call, [&] { sessions_.open_outputs(); }));
    std::vector<uint64_t> epochs, outputs;
    if (!everywhere(call, guarded(call, [&] { epochs = complete_epochs(sessions_.checkpoints()); })))
        return false;
    if (have_outputs &&
        !everywhere(call, guarded(call, [&] { outputs = complete_epochs(sessions_.outputs()); })))
        return false;
    epochs.insert(epochs.end(), outputs.begin(), outputs.end());
    const auto greatest = from_first(call, [&] {
        const auto in_index = index_.read().greatest_id();
        return std::to_string(
            std::max(in_index, epochs.empty() ? 0 : *std::max_element(epochs.begin(), epochs.end())));
    });
    if (!greatest) return false;
    next_id_ = std::stoull(*greatest) + 1;
    if (!settings_.first_current.empty()) current(settings_.first_current);
    return true;
}

Client::~Client() {
    finalize();
}

bool Client::finalize() {
    constexpr const char* call = "SCR_Finalize";
    if (!sessions_.is_open()) return true;
    bool good = true;
    if (state_ == State::checkpoint || state_ == State::output) {
        complain(call, title(dataset_) + " was not completed, and is dropped");
        guarded(call, [&] { output_->drop(dataset_.id); });
        good = false;
    }
    state_ = State::idle;
    output_.reset();
    restart_.reset();
    good = settle(call, 0) && good;
    const bool closed = guarded(call, [&] {
        try {
            sessions_.close();
        } catch (const tailrace::Error&) {
            if (!told_of_failure_) throw;
        }
    });
    return closed && good;
}

// ---- where calls may come -----------------------------------------------------------------------

bool Client::is(State wanted, const char* call) const {
    if (state_ == wanted) return true;
    const char* const to_do[] = {"nothing has begun; call SCR_Start_output or SCR_Start_restart first",
                                 "a checkpoint has begun; call SCR_Complete_checkpoint first",
                                 "an output has begun; call SCR_Complete_output first",
                                 "a restart has begun; call SCR_Complete_restart first"};
    complain(call, to_do[static_cast<size_t>(state_)]);
    return false;
}

Place Client::place(const Dataset& dataset) {
    return {sessions_.of(dataset), prefix_, static_cast<uint32_t>(ranks_->rank()),
            static_cast<uint32_t>(ranks_->count()),
            dataset.is_checkpoint() ? std::string() : sessions_.files_of_output(dataset.id)};
}

// ---- output -------------------------------------------------------------------------------------

bool Client::start_checkpoint() {
    return begin("SCR_Start_checkpoint", std::nullopt, SCR_FLAG_CHECKPOINT, State::checkpoint);
}

bool Client::start_output(const std::optional<std::string>& name, unsigned flags) {
    return begin("SCR_Start_output", name, flags, State::output);
}

bool Client::begin(const char* call, const std::optional<std::string>& name, unsigned flags, State state) {
    if (!is(State::idle, call)) return false;
    settle(call, std::min(most_in_flight, sessions_.most_unplaced() - 1));
    restart_.reset();
    offered_.reset();
    dataset_ = {next_id_++, flags, settings_.bypass, false, {}};
    dataset_.name = name.value_or("scr.dataset." + std::to_string(dataset_.id));
    const bool sensible = guarded(call, [&] {
        check_name(dataset_.name);
        if (flags > (SCR_FLAG_CHECKPOINT | SCR_FLAG_OUTPUT))
            refuse("flags " + std::to_string(flags) + " are unknown");
    });
    const auto of_rank_0 = ranks_->of_first(dataset_.name);
    const bool same = of_rank_0 == dataset_.name;
    if (!same)
        complain(call, "the name is \"" + dataset_.name + "\" here and \"" + of_rank_0 + "\" on rank 0");
    const auto flags_of_rank_0 = static_cast<unsigned>(ranks_->of_first(static_cast<int>(flags)));
    const bool same_flags = flags_of_rank_0 == flags;
    if (!same_flags)
        complain(call, "the flags are " + std::to_string(flags) + " here and " +
                           std::to_string(flags_of_rank_0) + " on rank 0");
    if (!everywhere(call, sensible && same && same_flags)) return false;
    if (!dataset_.is_checkpoint() && !everywhere(call, guarded(call, [&] { sessions_.open_outputs(); })))
        return false;
    if (dataset_.bypass &&
        !on_first(call, [&] { index_.change([&](Index& index) { index.drop(dataset_.name); }); }))
        return false;
    const bool begun = guarded(call, [&] { output_ = begin_output(place(dataset_), dataset_.bypass); });
    if (!everywhere(call, begun)) {
        // Ranks drop it together, also those that have nothing to drop.
        guarded(call, [&] {
            if (begun)
                output_->drop(dataset_.id);
            else
                sessions_.of(dataset_).give_up(dataset_.id, "the files of a dataset could not be begun");
        });
        output_.reset();
        told_of_failure_ = true;
        return false;
    }
    routed_all_ = true;
    state_ = state;
    return true;
}

bool Client::route_file(const std::string& name, std::string& path) {
    constexpr const char* call = "SCR_Route_file";
    path = name;
    if (state_ == State::idle) return true;
    const bool good = guarded(call, [&] {
        path = absolute(name);
        path = state_ == State::restart ? restart_->route(name) : output_->route(name);
        if (path.size() >= SCR_MAX_FILENAME)
            refuse("the path of " + name + " has " + std::to_string(path.size()) +
                   " bytes, and a program for SCR has room for " + std::to_string(SCR_MAX_FILENAME - 1));
    });
    if (!good) routed_all_ = false;
    return good;
}

bool Client::complete_checkpoint(bool valid) {
    constexpr const char* call = "SCR_Complete_checkpoint";
    return is(State::checkpoint, call) && complete(call, valid);
}

bool Client::complete_output(bool valid) {
    constexpr const char* call = "SCR_Complete_output";
    return is(State::output, call) && complete(call, valid);
}

// What is wrong with the program's files. All of it is said: a file that two ranks have routed is often why
// the program could not write it.
bool Client::agree_on_files(const char* call, bool valid) {
    bool alone = true;
    if (!dataset_.bypass) {
        const auto claims = ranks_->gathered(output_->claims());
        alone = on_first(call, [&] {
            if (const auto why = claimed_twice(claims); !why.empty()) refuse(why);
        });
    }
    if (!valid) complain(call, title(dataset_) + " is dropped: the program says that it is not valid");
    if (!routed_all_) complain(call, title(dataset_) + " is dropped: a file could not be routed");
    if (!everywhere(call, valid && routed_all_) || !alone) return false;
    return everywhere(call, guarded(call, [&] {
                          output_->check();
                          describe_dataset();
                      }));
}

void Client::describe_dataset() {
    Index one;
    one.add(dataset_);
    description_ = one.encode();
    sessions_.of(dataset_).add(dataset_region, description_.data(), description_.size());
}

bool Client::complete(const char* call, bool valid) {
    state_ = State::idle;
    const auto add = [&] { index_.change([&](Index& index) { index.add(dataset_); }); };
    bool good = agree_on_files(call, valid) && on_first(call, add);
    if (good) {
        good = save(call);
    } else {
        guarded(call, [&] { output_->drop(dataset_.id); });
        told_of_failure_ = true;
    }
    output_.reset();
    if (!description_.empty()) tailrace_unregister(sessions_.of(dataset_).get(), dataset_region);
    description_.clear();
    return good;
}

bool Client::save(const char* call) {
    const bool waits = dataset_.bypass || !settings_.flush_async;
    auto& session = sessions_.of(dataset_);
    bool saved = guarded(call, [&] { output_->save(dataset_.id); });
    // Ranks wait together, also those that have failed and have said so.
    if (waits && saved)
        saved = guarded(call, [&] { session.wait(dataset_.id); });
    else if (waits)
        tailrace_wait(session.get(), dataset_.id, -1);
    if (everywhere(call, saved)) {
        if (waits) return everywhere(call, guarded(call, [&] { output_->publish(); }));
        in_flight_.push_back({dataset_, std::move(output_)});
        return true;
    }
    on_first(call, [&] { index_.change([&](Index& index) { index.drop(dataset_.id); }); });
    told_of_failure_ = true;
    return false;
}

bool Client::settle(const char* call, size_t keep) {
    bool good = true;
    for (; in_flight_.size() > keep; in_flight_.erase(in_flight_.begin())) {
        const auto& oldest = in_flight_.front();
        const bool settled = guarded(call, [&] {
            try {
                sessions_.of(oldest.dataset).wait(oldest.dataset.id);
            } catch (const tailrace::Error& error) {
                told_of_failure_ = true;
                throw tailrace::Error(error.code(),
                                      title(oldest.dataset) + " was not completed: " + error.what());
            }
            oldest.output->publish();
        });
        good = everywhere(call, settled) && good;
    }
    return good;
}

bool Client::need_checkpoint(bool& yes) {
    constexpr const char* call = "SCR_Need_checkpoint";
    yes = false;
    return is(State::idle, call) && guarded(call, [&] {
               auto& session = sessions_.checkpoints();
               const bool stop = session.should_stop().has_value();
               yes = session.should_save() || stop;
           });
}

bool Client::should_exit(bool& yes) {
    constexpr const char* call = "SCR_Should_exit";
    yes = false;
    return is(State::idle, call) &&
           guarded(call, [&] { yes = sessions_.checkpoints().should_stop().has_value(); });
}

}  // namespace scr_on_tailrace
