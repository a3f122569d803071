// Config: every setting of a session, where it may come from, and what its values mean.
//
// Later sources win: defaults < configuration file (TOML) < environment TAILRACE_<KEY> < options
// set in code. Unknown keys and bad values are refused, with the line and the nearest right name.
// One table (config_keys) describes every key. Parsing, the environment, `tailrace config` and the
// table in docs/settings.md all come from it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/placement.h"
#include "storage/storage.h"

namespace tailrace::internal {

enum class QueuePolicy {
    wait,         // save waits until there is room
    skip,         // the new epoch stays in the node-local tier only
    drop_oldest,  // queued epochs give way to the newest, and stay in the node-local tier only
};

// What a session saves.
enum class Purpose {
    checkpoints,
    outputs,  // what others read: in a directory of their own, with their own retention, and never restored
};

// How files that the program writes by itself lie in the shared directory.
enum class FilesAs {
    packed,    // in the epoch's K files only
    original,  // as the program wrote them, beside the shared files
};

// Whether a session uses the agent process of its node.
enum class AgentUse {
    automatic,  // if there is one
    required,   // a session without one is refused
    none,
};

// Whether agent processes that reach each other carry the epochs of a program that lives.
enum class AgentCarries {
    automatic,  // where no thread of ours may call MPI beside the program
    yes,
    no,
};

struct Config {
    std::string name = "tailrace";  // the job's name, the first part of every file name
    std::string local_dir;          // default: /dev/shm/tailrace-<uid>
    std::string shared_dir;         // required; after complete_config NAME.outputs in it, for outputs
    Purpose purpose = Purpose::checkpoints;
    uint32_t files = 1;  // K
    uint32_t leaders_per_file = 0;
    uint32_t writers = 0;              // threads per leader; 0: chosen from the machine
    uint64_t buffer_bytes = 64 << 20;  // also the chunk size
    uint32_t buffers = 8;
    uint64_t block_bytes = 0;   // 0: ask the file system
    uint64_t stripe_align = 0;  // 0: what suits the file system
    Placement placement = Placement::append;
    DirectIo direct_io = DirectIo::automatic;
    IoEngine io_engine = IoEngine::automatic;
    uint32_t queue_depth = 32;  // io_uring requests in flight per thread
    bool checksum = true;
    uint32_t copy_threads = 0;   // per rank, for large regions; 0: chosen from the machine
    uint32_t keep_local = 2;     // epochs in the node-local tier, at least 1
    uint32_t keep_shared = 0;    // epochs in the shared tier; 0: all
    uint32_t keep_outputs = 0;   // in place of keep_shared, for outputs
    uint32_t shared_every = 1;   // saves 0, n, 2n, ... of a session go to the shared tier
    bool flush_at_close = true;  // the newest epoch, if it was kept in the node-local tier
    FilesAs files_as = FilesAs::packed;
    uint32_t queue_epochs = 2;  // captured epochs that may wait for their flush or be in it
    QueuePolicy queue_policy = QueuePolicy::wait;
    std::string redundancy = "none";  // parse_redundancy() takes it
    uint32_t redundancy_set = 8;      // nodes
    std::string failure_domain;       // see failure_domain.h; empty: a machine is one
    uint32_t redundancy_every = 1;    // saves 0, n, 2n, ... of a session are protected
    uint64_t bandwidth_cap = 0;       // bytes per second and leader; 0: none
    uint32_t background_nice = 10;
    // Save also syncs the captured part (for tiers that survive a power cut).
    bool local_sync = false;
    AgentUse agent = AgentUse::automatic;
    AgentCarries agent_carries = AgentCarries::automatic;
    uint32_t ranks_per_node = 0;       // 0: a node is a machine
    bool record = true;                // keep a record per epoch (docs/records.md)
    std::string record_dir;            // default: tailrace below XDG_STATE_HOME or ~/.local/state
    uint64_t record_bytes = 16 << 20;  // a record file grows up to this; one older file is kept
    std::string started_by;            // for the records
    std::string trace_dir;             // empty: no trace
    // When should_save says yes; 0: not for this reason.
    uint64_t save_interval_ms = 0;
    uint32_t save_every = 0;  // calls
    uint64_t mtbf_ms = 0;     // mean time between failures of the job
    // When should_stop says yes. The end of the job is the first that is known of these two.
    std::string job_end;  // after complete_config: seconds since 1970, or empty
    uint32_t job_minutes = 0;
    uint64_t stop_before_ms = 0;  // 0: as saves have taken
    std::string stop_signals;     // parse_signals() takes it apart; empty: none are caught
};

struct ConfigKey {
    std::string_view name;
    std::string_view type;           // "text", "number", "size", "time", "yes/no", or "a | b | c"
    std::string_view default_value;  // as it would be written
    std::string_view help;           // one sentence or two
};
const std::vector<ConfigKey>& config_keys();

// Sets one key from text. invalid_argument names the key, the value, what is allowed and, for an
// unknown key, the nearest right one.
Status set_config(Config& config, std::string_view key, std::string_view value);
// The current value of a key, in the form that set_config takes.
Result<std::string> get_config(const Config& config, std::string_view key);

// Reads a TOML file over `config`. Errors name path and line, and change nothing.
Status load_config_file(Config& config, const std::string& path);
// Applies TAILRACE_<KEY> for every key. TAILRACE_CONFIG, TAILRACE_LOG, the variables of collective
// I/O and those that the project's tests read are not keys. Any other TAILRACE_ variable is refused
// (invalid_argument) if it is almost a key, and otherwise logged as a warning, each with the
// nearest name.
Status load_config_environment(Config& config);

// Checks values against each other, and fills in those that depend on the machine (local_dir,
// writers, copy_threads) or on the job (job_end, which SLURM_JOB_END_TIME gives under Slurm). `files` may be
// at most 64 per rank. Gives outputs their directory and retention. A second call changes nothing.
Status complete_config(Config& config, int rank_count);

// The settings that must be equal on all ranks, as one text to compare: "files=2 buffer_bytes=...".
std::string shared_settings(const Config& config);

}  // namespace tailrace::internal
