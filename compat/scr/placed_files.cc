#include "placed_files.h"

#include <filesystem>

#include "common/small_file.h"
#include "epochs_directory.h"
#include "sync_files.h"

namespace scr_on_tailrace {

namespace {

// docs/format.md, "Original files", has these lines.
void expect_epoch(const std::string& directory, uint64_t id, uint32_t run) {
    const auto mark = on_tailrace::read_file(directory + "/tailrace.complete", "the output");
    const auto lines =
        std::string("\njob ") + job + "\nepoch " + std::to_string(id) + "\nrun " + std::to_string(run) + "\n";
    if (mark.find(lines) != mark.find('\n'))
        throw tailrace::Error(TAILRACE_CORRUPT, directory + " is not the directory of epoch " +
                                                    std::to_string(id) + " of run " + std::to_string(run) +
                                                    "; move it away, and the next run makes one");
}

// Ranks may do so in one directory at once.
void place_file(const std::string& path, const std::string& name, uint32_t rank) {
    const auto directory = std::filesystem::path(name).parent_path();
    const auto between = directory / (".tailrace." + std::to_string(rank));
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (!error) std::filesystem::remove(between, error);
    if (!error) std::filesystem::create_hard_link(path, between, error);
    if (error) {
        error.clear();
        std::filesystem::copy_file(path, between, error);
        if (!error) sync_file(between);
    }
    if (!error) std::filesystem::rename(between, name, error);
    std::error_code left;
    std::filesystem::remove(between, left);  // also if both were one file already: then rename does nothing
    if (error)
        throw tailrace::Error(TAILRACE_IO_ERROR, "naming " + path + " " + name + ": " + error.message() +
                                                     "; the output is complete, and its files are there");
}

}  // namespace

void place_files(const Place& place, uint64_t id, uint32_t run, const std::set<std::string>& keys) {
    if (keys.empty()) return;
    expect_epoch(place.as_written, id, run);
    for (const auto& key : keys)
        place_file(place.as_written + "/" + key, place.prefix.path_of(key), place.rank);
    sync_directories_of(place.prefix, keys);
}

std::set<std::string> placed_of(const Place& place, const std::set<std::string>& keys) {
    std::set<std::string> placed;
    if (place.as_written.empty()) return placed;
    for (const auto& key : keys) {
        std::error_code error;
        if (std::filesystem::equivalent(place.as_written + "/" + key, place.prefix.path_of(key), error))
            placed.insert(key);
    }
    return placed;
}

}  // namespace scr_on_tailrace
