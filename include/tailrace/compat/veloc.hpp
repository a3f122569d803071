// veloc.hpp - the C++ interface of VELOC, with tailrace beneath (see veloc.h). Compile programs again with
// this header: VELOC's own classes differ from version to version, and this is the one of its main branch
// since August 2025.
//
// There is one client in a process. Calls return false where the C interface returns VELOC_FAILURE. What
// veloc.h says about memory, threads and failures holds here too. Functions that are passed are copied, and
// run in the thread that calls. If one throws, the call that runs it returns false.
#ifndef TAILRACE_COMPAT_VELOC_HPP
#define TAILRACE_COMPAT_VELOC_HPP

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <set>
#include <string>

#include "veloc/defs.h"

namespace veloc {

class client_t {
  protected:
    using serializer_t = std::function<void(std::ostream&)>;
    using deserializer_t = std::function<bool(std::istream&)>;
    using observer_t = std::function<void(const std::string& name, int version)>;
    static constexpr char default_mem_group[] = "default";

  public:
    // The order of these functions is the binary interface.
    virtual bool mem_protect(int id, void* ptr, size_t count, size_t base_size,
                             const std::string& name = default_mem_group) = 0;
    // A region that is written by one function and read by another one. Checkpoint_mem and Recover_mem call
    // them.
    virtual bool mem_protect(int id, const serializer_t& s, const deserializer_t& d,
                             const std::string& name = default_mem_group) = 0;
    virtual bool mem_unprotect(int id, const std::string& name = default_mem_group) = 0;
    virtual void mem_clear(const std::string& name = default_mem_group) = 0;
    // Of type VELOC_OBSERVE_CKPT_END: called by checkpoint_end, which may be before the version is durable.
    virtual bool register_observer(int type, const observer_t& obs) = 0;
    virtual std::string route_file(const std::string& original) = 0;
    virtual bool cleanup(const std::string& name) = 0;

    virtual bool checkpoint(const std::string& name, int version) = 0;
    virtual bool checkpoint_begin(const std::string& name, int version) = 0;
    virtual bool checkpoint_mem(int mode, const std::set<int>& ids) = 0;
    virtual bool checkpoint_end(bool success) = 0;
    virtual bool checkpoint_wait() = 0;
    virtual bool checkpoint_finished() = 0;

    // With target_rank >= 0 this rank reads what that rank saved, whatever the number of ranks was.
    // restart_test is then a call of one rank, which looks into the persistent directory only.
    virtual int restart_test(const std::string& name, int version, int target_rank = -1) = 0;
    virtual bool restart(const std::string& name, int version, int target_rank = -1) = 0;
    virtual bool restart_begin(const std::string& name, int version, int target_rank = -1) = 0;
    virtual size_t recover_size(int id) = 0;
    virtual bool recover_mem(int mode, const std::set<int>& ids) = 0;
    virtual bool restart_end(bool success) = 0;

    virtual ~client_t() = 0;
};

// The client of this process. It is made by the first call; later ones return the same client whatever their
// arguments. Null after a failure. The library owns the client, which lives until VELOC_Finalize or the end
// of the process.
client_t* get_client(unsigned int id, const std::string& cfg_file);
client_t* get_client(MPI_Comm comm, const std::string& cfg_file);

}  // namespace veloc

#endif
