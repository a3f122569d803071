// EpochStreams: knows where each rank's stream lies, and reads its table of regions (its manifest)
// and blocks of it. The code that reads regions and arrays builds on this, and knows nothing of
// tiers and files.
//
// Invariants:
//   - A rank's sources all hold the same stream. A captured part that differs from what was
//     committed is passed over. Sources are in the order in which they are tried: captured parts,
//     then the shared files.
//   - Files that lie apart (format/original_files.h) are sources of the stream's end, where the shared files
//     end before it. They are looked for when a rank's blocks are first read.
//   - If the shared files are not known, they are looked for when no captured part of a rank is
//     sound. They serve if they hold the same stream. Reading from sound parts never touches the
//     shared tier.
//   - A manifest that is kept was checked against the checksum, the rank and the sizes that its
//     sources name. It is neither changed nor dropped before this object ends.
//
// Thread-safety: all members may be called from several threads at once. Files are read without a
// lock. Two threads may read the same manifest; the first one that is kept counts for both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "catalog/original_places.h"
#include "read/epoch_reader.h"
#include "read/epoch_reader_files.h"
#include "read/epoch_reader_plan.h"
#include "read/epoch_reader_stream.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// Memory for what is read. Sizes come from files, so asking for too much gives a failure and no
// exception. The memory is not zeroed.
using Memory = std::unique_ptr<std::byte[]>;
Result<Memory> allocate(uint64_t bytes, std::string_view what);

// A rank's manifest, and its regions by name. The names point into the manifest.
struct SavedRank {
    PartManifest manifest;
    std::unordered_map<std::string_view, uint32_t> region_by_name;
};

// Check block `block` of region number `region`, to be read into `memory`, which has room for it.
StreamBlock block_of(const PartManifest& manifest, uint32_t region, uint64_t block, std::byte* memory);

// The number of a region's check blocks.
uint64_t block_count(const Region& region);

class EpochStreams {
  public:
    // The storages must outlive this object. EpochReader::open has checked `sources`. Opens no
    // file.
    EpochStreams(Storage& local, Storage& shared, EpochSources sources, DirectIo direct);

    // See EpochReader::open_files.
    Status open_files() { return files_.open_all(); }

    EpochKey key() const { return key_; }
    uint32_t rank_count() const { return rank_count_; }
    std::string name() const { return to_string(key_); }
    std::string name_of(uint32_t rank) const;  // "rank 3 of epoch 7"

    // not_found if there is no such rank, or nothing of it can be read from here.
    Status check(uint32_t rank) const;

    // What `rank` saved. It is read on first use, and kept as long as this object.
    Result<const SavedRank*> saved(uint32_t rank);

    // The same, but always read from the files, and not kept.
    Result<std::unique_ptr<SavedRank>> read_saved(uint32_t rank);

    // See EpochReader::manifest_bytes and EpochReader::keep_manifest.
    Result<std::vector<std::byte>> manifest_bytes(uint32_t rank) { return read_manifest(rank); }
    Status keep_manifest(uint32_t rank, std::span<const std::byte> bytes);

    // Fills the blocks, which block_of() made from this rank's manifest, from the first source that
    // has them right. After a failure the content of their memory is undefined.
    Status read(const SavedRank& saved, std::vector<StreamBlock> blocks);

    // See EpochReader::places.
    std::optional<RegionPlace> place_of(const SavedRank& saved, const Region& region);

    // All ranks, in the order in which their manifests lie in the files, so that they can be read
    // in forward steps. not_found if nothing of some rank can be read from here.
    Result<std::vector<uint32_t>> ranks_in_file_order() const;

  private:
    void add_part(Storage& local, const CapturedPart& part, const std::optional<SharedEpoch>& shared);
    void add_shared(const SharedEpoch& shared);
    // Those of the rank's sources that hold the whole stream.
    std::span<const StreamSource> sources_of(const SavedRank& saved);
    // The files of the rank that lie apart, as sources of the stream's end.
    std::vector<StreamExtent> extents_apart(const PartManifest& manifest) REQUIRES(apart_mutex_);
    // Both return the encoded manifest, of infos_[rank].manifest_bytes, with its checksum checked.
    // The first one reads this object's sources, the second one also the spare ones.
    Result<std::vector<std::byte>> read_own_manifest(uint32_t rank);
    Result<std::vector<std::byte>> read_manifest(uint32_t rank);
    // The rank's sources, from the first one that confirms the manifest on. For a large manifest
    // this check comes before memory is taken (format/table.h).
    Result<std::span<const StreamSource>> sources_of_manifest(uint32_t rank);
    // Decodes bytes whose checksum was checked.
    Result<std::unique_ptr<SavedRank>> decode_saved(uint32_t rank, std::span<const std::byte> bytes) const;
    // The shared files that EpochSources::find_shared finds, for a rank whose captured parts are
    // not sound. Null if there are none, or they hold another stream.
    EpochStreams* spare_for(uint32_t rank);
    std::string describe(uint32_t rank, const PartManifest* manifest, const StreamBlock& block) const;

    const EpochKey key_;
    const uint32_t rank_count_;
    ReadableFiles files_;
    std::vector<std::vector<StreamSource>> streams_;  // by rank, nearest first
    std::vector<StreamInfo> infos_;  // as shared files have them; valid where streams_ has a source

    Mutex mutex_;  // guards the table; its entries never move
    std::unordered_map<uint32_t, std::unique_ptr<SavedRank>> saved_ GUARDED_BY(mutex_);

    Storage& shared_;
    const DirectIo direct_;
    std::string shared_dir_, job_;  // of the shared files; empty if they are not known

    // Held while the files that lie apart are looked for.
    Mutex apart_mutex_;
    std::optional<OriginalPlace> apart_ GUARDED_BY(apart_mutex_);
    // By rank, where some lie apart. Entries never change.
    std::unordered_map<uint32_t, std::vector<StreamSource>> with_apart_ GUARDED_BY(apart_mutex_);
    const uint64_t run_uid_;  // the captured parts'
    std::function<Result<SharedEpoch>()> find_shared_;
    // Held while the files are looked for.
    Mutex spare_mutex_;
    std::unique_ptr<EpochStreams> spare_ GUARDED_BY(spare_mutex_);  // never changes once it is set
};

}  // namespace tailrace::internal
