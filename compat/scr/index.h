// index.h - the names of datasets. Epochs have numbers; this knows which name belongs to which.
//
// A file PREFIX/.scr/tailrace-index holds it: a first line `tailrace-scr-index 1`, then lines
//
//     current NAME
//     dataset ID FLAGS bypass|cached good|failed NAME
//
// A name goes to the end of its line. Several datasets may have one name: the newest one that is complete
// counts. Whether a dataset is complete is not said here. The commit of its epoch says so, and the line comes
// before the commit. Each rank's region scr/dataset in the epoch has the line, too, as an index of one, so
// that a dataset that was dropped can come back (index_build.h).
//
// Index is pure. IndexFile changes the file in these steps: lock, read, write a second file, sync it, rename
// it over the first, sync the directory, unlock. A reader sees the index before or after. One rank calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace scr_on_tailrace {

inline constexpr const char* dataset_region = "scr/dataset";

struct Dataset {
    uint64_t id = 0;  // its epoch
    unsigned flags = 0;
    bool bypass = true;
    bool failed = false;  // the program could not read it
    std::string name;

    // Whether a program may restart from it. The others are outputs.
    bool is_checkpoint() const;
    bool operator==(const Dataset&) const = default;
};

// Throws tailrace::Error for what cannot be the name of a dataset.
void check_name(const std::string& name);

class Index {
  public:
    // Throws tailrace::Error if the text is no index.
    static Index decode(std::string_view text);
    std::string encode() const;

    const std::vector<Dataset>& datasets() const { return datasets_; }  // in the order of their ids
    const std::string& current() const { return current_; }             // empty: the newest is
    // All datasets of a name, newest first.
    std::vector<Dataset> named(const std::string& name) const;
    uint64_t greatest_id() const { return datasets_.empty() ? 0 : datasets_.back().id; }

    // Its id is above all others.
    void add(const Dataset& dataset);
    // In the place of its id, and instead of others of its name. What is current stays.
    void put(const Dataset& dataset);
    void drop(const std::string& name);
    void drop(uint64_t id);
    void mark_failed(uint64_t id);
    void set_current(const std::string& name) { current_ = name; }

    // The checkpoints that a program may restart from, in the order in which they are tried: the current one
    // and those before it, or all, newest first. `complete` holds the epochs that can be restored.
    std::vector<Dataset> restarts(const std::vector<uint64_t>& complete) const;

  private:
    std::vector<Dataset> datasets_;
    std::string current_;
};

class IndexFile {
  public:
    // A change takes milliseconds. `longest_wait` is how long one waits for others.
    explicit IndexFile(std::string path,
                       std::chrono::milliseconds longest_wait = std::chrono::milliseconds(30000))
        : path_(std::move(path)), longest_wait_(longest_wait) {}

    // An empty index if there is no file. These throw tailrace::Error.
    Index read() const;
    void change(const std::function<void(Index&)>& change) const;

  private:
    const std::string path_;
    const std::chrono::milliseconds longest_wait_;
};

}  // namespace scr_on_tailrace
