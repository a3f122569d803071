// tailrace extract: writes one rank's region as raw bytes, a global array (or a box of it) as a .npy
// file, or the files of the program into a directory.
//
// The reader fills the output file's memory directly. So what is extracted need not fit into RAM.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "box_text.h"
#include "command.h"
#include "epoch_directory.h"
#include "extract_files.h"
#include "npy.h"
#include "output_file.h"
#include "read/epoch_reader.h"
#include "text.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

namespace {

struct Options {
    EpochChoice choice;
    std::optional<uint32_t> rank;
    std::string region;
    std::string array;
    std::string box;
    bool files = false;
    bool by_rank = false;
    std::string output;
    bool force = false;
    bool json = false;
};

// What was written; the last line of the output names it.
struct Extracted {
    std::string what;
    uint64_t bytes = 0;  // of data
    std::optional<ElementType> type;
    std::vector<uint64_t> shape;
};

Result<Extracted> extract_region(EpochReader& reader, const Options& options) {
    TAILRACE_ASSIGN(const uint64_t bytes, reader.region_bytes(*options.rank, options.region));
    TAILRACE_ASSIGN(auto file, OutputFile::create(options.output, bytes, options.force));
    const RegionTarget targets[] = {{options.region, file->memory()}};
    TAILRACE_TRY(reader.read_regions(*options.rank, targets));
    TAILRACE_TRY(file->commit());
    return Extracted{fmt::format("region '{}' of rank {}", options.region, *options.rank), bytes, {}, {}};
}

Result<Extracted> extract_array(EpochReader& reader, const Options& options) {
    TAILRACE_ASSIGN(const auto arrays, reader.arrays());
    const auto found = std::find_if(arrays.begin(), arrays.end(),
                                    [&](const GlobalArray& array) { return array.name == options.array; });
    if (found == arrays.end()) {
        if (reader.region_bytes(0, options.array).ok())
            return Status(
                Code::not_found,
                fmt::format("'{}' is not an array, but a region of each rank: extract it with --rank R "
                            "--region {}",
                            options.array, options.array));
        // The reader's failure is a good sentence, because it names the nearest array.
        const Status missing = reader.read_box(options.array, {}, {}, {});
        return missing.ok() ? Status(Code::not_found, fmt::format("no array '{}'", options.array)) : missing;
    }
    Box box{std::vector<uint64_t>(found->shape.size(), 0), found->shape};
    if (!options.box.empty()) {
        auto given = parse_box(options.box, found->shape);
        if (!given.ok()) return given.status().with_context("--box");
        box = std::move(*given);
    }
    const uint64_t bytes = box.elements() * element_bytes(found->type);
    const std::string header = npy_header(found->type, box.shape);
    TAILRACE_ASSIGN(auto file, OutputFile::create(options.output, header.size() + bytes, options.force));
    std::memcpy(file->memory().data(), header.data(), header.size());
    TAILRACE_TRY(reader.read_box(found->name, box.offset, box.shape, file->memory().subspan(header.size())));
    TAILRACE_TRY(file->commit());
    return Extracted{fmt::format("array '{}'", found->name), bytes, found->type, box.shape};
}

void print_result(const Options& options, const EpochKey& key, const Extracted& extracted) {
    const bool as_bits = extracted.type == ElementType::bfloat16;
    if (options.json) {
        nlohmann::ordered_json json{{"epoch", key.epoch},
                                    {"run", key.run},
                                    {"output", options.output},
                                    {"data_bytes", extracted.bytes}};
        if (extracted.type) {
            json["array"] = options.array;
            json["type"] = element_type_name(*extracted.type);
            json["npy_type"] = npy_type(*extracted.type);
            json["shape"] = extracted.shape;
        } else {
            json["rank"] = *options.rank;
            json["region"] = options.region;
        }
        print_json(json);
        return;
    }
    std::string shape;
    if (extracted.type)
        shape = fmt::format(", {} {}", element_type_name(*extracted.type), shape_text(extracted.shape));
    print(fmt::format("{} of {}: {}{} in {}\n", printable(extracted.what), to_string(key),
                      format_bytes(extracted.bytes), shape, printable(options.output)));
    if (as_bits)
        print(
            "NumPy has no bfloat16: the file holds the bits as uint16. To convert them to float32: "
            "(a.astype('u4') << 16).view('f4')\n");
}

void print_files(const Options& options, const EpochKey& key, const std::vector<ExtractedFile>& files) {
    uint64_t bytes = 0;
    auto listed = nlohmann::ordered_json::array();
    for (const auto& file : files) {
        bytes += file.bytes;
        listed.push_back(
            {{"rank", file.rank}, {"name", file.name}, {"path", file.path}, {"bytes", file.bytes}});
    }
    if (options.json)
        return print_json({{"epoch", key.epoch},
                           {"run", key.run},
                           {"output", options.output},
                           {"data_bytes", bytes},
                           {"files", listed}});
    print(fmt::format("{} of {}: {} in {}{}\n", counted(files.size(), "file"), to_string(key),
                      format_bytes(bytes), printable(options.output),
                      files.front().path == files.front().name ? "" : ", in a directory for each rank"));
}

Exit extract_all_files(const Options& options, EpochReader& reader) {
    const auto files = extract_files(reader, options.output, options.rank, options.by_rank);
    if (!files.ok()) return report(files.status());
    print_files(options, reader.key(), *files);
    return exit_ok;
}

// What of the options does not fit together.
Status check_files_options(const Options& options) {
    if (!options.region.empty() || !options.array.empty() || !options.box.empty())
        return Status(Code::invalid_argument, "--files goes with neither --region, --array nor --box");
    if (options.force)
        return Status(
            Code::invalid_argument,
            "--force replaces a file, and --files writes a directory: name one that does not exist");
    return {};
}

Status check_options(const Options& options) {
    if (options.files) return check_files_options(options);
    if (options.by_rank) return Status(Code::invalid_argument, "--by-rank needs --files");
    if (options.region.empty() == options.array.empty())
        return Status(Code::invalid_argument, "give either --rank and --region, or --array, or --files");
    if (!options.region.empty() && !options.rank)
        return Status(Code::invalid_argument,
                      fmt::format("--region '{}' needs --rank, the rank that saved it", options.region));
    if (options.array.empty() && !options.box.empty())
        return Status(Code::invalid_argument, "--box needs --array");
    if (!options.array.empty() && options.rank)
        return Status(Code::invalid_argument, "--array is assembled from all ranks: leave --rank out");
    return {};
}

Exit run(const Options& options, Storage& storage) {
    if (const Status checked = check_options(options); !checked.ok()) return report(checked);
    auto epoch = choose_epoch(storage, options.choice);
    if (!epoch.ok()) return report(epoch.status());
    if (!epoch->why.ok()) {
        (void)report(epoch->why);
        return epoch->completeness == Completeness::unreadable ? exit_failed : exit_damaged;
    }
    auto reader = EpochReader::open(storage, storage, epoch->sources());
    if (!reader.ok()) return report(reader.status());
    if (options.files) return extract_all_files(options, **reader);
    auto extracted =
        options.array.empty() ? extract_region(**reader, options) : extract_array(**reader, options);
    if (!extracted.ok()) return report(extracted.status());
    print_result(options, (*reader)->key(), *extracted);
    return exit_ok;
}

}  // namespace

Command add_extract(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "extract", "Write a rank's region, a global array as .npy, or the program's files");
    options->choice.add_to(*command, true);
    command->add_option("--rank", options->rank, "Rank that saved the region or the files")
        ->transform(whole_number());
    command->add_option("--region", options->region, "Region to write, as raw bytes");
    command->add_option("--array", options->array, "Global array to write, as a NumPy .npy file");
    command->add_option("--box", options->box, "Part of the array: FROM:TO for each dimension");
    command->add_flag("--files", options->files, "Write the program's files, those of all ranks or of one");
    command->add_flag("--by-rank", options->by_rank, "With --files: write a directory for each rank");
    command->add_option("-o,--output", options->output, "File to write; with --files, directory to create")
        ->required();
    command->add_flag("--force", options->force, "Replace the file if it exists");
    command->add_flag("--json", options->json, "Print one JSON document that describes the output");
    command->footer(
        "`tailrace show` lists the names. The file appears complete and checked, or not at all. Either\n"
        "end of a box's range may be left out (:10, 5:, :). One number selects one index. With --files a\n"
        "new directory has the files under their names. If ranks have used the same name, the files of\n"
        "each rank are in a directory such as rank00003.\n\n"
        "  tailrace extract /scratch/run7 1200 --array density -o density.npy\n"
        "  tailrace extract /scratch/run7 newest --array density --box 0:64,:,32 -o slice.npy\n"
        "  tailrace extract /scratch/run7 newest --rank 3 --region particles -o particles.bin\n"
        "  tailrace extract /scratch/run7 newest --files -o restart");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
