// scr_index: lists the datasets of a prefix, and changes what the index says of them. It reads epochs, and
// writes the index alone.
#include <getopt.h>
#include <scr.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <tailrace.hpp>

#include "epochs_directory.h"
#include "index.h"
#include "index_build.h"
#include "prefix.h"

using namespace scr_on_tailrace;

namespace {

constexpr const char* usage =
    "usage: scr_index [--prefix DIR] [--list | --current NAME | --drop NAME | --drop-after NAME |\n"
    "                 --add NAME | --build ID]\n"
    "\n"
    "The index PREFIX/.scr/tailrace-index has the names of a program's datasets. A run adds to it, and "
    "looks\n"
    "there for the checkpoints to restart from.\n"
    "\n"
    "  -l, --list             List the datasets, newest first (the default). VALID: the epoch is complete, "
    "and\n"
    "                         no program has said that it cannot read it. CUR: restarts begin there. When a\n"
    "                         dataset was flushed is not known (-)\n"
    "  -c, --current NAME     The next run restarts from this checkpoint\n"
    "  -d, --drop NAME        Forget a dataset; its files stay. So does -r, --remove\n"
    "      --drop-after NAME  Forget all datasets after this one; their files stay\n"
    "  -a, --add NAME         Put a dataset back that was dropped\n"
    "  -b, --build ID         The same by its number in the list, also if a program has said that it cannot\n"
    "                         read it. Both fail if the dataset is not complete, or its files have changed\n"
    "  -p, --prefix DIR       The prefix; otherwise the working directory\n"
    "  -h, --help             Print this\n"
    "\n"
    "Nothing is rebuilt here: the next run or `tailrace drain` on the nodes finishes and rebuilds what a\n"
    "program has left. The exit status is 0, or 1 after a failure and for wrong usage.\n";

bool is_complete(const std::string& directory, const Dataset& dataset) {
    try {
        const auto reader =
            tailrace::Reader::open_directory(directory_of(dataset, directory), job, dataset.id);
        return reader.epoch() == dataset.id;
    } catch (const tailrace::Error&) {
        return false;
    }
}

// The columns are SCR's. When a dataset was flushed is not in the index.
void list(const Index& index, const std::string& directory) {
    std::puts("DSET VALID FLUSHED             CUR NAME");
    const auto& datasets = index.datasets();
    for (auto dataset = datasets.rbegin(); dataset != datasets.rend(); ++dataset) {
        const bool valid = !dataset->failed && is_complete(directory, *dataset);
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
    if (!find(index, name).is_checkpoint())
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

Dataset known(const std::string& prefix, const std::string& what, bool by_name) {
    auto path = absolute(prefix);
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const Prefix top(path);
    const KnownDatasets datasets(top, path + "/.scr/tailrace");
    return by_name ? datasets.by_name(what) : datasets.by_id(id_of(what));
}

}  // namespace

int main(int argc, char** argv) {
    enum { only_long = 256 };
    const option options[] = {{"list", no_argument, nullptr, 'l'},
                              {"current", required_argument, nullptr, 'c'},
                              {"drop", required_argument, nullptr, 'd'},
                              {"remove", required_argument, nullptr, 'd'},
                              {"drop-after", required_argument, nullptr, only_long},
                              {"prefix", required_argument, nullptr, 'p'},
                              {"build", required_argument, nullptr, 'b'},
                              {"add", required_argument, nullptr, 'a'},
                              {"help", no_argument, nullptr, 'h'},
                              {nullptr, 0, nullptr, 0}};
    std::string prefix = ".", name, said;
    std::function<void(Index&, const std::string&)> change;
    for (int chosen = 0; (chosen = getopt_long(argc, argv, "lc:d:r:p:b:a:h", options, nullptr)) != -1;) {
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
            case 'r':
                change = drop;
                break;
            case only_long:
                change = drop_after;
                break;
            case 'b':
            case 'a':
                change = [&, by_name = chosen == 'a'](Index& index, const std::string& what) {
                    const auto dataset = known(prefix, what, by_name);
                    index.put(dataset);
                    said = "dataset " + std::to_string(dataset.id) + " is complete, and in the index as " +
                           dataset.name + "\n";
                };
                break;
            case 'h':
                std::fputs(usage, stdout);
                return 0;
            default:
                std::fputs(usage, stderr);
                return 1;
        }
        name = optarg;
    }
    if (optind != argc) {
        std::fputs(usage, stderr);
        return 1;
    }
    try {
        if (!std::filesystem::is_directory(prefix))
            throw tailrace::Error(TAILRACE_NOT_FOUND, "there is no directory " + prefix);
        const auto top = absolute(prefix + "/.scr/");
        const IndexFile file(top + "tailrace-index");
        if (change)
            file.change([&](Index& index) { change(index, name); });
        else
            list(file.read(), top + "tailrace");
        std::fputs(said.c_str(), stdout);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "scr_index: %s\n", error.what());
    }
    return 1;
}
