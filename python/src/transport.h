// A transport whose primitives are a Python object. The extension uses it for sessions over ranks without
// MPI.
//
// The object (tailrace/_ranks.py, Primitives) moves frames, memory of known size, and collectives. The code
// here turns that into a Transport: it sends messages and announcements in frames, matches receives by
// (source, tag), tells them the size before anything is written, and waits.
//
// How data moves:
//   message     a frame; the object hands it to the target's Arrivals, from its own thread or in progress()
//   transfer    the sender posts an announcement (tag, bytes, data tag) as a frame and starts to send;
//               when the receiver has both the announcement and a receive, it starts to receive exactly
//               that, into the target or, if that is too small, into spare memory
//   to oneself  through the in-process transport of one rank
//
// The GIL is taken for the length of a call of the object, and never while a lock of ours is held or a thread
// sleeps here. No thread of ours enters Python once end() has returned.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "threads/mutex.h"
#include "transport/transport.h"

namespace tailrace::internal::python {

// What has come for a rank. The primitives fill it, from any thread.
class Arrivals {
  public:
    struct News {
        std::deque<std::pair<int, std::vector<std::byte>>> frames;
        std::vector<uint64_t> ended;
        Status failure;
    };

    void frame(int source, std::vector<std::byte> bytes);
    void transfer_ended(uint64_t number);
    // Nothing works any more. The first reason stays.
    void failed(std::string why);

    News take();  // returns the failure every time
    // Sleeps until there is something to take, wake() is called, or the time is over.
    void wait(std::chrono::microseconds longest);
    void wake();

  private:
    Mutex mutex_;
    Condition changed_;
    bool signalled_ GUARDED_BY(mutex_) = false;
    News news_ GUARDED_BY(mutex_);
};

// A transport that a rank can leave before its peers do.
class RanksTransport : public Transport {
  public:
    // Afterwards nobody communicates through it, and nobody enters Python for it. `together`: all
    // ranks do this now. Otherwise the peers are told as far as the primitives can. From any
    // thread, without the GIL. The first call counts.
    virtual void end(bool together) = 0;
    // Call it before end(false). It gives messages of this rank a moment to arrive. Without the
    // GIL.
    virtual void settle() = 0;
};

// Needs the GIL. Collective, as far as the object's begin() is.
std::shared_ptr<RanksTransport> make_ranks_transport(nanobind::object primitives);

void bind_transport(nanobind::module_& module);
void bind_conformance(nanobind::module_& module);  // with TAILRACE_PYTHON_CONFORMANCE

}  // namespace tailrace::internal::python
