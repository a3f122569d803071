#include "mpi_ranks.h"

#include <numeric>
#include <tailrace_mpi.hpp>

namespace on_tailrace {

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
        const int value = mine ? 1 : 0;
        int least = 0;
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
    std::vector<std::string> gathered(const std::string& mine) override {
        const auto bytes = static_cast<int>(mine.size());
        const auto ranks = static_cast<size_t>(rank_ == 0 ? count_ : 0);
        std::vector<int> each(ranks), begins(ranks);
        check(MPI_Gather(&bytes, 1, MPI_INT, each.data(), 1, MPI_INT, 0, communicator_), "MPI_Gather");
        std::exclusive_scan(each.begin(), each.end(), begins.begin(), 0);
        std::string all(ranks == 0 ? 0 : static_cast<size_t>(begins.back() + each.back()), '\0');
        check(MPI_Gatherv(mine.data(), bytes, MPI_CHAR, all.data(), each.data(), begins.data(), MPI_CHAR, 0,
                          communicator_),
              "MPI_Gatherv");
        std::vector<std::string> texts;
        for (size_t i = 0; i < ranks; ++i)
            texts.push_back(all.substr(static_cast<size_t>(begins[i]), static_cast<size_t>(each[i])));
        return texts;
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

}  // namespace on_tailrace
