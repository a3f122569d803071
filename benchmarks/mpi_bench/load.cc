#include "load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "../splitmix.h"

namespace mpi_bench {

namespace {

constexpr size_t direct_alignment = 4096;
constexpr size_t request_bytes = size_t{16} << 20;

class Descriptor {
  public:
    Descriptor(const std::string& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
        if (number_ < 0) fail("opening " + path);
    }
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int number() const { return number_; }
    void close(const std::string& path) {
        if (::close(std::exchange(number_, -1)) != 0) fail("closing " + path);
    }

  private:
    int number_;
};

void write_all(int descriptor, const std::byte* data, size_t bytes, uint64_t offset,
               const std::string& path) {
    while (bytes > 0) {
        const ssize_t written =
            ::pwrite(descriptor, data, std::min(bytes, request_bytes), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) fail("writing " + path);
        data += written;
        bytes -= static_cast<size_t>(written);
        offset += static_cast<uint64_t>(written);
    }
}

// Direct writes need aligned memory, places and lengths. Whole blocks go through such a buffer. The
// bytes after the last whole block go through the cache.
void write_around(const std::string& path, std::span<const std::byte> data) {
    Descriptor file(path, O_WRONLY | O_CREAT | O_DIRECT);
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    const std::unique_ptr<void, Free> buffer(std::aligned_alloc(direct_alignment, request_bytes));
    if (!buffer) throw std::runtime_error("no memory for a direct write");
    const size_t whole = data.size() / direct_alignment * direct_alignment;
    for (size_t at = 0; at < whole; at += request_bytes) {
        const size_t bytes = std::min(request_bytes, whole - at);
        std::memcpy(buffer.get(), data.data() + at, bytes);
        write_all(file.number(), static_cast<const std::byte*>(buffer.get()), bytes, at, path);
    }
    Descriptor plain(path, O_WRONLY);
    write_all(plain.number(), data.data() + whole, data.size() - whole, whole, path);
    if (::fsync(plain.number()) != 0) fail("syncing " + path);
    plain.close(path);
    file.close(path);
}

}  // namespace

Load::~Load() {
    if (group != MPI_COMM_NULL) MPI_Comm_free(&group);
}

void make_load(Load& load, uint64_t bytes, uint32_t imbalance_percent, int files, uint64_t seed) {
    MPI_Comm_rank(MPI_COMM_WORLD, &load.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &load.size);
    load.files = files;
    load.file = static_cast<int>(int64_t{load.rank} * files / load.size);
    load.seed = seed;
    if (load.group != MPI_COMM_NULL) MPI_Comm_free(&load.group);
    check_mpi(MPI_Comm_split(MPI_COMM_WORLD, load.file, load.rank, &load.group), "splitting the ranks");
    MPI_Comm_rank(load.group, &load.group_rank);
    const double step =
        static_cast<double>(splitmix(seed * 1000003 + static_cast<uint64_t>(load.rank)) >> 11) * 0x1p-52 - 1;
    load.bytes =
        static_cast<uint64_t>(static_cast<double>(bytes) * (1 + step * imbalance_percent / 100)) / 8 * 8;
    load.offset = 0;
    check_mpi(MPI_Exscan(&load.bytes, &load.offset, 1, MPI_UINT64_T, MPI_SUM, load.group),
              "adding up offsets");
    if (load.group_rank == 0) load.offset = 0;
    check_mpi(MPI_Allreduce(&load.bytes, &load.group_bytes, 1, MPI_UINT64_T, MPI_SUM, load.group),
              "adding up");
    check_mpi(MPI_Allreduce(&load.bytes, &load.all_bytes, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD),
              "adding up");
}

void fill(Load& load, uint64_t dump) {
    const uint64_t start = splitmix(load.seed ^ dump << 32 ^ static_cast<uint64_t>(load.rank));
    for (size_t at = 0; at < load.memory.size(); at += 8) {
        const uint64_t word = splitmix(start + at);
        std::memcpy(load.memory.data() + at, &word, 8);
    }
}

void check(const Load& load, uint64_t dump, std::span<const std::byte> found, const std::string& who) {
    const uint64_t start = splitmix(load.seed ^ dump << 32 ^ static_cast<uint64_t>(load.rank));
    for (size_t at = 0; at < found.size(); at += 8) {
        const uint64_t word = splitmix(start + at);
        if (std::memcmp(found.data() + at, &word, 8) != 0)
            throw std::runtime_error(who + ": what was read differs from what was written, at byte " +
                                     std::to_string(at) + " of rank " + std::to_string(load.rank));
    }
}

Timer::Timer() {
    MPI_Barrier(MPI_COMM_WORLD);
    start_ = MPI_Wtime();
}

double Timer::seconds() const {
    return MPI_Wtime() - start_;
}

double Timer::stop() const {
    return slowest(seconds());
}

double slowest(double seconds) {
    double all = 0;
    MPI_Allreduce(&seconds, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

std::string broadcast(std::string text, int from) {
    uint64_t bytes = text.size();
    check_mpi(MPI_Bcast(&bytes, 1, MPI_UINT64_T, from, MPI_COMM_WORLD), "telling all ranks");
    text.resize(bytes);
    check_mpi(MPI_Bcast(text.data(), static_cast<int>(bytes), MPI_CHAR, from, MPI_COMM_WORLD),
              "telling all ranks");
    return text;
}

void refuse_together(const std::string& why) {
    int rank = 0, size = 0, first = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int mine = why.empty() ? size : rank;
    check_mpi(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "comparing refusals");
    if (first < size) throw std::invalid_argument(broadcast(why, first));
}

void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

void check_mpi(int code, const std::string& doing) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw std::runtime_error(doing + ": " + std::string(text, static_cast<size_t>(length)));
}

std::string file_name(const std::string& directory, const std::string& strategy, int number) {
    return directory + "/" + strategy + "." + std::to_string(number);
}

void write_file(const std::string& path, uint64_t offset, std::span<const std::byte> data, Cache cache) {
    if (cache == Cache::around && offset == 0) return write_around(path, data);
    Descriptor file(path, O_WRONLY | O_CREAT);
    write_all(file.number(), data.data(), data.size(), offset, path);
    if (::fsync(file.number()) != 0) fail("syncing " + path);
    file.close(path);
}

void read_file(const std::string& path, uint64_t offset, std::span<std::byte> data) {
    Descriptor file(path, O_RDONLY);
    std::byte* target = data.data();
    size_t bytes = data.size();
    while (bytes > 0) {
        const ssize_t read =
            ::pread(file.number(), target, std::min(bytes, request_bytes), static_cast<off_t>(offset));
        if (read < 0 && errno == EINTR) continue;
        if (read < 0) fail("reading " + path);
        if (read == 0) throw std::runtime_error(path + " ends too early");
        target += read;
        bytes -= static_cast<size_t>(read);
        offset += static_cast<uint64_t>(read);
    }
}

void make_shared_file(const Load& load, const std::string& path) {
    if (load.group_rank == 0) Descriptor(path, O_WRONLY | O_CREAT).close(path);
    MPI_Barrier(load.group);
    wait_until_there(path);
    MPI_Barrier(load.group);
}

void wait_until_there(const std::string& path) {
    for (int i = 0; i < 1000 && ::access(path.c_str(), F_OK) != 0; ++i) ::usleep(10000);
}

void sync_file(const std::string& path) {
    Descriptor file(path, O_RDONLY);
    if (::fsync(file.number()) != 0) fail("syncing " + path);
    (void)::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
}

void sync_directory(const std::string& path) {
    Descriptor directory(path, O_RDONLY | O_DIRECTORY);
    if (::fsync(directory.number()) != 0) fail("syncing " + path);
}

}  // namespace mpi_bench
