// lulesh.hpp - LULESH 2 saves its mesh with tailrace, and goes on on any cube of ranks that has the same
// mesh.
//
// docs/integrations.md says where in lulesh.cc the lines go that use it.
//
// Every rank has a cube of nx^3 elements and (nx + 1)^3 nodes of one mesh. Neighbours both have the nodes on
// the face between them, with the same values, so the nodes' arrays overlap. Everything else that LULESH has
// in memory follows from these arrays, or is computed anew in each cycle.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <tailrace_mpi.hpp>

class LuleshCheckpoint {
  public:
    // Restores the newest epoch of $TAILRACE_SHARED_DIR, if there is one, into a mesh that has been set up.
    explicit LuleshCheckpoint(Domain& domain)
        : domain_(domain), session_(tailrace::open_mpi(MPI_COMM_WORLD)) {
        const auto elements = static_cast<uint64_t>(domain.sizeX());
        for (const auto& [name, first] : {std::pair{"e", &domain.e(0)},
                                          {"p", &domain.p(0)},
                                          {"q", &domain.q(0)},
                                          {"v", &domain.v(0)},
                                          {"ss", &domain.ss(0)}})
            add(name, first, elements, elements, false);
        for (const auto& [name, first] : {std::pair{"x", &domain.x(0)},
                                          {"y", &domain.y(0)},
                                          {"z", &domain.z(0)},
                                          {"xd", &domain.xd(0)},
                                          {"yd", &domain.yd(0)},
                                          {"zd", &domain.zd(0)}})
            add(name, first, elements, elements + 1, true);
        session_.add_replicated("time", domain.time());
        session_.add_replicated("deltatime", domain.deltatime());
        session_.add_replicated("cycle", domain.cycle());
        session_.add_replicated("next_dt", next_dt_);
        if (!session_.try_restore()) return;
        // LULESH makes the next step from these two: half of the first.
        domain.dtcourant() = 2 * next_dt_;
        domain.dthydro() = Real_t(1e20);
        if (session_.rank() == 0) std::printf("going on from cycle %d\n", static_cast<int>(domain.cycle()));
    }

    // After each cycle. Saves if it is time to, and says whether to stop.
    bool save_or_stop() {
        const bool stop = session_.should_stop().has_value();
        if (session_.should_save() || stop) save();
        return stop;
    }

    // At the end, before MPI_Finalize. Saves the last cycle, too.
    void close() {
        if (saved_ != domain_.cycle()) save();
        session_.close();
    }

  private:
    void add(const char* name, Real_t* memory, uint64_t elements, uint64_t edge, bool may_overlap) {
        const uint64_t whole = elements * static_cast<uint64_t>(domain_.tp()) + (edge - elements);
        const auto at = [&](Index_t place) { return elements * static_cast<uint64_t>(place); };
        session_.add_array(name, std::span(memory, edge * edge * edge), {whole, whole, whole},
                           {at(domain_.planeLoc()), at(domain_.rowLoc()), at(domain_.colLoc())},
                           {edge, edge, edge}, {.may_overlap = may_overlap});
    }

    // Each rank has two limits of its own, from which it makes the longest step that it allows. The next
    // cycle takes the smallest step of all ranks. Save that one: on another number of ranks it cannot be had
    // from limits.
    void save() {
        next_dt_ = domain_.dtcourant() < Real_t(1e20) ? domain_.dtcourant() / 2 : Real_t(1e20);
        if (domain_.dthydro() < next_dt_) next_dt_ = domain_.dthydro() * 2 / 3;
        MPI_Allreduce(MPI_IN_PLACE, &next_dt_, 1, sizeof(Real_t) == 4 ? MPI_FLOAT : MPI_DOUBLE, MPI_MIN,
                      MPI_COMM_WORLD);
        saved_ = domain_.cycle();
        session_.save(static_cast<uint64_t>(saved_));
    }

    Domain& domain_;
    Real_t next_dt_ = 0;
    Int_t saved_ = -1;
    tailrace::Session session_;
};
