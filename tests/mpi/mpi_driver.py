"""Starts MPI programs for the tests of this directory, and leaves nothing behind.

Every program runs in a fresh directory of its own (`Workspace`), which also takes the shared memory files of the
MPI libraries, so that killed ranks leave nothing in /dev/shm. All processes that a program started, however
deep, are found by their parents and are gone when the workspace is.
"""
import ctypes
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36

# JOB.e<epoch>.r<run>.<k>of<K>.tailrace, as docs/format.md names shared files.
SHARED_FILE = re.compile(r"^(?P<job>[A-Za-z0-9_-]+)\.e(?P<epoch>\d+)\.r(?P<run>\d+)\.(?P<k>\d+)of(?P<K>\d+)\.tailrace$")


class Failure(Exception):
    """What a test found wrong, as a sentence."""


def adopt_orphans():
    """Grandchildren whose parent dies become children of this process, so that none can escape."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise Failure("this kernel does not let a test adopt orphaned processes")


def parents():
    """pid -> parent's pid, of every process that is not dead yet. A process whose first thread has ended is not dead
    while another of its threads is ending: that one still holds the files and locks."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
            if state not in "ZX" or len(os.listdir(f"/proc/{name}/task")) > 1:
                table[int(name)] = int(parent)
        except OSError:
            continue
    return table


def descendants():
    """Pids of all living processes below this one."""
    table = parents()
    found = set()
    grew = True
    below = {os.getpid()}
    while grew:
        grew = False
        for pid, parent in table.items():
            if parent in below and pid not in below:
                below.add(pid)
                found.add(pid)
                grew = True
    return found


def kill_all_descendants(spared=()):
    """SIGKILL to everything below this process but the spared pids, until nothing else is left."""
    while True:
        alive = descendants() - set(spared)
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not alive:
            return
        time.sleep(0.005)


def reap():
    """Collects adopted children that are dead; a Popen's own child is left to it when it asks first."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def shared_memory_files():
    """What MPICH puts into /dev/shm, where no setting leads elsewhere; usually gone as soon as all ranks see it."""
    return set(glob.glob("/dev/shm/mpich_shar_tmp*"))


def remove_abandoned(paths):
    """Removes files that no process has mapped: their ranks were killed before they could."""
    mapped = ""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        try:
            with open(maps, encoding="utf-8", errors="replace") as file:
                mapped += file.read()
        except OSError:
            pass
    for path in paths:
        if path not in mapped:
            try:
                os.remove(path)
            except OSError:
                pass


class Workspace:
    """A fresh directory on a file system in memory, and the way to start MPI programs in it."""

    def __init__(self, mpiexec):
        self.mpiexec = mpiexec  # the command up to the number of ranks
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.path = tempfile.mkdtemp(prefix="tailrace-mpi-test-", dir=parent)
        self.scratch = os.path.join(self.path, "scratch")
        os.mkdir(self.scratch)
        self.environment = dict(os.environ)
        for key in list(self.environment):
            if key.startswith("TAILRACE_") and key != "TAILRACE_LOG":
                del self.environment[key]  # a test must not depend on its caller's settings
        self.environment.update({
            "TMPDIR": self.scratch,
            # MPICH's UCX
            "UCX_POSIX_DIR": self.scratch,
            # Open MPI
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl_vader_backing_directory": self.scratch,
            "OMPI_MCA_orte_tmpdir_base": self.scratch,
        })

    def __enter__(self):
        adopt_orphans()
        self.others = shared_memory_files()
        return self

    def __exit__(self, *_):
        kill_all_descendants()
        remove_abandoned(shared_memory_files() - self.others)
        shutil.rmtree(self.path, ignore_errors=True)

    def directory(self, name):
        path = os.path.join(self.path, name)
        os.makedirs(path, exist_ok=True)
        return path

    def start(self, ranks, program, *arguments, **options):
        command = [*self.mpiexec, str(ranks), program, *map(str, arguments)]
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True,
                                **options)

    def run(self, ranks, program, *arguments, timeout_s=100, spared=()):
        """Runs to the end; anything but success is a Failure with what the program said. Of what is left then, the
        spared pids live on."""
        with open(os.path.join(self.path, "output"), "w+b") as output:
            process = self.start(ranks, program, *arguments, stdout=output, stderr=subprocess.STDOUT)
            try:
                status = process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                status = f"none after {timeout_s} s"
            kill_all_descendants(spared)
            output.seek(0)
            said = output.read().decode(errors="replace")
        sys.stdout.write(said)
        sys.stdout.flush()
        if status != 0:
            raise Failure(f"{os.path.basename(program)} {' '.join(map(str, arguments))} on {ranks} ranks: "
                          f"exit status {status}")
        return said


def check_shared_directory(path, epochs, files, beside=()):
    """The directory holds exactly `files` complete files for each of `epochs`, the names `beside`, and nothing else."""
    found = {}
    for name in set(os.listdir(path)) - set(beside):
        parts = SHARED_FILE.match(name)
        if not parts:
            raise Failure(f"{path} holds {name}, which is no complete shared file")
        if int(parts["K"]) != files:
            raise Failure(f"{name} says it is one of {parts['K']}, not of {files}")
        found.setdefault(int(parts["epoch"]), []).append((int(parts["run"]), int(parts["k"])))
    if sorted(found) != sorted(epochs):
        raise Failure(f"{path} holds the epochs {sorted(found)}, not {sorted(epochs)}")
    for epoch, numbers in found.items():
        runs = {run for run, _ in numbers}
        if len(runs) != 1 or sorted(k for _, k in numbers) != list(range(1, files + 1)):
            raise Failure(f"{path} holds of epoch {epoch} the (run, file) pairs {sorted(numbers)}, "
                          f"not exactly {files} files of one run")


def main(test):
    """Runs test(), turns a Failure into a sentence and an exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that ctest's time limit also cleans up
    try:
        test()
    except Failure as failure:
        print(f"FAILED: {failure}", flush=True)
        sys.exit(1)
    print("passed", flush=True)
