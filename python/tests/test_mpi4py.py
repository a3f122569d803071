"""Sessions over an mpi4py communicator, with the MPI libraries that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace

ROOT = Path(__file__).parents[2]

CHECK = """
from tailrace import _core, _over_mpi4py
for comm in (world, world.Split(world.rank % 2, -world.rank)):
    wrong = _core._check_transport(_over_mpi4py.OverMpi(comm))
    assert not wrong, wrong
    _over_mpi4py._LARGEST, _over_mpi4py._ROUND_BYTES = 60_000, 20_000
"""

SAVE = """
import os
import numpy as np
import tailrace
place, files = arguments
def state_of(step):
    return {"own": np.arange(100_000 + world.rank) * step, "step": step, "rank": world.rank}
def opened():
    return tailrace.open(shared_dir=f"{place}/shared", local_dir=f"{place}/local", files=files, ranks_per_node=2,
                         comm=world)
with opened() as session:
    assert session.rank == world.rank and session.rank_count == world.size
    for step in (1, 2):
        session.save(step, state_of(step))
    session.wait()
    if session.rank == 0:
        assert len(os.listdir(f"{place}/shared")) == 2 * int(files)
with opened() as session:
    into = {"own": np.zeros(100_000 + world.rank, int), "step": 0, "rank": -1}
    assert session.restore_latest(into=into) == 2
    assert into["step"] == 2 and into["rank"] == world.rank and (into["own"] == state_of(2)["own"]).all()
"""

# Only epoch 1 is in the shared directory. Two ranks have a node.
PROTECT = """
import os, signal, time
import numpy as np
import tailrace
place, redundancy, what, *newest = arguments
def state_of(step):
    random = np.random.default_rng([step, world.rank])
    return {"own": random.standard_normal(100_000 + world.rank), "step": step}
def opened(**settings):
    # Nodes in domains of their own. Otherwise this machine is one, and its nodes are dealt to sets of two.
    return tailrace.open(shared_dir=f"{place}/shared", local_dir=f"{place}/local", ranks_per_node=2, comm=world,
                         redundancy=redundancy, failure_domain=f"command:echo {world.rank // 2}", **settings)
if what == "save":
    session = opened(shared_every=100)
    for step in (1, 2):
        session.save(step, state_of(step))
    session.wait(1)
    deadline = time.monotonic() + 60
    while redundancy != "none" and not session.state(2).losses_survived:
        assert time.monotonic() < deadline, session.state(2)
        time.sleep(0.01)
    world.Barrier()
    os.kill(os.getpid(), signal.SIGKILL)
with opened() as session:
    into = {"own": np.zeros(100_000 + world.rank), "step": 0}
    step = session.restore_latest(into=into)
    assert step == int(newest[0]), step
    assert into["step"] == step and (into["own"] == state_of(step)["own"]).all()
"""

# What fails on one rank ends the program, as in any MPI program.
START = """
import sys, traceback
import mpi4py
mpi4py.rc.thread_level, *arguments = sys.argv[1:]
from mpi4py import MPI
world = MPI.COMM_WORLD
try:
    exec({program!r})
except BaseException:
    traceback.print_exc()
    sys.stderr.flush()
    world.Abort(1)
"""


@pytest.fixture(scope="module")
def mpi4py() -> Path:
    """Where mpi4py is."""
    made = subprocess.run([ROOT / "scripts" / "python_env", "mpi"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"mpi4py cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    return next(Path(made.stdout.strip()).glob("lib/python3*/site-packages/mpi4py"))


@pytest.fixture(params=["mpich", "openmpi"])
def run(request: pytest.FixtureRequest, mpi4py: Path, tmp_path: Path):
    """Runs a program with `world` on so many ranks."""
    family = request.param
    launcher = shutil.which(f"mpiexec.{family}")
    if launcher is None:
        pytest.skip(f"there is no mpiexec.{family}")
    found = tmp_path / "mpi"
    found.mkdir()
    (found / "mpi4py").symlink_to(mpi4py)
    environment = {**os.environ, "MPI4PY_MPIABI": family}
    environment["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{found}"
    if family == "mpich":
        # Debian gives it another name than mpi4py knows.
        for library in Path("/usr/lib").glob("*/libmpich.so.12"):
            (found / "libmpi.so.12").symlink_to(library)
        environment["LD_LIBRARY_PATH"] = f"{found}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    else:
        allowed = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe")
        environment.update(dict.fromkeys(allowed, "1"))

    def run_program(ranks: int, program: str, *arguments: str, threads: str = "multiple", killed: bool = False) -> None:
        start = START.format(program=program)
        command = [launcher, "-n", str(ranks), sys.executable, "-c", start, threads, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode != 0) == killed, done.stdout + done.stderr
        assert not killed or "Traceback" not in done.stderr, done.stderr

    return run_program


GAP = """
import numpy as np
import tailrace
rows = 4
try:
    with tailrace.open(shared_dir=f"{arguments[0]}/shared", local_dir=f"{arguments[0]}/local", ranks_per_node=2,
                       comm=world) as session:
        for step in (1, 2):
            if step == 2 and world.rank == 1:
                rows = 3
            shard = tailrace.Shard(np.ones((rows, 5)), (4 * world.size, 5), (4 * world.rank, 0))
            session.save(step, {"field": shard})
            session.wait(step)
except tailrace.Error as error:
    assert error.code is tailrace.Code.INVALID_ARGUMENT, error
    assert "elements [7:8, 0:5] of array" in str(error), error
else:
    raise AssertionError("an epoch with a gap was committed")
"""


def test_all_ranks_hear_why_an_epoch_was_refused_before_the_first_has_left(run, tmp_path: Path) -> None:
    run(4, GAP, str(tmp_path))
    with tailrace.read(tmp_path / "shared") as checkpoint:
        assert checkpoint.step == 1


def test_the_transport_does_what_every_transport_must(run) -> None:
    run(3, CHECK)


@pytest.mark.parametrize(("threads", "files"), [("multiple", 1), ("multiple", 2), ("funneled", 2)])
def test_each_rank_gets_its_own_back_from_so_many_files(run, threads: str, files: int, tmp_path: Path) -> None:
    run(4, SAVE, str(tmp_path), str(files), threads=threads)
    with tailrace.read(tmp_path / "shared", rank=3) as checkpoint:
        assert checkpoint.tree()["rank"] == 3


@pytest.mark.parametrize(
    ("redundancy", "threads", "ranks"),
    [("none", "multiple", 4), ("partner", "multiple", 4), ("partner", "funneled", 4), ("xor", "multiple", 6)],
)
def test_what_a_lost_node_had_captured_comes_back_from_the_others(
    run, redundancy: str, threads: str, ranks: int, tmp_path: Path
) -> None:
    """Only epoch 1 is in the shared directory. Without redundancy it is all that is left."""
    run(ranks, PROTECT, str(tmp_path), redundancy, "save", threads=threads, killed=True)
    nodes = sorted((tmp_path / "local").glob("*.node*"))
    assert len(nodes) == ranks // 2
    assert not list((tmp_path / "shared").glob("*.e000000002.*"))
    shutil.rmtree(nodes[1])
    newest = "1" if redundancy == "none" else "2"
    for _ in range(2):  # the second time from the shared directory
        run(ranks, PROTECT, str(tmp_path), redundancy, "restore", newest, threads=threads)
        shutil.rmtree(tmp_path / "local")
