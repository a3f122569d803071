// tailrace verify: reads everything, compares every checksum, and checks that every array can be
// restored.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/units.h"
#include "command.h"
#include "epoch_directory.h"
#include "progress.h"
#include "read/epoch_reader.h"
#include "text.h"
#include "threads/mutex.h"

namespace tailrace::internal::tool {

namespace {

struct Options {
    EpochChoice choice;
    bool json = false;
};

// Catches the reader's warnings while one epoch is read. They name every damaged place.
class WarningCatcher {
  public:
    WarningCatcher() {
        set_log_callback([this](LogLevel level, std::string_view message) {
            MutexLock lock(mutex_);
            if (level >= LogLevel::warning) caught_.emplace_back(message);
        });
    }
    ~WarningCatcher() { set_log_callback({}); }
    WarningCatcher(const WarningCatcher&) = delete;
    WarningCatcher& operator=(const WarningCatcher&) = delete;

    std::vector<std::string> take() {
        MutexLock lock(mutex_);
        return std::exchange(caught_, {});
    }

  private:
    Mutex mutex_;
    std::vector<std::string> caught_ GUARDED_BY(mutex_);
};

struct Verdict {
    std::vector<std::string> problems;  // empty: every byte is right
    bool refused = false;               // the system refused to read something, which is not damage
    uint64_t read_bytes = 0;
    double seconds = 0;
    bool has_checksums = true;
    bool all_bytes_right = false;  // the only problems are arrays that cannot be assembled
};

// The ranks that this directory should hold: all of a complete epoch, else those of the captured
// parts.
std::vector<uint32_t> ranks_of(const ListedEpoch& epoch) {
    std::vector<uint32_t> ranks;
    if (epoch.shared)
        for (const StreamMap& stream : epoch.shared->streams) ranks.push_back(stream.info.rank);
    else
        for (const CapturedPart& part : epoch.found.parts) ranks.push_back(part.header.stream.rank);
    return ranks;
}

Verdict verify(Storage& storage, const ListedEpoch& epoch) {
    Verdict verdict;
    const auto refuse = [&](const Status& why) {
        if (!is_damage(why)) verdict.refused = true;
    };
    if (!epoch.why.ok()) {
        verdict.problems.push_back(epoch.why.message());
        refuse(epoch.why);
        return verdict;
    }
    WarningCatcher warnings;
    auto reader = EpochReader::open(storage, storage, epoch.sources());
    if (!reader.ok()) {
        verdict.problems.push_back(reader.status().message());
        refuse(reader.status());
        return verdict;
    }
    Progress progress(to_string(epoch.found.key), epoch.data_bytes());
    for (uint32_t rank : ranks_of(epoch)) {
        const Status status = (*reader)->verify(rank, [&](uint64_t bytes) {
            verdict.read_bytes += bytes;
            progress.add(bytes);
        });
        auto caught = warnings.take();
        if (status.ok()) {
            auto manifest = (*reader)->manifest(rank);
            if (manifest.ok() && !(*manifest)->has_checksums) verdict.has_checksums = false;
            continue;
        }
        refuse(status);
        if (caught.empty()) caught.push_back(status.message());
        verdict.problems.insert(verdict.problems.end(), caught.begin(), caught.end());
    }
    verdict.seconds = progress.seconds();
    if (verdict.problems.empty() && ranks_of(epoch).size() == epoch.rank_count()) {
        const auto arrays = (*reader)->arrays();
        if (!arrays.ok()) {
            verdict.problems.push_back(arrays.status().message());
            refuse(arrays.status());
            return verdict;
        }
        for (const GlobalArray& array : *arrays)
            if (array.fault && array.fault->unrestorable()) {
                verdict.problems.push_back(array.fault->sentence);
                verdict.all_bytes_right = true;
            }
    }
    return verdict;
}

void print_verdict(const ListedEpoch& epoch, const Verdict& verdict) {
    const std::string name = to_string(epoch.found.key);
    if (!verdict.problems.empty()) {
        const std::string_view state = verdict.all_bytes_right ? "cannot be restored"
                                       : epoch.why.ok()        ? "damaged"
                                                               : completeness_name(epoch.completeness);
        print(fmt::format("{}: {}\n", name, state));
        for (const std::string& problem : verdict.problems) print(fmt::format("  {}\n", printable(problem)));
        return;
    }
    const double rate = verdict.seconds > 0 ? static_cast<double>(verdict.read_bytes) / verdict.seconds /
                                                  static_cast<double>(MiB)
                                            : 0;
    std::string more;
    if (!verdict.has_checksums)
        more = "; saved without checksums, so it can be read, but its bytes could not be checked";
    if (!epoch.shared && epoch.found.parts.size() < epoch.rank_count())
        more +=
            fmt::format("; {} of {} ranks are captured here", epoch.found.parts.size(), epoch.rank_count());
    print(fmt::format("{}: ok, {}, {} in {:.1f} s ({:.0f} MiB/s){}\n", name,
                      counted(epoch.rank_count(), "rank"), format_bytes(verdict.read_bytes), verdict.seconds,
                      rate, more));
}

nlohmann::ordered_json to_json(const ListedEpoch& epoch, const Verdict& verdict) {
    return {{"job", epoch.found.job},           {"epoch", epoch.found.key.epoch},
            {"run", epoch.found.key.run},       {"state", completeness_name(epoch.completeness)},
            {"ok", verdict.problems.empty()},   {"has_checksums", verdict.has_checksums},
            {"read_bytes", verdict.read_bytes}, {"seconds", verdict.seconds},
            {"problems", verdict.problems}};
}

Result<std::vector<ListedEpoch>> chosen(Storage& storage, const EpochChoice& choice) {
    std::vector<ListedEpoch> epochs;
    if (!choice.epoch.empty()) {
        TAILRACE_ASSIGN(auto one, choose_epoch(storage, choice));
        epochs.push_back(std::move(one));
        return epochs;
    }
    return list_job(storage, choice);
}

Exit run(const Options& options, Storage& storage) {
    auto epochs = chosen(storage, options.choice);
    if (!epochs.ok()) return report(epochs.status());
    bool all_well = true, refused = false;
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const ListedEpoch& epoch : *epochs) {
        const Verdict verdict = verify(storage, epoch);
        all_well = all_well && verdict.problems.empty();
        refused = refused || verdict.refused;
        if (options.json)
            json.push_back(to_json(epoch, verdict));
        else
            print_verdict(epoch, verdict);
    }
    if (options.json)
        print_json({{"directory", options.choice.directory}, {"ok", all_well}, {"epochs", std::move(json)}});
    if (refused) return exit_failed;
    return all_well ? exit_ok : exit_damaged;
}

}  // namespace

Command add_verify(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("verify", "Read everything and check every checksum");
    options->choice.add_to(*command, false);
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "Without EPOCH, verify reads every epoch in the directory. An epoch that was never committed\n"
        "counts as a failure. verify names every damaged place (file, offset, rank and region), and every\n"
        "array that cannot be assembled from the ranks' pieces. Exit status 0 means that a restore will\n"
        "get exactly the bytes that were saved.\n\n"
        "  tailrace verify /scratch/run7 newest && sbatch continue.sh\n"
        "  tailrace verify model.tailrace");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
