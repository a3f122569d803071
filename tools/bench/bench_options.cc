#include "bench/bench_options.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/units.h"
#include "config/config.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

void BenchOptions::add_to(CLI::App& command) {
    command.add_option("dir", directory, "A directory on the file system to measure (created if missing)")
        ->required()
        ->type_name("DIR");
    command.add_option("--processes", common.processes, "Number of processes per node")
        ->transform(whole_number(process_range.least, process_range.most))
        ->capture_default_str();
    command.add_option("--size", size, "Bytes per process")->capture_default_str()->type_name("SIZE");
    command.add_option("--imbalance", common.imbalance_percent, "How much sizes differ, in percent")
        ->transform(whole_number(imbalance_range.least, imbalance_range.most))
        ->capture_default_str();
    command.add_option("--seed", common.seed, "Seed of the sizes and the content")
        ->transform(whole_number(0, UINT64_MAX))
        ->capture_default_str();
    command.add_option("--local-dir", local_dir,
                       "Directory of the leader's own parts (default: the library's)");
    command.add_flag("--no-local", no_local, "The leader has no data of its own");
    command.add_flag("--no-sync", no_sync,
                     "Do not sync at the end; the result then measures memory as much as the disk");
}

Status BenchOptions::complete() {
    const auto bytes = parse_bytes(size);
    if (!bytes.ok()) return bytes.status().with_context("--size");
    common.process_bytes = *bytes;
    common.local = !no_local;
    common.durable = !no_sync;
    Config config;
    config.shared_dir = directory;
    config.local_dir = local_dir;
    TAILRACE_TRY(complete_config(config, 1));
    directory = config.shared_dir;
    local_dir = config.local_dir;
    return Status();
}

void announce_end(const BenchCase& bench) {
    std::fputs(bench.durable ? "a run ends when its data is durable: it syncs as the library does\n"
                             : "runs end without syncs: they measure memory as much as the disk\n",
               stderr);
}

Result<std::vector<uint64_t>> parse_sizes(std::string_view option, const std::vector<std::string>& texts) {
    std::vector<uint64_t> sizes;
    for (const std::string& text : texts) {
        const auto bytes = parse_bytes(text);
        if (!bytes.ok()) return bytes.status().with_context(option);
        sizes.push_back(*bytes);
    }
    return sizes;
}

Status check_file_name(std::string_view option, std::string_view name) {
    if (!name.empty() && !name.ends_with('/')) return Status();
    return Status(Code::invalid_argument, fmt::format("{} \"{}\" is not the name of a file", option, name));
}

Result<Storage*> BenchEngines::of(const BenchCase& bench) {
    auto& storage = storages_[{bench.engine, bench.queue_depth}];
    if (!storage) {
        TAILRACE_ASSIGN(storage,
                        make_system_storage({.engine = bench.engine, .queue_depth = bench.queue_depth}));
    }
    return storage.get();
}

Status write_text_file(Storage& storage, const std::string& path, const std::string& text) {
    const std::string partial = path + ".partial";
    TAILRACE_TRY(remove_if_there(storage, partial));
    TAILRACE_ASSIGN(auto file, storage.open(partial, {Access::create_new, DirectIo::off}));
    Status written = file->write_at(std::as_bytes(std::span(text.data(), text.size())), 0);
    if (written.ok()) written = file->close();
    if (written.ok()) written = storage.rename(partial, path);
    if (!written.ok()) (void)storage.remove(partial);
    return written;
}

Status check_text_file(Storage& storage, const std::string& path) {
    // Nothing replaces a directory, and a device or a pipe must not be replaced.
    if (const auto there = storage.open(path, {Access::read, DirectIo::off});
        there.status().code() == Code::invalid_argument)
        return there.status();
    const std::string partial = path + ".partial";
    TAILRACE_TRY(remove_if_there(storage, partial));
    TAILRACE_ASSIGN(auto file, storage.open(partial, {Access::create_new, DirectIo::off}));
    TAILRACE_TRY(file->close());
    return storage.remove(partial);
}

Result<std::string> read_text_file(Storage& storage, const std::string& path) {
    TAILRACE_ASSIGN(auto file, storage.open(path, {Access::read, DirectIo::off}));
    TAILRACE_ASSIGN(const uint64_t bytes, file->size());
    std::string text(bytes, '\0');
    TAILRACE_ASSIGN(const size_t read, file->read_at(std::as_writable_bytes(std::span(text)), 0));
    text.resize(read);
    return text;
}

}  // namespace tailrace::internal::tool
