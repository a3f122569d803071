// client.h - SCR's calls on a tailrace session: the order in which they may come, and which datasets they
// mean.
//
// An output goes from start_output over route_file to complete_output:
//
//   1  start: rank 0 chooses the id. Of the bypass way the name is dropped from the index, because the
//      program may now overwrite the files of an older dataset of this name.
//   2  complete: all ranks agree that the program has written its files; only then does anybody look at them
//   3  the files are synced, and all ranks agree that they are there
//   4  rank 0 adds the dataset to the index. It does not count yet.
//   5  the epoch is saved. Its commit completes the dataset.
//   6  the files of an output get their names below the prefix, if they do not have them already. If that
//      fails, the dataset is complete all the same.
//
// If a step fails on any rank, it fails on all, and up to step 5 the dataset is dropped.
//
// A restart goes from have_restart, which also makes sure that the files are there, over start_restart and
// route_file to complete_restart. have_restart passes over what it cannot bring back, for this run. Only
// complete_restart(false) marks a checkpoint as failed for good, because there the program has seen its data.
//
// A failure is a line of the log and false. Calls throw tailrace::Error only if MPI fails. All calls but
// route_file are collective. The state depends only on calls and on what all ranks have agreed on, so it is
// the same on all ranks. One thread at a time may call.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/together.h"
#include "dataset_files.h"
#include "index.h"
#include "prefix.h"
#include "sessions.h"
#include "settings.h"

namespace scr_on_tailrace {

using on_tailrace::complain;
using on_tailrace::inform;
using on_tailrace::Ranks;

class Client : private on_tailrace::Together {
  public:
    // Opens the session. Null after a failure. `settings`: nothing if this rank cannot use its configuration,
    // which was said. Collective.
    static std::unique_ptr<Client> open(std::unique_ptr<Ranks> ranks, std::optional<Settings> settings);
    // Closes what finalize() has not closed. Collective.
    ~Client();
    // Waits for everything, and closes the session.
    bool finalize();

    bool start_checkpoint();
    // Without a name it is scr.dataset.ID.
    bool start_output(const std::optional<std::string>& name, unsigned flags);
    bool complete_checkpoint(bool valid);
    bool complete_output(bool valid);
    // In a dataset or a restart `path` is what it becomes, also after a failure; otherwise it is `name`.
    bool route_file(const std::string& name, std::string& path);

    // `name` gets the name of the checkpoint to restart from, if there is one.
    bool have_restart(std::optional<std::string>& name);
    bool start_restart(std::string& name);
    bool complete_restart(bool valid);

    bool need_checkpoint(bool& yes);
    bool should_exit(bool& yes);

    bool current(const std::string& name);
    bool drop(const std::string& name);
    bool remove(const std::string& name);

  private:
    enum class State { idle, checkpoint, output, restart };
    struct InFlight {
        Dataset dataset;
        std::unique_ptr<Output> output;
    };

    Client(std::unique_ptr<Ranks> ranks, Settings settings);

    bool is(State wanted, const char* call) const;
    bool open_sessions();
    bool begin(const char* call, const std::optional<std::string>& name, unsigned flags, State state);
    bool complete(const char* call, bool valid);
    bool agree_on_files(const char* call, bool valid);
    // The region that says in the epoch which dataset it is.
    void describe_dataset();
    bool save(const char* call);
    // Waits for all datasets in flight but the `keep` newest, and tells which are lost. Returns whether none
    // is.
    bool settle(const char* call, size_t keep);

    std::vector<uint64_t> complete_epochs(tailrace::Session& session);
    // The dataset that a name means; nothing, and said, if there is none.
    std::optional<Dataset> find(const char* call, const std::string& name);
    std::optional<Dataset> next_restart(const char* call);
    bool bring_back(const char* call, const Dataset& dataset);
    std::vector<Listed> below_prefix(const Dataset& dataset);

    // Of a dataset whose session is open.
    Place place(const Dataset& dataset);

    const Settings settings_;
    const Prefix prefix_;
    const IndexFile index_;
    Sessions sessions_;
    uint64_t next_id_ = 1;
    State state_ = State::idle;

    Dataset dataset_;                   // in the states checkpoint, output
    std::unique_ptr<Output> output_;    // then
    std::string description_;           // of it; in the session's regions if it is not empty
    bool routed_all_ = true;            // no route_file of this rank has failed
    std::vector<InFlight> in_flight_;   // captured, and not waited for; the same on all ranks
    bool told_of_failure_ = false;      // closing the session tells of it once more
    std::optional<Dataset> offered_;    // by have_restart; its files are there
    std::unique_ptr<Restart> restart_;  // of that one
    std::set<uint64_t> passed_over_;    // by have_restart; the same on all ranks
};

}  // namespace scr_on_tailrace
