// make_epoch DIR [KEY=VALUE...]: writes an epoch for cli_test.py. make_epoch FILE load=1: loads a
// configuration file and fails unless every setting then has its default.
//
// Keys: job, epoch, run, uid, files, leaders, ranks, age (seconds since its commit), checksums (0 or 1),
// unfinished=1 (the last file has no slot), captured=1 (captured parts instead of shared files), shared_dir
// (that these name), gap=1 (no rank saved the array's last rows), shapes=1 (the last rank says that it has a
// row more), overlap=1 (declares that its pieces may overlap), megabytes (adds a region of that size to each
// rank), objects=N (with captured=1: also the protect objects of the first N nodes; rank r was on node r, and
// each node keeps a copy of the one before it), own_files=KIND (each rank r also saves files that it wrote:
// `unique`: out/r.txt and, rank 0, an executable without bytes, run; `same`: state; `nested`: rank 0 a file
// a, the others a/r; `hostile`: `unique`, and rank 1 also one that would lie outside; `original`: as
// `unique`, written with files_as = original). A file's text is "NAME of rank r", its rights are 0640.
//
// Every rank r saves
//   particles   1000 + 100 r bytes: byte i is (r * 31 + i * (7 + 2 r)) mod 256
//   density     rows of an int32 array of 4 * ranks x 10, element i of the whole is i
//   half        its element of a bfloat16 array of as many elements as ranks, with the bits 0x3f80 + r
// and rank 0 also a region of no bytes and one whose name does its best to spoil a terminal.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>

#include "catalog/catalog.h"
#include "config/config.h"
#include "format/file_table.h"
#include "format/original_files.h"
#include "protect/protect_object.h"
#include "read/epoch_builder.h"
#include "shared/originals.h"
#include "storage/storage.h"

namespace {

using namespace tailrace::internal;
using namespace tailrace::internal::testing_support;

std::vector<std::byte> bytes_of(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

void add_files(std::vector<BuiltRegion>& regions, uint32_t rank, const std::string& kind) {
    const auto number = std::to_string(rank);
    std::vector<SavedFile> files;
    if (kind == "same") files.push_back({"state", 0640});
    if (kind == "nested") files.push_back({rank == 0 ? "a" : "a/" + number, 0640});
    if (kind == "unique" || kind == "hostile" || kind == "original")
        files.push_back({"out/" + number + ".txt", 0640});
    if (kind == "hostile" && rank == 1) files.push_back({"../outside", 0640});
    std::vector<BuiltRegion> contents;
    for (const auto& file : files)
        contents.push_back({file_region(file.name), bytes_of(file.name + " of rank " + number), {}});
    if ((kind == "unique" || kind == "original") && rank == 0) {
        files.push_back({"run", 0755});
        contents.push_back({file_region("run"), {}, {}});
    }
    regions.push_back({std::string(file_table_region), encode_file_table(files), {}});
    if (kind == "original") regions.push_back({std::string(original_files_region), {}, {}});
    regions.insert(regions.end(), contents.begin(), contents.end());
}

// As a session writes them from its captured parts.
Status write_original_files(Storage& storage, const std::string& directory, const BuiltEpoch& epoch) {
    const auto parts = directory + "/parts";
    TAILRACE_TRY(write_captured_parts(storage, parts, epoch));
    const OriginalsPlace place{storage, directory, epoch.job};
    std::vector<PartPlace> places;
    for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank)
        places.push_back({epoch.key, join_path(parts, to_string(PartFileName{epoch.job, epoch.key, rank}))});
    TAILRACE_TRY(write_originals(place, storage, places, OriginalsAttempt::first, nullptr));
    for (const auto& part : places) TAILRACE_TRY(storage.remove(part.path));
    TAILRACE_TRY(storage.remove_directory(parts));
    return publish_originals(place, epoch.key, Replace::yes);
}

std::vector<BuiltRegion> regions_of(uint32_t rank, uint32_t rank_count, bool gap, bool shapes, bool overlap,
                                    uint64_t megabytes) {
    std::vector<BuiltRegion> regions;
    BuiltRegion particles{"particles", std::vector<std::byte>(1000 + 100 * rank), {}};
    for (size_t i = 0; i < particles.data.size(); ++i)
        particles.data[i] = static_cast<std::byte>((rank * 31 + i * (7 + 2 * rank)) & 0xff);
    regions.push_back(std::move(particles));
    const uint64_t rows = gap && rank + 1 == rank_count ? 2 : 4;
    const uint64_t more_rows = shapes && rank + 1 == rank_count ? 1 : 0;
    regions.push_back(counting_array("density", {4 * rank_count + more_rows, 10}, {4 * rank, 0}, {rows, 10}));
    regions.back().array->may_overlap = overlap;
    BuiltRegion half{"half", std::vector<std::byte>(2),
                     ArrayPiece{ElementType::bfloat16, {rank_count}, {rank}, {1}}};
    const auto bits = static_cast<uint16_t>(0x3f80 + rank);
    std::memcpy(half.data.data(), &bits, 2);
    regions.push_back(std::move(half));
    if (megabytes > 0) regions.push_back({"large", pattern(rank, megabytes << 20), {}});
    if (rank == 0) {
        regions.push_back({"empty", {}, {}});
        regions.push_back({"spoil\x1b[31m\n\xff", std::vector<std::byte>(3), {}});
    }
    return regions;
}

// Its pieces are zeros.
Status write_object(Storage& storage, const std::string& directory, const BuiltEpoch& epoch, uint32_t node) {
    TAILRACE_ASSIGN(const auto listed, list_local(storage, directory, epoch.job));
    ProtectHead head;
    head.identity = {epoch.job, epoch.key, epoch.run_uid, static_cast<uint32_t>(epoch.ranks.size()),
                     epoch.shared_dir};
    head.redundancy = {Scheme::partner, 1};
    for (const auto& part : listed.parts)
        if (part.header.key == epoch.key)
            head.members.push_back({part.header.stream.rank, {part.header.stream}});
    const auto count = static_cast<uint32_t>(head.members.size());
    head.position = node;
    head.kept = (node + count - 1) % count;
    TAILRACE_ASSIGN(const auto writer, ObjectWriter::create(storage, directory, head, false));
    return writer->finish();
}

int load_defaults(const char* path) {
    Config config;
    if (const Status status = load_config_file(config, path); !status.ok()) {
        std::fprintf(stderr, "make_epoch: %s\n", status.to_string().c_str());
        return 1;
    }
    for (const ConfigKey& key : config_keys())
        if (*get_config(config, key.name) != *get_config(Config{}, key.name)) {
            std::fprintf(stderr, "make_epoch: %s is no default\n", std::string(key.name).c_str());
            return 1;
        }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    std::map<std::string, std::string> given;
    for (int i = 2; i < argc; ++i) {
        const std::string argument = argv[i];
        const size_t equals = argument.find('=');
        if (equals == std::string::npos) return 2;
        given[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    if (given.count("load") > 0) return load_defaults(argv[1]);
    const auto number = [&](const char* key, uint64_t otherwise) {
        auto found = given.find(key);
        return found == given.end() ? otherwise : std::strtoull(found->second.c_str(), nullptr, 10);
    };
    const auto now_ms = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                                  std::chrono::system_clock::now().time_since_epoch())
                                                  .count());
    BuiltEpoch epoch;
    if (given.count("job") > 0) epoch.job = given["job"];
    if (given.count("shared_dir") > 0) epoch.shared_dir = given["shared_dir"];
    epoch.key = {number("epoch", 1), static_cast<uint32_t>(number("run", 1))};
    epoch.run_uid = number("uid", 0x5eed);
    epoch.file_count = static_cast<uint32_t>(number("files", 2));
    epoch.leaders_per_file = static_cast<uint32_t>(number("leaders", 1));
    epoch.committed_unix_ms = now_ms - 1000 * number("age", 0);
    epoch.has_checksums = number("checksums", 1) != 0;
    epoch.last_slot_missing = number("unfinished", 0) != 0;
    const auto ranks = static_cast<uint32_t>(number("ranks", 3));
    for (uint32_t rank = 0; rank < ranks; ++rank)
        epoch.ranks.push_back(regions_of(rank, ranks, number("gap", 0) != 0, number("shapes", 0) != 0,
                                         number("overlap", 0) != 0, number("megabytes", 0)));
    for (uint32_t rank = 0; rank < ranks && given.count("own_files") > 0; ++rank)
        add_files(epoch.ranks[rank], rank, given["own_files"]);

    auto storage = make_system_storage({.engine = IoEngine::posix});
    if (!storage.ok()) return 1;
    Status status = number("captured", 0) != 0 ? write_captured_parts(**storage, argv[1], epoch)
                                               : write_shared_files(**storage, argv[1], epoch);
    if (status.ok() && given["own_files"] == "original")
        status = write_original_files(**storage, argv[1], epoch);
    for (uint32_t node = 0; status.ok() && node < number("objects", 0); ++node)
        status = write_object(**storage, argv[1], epoch, node);
    if (status.ok()) return 0;
    std::fprintf(stderr, "make_epoch: %s\n", status.to_string().c_str());
    return 1;
}
