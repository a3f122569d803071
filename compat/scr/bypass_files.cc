// Files of datasets where they stay.
#include "bypass_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <span>

#include "sync_files.h"

namespace scr_on_tailrace {

namespace {

class BypassOutput : public Output {
  public:
    explicit BypassOutput(const Place& place) : place_(place) {}
    ~BypassOutput() override {
        if (registered_) tailrace_unregister(place_.session.get(), files_region);
    }

    std::string route(const std::string& name) override {
        const auto key = place_.prefix.key_of(name);
        std::error_code error;
        std::filesystem::create_directories(place_.prefix.path_of(parent_of(key)), error);
        if (error)
            throw tailrace::Error(TAILRACE_IO_ERROR, "making the directory of " + place_.prefix.path_of(key) +
                                                         ": " + error.message());
        keys_.insert(key);
        return place_.prefix.path_of(key);
    }
    std::string claims() const override { return {}; }

    // The files first, then the directories that name them, as far as the prefix.
    void check() override {
        std::vector<Listed> files;
        for (const auto& key : keys_) files.push_back({sync_file(place_.prefix.path_of(key)), key});
        sync_directories_of(place_.prefix, keys_);
        list_ = encode(files);
        place_.session.add(files_region, list_.data(), list_.size());
        registered_ = true;
    }
    void save(uint64_t id) override { place_.session.save(id); }
    // No epoch has begun.
    void drop(uint64_t) override {}
    void publish() override {}

  private:
    const Place place_;
    std::set<std::string> keys_;
    std::string list_;
    bool registered_ = false;
};

class BypassRestart : public Restart {
  public:
    BypassRestart(const Place& place, uint64_t id) : place_(place), files_(listed_in(place, id)) {}

    void fetch() override {
        for (const auto& file : files_) {
            const auto path = place_.prefix.path_of(file.key);
            struct stat known {};
            if (::stat(path.c_str(), &known) != 0)
                failed("looking at " + path + " (a file of the checkpoint)");
            if (static_cast<uint64_t>(known.st_size) != file.bytes)
                throw tailrace::Error(TAILRACE_CORRUPT, path + " has " + std::to_string(known.st_size) +
                                                            " bytes, and had " + std::to_string(file.bytes) +
                                                            " when the checkpoint was complete");
        }
    }
    std::string route(const std::string& name) override {
        const auto path = absolute(name);
        if (::access(path.c_str(), R_OK) == 0) return path;
        for (const auto& file : files_)
            if (base_of(file.key) == base_of(name)) return place_.prefix.path_of(file.key);
        throw tailrace::Error(TAILRACE_NOT_FOUND, path + " is not there, and this rank has saved no file " +
                                                      base_of(name) + " with the checkpoint");
    }

  private:
    const Place place_;
    const std::vector<Listed> files_;
};

}  // namespace

std::vector<Listed> listed_in(const Place& place, uint64_t id) {
    return of_own_ranks(place, id, [](const tailrace::Reader& reader, uint32_t rank) {
        std::string text(reader.region(rank, files_region).bytes, '\0');
        reader.read(rank, files_region, std::span(text.data(), text.size()));
        return decode(text);
    });
}

void remove_files(const Prefix& prefix, const std::vector<Listed>& files) {
    for (const auto& file : files) {
        const auto path = prefix.path_of(file.key);
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) failed("removing " + path);
    }
    // Another rank may still have files there; it then removes the directory.
    for (const auto& file : files)
        for (auto above = parent_of(file.key); !above.empty(); above = parent_of(above))
            if (::rmdir(prefix.path_of(above).c_str()) != 0) break;
}

std::unique_ptr<Output> begin_bypass_output(const Place& place) {
    return std::make_unique<BypassOutput>(place);
}

std::unique_ptr<Restart> begin_bypass_restart(const Place& place, uint64_t id) {
    return std::make_unique<BypassRestart>(place, id);
}

}  // namespace scr_on_tailrace
