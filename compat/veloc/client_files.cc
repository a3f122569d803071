// What Client does for checkpoints that the program writes into a file of its own (VELOC's file mode): one
// file for each rank and version, whatever it is called.
#include "client.h"

namespace veloc_on_tailrace {

namespace {

[[noreturn]] void refuse(tailrace_code code, const std::string& why) {
    throw tailrace::Error(code, why);
}

}  // namespace

void Client::take(Content content) {
    auto& mine = *checkpoint_;
    mine.ready = false;
    mine.content = mine.content == Content::nothing || mine.content == content ? content : Content::both;
    if (mine.content != Content::both) return;
    mine.why_not = "Checkpoint_mem and Route_file were both called for it; a version has memory or a file";
    refuse(TAILRACE_INVALID_ARGUMENT, mine.why_not);
}

std::string Client::file_to_write() {
    take(Content::file);
    std::string path;
    try {
        path = stream_of(checkpoint_->name).route_file();
    } catch (const std::exception& error) {
        checkpoint_->why_not = error.what();
        throw;
    }
    checkpoint_->ready = true;
    return path;
}

std::string Client::file_to_read() {
    if (!restart_->has_file)
        refuse(TAILRACE_NOT_FOUND, "rank " + std::to_string(restart_->rank) +
                                       " has not saved a file with this version; ask Recover_mem for memory");
    return stream_of(restart_->name).restored_file(restart_->rank);
}

std::string Client::route_file(const std::string& original) {
    std::string path;
    guarded("Route_file", [&] {
        if (!checkpoint_ && !restart_)
            refuse(TAILRACE_FAILED_STATE, "neither a checkpoint nor a restart has begun for " + original +
                                              "; call Checkpoint_begin or Restart_begin first");
        path = checkpoint_ ? file_to_write() : file_to_read();
        return true;
    });
    return path;
}

// Every rank makes the same collective calls, whether it has a file or not.
bool Client::restore_files(int version) {
    if (ranks_->all(!restart_->has_file)) return true;
    const bool own_only = ranks_->all(restart_->rank == static_cast<uint32_t>(ranks_->rank()));
    restart_->files_restored = true;
    return guarded("Restart_begin", [&] {
        stream_of(restart_->name).restore_files(version, !own_only);
        return true;
    });
}

void Client::end_restart() {
    if (restart_ && restart_->files_restored)
        guarded("Restart_end", [&] {
            stream_of(restart_->name).release_files();
            return true;
        });
    restart_.reset();
}

}  // namespace veloc_on_tailrace
