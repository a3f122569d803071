#include "mpi_ranks.h"

#include <tailrace_mpi.hpp>

namespace veloc_on_tailrace {

namespace {

void check(int code, const char* call) {
    if (code != MPI_SUCCESS)
        throw tailrace::Error(TAILRACE_TRANSPORT,
                              std::string(call) + " failed with code " + std::to_string(code));
}

class MpiRanks : public Ranks {
  public:
    explicit MpiRanks(MPI_Comm communicator) {
        check(MPI_Comm_dup(communicator, &communicator_), "MPI_Comm_dup");
        check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(communicator_, &count_), "MPI_Comm_size");
    }
    MpiRanks(const MpiRanks&) = delete;
    MpiRanks& operator=(const MpiRanks&) = delete;
    ~MpiRanks() override {
        int finalized = 0;
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized && communicator_ != MPI_COMM_NULL)
            MPI_Comm_free(&communicator_);
    }

    int rank() const override { return rank_; }
    int count() const override { return count_; }
    std::string identity() const override { return {}; }
    bool has_background() const override {
        int level = MPI_THREAD_SINGLE;
        return MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
    }
    bool on_one_node() override {
        MPI_Comm node = MPI_COMM_NULL;
        check(MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
        int size = 0;
        const int code = MPI_Comm_size(node, &size);
        MPI_Comm_free(&node);
        check(code, "MPI_Comm_size");
        return all(size == count_);
    }
    bool all(bool mine) override {
        int value = mine ? 1 : 0, least = 0;
        check(MPI_Allreduce(&value, &least, 1, MPI_INT, MPI_MIN, communicator_), "MPI_Allreduce");
        return least == 1;
    }
    int of_first(int mine) override {
        check(MPI_Bcast(&mine, 1, MPI_INT, 0, communicator_), "MPI_Bcast");
        return mine;
    }
    std::string of_first(const std::string& mine) override {
        std::string text = mine;
        text.resize(static_cast<size_t>(of_first(static_cast<int>(mine.size()))));
        check(MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, communicator_), "MPI_Bcast");
        return text;
    }
    tailrace::Session open(const tailrace::Options& options) override {
        return tailrace::open_mpi(communicator_, options);
    }

  private:
    MPI_Comm communicator_ = MPI_COMM_NULL;
    int rank_ = 0, count_ = 1;
};

}  // namespace

std::unique_ptr<Ranks> ranks_of(MPI_Comm communicator) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        throw tailrace::Error(TAILRACE_FAILED_STATE,
                              "MPI is not running; call it between MPI_Init and MPI_Finalize");
    if (communicator == MPI_COMM_NULL)
        throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "the communicator is MPI_COMM_NULL");
    return std::make_unique<MpiRanks>(communicator);
}

}  // namespace veloc_on_tailrace
