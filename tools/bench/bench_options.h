// The options that `tailrace bench` and `tailrace tune` share: where to write, and what load to play.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <memory>
#include <string>

#include "bench/bench_case.h"
#include "bench/bench_run.h"

namespace tailrace::internal::tool {

struct BenchOptions {
    std::string directory;
    std::string local_dir;  // default: the library's
    std::string size = "64MiB";
    BenchCase common;
    bool no_sync = false, no_local = false;

    void add_to(CLI::App& command);
    // After parsing.
    Status complete();
};

// Says on stderr when a run ends, and what is measured then.
void announce_end(const BenchCase& bench);

// The sizes that were given to `option`.
Result<std::vector<uint64_t>> parse_sizes(std::string_view option, const std::vector<std::string>& texts);

// Whether what was given to `option` can name a file, or begin its name.
Status check_file_name(std::string_view option, std::string_view name);

// The storage of each engine and depth, made when it is first asked for.
class BenchEngines {
  public:
    Result<Storage*> of(const BenchCase& bench);

  private:
    std::map<std::pair<IoEngine, uint32_t>, std::shared_ptr<Storage>> storages_;
};

// Replaces a file as a whole.
Status write_text_file(Storage& storage, const std::string& path, const std::string& text);
// Whether that could be done now: hours of measuring must not end with results that cannot be kept.
Status check_text_file(Storage& storage, const std::string& path);
Result<std::string> read_text_file(Storage& storage, const std::string& path);

}  // namespace tailrace::internal::tool
