#include "index_build.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <span>

#include "dataset_files.h"
#include "epochs_directory.h"

namespace scr_on_tailrace {

namespace {

const std::string epoch_prefix = std::string(job) + ".e";

[[noreturn]] void missing(const std::string& why) {
    throw tailrace::Error(TAILRACE_NOT_FOUND, why);
}

std::string title(uint64_t id) {
    return "dataset " + std::to_string(id);
}

// Of the epoch that a file JOB.eEPOCH.... belongs to.
std::optional<uint64_t> epoch_of(std::string_view name) {
    if (!name.starts_with(epoch_prefix)) return std::nullopt;
    uint64_t epoch = 0;
    const auto parsed = std::from_chars(name.data() + epoch_prefix.size(), name.data() + name.size(), epoch);
    if (parsed.ec != std::errc() || parsed.ptr == name.data() + name.size() || *parsed.ptr != '.')
        return std::nullopt;
    return epoch;
}

std::string text_in(const tailrace::Reader& reader, uint32_t rank, const char* region) {
    std::string text(reader.region(rank, region).bytes, '\0');
    reader.read(rank, region, std::span(text.data(), text.size()));
    return text;
}

Dataset described_in(const tailrace::Reader& reader) {
    try {
        const auto all = Index::decode(text_in(reader, 0, dataset_region)).datasets();
        if (all.size() == 1 && all.front().id == reader.epoch()) return all.front();
    } catch (const tailrace::Error& why) {
        if (why.code() != TAILRACE_NOT_FOUND) throw;
        missing(title(reader.epoch()) + " does not say its name, because an earlier version wrote it");
    }
    throw tailrace::Error(TAILRACE_CORRUPT, title(reader.epoch()) + " describes another dataset");
}

}  // namespace

KnownDatasets::KnownDatasets(const Prefix& prefix, std::string directory)
    : prefix_(prefix), directory_(std::move(directory)) {
    look_in(directory_);
    if (std::filesystem::exists(outputs_in(directory_))) look_in(outputs_in(directory_));
}

void KnownDatasets::look_in(const std::string& directory) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error))
        if (const auto id = epoch_of(entry.path().filename().string())) {
            auto& epoch = epochs_.try_emplace(*id, Epoch{directory, entry.last_write_time()}).first->second;
            epoch.written = std::max(epoch.written, entry.last_write_time());
        }
    if (error) missing("there are no datasets in " + directory + ": " + error.message());
}

tailrace::Reader KnownDatasets::open(uint64_t id) const {
    return tailrace::Reader::open_directory(epochs_.at(id).directory, job, id);
}

Dataset KnownDatasets::by_id(uint64_t id) const {
    if (!epochs_.contains(id))
        missing(title(id) + " is not in " + directory_ +
                "; if a program has left it on the nodes, run `tailrace drain` there first");
    const auto dataset = described_in(open(id));
    if (!dataset.bypass) return dataset;
    expect_last_of_name(dataset);
    expect_files(dataset);
    return dataset;
}

Dataset KnownDatasets::by_name(const std::string& name) const {
    std::vector<uint64_t> found;
    for (const auto& [id, epoch] : epochs_) {
        try {
            if (described_in(open(id)).name == name) found.push_back(id);
        } catch (const tailrace::Error&) {
            // It is not complete, or says no name.
        }
    }
    if (found.empty()) missing("no complete dataset in " + directory_ + " has the name " + name);
    if (found.size() == 1) return by_id(found.front());
    std::string ids;
    for (const auto id : found) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                          "the datasets " + ids + " have the name " + name + "; choose one with --build ID");
}

void KnownDatasets::expect_last_of_name(const Dataset& dataset) const {
    for (auto later = epochs_.upper_bound(dataset.id); later != epochs_.end(); ++later) {
        const auto id = later->first;
        std::string name;
        try {
            name = described_in(open(id)).name;
        } catch (const tailrace::Error&) {
            continue;
        }
        if (name == dataset.name)
            missing(title(id) + " has the name " + name + ", too, and has written over the files of " +
                    title(dataset.id));
    }
}

void KnownDatasets::expect_files(const Dataset& dataset) const {
    const auto complete = epochs_.at(dataset.id).written;
    const auto reader = open(dataset.id);
    for (uint32_t rank = 0; rank < reader.rank_count(); ++rank)
        for (const auto& file : decode(text_in(reader, rank, files_region))) {
            const auto path = prefix_.path_of(file.key);
            struct stat known {};
            if (::stat(path.c_str(), &known) != 0) missing(title(dataset.id) + " lacks its file " + path);
            if (static_cast<uint64_t>(known.st_size) != file.bytes)
                throw tailrace::Error(TAILRACE_CORRUPT, path + " has " + std::to_string(known.st_size) +
                                                            " bytes, and had " + std::to_string(file.bytes) +
                                                            " when the dataset was complete");
            std::error_code error;
            if (std::filesystem::last_write_time(path, error) > complete && !error)
                throw tailrace::Error(
                    TAILRACE_CORRUPT,
                    path + " was written after " + title(dataset.id) +
                        " was complete; if it was only copied, give it an earlier time with "
                        "`touch -d` and try again");
        }
}

uint64_t id_of(const std::string& text) {
    const std::string_view beginning = "scr.dataset.";
    const auto at = text.rfind(beginning);
    const auto number = text.substr(at == std::string::npos ? 0 : at + beginning.size());
    uint64_t id = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() || id == 0)
        throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                              text + " is no id of a dataset; write 5 or scr.dataset.5, or use --add NAME");
    return id;
}

}  // namespace scr_on_tailrace
