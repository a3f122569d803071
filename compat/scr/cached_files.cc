// Files of datasets in the node-local tier.
#include "cached_files.h"

#include <set>
#include <string_view>

#include "placed_files.h"

namespace scr_on_tailrace {

namespace {

constexpr std::string_view file_regions = "file/";  // of an epoch that has files

// The name of a file is not empty and does not begin with '/'. tailrace's own regions are so named.
bool is_file(const std::string& region) {
    return region.starts_with(file_regions) && region.size() > file_regions.size() &&
           region[file_regions.size()] != '/';
}

class CachedOutput : public Output {
  public:
    explicit CachedOutput(const Place& place) : place_(place) { place_.session.begin_files(); }

    std::string route(const std::string& name) override {
        const auto key = place_.prefix.key_of(name);
        auto path = place_.session.route_file(key);
        keys_.insert(key);
        return path;
    }
    std::string claims() const override {
        std::string all;
        for (const auto& key : keys_) all += key + "\n";
        return all;
    }
    // The save looks at them.
    void check() override {}
    void save(uint64_t id) override {
        id_ = id;
        place_.session.save_files(id);
    }
    void publish() override {
        if (!place_.as_written.empty()) place_files(place_, id_, place_.session.state(id_).run, keys_);
    }
    // The session wants to hear of files that were begun.
    void drop(uint64_t id) override {
        try {
            place_.session.save_files(id, false);
        } catch (const tailrace::Error& error) {
            if (error.code() != TAILRACE_ABORTED) throw;
        }
    }

  private:
    const Place place_;
    uint64_t id_ = 0;
    std::set<std::string> keys_;
};

class CachedRestart : public Restart {
  public:
    CachedRestart(const Place& place, uint64_t id)
        : place_(place),
          id_(id),
          on_as_many_ranks_(place_.session.open_epoch(id).rank_count() == place.rank_count) {}
    ~CachedRestart() override {
        if (fetched_) tailrace_files_release(place_.session.get());
    }

    void fetch() override {
        place_.session.restore_files(id_, !on_as_many_ranks_);
        fetched_ = true;
    }
    std::string route(const std::string& name) override {
        try {
            return place_.session.find_file(place_.prefix.key_of(name));
        } catch (const tailrace::Error&) {
            for (const auto& file : place_.session.files(place_.rank))
                if (base_of(file.name) == base_of(name))
                    return place_.session.find_file(file.name, place_.rank);
            throw;
        }
    }

  private:
    const Place place_;
    const uint64_t id_;
    const bool on_as_many_ranks_;
    bool fetched_ = false;
};

}  // namespace

std::vector<Listed> published_in(const Place& place, uint64_t id) {
    auto files = of_own_ranks(place, id, [](const tailrace::Reader& reader, uint32_t rank) {
        std::vector<Listed> of_rank;
        for (const auto& region : reader.regions(rank)) {
            if (!is_file(region.name)) continue;
            of_rank.push_back({region.bytes, region.name.substr(file_regions.size())});
            check_key(of_rank.back().key);
        }
        return of_rank;
    });
    std::set<std::string> keys;
    for (const auto& file : files) keys.insert(file.key);
    const auto placed = placed_of(place, keys);
    std::erase_if(files, [&](const Listed& file) { return !placed.contains(file.key); });
    return files;
}

std::unique_ptr<Output> begin_cached_output(const Place& place) {
    return std::make_unique<CachedOutput>(place);
}

std::unique_ptr<Restart> begin_cached_restart(const Place& place, uint64_t id) {
    return std::make_unique<CachedRestart>(place, id);
}

}  // namespace scr_on_tailrace
