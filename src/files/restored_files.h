// RestoredFiles: the files of an epoch, brought back into the node-local tier.
//
// They lie in a directory of their own, a directory for each rank that saved them, and go with this
// object. A rank's own files are all written when the epoch is restored, because an epoch counts as
// restored only if they are sound. Other ranks' files are written when they are asked for.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "files/file_tree.h"
#include "format/file_table.h"
#include "read/epoch_reader.h"
#include "read/saved_files.h"

namespace tailrace::internal {

// Reads files of a rank into the tree, below `directory` (empty: the tree itself), with their rights.
// `durable`: when it returns ok, they are on the disk. What fails in the tree, and not in the epoch, is
// no_space or failed_state.
Status write_files(EpochReader& reader, uint32_t rank, std::span<const EpochFile> files, const FileTree& tree,
                   const std::string& directory, bool durable);

class RestoredFiles {
  public:
    RestoredFiles(std::shared_ptr<FileTree> tree, uint32_t own_rank)
        : tree_(std::move(tree)), own_rank_(own_rank) {}

    // Writes this rank's own files, if the epoch has any.
    Status write_own(EpochReader& reader);
    // Keeps the reader of the same epoch, for the calls below.
    void keep(std::unique_ptr<EpochReader> reader) { reader_ = std::move(reader); }
    const EpochReader& reader() const { return *reader_; }

    // The pointer is valid as long as this object.
    Result<const std::vector<EpochFile>*> files(uint32_t rank);
    // The path of a rank's file. Without a rank it is this rank's, or that of the only rank that has a
    // file of that name. invalid_argument if several have; not_found if none has.
    Result<std::string> find(std::optional<uint32_t> rank, std::string_view name);

  private:
    Result<const std::vector<EpochFile>*> files(EpochReader& reader, uint32_t rank);
    Result<const EpochFile*> file(uint32_t rank, std::string_view name);
    Result<uint32_t> rank_with(std::string_view name);
    Result<std::string> path(uint32_t rank, const EpochFile& file);

    std::shared_ptr<FileTree> tree_;
    const uint32_t own_rank_;
    std::unique_ptr<EpochReader> reader_;
    std::map<uint32_t, std::vector<EpochFile>> files_;  // by rank, as far as somebody has asked
    std::set<std::pair<uint32_t, std::string>> written_;
};

}  // namespace tailrace::internal
