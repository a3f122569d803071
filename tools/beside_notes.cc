#include "beside_notes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "catalog/catalog.h"
#include "format/epoch_key.h"
#include "format/original_files.h"
#include "format/outputs_directory.h"

namespace tailrace::internal::tool {

namespace {

std::vector<uint64_t> epochs_in(Storage& storage, const std::string& directory, const std::string& job) {
    std::vector<uint64_t> epochs;
    const auto listed = list_shared(storage, directory, job);
    if (!listed.ok()) return epochs;
    for (const auto& files : *listed)
        if (looks_complete(files) && (epochs.empty() || epochs.back() != files.key.epoch))
            epochs.push_back(files.key.epoch);
    return epochs;
}

BesideNotes::OriginalFiles original_files_in(Storage& storage, const std::string& directory,
                                             const std::string& job) {
    BesideNotes::OriginalFiles found{job, directory, {}, 0};
    const auto entries = storage.list(directory);
    if (!entries.ok()) return found;
    for (const auto& entry : *entries) {
        if (const auto epoch = parse_original_files_name(entry.name)) found.epochs.push_back(*epoch);
        if (parse_unfinished_files_name(entry.name)) ++found.unfinished;
    }
    return found;
}

}  // namespace

BesideNotes find_beside(Storage& storage, const std::string& directory, const std::string& job) {
    BesideNotes notes;
    const auto entries = storage.list(directory);
    if (!entries.ok()) return notes;
    for (const auto& entry : *entries) {
        const std::string of_job = entry.name.substr(0, entry.name.rfind('.'));
        if (!entry.is_directory || !check_job_name(of_job).ok() || (!job.empty() && of_job != job)) continue;
        const auto path = join_path(directory, entry.name);
        if (entry.name == outputs_directory(of_job))
            notes.outputs.push_back({of_job, path, epochs_in(storage, path, of_job)});
        if (entry.name == original_files_directory(of_job))
            notes.original_files.push_back(original_files_in(storage, path, of_job));
    }
    return notes;
}

std::vector<std::string> BesideNotes::texts() const {
    std::vector<std::string> texts;
    for (const auto& found : outputs)
        texts.push_back(fmt::format("{} of outputs of job {} in {}: tailrace ls {}",
                                    counted(found.epochs.size(), "epoch"), found.job, found.directory,
                                    found.directory));
    for (const auto& found : original_files)
        texts.push_back(fmt::format("the files of {} of job {} lie in {} as they were{}",
                                    counted(found.epochs.size(), "epoch"), found.job, found.directory,
                                    found.unfinished == 0 ? ""
                                                          : fmt::format("; those of {} have no final name",
                                                                        counted(found.unfinished, "epoch"))));
    return texts;
}

void add_to(nlohmann::ordered_json& json, const BesideNotes& notes) {
    json["outputs"] = nlohmann::ordered_json::array();
    for (const auto& found : notes.outputs)
        json["outputs"].push_back(
            {{"job", found.job}, {"directory", found.directory}, {"epochs", found.epochs}});
    json["original_files"] = nlohmann::ordered_json::array();
    for (const auto& found : notes.original_files)
        json["original_files"].push_back({{"job", found.job},
                                          {"directory", found.directory},
                                          {"epochs", found.epochs},
                                          {"unfinished", found.unfinished}});
}

}  // namespace tailrace::internal::tool
