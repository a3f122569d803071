// scr_print: what is in a file in which SCR itself keeps what it knows, or in libscr's index.
#include <getopt.h>
#include <scr.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <tailrace_types.hpp>

#include "common/small_file.h"
#include "index.h"
#include "kvtree.h"

using namespace scr_on_tailrace;

namespace {

constexpr const char* usage =
    "usage: scr_print [--mode tree | keyval] FILE\n"
    "\n"
    "Prints what is in FILE: one of the files that SCR itself has written below PREFIX/.scr or in its "
    "cache,\n"
    "such as index.scr, halt.scr, flush.scr and summary.scr, or PREFIX/.scr/tailrace-index, in which this\n"
    "library keeps the names of datasets.\n"
    "\n"
    "  -m, --mode MODE  keyval (the default): a key with one value is a line KEY = VALUE\n"
    "                   tree: a line for each key and for each value\n"
    "  -h, --help       Print this\n"
    "\n"
    "The exit status is 0, or 1 if the file could not be read, and for wrong usage. For what is in "
    "datasets,\n"
    "use `scr_index` and `tailrace show PREFIX/.scr/tailrace`; for orders to stop, `scr_halt --list`.\n";

Tree leaf(const std::string& key, const std::string& value) {
    return {key, {{value, {}}}};
}

// In the shape of SCR's index.
Tree tree_of(const Index& index) {
    Tree all;
    if (!index.current().empty()) all.below.push_back(leaf("CURRENT", index.current()));
    Tree datasets{"DSET", {}};
    for (const auto& dataset : index.datasets()) {
        Tree one{std::to_string(dataset.id), {leaf("NAME", dataset.name)}};
        one.below.push_back(leaf("CKPT", dataset.is_checkpoint() ? "1" : "0"));
        one.below.push_back(leaf("OUTPUT", (dataset.flags & SCR_FLAG_OUTPUT) != 0 ? "1" : "0"));
        one.below.push_back(leaf("BYPASS", dataset.bypass ? "1" : "0"));
        if (dataset.failed) one.below.push_back(leaf("FAILED", "1"));
        datasets.below.push_back(std::move(one));
    }
    all.below.push_back(std::move(datasets));
    return all;
}

Tree tree_in(const std::string& path) {
    const auto bytes = on_tailrace::read_file(path, "everything");
    try {
        if (is_kvtree(bytes)) return decode_kvtree(bytes);
        if (bytes.starts_with("tailrace-scr-index ")) return tree_of(Index::decode(bytes));
    } catch (const tailrace::Error& why) {
        throw tailrace::Error(why.code(), path + ": " + why.what());
    }
    throw tailrace::Error(TAILRACE_CORRUPT,
                          path + " is neither a file of SCR's nor an index of datasets; `tailrace show " +
                              path + "` shows files of epochs");
}

}  // namespace

int main(int argc, char** argv) {
    const option options[] = {{"mode", required_argument, nullptr, 'm'},
                              {"help", no_argument, nullptr, 'h'},
                              {nullptr, 0, nullptr, 0}};
    auto how = Printed::key_values;
    for (int chosen = 0; (chosen = getopt_long(argc, argv, "m:h", options, nullptr)) != -1;) {
        if (chosen == 'h') {
            std::fputs(usage, stdout);
            return 0;
        }
        const bool is_mode = chosen == 'm';
        if (is_mode && std::strcmp(optarg, "tree") == 0) {
            how = Printed::tree;
        } else if (!is_mode || std::strcmp(optarg, "keyval") != 0) {
            std::fputs(usage, stderr);
            return 1;
        }
    }
    if (optind + 1 != argc) {
        std::fputs(usage, stderr);
        return 1;
    }
    try {
        std::fputs(text_of(tree_in(argv[optind]), how).c_str(), stdout);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "scr_print: %s\n", error.what());
    }
    return 1;
}
