#include "client.h"

#include <algorithm>
#include <sstream>

#include "log.h"

veloc::client_t::~client_t() = default;

namespace veloc_on_tailrace {

namespace {

[[noreturn]] void refuse(const std::string& why) {
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, why);
}

void check_version(int version) {
    if (version < 0) refuse("version " + std::to_string(version) + " is below 0");
}

std::string title(const std::string& name, int version) {
    return "version " + std::to_string(version) + " of " + name;
}

// Whether all ranks have what rank 0 has, of the keys that decide which calls are collective and where
// versions lie. tailrace's sessions compare the others. Collective.
bool agreed(Ranks& ranks, const Configuration& mine) {
    const std::pair<std::string, std::string> keys[] = {
        {"mode", mine.sync ? "sync" : "async"},
        {"persistent", mine.persistent},
        {"scratch", mine.persistent.empty() ? mine.scratch : ""},  // otherwise nodes may have their own
        {"tailrace_import", mine.import_from}};
    bool same = true;
    for (const auto& [key, value] : keys) {
        const auto of_rank_0 = ranks.of_first(value);
        if (value == of_rank_0) continue;
        complain("Init", key + " is \"" + value + "\" here and \"" + of_rank_0 +
                             "\" on rank 0; write the same for all ranks");
        same = false;
    }
    if (ranks.all(same)) return true;
    if (same) complain("Init", "another rank has another configuration than rank 0");
    return false;
}

}  // namespace

// ---- begin and end ------------------------------------------------------------------------------

std::unique_ptr<Client> Client::open(std::unique_ptr<Ranks> ranks, const std::string& config_file) {
    std::optional<Configuration> configuration;
    try {
        configuration = settings_of(read_file(config_file), config_file, environment());
    } catch (const ConfigError& error) {
        complain("Init", error.what());
    }
    const bool read = configuration.has_value();
    if (!ranks->all(read)) {
        if (read) complain("Init", "another rank cannot use its configuration");
        return nullptr;
    }
    if (!agreed(*ranks, *configuration)) return nullptr;
    const bool on_one_node = ranks->on_one_node();
    if (configuration->persistent.empty() && !on_one_node) {
        complain("Init", config_file +
                             ": persistent is missing; it names a directory that all nodes see, and only "
                             "ranks on one node can do without");
        return nullptr;
    }
    if (!configuration->log_file_directory.empty()) log_to(configuration->log_file_directory);
    if (ranks->rank() == 0)
        for (const auto& note : configuration->notes) inform(note);
    return std::make_unique<Client>(std::move(ranks), std::move(*configuration));
}

Client::~Client() {
    finalize();
}

bool Client::finalize() {
    return guarded("Finalize", [&] {
        if (checkpoint_) drop_checkpoint("the program has ended before Checkpoint_end");
        end_restart();
        bool good = true;
        for (auto& [name, stream] : std::exchange(streams_, {}))
            for (const auto& failure : stream->close()) {
                complain("Finalize", failure);
                good = false;
            }
        return good;
    });
}

bool Client::guarded(const char* call, const std::function<bool()>& work) {
    try {
        return work();
    } catch (const std::exception& error) {
        complain(call, error.what());
    } catch (...) {
        complain(call, "an exception that is no std::exception, thrown by a function of the program");
    }
    return false;
}

Stream& Client::stream_of(const std::string& name) {
    auto& stream = streams_[name];
    try {
        if (!stream) stream = std::make_unique<Stream>(*ranks_, configuration_, name);
    } catch (...) {
        streams_.erase(name);
        throw;
    }
    return *stream;
}

// ---- regions ------------------------------------------------------------------------------------

bool Client::mem_protect(int id, void* ptr, size_t count, size_t base_size, const std::string& name) {
    return guarded("Mem_protect", [&] {
        size_t bytes = 0;
        if (__builtin_mul_overflow(count, base_size, &bytes))
            refuse("id " + std::to_string(id) + ": " + std::to_string(count) + " times " +
                   std::to_string(base_size) + " bytes are more than there can be");
        if (ptr == nullptr && bytes > 0)
            refuse("id " + std::to_string(id) + ": " + std::to_string(bytes) + " bytes at NULL");
        regions_.protect(name, id, {ptr, bytes});
        return true;
    });
}

bool Client::mem_protect(int id, const serializer_t& s, const deserializer_t& d, const std::string& name) {
    return guarded("Mem_protect", [&] {
        if (!s || !d) refuse("id " + std::to_string(id) + ": a function is empty");
        regions_.protect(name, id, {nullptr, 0, s, d});
        return true;
    });
}

bool Client::mem_unprotect(int id, const std::string& name) {
    return guarded("Mem_unprotect", [&] {
        if (!regions_.unprotect(name, id))
            refuse("id " + std::to_string(id) + " of group " + name + " is not protected");
        return true;
    });
}

bool Client::register_observer(int type, const observer_t& obs) {
    return guarded("register_observer", [&] {
        if (type != VELOC_OBSERVE_CKPT_END) refuse("there are no observers of type " + std::to_string(type));
        if (!obs) refuse("the function is empty");
        observers_.push_back(obs);
        return true;
    });
}

bool Client::cleanup(const std::string& name) {
    return guarded("Cleanup", [&] {
        check_name(name);
        return true;
    });
}

// ---- checkpoints --------------------------------------------------------------------------------

bool Client::checkpoint(const std::string& name, int version) {
    // What is wrong with versions before must not keep this one from being saved.
    const bool waited = checkpoint_wait();
    if (!checkpoint_begin(name, version)) return false;
    const bool captured = checkpoint_mem(VELOC_CKPT_ALL, {});
    return checkpoint_end(captured) && captured && waited;
}

bool Client::checkpoint_begin(const std::string& name, int version) {
    return guarded("Checkpoint_begin", [&] {
        if (checkpoint_)
            refuse(title(checkpoint_->name, checkpoint_->version) +
                   " has begun and not ended; call Checkpoint_end");
        check_name(name);
        check_version(version);
        if (unanswered_.contains(name))
            refuse("Restart_test could not say which versions of " + name +
                   " there are, and this one might leave them behind; call Restart_test again, or start the "
                   "program again once its reason is mended");
        auto& stream = stream_of(name);
        if (!stream.ascends(version)) {
            if (restart_ && restart_->name == name) end_restart();
            try {
                stream.begin(version);
            } catch (...) {
                streams_.erase(name);
                throw;
            }
        }
        checkpoint_.emplace(Checkpoint{name, version});
        return true;
    });
}

// `written` gets what serializers write, and must live until it is captured.
std::vector<Piece> Client::pieces_of(int mode, const std::set<int>& ids,
                                     std::vector<std::string>& written) const {
    const auto choice = choice_of(mode);
    const auto [group_name, group] = regions_.of_checkpoint(checkpoint_->name);
    if (choice == Choice::some)
        for (const int id : ids)
            if (!group->contains(id))
                refuse("id " + std::to_string(id) + " of group " + group_name + " is not protected");
    std::vector<Piece> pieces;
    written.reserve(group->size());  // so that texts stay where they are
    for (const auto& [id, region] : *group) {
        if (!chosen(choice, ids, id)) continue;
        Piece piece{region_name(group_name, id), region.memory, region.bytes};
        if (region.serialize) {
            std::ostringstream out;
            region.serialize(out);
            if (!out) refuse("the serializer of id " + std::to_string(id) + " has left a broken stream");
            auto& text = written.emplace_back(std::move(out).str());
            piece.memory = text.data();
            piece.bytes = text.size();
        }
        pieces.push_back(std::move(piece));
    }
    if (pieces.empty()) refuse("no region is chosen; protect one in group " + group_name + " first");
    return pieces;
}

bool Client::checkpoint_mem(int mode, const std::set<int>& ids) {
    return guarded("Checkpoint_mem", [&] {
        if (!checkpoint_) refuse("no checkpoint has begun; call Checkpoint_begin first");
        take(Content::memory);
        try {
            std::vector<std::string> written;
            stream_of(checkpoint_->name).capture(checkpoint_->version, pieces_of(mode, ids, written));
        } catch (const std::exception& error) {
            checkpoint_->why_not = error.what();
            throw;
        } catch (...) {
            checkpoint_->why_not = "a serializer has thrown";
            throw;
        }
        checkpoint_->ready = true;
        return true;
    });
}

// The others would wait for this rank, so they hear that it saves nothing.
void Client::drop_checkpoint(const std::string& why) {
    const Checkpoint dropped = std::move(*checkpoint_);
    checkpoint_.reset();
    stream_of(dropped.name).give_up(dropped.version, "rank " + std::to_string(ranks_->rank()) + ": " + why);
}

bool Client::checkpoint_end(bool success) {
    return guarded("Checkpoint_end", [&] {
        if (!checkpoint_) refuse("no checkpoint has begun; call Checkpoint_begin first");
        const auto name = checkpoint_->name;
        const int version = checkpoint_->version;
        if (!checkpoint_->ready) {
            const auto why = checkpoint_->why_not;
            drop_checkpoint(why);
            refuse(title(name, version) + " was not saved: " + why);
        }
        if (!success && configuration_.honour_success) {
            drop_checkpoint("the program has dropped it (Checkpoint_end with success 0)");
            return true;
        }
        const bool is_file = checkpoint_->content == Content::file;
        checkpoint_.reset();
        auto& stream = stream_of(name);
        if (is_file)
            stream.save_file(version);
        else
            stream.save(version);
        // One that throws keeps this rank from no wait that the others make.
        const bool heard = guarded("Checkpoint_end", [&] {
            for (const auto& observer : observers_) observer(name, version);
            return true;
        });
        if (!configuration_.sync) return heard;
        const auto failures = stream.wait();
        for (const auto& failure : failures) complain("Checkpoint_end", failure);
        return heard && failures.empty();
    });
}

bool Client::wait_for_all(const char* call) {
    bool good = true;
    for (auto& [name, stream] : streams_)
        for (const auto& failure : stream->wait()) {
            complain(call, failure);
            good = false;
        }
    return good;
}

bool Client::checkpoint_wait() {
    return guarded("Checkpoint_wait", [&] {
        if (checkpoint_)
            refuse(title(checkpoint_->name, checkpoint_->version) +
                   " has begun and not ended; call Checkpoint_end");
        return wait_for_all("Checkpoint_wait");
    });
}

bool Client::checkpoint_finished() {
    return guarded("Checkpoint_finished", [&] {
        bool all = true;
        for (auto& [name, stream] : streams_) all = stream->settle() && all;
        return all;
    });
}

}  // namespace veloc_on_tailrace
