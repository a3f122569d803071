// CollectiveFile: one file that all ranks of a transport read and write together, each with its own
// list of requests, by two-layer collective I/O.
//
// A call:
//   1. Every rank examines its list, and all exchange a summary (one allgather).
//   2. From the same summaries every rank makes the same plan (plan.h): who aggregates, and which
//      windows of the file belong to whom, or that no exchange is needed.
//   3. The roles (member, local aggregator, global aggregator) run as state machines in the calling
//      thread until this rank has finished. Global aggregators have a thread for the file.
//   4. All agree on the outcome (one allgather), so every rank returns the same status.
//
// Collective: every rank calls the same methods in the same order, from one thread at a time. After
// a failed write the requested bytes of the file are undefined, and all others are intact. After a
// failed read the ranks' memory is undefined.
//
// If requests of different ranks of one write overlap, the overlapping bytes come from one of them,
// and it is unspecified which. The statistics count these bytes. For writes, a list of one rank
// that overlaps itself is refused. Bytes beyond the end of the file read as zeros and are not
// counted in the result of a read.
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
    write,       // read and write; created if missing
    create_new,  // read and write; already_exists if it exists
    existing,    // read and write; must exist
};

struct Options {
    Mode mode = Mode::read;
    Settings plan;
    Sieve sieve_reads = Sieve::automatic;
    Sieve sieve_writes = Sieve::automatic;
    DirectIo direct_io = DirectIo::off;
    uint32_t ranks_per_node = 0;  // 0: a node is a machine; else this many consecutive ranks of one machine
    // Two-layer aggregation needs memory that the ranks of a node share. Without it p_l = p.
    bool shared_memory = true;
};

// One rank's part of a call. The memory is the caller's, and must stay as it is until the call has
// ended.
struct RankAccess {
    std::vector<Request> requests;  // offsets do not decrease; none has zero bytes
    MemoryList memory;              // as many bytes as the requests ask for; writes only read it
    // A mistake in it that its maker already knows of. Then the call is refused on all ranks.
    Status wrong{};
};

// A call that runs in the background.
class Pending {
  public:
    virtual ~Pending() = default;
    virtual bool test() = 0;
    // Blocks until the call has ended. Returns the bytes that this rank has read or written. Later
    // calls return the same.
    virtual Result<uint64_t> wait() = 0;
};

class CollectiveFile {
  public:
    virtual ~CollectiveFile() = default;  // closes; a failure goes to the log

    // Returns when the bytes are in the file's page cache, or on their way. They are durable after
    // sync().
    virtual Result<uint64_t> write(RankAccess access) = 0;
    // Returns the bytes read, which are fewer than asked for only where the file ends.
    virtual Result<uint64_t> read(RankAccess access) = 0;

    // Write or read in the background, one call after the other in the order of the calls. Every
    // call must be waited for. If the transport must not be used beside the program's own calls
    // (concurrent() is false), the whole call happens here.
    virtual std::shared_ptr<Pending> start_write(RankAccess access) = 0;
    virtual std::shared_ptr<Pending> start_read(RankAccess access) = 0;

    // All further calls are collective, too, and wait for the background.
    virtual Status sync() = 0;
    // Idempotent. Every other call fails afterwards.
    virtual Status close() = 0;

    // The statistics of all ranks together since the file was opened.
    virtual Result<Statistics> statistics() = 0;
    // This rank's statistics, and the reason why the last call went the way it did. Local; use them
    // when the background has ended.
    virtual Statistics own_statistics() const = 0;
    virtual std::string last_reason() const = 0;

    virtual const std::string& path() const = 0;
    // Every setting with the value it was opened with, by its name in hints.h.
    virtual std::map<std::string, std::string> hints() const = 0;
};

// Collective. The first rank creates the file. Global aggregators open it in the background.
Result<std::unique_ptr<CollectiveFile>> open_collective_file(std::shared_ptr<Transport> transport,
                                                             std::shared_ptr<Storage> storage,
                                                             const std::string& path, const Options& options);

}  // namespace tailrace::internal::collective
