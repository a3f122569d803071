#include "read/saved_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/crc32c.h"
#include "base/text.h"
#include "format/file_table.h"
#include "format/original_files.h"

namespace tailrace::internal {

Result<std::vector<EpochFile>> files_of(EpochReader& reader, uint32_t rank) {
    const auto context = fmt::format("the files of rank {} of {}", rank, to_string(reader.key()));
    TAILRACE_ASSIGN(const PartManifest* manifest, reader.manifest(rank));
    std::vector<EpochFile> files;
    const Region* table = find_region(*manifest, file_table_region);
    if (table == nullptr) return files;
    // By name, and each file is a region: so the table's size is bounded by what is there already.
    std::unordered_map<std::string_view, const Region*> regions;
    for (const Region& region : manifest->regions) regions.emplace(region.name, &region);
    if (table->bytes > regions.size() * most_table_entry_bytes)
        return Status(Code::corrupt, fmt::format("{}: their table has {} bytes for {} regions", context,
                                                 table->bytes, regions.size()));
    std::vector<std::byte> bytes(table->bytes);
    const RegionTarget target{std::string(file_table_region), bytes};
    TAILRACE_TRY(reader.read_regions(rank, {&target, 1}));
    auto decoded = decode_file_table(bytes);
    if (decoded.status().code() == Code::unsupported)  // no damage, for which an older epoch would be taken
        return Status(Code::failed_state, decoded.status().message()).with_context(context);
    if (!decoded.ok()) return decoded.status().with_context(context);
    for (auto& saved : *decoded) {
        const auto found = regions.find(file_region(saved.name));
        const Region* region = found == regions.end() ? nullptr : found->second;
        if (region == nullptr || region->array)
            return Status(Code::corrupt, fmt::format("{}: their table names \"{}\", which does not exist",
                                                     context, shortened(saved.name)));
        files.push_back({std::move(saved.name), saved.rights, region->bytes});
    }
    return files;
}

bool wants_originals(const PartManifest& manifest) {
    return find_region(manifest, original_files_region) != nullptr;
}

std::optional<uint32_t> whole_checksum(const PartManifest& manifest, const Region& region) {
    static const Crc32cJoin join_whole_block(check_block_bytes);
    if (!manifest.has_checksums) return std::nullopt;
    uint32_t crc = 0;
    const auto& blocks = region.block_crcs;
    for (size_t b = 0; b < blocks.size(); ++b) {
        const uint64_t bytes = std::min<uint64_t>(check_block_bytes, region.bytes - b * check_block_bytes);
        crc =
            bytes == check_block_bytes ? join_whole_block(crc, blocks[b]) : Crc32cJoin(bytes)(crc, blocks[b]);
    }
    return crc;
}

}  // namespace tailrace::internal
