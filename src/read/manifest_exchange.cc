#include "read/manifest_exchange.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/log.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t min_record_bytes = 4 + 8;  // the saved rank, the length

// Step 1: reads this rank's share.
std::vector<std::byte> read_share(EpochReader& reader, uint32_t first, uint32_t step, uint32_t saved_ranks) {
    ByteWriter out;
    for (uint64_t saved = first; saved < saved_ranks; saved += step) {
        const auto rank = static_cast<uint32_t>(saved);
        auto bytes = reader.manifest_bytes(rank);
        if (!bytes.ok()) {
            log(LogLevel::debug, "a manifest is not exchanged: {}", bytes.status().message());
            continue;
        }
        out.put(rank);
        out.put(static_cast<uint64_t>(bytes->size()));
        out.put_bytes(*bytes);
    }
    return out.take();
}

// Step 3: keeps what one rank has sent.
void keep_share(EpochReader& reader, std::span<const std::byte> share) {
    ByteReader in(share);
    while (in.ok() && in.remaining() >= min_record_bytes) {
        const auto rank = in.get<uint32_t>();
        const auto bytes = in.get_bytes(in.get<uint64_t>());
        if (!in.ok()) break;
        if (Status kept = reader.keep_manifest(rank, bytes); !kept.ok())
            log(LogLevel::debug, "a manifest from another rank is not kept: {}", kept.message());
    }
}

}  // namespace

Status exchange_manifests(Transport& transport, EpochReader* reader, uint32_t saved_ranks) {
    std::vector<std::byte> mine;
    if (reader != nullptr)
        mine = read_share(*reader, static_cast<uint32_t>(transport.rank()),
                          static_cast<uint32_t>(transport.size()), saved_ranks);
    TAILRACE_ASSIGN(const auto shares, transport.allgather(mine));
    if (reader != nullptr)
        for (const auto& share : shares) keep_share(*reader, share);
    return Status();
}

}  // namespace tailrace::internal
