#include "ranks.h"

namespace on_tailrace {

namespace {

class SingleProcess : public Ranks {
  public:
    explicit SingleProcess(unsigned int id) : id_(id) {}

    int rank() const override { return 0; }
    int count() const override { return 1; }
    std::string identity() const override { return std::to_string(id_); }
    bool has_background() const override { return true; }
    bool on_one_node() override { return true; }
    bool all(bool mine) override { return mine; }
    int of_first(int mine) override { return mine; }
    std::string of_first(const std::string& mine) override { return mine; }
    std::vector<std::string> gathered(const std::string& mine) override { return {mine}; }
    tailrace::Session open(const tailrace::Options& options) override { return tailrace::Session(options); }

  private:
    const unsigned int id_;
};

}  // namespace

std::unique_ptr<Ranks> single_process(unsigned int id) {
    return std::make_unique<SingleProcess>(id);
}

}  // namespace on_tailrace
