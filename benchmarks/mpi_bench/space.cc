#include "space.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

namespace mpi_bench {

namespace {

namespace fs = std::filesystem;

// Only directories with both of these belong to a benchmark.
constexpr const char* prefix = "tailrace-mpi-bench-";
constexpr const char* lock_name = ".tailrace-mpi-bench.lock";

// Room beside the data: for indexes, space that is reserved ahead, and other contents of the file
// system.
constexpr uint64_t shared_margin = uint64_t{256} << 20;
constexpr uint64_t local_margin = uint64_t{16} << 20;

// Ranks of a job that fails may still be making files. The lock goes last: if this process does
// nothing more, the next run recognises by it what was left.
void remove_tree(const std::string& path) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path, ignored))
        if (entry.path().filename() != lock_name) fs::remove_all(entry.path(), ignored);
    for (int i = 0; i < 100 && fs::exists(path, ignored); ++i) fs::remove_all(path, ignored);
}

// Anybody may make directories where benchmarks run. Others' directories are left alone, and so are
// links.
bool is_own(const std::string& path) {
    struct stat info = {};
    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

void make_own(const std::string& path) {
    if (::mkdir(path.c_str(), S_IRWXU) == 0) return;
    if (errno == EEXIST) throw std::runtime_error(path + " exists already");
    fail("making the directory " + path);
}

// Removes what killed runs have left. Directories that others remove meanwhile count as removed.
void remove_left(const std::string& parent) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(parent, ignored)) {
        if (!entry.path().filename().string().starts_with(prefix) || !is_own(entry.path())) continue;
        const int lock = ::open((entry.path() / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (lock < 0) continue;
        if (::flock(lock, LOCK_EX | LOCK_NB) == 0) remove_tree(entry.path());
        ::close(lock);
    }
}

// If there are no locks, or another rank of the job holds this one, the run goes on without it.
// Then the next run cannot tell, and leaves the directory.
int lock_directory(const std::string& path) {
    const int lock =
        ::open((fs::path(path) / lock_name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) fail("making a file in " + path);
    (void)::flock(lock, LOCK_EX | LOCK_NB);
    return lock;
}

std::string lack(const std::string& directory, uint64_t needed, uint64_t margin) {
    const uint64_t free_bytes = fs::space(directory).available;
    needed += needed / 10 + margin;
    if (needed <= free_bytes) return "";
    return directory + " has " + std::to_string(free_bytes) + " bytes free, but " + std::to_string(needed) +
           " are needed: choose a smaller --size, or a smaller --warm-up";
}

bool same_device(const std::string& a, const std::string& b) {
    struct stat first = {}, second = {};
    return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev;
}

sem_t signalled;
std::atomic<int> signal_number = 0;
constexpr std::array watched = {SIGINT, SIGTERM, SIGHUP};

void on_signal(int number) {
    signal_number = number;
    (void)::sem_post(&signalled);
}

}  // namespace

struct SignalWatch::Parts {
    std::array<struct sigaction, watched.size()> before = {};
    std::thread thread;
};

SignalWatch::SignalWatch(std::function<void()> clean) : parts_(std::make_unique<Parts>()) {
    ::sem_init(&signalled, 0, 0);
    parts_->thread = std::thread([clean = std::move(clean)] {
        while (::sem_wait(&signalled) != 0) {
        }
        const int number = signal_number;
        if (number == 0) return;
        clean();
        (void)std::signal(number, SIG_DFL);
        (void)std::raise(number);
    });
    for (size_t i = 0; i < watched.size(); ++i) {
        struct sigaction action = {};
        action.sa_handler = on_signal;
        action.sa_flags = SA_RESTART;
        (void)::sigaction(watched[i], &action, &parts_->before[i]);
        // If a lost terminal is to end nothing (nohup), it does not end this program either.
        if (watched[i] == SIGHUP && parts_->before[i].sa_handler == SIG_IGN)
            (void)::sigaction(SIGHUP, &parts_->before[i], nullptr);
    }
}

SignalWatch::~SignalWatch() {
    for (size_t i = 0; i < watched.size(); ++i) (void)::sigaction(watched[i], &parts_->before[i], nullptr);
    (void)::sem_post(&signalled);
    parts_->thread.join();
    ::sem_destroy(&signalled);
}

Space::Space(const std::string& shared_parent, const std::string& local_parent, const std::string& name)
    : shared_(shared_parent + "/" + name),
      local_(local_parent + "/" + name + "-local"),
      tier_(tier(local_parent, name)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    watch_ = std::make_unique<SignalWatch>([shared = shared_, local = local_] {
        remove_tree(shared);
        remove_tree(local);
    });
    if (rank_ == 0) {
        fs::create_directories(shared_parent);
        remove_left(shared_parent);
        make_own(shared_);
        shared_lock_ = lock_directory(shared_);
    }
    if (node_.is_mine(0)) {
        fs::create_directories(local_parent);
        remove_left(local_parent);
        make_own(local_);
        local_lock_ = lock_directory(local_);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    wait_until_there(shared_);
}

Space::~Space() {
    if (!closed_) {
        remove_tree(shared_);
        remove_tree(local_);
    }
    watch_.reset();
    for (const int lock : {shared_lock_, local_lock_})
        if (lock >= 0) ::close(lock);
}

void Space::close() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) remove_tree(shared_);
    if (node_.is_mine(0)) remove_tree(local_);
    closed_ = true;
    MPI_Barrier(MPI_COMM_WORLD);
}

std::string Space::new_place() {
    const std::string before = shared_ + "/" + std::to_string(places_);
    const std::string place = shared_ + "/" + std::to_string(++places_);
    if (rank_ == 0) {
        fs::remove_all(before);
        fs::create_directory(place);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    wait_until_there(place);
    MPI_Barrier(MPI_COMM_WORLD);
    return place;
}

std::string Space::tier(const std::string& local_parent, const std::string& name) {
    return local_parent + "/" + name + "-local/tier";
}

// Every machine has its own. A missing one counts as removed.
void Space::remove_parts() {
    std::error_code ignored;
    fs::remove_all(tier_, ignored);
    MPI_Barrier(MPI_COMM_WORLD);
}

void Space::check_room(uint64_t shared_bytes, uint64_t local_bytes) const {
    const uint64_t here = node_.sum(local_bytes);
    std::string why = lack(shared_, shared_bytes, shared_margin);
    if (why.empty() && here > 0)
        why = same_device(shared_, local_) ? lack(local_, shared_bytes + here, shared_margin)
                                           : lack(local_, here, local_margin);
    refuse_together(why);
}

}  // namespace mpi_bench
