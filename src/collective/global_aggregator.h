// GlobalAggregator: the work of a global aggregator. It opens its windows one after the other, as
// many at once as it has images. It collects what the groups say about each. The file phase then
// reads or writes the window while the next one is exchanged. (call_message.h has the messages.)
//
// It is a state machine like LocalAggregator. Memory: the images, and one buffer as large as a
// window for packed bytes on their way to or from other nodes. The buffer is handed out piece by
// piece. A contribution that finds no room waits until others have finished. A window of one group
// always fits.
//
// A contribution of one run needs no packing. It is received straight into the image, or sent from
// it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "collective/call_context.h"
#include "collective/local_aggregator.h"

namespace tailrace::internal::collective {

// The memory that the image of a window of this size takes.
uint64_t image_bytes(uint64_t window_bytes);

// Makes a global aggregator's memory for windows of up to this size. Unused memory is not touched.
// Call it before the exchange, in which no rank can do without.
Status make_images(CallMemory& memory, uint64_t window_bytes);

class GlobalAggregator {
  public:
    // `local`: the part of the same rank, if it is a local aggregator.
    GlobalAggregator(CallContext& context, LocalAggregator* local);
    // Waits for the file phase, and takes back the transfers of an abandoned call.
    ~GlobalAggregator();
    GlobalAggregator(const GlobalAggregator&) = delete;
    GlobalAggregator& operator=(const GlobalAggregator&) = delete;

    Status handle(int source, const CallMessage& message);
    // True if something moved.
    Result<bool> step();
    bool done() const;

  private:
    struct Contribution {
        enum class Stage {
            expected,   // no message yet
            described,  // runs are known, or on their way
            waiting,    // the window was read; the group has no memory for it yet
            moving,     // packed bytes are on their way, or wait for room
            settled,
        };
        int source = 0;
        Stage stage = Stage::expected;
        uint64_t bytes = 0;
        std::vector<Request> runs;
        std::optional<CallMessage> grant;  // for a read: where the packed bytes go
        bool in_scratch = false;
        std::span<std::byte> packed;
        std::unique_ptr<Transfer> runs_transfer, data_transfer;
    };
    // A window that has an image.
    struct Window {
        enum class Stage { collecting, in_file, serving };
        uint64_t id = 0;
        FileWindow range;
        Stage stage = Stage::collecting;
        Buffer buffer;
        std::span<std::byte> image;
        std::vector<Contribution> contributions;
        FileTask task;
        uint64_t steps = 0;  // the length of the chain of messages up to here
    };

    Status announced(int source, const std::vector<uint64_t>& ids);
    Window& open_window(uint64_t id);
    Status open_windows();
    Status offered(Window& window, Contribution& contribution, const CallMessage& message);
    Status serve(Window& window, Contribution& contribution);
    Result<bool> advance(Window& window);
    Result<bool> advance(Window& window, Contribution& contribution);
    Status submit(Window& window);
    Status run_file_phase(Window& window);
    void scatter(Window& window, std::span<const Request> runs, std::span<const std::byte> packed);
    void gather(Window& window, std::span<const Request> runs, std::span<std::byte> packed);
    Status say_done(int target, const Window& window);
    std::span<std::byte> place_in_image(Window& window, const Request& run);
    bool find_room(Window& window, Contribution& contribution);
    void give_room_back(Contribution& contribution);
    std::pair<Window*, Contribution*> find(uint64_t window, int source);

    CallContext& context_;
    LocalAggregator* const local_;
    int index_ = -1;  // among the global aggregators; -1 if this rank is not one
    size_t groups_missing_ = 0;
    std::map<uint64_t, std::vector<int>> contributors_;  // by window; opened windows are removed
    std::deque<std::unique_ptr<Window>> open_;
    Cuts cuts_;           // of windows that went through the file
    uint64_t steps_ = 0;  // the length of the chain of messages up to the last window that was closed
    Buffer scratch_;
    size_t scratch_used_ = 0, scratch_users_ = 0;
};

}  // namespace tailrace::internal::collective
