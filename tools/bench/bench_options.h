// The options that `tailrace bench` and `tailrace tune` share: where to write, and what load to
// simulate.
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

// Says on stderr when a run ends, and what is measured because of that.
void announce_end(const BenchCase& bench);

// Parses the sizes that were given to `option`.
Result<std::vector<uint64_t>> parse_sizes(std::string_view option, const std::vector<std::string>& texts);

// Checks that the value of `option` can be a file's name, or the beginning of one.
Status check_file_name(std::string_view option, std::string_view name);

// The storage of each engine and depth. It is made when it is first asked for.
class BenchEngines {
  public:
    Result<Storage*> of(const BenchCase& bench);

  private:
    std::map<std::pair<IoEngine, uint32_t>, std::shared_ptr<Storage>> storages_;
};

// Replaces a file as a whole.
Status write_text_file(Storage& storage, const std::string& path, const std::string& text);
// Checks that the file could be written now. Hours of measuring must not end with results that
// cannot be kept.
Status check_text_file(Storage& storage, const std::string& path);
Result<std::string> read_text_file(Storage& storage, const std::string& path);

}  // namespace tailrace::internal::tool
