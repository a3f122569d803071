// Parallel HDF5 as its documentation advises: one contiguous dataset per file, a hyperslab for each
// rank, collective transfer, no fill values, collective metadata operations.
#include <hdf5.h>

#include <stdexcept>

#include "strategy.h"

namespace mpi_bench {

namespace {

hid_t check_id(hid_t id, const char* doing) {
    if (id < 0) throw std::runtime_error(std::string("HDF5: ") + doing);
    return id;
}
void check_call(herr_t code, const char* doing) {
    if (code < 0) throw std::runtime_error(std::string("HDF5: ") + doing);
}

class Hdf5 final : public Strategy {
  public:
    std::string name() const override { return "hdf5"; }
    std::string settings() const override {
        unsigned major = 0, minor = 0, release = 0;
        (void)H5get_libversion(&major, &minor, &release);
        return "HDF5 " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release) +
               ", a dataset per file, collective transfer and metadata, no fill values, H5Fflush";
    }
    WriteTimes write(const Load& load, const std::string& directory, uint64_t) override {
        const std::string path = file_name(directory, name(), load.file);
        make_shared_file(load, path);
        const Timer timer;
        const hid_t access = file_access(load);
        const hid_t file =
            check_id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), "creating a file");
        const hsize_t all = load.group_bytes;
        const hid_t space = check_id(H5Screate_simple(1, &all, nullptr), "making a space");
        const hid_t creation = check_id(H5Pcreate(H5P_DATASET_CREATE), "making properties");
        check_call(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "leaving out fill values");
        const hid_t dataset =
            check_id(H5Dcreate2(file, "state", H5T_NATIVE_UINT8, space, H5P_DEFAULT, creation, H5P_DEFAULT),
                     "creating a dataset");
        transfer(load, space, [&](hid_t memory, hid_t slab, hid_t how) {
            return H5Dwrite(dataset, H5T_NATIVE_UINT8, memory, slab, how, load.memory.data());
        });
        check_call(H5Fflush(file, H5F_SCOPE_GLOBAL), "flushing a file");
        check_call(H5Dclose(dataset), "closing a dataset");
        check_call(H5Pclose(creation), "closing properties");
        check_call(H5Sclose(space), "closing a space");
        check_call(H5Fclose(file), "closing a file");
        check_call(H5Pclose(access), "closing properties");
        // Closing writes metadata after the flush.
        sync_file(path);
        MPI_Barrier(MPI_COMM_WORLD);
        if (load.rank == 0) sync_directory(directory);
        return {0, timer.stop()};
    }
    ReadTimes read(const Load& load, const std::string& directory, Memory& target) override {
        const std::string path = file_name(directory, name(), load.file);
        const Timer timer;
        const hid_t access = file_access(load);
        const hid_t file = check_id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), "opening a file");
        const hid_t dataset = check_id(H5Dopen2(file, "state", H5P_DEFAULT), "opening a dataset");
        const hid_t space = check_id(H5Dget_space(dataset), "asking for a space");
        transfer(load, space, [&](hid_t memory, hid_t slab, hid_t how) {
            return H5Dread(dataset, H5T_NATIVE_UINT8, memory, slab, how, target.data());
        });
        check_call(H5Sclose(space), "closing a space");
        check_call(H5Dclose(dataset), "closing a dataset");
        check_call(H5Fclose(file), "closing a file");
        check_call(H5Pclose(access), "closing properties");
        return {0, timer.stop()};
    }

  private:
    static hid_t file_access(const Load& load) {
        const hid_t access = check_id(H5Pcreate(H5P_FILE_ACCESS), "making properties");
        check_call(H5Pset_fapl_mpio(access, load.group, MPI_INFO_NULL), "choosing MPI-IO");
        check_call(H5Pset_coll_metadata_write(access, true), "collective metadata");
        check_call(H5Pset_all_coll_metadata_ops(access, true), "collective metadata");
        return access;
    }
    template <class Work>
    static void transfer(const Load& load, hid_t space, const Work& work) {
        const hsize_t offset = load.offset, bytes = load.memory.size();
        check_call(H5Sselect_hyperslab(space, H5S_SELECT_SET, &offset, nullptr, &bytes, nullptr),
                   "selecting");
        const hid_t memory = check_id(H5Screate_simple(1, &bytes, nullptr), "making a space");
        const hid_t how = check_id(H5Pcreate(H5P_DATASET_XFER), "making properties");
        check_call(H5Pset_dxpl_mpio(how, H5FD_MPIO_COLLECTIVE), "collective transfer");
        check_call(work(memory, space, how), "moving data");
        check_call(H5Pclose(how), "closing properties");
        check_call(H5Sclose(memory), "closing a space");
    }
};

}  // namespace

std::unique_ptr<Strategy> make_hdf5() {
    return std::make_unique<Hdf5>();
}

}  // namespace mpi_bench
