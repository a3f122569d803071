// client.h - VELOC's calls on tailrace's sessions: the order in which they may come, and which regions they
// mean.
//
// A checkpoint goes from checkpoint_begin over checkpoint_mem or route_file to checkpoint_end. A restart goes
// from restart_begin over recover_mem or route_file to restart_end. Both hold a state here, and one of each
// may be there at a time.
//
// No call throws. A failure is a line of the log and false. One thread at a time may call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <veloc.hpp>

#include "common/ranks.h"
#include "config.h"
#include "old_checkpoint.h"
#include "regions.h"
#include "stream.h"

namespace veloc_on_tailrace {

class Client final : public veloc::client_t {
  public:
    // Reads the configuration. Null after a failure, which the log tells. Collective.
    static std::unique_ptr<Client> open(std::unique_ptr<Ranks> ranks, const std::string& config_file);
    Client(std::unique_ptr<Ranks> ranks, Configuration configuration)
        : ranks_(std::move(ranks)), configuration_(std::move(configuration)) {}
    // Closes what finalize() has not closed. Collective.
    ~Client() override;

    bool mem_protect(int id, void* ptr, size_t count, size_t base_size, const std::string& name) override;
    bool mem_protect(int id, const serializer_t& s, const deserializer_t& d,
                     const std::string& name) override;
    bool mem_unprotect(int id, const std::string& name) override;
    void mem_clear(const std::string& name) override { regions_.clear(name); }
    bool register_observer(int type, const observer_t& obs) override;
    std::string route_file(const std::string& original) override;
    bool cleanup(const std::string& name) override;

    bool checkpoint(const std::string& name, int version) override;
    bool checkpoint_begin(const std::string& name, int version) override;
    bool checkpoint_mem(int mode, const std::set<int>& ids) override;
    bool checkpoint_end(bool success) override;
    bool checkpoint_wait() override;
    bool checkpoint_finished() override;

    int restart_test(const std::string& name, int version, int target_rank) override;
    bool restart(const std::string& name, int version, int target_rank) override;
    bool restart_begin(const std::string& name, int version, int target_rank) override;
    size_t recover_size(int id) override;
    bool recover_mem(int mode, const std::set<int>& ids) override;
    bool restart_end(bool success) override;

    // Waits for everything, and closes all sessions. Collective.
    bool finalize();
    bool has_peers() const { return ranks_->count() > 1; }
    bool uses_mpi() const { return ranks_->identity().empty(); }

  private:
    enum class Content { nothing, memory, file, both };
    struct Checkpoint {
        std::string name;
        int version = 0;
        Content content = Content::nothing;  // that the program has asked for; both cannot be
        bool ready = false;                  // and it was captured, or has its path
        std::string why_not = "nothing was captured between Checkpoint_begin and Checkpoint_end";
    };
    struct Restart {
        std::string name;
        tailrace::Reader reader;
        uint32_t rank;  // whose regions are read
        // What that rank has saved, by id: the region's name and its bytes.
        std::map<int, std::pair<std::string, uint64_t>> stored;
        bool has_file = false;        // that rank
        bool files_restored = false;  // because some rank's has one
    };

    // Runs `work`; what it throws is said, as a failure of `call`, and false is returned.
    bool guarded(const char* call, const std::function<bool()>& work);
    // The session of a name, opened if it is not there. Collective then.
    Stream& stream_of(const std::string& name);
    // The checkpoint that has begun gets this. Refused, and remembered, if it has the other.
    void take(Content content);
    std::string file_to_write();
    std::string file_to_read();
    void drop_checkpoint(const std::string& why);
    std::vector<Piece> pieces_of(int mode, const std::set<int>& ids, std::vector<std::string>& written) const;
    bool wait_for_all(const char* call);
    int newest_up_to(const std::string& name, int version);
    bool has_all_ranks(const std::string& name, int version);
    // Goes on from a version that VELOC has written, if there is one: it becomes one of tailrace's.
    int import_newest(const std::string& name, int version);
    bool import_version(const std::string& name, int version, const Owner& owner);
    int newest_in_directory(const std::string& name, int version) const;
    void open_restart(const std::string& name, int version, int target_rank);
    bool restore_files(int version);
    void end_restart();
    void fill(const Region& region, int id) const;

    const std::unique_ptr<Ranks> ranks_;
    const Configuration configuration_;
    Regions regions_;
    std::vector<observer_t> observers_;
    // In the order of names, which is the same on all ranks.
    std::map<std::string, std::unique_ptr<Stream>> streams_;
    std::optional<Checkpoint> checkpoint_;
    std::optional<Restart> restart_;  // goes before the session of its name
    // Names of which Restart_test could not say which versions there are. The same on all ranks.
    std::set<std::string> unanswered_;
};

}  // namespace veloc_on_tailrace
