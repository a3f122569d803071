#include "epoch_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <set>

#include "text.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

namespace {

constexpr std::string_view newest = "newest";

Result<uint64_t> parse_epoch(std::string_view text) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
        return Status(Code::invalid_argument,
                      fmt::format("EPOCH: '{}' is not an epoch: give its number, or 'newest'", text));
    return number;
}

uint64_t disk_bytes_of(const FoundEpoch& epoch) {
    uint64_t bytes = 0;
    const auto add = [&](const std::string& path) {
        struct stat info {};
        constexpr uint64_t unit = 512;  // of st_blocks, whatever the file system's block
        if (::stat(path.c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * unit;
    };
    if (epoch.files)
        for (const SharedFileEntry& file : epoch.files->files) add(file.path);
    for (const CapturedPart& part : epoch.parts) add(part.path);
    return bytes;
}

using Select = std::function<Status(std::vector<FoundEpoch>&)>;

Result<ListedDirectory> list_selected(Storage& storage, const std::string& directory, const std::string& job,
                                      const Select& select) {
    TAILRACE_ASSIGN(auto judged, judge_directory(storage, directory, job, select));
    ListedDirectory listed;
    listed.leftovers = std::move(judged.leftovers);
    for (JudgedEpoch& epoch : judged.epochs) {
        const uint64_t disk_bytes = disk_bytes_of(epoch.found);
        listed.epochs.push_back({std::move(epoch), disk_bytes});
    }
    return listed;
}

// Refuses unless there are epochs of one job.
Status must_be_one_job(Storage& storage, const std::vector<FoundEpoch>& epochs, const EpochChoice& choice) {
    if (epochs.empty()) {
        const std::string of_job = choice.job.empty() ? "" : fmt::format(" of job '{}'", choice.job);
        return Status(Code::not_found, fmt::format("there is no epoch{} in '{}'{}", of_job, choice.directory,
                                                   hint_of_inside(storage, choice.directory)));
    }
    std::set<std::string> jobs;
    for (const FoundEpoch& epoch : epochs) jobs.insert(epoch.job);
    if (jobs.size() > 1)
        return Status(Code::invalid_argument,
                      fmt::format("'{}' holds epochs of {} jobs ({}): choose with --job", choice.directory,
                                  jobs.size(), fmt::join(jobs, ", ")));
    return Status();
}

// The epochs of the one job meant: of that run and number, if there are any.
Result<std::vector<ListedEpoch>> list_chosen(Storage& storage, const EpochChoice& choice,
                                             std::optional<uint64_t> number) {
    const auto select = [&](std::vector<FoundEpoch>& epochs) {
        TAILRACE_TRY(must_be_one_job(storage, epochs, choice));
        std::erase_if(epochs, [&](const FoundEpoch& epoch) {
            return (number && epoch.key.epoch != *number) || (choice.run && epoch.key.run != *choice.run);
        });
        return Status();
    };
    TAILRACE_ASSIGN(auto listed, list_selected(storage, choice.directory, choice.job, select));
    return std::move(listed.epochs);
}

}  // namespace

std::string hint_of_inside(Storage& storage, const std::string& directory) {
    const auto entries = storage.list(directory);
    if (!entries.ok()) return "";
    if (entries->empty()) return ": it is empty";
    const auto inner = std::find_if(entries->begin(), entries->end(),
                                    [](const DirectoryEntry& entry) { return entry.is_directory; });
    if (inner == entries->end()) return "";
    return fmt::format("; directories in it are not searched, such as {}", join_path(directory, inner->name));
}

Result<ListedDirectory> list_epochs(Storage& storage, const std::string& directory, const std::string& job) {
    return list_selected(storage, directory, job, [](const auto&) { return Status(); });
}

void EpochChoice::add_to(CLI::App& command, bool epoch_required) {
    command
        .add_option("DIR|FILE", directory,
                    "Directory with the checkpoint's files, or one of an epoch's files")
        ->required();
    auto* option = command.add_option("EPOCH", epoch, "Epoch number, or 'newest'");
    if (epoch_required) option->required();
    command.add_option("--job", job, "Job name, if the directory holds several jobs' files");
    command.add_option("--run", run, "Run number, if several runs saved the epoch (default: the latest)")
        ->transform(whole_number());
}

Result<std::vector<ListedEpoch>> list_job(Storage& storage, const EpochChoice& choice) {
    TAILRACE_ASSIGN(auto epochs, list_chosen(storage, choice, std::nullopt));
    if (epochs.empty())
        return Status(Code::not_found,
                      fmt::format("there is no epoch of run {} in '{}'", *choice.run, choice.directory));
    return epochs;
}

Result<ListedEpoch> choose_epoch(Storage& storage, const EpochChoice& choice) {
    std::optional<uint64_t> number;
    if (!choice.epoch.empty() && choice.epoch != newest) {
        TAILRACE_ASSIGN(number, parse_epoch(choice.epoch));
    }
    TAILRACE_ASSIGN(auto all, list_chosen(storage, choice, number));
    std::sort(all.begin(), all.end(), goes_first);
    std::vector<ListedEpoch> passed_over;
    for (ListedEpoch& judged : all) {
        if (!judged.why.ok()) {
            passed_over.push_back(std::move(judged));
            continue;
        }
        for (const ListedEpoch& bad : passed_over)
            std::fprintf(stderr, "tailrace: passing over %s: %s\n", to_string(bad.found.key).c_str(),
                         printable(bad.why.message()).c_str());
        return std::move(judged);
    }
    if (number && !passed_over.empty()) return std::move(passed_over.front());
    const std::string of_run = choice.run ? fmt::format(" of run {}", *choice.run) : "";
    if (number)
        return Status(Code::not_found,
                      fmt::format("there is no epoch {}{} in '{}'; `tailrace ls` lists those that exist",
                                  *number, of_run, choice.directory));
    const std::string newest_one =
        passed_over.empty() ? "" : fmt::format("; the newest attempt: {}", passed_over.front().why.message());
    return Status(Code::not_found, fmt::format("there is no complete epoch{} in '{}'{}", of_run,
                                               choice.directory, newest_one));
}

}  // namespace tailrace::internal::tool
