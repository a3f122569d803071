// Files of datasets in the node-local tier.
#include "cached_files.h"

#include <filesystem>
#include <set>
#include <string_view>

namespace scr_on_tailrace {

namespace {

constexpr std::string_view file_regions = "file/";  // of an epoch that has files

// The name of a file is not empty and does not begin with '/'. tailrace's own regions are so named.
bool is_file(const std::string& region) {
    return region.starts_with(file_regions) && region.size() > file_regions.size() &&
           region[file_regions.size()] != '/';
}

// Gives a file a second name, in place of a file that has it.
void link_as(const std::string& path, const std::string& name) {
    const auto between = name + ".tailrace-link";
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(name).parent_path(), error);
    if (!error) std::filesystem::remove(between, error);
    if (!error) std::filesystem::create_hard_link(path, between, error);
    if (!error) std::filesystem::rename(between, name, error);
    if (error)
        throw tailrace::Error(TAILRACE_IO_ERROR, "naming " + path + " " + name + ": " + error.message() +
                                                     "; the output is complete, and its files are there");
    // If both were the same file, the rename has done nothing.
    std::filesystem::remove(between, error);
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
    void save(uint64_t id) override { place_.session.save_files(id); }
    // The session has not written them as they were if the user has said files_as = packed.
    void publish() override {
        std::error_code error;
        if (place_.as_written.empty() || !std::filesystem::exists(place_.as_written, error)) return;
        for (const auto& key : keys_) link_as(place_.as_written + "/" + key, place_.prefix.path_of(key));
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
    return of_own_ranks(place, id, [](const tailrace::Reader& reader, uint32_t rank) {
        std::vector<Listed> files;
        for (const auto& region : reader.regions(rank))
            if (is_file(region.name))
                files.push_back({region.bytes, region.name.substr(file_regions.size())});
        return files;
    });
}

std::unique_ptr<Output> begin_cached_output(const Place& place) {
    return std::make_unique<CachedOutput>(place);
}

std::unique_ptr<Restart> begin_cached_restart(const Place& place, uint64_t id) {
    return std::make_unique<CachedRestart>(place, id);
}

}  // namespace scr_on_tailrace
