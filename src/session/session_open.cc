// Session: open, recovery of what an earlier run left, close.
//
// open, step by step; after each, all ranks agree before anyone goes on:
//   1. settings that must be equal are compared, the topology follows from the hosts;
//   2. rank 0 makes, locks and cleans the shared directory; every representative makes and locks its
//      directory of the node-local tier;
//   3. the run gets its number, above every number seen in either tier;
//   4. captured epochs of earlier runs that should be in the shared tier are verified and queued;
//   5. the agents begin.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <system_error>
#include <thread>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "base/units.h"
#include "format/codec.h"
#include "session/session.h"
#include "shared/epoch_files.h"
#include "storage/lock_pieces.h"
#include "tailrace.h"  // for its version

namespace tailrace {

namespace {

constexpr uint32_t most_text_bytes = 1 << 20;

// The key under which two texts of shared_settings() first differ: "a=1 b=2 shared_dir=/some where", where
// only the last value may hold spaces.
std::string first_different_key(std::string_view a, std::string_view b) {
    const size_t at =
        static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    size_t key = a.rfind(" shared_dir=", at);
    if (key == std::string_view::npos) key = at == 0 ? at : a.rfind(' ', at - 1);
    key = key == std::string_view::npos || a[key] != ' ' ? 0 : key + 1;
    const auto rest = a.substr(key);
    return std::string(rest.substr(0, rest.find('=')));
}

// A thread that cannot be had must be this rank's failure, which the others hear of.
Status with_threads(const std::function<Status()>& work) {
    try {
        return work();
    } catch (const std::system_error& error) {
        return Status(
            Code::out_of_memory,
            fmt::format("starting the threads of the background: {}; nothing was opened", error.what()));
    }
}

// A program that was killed is gone a moment before its locks are, so a busy directory is tried again.
Result<std::unique_ptr<DirectoryLock>> lock_patiently(Storage& storage, const std::string& directory) {
    using namespace std::chrono_literals;
    const auto deadline = std::chrono::steady_clock::now() + 1s;
    while (true) {
        auto lock = storage.lock_directory(directory);
        if (lock.ok() || lock.status().code() != Code::busy || std::chrono::steady_clock::now() >= deadline)
            return lock;
        std::this_thread::sleep_for(20ms);
    }
}

std::optional<PartFileName> name_of(const Leftover& leftover) {
    return parse_part_file_name(leftover.path.substr(leftover.path.rfind('/') + 1));
}

// Once in a program: what it says is true of every session.
void warn_of_collective_saves() {
    static std::atomic<bool> said{false};
    if (said.exchange(true)) return;
    log(LogLevel::warning,
        "MPI runs below MPI_THREAD_MULTIPLE: save and wait are collective, and every node writes its own "
        "part of "
        "the files. To save without waiting for other ranks, start MPI by MPI_Init_thread with "
        "MPI_THREAD_MULTIPLE in place of MPI_Init; if the program does so, its MPI library does not provide "
        "it");
}

uint64_t random_number() {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
}

}  // namespace

Session::Session(Config config, std::shared_ptr<Transport> transport, std::shared_ptr<Storage> local,
                 std::shared_ptr<Storage> shared)
    : config_(std::move(config)),
      transport_(std::move(transport)),
      local_(std::move(local)),
      shared_(std::move(shared)) {}

Session::~Session() {
    if (!began_ || closed_) return;
    auto closed = close();
    if (!closed.ok())
        log(LogLevel::warning, "closing a session of {}: {}", config_.shared_dir, closed.message());
}

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(Config config, std::shared_ptr<Transport> transport,
                                                         std::shared_ptr<Storage> local,
                                                         std::shared_ptr<Storage> shared) {
    auto session = std::make_unique<Session>(std::move(config), std::move(transport), std::move(local),
                                             std::move(shared));
    TAILRACE_TRY(session->begin());
    return std::unique_ptr<Checkpointer>(std::move(session));
}

Status Session::begin() {
    TAILRACE_TRY(learn_ranks());
    if (rank() == 0 && quiet() && rank_count() > 1) warn_of_collective_saves();
    SharedInventory inventory;
    TAILRACE_TRY(agree(*transport_, take_shared_directory(inventory)));
    uint32_t greatest_local_run = 0;
    TAILRACE_TRY(agree(*transport_, take_local_directory(greatest_local_run)));
    TAILRACE_TRY(agree(*transport_, agree_on_run(inventory, greatest_local_run)));
    TAILRACE_TRY(recover(inventory));
    TAILRACE_TRY(agree(*transport_, with_threads([&]() -> Status {
        if (agent_) agent_->begin();
        return {};
    })));
    if (quiet()) TAILRACE_TRY(carry_out_quiet_orders());
    began_ = true;
    return {};
}

// Collective; the outcome is the same on every rank without agreeing.
Status Session::learn_ranks() {
    ByteWriter out;
    out.put_string(shared_settings(config_));
    out.put_string(transport_->host());
    TAILRACE_ASSIGN(const auto all, transport_->allgather(out.bytes()));
    std::string settings_of_root;
    Status different;
    for (size_t r = 0; r < all.size(); ++r) {
        ByteReader in(all[r]);
        const auto settings = in.get_string(most_text_bytes);
        hosts_.push_back(in.get_string(most_text_bytes));
        if (!in.at_end())
            return Status(Code::transport, fmt::format("the settings of rank {} could not be decoded", r));
        if (r == 0) settings_of_root = settings;
        if (!different.ok() || settings == settings_of_root) continue;
        const auto key = first_different_key(settings_of_root, settings);
        different = Status(Code::invalid_argument,
                           fmt::format("setting {} must be the same on all ranks, but ranks 0 and {} differ; "
                                       "nothing was opened (rank 0: {}; rank {}: {})",
                                       key, r, settings_of_root, r, settings));
    }
    TAILRACE_TRY(different);
    topology_ = make_topology(hosts_, config_.ranks_per_node);
    node_ = topology_.node_of_rank[static_cast<size_t>(rank())];
    representative_ = topology_.representative(node_) == rank();
    tier_ = local_tier(config_.local_dir, config_.shared_dir, config_.name);
    return {};
}

Status Session::take_shared_directory(SharedInventory& inventory) {
    if (rank() != 0) return {};
    const auto& directory = config_.shared_dir;
    TAILRACE_TRY(shared_->make_directories(directory).with_context("making the shared directory"));
    auto lock = lock_patiently(*shared_, directory);
    if (lock.ok())
        shared_lock_ = std::move(*lock);
    else if (lock.status().code() == Code::busy)
        return lock.status().with_context(
            fmt::format("another session uses {} (one session at a time per directory)", directory));
    else if (lock.status().code() == Code::unsupported)
        log(LogLevel::info, "{} cannot be locked, so a second session on it would not be noticed: {}",
            directory, lock.status().message());
    else
        return lock.status();
    TAILRACE_ASSIGN(inventory, clean_shared(*shared_, directory, config_.name));
    block_bytes_ = config_.block_bytes;
    if (block_bytes_ == 0) {
        TAILRACE_ASSIGN(const auto space, shared_->space(directory));
        block_bytes_ = space.block_bytes;
        // A file system may like blocks that do not divide the buffers; then the largest that do.
        while (block_bytes_ > 512 && config_.buffer_bytes % block_bytes_ != 0) block_bytes_ /= 2;
    }
    if (config_.buffer_bytes == 0 || config_.buffer_bytes % block_bytes_ != 0)
        return Status(Code::invalid_argument,
                      fmt::format("buffer_bytes = {} is not a multiple of block_bytes = {}",
                                  config_.buffer_bytes, block_bytes_));
    stripe_align_ = config_.stripe_align != 0 ? config_.stripe_align : lock_piece_bytes_of(directory);
    stripe_align_ = align_up(stripe_align_, block_bytes_);
    return {};
}

Status Session::take_local_directory(uint32_t& greatest_run) {
    if (!representative_) return {};
    const auto own = tier_.directory(node_);
    TAILRACE_TRY(local_->make_directories(own).with_context("making the node-local directory"));
    auto lock = lock_patiently(*local_, own);
    if (lock.ok())
        local_lock_ = std::move(*lock);
    else if (lock.status().code() == Code::busy)
        return lock.status().with_context(
            fmt::format("another session uses {} (one session at a time)", own));
    else if (lock.status().code() != Code::unsupported)
        return lock.status();
    TAILRACE_ASSIGN(const auto directories, directories_of_node(*local_, tier_, node_, topology_, hosts_));
    for (const auto& directory : directories) {
        TAILRACE_ASSIGN(const auto listing, list_tier(*local_, tier_, directory, config_.name));
        for (const auto& part : listing.parts) {
            greatest_run = count_run(greatest_run, part.header.key.run);
            old_parts_.push_back({node_, part.path, part.header});
        }
        for (const auto& leftover : listing.leftovers) {
            const auto name = name_of(leftover);
            if (name) greatest_run = count_run(greatest_run, name->key.run);
            if (!name || !name->unfinished) {
                log(LogLevel::warning, "a captured part cannot be used and is left as it is: {}",
                    leftover.why.message());
                continue;
            }
            auto removed = local_->remove(leftover.path);
            if (!removed.ok())
                log(LogLevel::warning, "an unfinished captured part stays: {}", removed.message());
        }
    }
    return {};
}

Status Session::agree_on_run(SharedInventory& inventory, uint32_t greatest_local_run) {
    ByteWriter out;
    out.put(std::max(greatest_local_run, inventory.greatest_run));
    TAILRACE_ASSIGN(const auto runs, transport_->allgather(out.bytes()));
    uint32_t greatest = 0;
    for (const auto& bytes : runs) greatest = std::max(greatest, ByteReader(bytes).get<uint32_t>());
    run_ = greatest + 1;

    ByteWriter mine;
    mine.put(random_number());
    mine.put(block_bytes_);
    mine.put(stripe_align_);
    mine.put(static_cast<uint8_t>(inventory.newest_committed.has_value()));
    const auto newest = inventory.newest_committed.value_or(EpochKey{});
    put(mine, newest);
    for (const auto* keys : {&inventory.committed, &inventory.unclean}) {
        mine.put(static_cast<uint64_t>(keys->size()));
        for (const auto& key : *keys) put(mine, key);
    }
    TAILRACE_ASSIGN(const auto of_root, transport_->broadcast(0, mine.bytes()));
    ByteReader in(of_root);
    run_uid_ = in.get<uint64_t>();
    block_bytes_ = in.get<uint64_t>();
    stripe_align_ = in.get<uint64_t>();
    const bool any = in.get<uint8_t>() != 0;
    const EpochKey key = get_key(in);
    inventory.newest_committed = any ? std::optional(key) : std::nullopt;
    for (auto* keys : {&inventory.committed, &inventory.unclean}) {
        keys->clear();
        const auto count = in.get_count(epoch_key_bytes);
        for (uint64_t i = 0; i < count; ++i) keys->push_back(get_key(in));
    }
    if (!in.at_end()) return Status(Code::transport, "rank 0's word about the shared directory is damaged");
    return {};
}

// All parts that the representatives look after, as every rank then knows them. Collective.
Result<KnownParts> Session::gather_parts() {
    OfferedParts mine;
    Status listed;
    if (representative_) {
        auto directories = directories_of_node(*local_, tier_, node_, topology_, hosts_);
        listed = directories.status();
        for (size_t i = 0; listed.ok() && i < directories->size(); ++i) {
            auto listing = list_tier(*local_, tier_, (*directories)[i], config_.name);
            listed = listing.status();
            if (!listed.ok()) break;
            for (auto& part : listing->parts) mine.parts.push_back(std::move(part));
            for (const auto& leftover : listing->leftovers) {
                log(LogLevel::debug, "passed over: {}", leftover.why.message());
                const auto name = name_of(leftover);
                if (name && !name->unfinished) mine.damaged = leftover.why.message();
            }
        }
        // A tier that cannot be read has nothing to offer; the shared one may.
        if (!listed.ok()) log(LogLevel::warning, "the node-local tier is passed over: {}", listed.message());
    }
    TAILRACE_ASSIGN(const auto all, transport_->allgather(encode_parts(mine)));
    KnownParts known;
    for (int node = 0; node < topology_.node_count(); ++node) {
        TAILRACE_ASSIGN(auto of_node,
                        decode_parts(all[static_cast<size_t>(topology_.representative(node))], node));
        std::move(of_node.parts.begin(), of_node.parts.end(), std::back_inserter(known.parts));
        if (known.damaged.empty()) known.damaged = std::move(of_node.damaged);
    }
    return known;
}

Status Session::recover(const SharedInventory& inventory) {
    TAILRACE_ASSIGN(const auto known, gather_parts());
    auto captured = gather_local_epochs(known.parts);
    TAILRACE_TRY(judge_captured(captured));
    std::erase_if(captured, [&](const LocalEpoch& epoch) {
        return std::find(refused_.begin(), refused_.end(), epoch.key) != refused_.end();
    });
    auto epochs = choose_recoveries(captured, inventory.committed, inventory.unclean);
    TAILRACE_TRY(verify_recoveries(epochs));
    TAILRACE_TRY(make_room_for_recoveries(epochs));
    if (inventory.newest_committed &&
        std::find(old_safe_.begin(), old_safe_.end(), *inventory.newest_committed) == old_safe_.end()) {
        old_safe_.push_back(*inventory.newest_committed);
        old_elsewhere_ = inventory.newest_committed;
    }
    TAILRACE_TRY(agree(*transport_, with_threads([&] { return make_agent(); })));
    queue_recoveries(epochs);
    drop_old_parts();
    return {};
}

// What the tables of regions say: a captured epoch whose arrays cannot be put together is neither safe nor
// flushed, nor offered by restore. Its parts stay for as long as the node-local tier keeps them. Collective.
Status Session::judge_captured(const std::vector<LocalEpoch>& captured) {
    for (const auto& epoch : captured) {
        if (!epoch.complete()) continue;
        std::vector<PartPlace> mine;
        for (const auto& part : epoch.parts)
            if (representative_ && part.node == node_) mine.push_back({epoch.key, part.path});
        const ArrayPoints points(epoch.run_uid);
        TAILRACE_ASSIGN(const auto judged,
                        judge_together(*transport_, epoch.rank_count, [&](const ArrayQuestion& question) {
                            return facts_of_parts(*local_, points, question, mine);
                        }));
        // What cannot be read is told by who reads all of it.
        if (judged.verdict->code() != Code::invalid_argument) {
            old_safe_.push_back(epoch.key);
            continue;
        }
        refused_.push_back(epoch.key);
        if (rank() == 0)
            log(LogLevel::warning, "{}, captured by an earlier run, is passed over: {}", to_string(epoch.key),
                judged.verdict->message());
    }
    return {};
}

// Drops from `epochs` what some representative cannot read back. Collective.
Status Session::verify_recoveries(std::vector<LocalEpoch>& epochs) {
    ByteWriter out;
    for (const auto& epoch : epochs) {
        Status damaged;
        for (const auto& part : epoch.parts) {
            if (!representative_ || part.node != node_ || !damaged.ok()) continue;
            EpochSources sources{epoch.key, epoch.rank_count, {{part.path, part.header}}, std::nullopt};
            auto reader = EpochReader::open(*local_, *shared_, std::move(sources));
            damaged =
                reader.ok() ? (*reader)->verify(part.header.stream.rank, [](uint64_t) {}) : reader.status();
        }
        if (!damaged.ok())
            log(LogLevel::warning, "captured {} cannot be brought to {}: {}", to_string(epoch.key),
                config_.shared_dir, damaged.message());
        out.put(static_cast<uint8_t>(!damaged.ok()));
    }
    TAILRACE_ASSIGN(const auto all, transport_->allgather(out.bytes()));
    std::vector<LocalEpoch> sound;
    for (size_t i = 0; i < epochs.size(); ++i) {
        const bool damaged = std::any_of(all.begin(), all.end(), [&](const auto& flags) {
            return i >= flags.size() || flags[i] != std::byte{0};
        });
        if (damaged)
            std::erase(old_safe_, epochs[i].key);
        else
            sound.push_back(std::move(epochs[i]));
    }
    epochs = std::move(sound);
    return {};
}

// Whatever files an earlier attempt at the same epochs has left must go first: a stale slot in a file that is
// written again would be a false commit. Collective.
Status Session::make_room_for_recoveries(std::vector<LocalEpoch>& epochs) {
    ByteWriter out;
    for (const auto& epoch : epochs) {
        auto removed = rank() == 0
                           ? remove_shared_epoch(*shared_, config_.shared_dir, config_.name, epoch.key)
                           : Status();
        if (!removed.ok())
            log(LogLevel::warning, "captured {} stays in the node-local tier: {}", to_string(epoch.key),
                removed.message());
        out.put(static_cast<uint8_t>(!removed.ok()));
    }
    TAILRACE_ASSIGN(const auto of_root, transport_->broadcast(0, out.bytes()));
    if (of_root.size() != epochs.size())
        return Status(Code::transport, "rank 0's word about captured epochs is damaged");
    size_t i = 0;
    std::erase_if(epochs, [&](const LocalEpoch&) { return of_root[i++] != std::byte{0}; });
    return {};
}

// What heads the record and the trace.
SessionRecord Session::session_record() const {
    SessionRecord session;
    session.job = config_.name;
    session.run = run_;
    session.run_uid = run_uid_;
    session.version =
        fmt::format("{}.{}.{}", TAILRACE_VERSION_MAJOR, TAILRACE_VERSION_MINOR, TAILRACE_VERSION_PATCH);
    session.host = transport_->host();
    session.shared_dir = config_.shared_dir;
    if (const auto space = shared_->space(config_.shared_dir); space.ok())
        session.file_system = space->file_system;
    session.io_engine = shared_->name();
    session.ranks = static_cast<uint32_t>(rank_count());
    session.nodes = static_cast<uint32_t>(topology_.node_count());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    session.began_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    for (const ConfigKey& key : config_keys())
        if (auto value = get_config(config_, key.name); value.ok())
            session.settings.emplace_back(key.name, std::move(*value));
    return session;
}

Status Session::make_agent() {
    Capture::Options options;
    options.directory = tier_.directory(node_);
    options.threads = config_.copy_threads;
    options.checksum = config_.checksum;
    options.sync = config_.local_sync;
    capture_ = std::make_unique<Capture>(*local_, options);
    if (quiet())
        ledger_ = std::make_unique<RootLedger>(static_cast<size_t>(topology_.node_count()),
                                               static_cast<size_t>(topology_.node_count()),
                                               config_.queue_policy, config_.queue_epochs);
    points_ = std::make_unique<ArrayPoints>(run_uid_);
    if (!representative_) return {};
    NodeAgent::Setup setup;
    setup.config = &config_;
    setup.topology = topology_;
    setup.node = node_;
    setup.transport = transport_.get();
    setup.local = local_.get();
    setup.shared = shared_.get();
    setup.shared_lock = shared_lock_.get();
    setup.rank_epochs = &rank_epochs_;
    setup.points = points_.get();
    setup.block_bytes = block_bytes_;
    setup.stripe_align = stripe_align_;
    setup.run_uid = run_uid_;
    setup.quiet = quiet();
    setup.session = session_record();
    TAILRACE_ASSIGN(agent_, NodeAgent::create(std::move(setup)));
    return {};
}

void Session::queue_recoveries(const std::vector<LocalEpoch>& epochs) {
    for (const auto& epoch : epochs) {
        recovered_.push_back(epoch.key);
        if (rank() == 0)
            log(LogLevel::info, "captured {} of an earlier run is brought to {}", to_string(epoch.key),
                config_.shared_dir);
        FlushJob job;
        job.job = config_.name;
        job.key = epoch.key;
        job.run_uid = epoch.run_uid;
        job.rank_count = epoch.rank_count;
        QuietEpoch waiting;
        waiting.recovered = true;
        waiting.run_uid = epoch.run_uid;
        waiting.rank_count = epoch.rank_count;
        for (int node = 0; node < topology_.node_count(); ++node) waiting.offers.push_back({node, {}});
        for (const auto& part : epoch.parts) {
            waiting.offers[static_cast<size_t>(part.node)].streams.push_back(part.header.stream);
            if (part.node == node_) job.streams.push_back({part.header.stream, part.path, part_header_bytes});
        }
        if (quiet()) {
            waiting.streams = std::move(job.streams);
            quiet_epochs_[epoch.key] = std::move(waiting);
            ledger_->recovered(epoch.key);
        } else if (agent_) {
            agent_->recover(std::move(job));
        }
    }
}

// Older epochs of earlier runs, beyond what the node-local tier is to keep.
void Session::drop_old_parts() {
    std::vector<LocalAge> ages;
    for (const auto& key : old_safe_) {
        const bool in_use = std::find(recovered_.begin(), recovered_.end(), key) != recovered_.end();
        ages.push_back({key, true, in_use, false, false, key == old_elsewhere_});
    }
    for (const auto& part : old_parts_) {
        const auto same = [&](const LocalAge& age) { return age.key == part.header.key; };
        if (std::none_of(ages.begin(), ages.end(), same))
            ages.push_back({part.header.key, false, false, false});
    }
    for (const auto& key : choose_local_removals(std::move(ages), std::max(1u, config_.keep_local))) {
        for (const auto& part : old_parts_)
            if (part.header.key == key) remove_part(part.path);
        std::erase_if(old_parts_, [&](const KnownPart& part) { return part.header.key == key; });
        std::erase(old_safe_, key);
    }
}

// ---- close -------------------------------------------------------------------------------------------

Status Session::close() {
    std::lock_guard lock(save_mutex_);
    if (closed_) return close_status_;
    close_status_ = close_once();
    if (began_)  // ends that were heard of since the last save
        if (const auto rest = retire_parts(config_.keep_local)) remove_part(rest->path);
    closed_ = true;
    {
        std::lock_guard agent_lock(agent_mutex_);
        agent_.reset();
    }
    // No agent posts any more, and on no rank: the last step of close_once() was collective.
    if (all_ended_)
        if (auto dropped = transport_->drop_messages(); !dropped.ok())
            log(LogLevel::info, "closing the session: {}", dropped.message());
    parts_.clear();
    capture_.reset();
    local_lock_.reset();
    shared_lock_.reset();
    return close_status_;
}

Status Session::close_once() {
    if (quiet()) {
        TAILRACE_TRY(quiet_wait([&] { return all_quiet_epochs_ended(); }, std::nullopt));
        if (agent_) agent_->wait_idle();
        Status failure = rank_epochs_.first_failure();
        for (const auto& [key, epoch] : quiet_epochs_)
            if (failure.ok() && epoch.ended && epoch.ended->state == EpochState::failed)
                failure = epoch.ended->why.with_context(
                    fmt::format("flushing {}, left by an earlier run", to_string(key)));
        return agree(*transport_, failure);
    }
    // A rank that saved less often than others would leave them waiting for ever, some of them in save: what
    // not all have saved fails, as soon as the first closes.
    if (agent_)
        agent_->end_from(sequence_);
    else
        (void)post_to_agent(SavesOver{sequence_}, "telling the node's agent that the session is closed");
    // A rank whose background is over and which could not say so would do the same: it is said here.
    ByteWriter out;
    put(out, agent_ ? agent_->over() : rank_epochs_.broken());
    TAILRACE_ASSIGN(const auto all, transport_->allgather(out.bytes()));
    Status over_elsewhere;
    for (const auto& bytes : all) {
        ByteReader in(bytes);
        const Status over = get_status(in);
        if (over_elsewhere.ok()) over_elsewhere = over;
    }
    if (!over_elsewhere.ok() && agent_) agent_->end(over_elsewhere);
    if (!over_elsewhere.ok() && !agent_) rank_epochs_.fail_all(over_elsewhere, false);
    wait_until(
        [](const RankEpochs::Entries& entries) {
            return std::all_of(entries.begin(), entries.end(),
                               [](const auto& entry) { return is_final(entry.second.info.state); });
        },
        std::nullopt);
    if (agent_) agent_->wait_idle();
    Status failure = rank_epochs_.first_failure();
    if (failure.ok() && agent_) failure = agent_->recovery_failure();
    if (failure.ok() && agent_) failure = agent_->over();
    all_ended_ = true;
    return agree(*transport_, failure);
}

}  // namespace tailrace
