"""lammps_beside.py - how long saves block LAMMPS, beside its own restart files.

    mpiexec -n 4 python -m mpi4py lammps_beside.py SAVES [CELLS]

Every SEGMENT steps it saves with tailrace, waits until the epoch is in the shared directory, and lets LAMMPS write a
restart file beside that directory. Two saves come before the others, while the node-local tier gets its memory.
"""

import os
import statistics
import sys

from lammps_melt import SEGMENT, simulation, state_of
from mpi4py import MPI

import tailrace


def timed(comm, call):
    """Seconds of the slowest rank."""
    comm.barrier()
    begin = MPI.Wtime()
    call()
    return comm.allreduce(MPI.Wtime() - begin, MPI.MAX)


def main():
    saves, cells = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    comm = MPI.COMM_WORLD
    lmp = simulation(cells)
    restart = os.environ["TAILRACE_SHARED_DIR"] + ".restart"
    times = []
    with tailrace.open(comm=comm) as session:
        for step in range(SEGMENT, (saves + 3) * SEGMENT, SEGMENT):
            lmp.command(f"run {SEGMENT} post no")
            save = timed(comm, lambda step=step: session.save(step, state_of(lmp, step)))
            session.wait(step)
            times.append((save, timed(comm, lambda: lmp.command(f"write_restart {restart}"))))
        captured = comm.allreduce(session.state(step).captured_bytes)
    if comm.rank == 0:
        print(f"{comm.size} ranks, {captured / 2**20:.1f} MiB; seconds of the slowest rank: median (least to most)")
        for name, column in zip(("session.save", "write_restart"), zip(*times[2:], strict=True), strict=True):
            print(f"    {name:13} {statistics.median(column):.4f} ({min(column):.4f} to {max(column):.4f})")
        os.remove(restart)


main()
