// The catalog of the node-local tier: which captured parts of a directory are complete.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "catalog/catalog.h"

namespace tailrace::internal {

namespace {

// A part that is complete and agrees with its name.
Result<CapturedPart> read_part(Storage& storage, const std::string& path, const PartFileName& name) {
    if (name.unfinished)
        return Status(Code::aborted,
                      fmt::format("{} was never finished: its writer stopped too early", path));
    TAILRACE_ASSIGN(auto part, captured_part(storage, path));
    PartFileName real{part.header.job, part.header.key, part.header.stream.rank, false};
    if (real != name)
        return Status(Code::corrupt,
                      fmt::format("{}: its header says that it is {}: it was renamed or replaced", path,
                                  to_string(real)));
    return part;
}

}  // namespace

Result<CapturedPart> captured_part(Storage& storage, const std::string& path, uint64_t offset) {
    TAILRACE_ASSIGN(auto file, storage.open(path, {Access::read, DirectIo::off}));
    TAILRACE_ASSIGN(uint64_t file_bytes, file->size());
    std::vector<std::byte> bytes(part_header_bytes);
    TAILRACE_ASSIGN(size_t got, file->read_at(bytes, offset));
    bytes.resize(got);
    auto header = decode_part_header(bytes);
    if (!header.ok()) return header.status().with_context(path);
    uint64_t needed = offset + part_header_bytes + header->stream.stream_bytes;
    if (file_bytes < needed)
        return Status(Code::corrupt,
                      fmt::format("{}: it is cut off: it needs {} bytes by its header, but has {}", path,
                                  needed, file_bytes));
    return CapturedPart{path, std::move(*header), offset};
}

Result<LocalListing> list_local(Storage& storage, const std::string& directory, const std::string& job) {
    TAILRACE_ASSIGN(auto entries, storage.list(directory));
    LocalListing listing;
    for (const auto& entry : entries) {
        if (entry.is_directory) continue;
        auto name = parse_part_file_name(entry.name);
        if (!name || (!job.empty() && name->job != job)) continue;
        auto path = join_path(directory, entry.name);
        auto part = read_part(storage, path, *name);
        if (part.ok())
            listing.parts.push_back(std::move(*part));
        else if (part.status().code() != Code::not_found)  // otherwise it was removed while we looked
            listing.leftovers.push_back({path, part.status()});
    }
    std::sort(listing.parts.begin(), listing.parts.end(), [](const CapturedPart& a, const CapturedPart& b) {
        return std::tie(a.header.key, a.header.stream.rank) < std::tie(b.header.key, b.header.stream.rank);
    });
    return listing;
}

}  // namespace tailrace::internal
