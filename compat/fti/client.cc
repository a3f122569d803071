#include "client.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>
#include <thread>

#include "common/directories.h"
#include "common/small_file.h"

const char* const on_tailrace::interface_name = "fti";

namespace fti_on_tailrace {

namespace {

constexpr const char* job = "fti";

[[noreturn]] void refuse(const std::string& why) {
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, why);
}

std::string title(int id, int level) {
    return "checkpoint " + std::to_string(id) + " of level " + std::to_string(level);
}

// Makes a directory for a new run in `top`, named as FTI names it, and returns its name.
std::string new_run_in(const std::string& top) {
    on_tailrace::make_named_directory("glbl_dir", top);
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[64];
    const std::string name(text, std::strftime(text, sizeof text, "%Y-%m-%d_%H-%M-%S", &local));
    // Runs may begin in the same second.
    for (int number = 1;; ++number) {
        const auto numbered = number == 1 ? name : name + "_" + std::to_string(number);
        std::error_code error;
        const auto path = top + "/" + numbered;
        if (std::filesystem::create_directory(path, error)) return numbered;
        // What is no directory has the name, too.
        if (error && error != std::errc::file_exists && error != std::errc::not_a_directory)
            throw tailrace::Error(TAILRACE_IO_ERROR, "making the directory " + path + ": " + error.message() +
                                                         "; make glbl_dir a directory that you may write, or "
                                                         "name another");
    }
}

// A directory that is open, and is removed from by what is open: whoever may write to ckpt_dir or glbl_dir
// could put a link to other files of this user in its place.
class OpenDirectory {
  public:
    // `name` in the directory open as `parent`, if that is no link. Throws; what is missing is not open.
    OpenDirectory(int parent, const std::string& name, const std::string& path)
        : file_(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
        if (file_ < 0 && errno != ENOENT)
            throw tailrace::Error(TAILRACE_IO_ERROR, path +
                                                         " is a link, or cannot be opened as a directory; "
                                                         "nothing there was removed. Look who made it, and "
                                                         "remove by hand what is left of the run");
    }
    OpenDirectory(const OpenDirectory&) = delete;
    OpenDirectory& operator=(const OpenDirectory&) = delete;
    ~OpenDirectory() {
        if (file_ >= 0) ::close(file_);
    }

    bool is_open() const { return file_ >= 0; }
    int file() const { return file_; }
    std::string path_of(const std::string& name) const {
        return "/proc/self/fd/" + std::to_string(file_) + "/" + name;
    }

  private:
    const int file_;
};

// Other ranks of the node remove it, too, so that what is there one moment may be gone the next.
void remove_with_others(const OpenDirectory& directory, const std::string& name, const std::string& path) {
    std::error_code error;
    for (int tries = 0; tries < 100; ++tries) {
        std::filesystem::remove_all(directory.path_of(name), error);
        if (!error) return;
        if (error != std::errc::no_such_file_or_directory && error != std::errc::directory_not_empty) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw std::filesystem::filesystem_error("removing", path, error);
}

}  // namespace

// ---- begin and end ------------------------------------------------------------------------------

Client::Client(std::unique_ptr<Ranks> ranks, std::string config_file, Settings settings)
    : Together(std::move(ranks)),
      config_file_(std::move(config_file)),
      settings_(std::move(settings)),
      schedule_(settings_.minutes, settings_.fast_forward, settings_.most_iterations) {
    for (const size_t bytes : {sizeof(char), sizeof(short), sizeof(int), sizeof(long), sizeof(unsigned char),
                               sizeof(unsigned short), sizeof(unsigned int), sizeof(unsigned long),
                               sizeof(float), sizeof(double), sizeof(long double)})
        types_.add(bytes);
}

std::unique_ptr<Client> Client::open(std::unique_ptr<Ranks> ranks, const std::string& config_file) {
    constexpr const char* call = "FTI_Init";
    // Rank 0 reads for all, so that none meets the file while it is written.
    std::string text, here, path = config_file;
    bool read = true;
    if (ranks->rank() == 0) {
        try {
            if (config_file.empty()) refuse("no configuration file was named");
            here = std::filesystem::current_path().string();
            // A link stays a link when the file is replaced.
            path = std::filesystem::canonical(config_file).string();
            text = on_tailrace::read_file(path, "it");
        } catch (const std::exception& error) {
            complain(call, "the configuration file " + config_file + " cannot be read: " + error.what());
            read = false;
        }
    }
    if (!ranks->all(read)) return nullptr;
    text = ranks->of_first(text);
    here = ranks->of_first(here);
    std::optional<Settings> settings;
    try {
        settings = settings_of(text, config_file, here);
    } catch (const std::exception& error) {
        if (ranks->rank() == 0) complain(call, error.what());
    }
    // All have read the same, but their environment variables may differ.
    if (!ranks->all(settings.has_value())) return nullptr;
    std::unique_ptr<Client> client(new Client(std::move(ranks), path, std::move(*settings)));
    if (!client->begin()) return nullptr;
    return client;
}

bool Client::begin() {
    constexpr const char* call = "FTI_Init";
    if (ranks_->rank() == 0 && !settings_.silent)
        for (const auto& note : settings_.notes) on_tailrace::inform(note);
    if (settings_.failure == 0) return begin_run(call) && write_restart(call, 0);
    // Its newest checkpoint may be that of the level that cannot be looked at, and epochs of a new run would
    // get its number.
    if (!find_checkpoint(call)) {
        if (ranks_->rank() == 0)
            complain(call, "the checkpoints of run " + settings_.exec_id +
                               " cannot be looked at; nothing was changed. Mend what is said above and start "
                               "again, or set failure = 0 in the configuration file to begin anew");
        return false;
    }
    if (saved_) {
        status_ = written_failure_ = settings_.failure;
        next_id_ = std::max(0, saved_->id % std::numeric_limits<int>::max()) + 1;
        return true;
    }
    // The run that could not be recovered stays as it is, and the configuration file names it until this one
    // has a checkpoint.
    begun_ = not_recovered;
    close_sessions(call);
    const auto lost = settings_.exec_id;
    if (!begin_run(call)) return false;
    if (ranks_->rank() == 0)
        complain(call, "no checkpoint of run " + lost + " in " + settings_.glbl_dir + " or " +
                           settings_.ckpt_dir + " can be recovered; the program begins anew, as run " +
                           settings_.exec_id + ", and what there is of " + lost + " stays");
    return true;
}

bool Client::begin_run(const char* call) {
    // Its directories on the nodes are made with the first checkpoint, which is late to learn that they
    // cannot be.
    if (!everybody(call, [&] { on_tailrace::expect_room_for_directory("ckpt_dir", settings_.ckpt_dir); }))
        return false;
    const auto name = from_first(call, [&] { return new_run_in(settings_.glbl_dir); });
    if (name) settings_.exec_id = *name;
    next_epoch_ = 1;
    return name.has_value();
}

// Nothing is written that stands there already.
bool Client::write_restart(const char* call, int failure) {
    if (written_failure_ == failure) return true;
    const bool written = on_first(call, [&] {
        try {
            const auto text = on_tailrace::read_file(config_file_, "it");
            const auto changed = with_restart(text, failure, settings_.exec_id);
            if (changed != text) on_tailrace::replace_file(config_file_, changed, "it");
        } catch (const tailrace::Error& error) {
            throw tailrace::Error(error.code(), std::string(error.what()) +
                                                    "; rank 0 must be able to write it and its directory, "
                                                    "because its section [Restart] tells the next start "
                                                    "what to do");
        }
    });
    if (written) written_failure_ = failure;
    return written;
}

Client::~Client() {
    constexpr const char* call = "FTI_Finalize";
    try {
        close_sessions(call);
    } catch (const std::exception& error) {
        complain(call, error.what());
    }
}

bool Client::close_sessions(const char* call) {
    bool all_good = settle(call);
    reader_.reset();
    for (auto& session : sessions_)
        if (session)
            all_good = guarded(call, [&] { std::exchange(session, std::nullopt)->close(); }) && all_good;
    return all_good;
}

Result Client::finalize() {
    constexpr const char* call = "FTI_Finalize";
    const bool keeps = settings_.keeps_last && saved_;
    const bool closed = everywhere(call, close_sessions(call));
    if (keeps && !closed) {
        if (ranks_->rank() == 0)
            complain(call, "the last checkpoint is not all in " + settings_.glbl_dir +
                               "; what the nodes have of it stays, and the next start goes on from there");
        return failed;
    }
    // A run that could not be recovered, and has no successor, may be started again in another way.
    const bool says_so = begun_ == good || saved_;
    if (says_so && !write_restart(call, keeps ? 2 : 0)) return failed;
    remove_checkpoints(!keeps);
    return closed ? good : failed;
}

// What lies on the nodes goes in any case: what is kept lies in the shared directory.
void Client::remove_checkpoints(bool all) {
    constexpr const char* call = "FTI_Finalize";
    ranks_->all(true);  // everybody has closed
    guarded(call, [&] {
        const auto path = settings_.ckpt_dir + "/" + settings_.exec_id;
        const OpenDirectory run(AT_FDCWD, path, path);
        if (run.is_open()) remove_with_others(run, own_name, local());
        std::error_code ignored;  // it is not empty, or another rank was first
        std::filesystem::remove(path, ignored);
    });
    if (!all) return;
    on_first(call, [&] {
        const auto path = settings_.glbl_dir + "/" + settings_.exec_id;
        const OpenDirectory run(AT_FDCWD, path, path);
        if (!run.is_open()) return;
        const OpenDirectory own(run.file(), own_name, shared());
        for (int level = 1; level <= levels; ++level)
            if (own.is_open() && (level < levels || !settings_.keeps_l4))
                std::filesystem::remove_all(own.path_of(level_name(level)));
        std::error_code ignored;
        std::filesystem::remove(shared(), ignored);
        std::filesystem::remove(path, ignored);
    });
}

bool Client::open_session(const char* call, int level) {
    if (sessions_[level]) return true;
    if (!on_first(call, [&] {
            on_tailrace::make_below(settings_.glbl_dir, {settings_.exec_id, own_name, level_name(level)});
        }))
        return false;
    const bool placed = everybody(call, [&] {
        on_tailrace::make_named_directory("ckpt_dir", settings_.ckpt_dir);
        on_tailrace::make_below(settings_.ckpt_dir, {settings_.exec_id});
        // The session makes this one, with the rights of a node-local tier.
        on_tailrace::is_below(settings_.ckpt_dir, {settings_.exec_id, own_name});
    });
    if (!placed) return false;
    const bool opened = guarded(call, [&] {
        tailrace::Options options;
        options.set("name", job);
        options.set("shared_dir", shared(level));
        options.set("local_dir", local());
        for (const auto& [key, value] : session_of(settings_, level)) options.set(key, value);
        sessions_[level] = ranks_->open(options);
    });
    if (everywhere(call, opened)) return true;
    sessions_[level].reset();
    return false;
}

// ---- what is saved ------------------------------------------------------------------------------

Result Client::protect(int id, void* memory, int64_t count, int type) {
    const bool done = guarded("FTI_Protect", [&] {
        const auto what = "id " + std::to_string(id) + ": ";
        if (id < 0 || id > settings_.greatest_id)
            refuse(what + "ids are 0 to " + std::to_string(settings_.greatest_id) + " (max_var_id)");
        uint64_t bytes = 0;
        if (count < 0 || __builtin_mul_overflow(static_cast<uint64_t>(count), types_.bytes_of(type), &bytes))
            refuse(what + std::to_string(count) + " elements cannot be");
        if (memory == nullptr && bytes > 0) refuse(what + std::to_string(bytes) + " bytes at NULL");
        regions_[id] = {memory, bytes};
    });
    return done ? good : failed;
}

int64_t Client::stored_size(int id) const {
    if (saved_)
        if (const auto found = saved_->bytes.find(id); found != saved_->bytes.end())
            return static_cast<int64_t>(found->second);
    complain("FTI_GetStoredSize", "id " + std::to_string(id) + " is in no checkpoint");
    return 0;
}

void* Client::resize(int id, void* memory) {
    void* result = memory;
    guarded("FTI_Realloc", [&] {
        const auto what = "id " + std::to_string(id);
        if (status_ == 0) refuse("this is no restart, so the memory of " + what + " stays as it is");
        const auto found = saved_->bytes.find(id);
        if (found == saved_->bytes.end() || found->second == 0)
            refuse(what + " has no bytes in the checkpoint, so its memory stays as it is");
        void* const moved = std::realloc(memory, found->second);
        if (moved == nullptr)
            throw tailrace::Error(
                TAILRACE_OUT_OF_MEMORY,
                "there is no memory for the " + std::to_string(found->second) + " bytes of " + what);
        result = moved;
        if (const auto region = regions_.find(id); region != regions_.end())
            region->second = {moved, found->second};
    });
    return result;
}

// ---- checkpoints --------------------------------------------------------------------------------

Result Client::checkpoint(int id, int level) {
    constexpr const char* call = "FTI_Checkpoint";
    constexpr int differential = 4;  // FTI_L4_DCP is as far above FTI_L4
    const bool known = level >= 1 && level <= 2 * differential + 1;
    if (!known) complain(call, "there is no level " + std::to_string(level) + "; take FTI_L1 to FTI_L4");
    const int of_rank_0 = ranks_->of_first(level);
    if (known && level != of_rank_0)
        complain(call, "this rank asks for level " + std::to_string(level) + ", and rank 0 for level " +
                           std::to_string(of_rank_0) + "; take the same on all ranks");
    if (!everywhere(call, known && level == of_rank_0)) return failed;
    const int asked = level;
    if (level > differential) level = asked > 2 * differential ? levels : level - differential;
    if (asked != level && !told_of_level_ && ranks_->rank() == 0)
        complain(call, "level " + std::to_string(asked) + " is level " + std::to_string(level) +
                           " here: every checkpoint is whole, and there are no HDF5 files");
    told_of_level_ = told_of_level_ || asked != level;
    settle(call);
    if (!open_session(call, level)) return failed;
    const uint64_t epoch = next_epoch_++;
    if (!save(call, level, epoch, id)) return failed;
    if (!settings_.waits[level])
        pending_ = {level, epoch};
    else if (!wait_for(call, level, epoch))
        return failed;
    if (!write_restart(call, 1)) return failed;
    reader_.reset();
    saved_ = {level, epoch, id, {}};
    for (const auto& [region, place] : regions_) saved_->bytes[region] = place.bytes;
    return taken;
}

bool Client::save(const char* call, int level, uint64_t epoch, int id) {
    std::vector<std::string> added;
    const bool saved = guarded(call, [&] {
        const auto add = [&](const std::string& name, void* memory, uint64_t bytes) {
            session(level).add(name, memory, bytes);
            added.push_back(name);
        };
        add(std::string(id_region), &id, sizeof id);
        for (const auto& [region, place] : regions_) add(region_name(region), place.memory, place.bytes);
        session(level).save(epoch);
    });
    for (const auto& name : added) guarded(call, [&] { session(level).remove(name); });
    if (everywhere(call, saved)) return true;
    if (ranks_->rank() == 0) complain(call, title(id, level) + " was not taken; earlier ones stay");
    return false;
}

bool Client::wait_for(const char* call, int level, uint64_t epoch) {
    return everywhere(call, guarded(call, [&] { session(level).wait(epoch); }));
}

// Waits for the checkpoint before, if nobody has.
bool Client::settle(const char* call) {
    if (!pending_) return true;
    const auto [level, epoch] = *std::exchange(pending_, std::nullopt);
    if (!sessions_[level] || wait_for(call, level, epoch)) return true;
    if (ranks_->rank() == 0)
        complain(call, "the checkpoint before, of level " + std::to_string(level) + ", did not get there");
    return false;
}

Result Client::snapshot() {
    if (status_ != 0) return recover();
    const auto now = std::chrono::steady_clock::now();
    if (!first_snapshot_) first_snapshot_ = now;
    ++iterations_;
    if (iterations_ < until_decision_) return good;
    Schedule::Decision decision;
    if (ranks_->rank() == 0)
        decision =
            schedule_.decide(std::chrono::duration<double>(now - *first_snapshot_).count(), iterations_);
    constexpr int room = levels + 1;
    const int told = ranks_->of_first(decision.iterations * room + decision.level);
    iterations_ = 0;
    until_decision_ = told / room;
    const int level = told % room;
    if (level == 0) return good;
    const auto result = checkpoint(next_id_, level);
    if (result == taken) ++next_id_;
    return result;
}

}  // namespace fti_on_tailrace
