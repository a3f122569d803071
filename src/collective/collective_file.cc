#include "collective/collective_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <optional>
#include <system_error>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "base/units.h"
#include "collective/call.h"
#include "collective/global_aggregator.h"
#include "collective/hints.h"
#include "collective/open_agreement.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal::collective {

namespace {

std::string directory_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

// A rank's opening message of a call. `failed`: its arguments make no sense.
struct Opening {
    RankSummary summary;
    bool failed = false;
};

template <class Codec>
void fields(Codec& codec, Opening& opening) {
    RankSummary& summary = opening.summary;
    ListSummary& list = summary.list;
    codec(list.requests, list.bytes, list.begin, list.end, list.overlapping);
    codec(summary.has_shared_list, summary.shares_bytes, opening.failed);
    fields(codec, summary.memory);
}

std::vector<std::byte> encode(const Opening& opening) {
    ByteWriter writer;
    put_fields(writer, opening);
    return writer.take();
}

Result<Opening> decode_opening(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    Opening opening;
    get_fields(reader, opening);
    if (!reader.at_end()) return Status(Code::transport, "a rank is in another call of a collective file");
    return opening;
}

class Background final : public Pending {
  public:
    Background(bool writes, RankAccess access) : writes_(writes), access_(std::move(access)) {}

    bool test() override {
        MutexLock lock(mutex_);
        return outcome_.has_value();
    }
    Result<uint64_t> wait() override {
        MutexLock lock(mutex_);
        while (!outcome_) changed_.wait(lock);
        return *outcome_;
    }
    void finish(Result<uint64_t> outcome) {
        MutexLock lock(mutex_);
        outcome_ = std::move(outcome);
        changed_.notify_all();
    }
    bool writes() const { return writes_; }
    RankAccess take_access() { return std::move(access_); }

  private:
    const bool writes_;
    RankAccess access_;
    Mutex mutex_;
    Condition changed_;
    std::optional<Result<uint64_t>> outcome_ GUARDED_BY(mutex_);
};

class TwoLayerFile final : public CollectiveFile {
  public:
    TwoLayerFile(std::shared_ptr<Transport> transport, std::shared_ptr<Storage> storage, std::string path,
                 Options options)
        : transport_(std::move(transport)),
          storage_(std::move(storage)),
          path_(std::move(path)),
          options_(std::move(options)),
          hints_(hints_in_effect(options_)) {}

    ~TwoLayerFile() override {
        if (Status status = close(); !status.ok())
            log(LogLevel::error, "closing '{}': {}", path_, status.to_string());
    }

    Status open() {
        Status mine;
        SpaceInfo space;
        if (transport_->rank() == 0) {
            MutexLock lock(file_mutex_);
            mine = open_own(options_.mode);
            if (auto known = storage_->space(directory_of(path_)); known.ok()) space = *known;
        }
        auto agreement = agree_on_open(*transport_, options_, mine, space, path_);
        if (!agreement.ok()) {
            closed_ = true;
            return agreement.status();
        }
        agreement_ = std::move(*agreement);
        options_.plan.local_file_system = is_local(agreement_.file_system);
        DomainSettings& domains = options_.plan.domains;
        domains.align_bytes = std::max(domains.align_bytes, agreement_.block_bytes);
        domains.window_bytes = align_up(std::max<uint64_t>(domains.window_bytes, 1), domains.align_bytes);
        globals_ = choose_global_aggregators(agreement_.topology, options_.plan.global_aggregators,
                                             domains.layout == Layout::group_cyclic ? domains.stripes : 0);
        Status started;
        if (options_.plan.exchange != Exchange::never &&
            std::find(globals_.begin(), globals_.end(), transport_->rank()) != globals_.end())
            started = start_file_phase();
        started = agree(*transport_, started);
        closed_ = !started.ok();
        return started;
    }

    Result<uint64_t> write(RankAccess access) override { return call_when_idle(true, std::move(access)); }
    Result<uint64_t> read(RankAccess access) override { return call_when_idle(false, std::move(access)); }
    std::shared_ptr<Pending> start_write(RankAccess access) override {
        return start(true, std::move(access));
    }
    std::shared_ptr<Pending> start_read(RankAccess access) override {
        return start(false, std::move(access));
    }

    Status sync() override {
        wait_until_idle();
        TAILRACE_TRY(check_open());
        Status mine;
        {
            MutexLock lock(file_mutex_);
            if (file_) mine = file_->sync();
        }
        return agree(*transport_, mine);
    }

    Status close() override {
        wait_until_idle();
        queue_changed([&]() REQUIRES(mutex_) { stopping_ = true; });
        worker_.join();
        if (closed_) return Status();
        closed_ = true;
        file_phase_.reset();
        Status mine;
        {
            MutexLock lock(file_mutex_);
            if (file_) mine = file_->close();
            file_.reset();
        }
        if (broken_) return mine;
        return agree(*transport_, mine);
    }

    Result<Statistics> statistics() override {
        wait_until_idle();
        TAILRACE_TRY(check_open());
        Statistics mine = statistics_;
        mine.messages_of_one = mine.messages;
        TAILRACE_ASSIGN(const auto all, transport_->allgather(collective::encode(mine)));
        Statistics sum;
        for (const std::vector<std::byte>& one : all) {
            TAILRACE_ASSIGN(const Statistics its, decode_statistics(one));
            sum.add(its);
        }
        return sum;
    }
    Statistics own_statistics() const override {
        wait_until_idle();
        return statistics_;
    }
    std::string last_reason() const override {
        wait_until_idle();
        return last_reason_;
    }
    const std::string& path() const override { return path_; }
    std::map<std::string, std::string> hints() const override { return hints_; }

  private:
    // ---- the file -------------------------------------------------------------------------------

    Status open_own(Mode mode) REQUIRES(file_mutex_) {
        // A file that somebody has removed is not made anew.
        if (mode == Mode::existing)
            TAILRACE_TRY(storage_->open(path_, {Access::read, DirectIo::off}).status());
        OpenOptions options;
        options.access = mode == Mode::read         ? Access::read
                         : mode == Mode::create_new ? Access::create_new
                                                    : Access::write;
        options.direct = options_.direct_io;
        TAILRACE_ASSIGN(file_, storage_->open(path_, options));
        return Status();
    }

    // Ranks that are to be global aggregators open it in the background when all ranks open it.
    // Others open it when they first need it, because most ranks never touch the file.
    Result<File*> own_file() {
        MutexLock lock(file_mutex_);
        if (!file_) TAILRACE_TRY(open_own(options_.mode == Mode::read ? Mode::read : Mode::existing));
        return file_.get();
    }

    Status check_open() const {
        if (closed_)
            return Status(Code::failed_state, fmt::format("'{}' has been closed; nothing was done", path_));
        if (broken_)
            return Status(
                Code::failed_state,
                fmt::format("an earlier call on '{}' lost its connection to other ranks; close it", path_));
        return Status();
    }

    // ---- a call ---------------------------------------------------------------------------------

    Status check_access(bool writes, const RankAccess& access, ListSummary& summary) {
        TAILRACE_TRY(check_open());
        TAILRACE_TRY(access.wrong);
        if (writes && options_.mode == Mode::read)
            return Status(Code::failed_state,
                          fmt::format("'{}' was opened for reading; nothing was written", path_));
        if (file_phase_) TAILRACE_TRY(make_images(memory_, options_.plan.domains.window_bytes));
        TAILRACE_ASSIGN(summary, summarise(access.requests, writes, path_));
        if (summary.bytes != access.memory.bytes())
            return Status(
                Code::invalid_argument,
                fmt::format("{} '{}' collectively: the requests ask for {} bytes, but the memory "
                            "has {}; nothing was done",
                            writes ? "writing" : "reading", path_, summary.bytes, access.memory.bytes()));
        return Status();
    }

    Result<uint64_t> call(bool writes, const RankAccess& access) {
        // 1. This rank's own list.
        if (broken_ || closed_) return check_open();
        const Stopwatch stopwatch(statistics_.total);
        Opening mine;
        const Status my_status = check_access(writes, access, mine.summary.list);
        mine.failed = !my_status.ok();
        if (my_status.ok()) share(writes, access, mine.summary);

        // 2. The same plan on every rank.
        auto answers = gather(encode(mine));
        if (!answers.ok()) return give_up(answers.status());
        std::vector<RankSummary> ranks;
        bool failed = false;
        for (const std::vector<std::byte>& answer : *answers) {
            auto opening = decode_opening(answer);
            if (!opening.ok()) return give_up(opening.status());
            ranks.push_back(opening->summary);
            failed = failed || opening->failed;
        }
        if (failed) return agree_in_call(my_status);
        const Decision decision = decide(agreement_.topology, ranks, options_.plan);
        last_reason_ = decision.reason;
        if (transport_->rank() == 0)
            log(LogLevel::debug, "'{}': {} {}: {}", path_, writes ? "write" : "read", way_name(decision.way),
                decision.reason);
        ++statistics_.calls;
        statistics_.requests += mine.summary.list.requests;
        statistics_.bytes += mine.summary.list.bytes;
        if (decision.way == Way::nothing) return uint64_t{0};

        // 3. The exchange.
        const Groups groups = make_groups(agreement_.topology, decision.local_aggregators_per_node,
                                          agreement_.node_shares_memory);
        const Domains domains(accessed_range(ranks), static_cast<int>(globals_.size()), options_.plan.domains,
                              decision.begins);
        CallContext context{*transport_, agreement_.topology, ranks,       groups, globals_,      domains,
                            memory_,     file_phase_.get(),   statistics_, writes, slots(domains)};
        const RequestList list(access.requests, mine.summary.list.overlapping);
        if (Status status = move(decision.way, context, list, access.memory); !status.ok())
            return give_up(status);
        note_memory(domains);

        // 4. The same outcome on every rank.
        const Result<uint64_t> outcome = conclude(context, list, mine.summary.list.bytes);
        note_exchange(decision.way, stopwatch.seconds());
        return outcome;
    }

    Status move(Way way, CallContext& context, const RequestList& list, const MemoryList& memory) {
        if (way == Way::direct) {
            ++statistics_.direct_calls;
            access_directly(context, list.empty() ? Result<File*>(nullptr) : own_file(), list, memory);
            return Status();
        }
        ++(way == Way::two_phase ? statistics_.two_phase_calls : statistics_.two_layer_calls);
        statistics_.local_aggregators = context.groups.aggregators.size();
        statistics_.global_aggregators = context.globals.size();
        return exchange(context, list, memory);
    }

    // Lays this rank's list, and the bytes of a small write, where its local aggregator sees them.
    void share(bool writes, const RankAccess& access, RankSummary& summary) {
        const auto rank = static_cast<size_t>(transport_->rank());
        const auto node = static_cast<size_t>(agreement_.topology.node_of_rank[rank]);
        summary.has_shared_list = true;
        if (access.requests.empty() || options_.plan.local_aggregators_per_node < 0) return;
        // The first rank of a node is always its own local aggregator, whatever the groups are.
        summary.has_shared_list = agreement_.node_shares_memory[node];
        if (!summary.has_shared_list || agreement_.topology.ranks_of_node[node].front() == transport_->rank())
            return;
        const size_t list_bytes = access.requests.size() * sizeof(Request);
        const auto bytes = static_cast<size_t>(summary.list.bytes);
        const bool with_bytes = writes && bytes <= small_write_bytes;
        const size_t shared_bytes = list_bytes + (with_bytes ? bytes : 0);
        if (!memory_.list.ensure(shared_bytes, spare_of_list(shared_bytes)).ok() ||
            memory_.list.name().process == 0) {
            summary.has_shared_list = false;
            return;
        }
        const std::span<std::byte> memory = memory_.list.memory();
        std::memcpy(memory.data(), access.requests.data(), list_bytes);
        if (with_bytes) access.memory.copy_out(0, memory.subspan(list_bytes, bytes));
        summary.memory = memory_.list.name();
        summary.shares_bytes = with_bytes;
    }

    // For a local aggregator. The slots never take more memory than local_slots windows of full
    // size.
    size_t slots(const Domains& domains) const {
        const uint64_t bytes = std::min(local_slots * options_.plan.domains.window_bytes, more_slots_bytes);
        return static_cast<size_t>(
            std::clamp<uint64_t>(bytes / domains.window_bytes(), local_slots, most_local_slots));
    }

    Result<uint64_t> conclude(CallContext& context, const RequestList& list, uint64_t bytes) {
        ByteWriter writer;
        writer.put(context.file_end);
        writer.put(static_cast<uint8_t>(!context.failure.ok()));
        writer.put(context.steps);
        auto answers = gather(writer.bytes());
        if (!answers.ok()) return give_up(answers.status());
        bool failed = false;
        uint64_t file_end = UINT64_MAX, steps = 0;
        for (const std::vector<std::byte>& answer : *answers) {
            ByteReader reader(answer);
            file_end = std::min(file_end, reader.get<uint64_t>());
            failed = reader.get<uint8_t>() != 0 || failed;
            steps = std::max(steps, reader.get<uint64_t>());
        }
        statistics_.steps += steps;
        if (failed) return agree_in_call(context.failure);
        if (context.writes || file_end == UINT64_MAX) return bytes;
        uint64_t got = 0;
        for (const Request& request : list.all()) got += clip(request, FileWindow{0, file_end}).bytes;
        return got;
    }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) {
        ++statistics_.collectives;
        return transport_->allgather(mine);
    }

    Status agree_in_call(const Status& mine) {
        ++statistics_.collectives;
        return agree(*transport_, mine);
    }

    Status give_up(const Status& status) {
        broken_ = true;
        return status.with_context(fmt::format("a collective call on '{}'", path_));
    }

    Status start_file_phase() {
        const Sieving sieving =
            sieving_for(agreement_.file_system, options_.sieve_reads, options_.sieve_writes);
        try {
            file_phase_ = std::make_unique<FilePhase>([this] { return own_file(); }, sieving,
                                                      agreement_.block_bytes, [this] { transport_->wake(); });
        } catch (const std::system_error& error) {
            return Status(
                Code::out_of_memory,
                fmt::format(
                    "opening '{}' collectively: rank {}, a global aggregator, cannot start a thread for "
                    "the file ({}); see `ulimit -u`",
                    path_, transport_->rank(), error.code().message()));
        }
        return Status();
    }

    void note_memory(const Domains& domains) {
        uint64_t bytes = memory_.packed.memory().size();
        if (memory_.images) bytes += memory_.images->most_taken() * image_bytes(domains.window_bytes());
        if (file_phase_) bytes += file_phase_->memory_bytes();
        statistics_.memory_bytes = std::max(statistics_.memory_bytes, bytes);
    }

    // The rest of the time so far, without the parts that are measured.
    void note_exchange(Way way, double seconds) {
        const double measured = statistics_.gather + statistics_.copy + statistics_.scatter +
                                (way == Way::direct ? statistics_.file : 0);
        statistics_.exchange += std::max(0.0, seconds - (measured - measured_before_));
        measured_before_ = measured;
    }

    static std::string_view way_name(Way way) {
        switch (way) {
            case Way::nothing:
                return "of nothing";
            case Way::direct:
                return "without exchange";
            case Way::two_phase:
                return "in two phases";
            case Way::two_layer:
                return "in two layers";
        }
        return "";
    }

    // ---- the background -------------------------------------------------------------------------

    std::shared_ptr<Pending> start(bool writes, RankAccess access) {
        auto pending = std::make_shared<Background>(writes, std::move(access));
        if (!transport_->concurrent() || closed_) {
            pending->finish(call_or_give_up(writes, pending->take_access()));
            return pending;
        }
        try {
            if (!worker_.running())
                worker_ = Worker("tailrace-coll", {}, [this](std::stop_token) { work(); });
        } catch (const std::system_error&) {  // no thread is to be had
            pending->finish(call_or_give_up(writes, pending->take_access()));
            return pending;
        }
        queue_changed([&]() REQUIRES(mutex_) { queue_.push_back(pending); });
        return pending;
    }

    void work() {
        for (;;) {
            std::shared_ptr<Background> next;
            {
                MutexLock lock(mutex_);
                while (!stopping_ && queue_.empty()) changed_.wait(lock);
                if (queue_.empty()) return;
                next = queue_.front();
            }
            next->finish(call_or_give_up(next->writes(), next->take_access()));
            queue_changed([&]() REQUIRES(mutex_) { queue_.pop_front(); });
        }
    }

    Result<uint64_t> call_when_idle(bool writes, RankAccess access) {
        wait_until_idle();
        return call_or_give_up(writes, access);
    }
    // If there is no memory for a list in the middle of an exchange, a rank cannot tell the others,
    // which wait for it. The program must end, as after any failure of MPI.
    Result<uint64_t> call_or_give_up(bool writes, const RankAccess& access) {
        try {
            return call(writes, access);
        } catch (...) {
            return give_up(caught_status().with_context("exchanging lists of requests"));
        }
    }
    void wait_until_idle() const {
        MutexLock lock(mutex_);
        while (!queue_.empty()) changed_.wait(lock);
    }
    template <class Change>
    void queue_changed(Change change) {
        MutexLock lock(mutex_);
        change();
        changed_.notify_all();
    }

    const std::shared_ptr<Transport> transport_;
    const std::shared_ptr<Storage> storage_;
    const std::string path_;
    Options options_;
    const std::map<std::string, std::string> hints_;  // before they are adapted to the file system's block
    OpenAgreement agreement_;
    std::vector<int> globals_;  // global aggregators
    CallMemory memory_;
    Statistics statistics_;
    double measured_before_ = 0;
    std::string last_reason_;
    Mutex file_mutex_;  // not held while the file is read and written: a file is thread-safe
    // Once it is open it stays, until the file phase has ended.
    std::unique_ptr<File> file_ GUARDED_BY(file_mutex_);
    std::unique_ptr<FilePhase> file_phase_;  // after everything that its thread uses
    bool closed_ = false;
    bool broken_ = false;

    mutable Mutex mutex_;  // guards the queue; a call stays in it until the call has ended
    mutable Condition changed_;
    std::deque<std::shared_ptr<Background>> queue_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    Worker worker_;
};

}  // namespace

Result<std::unique_ptr<CollectiveFile>> open_collective_file(std::shared_ptr<Transport> transport,
                                                             std::shared_ptr<Storage> storage,
                                                             const std::string& path,
                                                             const Options& options) {
    auto file = std::make_unique<TwoLayerFile>(std::move(transport), std::move(storage), path, options);
    TAILRACE_TRY(file->open());
    return std::unique_ptr<CollectiveFile>(std::move(file));
}

}  // namespace tailrace::internal::collective
