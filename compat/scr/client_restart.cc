// What Client does to restart, and with datasets that are there.
#include <algorithm>

#include "client.h"

namespace scr_on_tailrace {

std::vector<uint64_t> Client::complete_epochs(tailrace::Session& session) {
    std::vector<uint64_t> epochs;
    for (const auto& epoch : session.list()) epochs.push_back(epoch.epoch);
    return epochs;
}

// Rank 0 chooses, and tells the line of the index.
std::optional<Dataset> Client::next_restart(const char* call) {
    std::vector<uint64_t> epochs;
    if (!everywhere(call, guarded(call, [&] { epochs = complete_epochs(sessions_.checkpoints()); })))
        return std::nullopt;
    std::erase_if(epochs, [&](uint64_t epoch) { return passed_over_.contains(epoch); });
    const auto line = from_first(call, [&] {
        const auto choices = index_.read().restarts(epochs);
        Index chosen;
        if (!choices.empty()) chosen.add(choices.front());
        return chosen.encode();
    });
    if (!line) return std::nullopt;
    const auto chosen = Index::decode(*line).datasets();
    return chosen.empty() ? std::nullopt : std::optional(chosen.front());
}

bool Client::bring_back(const char* call, const Dataset& dataset) {
    const bool begun =
        guarded(call, [&] { restart_ = begin_restart(place(dataset), dataset.bypass, dataset.id); });
    if (everywhere(call, begun)) {
        const bool fetched = guarded(call, [&] { restart_->fetch(); });
        if (everywhere(call, fetched)) return true;
    }
    restart_.reset();
    if (ranks_->rank() == 0)
        complain(call, "dataset " + std::to_string(dataset.id) + " (" + dataset.name +
                           ") cannot be brought back, and is passed over in this run");
    return false;
}

bool Client::have_restart(std::optional<std::string>& name) {
    constexpr const char* call = "SCR_Have_restart";
    name.reset();
    if (!is(State::idle, call)) return false;
    settle(call, 0);
    while (!offered_) {
        const auto next = next_restart(call);
        if (!next) return true;
        if (bring_back(call, *next))
            offered_ = next;
        else
            passed_over_.insert(next->id);
    }
    name = offered_->name;
    return true;
}

bool Client::start_restart(std::string& name) {
    constexpr const char* call = "SCR_Start_restart";
    if (!is(State::idle, call)) return false;
    if (!offered_) {
        complain(call, "there is no checkpoint to restart from; ask SCR_Have_restart first");
        return false;
    }
    name = offered_->name;
    state_ = State::restart;
    return true;
}

bool Client::complete_restart(bool valid) {
    constexpr const char* call = "SCR_Complete_restart";
    if (!is(State::restart, call)) return false;
    state_ = State::idle;
    restart_.reset();
    const auto read = *std::exchange(offered_, std::nullopt);
    if (!valid) complain(call, "the program says that checkpoint " + read.name + " is not valid");
    if (everywhere(call, valid)) return true;
    passed_over_.insert(read.id);
    on_first(call, [&] { index_.change([&](Index& index) { index.mark_failed(read.id); }); });
    return false;
}

// ---- datasets -----------------------------------------------------------------------------------

std::optional<Dataset> Client::find(const char* call, const std::string& name) {
    const auto line = from_first(call, [&] {
        check_name(name);
        const auto all = index_.read().named(name);
        Index found;
        if (!all.empty()) found.add(all.front());
        return found.encode();
    });
    if (!line) return std::nullopt;
    const auto found = Index::decode(*line).datasets();
    if (!found.empty()) return found.front();
    if (ranks_->rank() == 0) complain(call, "there is no dataset " + name);
    return std::nullopt;
}

bool Client::current(const std::string& name) {
    constexpr const char* call = "SCR_Current";
    if (!is(State::idle, call)) return false;
    const auto dataset = find(call, name);
    if (!dataset) return false;
    if (!dataset->is_checkpoint()) {
        if (ranks_->rank() == 0) complain(call, name + " is no checkpoint");
        return false;
    }
    offered_.reset();
    restart_.reset();
    return on_first(call, [&] { index_.change([&](Index& index) { index.set_current(name); }); });
}

bool Client::drop(const std::string& name) {
    constexpr const char* call = "SCR_Drop";
    if (!is(State::idle, call)) return false;
    if (offered_ && offered_->name == name) {
        offered_.reset();
        restart_.reset();
    }
    return on_first(call, [&] {
        check_name(name);
        index_.change([&](Index& index) { index.drop(name); });
    });
}

// The files of a dataset that lie where the program wanted them. Collective.
std::vector<Listed> Client::below_prefix(const Dataset& dataset) {
    if (dataset.bypass) return listed_in(place(dataset), dataset.id);
    return dataset.is_checkpoint() ? std::vector<Listed>() : published_in(place(dataset), dataset.id);
}

// The name goes first, so that nobody restarts from what is left of the files.
bool Client::remove(const std::string& name) {
    constexpr const char* call = "SCR_Delete";
    if (!is(State::idle, call)) return false;
    settle(call, 0);
    const auto dataset = find(call, name);
    if (!dataset) return false;
    if (!dataset->is_checkpoint() && !everywhere(call, guarded(call, [&] { sessions_.open_outputs(); })))
        return false;
    std::vector<Listed> files;
    const bool listed = everywhere(call, guarded(call, [&] { files = below_prefix(*dataset); }));
    if (!drop(name) || !listed) return false;
    return everywhere(call, guarded(call, [&] { remove_files(prefix_, files); }));
}

}  // namespace scr_on_tailrace
