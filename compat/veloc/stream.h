// stream.h - the checkpoints of one name: a tailrace session with a shared directory of its own, in which a
// version is an epoch.
//
// Epochs of a session ascend. So a version that does not is begun in a new session: a new run of tailrace's,
// which leaves the later versions of the one before behind.
//
// A version takes the steps capture, then save or give_up; or route_file, then save_file or give_up. Versions
// that were saved are pending until settle() or wait() finds that they have ended.
//
// Calls throw tailrace::Error. What ended badly in the background is kept for wait() to tell.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tailrace.hpp>
#include <vector>

#include "common/ranks.h"
#include "config.h"

namespace veloc_on_tailrace {

using on_tailrace::Ranks;

// Throws tailrace::Error for what is no name of a checkpoint.
void check_name(const std::string& name);

// Memory to capture under a name. It is read by capture() only.
struct Piece {
    std::string name;
    void* memory;
    uint64_t bytes;
};

class Stream {
  public:
    // Opens the session. Collective. All arguments must outlive it.
    Stream(Ranks& ranks, const Configuration& configuration, const std::string& name);

    // The shared directory of a name.
    static std::string directory(const Ranks& ranks, const Configuration& configuration,
                                 const std::string& name);
    static constexpr const char* job = "veloc";

    // Whether a version can be the next one of this session. If not, begin() makes a new session, and is
    // collective. If that fails, the stream cannot be used any more.
    bool ascends(int version) const { return !last_ || static_cast<uint64_t>(version) > *last_; }
    void begin(int version);
    void capture(int version, const std::vector<Piece>& pieces);
    void save(int version);
    // The path for this rank's file of a version. Nothing is there, unless it was asked for before.
    std::string route_file();
    void save_file(int version);
    // The version fails on all ranks, for this reason.
    void give_up(int version, const std::string& why);

    // Notices which pending versions have ended. Returns whether all have. Collective without a background.
    bool settle();
    void wait_for_pending();
    // Waits for them, and returns why versions have failed since the last call.
    std::vector<std::string> wait();
    // Waits, and closes the session; returns what has failed. Collective.
    std::vector<std::string> close();

    // The versions that can be restored, in the order in which a restore prefers them. Collective.
    std::vector<uint64_t> versions();
    tailrace::Reader open(int version) { return session_->open_epoch(static_cast<uint64_t>(version)); }

    // A rank has at most one file, and this is what it is called in an epoch.
    static constexpr const char* file_region = "file/veloc";
    // Brings the files of a version back. `of_all_ranks`: each rank may ask for each rank's. Collective.
    void restore_files(int version, bool of_all_ranks);
    std::string restored_file(uint32_t rank) { return session_->find_file(file_name, rank); }
    void release_files() { session_->release_files(); }

  private:
    static constexpr const char* file_name = "veloc";

    void open_session();
    void enter(int version, const std::function<void(uint64_t)>& save);
    void register_all(const std::vector<Piece>& pieces);
    void forget_ended();  // a call of this rank alone
    // A pending version has ended badly, or a wait for it has.
    void note_failure(uint64_t version, const std::string& why);
    // Ends the session. Afterwards there is none until open_session().
    void close_session();

    Ranks& ranks_;
    const Configuration& configuration_;
    const std::string name_;
    std::optional<tailrace::Session> session_;
    std::map<std::string, std::pair<void*, uint64_t>> registered_;
    bool files_begun_ = false;
    std::string routed_;            // empty: no file since the last version
    std::optional<uint64_t> last_;  // the newest version of this session
    std::vector<uint64_t> pending_;
    std::vector<std::string> failures_;
    std::set<std::string> told_;  // why versions of this session have failed: closing it says so once more
};

}  // namespace veloc_on_tailrace
