// comd.h - CoMD saves its atoms with tailrace, and goes on on any number of ranks. Part of CoMD.c.
//
// docs/integrations.md says where in CoMD.c the lines go that use it.
//
// A rank's atoms are in boxes, and each box has room for MAXATOMS. They are packed into a list, one item for
// each atom, when tailrace asks for it. Forces, energies and halo atoms are computed from the atoms.
#ifndef COMD_TAILRACE_H
#define COMD_TAILRACE_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tailrace_mpi.h>

typedef struct SavedAtomSt {
    int gid, iSpecies;
    real3 r, p;
} SavedAtom;

typedef struct CheckpointSt {
    tailrace_session* session;
    SimFlat* sim;
    SavedAtom* items;
    uint64_t room, bytes;
    int step, saved;
} Checkpoint;

static void checkpointCheck(tailrace_code code) {
    if (code == TAILRACE_OK) return;
    fprintf(stderr, "%s\n", tailrace_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int checkpointResize(void* user, uint64_t bytes) {
    Checkpoint* c = user;
    if (bytes > c->room) {
        SavedAtom* items = realloc(c->items, bytes);
        if (items == NULL) return 1;
        c->items = items;
        c->room = bytes;
    }
    c->bytes = bytes;
    return 0;
}

// Packs the atoms of all boxes of this rank.
static void* checkpointPack(void* user, uint64_t* bytes) {
    Checkpoint* c = user;
    const LinkCell* boxes = c->sim->boxes;
    const Atoms* atoms = c->sim->atoms;
    uint64_t count = 0;
    for (int box = 0; box < boxes->nLocalBoxes; ++box) count += boxes->nAtoms[box];
    *bytes = count * sizeof(SavedAtom);
    if (checkpointResize(c, *bytes) != 0) abort();
    SavedAtom* item = c->items;
    for (int box = 0; box < boxes->nLocalBoxes; ++box) {
        for (int i = box * MAXATOMS; i < box * MAXATOMS + boxes->nAtoms[box]; ++i, ++item) {
            item->gid = atoms->gid[i];
            item->iSpecies = atoms->iSpecies[i];
            memcpy(item->r, atoms->r[i], sizeof(real3));
            memcpy(item->p, atoms->p[i], sizeof(real3));
        }
    }
    return c->items;
}

// Whether an atom is in this rank's part of the space.
static int checkpointOwns(const Domain* domain, const real_t* r) {
    for (int d = 0; d < 3; ++d) {
        if (domain->procCoord[d] > 0 && r[d] < domain->localMin[d]) return 0;
        if (domain->procCoord[d] < domain->procGrid[d] - 1 && r[d] >= domain->localMax[d]) return 0;
    }
    return 1;
}

// Puts the restored atoms into the boxes of the ranks that own them. The lists go once around all ranks, and
// each takes its own. Then everything else is computed from them, as at the end of a time step.
static void checkpointUnpack(Checkpoint* c) {
    SimFlat* sim = c->sim;
    const int ranks = getNRanks(), me = getMyRank();
    int bytes = (int)c->bytes, most;  // of a rank: less than 2 GiB
    maxIntParallel(&bytes, &most, 1);
    SavedAtom *now = malloc(most), *next = malloc(most);
    memcpy(now, c->items, c->bytes);
    uint64_t count = c->bytes / sizeof(SavedAtom);
    for (int box = 0; box < sim->boxes->nTotalBoxes; ++box) sim->boxes->nAtoms[box] = 0;
    sim->atoms->nLocal = 0;
    for (int turn = 0; turn < ranks; ++turn) {
        for (const SavedAtom* a = now; a < now + count; ++a)
            if (checkpointOwns(sim->domain, a->r))
                putAtomInBox(sim->boxes, sim->atoms, a->gid, a->iSpecies, a->r[0], a->r[1], a->r[2], a->p[0],
                             a->p[1], a->p[2]);
        count = sendReceiveParallel(now, (int)(count * sizeof *now), (me + 1) % ranks, next, most,
                                    (me + ranks - 1) % ranks) /
                sizeof *now;
        SavedAtom* other = now;
        now = next;
        next = other;
    }
    free(now);
    free(next);
    redistributeAtoms(sim);
    computeForce(sim);
    kineticEnergy(sim);
}

// Restores the newest epoch of $TAILRACE_SHARED_DIR, if there is one, and returns the step to go on from.
static int checkpointOpen(Checkpoint* c, SimFlat* sim) {
    const uint64_t one = 1, none = 0;
    const tailrace_array step = {.type = TAILRACE_INT32,
                                 .dimensions = 1,
                                 .global_shape = &one,
                                 .offset = &none,
                                 .local_shape = &one,
                                 .flags = TAILRACE_ARRAY_OVERLAP};
    memset(c, 0, sizeof *c);
    c->sim = sim;
    c->saved = -1;
    checkpointCheck(tailrace_open_mpi(MPI_COMM_WORLD, NULL, &c->session));
    checkpointCheck(tailrace_register_list(c->session, "atoms", TAILRACE_BYTES, sizeof(SavedAtom),
                                           checkpointPack, checkpointResize, c));
    checkpointCheck(tailrace_register_array(c->session, "step", &c->step, &step));
    const tailrace_code code = tailrace_restore(c->session, TAILRACE_NEWEST, NULL);
    if (code == TAILRACE_NOT_FOUND) return 0;
    checkpointCheck(code);
    checkpointUnpack(c);
    if (printRank()) fprintf(screenOut, "going on from step %d\n", c->step);
    return c->step;
}

static void checkpointSave(Checkpoint* c) {
    c->saved = c->step;
    checkpointCheck(tailrace_save(c->session, c->step));
}

// After each turn of the main loop. Saves if it is time to, and says whether to stop.
static int checkpointSaveOrStop(Checkpoint* c, int step) {
    const char* why;
    int save;
    c->step = step;
    checkpointCheck(tailrace_should_stop(c->session, &why));
    checkpointCheck(tailrace_should_save(c->session, &save));
    if (save || why != NULL) checkpointSave(c);
    return why != NULL;
}

// At the end, before MPI_Finalize and while the atoms are there. Saves the last step, too.
static void checkpointClose(Checkpoint* c) {
    if (c->saved != c->step) checkpointSave(c);
    checkpointCheck(tailrace_close(c->session));
    free(c->items);
}

#endif
