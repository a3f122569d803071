// dataset_files.h - the files of one dataset, while the program writes them or reads them. There are two
// ways:
//
// Bypass: the program writes its files where they stay, below the prefix. When all are synced, an epoch is
// saved that has no data but a list of them: in the region scr/files of each rank, a line `BYTES KEY` for
// each of its files, where KEY is the path below the prefix. The commit of that epoch completes the dataset.
//
// Cached: the program writes its files into the node-local tier, and the epoch has them, under their keys
// (tailrace_files_...). On a restart they come back there. The files of an output are also written as they
// were (files_as = original). Then each gets its path below the prefix as a second name (placed_files.h).
//
// Calls throw tailrace::Error. What refers to the session must go before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tailrace.hpp>
#include <vector>

#include "prefix.h"

namespace scr_on_tailrace {

inline constexpr const char* files_region = "scr/files";

// A file of a dataset, of the bypass way.
struct Listed {
    uint64_t bytes;
    std::string key;

    bool operator==(const Listed&) const = default;
};
std::string encode(const std::vector<Listed>& files);
std::vector<Listed> decode(const std::string& text);  // throws tailrace::Error if it is no list

class Output {
  public:
    virtual ~Output() = default;

    // The path for the program to write its file.
    virtual std::string route(const std::string& name) = 0;
    // The keys that no other rank may have routed, one a line; none if ranks may share files.
    virtual std::string claims() const = 0;
    // Makes sure that what was routed is there, and will not change. Called once, before save(): what can
    // fail on one rank alone belongs here, where ranks can still agree.
    virtual void check() = 0;
    // Collective if the session's save is.
    virtual void save(uint64_t id) = 0;
    // In place of save().
    virtual void drop(uint64_t id) = 0;
    // Once the epoch of save() is committed. Afterwards the files of an output are where the program wanted
    // them. After a failure the dataset is complete all the same.
    virtual void publish() = 0;
};

class Restart {
  public:
    virtual ~Restart() = default;

    // Makes sure that this rank's files are there. Collective.
    virtual void fetch() = 0;
    // The path for the program to read its file. If it is not there by its path, one with the same last
    // component counts that this rank has saved.
    virtual std::string route(const std::string& name) = 0;
};

struct Place {
    tailrace::Session& session;
    const Prefix& prefix;
    uint32_t rank;
    uint32_t rank_count;
    // The directory that gets the files as they were; empty if none does.
    std::string as_written;
};

std::unique_ptr<Output> begin_output(const Place& place, bool bypass);
// Collective.
std::unique_ptr<Restart> begin_restart(const Place& place, bool bypass, uint64_t id);

// The files of a dataset of the bypass way that this rank looks after: those that it saved, and if there are
// fewer ranks than saved it, some of those of the ranks that are not there. Collective.
std::vector<Listed> listed_in(const Place& place, uint64_t id);
// The same of an output of the cached way: those that publish() has named and that nobody has replaced.
std::vector<Listed> published_in(const Place& place, uint64_t id);
// Removes them, and the directories that are then empty, as far as the prefix.
void remove_files(const Prefix& prefix, const std::vector<Listed>& files);

// What `files_of` finds of the ranks that this rank looks after. Collective.
std::vector<Listed> of_own_ranks(
    const Place& place, uint64_t id,
    const std::function<std::vector<Listed>(const tailrace::Reader&, uint32_t rank)>& files_of);

}  // namespace scr_on_tailrace
