#include "capture/local_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/bytes.h"
#include "base/fnv.h"
#include "base/log.h"
#include "catalog/lineage.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

// Returns the same text for all paths to a directory, whether it exists yet or not. A job that
// comes back by another symbolic link must find what it has captured.
std::string absolute_text(const std::string& path) {
    std::error_code error;
    auto absolute = std::filesystem::weakly_canonical(path, error);
    if (error) absolute = std::filesystem::absolute(path, error);
    if (error) return path;
    auto text = absolute.lexically_normal().string();
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    return text;
}

std::optional<int> node_number(std::string_view name, const std::string& prefix) {
    if (!name.starts_with(prefix)) return std::nullopt;
    name.remove_prefix(prefix.size());
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (name.size() < 4 || error != std::errc() || end != name.data() + name.size() || number < 0)
        return std::nullopt;
    return number;
}

constexpr uint32_t max_path_bytes = 1 << 16;

}  // namespace

LocalTier local_tier(const std::string& local_dir, const std::string& shared_dir, const std::string& job) {
    auto text = absolute_text(shared_dir);
    LocalTier tier;
    tier.local_dir = local_dir;
    tier.prefix = fmt::format("{}-{:016x}.node", job, fnv1a_64(text));
    tier.old_prefix = fmt::format("{}-{:08x}.node", job, fnv1a_32(text));  // of version 0.1.0
    if (text.size() > max_part_directory_bytes) text.resize(max_part_directory_bytes);
    // A relative path says nothing without the directory it is relative to.
    if (text.starts_with('/')) tier.shared_text = std::move(text);
    return tier;
}

bool LocalTier::owns(const PartHeader& header) const {
    return header.shared_dir.empty() || header.shared_dir == shared_text;
}

std::string LocalTier::directory(int node) const {
    return join_path(local_dir, fmt::format("{}{:04}", prefix, node));
}

Result<std::vector<std::string>> directories_of_node(Storage& storage, const LocalTier& tier, int node,
                                                     const Topology& topology,
                                                     const std::vector<std::string>& hosts) {
    auto host_of = [&](int n) -> const std::string& {
        return hosts[static_cast<size_t>(topology.representative(n))];
    };
    int lowest = node;
    for (int n = node - 1; n >= 0; --n)
        if (host_of(n) == host_of(node)) lowest = n;

    auto entries = storage.list(tier.local_dir);
    if (!entries.ok()) {
        if (entries.status().code() == Code::not_found) return std::vector<std::string>{};
        return entries.status();
    }
    std::vector<std::string> directories;
    for (const auto& entry : *entries) {
        auto number = node_number(entry.name, tier.prefix);
        if (!number) number = node_number(entry.name, tier.old_prefix);
        if (!number || !entry.is_directory) continue;
        const bool here = *number < topology.node_count() && host_of(*number) == host_of(node);
        if ((here ? *number : lowest) == node) directories.push_back(join_path(tier.local_dir, entry.name));
    }
    return directories;
}

Result<LocalListing> list_tier(Storage& storage, const LocalTier& tier, const std::string& directory,
                               const std::string& job) {
    auto listing = list_local(storage, directory, job);
    if (listing.status().code() == Code::invalid_argument) {
        log(LogLevel::warning, "a directory of the node-local tier is passed over: {}",
            listing.status().message());
        return LocalListing{};
    }
    TAILRACE_TRY(listing.status());
    std::erase_if(listing->parts, [&](const CapturedPart& part) {
        if (tier.owns(part.header)) return false;
        log(LogLevel::info, "{} is passed over: it belongs to the shared directory {}", part.path,
            part.header.shared_dir);
        return true;
    });
    return listing;
}

std::optional<PartFileName> part_file_name(const Leftover& leftover) {
    return parse_part_file_name(leftover.path.substr(leftover.path.rfind('/') + 1));
}

template <class Codec>
void fields(Codec& codec, CapturedPart& part) {
    codec.text(part.path, max_path_bytes);
    auto& header = part.header;
    codec(header.key, header.run_uid, header.rank_count, header.sequence, header.for_shared, header.stream,
          header.apart_bytes);
}

std::vector<std::byte> encode_parts(const OfferedParts& offered) {
    ByteWriter out;
    out.put(static_cast<uint64_t>(offered.parts.size()));
    for (const auto& part : offered.parts) put_fields(out, part);
    out.put_string(std::string_view(offered.damaged).substr(0, max_path_bytes));
    return out.take();
}

Result<KnownParts> decode_parts(std::span<const std::byte> bytes, int node) {
    ByteReader in(bytes);
    KnownParts known;
    auto& parts = known.parts;
    const uint64_t count = in.get_count(60);
    for (uint64_t i = 0; i < count && in.ok(); ++i) {
        CapturedPart part;
        get_fields(in, part);
        parts.push_back({node, std::move(part.path), std::move(part.header)});
    }
    known.damaged = in.get_string(max_path_bytes);
    if (!in.at_end())
        return Status(Code::transport,
                      fmt::format("the list of captured parts of node {} could not be decoded", node));
    return known;
}

std::vector<LocalEpoch> gather_local_epochs(const std::vector<KnownPart>& parts) {
    std::map<std::tuple<EpochKey, uint64_t, uint32_t>, LocalEpoch> found;
    for (const auto& part : parts) {
        const auto& header = part.header;
        auto& epoch = found[{header.key, header.run_uid, header.rank_count}];
        if (epoch.parts.empty()) {
            epoch.key = header.key;
            epoch.run_uid = header.run_uid;
            epoch.rank_count = header.rank_count;
            epoch.sequence = header.sequence;
            epoch.for_shared = header.for_shared;
        }
        if (header.stream.rank < header.rank_count) epoch.parts.push_back(part);
    }
    std::map<EpochKey, LocalEpoch> chosen;
    for (auto& [identity, epoch] : found) {
        std::stable_sort(epoch.parts.begin(), epoch.parts.end(), [](const KnownPart& a, const KnownPart& b) {
            return std::tie(a.header.stream.rank, a.node) < std::tie(b.header.stream.rank, b.node);
        });
        auto same_rank = [](const KnownPart& a, const KnownPart& b) {
            return a.header.stream.rank == b.header.stream.rank;
        };
        epoch.parts.erase(std::unique(epoch.parts.begin(), epoch.parts.end(), same_rank), epoch.parts.end());
        auto [place, fresh] = chosen.try_emplace(epoch.key, epoch);
        if (!fresh && !place->second.complete() &&
            (epoch.complete() || epoch.parts.size() > place->second.parts.size()))
            place->second = epoch;
    }
    std::vector<LocalEpoch> epochs;
    for (auto& [key, epoch] : chosen) epochs.push_back(std::move(epoch));
    return epochs;
}

std::vector<EpochKey> choose_local_removals(std::vector<LocalAge> epochs, uint32_t keep) {
    std::vector<EpochKey> whole;
    for (const auto& epoch : epochs)
        if (epoch.safe || epoch.unheard) whole.push_back(epoch.key);
    const Lineage lineage(whole);
    std::sort(epochs.begin(), epochs.end(),
              [&](const LocalAge& a, const LocalAge& b) { return lineage.goes_first(a.key, b.key); });
    std::vector<EpochKey> removals;
    uint32_t kept = 0, unheard = 0;
    bool any_safe = false, any_outlives = false;
    for (const auto& epoch : epochs) {
        const bool last_resort = epoch.after_loss == LocalAge::AfterLoss::rebuilt && !any_outlives;
        any_outlives |= epoch.after_loss != LocalAge::AfterLoss::gone || epoch.elsewhere;
        if (epoch.in_use) continue;
        if (epoch.unheard && unheard++ > keep) {
            removals.push_back(epoch.key);
        } else if (epoch.useless || (kept >= keep && !last_resort) || (!epoch.safe && any_safe)) {
            removals.push_back(epoch.key);
        } else if (epoch.safe) {
            any_safe = true;
            if (!epoch.elsewhere) ++kept;
        }
    }
    std::sort(removals.begin(), removals.end());
    return removals;
}

}  // namespace tailrace::internal
