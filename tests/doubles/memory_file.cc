#include "doubles/memory_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "storage/file_range.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// ---- bytes --------------------------------------------------------------------------------------------

void SparseBytes::set_size(uint64_t bytes) {
    if (bytes < size_) {
        pages_.erase(pages_.lower_bound(memory_pages_of(bytes)), pages_.end());
        if (auto last = pages_.find(bytes / memory_page_bytes); last != pages_.end()) {
            std::fill(last->second.begin() + static_cast<std::ptrdiff_t>(bytes % memory_page_bytes),
                      last->second.end(), std::byte{0});
        }
    }
    size_ = bytes;
}

void SparseBytes::write(std::span<const std::byte> source, uint64_t offset) {
    size_ = std::max(size_, offset + source.size());
    for_each_page(offset, source.size(), [&](uint64_t page, uint64_t in_page, size_t at, size_t count) {
        std::vector<std::byte>& bytes = pages_[page];
        bytes.resize(memory_page_bytes);
        std::memcpy(bytes.data() + in_page, source.data() + at, count);
    });
}

size_t SparseBytes::read(std::span<std::byte> target, uint64_t offset) const {
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

// ---- what a crash leaves -------------------------------------------------------------------------------

namespace {

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

}  // namespace

bool crash_keeps(std::mt19937_64& random) {
    return (random() & 1) != 0;
}

void MemoryInode::settle_crash(std::mt19937_64& random) {
    for (PendingChange& change : pending) {
        if (change.kind != PendingChange::write) {
            if (crash_keeps(random)) carry_over(change, durable);
            continue;
        }
        const uint64_t end = change.offset + change.bytes.size();
        switch (random() % 4) {
            case 0:
            case 1:
                carry_over(change, durable);
                break;
            case 2:  // torn
                change.bytes.resize(random() % (change.bytes.size() + 1));
                carry_over(change, durable);
                break;
            default:  // lost, perhaps but for the length
                if (crash_keeps(random)) durable.set_size(std::max(durable.size(), end));
        }
    }
    if (mapped) {
        const std::span<const std::byte> memory(*mapped);
        for (uint64_t at = 0; at < std::min<uint64_t>(memory.size(), current.size());
             at += memory_page_bytes) {
            if (crash_keeps(random)) {
                durable.write(memory.subspan(at, std::min<size_t>(memory_page_bytes, memory.size() - at)),
                              at);
            }
        }
    }
    pending.clear();
    mapped.reset();
    mappings = 0;
    opens = 0;
    current = durable;
    reserved_pages = 0;
}

// ---- space --------------------------------------------------------------------------------------------

uint64_t MemoryDisk::free_pages() const {
    const uint64_t capacity = options.capacity_bytes / memory_page_bytes;
    return capacity > used_pages ? capacity - used_pages : 0;
}

bool MemoryDisk::charge(MemoryInode& inode, uint64_t pages) {
    if (pages > free_pages()) return false;
    used_pages += pages;
    inode.charged_pages += pages;
    return true;
}

void MemoryDisk::recharge(MemoryInode& inode) {
    used_pages -= inode.charged_pages;
    inode.charged_pages = 0;
    if (inode.names == 0 && inode.opens == 0) return;
    inode.charged_pages = inode.reserved_pages;
    const uint64_t pages = memory_pages_of(inode.current.size());
    for (uint64_t page = inode.reserved_pages; page < pages && inode.current.page_count() > 0; ++page) {
        if (inode.current.has_page(page)) ++inode.charged_pages;
    }
    used_pages += inode.charged_pages;
}

// ---- file ---------------------------------------------------------------------------------------------

namespace {

class MemoryFile final : public File {
  public:
    MemoryFile(std::shared_ptr<MemoryDisk> disk, std::shared_ptr<MemoryInode> inode, std::string path,
               bool writable)
        : disk_(std::move(disk)),
          inode_(std::move(inode)),
          path_(std::move(path)),
          writable_(writable),
          life_(disk_->life) {
        ++inode_->opens;
    }
    ~MemoryFile() override { (void)close(); }

    const std::string& path() const override { return path_; }

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        MutexLock lock(disk_->mutex);
        TAILRACE_TRY(check("reading", target.size(), offset));
        const size_t count = inode_->current.read(target, offset);
        if (count > 0 && inode_->mapped && offset < inode_->mapped->size()) {
            const size_t mapped = std::min<size_t>(count, inode_->mapped->size() - offset);
            std::memcpy(target.data(), inode_->mapped->data() + offset, mapped);
        }
        return count;
    }

    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        MutexLock lock(disk_->mutex);
        TAILRACE_TRY(check_writable("writing", source.size(), offset));
        if (source.empty()) return Status();
        uint64_t new_pages = 0;
        SparseBytes::for_each_page(offset, source.size(), [&](uint64_t page, uint64_t, size_t, size_t) {
            if (page >= inode_->reserved_pages && !inode_->current.has_page(page)) ++new_pages;
        });
        if (!disk_->charge(*inode_, new_pages)) return no_space("writing", source.size(), offset);
        inode_->current.write(source, offset);
        if (inode_->mapped && offset < inode_->mapped->size()) {
            std::memcpy(inode_->mapped->data() + offset, source.data(),
                        std::min<size_t>(source.size(), inode_->mapped->size() - offset));
        }
        inode_->pending.push_back({PendingChange::write, offset, {source.begin(), source.end()}});
        inode_->modified = time_of_day();
        return Status();
    }

    // What lies before `offset` is reserved, too.
    Status reserve(uint64_t offset, uint64_t bytes) override {
        MutexLock lock(disk_->mutex);
        TAILRACE_TRY(check_writable("reserving", bytes, offset));
        return bytes == 0 ? Status() : reserve_locked(offset + bytes);
    }

    Status truncate(uint64_t bytes) override {
        MutexLock lock(disk_->mutex);
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
            inode_->reserved_pages = std::min(inode_->reserved_pages, memory_pages_of(bytes));
            disk_->recharge(*inode_);
        }
        return Status();
    }

    Status sync() override {
        MutexLock lock(disk_->mutex);
        TAILRACE_TRY(check("syncing", 0, 0));
        for (const PendingChange& change : inode_->pending) carry_over(change, inode_->durable);
        inode_->pending.clear();
        if (inode_->mapped) inode_->durable.write(*inode_->mapped, 0);
        return Status();
    }

    Result<uint64_t> size() override {
        MutexLock lock(disk_->mutex);
        TAILRACE_TRY(check("asking the size of", 0, 0));
        return inode_->current.size();
    }

    Result<std::span<std::byte>> map(uint64_t bytes) override {
        if (!disk_->options.offer_map) return File::map(bytes);
        MutexLock lock(disk_->mutex);
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

    // A copy: what is written later does not show in it.
    Result<View> view(uint64_t offset, uint64_t bytes) override {
        if (!disk_->options.offer_map) return File::view(offset, bytes);
        auto memory = std::make_shared<std::vector<std::byte>>(bytes);
        TAILRACE_ASSIGN(const size_t there, read_at(*memory, offset));
        if (there < bytes)
            return Status(Code::io_error, fmt::format("viewing {} bytes at offset {} of '{}': {} are there",
                                                      bytes, offset, path_, there));
        return View(memory, memory->data());
    }

    Status close() override {
        MutexLock lock(disk_->mutex);
        if (!std::exchange(open_, false)) return Status();
        if (life_ != disk_->life) return Status();
        inode_->mappings -= my_mappings_;
        if (--inode_->opens == 0) disk_->recharge(*inode_);
        return Status();
    }

  private:
    Status check(std::string_view doing, uint64_t bytes, uint64_t offset) const REQUIRES(disk_->mutex) {
        if (life_ != disk_->life) {
            return Status(Code::io_error,
                          fmt::format("{} {} bytes at offset {} of '{}': it was open when the "
                                      "system went down",
                                      doing, bytes, offset, path_));
        }
        if (!open_)
            return Status(Code::failed_state, fmt::format("{} '{}': it has been closed", doing, path_));
        return check_file_range(doing, bytes, offset, path_);
    }
    Status check_writable(std::string_view doing, uint64_t bytes, uint64_t offset) const
        REQUIRES(disk_->mutex) {
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
    Status reserve_locked(uint64_t bytes) REQUIRES(disk_->mutex) {
        const uint64_t pages = memory_pages_of(bytes);
        uint64_t new_pages = 0;
        if (pages > inode_->reserved_pages) {
            new_pages = pages - inode_->reserved_pages;
            if (new_pages > disk_->free_pages() + inode_->current.page_count()) {
                return no_space("reserving", bytes, 0);  // before counting pages of an absurd length
            }
            for (uint64_t page = inode_->reserved_pages; page < pages; ++page) {
                if (inode_->current.has_page(page)) --new_pages;
            }
        }
        if (!disk_->charge(*inode_, new_pages)) return no_space("reserving", bytes, 0);
        inode_->reserved_pages = std::max(inode_->reserved_pages, pages);
        if (bytes > inode_->current.size()) {
            inode_->current.set_size(bytes);
            inode_->pending.push_back({PendingChange::grow, bytes, {}});
        }
        return Status();
    }

    const std::shared_ptr<MemoryDisk> disk_;
    const std::shared_ptr<MemoryInode> inode_;
    const std::string path_;
    const bool writable_;
    const uint64_t life_;
    bool open_ = true;
    std::shared_ptr<std::vector<std::byte>> mapped_;  // keeps the memory while this file is there
    int my_mappings_ = 0;
};

}  // namespace

std::unique_ptr<File> make_memory_file(std::shared_ptr<MemoryDisk> disk, std::shared_ptr<MemoryInode> inode,
                                       std::string path, bool writable) {
    return std::make_unique<MemoryFile>(std::move(disk), std::move(inode), std::move(path), writable);
}

}  // namespace tailrace::internal
