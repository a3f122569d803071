// client.h - FTI's calls on tailrace sessions: one session for each level, opened with its first checkpoint.
//
// A checkpoint is an epoch of its level's session. The program's number for it may be any, so it is data of
// the epoch, and epochs are numbered in the order in which all levels are saved. The newest checkpoint of all
// levels is thus the one with the greatest epoch.
//
// A checkpoint goes like this. If a step fails on any rank, it fails on all.
//
//   1  the session of the level is opened, if it is not
//   2  the protected regions are saved. This makes the checkpoint exist on level 1.
//   3  ranks wait until the level is reached, unless the configuration says that they need not
//   4  with the first checkpoint of the run, rank 0 writes into the configuration file that the next start is
//   a
//      restart. So a file that says so has a checkpoint.
//
// A failure is a line of the log, and a result. Calls throw tailrace::Error only if MPI fails. Calls marked
// so are collective, and have the same result on all ranks. One thread at a time may call.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/together.h"
#include "schedule.h"
#include "settings.h"
#include "types.h"

namespace fti_on_tailrace {

using on_tailrace::complain;
using on_tailrace::Ranks;

// What an epoch has: the program's number for the checkpoint, and its regions.
inline constexpr std::string_view id_region = "fti/checkpoint";
inline constexpr std::string_view region_prefix = "fti/";
inline std::string region_name(int id) {
    return std::string(region_prefix) + std::to_string(id);
}

// FTI's numbers; fti.h has them for the program.
enum Result { good = 0, failed = -1, not_recovered = -2, taken = 1 };

class Client : private on_tailrace::Together {
  public:
    // Reads the configuration. Null after a failure. Collective.
    static std::unique_ptr<Client> open(std::unique_ptr<Ranks> ranks, const std::string& config_file);
    // Closes the sessions that finalize() has not closed, and removes nothing. Collective.
    ~Client();
    // Collective.
    Result finalize();

    // Whether what the configuration asks for is there: not_recovered if a restart has found no checkpoint.
    Result begun() const { return begun_; }
    // 0 on a first run and after recover(); otherwise what the configuration file says, 1 or 2.
    int status() const { return status_; }

    Types& types() { return types_; }
    Result protect(int id, void* memory, int64_t count, int type);
    // Bytes; 0 if there are none.
    int64_t stored_size(int id) const;
    void* resize(int id, void* memory);

    // Collective.
    Result checkpoint(int id, int level);
    Result snapshot();
    Result recover();

    Result begin_recovering();
    Result recover_one(int id);
    Result end_recovering() { return good; }

  private:
    struct Region {
        void* memory;
        uint64_t bytes;
    };
    // A checkpoint that can be recovered.
    struct Saved {
        int level;
        uint64_t epoch;
        int id;
        std::map<int, uint64_t> bytes;  // of each region of this rank
    };

    Client(std::unique_ptr<Ranks> ranks, std::string config_file, Settings settings);

    bool begin();
    // Under a new name.
    bool begin_run(const char* call);
    bool write_restart(const char* call, int failure);
    // The directories of a level, or of all.
    std::string shared(int level) const { return shared() + "/" + level_name(level); }
    std::string shared() const { return settings_.glbl_dir + "/" + settings_.exec_id + "/" + own_name; }
    std::string local() const { return settings_.ckpt_dir + "/" + settings_.exec_id + "/" + own_name; }
    static constexpr const char* own_name = "tailrace";
    static std::string level_name(int level) { return std::string("l").append(std::to_string(level)); }
    tailrace::Session& session(int level) { return *sessions_[level]; }
    bool open_session(const char* call, int level);
    bool close_sessions(const char* call);

    // Makes saved_ the newest checkpoint that can be recovered, if there is one. False if it cannot be told,
    // because a level cannot be looked at.
    bool find_checkpoint(const char* call);
    // "EPOCH LEVEL" in lines, the newest first, as rank 0 sees them.
    std::optional<std::string> known_checkpoints(const char* call);
    // Opens it, and makes sure of its data.
    bool open_checkpoint(const char* call, int level, uint64_t epoch);
    bool reopen(const char* call);
    bool save(const char* call, int level, uint64_t epoch, int id);
    bool wait_for(const char* call, int level, uint64_t epoch);
    bool settle(const char* call);
    bool fits(const char* call) const;
    void fill(int id, const Region& region) const;
    void remove_checkpoints(bool all);

    const std::string config_file_;
    Settings settings_;
    Result begun_ = good;
    int status_ = 0;
    int written_failure_ = -1;  // in the configuration file, by this run
    Types types_;
    std::map<int, Region> regions_;
    ByLevel<std::optional<tailrace::Session>> sessions_;
    uint64_t next_epoch_ = 1;
    std::optional<Saved> saved_;                       // the checkpoint that recover() takes
    std::optional<tailrace::Reader> reader_;           // of it; goes before its session
    std::optional<std::pair<int, uint64_t>> pending_;  // level and epoch that nobody has waited for
    bool told_of_level_ = false;  // that the program has asked for one that is another one here

    Schedule schedule_;
    std::optional<std::chrono::steady_clock::time_point> first_snapshot_;
    int next_id_ = 1;  // of the checkpoints that snapshot() takes
    int iterations_ = 0;
    int until_decision_ = 1;
};

}  // namespace fti_on_tailrace
