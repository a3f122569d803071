// The strategies that need no other library, and the list of all strategies.
#include <filesystem>
#include <stdexcept>
#include <tailrace_mpi.hpp>

#include "flush_record.h"
#include "strategy.h"

namespace mpi_bench {

namespace {

// tailrace as a program uses it: save, then wait until the epoch is committed.
class Tailrace final : public Strategy {
  public:
    Tailrace(std::string name, std::string local_dir, Settings settings, uint32_t warm_up)
        : name_(std::move(name)),
          local_dir_(std::move(local_dir)),
          settings_(std::move(settings)),
          warm_up_(warm_up) {}
    std::string name() const override { return name_; }
    std::string settings() const override {
        std::string text = "save and wait, after " + std::to_string(warm_up_) +
                           " epochs of the session; files = K, local_dir = " + local_dir_;
        for (const auto& [key, value] : settings_) text += ", " + key + " = " + value;
        return text;
    }

    WriteTimes write(const Load& load, const std::string& directory, uint64_t dump) override {
        tailrace::Session session = open(load, directory, "local");
        auto* memory = const_cast<std::byte*>(load.memory.data());  // save only reads
        session.add("state", memory, load.memory.size());
        WriteTimes times;
        // A program saves many times. The first saves make buffers, and space in the tier until
        // keep_local is full.
        uint64_t epoch = dump * (warm_up_ + uint64_t{1});
        for (uint32_t i = 0; i < warm_up_; ++i) {
            session.save(++epoch);
            session.wait(epoch);
        }
        const Timer all;
        session.save(++epoch);
        const double saved = all.seconds();
        session.wait(epoch);
        // The local phase is compared only now, because ranks that meet in between would delay the agents.
        const double durable = all.stop();
        times.local_seconds = slowest(saved);
        times.flush_seconds = durable - times.local_seconds;
        session.close();  // now the record is whole
        if (load.rank == 0) times.leaders = read_leaders(record_dir(), epoch);
        drop_from_cache(directory);
        return times;
    }
    // The node-local tier is empty, so that the restored bytes come from the shared files.
    ReadTimes read(const Load& load, const std::string& directory, Memory& target) override {
        ReadTimes times;
        const Timer opening;
        tailrace::Session session = open(load, directory, "empty");
        times.open_seconds = opening.stop();
        session.add("state", target.data(), target.size());
        const Timer reading;
        session.restore();
        times.read_seconds = reading.stop();
        session.close();
        return times;
    }

  private:
    tailrace::Session open(const Load& load, const std::string& directory, const std::string& tier) const {
        tailrace::Options options;
        options.set("record", true);
        for (const auto& [key, value] : settings_) options.set(key, value);
        options.set("local_dir", local_dir_ + "/" + tier);
        options.set("shared_dir", directory + "/tailrace");
        options.set("record_dir", record_dir());
        options.set("files", std::to_string(load.files));
        return tailrace::open_mpi(MPI_COMM_WORLD, options);
    }
    std::string record_dir() const { return local_dir_ + "/record"; }
    // On every node, because each may have written some of any file, and so have it in its cache.
    static void drop_from_cache(const std::string& directory) {
        for (const auto& entry : std::filesystem::directory_iterator(directory + "/tailrace"))
            sync_file(entry.path().string());
        MPI_Barrier(MPI_COMM_WORLD);
    }
    const std::string name_, local_dir_;
    const Settings settings_;
    const uint32_t warm_up_;
};

// Writes this rank's bytes to `path`, timed until they and the directory are durable on all ranks.
// Then drops them from the cache.
WriteTimes write_and_sync(const Load& load, const std::string& directory, const std::string& path,
                          uint64_t offset, Cache cache) {
    const Timer timer;
    write_file(path, offset, load.memory, cache);
    MPI_Barrier(MPI_COMM_WORLD);
    if (load.rank == 0) sync_directory(directory);
    const WriteTimes times{0, timer.stop()};
    sync_file(path);
    return times;
}

class FilePerProcess final : public Strategy {
  public:
    explicit FilePerProcess(Cache cache) : cache_(cache) {}
    std::string name() const override { return cache_ == Cache::around ? "posix-direct" : "posix"; }
    std::string settings() const override {
        return cache_ == Cache::around ? "a file per process, O_DIRECT, 16 MiB requests, fsync"
                                       : "a file per process, 16 MiB requests, fsync";
    }
    WriteTimes write(const Load& load, const std::string& directory, uint64_t) override {
        const std::string path = file_name(directory, name(), load.rank);
        return write_and_sync(load, directory, path, 0, cache_);
    }
    ReadTimes read(const Load& load, const std::string& directory, Memory& target) override {
        const Timer timer;
        read_file(file_name(directory, name(), load.rank), 0, target);
        return {0, timer.stop()};
    }

  private:
    const Cache cache_;
};

class SharedFile final : public Strategy {
  public:
    std::string name() const override { return "shared-file"; }
    std::string settings() const override {
        return "K files, each rank at its prefix sum, 16 MiB requests, fsync";
    }
    WriteTimes write(const Load& load, const std::string& directory, uint64_t) override {
        const std::string path = file_name(directory, name(), load.file);
        make_shared_file(load, path);
        return write_and_sync(load, directory, path, load.offset, Cache::through);
    }
    ReadTimes read(const Load& load, const std::string& directory, Memory& target) override {
        const Timer timer;
        read_file(file_name(directory, name(), load.file), load.offset, target);
        return {0, timer.stop()};
    }
};

// The count of one call is an int. Larger pieces take several calls, equally many on every rank.
constexpr uint64_t piece_bytes = uint64_t{1} << 30;

class MpiIo final : public Strategy {
  public:
    explicit MpiIo(bool two_phase) : two_phase_(two_phase) {}
    std::string name() const override { return two_phase_ ? "mpi-io-two-phase" : "mpi-io-independent"; }
    std::string settings() const override {
        std::string text = two_phase_
                               ? "MPI_File_write_at_all per file, romio_cb_write = enable, MPI_File_sync"
                               : "MPI_File_write_at per rank, romio_cb_write = disable, MPI_File_sync";
#ifdef OPEN_MPI
        text += " (Open MPI's own engine reads no such hints: OMPI_MCA_io=romio321 takes ROMIO)";
#endif
        return text;
    }
    WriteTimes write(const Load& load, const std::string& directory, uint64_t) override {
        const std::string path = file_name(directory, name(), load.file);
        make_shared_file(load, path);
        const Timer timer;
        MPI_File file = open(load, path, MPI_MODE_WRONLY);
        each_piece(load, [&](uint64_t at, int bytes) {
            const auto offset = static_cast<MPI_Offset>(load.offset + at);
            const auto* from = load.memory.data() + at;
            check_mpi(two_phase_
                          ? MPI_File_write_at_all(file, offset, from, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                          : MPI_File_write_at(file, offset, from, bytes, MPI_BYTE, MPI_STATUS_IGNORE),
                      "writing " + path);
        });
        check_mpi(MPI_File_sync(file), "syncing " + path);
        check_mpi(MPI_File_close(&file), "closing " + path);
        MPI_Barrier(MPI_COMM_WORLD);
        if (load.rank == 0) sync_directory(directory);
        const WriteTimes times{0, timer.stop()};
        sync_file(path);
        return times;
    }
    ReadTimes read(const Load& load, const std::string& directory, Memory& target) override {
        const std::string path = file_name(directory, name(), load.file);
        const Timer timer;
        MPI_File file = open(load, path, MPI_MODE_RDONLY);
        each_piece(load, [&](uint64_t at, int bytes) {
            const auto offset = static_cast<MPI_Offset>(load.offset + at);
            check_mpi(two_phase_ ? MPI_File_read_at_all(file, offset, target.data() + at, bytes, MPI_BYTE,
                                                        MPI_STATUS_IGNORE)
                                 : MPI_File_read_at(file, offset, target.data() + at, bytes, MPI_BYTE,
                                                    MPI_STATUS_IGNORE),
                      "reading " + path);
        });
        check_mpi(MPI_File_close(&file), "closing " + path);
        return {0, timer.stop()};
    }

  private:
    MPI_File open(const Load& load, const std::string& path, int mode) const {
        MPI_Info info = MPI_INFO_NULL;
        MPI_Info_create(&info);
        MPI_Info_set(info, "romio_cb_write", two_phase_ ? "enable" : "disable");
        MPI_Info_set(info, "romio_cb_read", two_phase_ ? "enable" : "disable");
        MPI_File file = MPI_FILE_NULL;
        const int code = MPI_File_open(load.group, path.c_str(), mode, info, &file);
        MPI_Info_free(&info);
        check_mpi(code, "opening " + path);
        return file;
    }
    template <class Work>
    static void each_piece(const Load& load, const Work& work) {
        const uint64_t bytes = load.memory.size();
        uint64_t most = 0;
        check_mpi(MPI_Allreduce(&bytes, &most, 1, MPI_UINT64_T, MPI_MAX, load.group), "comparing sizes");
        for (uint64_t at = 0; at < most; at += piece_bytes)
            work(std::min(at, bytes), static_cast<int>(std::min(piece_bytes, bytes - std::min(at, bytes))));
    }
    const bool two_phase_;
};

}  // namespace

std::unique_ptr<Strategy> make_tailrace(std::string name, std::string local_dir, Settings settings,
                                        uint32_t warm_up) {
    return std::make_unique<Tailrace>(std::move(name), std::move(local_dir), std::move(settings), warm_up);
}
std::unique_ptr<Strategy> make_file_per_process(Cache cache) {
    return std::make_unique<FilePerProcess>(cache);
}
std::unique_ptr<Strategy> make_shared_file() {
    return std::make_unique<SharedFile>();
}
std::unique_ptr<Strategy> make_mpi_io(bool two_phase) {
    return std::make_unique<MpiIo>(two_phase);
}

std::vector<std::unique_ptr<Strategy>> peer_strategies() {
    std::vector<std::unique_ptr<Strategy>> all;
    all.push_back(make_file_per_process(Cache::through));
    all.push_back(make_file_per_process(Cache::around));
    all.push_back(make_shared_file());
    all.push_back(make_mpi_io(true));
    all.push_back(make_mpi_io(false));
#if TAILRACE_BENCH_HDF5
    all.push_back(make_hdf5());
#endif
#if TAILRACE_BENCH_ADIOS2
    all.push_back(make_adios2(false));
    all.push_back(make_adios2(true));
#endif
#if TAILRACE_BENCH_GENERICIO
    all.push_back(make_genericio());
#endif
    return all;
}

std::vector<std::string> absent_strategies() {
    std::vector<std::string> absent;
#if !TAILRACE_BENCH_HDF5
    absent.push_back("hdf5: no parallel HDF5 for this MPI library was found when this was built");
#endif
#if !TAILRACE_BENCH_ADIOS2
    absent.push_back(
        "adios2-bp5: no MPI-enabled ADIOS2 was found when this was built; CMAKE_PREFIX_PATH leads cmake to "
        "one");
#endif
#if !TAILRACE_BENCH_GENERICIO
    absent.push_back(
        "genericio: no MPI-enabled GenericIO was found when this was built; CMAKE_PREFIX_PATH leads cmake to "
        "one");
#endif
    return absent;
}

}  // namespace mpi_bench
