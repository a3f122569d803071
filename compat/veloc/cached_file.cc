// veloc::cached_file_t. What a program writes lies in a nameless file of the node-local directory until the
// thread has brought it to its place.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "log.h"
#include "veloc/cache.hpp"

namespace veloc_on_tailrace {

namespace {

constexpr size_t piece_bytes = size_t{1} << 20;

// Both open until nothing is left to bring over.
struct Pair {
    std::string name;
    int local = -1, remote = -1;

    Pair() = default;
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    ~Pair() {
        if (local >= 0) ::close(local);
        if (remote >= 0) ::close(remote);
    }
    bool failed(const char* doing) const {
        complain("cached_file_t", std::string(doing) + " " + name + ": " + std::strerror(errno));
        return false;
    }
};

// Moves all bytes by pread or pwrite of a file. EIO for the end of a file.
template <class Call, class Byte>
bool all_of(Call call, int file, Byte* bytes, size_t count, off_t offset) {
    while (count > 0) {
        const ssize_t moved = call(file, bytes, count, offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved == 0) errno = EIO;
        if (moved <= 0) return false;
        bytes += moved;
        count -= static_cast<size_t>(moved);
        offset += moved;
    }
    return true;
}

size_t queue_bound() {
    constexpr size_t usual = 65536;
    const char* const set = std::getenv("VELOC_POSIX_CACHE_SIZE");
    if (set == nullptr) return usual;
    const std::string_view text = set;
    size_t bound = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), bound);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() ? bound : usual;
}

// Brings over what was written, in order. Only program threads take memory.
class Bringer {
  public:
    static Bringer& instance() {
        static Bringer bringer;  // its destructor brings the rest over
        return bringer;
    }
    ~Bringer() { shutdown(); }

    void add(const std::shared_ptr<Pair>& pair, size_t count, off_t offset) {
        std::unique_lock lock(mutex_);
        // A piece that is larger than the bound goes alone.
        changed_.wait(lock, [&] { return bytes_ == 0 || bytes_ + count <= bound_; });
        if (!runs_) start();
        unsynced_.insert(pair);
        pieces_.push_back({pair, count, offset});
        bytes_ += count;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return pieces_.empty(); });
    }
    // (A special file may have no sync: EINVAL.)
    bool flush() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return pieces_.empty(); });
        bool all = !std::exchange(failed_, false);
        const auto unsynced = std::exchange(unsynced_, {});
        lock.unlock();
        for (const auto& pair : unsynced)
            if (::fdatasync(pair->remote) != 0 && errno != EINVAL) all = pair->failed("syncing");
        return all;
    }
    void shutdown() {
        (void)flush();
        std::unique_lock lock(mutex_);
        ends_ = true;
        changed_.notify_all();
        // Another thread's write may begin the next one meanwhile.
        const auto ending = started_;
        changed_.wait(lock, [&] { return !runs_ || started_ != ending; });
        if (!runs_ && thread_.joinable()) thread_.join();
    }

  private:
    struct Piece {
        std::shared_ptr<Pair> pair;
        size_t count;
        off_t offset;
    };

    void start() {
        if (thread_.joinable()) thread_.join();
        buffer_.resize(piece_bytes);
        thread_ = std::thread([this] { bring_all(); });
        ++started_;
        runs_ = true;
        ends_ = false;
    }
    void bring_all() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return ends_ || !pieces_.empty(); });
            if (pieces_.empty()) break;
            const Piece& piece = pieces_.front();  // others come behind it
            lock.unlock();
            const bool brought = bring(piece);
            lock.lock();
            failed_ = failed_ || !brought;
            bytes_ -= piece.count;
            pieces_.pop_front();
            changed_.notify_all();
        }
        runs_ = false;
        changed_.notify_all();
    }
    bool bring(const Piece& piece) noexcept {
        try {
            for (size_t done = 0; done < piece.count; done += buffer_.size()) {
                const size_t count = std::min(buffer_.size(), piece.count - done);
                const off_t at = piece.offset + static_cast<off_t>(done);
                if (!all_of(::pread, piece.pair->local, buffer_.data(), count, at))
                    return piece.pair->failed("reading the node-local copy of");
                if (!all_of(::pwrite, piece.pair->remote, buffer_.data(), count, at))
                    return piece.pair->failed("writing");
            }
            return true;
        } catch (...) {  // no memory for the sentence
            return false;
        }
    }

    const size_t bound_ = queue_bound();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> pieces_;  // the first may be under way
    size_t bytes_ = 0;          // of the pieces
    bool failed_ = false;       // since the last flush
    bool runs_ = false, ends_ = false;
    uint64_t started_ = 0;  // threads
    std::set<std::shared_ptr<Pair>> unsynced_;
    std::vector<char> buffer_;  // the thread's
    std::thread thread_;
};

// The interface says false, whatever has gone wrong.
template <class Work>
bool done(Work work) noexcept {
    try {
        return work();
    } catch (const std::exception& error) {
        try {
            complain("cached_file_t", error.what());
        } catch (...) {  // then without a sentence
        }
        return false;
    }
}

}  // namespace

class CachedFile {
  public:
    explicit CachedFile(std::string scratch) : scratch_(std::move(scratch)) {}

    bool open(const std::string& name, int flags, mode_t mode) {
        if (pair_) {
            complain("cached_file_t",
                     "opening " + name + ": " + pair_->name + " is still open; close it first");
            return false;
        }
        auto pair = std::make_shared<Pair>();
        pair->name = scratch_;
        // No other process meets it, and it is gone with this one.
        auto path = scratch_ + "/veloc-cached-XXXXXX";
        pair->local = ::mkostemp(path.data(), O_CLOEXEC);
        if (pair->local >= 0) ::unlink(path.c_str());
        if (pair->local < 0) return pair->failed("making a file in the node-local directory");
        pair->name = name;
        pair->remote = ::open(name.c_str(), flags | O_CLOEXEC, mode);
        if (pair->remote < 0) return pair->failed("opening");
        pair_ = std::move(pair);
        return true;
    }
    bool pread(char* bytes, size_t count, off_t offset) {
        if (!is_open("reading")) return false;
        Bringer::instance().wait();
        return all_of(::pread, pair_->remote, bytes, count, offset) || pair_->failed("reading");
    }
    bool pwrite(const char* bytes, size_t count, off_t offset) {
        if (!is_open("writing")) return false;
        if (!all_of(::pwrite, pair_->local, bytes, count, offset))
            return pair_->failed("writing the node-local copy of");
        if (count > 0) Bringer::instance().add(pair_, count, offset);
        return true;
    }
    void close() { pair_.reset(); }

  private:
    bool is_open(const char* doing) const {
        if (!pair_) complain("cached_file_t", std::string(doing) + ": no file is open");
        return pair_ != nullptr;
    }
    const std::string scratch_;
    std::shared_ptr<Pair> pair_;
};

}  // namespace veloc_on_tailrace

namespace veloc {

using veloc_on_tailrace::Bringer;
using veloc_on_tailrace::done;

cached_file_t::cached_file_t(const std::string& scratch_path)
    : file_(std::make_unique<veloc_on_tailrace::CachedFile>(scratch_path)) {}
cached_file_t::~cached_file_t() = default;
bool cached_file_t::open(const std::string& fname, int flags, mode_t mode) {
    return done([&] { return file_->open(fname, flags, mode); });
}
bool cached_file_t::pread(void* buf, std::size_t count, off_t offset) {
    return done([&] { return file_->pread(static_cast<char*>(buf), count, offset); });
}
bool cached_file_t::pwrite(const void* buf, std::size_t count, off_t offset) {
    return done([&] { return file_->pwrite(static_cast<const char*>(buf), count, offset); });
}
void cached_file_t::close() {
    file_->close();
}
bool cached_file_t::flush() {
    return done([] { return Bringer::instance().flush(); });
}
void cached_file_t::shutdown() {
    Bringer::instance().shutdown();
}

}  // namespace veloc
