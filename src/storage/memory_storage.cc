// Design notes
//
// Every file is an Inode with two contents: `current`, which calls see, and `durable`, which a crash goes
// back to; `pending` holds, in order, what lies between them. sync() carries pending over to durable; crash()
// carries a random part of it over and makes that current. Names work the same way, with one list of pending
// operations for all directories.
//
// A mapping has no list of writes: from the first map() on, the mapped beginning of the file lives in one
// block of memory, sync() takes it over whole, and a crash page by page.
#include "storage/memory_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/units.h"

namespace tailrace {

namespace {

constexpr uint64_t page_bytes = 4096;

// A file's bytes: pages that were written, and a length. The rest is zeros.
class SparseBytes {
  public:
    uint64_t size() const { return size_; }
    uint64_t page_count() const { return pages_.size(); }
    bool has_page(uint64_t page) const { return pages_.contains(page); }

    void set_size(uint64_t bytes) {
        if (bytes < size_) {
            pages_.erase(pages_.lower_bound((bytes + page_bytes - 1) / page_bytes), pages_.end());
            if (auto last = pages_.find(bytes / page_bytes); last != pages_.end()) {
                std::fill(last->second.begin() + static_cast<std::ptrdiff_t>(bytes % page_bytes),
                          last->second.end(), std::byte{0});
            }
        }
        size_ = bytes;
    }

    void write(std::span<const std::byte> source, uint64_t offset) {
        size_ = std::max(size_, offset + source.size());
        for_each_page(offset, source.size(), [&](uint64_t page, uint64_t in_page, size_t at, size_t count) {
            std::vector<std::byte>& bytes = pages_[page];
            bytes.resize(page_bytes);
            std::memcpy(bytes.data() + in_page, source.data() + at, count);
        });
    }

    size_t read(std::span<std::byte> target, uint64_t offset) const {
        if (offset >= size_) return 0;
        const auto count_all = static_cast<size_t>(std::min<uint64_t>(target.size(), size_ - offset));
        for_each_page(offset, count_all, [&](uint64_t page, uint64_t in_page, size_t at, size_t count) {
            if (auto found = pages_.find(page); found != pages_.end()) {
                std::memcpy(target.data() + at, found->second.data() + in_page, count);
            } else {
                std::memset(target.data() + at, 0, count);
            }
        });
        return count_all;
    }

    template <class Visit>
    static void for_each_page(uint64_t offset, size_t bytes, Visit visit) {
        for (size_t at = 0; at < bytes;) {
            const uint64_t in_page = (offset + at) % page_bytes;
            const size_t count = std::min<size_t>(bytes - at, page_bytes - in_page);
            visit((offset + at) / page_bytes, in_page, at, count);
            at += count;
        }
    }

  private:
    std::map<uint64_t, std::vector<std::byte>> pages_;
    uint64_t size_ = 0;
};

// A change of a file's content that is not durable yet.
struct PendingChange {
    enum Kind { write, set_size, grow } kind = write;
    uint64_t offset = 0;           // set_size and grow: the length
    std::vector<std::byte> bytes;  // of a write
};

void carry_over(const PendingChange& change, SparseBytes& content) {
    switch (change.kind) {
        case PendingChange::write:
            content.write(change.bytes, change.offset);
            break;
        case PendingChange::set_size:
            content.set_size(change.offset);
            break;
        case PendingChange::grow:
            content.set_size(std::max(content.size(), change.offset));
            break;
    }
}

struct Inode {
    SparseBytes current, durable;
    std::vector<PendingChange> pending;
    uint64_t reserved_pages = 0;  // [0, reserved_pages) is paid for, written or not
    uint64_t charged_pages = 0;
    int names = 0;  // 0 or 1, as calls see it
    int opens = 0;
    std::shared_ptr<std::vector<std::byte>> mapped;  // the file's beginning, once it was mapped
    int mappings = 0;
    std::chrono::system_clock::time_point modified = std::chrono::system_clock::now();
};
using InodePointer = std::shared_ptr<Inode>;

// A change of names that is not durable yet: `from` empty for a created name, `to` empty for a removed one.
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

void carry_over(const PendingName& change, Names& names) {
    if (!change.from.empty()) {
        // Only if the name still means this file: a change that it followed may have been lost.
        if (auto found = names.find(change.from); found != names.end() && found->second == change.inode) {
            names.erase(found);
        }
    }
    if (!change.to.empty()) names[change.to] = change.inode;
}

bool coin(std::mt19937_64& random) {
    return (random() & 1) != 0;
}

// What a crash leaves of a file.
void settle_crash(Inode& inode, std::mt19937_64& random) {
    for (PendingChange& change : inode.pending) {
        if (change.kind != PendingChange::write) {
            if (coin(random)) carry_over(change, inode.durable);
            continue;
        }
        const uint64_t end = change.offset + change.bytes.size();
        switch (random() % 4) {
            case 0:
            case 1:
                carry_over(change, inode.durable);
                break;
            case 2:  // torn
                change.bytes.resize(random() % (change.bytes.size() + 1));
                carry_over(change, inode.durable);
                break;
            default:  // lost, perhaps but for the length
                if (coin(random)) inode.durable.set_size(std::max(inode.durable.size(), end));
        }
    }
    if (inode.mapped) {
        const std::span<const std::byte> mapped(*inode.mapped);
        for (uint64_t at = 0; at < std::min<uint64_t>(mapped.size(), inode.current.size());
             at += page_bytes) {
            if (coin(random)) {
                inode.durable.write(mapped.subspan(at, std::min<size_t>(page_bytes, mapped.size() - at)), at);
            }
        }
    }
    inode.pending.clear();
    inode.mapped.reset();
    inode.mappings = 0;
    inode.opens = 0;
    inode.current = inode.durable;
    inode.reserved_pages = 0;
}

}  // namespace

// ---- world --------------------------------------------------------------------------------------------

struct MemoryStorage::World {
    MemoryStorageOptions options;
    mutable std::mutex mutex;  // over everything below
    uint64_t life = 0;         // a File of an earlier life is dead
    uint64_t used_pages = 0;
    Names names, durable_names;
    std::vector<PendingName> pending_names;
    std::set<std::string> directories{"/", "."};
    std::set<std::string> locks;

    uint64_t free_pages() const {
        const uint64_t capacity = options.capacity_bytes / page_bytes;
        return capacity > used_pages ? capacity - used_pages : 0;
    }
    bool charge(Inode& inode, uint64_t pages) {
        if (pages > free_pages()) return false;
        used_pages += pages;
        inode.charged_pages += pages;
        return true;
    }
    void recharge(Inode& inode) {  // after the file shrank or lost its last user
        used_pages -= inode.charged_pages;
        inode.charged_pages = 0;
        if (inode.names == 0 && inode.opens == 0) return;
        inode.charged_pages = inode.reserved_pages;
        const uint64_t pages = (inode.current.size() + page_bytes - 1) / page_bytes;
        for (uint64_t page = inode.reserved_pages; page < pages && inode.current.page_count() > 0; ++page) {
            if (inode.current.has_page(page)) ++inode.charged_pages;
        }
        used_pages += inode.charged_pages;
    }
    void unlink(const InodePointer& inode) {
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

// ---- file ---------------------------------------------------------------------------------------------

class MemoryStorage::MemoryFile : public File {
  public:
    MemoryFile(std::shared_ptr<World> world, InodePointer inode, std::string path, bool writable)
        : world_(std::move(world)),
          inode_(std::move(inode)),
          path_(std::move(path)),
          writable_(writable),
          life_(world_->life) {
        ++inode_->opens;
    }
    ~MemoryFile() override { (void)close(); }

    const std::string& path() const override { return path_; }

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check("reading", target.size(), offset));
        const size_t count = inode_->current.read(target, offset);
        if (inode_->mapped && offset < inode_->mapped->size()) {
            const size_t mapped = std::min<size_t>(count, inode_->mapped->size() - offset);
            std::memcpy(target.data(), inode_->mapped->data() + offset, mapped);
        }
        return count;
    }

    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check_writable("writing", source.size(), offset));
        if (source.empty()) return Status();
        uint64_t new_pages = 0;
        SparseBytes::for_each_page(offset, source.size(), [&](uint64_t page, uint64_t, size_t, size_t) {
            if (page >= inode_->reserved_pages && !inode_->current.has_page(page)) ++new_pages;
        });
        if (!world_->charge(*inode_, new_pages)) return no_space("writing", source.size(), offset);
        inode_->current.write(source, offset);
        if (inode_->mapped && offset < inode_->mapped->size()) {
            std::memcpy(inode_->mapped->data() + offset, source.data(),
                        std::min<size_t>(source.size(), inode_->mapped->size() - offset));
        }
        inode_->pending.push_back({PendingChange::write, offset, {source.begin(), source.end()}});
        inode_->modified = std::chrono::system_clock::now();
        return Status();
    }

    Status reserve(uint64_t bytes) override {
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check_writable("reserving", bytes, 0));
        return reserve_locked(bytes);
    }

    Status truncate(uint64_t bytes) override {
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check_writable("setting the length to", bytes, 0));
        if (inode_->mapped && bytes < inode_->mapped->size()) {
            return Status(
                Code::busy,
                fmt::format("setting the length of '{}' to {} bytes: more of it is mapped", path_, bytes));
        }
        const bool shrinks = bytes < inode_->current.size();
        inode_->current.set_size(bytes);
        inode_->pending.push_back({PendingChange::set_size, bytes, {}});
        if (shrinks) {
            inode_->reserved_pages = std::min(inode_->reserved_pages, (bytes + page_bytes - 1) / page_bytes);
            world_->recharge(*inode_);
        }
        return Status();
    }

    Status sync() override {
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check("syncing", 0, 0));
        for (const PendingChange& change : inode_->pending) carry_over(change, inode_->durable);
        inode_->pending.clear();
        if (inode_->mapped) inode_->durable.write(*inode_->mapped, 0);
        return Status();
    }

    Result<uint64_t> size() override {
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check("asking the size of", 0, 0));
        return inode_->current.size();
    }

    Result<std::span<std::byte>> map(uint64_t bytes) override {
        if (!world_->options.offer_map) return File::map(bytes);
        std::lock_guard lock(world_->mutex);
        TAILRACE_TRY(check_writable("mapping", bytes, 0));
        TAILRACE_TRY(reserve_locked(bytes));
        if (!inode_->mapped || inode_->mapped->size() < bytes) {
            if (inode_->mappings > 0) {
                return Status(
                    Code::unsupported,
                    fmt::format("mapping {} bytes of '{}': fewer bytes of it are mapped now, and this "
                                "storage keeps one mapping",
                                bytes, path_));
            }
            auto memory = std::make_shared<std::vector<std::byte>>(bytes);
            (void)inode_->current.read(*memory, 0);
            if (inode_->mapped) std::copy(inode_->mapped->begin(), inode_->mapped->end(), memory->begin());
            inode_->mapped = std::move(memory);
        }
        mapped_ = inode_->mapped;
        ++inode_->mappings;
        ++my_mappings_;
        return std::span<std::byte>(*mapped_).first(bytes);
    }

    Status close() override {
        std::lock_guard lock(world_->mutex);
        if (!std::exchange(open_, false)) return Status();
        if (life_ != world_->life) return Status();
        inode_->mappings -= my_mappings_;
        if (--inode_->opens == 0) world_->recharge(*inode_);
        return Status();
    }

  private:
    Status check(std::string_view doing, uint64_t bytes, uint64_t offset) const {
        if (life_ != world_->life) {
            return Status(Code::io_error,
                          fmt::format("{} {} bytes at offset {} of '{}': it was open when the "
                                      "system went down",
                                      doing, bytes, offset, path_));
        }
        if (!open_)
            return Status(Code::failed_state, fmt::format("{} '{}': it has been closed", doing, path_));
        if (bytes > INT64_MAX || offset > INT64_MAX - bytes) {
            return Status(Code::invalid_argument,
                          fmt::format("{} {} bytes at offset {} of '{}': no file is that "
                                      "large",
                                      doing, bytes, offset, path_));
        }
        return Status();
    }
    Status check_writable(std::string_view doing, uint64_t bytes, uint64_t offset) const {
        TAILRACE_TRY(check(doing, bytes, offset));
        if (writable_) return Status();
        return Status(Code::io_error,
                      fmt::format("{} {} bytes at offset {} of '{}': it is open for reading only", doing,
                                  bytes, offset, path_));
    }
    Status no_space(std::string_view doing, uint64_t bytes, uint64_t offset) const {
        return Status(Code::no_space, fmt::format("{} {} bytes at offset {} of '{}': no space is left", doing,
                                                  bytes, offset, path_));
    }
    Status reserve_locked(uint64_t bytes) {
        const uint64_t pages = (bytes + page_bytes - 1) / page_bytes;
        uint64_t new_pages = 0;
        if (pages > inode_->reserved_pages) {
            new_pages = pages - inode_->reserved_pages;
            if (new_pages > world_->free_pages() + inode_->current.page_count()) {
                return no_space("reserving", bytes, 0);  // before counting pages of an absurd length
            }
            for (uint64_t page = inode_->reserved_pages; page < pages; ++page) {
                if (inode_->current.has_page(page)) --new_pages;
            }
        }
        if (!world_->charge(*inode_, new_pages)) return no_space("reserving", bytes, 0);
        inode_->reserved_pages = std::max(inode_->reserved_pages, pages);
        if (bytes > inode_->current.size()) {
            inode_->current.set_size(bytes);
            inode_->pending.push_back({PendingChange::grow, bytes, {}});
        }
        return Status();
    }

    const std::shared_ptr<World> world_;
    const InodePointer inode_;
    const std::string path_;
    const bool writable_;
    const uint64_t life_;
    bool open_ = true;
    std::shared_ptr<std::vector<std::byte>> mapped_;  // keeps the memory while this file is there
    int my_mappings_ = 0;
};

class MemoryStorage::MemoryLock : public DirectoryLock {
  public:
    MemoryLock(std::shared_ptr<World> world, std::string path)
        : world_(std::move(world)), path_(std::move(path)), life_(world_->life) {}
    ~MemoryLock() override {
        std::lock_guard lock(world_->mutex);
        if (life_ == world_->life) world_->locks.erase(path_);
    }

  private:
    const std::shared_ptr<World> world_;
    const std::string path_;
    const uint64_t life_;
};

// ---- storage ------------------------------------------------------------------------------------------

MemoryStorage::MemoryStorage(const MemoryStorageOptions& options) : world_(std::make_shared<World>()) {
    world_->options = options;
}
MemoryStorage::~MemoryStorage() = default;

void MemoryStorage::crash(std::mt19937_64& random) {
    std::lock_guard lock(world_->mutex);
    ++world_->life;
    world_->locks.clear();
    // Every file that any name may lead to, in an order that does not depend on addresses.
    std::vector<InodePointer> inodes;
    std::set<Inode*> seen;
    auto add = [&](const InodePointer& inode) {
        if (seen.insert(inode.get()).second) inodes.push_back(inode);
    };
    for (const auto& [path, inode] : world_->durable_names) add(inode);
    for (const PendingName& change : world_->pending_names) add(change.inode);

    for (const PendingName& change : world_->pending_names) {
        if (coin(random)) carry_over(change, world_->durable_names);
    }
    world_->pending_names.clear();
    world_->names = world_->durable_names;
    world_->used_pages = 0;
    for (const InodePointer& inode : inodes) {
        settle_crash(*inode, random);
        inode->names = 0;
        inode->charged_pages = 0;
    }
    for (const auto& [path, inode] : world_->names) {
        inode->names = 1;
        world_->recharge(*inode);
    }
}

void MemoryStorage::process_death() {
    std::lock_guard lock(world_->mutex);
    ++world_->life;
    world_->locks.clear();
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
    std::lock_guard lock(world_->mutex);
    return world_->used_pages * page_bytes;
}

void MemoryStorage::set_capacity(uint64_t bytes) {
    std::lock_guard lock(world_->mutex);
    world_->options.capacity_bytes = bytes;
}

Result<std::unique_ptr<File>> MemoryStorage::open(const std::string& raw_path, const OpenOptions& options) {
    const std::string path = normal(raw_path);
    std::lock_guard lock(world_->mutex);
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
        if (options.access == Access::read) {
            return Status(Code::not_found, fmt::format("opening '{}' for reading: no such file", path));
        }
        inode = std::make_shared<Inode>();
        inode->names = 1;
        world_->names[path] = inode;
        world_->note(inode, "", path);
    }
    return std::unique_ptr<File>(
        std::make_unique<MemoryFile>(world_, std::move(inode), raw_path, options.access != Access::read));
}

Status MemoryStorage::rename(const std::string& raw_from, const std::string& raw_to) {
    const std::string from = normal(raw_from), to = normal(raw_to);
    std::lock_guard lock(world_->mutex);
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

Status MemoryStorage::remove(const std::string& raw_path) {
    const std::string path = normal(raw_path);
    std::lock_guard lock(world_->mutex);
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
    std::lock_guard lock(world_->mutex);
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
    std::lock_guard lock(world_->mutex);
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
    std::lock_guard lock(world_->mutex);
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
    std::lock_guard lock(world_->mutex);
    if (!world_->directories.contains(path) && !world_->names.contains(path)) {
        return Status(Code::not_found, fmt::format("asking for the space of '{}': no such path", path));
    }
    SpaceInfo space;
    space.block_bytes = world_->options.block_bytes;
    space.free_bytes = world_->free_pages() * page_bytes;
    space.in_memory = true;
    space.file_system = "memory";
    return space;
}

Result<std::unique_ptr<DirectoryLock>> MemoryStorage::lock_directory(const std::string& raw_path) {
    const std::string path = normal(raw_path);
    std::lock_guard lock(world_->mutex);
    if (!world_->directories.contains(path)) {
        return Status(Code::not_found, fmt::format("locking the directory '{}': no such directory", path));
    }
    if (!world_->locks.insert(path).second) {
        return Status(Code::busy, fmt::format("locking the directory '{}': another holds it", path));
    }
    return std::unique_ptr<DirectoryLock>(std::make_unique<MemoryLock>(world_, path));
}

}  // namespace tailrace
