// The key table, and two of the four ways into a Config: text and environment. (The others are
// config_file.cc and complete_config.cc.)
//
// Every way ends in set_config(), which takes text. So the same code checks a value and refuses it
// in the same words, wherever it came from. The table has the limits of single values, which are
// checked at once, with the line. Limits that depend on another value or on the machine are checked
// in complete_config().
#include "config/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <span>
#include <variant>

#include "base/environment.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/text.h"
#include "base/time_text.h"
#include "base/units.h"
#include "config/failure_domain.h"
#include "config/signal_names.h"
#include "format/epoch_key.h"
#include "format/manifest.h"
#include "format/redundancy.h"
#include "format/shared_file.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

namespace {

// ---- the table ----------------------------------------------------------------------------------

struct Text {
    std::string Config::*member;
    Status (*check)(std::string_view value) = nullptr;  // what else the text must be
};
struct Number {
    uint32_t Config::*member;
    uint32_t least, most;
};
struct Size {
    uint64_t Config::*member;
};
struct Duration {
    uint64_t Config::*milliseconds;
};
struct YesNo {
    bool Config::*member;
};
// A choice's member has a type of its own, which the two functions hide.
struct Choice {
    std::vector<std::string_view> names;  // by number
    void (*set)(Config&, size_t);
    size_t (*get)(const Config&);
};

template <auto member>
Choice choice(std::vector<std::string_view> names) {
    using Value = std::remove_cvref_t<decltype(std::declval<Config>().*member)>;
    return Choice{std::move(names),
                  [](Config& config, size_t index) { config.*member = static_cast<Value>(index); },
                  [](const Config& config) { return static_cast<size_t>(config.*member); }};
}

struct Key {
    std::string_view name;
    std::variant<Text, Number, Size, Duration, YesNo, Choice> kind;
    std::string_view help;
};

static_assert(static_cast<int>(Placement::append) == 0 && static_cast<int>(Placement::contiguous) == 1);
static_assert(static_cast<int>(DirectIo::off) == 0 && static_cast<int>(DirectIo::automatic) == 1 &&
              static_cast<int>(DirectIo::on) == 2 && static_cast<int>(DirectIo::uncached) == 3);
static_assert(static_cast<int>(IoEngine::automatic) == 0 && static_cast<int>(IoEngine::posix) == 1 &&
              static_cast<int>(IoEngine::io_uring) == 2);
static_assert(static_cast<int>(AgentUse::automatic) == 0 && static_cast<int>(AgentUse::required) == 1 &&
              static_cast<int>(AgentUse::none) == 2);
static_assert(static_cast<int>(AgentCarries::automatic) == 0 && static_cast<int>(AgentCarries::yes) == 1 &&
              static_cast<int>(AgentCarries::no) == 2);
static_assert(static_cast<int>(Purpose::checkpoints) == 0 && static_cast<int>(Purpose::outputs) == 1);
static_assert(static_cast<int>(FilesAs::packed) == 0 && static_cast<int>(FilesAs::original) == 1);
static_assert(static_cast<int>(QueuePolicy::wait) == 0 && static_cast<int>(QueuePolicy::skip) == 1 &&
              static_cast<int>(QueuePolicy::drop_oldest) == 2);

int64_t unix_seconds_now() {
    return static_cast<int64_t>(unix_ms_now() / 1000);
}

Status check_signals(std::string_view value) {
    return parse_signals(value).status();
}
Status check_moment(std::string_view value) {
    return value.empty() ? Status() : parse_moment(value, unix_seconds_now()).status();
}

const std::vector<Key>& keys() {
    static const std::vector<Key> table = {
        {"name", Text{&Config::name, check_job_name},
         "The job's name. It is the first part of every file name. Jobs with different names may use a "
         "directory in turn, but not at the same time."},
        {"local_dir", Text{&Config::local_dir},
         "Directory of the node-local tier, in memory or on a local disk. Empty: /dev/shm/tailrace-<uid>, or "
         "a directory below TMPDIR if there is no /dev/shm."},
        {"shared_dir", Text{&Config::shared_dir},
         "Directory for each epoch's K files, which all nodes see. It is created if missing. Required."},
        {"purpose", choice<&Config::purpose>({"checkpoints", "outputs"}),
         "What a session saves. outputs: sets of data that others read. They lie in the directory "
         "NAME.outputs in shared_dir, keep_outputs counts them instead of keep_shared, and no restore takes "
         "them. A program may have such a session beside the one for its checkpoints."},
        {"files", Number{&Config::files, 1, max_files},
         "K, the number of files of a committed epoch; at most 64 per rank."},
        {"leaders_per_file", Number{&Config::leaders_per_file, 0, max_leaders_per_file},
         "How many nodes write one file at the same time. 0: all nodes that share the file, but at most 8, "
         "and fewer if there is little data."},
        {"writers", Number{&Config::writers, 0, 1024},
         "Writer threads of a leader. 0: one per processor, but at least 4 and at most 8."},
        {"buffer_bytes", Size{&Config::buffer_bytes},
         "Size of a transfer buffer: a multiple of 256KiB and of block_bytes, at most 1GiB. A chunk has the "
         "same size, or is smaller if nodes have little data."},
        {"buffers", Number{&Config::buffers, 1, 65536},
         "Number of buffers of a node. Its agent takes at most buffers x buffer_bytes of memory."},
        {"block_bytes", Size{&Config::block_bytes},
         "Alignment of all data in the shared files: a power of two from 4KiB. 0: as the file system "
         "prefers."},
        {"stripe_align", Size{&Config::stripe_align},
         "Nodes that write one file together write multiples of this size at a time, so that no two of them "
         "write into one piece that the file system locks. 0: 64MiB on MooseFS, and whole chunks "
         "elsewhere."},
        {"placement", choice<&Config::placement>({"append", "contiguous"}),
         "Where chunks go in a file. append: to the next free place. contiguous: to a known place for each "
         "rank."},
        {"direct_io", choice<&Config::direct_io>({"off", "auto", "on", "uncached"}),
         "How data of shared files is written and read. on: around the page cache. off: through it. "
         "uncached: through it, without staying there (Linux 6.16 and later). auto: around it where "
         "possible, but reads take cached data from it. Writes fail if on or uncached is not possible."},
        {"io_engine", choice<&Config::io_engine>({"auto", "posix", "io_uring"}),
         "How the shared files are written and read. auto: io_uring if the kernel allows it, else posix."},
        {"queue_depth", Number{&Config::queue_depth, 1, 4096},
         "Requests in flight per thread that writes or reads (io_uring)."},
        {"checksum", YesNo{&Config::checksum},
         "Whether all data gets checksums. save computes them during its copy, and restores verify them."},
        {"copy_threads", Number{&Config::copy_threads, 0, 256},
         "Threads of a rank that copy large regions during save. 0: the number follows from the machine."},
        {"keep_local", Number{&Config::keep_local, 1, 1u << 20},
         "How many epochs stay in the node-local tier."},
        {"keep_shared", Number{&Config::keep_shared, 0, UINT32_MAX},
         "How many epochs stay in the shared directory. 0: all."},
        {"keep_outputs", Number{&Config::keep_outputs, 0, UINT32_MAX},
         "How many epochs of a session with purpose = outputs stay in the shared directory. 0: all."},
        {"shared_every", Number{&Config::shared_every, 1, UINT32_MAX},
         "n: the first save of a session and every n-th save after it go to the shared directory. The other "
         "epochs stay in the node-local tier, except the newest one when the session is closed "
         "(flush_at_close) or the program has died."},
        {"flush_at_close", YesNo{&Config::flush_at_close},
         "Whether closing a session brings its newest epoch to the shared directory, if shared_every or "
         "queue_policy has kept it in the node-local tier."},
        {"files_as", choice<&Config::files_as>({"packed", "original"}),
         "How the program's own files lie in the shared directory. packed: in the epoch's K files. original: "
         "under their own names, in NAME.files/eEPOCH, with a file tailrace.complete that lists them."},
        {"queue_epochs", Number{&Config::queue_epochs, 1, 1u << 20},
         "How many captured epochs may be waiting for their flush or being flushed."},
        {"queue_policy", choice<&Config::queue_policy>({"wait", "skip", "drop_oldest"}),
         "What a save does if queue_epochs epochs are waiting. wait: it waits. skip: it keeps the new epoch "
         "in the node-local tier only. drop_oldest: it keeps older waiting epochs there only."},
        {"redundancy",
         Text{&Config::redundancy, [](std::string_view value) { return parse_redundancy(value).status(); }},
         "How captured epochs survive the loss of nodes before they reach the shared directory. none: not at "
         "all. partner: another node keeps a copy. xor: a set of nodes keeps parity and survives the loss of "
         "one node. rs:K: a set survives the loss of K nodes."},
        {"redundancy_set", Number{&Config::redundancy_set, 2, max_set_nodes},
         "How many nodes form a set for redundancy, as nearly as possible."},
        {"failure_domain", Text{&Config::failure_domain, check_failure_domain},
         "Which nodes may be lost at the same time. file:PATH: lines of a host name and its domain. "
         "command:CMD: the first line of its output on each node, within 30 s. Empty: each machine is a "
         "domain. The nodes of a set are in different domains, if there are enough."},
        {"redundancy_every", Number{&Config::redundancy_every, 1, UINT32_MAX},
         "n: redundancy protects the first save of a session and every n-th save after it."},
        {"bandwidth_cap", Size{&Config::bandwidth_cap},
         "The most bytes per second that each leader writes, and that a node sends for redundancy. 0: no "
         "cap."},
        {"background_nice", Number{&Config::background_nice, 0, 19},
         "By how much the priority of background threads is lowered, as in nice(1)."},
        {"local_sync", YesNo{&Config::local_sync},
         "Whether save also syncs the captured part, so that it survives a power failure if the node-local "
         "tier is a disk."},
        {"agent", choice<&Config::agent>({"auto", "required", "none"}),
         "Whether a session uses its node's agent (`tailrace agent`), which finishes epochs when the program "
         "has died. auto: if there is one. required: no session opens without one. none: never."},
        {"agent_carries", choice<&Config::agent_carries>({"auto", "yes", "no"}),
         "Whether agents that were started with `tailrace agent --mpi` on all nodes carry the epochs while "
         "the program lives, instead of a thread of the program. auto: if MPI was started below "
         "MPI_THREAD_MULTIPLE."},
        {"ranks_per_node", Number{&Config::ranks_per_node, 0, max_ranks},
         "Treats this many ranks of a machine as a node, so that a test can have several nodes on one "
         "machine. 0: a machine is a node."},
        {"record", YesNo{&Config::record},
         "Whether rank 0's node records how long each epoch took, and where the time went."},
        {"record_dir", Text{&Config::record_dir},
         "Directory of the records, one small file per job and shared directory. Empty: the directory "
         "tailrace below XDG_STATE_HOME or ~/.local/state."},
        {"record_bytes", Size{&Config::record_bytes},
         "Largest size of a record file. A new file then begins, and the old one stays as NAME.1."},
        {"started_by", Text{&Config::started_by},
         "A word for the records of what has started the program. `tailrace run` sets one for each attempt, "
         "so that it knows the program's sessions from those of other programs."},
        {"trace_dir", Text{&Config::trace_dir},
         "Directory for traces of the background for Perfetto, one file per run and node. Empty: none."},
        {"save_interval", Duration{&Config::save_interval_ms},
         "should_save says yes when this time has passed since the last save. 0: never for this reason."},
        {"save_every", Number{&Config::save_every, 0, UINT32_MAX},
         "should_save says yes at every n-th call. 0: never for this reason."},
        {"mtbf", Duration{&Config::mtbf_ms},
         "Mean time between failures of the whole job. should_save says yes at the interval that is best for "
         "it and for the cost of the saves so far (Young and Daly). 0: never for this reason."},
        {"job_end", Text{&Config::job_end, check_moment},
         "When the job ends: 2026-11-24T18:00 (local time, or UTC with a Z), 18:00, or seconds since 1970. "
         "should_stop says yes in time for a last save. Empty: SLURM_JOB_END_TIME, if it is set."},
        {"job_minutes", Number{&Config::job_minutes, 0, 100u * 366 * 24 * 60},
         "The job ends this many minutes after the session was opened. 0: unknown."},
        {"stop_before", Duration{&Config::stop_before_ms},
         "How long before the end of the job should_stop says yes. 0: one minute, or twice the time of the "
         "slowest of the last saves with its flush if that is longer, plus the time of three calls."},
        {"stop_signals", Text{&Config::stop_signals, check_signals},
         "Signals that ask the job to stop, such as TERM USR1. Any rank may get them. should_stop then says "
         "yes, and they no longer end the program. Empty: none are caught."},
    };
    return table;
}

const Key* find_key(std::string_view name) {
    for (const Key& key : keys()) {
        if (key.name == name) return &key;
    }
    return nullptr;
}

std::string nearest_key(std::string_view name, std::initializer_list<std::string_view> more = {}) {
    std::vector<std::string_view> names(more);
    for (const Key& key : keys()) names.push_back(key.name);
    return std::string(nearest_name(name, names));
}

Status unknown_key(std::string_view name) {
    const std::string nearest = nearest_key(name);
    return Status(Code::invalid_argument,
                  fmt::format("there is no key \"{}\"; {}", shortened(name),
                              is_near(name, nearest) ? fmt::format("the nearest is \"{}\"", nearest)
                                                     : "`tailrace config` lists all"));
}

Status refused(const Key& key, std::string_view value, std::string_view why) {
    return Status(Code::invalid_argument, fmt::format("{} = \"{}\": {}", key.name, shortened(value), why));
}

constexpr std::array<std::pair<std::string_view, bool>, 8> yes_no_names = {{{"yes", true},
                                                                            {"no", false},
                                                                            {"true", true},
                                                                            {"false", false},
                                                                            {"on", true},
                                                                            {"off", false},
                                                                            {"1", true},
                                                                            {"0", false}}};

// ---- one setter and one getter per kind ---------------------------------------------------------

Status set_value(Config& config, const Key& key, const Text& kind, std::string_view value) {
    if (value.find('\0') != std::string_view::npos) return refused(key, "...", "a NUL byte is not allowed");
    if (kind.check != nullptr)
        if (Status status = kind.check(value); !status.ok()) return refused(key, value, status.message());
    config.*kind.member = std::string(value);
    return {};
}

Status set_value(Config& config, const Key& key, const Number& kind, std::string_view value) {
    uint64_t number = 0;
    auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && rest == value.data() + value.size();
    if (!whole || number < kind.least || number > kind.most)
        return refused(key, value,
                       fmt::format("a whole number from {} to {} is expected", kind.least, kind.most));
    config.*kind.member = static_cast<uint32_t>(number);
    return {};
}

Status set_value(Config& config, const Key& key, const Size& kind, std::string_view value) {
    Result<uint64_t> bytes = parse_bytes(value);
    if (!bytes.ok()) return bytes.status().with_context(key.name);
    config.*kind.member = *bytes;
    return {};
}

Status set_value(Config& config, const Key& key, const Duration& kind, std::string_view value) {
    Result<uint64_t> milliseconds = parse_duration_ms(value);
    if (!milliseconds.ok()) return milliseconds.status().with_context(key.name);
    config.*kind.milliseconds = *milliseconds;
    return {};
}

Status set_value(Config& config, const Key& key, const YesNo& kind, std::string_view value) {
    std::vector<std::string_view> names;
    for (const auto& [name, meaning] : yes_no_names) {
        if (name == value) {
            config.*kind.member = meaning;
            return {};
        }
        names.push_back(name);
    }
    return refused(key, value,
                   fmt::format("yes or no (or true, false, on, off, 1, 0) is expected; the nearest is \"{}\"",
                               nearest_name(value, names)));
}

Status set_value(Config& config, const Key& key, const Choice& kind, std::string_view value) {
    for (size_t i = 0; i < kind.names.size(); ++i) {
        if (kind.names[i] == value) {
            kind.set(config, i);
            return {};
        }
    }
    return refused(key, value,
                   fmt::format("one of {} is expected; the nearest is \"{}\"", fmt::join(kind.names, ", "),
                               nearest_name(value, kind.names)));
}

std::string get_value(const Config& config, const Text& kind) {
    return config.*kind.member;
}
std::string get_value(const Config& config, const Number& kind) {
    return std::to_string(config.*kind.member);
}
std::string get_value(const Config& config, const Size& kind) {
    const uint64_t bytes = config.*kind.member;
    static constexpr std::array<std::pair<uint64_t, std::string_view>, 3> units = {
        {{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}}};
    for (const auto& [unit, name] : units) {
        if (bytes != 0 && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, name);
    }
    return std::to_string(bytes);
}
std::string get_value(const Config& config, const Duration& kind) {
    return duration_text(config.*kind.milliseconds);
}
std::string get_value(const Config& config, const YesNo& kind) {
    return config.*kind.member ? "yes" : "no";
}
std::string get_value(const Config& config, const Choice& kind) {
    const size_t index = kind.get(config);
    return index < kind.names.size() ? std::string(kind.names[index]) : fmt::format("number {}", index);
}

std::string get_key(const Config& config, const Key& key) {
    return std::visit([&](const auto& kind) { return get_value(config, kind); }, key.kind);
}

std::string type_of(const Text&) {
    return "text";
}
std::string type_of(const Number&) {
    return "number";
}
std::string type_of(const Size&) {
    return "size";
}
std::string type_of(const Duration&) {
    return "time";
}
std::string type_of(const YesNo&) {
    return "yes/no";
}
std::string type_of(const Choice& kind) {
    return fmt::format("{}", fmt::join(kind.names, " | "));
}

// ---- environment ------------------------------------------------------------------------------

constexpr std::string_view environment_prefix = "TAILRACE_";
// An unknown variable that is almost a setting is a typing error, and is refused: two wrong letters
// at most, and one in four. A variable that is farther away may belong to somebody else, so a
// warning is enough. (Module systems set <NAME>_ROOT, <NAME>_HOME and the like; the latter is two
// letters from NAME.)
bool is_typing_error(std::string_view name, std::string_view setting) {
    return edit_distance(name, setting) <= std::min<size_t>(2, name.size() / 4);
}

// These are neither settings nor typing errors. The C interface, the log and `tailrace report` read
// the first three. The last two are read by the project's tests, whose processes open sessions.
constexpr std::array<std::string_view, 5> other_variables = {
    "TAILRACE_CONFIG", "TAILRACE_LOG", "TAILRACE_PYTHON", "TAILRACE_SEED", "TAILRACE_CLUSTER_OPTIONAL"};
// Variables of collective I/O, which reads them itself.
constexpr std::array<std::string_view, 2> other_parts = {"TAILRACE_COLLECTIVE_", "TAILRACE_MPIIO"};

}  // namespace

const std::vector<ConfigKey>& config_keys() {
    // The views point into `storage`, which is built once and never changes.
    struct Described {
        std::vector<std::string> storage;
        std::vector<ConfigKey> keys;
    };
    static const Described described = [] {
        Described made;
        made.storage.reserve(2 * keys().size());
        for (const Key& key : keys()) {
            made.storage.push_back(std::visit([](const auto& kind) { return type_of(kind); }, key.kind));
            made.storage.push_back(get_key(Config{}, key));
            made.keys.push_back(
                {key.name, made.storage[made.storage.size() - 2], made.storage.back(), key.help});
        }
        return made;
    }();
    return described.keys;
}

Status set_config(Config& config, std::string_view name, std::string_view value) {
    const Key* key = find_key(name);
    if (key == nullptr) return unknown_key(name);
    return std::visit([&](const auto& kind) { return set_value(config, *key, kind, value); }, key->kind);
}

Result<std::string> get_config(const Config& config, std::string_view name) {
    const Key* key = find_key(name);
    if (key == nullptr) return unknown_key(name);
    return get_key(config, *key);
}

Status load_config_environment(Config& config) {
    Config changed = config;
    for (const auto& [variable, value] : environment_variables(environment_prefix)) {
        if (std::find(other_variables.begin(), other_variables.end(), variable) != other_variables.end() ||
            std::any_of(other_parts.begin(), other_parts.end(),
                        [name = variable](std::string_view part) { return name.starts_with(part); }))
            continue;
        std::string name(variable.substr(environment_prefix.size()));
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        if (find_key(name) == nullptr) {
            std::string nearest = nearest_key(name, {"config", "log"});
            const bool typing_error = is_typing_error(name, nearest);
            for (char& c : nearest) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
            auto sentence =
                fmt::format("the environment variable {} is not a setting of tailrace; the nearest is {}{}",
                            variable, environment_prefix, nearest);
            if (typing_error) return Status(Code::invalid_argument, std::move(sentence));
            log(LogLevel::warning, "{}", sentence);
            continue;
        }
        if (value.empty()) continue;  // the same as not set
        TAILRACE_TRY(
            set_config(changed, name, value).with_context(fmt::format("environment variable {}", variable)));
    }
    config = std::move(changed);
    return {};
}

std::string shared_settings(const Config& config) {
    // The settings that decide where bytes go, which epochs exist, which messages are sent, and what
    // every rank answers by itself.
    // Paths of the node-local tier, threads and priorities may differ from node to node. shared_dir
    // comes last, because a path may hold spaces.
    static constexpr std::array<std::string_view, 22> names = {
        "name",         "files",          "leaders_per_file", "buffer_bytes",   "buffers",
        "block_bytes",  "stripe_align",   "placement",        "keep_shared",    "keep_local",
        "shared_every", "queue_epochs",   "queue_policy",     "ranks_per_node", "record",
        "redundancy",   "redundancy_set", "redundancy_every", "save_every",     "flush_at_close",
        "files_as",     "shared_dir"};
    std::string text;
    for (std::string_view name : names) {
        if (!text.empty()) text += ' ';
        text += fmt::format("{}={}", name, get_key(config, *find_key(name)));
    }
    return text;
}

}  // namespace tailrace::internal
