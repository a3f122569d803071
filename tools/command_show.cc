// tailrace show: shows what an epoch holds (regions, arrays, extents), or what one file says about
// itself.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/units.h"
#include "command.h"
#include "epoch_directory.h"
#include "format/table.h"
#include "halt_note.h"
#include "read/epoch_reader.h"
#include "text.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
    EpochChoice choice;  // its directory may be a file
    std::optional<uint32_t> rank;
    bool json = false;
};

// ---- regions -----------------------------------------------------------------------------------------

Json to_json(const Region& region) {
    Json json{{"name", region.name}, {"bytes", region.bytes}, {"stream_offset", region.stream_offset}};
    if (region.array) {
        json["type"] = element_type_name(region.array->type);
        json["global_shape"] = region.array->global_shape;
        json["offset"] = region.array->offset;
        json["local_shape"] = region.array->local_shape;
        json["may_have_gaps"] = region.array->may_have_gaps;
        json["may_overlap"] = region.array->may_overlap;
        json["is_list"] = region.array->is_list;
    }
    return json;
}

Json to_json(const PartManifest& manifest) {
    Json json{{"rank", manifest.rank},
              {"stream_bytes", manifest.stream_bytes},
              {"has_checksums", manifest.has_checksums},
              {"regions", Json::array()}};
    for (const Region& region : manifest.regions) json["regions"].push_back(to_json(region));
    return json;
}

// Of a rank's piece, or of a whole array.
template <class Array>
std::string declared_text(const Array& array) {
    if (array.is_list) return "list";
    if (array.may_have_gaps) return array.may_overlap ? "gaps, overlap" : "gaps";
    return array.may_overlap ? "overlap" : "-";
}

std::string table_of(const PartManifest& manifest) {
    Table table({"REGION", "BYTES", "TYPE", "GLOBAL SHAPE", "OFFSET", "LOCAL SHAPE", "DECLARED"}, {1});
    for (const Region& region : manifest.regions) {
        if (!region.array) {
            table.add({printable(region.name), std::to_string(region.bytes), "-", "-", "-", "-", "-"});
            continue;
        }
        std::string offset;
        for (uint64_t at : region.array->offset) offset += (offset.empty() ? "" : ", ") + std::to_string(at);
        table.add({printable(region.name), std::to_string(region.bytes),
                   std::string(element_type_name(region.array->type)), shape_text(region.array->global_shape),
                   offset, shape_text(region.array->local_shape), declared_text(*region.array)});
    }
    return table.text();
}

// A plain region as all ranks together saved it.
struct RegionSummary {
    std::string name;
    size_t ranks = 0;
    uint64_t bytes = 0;
    uint64_t least = UINT64_MAX, most = 0;
};

std::vector<RegionSummary> summarize(const std::vector<const PartManifest*>& manifests) {
    std::vector<RegionSummary> summaries;  // in the order of first appearance
    std::map<std::string_view, size_t> by_name;
    for (const PartManifest* manifest : manifests) {
        for (const Region& region : manifest->regions) {
            if (region.array) continue;
            auto [found, is_new] = by_name.try_emplace(region.name, summaries.size());
            if (is_new) summaries.push_back({.name = region.name});
            RegionSummary& summary = summaries[found->second];
            ++summary.ranks;
            summary.bytes += region.bytes;
            summary.least = std::min(summary.least, region.bytes);
            summary.most = std::max(summary.most, region.bytes);
        }
    }
    return summaries;
}

// ---- an epoch ----------------------------------------------------------------------------------------

Json epoch_json(const ListedEpoch& epoch) {
    Json json{{"job", epoch.found.job},           {"epoch", epoch.found.key.epoch},
              {"run", epoch.found.key.run},       {"state", completeness_name(epoch.completeness)},
              {"ranks", epoch.rank_count()},      {"data_bytes", epoch.data_bytes()},
              {"file_bytes", epoch.file_bytes()}, {"disk_bytes", epoch.disk_bytes}};
    if (epoch.shared) {
        json["committed"] = time_text(epoch.saved_unix_ms());
        json["run_uid"] = fmt::format("{:016x}", epoch.shared->run_uid);
        json["files"] = epoch.shared->paths;
    } else {
        json["files"] = Json::array();
        for (const CapturedPart& part : epoch.found.parts) json["files"].push_back(part.path);
    }
    return json;
}

void print_epoch_head(const ListedEpoch& epoch) {
    const size_t files = epoch.shared ? epoch.shared->paths.size() : epoch.found.parts.size();
    std::string saved;
    if (epoch.shared)
        saved = fmt::format(", committed {} ({} ago)", time_text(epoch.saved_unix_ms()),
                            age_text(epoch.age_seconds()));
    print(fmt::format("{} of job {}: {}, {}, {} in {}{}\n", to_string(epoch.found.key), epoch.found.job,
                      completeness_name(epoch.completeness), counted(epoch.rank_count(), "rank"),
                      format_bytes(epoch.data_bytes()), counted(files, "file"), saved));
}

Exit show_rank(const Options& options, const ListedEpoch& epoch, EpochReader& reader) {
    auto manifest = reader.manifest(*options.rank);
    if (!manifest.ok()) return report(manifest.status());
    if (options.json) {
        Json json = epoch_json(epoch);
        json["rank"] = to_json(**manifest);
        print_json(json);
        return exit_ok;
    }
    print_epoch_head(epoch);
    print(fmt::format("\nRank {}: {}, {}{}\n\n", *options.rank,
                      counted((*manifest)->regions.size(), "region"), format_bytes((*manifest)->stream_bytes),
                      (*manifest)->has_checksums ? "" : ", without checksums"));
    print(table_of(**manifest));
    return exit_ok;
}

std::string completeness_text(const GlobalArray& array) {
    if (array.complete) return array.fault ? "yes; but " + printable(array.fault->sentence) : "yes";
    return "no: " + (array.fault ? printable(array.fault->sentence) : "it is declared to have gaps");
}

Exit show_all_ranks(const Options& options, const ListedEpoch& epoch, EpochReader& reader) {
    std::vector<const PartManifest*> manifests;
    std::vector<uint32_t> ranks;
    if (epoch.shared)
        for (uint32_t rank = 0; rank < epoch.rank_count(); ++rank) ranks.push_back(rank);
    else
        for (const CapturedPart& part : epoch.found.parts) ranks.push_back(part.header.stream.rank);
    for (uint32_t rank : ranks) {
        auto manifest = reader.manifest(rank);
        if (!manifest.ok()) return report(manifest.status());
        manifests.push_back(*manifest);
    }
    std::vector<GlobalArray> arrays;
    if (manifests.size() == epoch.rank_count()) {
        auto found = reader.arrays();
        if (!found.ok()) return report(found.status());
        arrays = std::move(*found);
    }
    const auto regions = summarize(manifests);
    if (options.json) {
        Json json = epoch_json(epoch);
        json["arrays"] = Json::array();
        for (const GlobalArray& array : arrays)
            json["arrays"].push_back({{"name", array.name},
                                      {"type", element_type_name(array.type)},
                                      {"shape", array.shape},
                                      {"complete", array.complete},
                                      {"may_have_gaps", array.may_have_gaps},
                                      {"may_overlap", array.may_overlap},
                                      {"is_list", array.is_list},
                                      {"fault", array.fault ? Json(array.fault->sentence) : Json()}});
        json["regions"] = Json::array();
        for (const RegionSummary& region : regions)
            json["regions"].push_back({{"name", region.name},
                                       {"ranks", region.ranks},
                                       {"bytes", region.bytes},
                                       {"least_bytes", region.least},
                                       {"most_bytes", region.most}});
        print_json(json);
        return exit_ok;
    }
    print_epoch_head(epoch);
    if (!arrays.empty()) {
        Table table({"ARRAY", "TYPE", "GLOBAL SHAPE", "COMPLETE", "DECLARED"});
        for (const GlobalArray& array : arrays)
            table.add({printable(array.name), std::string(element_type_name(array.type)),
                       shape_text(array.shape), completeness_text(array), declared_text(array)});
        print("\n" + table.text());
    }
    if (!regions.empty()) {
        Table table({"REGION", "RANKS", "BYTES", "LEAST", "MOST"}, {1, 2, 3, 4});
        for (const RegionSummary& region : regions)
            table.add({printable(region.name), std::to_string(region.ranks), format_bytes(region.bytes),
                       format_bytes(region.least), format_bytes(region.most)});
        print("\n" + table.text());
    }
    return exit_ok;
}

Exit show_epoch(const Options& options, Storage& storage) {
    auto epoch = choose_epoch(storage, options.choice);
    if (!epoch.ok()) return report(epoch.status());
    if (!epoch->why.ok()) {
        if (options.json)
            print_json({{"job", epoch->found.job},
                        {"epoch", epoch->found.key.epoch},
                        {"run", epoch->found.key.run},
                        {"state", completeness_name(epoch->completeness)},
                        {"why", epoch->why.message()}});
        (void)report(epoch->why);
        return epoch->completeness == Completeness::unreadable ? exit_failed : exit_damaged;
    }
    auto reader = EpochReader::open(storage, storage, epoch->sources());
    if (!reader.ok()) return report(reader.status());
    const bool is_directory = storage.list(options.choice.directory).ok();
    if (const auto halt = is_directory ? halt_note(storage, options.choice.directory) : std::nullopt;
        halt && !options.json)
        std::fprintf(stderr, "tailrace: note: %s\n", printable(*halt).c_str());
    return options.rank ? show_rank(options, *epoch, **reader) : show_all_ranks(options, *epoch, **reader);
}

// ---- one file ----------------------------------------------------------------------------------------

// The bytes and extents of one rank that a file holds.
struct Share {
    StreamInfo info;
    uint64_t bytes = 0;
    size_t extents = 0;
};

Exit show_shared_file(const Options& options, const SharedFileHead& head) {
    const SharedHeader& header = head.header;
    std::map<uint32_t, Share> shares;
    std::vector<std::string> problems;
    for (size_t l = 0; l < head.slots.size(); ++l) {
        if (!head.slots[l].ok()) {
            problems.push_back(fmt::format("leader {}: {}", l + 1, head.slots[l].status().message()));
            continue;
        }
        if (!head.indexes[l]->ok()) {
            problems.push_back(fmt::format("leader {}: {}", l + 1, head.indexes[l]->status().message()));
            continue;
        }
        const SegmentIndex& index = **head.indexes[l];
        for (const StreamInfo& info : index.streams) shares[info.rank].info = info;
        for (const Extent& extent : index.extents) {
            shares[extent.rank].bytes += extent.bytes;
            ++shares[extent.rank].extents;
        }
    }
    const Exit exit = problems.empty() ? exit_ok : exit_damaged;
    if (options.json) {
        Json json{{"kind", "shared file"},
                  {"job", header.job},
                  {"epoch", header.key.epoch},
                  {"run", header.key.run},
                  {"run_uid", fmt::format("{:016x}", header.run_uid)},
                  {"file", header.file_index + 1},
                  {"file_count", header.file_count},
                  {"ranks", header.rank_count},
                  {"leaders", header.leader_count},
                  {"block_bytes", header.block_bytes},
                  {"stripe_bytes", header.stripe_bytes},
                  {"complete", problems.empty()},
                  {"problems", problems},
                  {"streams", Json::array()}};
        for (const auto& [rank, share] : shares)
            json["streams"].push_back({{"rank", rank},
                                       {"stream_bytes", share.info.stream_bytes},
                                       {"bytes_here", share.bytes},
                                       {"extents_here", share.extents}});
        print_json(json);
        return exit;
    }
    print(fmt::format("shared file {} of {}, {} of job {}, run id {:016x}\n", header.file_index + 1,
                      header.file_count, to_string(header.key), header.job, header.run_uid));
    print(fmt::format("{} in the epoch, {} in this file, blocks of {}{}\n",
                      counted(header.rank_count, "rank"), counted(header.leader_count, "leader"),
                      format_bytes(header.block_bytes),
                      header.stripe_bytes > 0 ? ", stripes of " + format_bytes(header.stripe_bytes) : ""));
    for (const std::string& problem : problems) print(fmt::format("not complete: {}\n", printable(problem)));
    Table table({"RANK", "STREAM", "IN THIS FILE", "EXTENTS"}, {0, 1, 2, 3});
    for (const auto& [rank, share] : shares)
        table.add({std::to_string(rank), format_bytes(share.info.stream_bytes), format_bytes(share.bytes),
                   std::to_string(share.extents)});
    print("\n" + table.text());
    if (exit == exit_ok)
        print(fmt::format("\nwhat the epoch holds: tailrace show {} newest\n",
                          printable(options.choice.directory)));
    return exit;
}

Result<PartManifest> read_part_manifest(File& file, const StreamInfo& info) {
    TAILRACE_ASSIGN(const uint64_t file_bytes, file.size());
    if (file_bytes < part_header_bytes || info.stream_bytes > file_bytes - part_header_bytes ||
        info.manifest_bytes > info.stream_bytes)
        return Status(Code::corrupt,
                      fmt::format("'{}' is cut off: it has {} bytes, but its header says {}", file.path(),
                                  file_bytes, part_header_bytes + info.stream_bytes));
    TAILRACE_TRY(confirm_table(TableKind::manifest, info.manifest_bytes, info.manifest_crc,
                               "table of regions",
                               [&](std::span<std::byte> piece, uint64_t at) {
                                   return file.read_at(piece, part_header_bytes + at);
                               })
                     .with_context(file.path()));
    std::vector<std::byte> bytes(info.manifest_bytes);
    TAILRACE_ASSIGN(const size_t got, file.read_at(bytes, part_header_bytes));
    if (got < bytes.size() || crc32c(bytes) != info.manifest_crc)
        return Status(Code::corrupt,
                      fmt::format("checksum mismatch in '{}' at offset {}, {} bytes: its table of "
                                  "regions is damaged",
                                  file.path(), part_header_bytes, bytes.size()));
    auto manifest = decode_manifest(bytes);
    if (!manifest.ok()) return manifest.status().with_context(file.path());
    return manifest;
}

Exit show_part(const Options& options, File& file, const PartHeader& header) {
    auto manifest = read_part_manifest(file, header.stream);
    if (options.json) {
        Json json{{"kind", "captured part"},
                  {"job", header.job},
                  {"epoch", header.key.epoch},
                  {"run", header.key.run},
                  {"run_uid", fmt::format("{:016x}", header.run_uid)},
                  {"ranks", header.rank_count},
                  {"for_shared", header.for_shared}};
        if (manifest.ok())
            json["rank"] = to_json(*manifest);
        else
            json["problems"] = {manifest.status().message()};
        print_json(json);
    } else {
        print(fmt::format("captured part of rank {} of {}, {} of job {}, run id {:016x}, {}{}\n",
                          header.stream.rank, header.rank_count, to_string(header.key), header.job,
                          header.run_uid, format_bytes(header.stream.stream_bytes),
                          header.for_shared ? "" : ", meant to stay in the node-local tier"));
        if (manifest.ok()) print("\n" + table_of(*manifest));
    }
    return manifest.ok() ? exit_ok : report(manifest.status());
}

// Shows a shared file or a captured part, whatever its name is.
Exit show_file(const Options& options, Storage& storage, File& file) {
    std::vector<std::byte> start(part_header_bytes);
    auto got = file.read_at(start, 0);
    if (!got.ok()) return report(got.status());
    start.resize(*got);
    if (auto part = decode_part_header(start); part.ok()) return show_part(options, file, *part);
    auto head = read_shared_head(storage, options.choice.directory);
    if (!head.ok()) return report(head.status());
    return show_shared_file(options, *head);
}

Exit run(const Options& options, Storage& storage) {
    const std::string& path = options.choice.directory;
    if (auto listed = storage.list(path); listed.ok()) return show_epoch(options, storage);
    auto file = storage.open(path, OpenOptions{});
    if (!file.ok()) return report(file.status());
    const bool asks_for_epoch = !options.choice.epoch.empty() || options.rank;
    return asks_for_epoch ? show_epoch(options, storage) : show_file(options, storage, **file);
}

}  // namespace

Command add_show(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("show", "Show the contents of an epoch, or of one file");
    command
        ->add_option("DIR|FILE", options->choice.directory,
                     "Directory with the checkpoint's files, or one of an epoch's files")
        ->required();
    command->add_option("EPOCH", options->choice.epoch,
                        "Epoch number, or 'newest' (the default for a directory)");
    command->add_option("--rank", options->rank, "Show this rank's regions, one by one")
        ->transform(whole_number());
    command->add_option("--job", options->choice.job, "Job name, if the directory holds several jobs' files");
    command->add_option("--run", options->choice.run, "Run number, if several runs saved the epoch")
        ->transform(whole_number());
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        R"(An epoch holds arrays, which all ranks share, and regions, which are plain bytes of a rank.
  COMPLETE      whether the ranks' pieces cover the whole array
  DECLARED      what the program said of the array: gaps (it need not be covered), overlap (ranks may
                save the same element), list (it may have another length in every epoch)
  RANKS         how many ranks have saved a region of this name
  BYTES         what these ranks saved together; LEAST and MOST: what one of them saved
Without EPOCH and --rank, a FILE shows what it says about itself: the ranks whose bytes it holds.

  tailrace show /scratch/run7
  tailrace show /scratch/run7 1200 --rank 3
  tailrace show model.tailrace newest          the arrays in a file of tailrace.torch.save
  tailrace show /scratch/run7/job.e000001200.r0001.1of2.tailrace)");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
