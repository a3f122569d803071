// CollectiveFile: one file that all ranks of a transport read and write together, each with its own list of
// requests, by two-layer collective I/O.
//
// A call:
//   1. every rank looks at its list, and all exchange a summary (one allgather);
//   2. from the same summaries every rank makes the same plan (plan.h): who aggregates, which windows of the
//      file belong to whom, or that nothing need be exchanged;
//   3. the parts (member, local aggregator, global aggregator) run as state machines in the calling thread
//      until this rank has no more to do; global aggregators have a thread for the file;
//   4. all agree on the outcome (one allgather), so every rank returns the same status.
//
// Collective: every rank calls the same methods in the same order, from one thread at a time. What a failed
// write leaves: the requested bytes of the file are undefined, all others are intact. What a failed read
// leaves: the ranks' memory is undefined.
//
// When requests of different ranks of one write overlap, the overlapping bytes come from one of them,
// unspecified which; the statistics count them. A list of one rank that overlaps itself is refused for
// writes. Bytes beyond the end of the file read as zeros and are not counted in what a read returns.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "collective/file_phase.h"
#include "collective/plan.h"
#include "requests/memory_list.h"
#include "requests/statistics.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace tailrace::internal::collective {

enum class Mode {
    read,        // the file must exist
    write,       // read and write; created when it is missing
    create_new,  // read and write; already_exists when it is there
    existing,    // read and write; must exist
};

struct Options {
    Mode mode = Mode::read;
    Settings plan;
    Sieve sieve_reads = Sieve::automatic;
    Sieve sieve_writes = Sieve::automatic;
    DirectIo direct_io = DirectIo::off;
    uint32_t ranks_per_node = 0;  // 0: a node is a machine; else as many consecutive ranks of one machine
    // Two-layer aggregation needs memory that the ranks of a node share; without it p_l = p.
    bool shared_memory = true;
};

// One rank's part of a call. The memory stays the caller's, and must stay as it is until the call is over.
struct RankAccess {
    std::vector<Request> requests;  // non-decreasing offsets; none of zero bytes
    MemoryList memory;              // as many bytes as the requests ask for; only read by a write
    // What whoever made this already knows to be wrong with it: then the call is refused on all ranks.
    Status wrong{};
};

// A call that goes on in the background.
class Pending {
  public:
    virtual ~Pending() = default;
    virtual bool test() = 0;
    // Blocks until it is over; the bytes that this rank has read or written. The same at every later call.
    virtual Result<uint64_t> wait() = 0;
};

class CollectiveFile {
  public:
    virtual ~CollectiveFile() = default;  // closes; a failure to do so goes to the log

    // Returns when the bytes are in the file's page cache, or on their way: durable after sync().
    virtual Result<uint64_t> write(RankAccess access) = 0;
    // The bytes read: fewer than asked for only where the file ends.
    virtual Result<uint64_t> read(RankAccess access) = 0;

    // The same in the background, one after the other in the order of the calls. Every one has to be waited
    // for. With a transport that must not be used beside the program's own calls (concurrent() is false) the
    // whole call happens here.
    virtual std::shared_ptr<Pending> start_write(RankAccess access) = 0;
    virtual std::shared_ptr<Pending> start_read(RankAccess access) = 0;

    // All further calls are collective too, and wait for what goes on in the background.
    virtual Status sync() = 0;
    // Idempotent; every other call fails afterwards.
    virtual Status close() = 0;

    // Of all ranks together since the file was opened.
    virtual Result<Statistics> statistics() = 0;
    // Local, when what goes on in the background has ended: of this rank, and why the last call went the way
    // it did.
    virtual Statistics own_statistics() const = 0;
    virtual std::string last_reason() const = 0;

    virtual const std::string& path() const = 0;
    // Every setting as it was opened with, by its name in hints.h.
    virtual std::map<std::string, std::string> hints() const = 0;
};

// Collective. The file is created by the first rank; global aggregators open it in the background.
Result<std::unique_ptr<CollectiveFile>> open_collective_file(std::shared_ptr<Transport> transport,
                                                             std::shared_ptr<Storage> storage,
                                                             const std::string& path, const Options& options);

}  // namespace tailrace::internal::collective
