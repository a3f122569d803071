// Design notes
//
// What a file holds, and what a crash leaves of it, is in memory_file. Names work the same way as content
// does there: `names`, which calls see, and `durable_names`, which a crash goes back to; between them lies
// one list of pending operations for all directories, from which a crash carries a random part over.
#include "doubles/memory_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "doubles/memory_file.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using InodePointer = std::shared_ptr<MemoryInode>;

// A change of names that is not durable yet: `from` empty for a created name, `to` empty for a removed one.
// Without a file it is a directory that was renamed, with all that is in it.
struct PendingName {
    InodePointer inode;
    std::string from, to;
    std::set<std::string> directories;  // that must still be synced
};

std::string normal(const std::string& path) {
    std::string result;
    for (char c : path) {
        if (c != '/' || result.empty() || result.back() != '/') result += c;
    }
    if (result.size() > 1 && result.back() == '/') result.pop_back();
    return result;
}

std::string parent_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

using Names = std::map<std::string, InodePointer>;

bool lies_in(const std::string& path, const std::string& directory) {
    return path == directory || path.starts_with(directory + "/");
}

void move_names(const std::string& from, const std::string& to, Names& names) {
    Names moved;
    for (auto name = names.begin(); name != names.end();) {
        if (!lies_in(name->first, from)) {
            ++name;
            continue;
        }
        moved[to + name->first.substr(from.size())] = name->second;
        name = names.erase(name);
    }
    names.merge(moved);
}

void move_directories(const std::string& from, const std::string& to, std::set<std::string>& directories) {
    std::set<std::string> all;
    for (const auto& directory : directories)
        all.insert(lies_in(directory, from) ? to + directory.substr(from.size()) : directory);
    directories.swap(all);
}

void carry_over(const PendingName& change, Names& names) {
    if (change.inode == nullptr) return move_names(change.from, change.to, names);
    if (!change.from.empty()) {
        // Only if the name still means this file: a change that it followed may have been lost.
        if (auto found = names.find(change.from); found != names.end() && found->second == change.inode) {
            names.erase(found);
        }
    }
    if (!change.to.empty()) names[change.to] = change.inode;
}

}  // namespace

// ---- world --------------------------------------------------------------------------------------------

// The disk with its names. Its mutex is over these as well.
struct MemoryStorage::World : MemoryDisk {
    Names names, durable_names;
    std::vector<PendingName> pending_names;
    std::set<std::string> directories{"/", "."};
    std::map<std::string, std::pair<LockKind, int>> locks;  // and the number of holders
    std::map<int, std::string> lock_descriptors;            // what each holder has locked
    std::set<std::pair<MemoryInode*, uint64_t>> numbers;    // locked by a file

    void unlink(const InodePointer& inode) REQUIRES(mutex) {
        inode->names = 0;
        recharge(*inode);
    }
    void note(InodePointer inode, const std::string& from, const std::string& to) {
        PendingName change{std::move(inode), from, to, {}};
        if (!from.empty()) change.directories.insert(parent_of(from));
        if (!to.empty()) change.directories.insert(parent_of(to));
        pending_names.push_back(std::move(change));
    }
    // ok when a file may be at `path`.
    Status check_directory_of(std::string_view doing, const std::string& path) const {
        const std::string directory = parent_of(path);
        if (directories.contains(directory)) return Status();
        if (names.contains(directory)) {
            return Status(Code::invalid_argument,
                          fmt::format("{} '{}': '{}' is not a directory", doing, path, directory));
        }
        return Status(Code::not_found,
                      fmt::format("{} '{}': the directory '{}' does not exist", doing, path, directory));
    }
};

// ---- lock ---------------------------------------------------------------------------------------------

class MemoryStorage::MemoryLock : public DirectoryLock {
  public:
    // With the world's mutex.
    MemoryLock(std::shared_ptr<World> world, std::string path)
        : world_(std::move(world)), path_(std::move(path)), life_(world_->life) {
        world_->lock_descriptors[descriptor_] = path_;
    }
    ~MemoryLock() override {
        MutexLock lock(world_->mutex);
        if (life_ != world_->life) return;
        world_->lock_descriptors.erase(descriptor_);
        if (--world_->locks[path_].second == 0) world_->locks.erase(path_);
    }
    int descriptor() const override { return descriptor_; }

  private:
    const std::shared_ptr<World> world_;
    // Those of all storages differ.
    static inline std::atomic<int> next_descriptor_{1 << 20};

    const std::string path_;
    const uint64_t life_;
    const int descriptor_ = next_descriptor_++;
};

class MemoryStorage::MemoryNumberLock : public NumberLock {
  public:
    MemoryNumberLock(std::shared_ptr<World> world, std::unique_ptr<File> file,
                     std::pair<MemoryInode*, uint64_t> number)
        : world_(std::move(world)), file_(std::move(file)), number_(number), life_(world_->life) {}
    ~MemoryNumberLock() override {
        MutexLock lock(world_->mutex);
        if (life_ == world_->life) world_->numbers.erase(number_);
    }

  private:
    const std::shared_ptr<World> world_;
    const std::unique_ptr<File> file_;  // keeps the file, and so its place among the locks
    const std::pair<MemoryInode*, uint64_t> number_;
    const uint64_t life_;
};

// ---- storage ------------------------------------------------------------------------------------------

MemoryStorage::MemoryStorage(const MemoryStorageOptions& options) : world_(std::make_shared<World>()) {
    world_->options = options;
}
MemoryStorage::~MemoryStorage() = default;

void MemoryStorage::crash(std::mt19937_64& random) {
    MutexLock lock(world_->mutex);
    ++world_->life;
    world_->locks.clear();
    world_->lock_descriptors.clear();
    world_->numbers.clear();
    // Every file that any name may lead to, in an order that does not depend on addresses.
    std::vector<InodePointer> inodes;
    std::set<MemoryInode*> seen;
    auto add = [&](const InodePointer& inode) {
        if (seen.insert(inode.get()).second) inodes.push_back(inode);
    };
    for (const auto& [path, inode] : world_->durable_names) add(inode);
    for (const PendingName& change : world_->pending_names)
        if (change.inode != nullptr) add(change.inode);

    for (const PendingName& change : world_->pending_names) {
        if (crash_keeps(random))
            carry_over(change, world_->durable_names);
        else if (change.inode == nullptr)
            move_directories(change.to, change.from, world_->directories);
    }
    world_->pending_names.clear();
    world_->names = world_->durable_names;
    world_->used_pages = 0;
    for (const InodePointer& inode : inodes) {
        inode->settle_crash(random);
        inode->names = 0;
        inode->charged_pages = 0;
    }
    for (const auto& [path, inode] : world_->names) {
        inode->names = 1;
        world_->recharge(*inode);
    }
}

void MemoryStorage::process_death() {
    MutexLock lock(world_->mutex);
    ++world_->life;
    world_->locks.clear();
    world_->lock_descriptors.clear();
    world_->numbers.clear();
    std::vector<InodePointer> inodes;
    for (const auto& [path, inode] : world_->names) inodes.push_back(inode);
    world_->used_pages = 0;  // what was only open is gone
    for (const InodePointer& inode : inodes) {
        inode->opens = 0;
        inode->mappings = 0;
        inode->charged_pages = 0;
        world_->recharge(*inode);
    }
}

uint64_t MemoryStorage::used_bytes() const {
    MutexLock lock(world_->mutex);
    return world_->used_pages * memory_page_bytes;
}

void MemoryStorage::set_capacity(uint64_t bytes) {
    MutexLock lock(world_->mutex);
    world_->options.capacity_bytes = bytes;
}

Result<std::unique_ptr<File>> MemoryStorage::open(const std::string& raw_path, const OpenOptions& options) {
    const std::string path = normal(raw_path);
    MutexLock lock(world_->mutex);
    if (options.direct == DirectIo::on) {
        return Status(Code::unsupported, fmt::format("opening '{}' for direct I/O: it lies in memory", path));
    }
    if (path.empty()) return Status(Code::invalid_argument, "opening '': the path is empty");
    if (world_->directories.contains(path)) {
        return Status(Code::invalid_argument,
                      fmt::format("opening '{}': it is a directory, not a file", path));
    }
    TAILRACE_TRY(world_->check_directory_of("opening", path));
    auto found = world_->names.find(path);
    InodePointer inode;
    if (found != world_->names.end()) {
        if (options.access == Access::create_new) {
            return Status(Code::already_exists, fmt::format("creating '{}': it is there already", path));
        }
        inode = found->second;
    } else {
        if (options.access == Access::read || options.access == Access::existing) {
            return Status(Code::not_found,
                          fmt::format("opening '{}' for {}: no such file", path,
                                      options.access == Access::read ? "reading" : "writing"));
        }
        inode = std::make_shared<MemoryInode>();
        inode->names = 1;
        world_->names[path] = inode;
        world_->note(inode, "", path);
    }
    return make_memory_file(world_, std::move(inode), raw_path, options.access != Access::read);
}

Status MemoryStorage::rename(const std::string& raw_from, const std::string& raw_to) {
    const std::string from = normal(raw_from), to = normal(raw_to);
    MutexLock lock(world_->mutex);
    if (world_->directories.contains(from)) return rename_directory(from, to);
    const auto source = world_->names.find(from);
    if (source == world_->names.end()) {
        return Status(Code::not_found, fmt::format("renaming '{}' to '{}': no such file", from, to));
    }
    TAILRACE_TRY(world_->check_directory_of("renaming to", to));
    if (world_->directories.contains(to)) {
        return Status(Code::invalid_argument,
                      fmt::format("renaming '{}' to '{}': a directory is there", from, to));
    }
    if (from == to) return Status();
    InodePointer inode = source->second;
    if (auto replaced = world_->names.find(to); replaced != world_->names.end())
        world_->unlink(replaced->second);
    world_->names.erase(from);
    world_->names[to] = inode;
    world_->note(std::move(inode), from, to);
    return Status();
}

Status MemoryStorage::rename_directory(const std::string& from, const std::string& to) {
    TAILRACE_TRY(world_->check_directory_of("renaming to", to));
    if (world_->directories.contains(to) || world_->names.contains(to))
        return Status(Code::already_exists, fmt::format("renaming '{}' to '{}': it exists", from, to));
    for (const PendingName& change : world_->pending_names)
        for (const std::string& directory : change.directories)
            if (lies_in(directory, from))
                return Status(Code::failed_state,
                              fmt::format("renaming '{}' to '{}': '{}' was not synced", from, to, directory));
    move_names(from, to, world_->names);
    move_directories(from, to, world_->directories);
    world_->note(nullptr, from, to);
    return Status();
}

Status MemoryStorage::remove_directory(const std::string& raw_path) {
    const std::string path = normal(raw_path);
    MutexLock lock(world_->mutex);
    if (!world_->directories.contains(path))
        return Status(world_->names.contains(path) ? Code::invalid_argument : Code::not_found,
                      fmt::format("removing the directory '{}': no such directory", path));
    const auto holds = [&](const std::string& other) { return other != path && lies_in(other, path); };
    const auto name_in = [&](const auto& entry) { return holds(entry.first); };
    if (std::any_of(world_->directories.begin(), world_->directories.end(), holds) ||
        std::any_of(world_->names.begin(), world_->names.end(), name_in))
        return Status(Code::io_error, fmt::format("removing the directory '{}': it is not empty", path));
    // Names that a crash could bring back have no place any more.
    std::erase_if(world_->durable_names, name_in);
    std::erase_if(world_->pending_names, [&](const PendingName& change) {
        return lies_in(change.to.empty() ? change.from : change.to, path);
    });
    world_->directories.erase(path);
    return Status();
}

Status MemoryStorage::remove(const std::string& raw_path) {
    const std::string path = normal(raw_path);
    MutexLock lock(world_->mutex);
    if (world_->directories.contains(path)) {
        return Status(Code::invalid_argument, fmt::format("removing '{}': it is a directory", path));
    }
    const auto found = world_->names.find(path);
    if (found == world_->names.end()) {
        return Status(Code::not_found, fmt::format("removing '{}': no such file", path));
    }
    InodePointer inode = found->second;
    world_->names.erase(found);
    world_->unlink(inode);
    world_->note(std::move(inode), path, "");
    return Status();
}

Result<std::vector<DirectoryEntry>> MemoryStorage::list(const std::string& raw_directory) {
    const std::string directory = normal(raw_directory);
    MutexLock lock(world_->mutex);
    if (!world_->directories.contains(directory)) {
        TAILRACE_TRY(world_->check_directory_of("listing", directory));
        if (world_->names.contains(directory)) {
            return Status(Code::invalid_argument,
                          fmt::format("listing '{}': it is not a directory", directory));
        }
        return Status(Code::not_found, fmt::format("listing '{}': no such directory", directory));
    }
    std::vector<DirectoryEntry> entries;
    auto name_in = [&](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    for (const std::string& path : world_->directories) {
        if (path != "/" && path != "." && parent_of(path) == directory) {
            entries.push_back({name_in(path), 0, true, {}});
        }
    }
    for (const auto& [path, inode] : world_->names) {
        if (parent_of(path) == directory) {
            entries.push_back({name_in(path), inode->current.size(), false, inode->modified});
        }
    }
    std::sort(entries.begin(), entries.end(),
              [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
    return entries;
}

Status MemoryStorage::make_directories(const std::string& raw_path) {
    std::string path = normal(raw_path);
    if (path.empty()) return Status(Code::invalid_argument, "making the directory '': the path is empty");
    MutexLock lock(world_->mutex);
    std::vector<std::string> missing;
    for (; !world_->directories.contains(path); path = parent_of(path)) {
        if (world_->names.contains(path)) {
            return Status(Code::invalid_argument,
                          fmt::format("making the directory '{}': '{}' is a file", raw_path, path));
        }
        missing.push_back(path);
    }
    world_->directories.insert(missing.begin(), missing.end());
    return Status();
}

Status MemoryStorage::sync_directory(const std::string& raw_path) {
    const std::string path = normal(raw_path);
    MutexLock lock(world_->mutex);
    if (!world_->directories.contains(path)) {
        return Status(Code::not_found, fmt::format("syncing the directory '{}': no such directory", path));
    }
    std::vector<PendingName> rest;
    for (PendingName& change : world_->pending_names) {
        change.directories.erase(path);
        if (change.directories.empty()) {
            carry_over(change, world_->durable_names);
        } else {
            rest.push_back(std::move(change));
        }
    }
    world_->pending_names = std::move(rest);
    return Status();
}

Result<SpaceInfo> MemoryStorage::space(const std::string& raw_path) {
    const std::string path = normal(raw_path);
    MutexLock lock(world_->mutex);
    if (!world_->directories.contains(path) && !world_->names.contains(path)) {
        return Status(Code::not_found, fmt::format("asking for the space of '{}': no such path", path));
    }
    SpaceInfo space;
    space.block_bytes = world_->options.block_bytes;
    space.free_bytes = world_->free_pages() * memory_page_bytes;
    space.in_memory = true;
    space.file_system = "memory";
    return space;
}

Result<std::unique_ptr<DirectoryLock>> MemoryStorage::lock_directory(const std::string& raw_path,
                                                                     LockKind kind) {
    const std::string path = normal(raw_path);
    MutexLock lock(world_->mutex);
    if (!world_->directories.contains(path)) {
        return Status(Code::not_found, fmt::format("locking the directory '{}': no such directory", path));
    }
    const auto [held, fresh] = world_->locks.try_emplace(path, kind, 0);
    if (!fresh && (kind == LockKind::exclusive || held->second.first == LockKind::exclusive)) {
        return Status(Code::busy, fmt::format("locking the directory '{}': another process holds it", path));
    }
    ++held->second.second;
    return std::unique_ptr<DirectoryLock>(std::make_unique<MemoryLock>(world_, path));
}

std::unique_ptr<DirectoryLock> MemoryStorage::duplicate_lock(int descriptor) {
    MutexLock lock(world_->mutex);
    const auto found = world_->lock_descriptors.find(descriptor);
    if (found == world_->lock_descriptors.end()) return nullptr;
    const std::string path = found->second;
    ++world_->locks[path].second;
    return std::make_unique<MemoryLock>(world_, path);
}

Result<std::unique_ptr<NumberLock>> MemoryStorage::lock_number(const std::string& raw_path, uint64_t number) {
    const std::string path = normal(raw_path);
    if (!world_->options.offer_number_locks) return Storage::lock_number(path, number);
    TAILRACE_ASSIGN(auto file, open(path, {Access::write, DirectIo::off}));
    MutexLock lock(world_->mutex);
    const auto named = world_->names.find(path);
    const std::pair<MemoryInode*, uint64_t> held(named == world_->names.end() ? nullptr : named->second.get(),
                                                 number);
    if (held.first == nullptr || !world_->numbers.insert(held).second)
        return Status(Code::busy,
                      fmt::format("locking number {} by '{}': another process holds it", number, path));
    return std::unique_ptr<NumberLock>(std::make_unique<MemoryNumberLock>(world_, std::move(file), held));
}

}  // namespace tailrace::internal
