// scr_index: lists the datasets of a prefix, and changes what the index says of them. It reads and writes the
// index alone, and no files of datasets.
#include <getopt.h>
#include <scr.h>

#include <cstdio>
#include <functional>
#include <string>
#include <tailrace.hpp>

#include "index.h"
#include "prefix.h"

using namespace scr_on_tailrace;

namespace {

constexpr const char* usage =
    "usage: scr_index [--prefix DIR] [--list | --current NAME | --drop NAME | --drop-after NAME]\n"
    "\n"
    "  -l, --list             List the datasets, newest first (the default)\n"
    "  -c, --current NAME     The next run restarts from this checkpoint\n"
    "  -d, --drop NAME        Forget a dataset; its files stay\n"
    "      --drop-after NAME  Forget all datasets after this one; their files stay\n"
    "  -p, --prefix DIR       The prefix; otherwise the working directory\n";

bool is_complete(const std::string& directory, uint64_t id) {
    try {
        return tailrace::Reader::open_directory(directory, "scr", id).epoch() == id;
    } catch (const tailrace::Error&) {
        return false;
    }
}

// The columns are SCR's. When a dataset was flushed is not in the index.
void list(const Index& index, const std::string& directory) {
    std::puts("DSET VALID FLUSHED             CUR NAME");
    const auto& datasets = index.datasets();
    for (auto dataset = datasets.rbegin(); dataset != datasets.rend(); ++dataset) {
        const bool valid = !dataset->failed && is_complete(directory, dataset->id);
        std::printf("%4llu %-5s %-19s %3s %s\n", static_cast<unsigned long long>(dataset->id),
                    valid ? "YES" : "NO", "-", dataset->name == index.current() ? "*" : "",
                    dataset->name.c_str());
    }
}

// The newest dataset of the name. Throws tailrace::Error if there is none.
Dataset find(const Index& index, const std::string& name) {
    const auto all = index.named(name);
    if (all.empty()) throw tailrace::Error(TAILRACE_NOT_FOUND, "there is no dataset " + name);
    return all.front();
}

void make_current(Index& index, const std::string& name) {
    if ((find(index, name).flags & SCR_FLAG_CHECKPOINT) == 0)
        throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, name + " is no checkpoint");
    index.set_current(name);
}

void drop(Index& index, const std::string& name) {
    find(index, name);
    index.drop(name);
}

void drop_after(Index& index, const std::string& name) {
    const auto last = find(index, name).id;
    while (index.greatest_id() > last) index.drop(index.greatest_id());
}

}  // namespace

int main(int argc, char** argv) {
    enum { only_long = 256 };
    const option options[] = {{"list", no_argument, nullptr, 'l'},
                              {"current", required_argument, nullptr, 'c'},
                              {"drop", required_argument, nullptr, 'd'},
                              {"drop-after", required_argument, nullptr, only_long},
                              {"prefix", required_argument, nullptr, 'p'},
                              {"build", required_argument, nullptr, 'b'},
                              {"add", required_argument, nullptr, 'a'},
                              {"help", no_argument, nullptr, 'h'},
                              {nullptr, 0, nullptr, 0}};
    std::string prefix = ".", name;
    std::function<void(Index&, const std::string&)> change;
    for (int chosen = 0; (chosen = getopt_long(argc, argv, "lc:d:p:b:a:h", options, nullptr)) != -1;) {
        switch (chosen) {
            case 'l':
                change = nullptr;
                continue;
            case 'p':
                prefix = optarg;
                continue;
            case 'c':
                change = make_current;
                break;
            case 'd':
                change = drop;
                break;
            case only_long:
                change = drop_after;
                break;
            case 'b':
            case 'a':
                std::fputs(
                    "scr_index: a dataset is in the index before it is complete, so none is to be added or "
                    "built; `tailrace drain` finishes what a program has left on the nodes\n",
                    stderr);
                return 1;
            case 'h':
                std::fputs(usage, stdout);
                return 0;
            default:
                std::fputs(usage, stderr);
                return 2;
        }
        name = optarg;
    }
    if (optind != argc) {
        std::fputs(usage, stderr);
        return 2;
    }
    try {
        const auto top = absolute(prefix + "/.scr/");
        const IndexFile file(top + "tailrace-index");
        if (change)
            file.change([&](Index& index) { change(index, name); });
        else
            list(file.read(), top + "tailrace");
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "scr_index: %s\n", error.what());
    }
    return 1;
}
