#include "files/restored_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/nearest.h"
#include "base/text.h"
#include "storage/file_size_signal.h"

namespace tailrace::internal {

namespace {

// So many are open and mapped at once, each with its directory.
constexpr size_t files_at_once = 128;

// The directory of a rank's files in the tree.
std::string directory_of(uint32_t rank) {
    return fmt::format("p{:05}", rank);
}

// The epoch is sound, but this rank cannot take it.
Status of_tree(const Status& failure) {
    if (failure.ok() || failure.code() == Code::no_space) return failure;
    return Status(Code::failed_state, failure.message());
}

const EpochFile* find_file(const std::vector<EpochFile>& files, std::string_view name) {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const EpochFile& file) { return file.name == name; });
    return found == files.end() ? nullptr : &*found;
}

}  // namespace

Status write_files(EpochReader& reader, uint32_t rank, std::span<const EpochFile> files, const FileTree& tree,
                   const std::string& directory, bool durable) {
    const FileSizeSignalBlocked blocked;
    for (size_t first = 0; first < files.size(); first += files_at_once) {
        const auto some = files.subspan(first, std::min(files_at_once, files.size() - first));
        std::vector<std::unique_ptr<NewFile>> made;
        std::vector<RegionTarget> targets;
        for (const EpochFile& file : some) {
            auto created =
                tree.create(directory.empty() ? file.name : directory + "/" + file.name, file.bytes);
            TAILRACE_TRY(of_tree(created.status()));
            targets.push_back({file_region(file.name), (*created)->memory()});
            made.push_back(std::move(*created));
        }
        TAILRACE_TRY(reader.read_regions(rank, targets));
        for (size_t i = 0; i < some.size(); ++i)
            TAILRACE_TRY(of_tree(made[i]->finish(some[i].rights, durable)));
    }
    return {};
}

Status RestoredFiles::write_own(EpochReader& reader) {
    if (own_rank_ >= reader.rank_count()) return {};
    TAILRACE_ASSIGN(const auto* own, files(reader, own_rank_));
    TAILRACE_TRY(write_files(reader, own_rank_, *own, *tree_, directory_of(own_rank_), false));
    for (const EpochFile& file : *own) written_.emplace(own_rank_, file.name);
    return {};
}

Result<const std::vector<EpochFile>*> RestoredFiles::files(EpochReader& reader, uint32_t rank) {
    if (const auto known = files_.find(rank); known != files_.end()) return &known->second;
    TAILRACE_ASSIGN(auto found, files_of(reader, rank));
    return &files_.emplace(rank, std::move(found)).first->second;
}

Result<const std::vector<EpochFile>*> RestoredFiles::files(uint32_t rank) {
    return files(*reader_, rank);
}

Result<const EpochFile*> RestoredFiles::file(uint32_t rank, std::string_view name) {
    TAILRACE_ASSIGN(const auto* of_rank, files(rank));
    if (const EpochFile* found = find_file(*of_rank, name)) return found;
    std::string sentence =
        fmt::format("rank {} saved no file \"{}\" in {}", rank, shortened(name), to_string(reader_->key()));
    std::vector<std::string_view> names;
    for (const EpochFile& file : *of_rank) names.push_back(file.name);
    if (!names.empty())
        sentence += fmt::format("; the nearest name is \"{}\"", shortened(nearest_name(name, names)));
    return Status(Code::not_found, std::move(sentence));
}

// Reads the tables of all ranks, where this rank has no file of that name.
Result<uint32_t> RestoredFiles::rank_with(std::string_view name) {
    std::vector<uint32_t> ranks;
    const auto look_at = [&](uint32_t rank) -> Status {
        TAILRACE_ASSIGN(const auto* of_rank, files(rank));
        if (find_file(*of_rank, name) != nullptr) ranks.push_back(rank);
        return {};
    };
    const uint32_t rank_count = reader_->rank_count();
    if (own_rank_ < rank_count) TAILRACE_TRY(look_at(own_rank_));
    if (!ranks.empty()) return own_rank_;
    for (uint32_t rank = 0; rank < rank_count; ++rank) TAILRACE_TRY(look_at(rank));
    if (ranks.size() == 1) return ranks.front();
    if (ranks.empty())
        return Status(Code::not_found, fmt::format("no rank saved a file \"{}\" in {}", shortened(name),
                                                   to_string(reader_->key())));
    return Status(
        Code::invalid_argument,
        fmt::format(
            "several ranks, such as {} and {}, saved a file \"{}\" in {}, but this rank did not: name the "
            "rank",
            ranks[0], ranks[1], shortened(name), to_string(reader_->key())));
}

Result<std::string> RestoredFiles::path(uint32_t rank, const EpochFile& file) {
    const auto directory = directory_of(rank);
    TAILRACE_ASSIGN(auto path, tree_->usable_path(directory + "/" + file.name));
    if (!written_.contains({rank, file.name})) {
        TAILRACE_TRY(write_files(*reader_, rank, {&file, 1}, *tree_, directory, false));
        written_.emplace(rank, file.name);
    }
    return path;
}

Result<std::string> RestoredFiles::find(std::optional<uint32_t> rank, std::string_view name) {
    TAILRACE_TRY(check_file_name(name));
    if (!rank) {
        TAILRACE_ASSIGN(rank, rank_with(name));
    }
    TAILRACE_ASSIGN(const EpochFile* found, file(*rank, name));
    return path(*rank, *found);
}

}  // namespace tailrace::internal
