#!/usr/bin/env python3
"""Measures tailrace against what the machine can do, as ratios within one run.

    python3 benchmarks/bench.py --build build/release

There are two cases: many ranks laid out as several nodes on this machine (needs a build with MPI),
and one rank with more memory. Each is interleaved and repeated, and gives:

  blocked   memcpy of the same bytes into touched memory  /  time that save blocks the program      aim 0.8
  flush     durable flush rate  /  best rate of a few fio runs, same directory and bytes, fsynced  aim 0.9
  restore   rate of a cold restore  /  cold sequential read of the same files                     aim 0.9
  memory    anonymous memory of the agent, beside the limit in its settings

With MPI it also measures what checkpoints cost the particle code of examples/, which computes on
every core:

  added     to the time between two checkpoints, by save and the slower steps, or by a peer's blocking write

--only carried compares flushes by a thread of that program with flushes by an agent process.

Each line is the median of the repeats with (least..most). Restored bytes are compared after the
timed part. The exit status says whether everything worked, not how fast it was. Uses only the
standard library.
"""

import argparse
import ctypes
import json
import mmap
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from progress import Progress

MIB = 1 << 20

# Known good ways to write a file fast. All of them allocate first, as tailrace does, and end with a
# sync.
FIO_VARIANTS = {
    "direct, io_uring, depth 32, 1 MiB": ["--direct=1", "--ioengine=io_uring", "--iodepth=32", "--bs=1m"],
    "direct, libaio, depth 8, 4 MiB": ["--direct=1", "--ioengine=libaio", "--iodepth=8", "--bs=4m"],
    "buffered, psync, 1 MiB": ["--direct=0", "--ioengine=psync", "--bs=1m"],
}


def run(command, **more):
    """The standard output of a program. If the program fails, ends with an explanation."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(command)}\nfailed with status {done.returncode}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


# ---- cold files ---------------------------------------------------------------------------------------

def files_of(directory):
    return sorted(os.path.join(directory, name) for name in os.listdir(directory))


def resident_share(path):
    """The share of a file's pages that are in the page cache."""
    size = os.path.getsize(path)
    if size == 0:
        return 0.0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapping:
        libc = ctypes.CDLL(None, use_errno=True)
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        there = (ctypes.c_ubyte * pages)()
        view = (ctypes.c_char * size).from_buffer(mapping)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), there)
        del view
        return 0.0 if failed else sum(page & 1 for page in there) / pages


def make_cold(paths):
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    if max(map(resident_share, paths)) > 0.01 and os.geteuid() == 0:
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("1\n")
    warm = max(map(resident_share, paths))
    if warm > 0.01:
        print(f"  note: {warm:.0%} of a file stayed in the page cache, so reads are not quite cold")


def sequential_read_seconds(paths, direct):
    """The time to read one file after the other, front to back, in pieces of 8 MiB."""
    make_cold(paths)
    buffer = mmap.mmap(-1, 8 * MIB)
    buffer.write(b"\1" * len(buffer))
    start = time.monotonic()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        at, size = 0, os.path.getsize(path)
        while at < size:
            count = os.preadv(descriptor, [buffer], at)
            if count == 0:
                break
            at += count
        os.close(descriptor)
    return time.monotonic() - start


# ---- fio ----------------------------------------------------------------------------------------------

def fio_rate(directory, total_bytes, files, flags):
    """Bytes per second of writing total_bytes into so many files, sync included. None if fio cannot
    run."""
    each = total_bytes // files // (4 * MIB) * (4 * MIB)
    command = ["fio", "--name=bench", f"--directory={directory}", "--rw=write", f"--size={each}",
               f"--numjobs={files}", "--fallocate=native", "--create_on_open=0", "--end_fsync=1", "--thread",
               "--output-format=json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for path in files_of(directory):
        if os.path.basename(path).startswith("bench."):
            os.remove(path)
    if done.returncode != 0:
        return None
    jobs = json.loads(done.stdout[done.stdout.index("{"):])["jobs"]
    if any(job["error"] for job in jobs):
        return None
    seconds = max(job["write"]["runtime"] for job in jobs) / 1000
    return sum(job["write"]["io_bytes"] for job in jobs) / seconds if seconds > 0 else None


# ---- one case -----------------------------------------------------------------------------------------

class Case:
    def __init__(self, title, launch, rank_bytes, spread, settings, files):
        self.title, self.launch, self.rank_bytes, self.spread = title, launch, rank_bytes, spread
        self.settings, self.files = settings, files
        self.blocked, self.rates, self.restores, self.agent = [], [], [], []
        self.flush_seconds, self.blocked_seconds, self.restore_seconds = [], [], []
        self.fio = {name: [] for name in FIO_VARIANTS}
        self.read_rates = {"buffered": [], "direct": []}
        self.limit = ""
        self.bytes = 0

    def program(self, mode, local, shared, *more):
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        return json_lines(run([*self.launch, mode, "--bytes", str(self.rank_bytes),
                               "--spread", str(self.spread), *more,
                               f"local_dir={local}", f"shared_dir={shared}", *settings]))

    def repeat(self, local_base, shared_base, options, turn):
        local = tempfile.mkdtemp(prefix="tailrace-bench-", dir=local_base)
        shared = tempfile.mkdtemp(prefix="tailrace-bench-", dir=shared_base)
        try:
            # 1. save: each line holds one epoch, with memcpy and save measured right after each
            # other
            lines = self.program("save", local, shared, "--epochs", str(options.epochs),
                                 "--warm-up", str(options.warm_up))
            self.bytes = lines[0]["bytes"]
            self.blocked.append(
                statistics.median(line["copy_seconds"] / line["blocked_seconds"] for line in lines))
            self.blocked_seconds.append(statistics.median(line["blocked_seconds"] for line in lines))
            self.flush_seconds.append(statistics.median(line["flush_seconds"] for line in lines))
            self.rates.append(self.bytes / self.flush_seconds[-1])
            self.agent.append(max(line["agent_bytes"] for line in lines))
            self.limit = f"{lines[0]['buffers']} x {lines[0]['buffer_bytes']}"
            # 2. fio, in the same directory, with as many files
            if shutil.which("fio"):
                for name, flags in FIO_VARIANTS.items():
                    self.fio[name].append(fio_rate(shared, int(self.bytes), self.files, flags))
            # 3. restore and plain reads. The later ones find more in the caches of the disk's host,
            # so each is first, second and last in turn.
            shutil.rmtree(local)
            os.mkdir(local)
            paths = files_of(shared)
            steps = [lambda: self.restore(local, shared, paths), lambda: self.read(paths, "buffered"),
                     lambda: self.read(paths, "direct")]
            for i in range(len(steps)):
                steps[(turn + i) % len(steps)]()
        finally:
            shutil.rmtree(local, ignore_errors=True)
            shutil.rmtree(shared, ignore_errors=True)

    def restore(self, local, shared, paths):
        make_cold(paths)
        line, = self.program("restore", local, shared)
        if line["wrong_words"] != 0:
            sys.exit(f"bench: {self.title}: {line['wrong_words']:.0f} restored words are wrong")
        self.restore_seconds.append(line["seconds"])
        self.restores.append(line["bytes"] / line["seconds"])

    def read(self, paths, kind):
        try:
            seconds = sequential_read_seconds(paths, kind == "direct")
            self.read_rates[kind].append(sum(map(os.path.getsize, paths)) / seconds)
        except OSError:  # no direct I/O here
            self.read_rates[kind].append(None)

    def print(self):
        def mib(rate):
            return f"{rate / MIB:,.0f} MiB/s"

        def line(name, values, aim, what):
            if not values:
                return
            middle = statistics.median(values)
            extremes = f"({min(values):.2f}..{max(values):.2f})"
            print(f"  {name:<8} {middle:6.2f}  {extremes}   aim {aim}   {what}")

        print(f"\n{self.title}: {self.bytes / MIB:,.0f} MiB in {self.files} file(s), "
              f"{len(self.rates)} repeats")
        kept = statistics.median(self.blocked_seconds)
        line("blocked", self.blocked, 0.8, f"memcpy time / save time; save kept the program {kept:.3f} s")
        name, rates = best_of(self.fio)
        if name:
            line("flush", [ours / theirs for ours, theirs in zip(self.rates, rates)], 0.9,
                 f"{mib(statistics.median(self.rates))} durable / "
                 f"{mib(statistics.median(rates))} by fio ({name})")
        else:
            print(f"  flush    {mib(statistics.median(self.rates))} durable; fio is not installed, so there is no "
                  "comparison (Debian: fio)")
        name, rates = best_of(self.read_rates)
        line("restore", [ours / theirs for ours, theirs in zip(self.restores, rates)], 0.9,
             f"{mib(statistics.median(self.restores))} cold / "
             f"{mib(statistics.median(rates))} sequential read ({name})")
        print(f"  memory   {max(self.agent) / MIB:6.1f} MiB at most taken by one process; "
              f"buffers allow {self.limit}")
        for kind, variants in (("fio", self.fio), ("read", self.read_rates)):
            for name, values in variants.items():
                good = [value for value in values if value]
                if good:
                    print(f"           {kind}: {mib(statistics.median(good)):>14}  "
                          f"({mib(min(good))}..{mib(max(good))})  {name}")


class Computing:
    """The particle code: for some seconds without a checkpoint, and for some with one at their start."""

    def __init__(self, launch, particles, ranks, seconds, settings):
        self.launch, self.particles, self.ranks = launch, particles, ranks
        self.seconds, self.settings = seconds, settings
        self.title = f"{ranks} ranks of the particle code"
        self.ways = ADDED
        self.rounds = []

    # Rounds in a repeat. Four ways come in four orders, so two repeats have them all.
    ROUNDS = 2

    def repeat(self, local_base, shared_base, _options, turn):
        local, shared, others = (tempfile.mkdtemp(prefix="tailrace-bench-", dir=base)
                                 for base in (local_base, shared_base, shared_base))
        try:
            self.measure(local, shared, others, turn)
        finally:
            for directory in (local, shared, others):
                shutil.rmtree(directory, ignore_errors=True)

    def measure(self, local, shared, others, turn, option="--peers"):
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        self.rounds += json_lines(run([*self.launch, "--particles", str(self.particles), "--seconds",
                                       str(self.seconds), "--rounds", str(self.ROUNDS),
                                       "--first", str(turn * self.ROUNDS), option, others,
                                       f"local_dir={local}", f"shared_dir={shared}", *settings]))

    def print(self):
        first = self.rounds[0]
        alone = statistics.median(line["ways"]["none"]["seconds"] for line in self.rounds)
        print(f"\n{self.title}, {os.cpu_count()} cores: {first['bytes'] / MIB:,.0f} MiB into one file every "
              f"{first['steps']} steps, {alone:.1f} s; {len(self.rounds)} rounds")
        for name in self.ways:
            if name == "none":
                continue
            sections = [line["ways"][name] for line in self.rounds]
            added = [100 * (section["seconds"] / line["ways"]["none"]["seconds"] - 1)
                     for section, line in zip(sections, self.rounds)]
            saving, flush = (statistics.median(section[key] for section in sections) for key in ("saving", "flush"))
            print(f"  added     {statistics.median(added):5.1f} % ({min(added):.1f}..{max(added):.1f}) {self.ways[name]}  {name}: "
                  f"blocked {saving:.3f} s" + (f", flush {flush:.2f} s" if flush else ""))


class Carried(Computing):
    """The same, with flushes by a thread of the program and by an agent process, in turn."""

    ROUNDS = 3  # three ways come in three orders

    def __init__(self, tool, launch_agent, *computing):
        super().__init__(*computing)
        self.tool, self.launch_agent = tool, launch_agent
        self.title += ", carried by its thread or by an agent"
        self.ways = {"none": "", "tailrace": "", "tailrace, carried": ""}

    def measure(self, local, shared, others, turn, option="--carried"):
        with tempfile.TemporaryFile("w+") as log:  # an agent tells of its progress
            agent = subprocess.Popen([*self.launch_agent, self.tool, "agent", "--mpi", "--local-dir", local],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            try:
                self.wait_for_agent(agent, local, log)
                super().measure(local, shared, others, turn, option)
                run([self.tool, "agent", "stop", "--local-dir", local])
                agent.wait(60)
            finally:
                if agent.poll() is None:
                    os.killpg(agent.pid, signal.SIGKILL)
                    agent.wait()

    def wait_for_agent(self, agent, local, log):
        deadline = time.monotonic() + 60
        status = [self.tool, "agent", "status", "--local-dir", local]
        while subprocess.run(status, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            if agent.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                sys.exit(f"bench: the agent does not answer:\n{log.read()}")
            time.sleep(0.05)


# The ways of particles_bench, in the order in which they are printed.
ADDED = {"none": "", "tailrace": "  aim at most 3", "file per process": "", "MPI-IO, two-phase": ""}


def best_of(variants):
    """Name and rates of the variant with the best median, among those that always worked."""
    good = {name: values for name, values in variants.items() if values and all(values)}
    if not good:
        return None, []
    name = max(good, key=lambda key: statistics.median(good[key]))
    return name, good[name]


def file_system(path):
    try:
        return run(["findmnt", "-n", "-o", "FSTYPE", "-T", path]).strip()
    except FileNotFoundError:
        return "unknown"


def version_of(command, lines=1):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return " ".join(" ".join(done.stdout.splitlines()[:lines]).split())
    except FileNotFoundError:
        return "not here"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build directory")
    parser.add_argument("--directory", help="the shared directory's place (default: in the build directory)")
    parser.add_argument("--local", default="/dev/shm",
                        help="the node-local tier's place (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=6, help="a multiple of 6 is fair (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3,
                        help="measured epochs per repeat (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=3,
                        help="epochs before, not measured (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--rank-mib", type=int, default=64, help="per rank, +-20 %% (default: %(default)s)")
    parser.add_argument("--files", type=int, default=2, help="K of the case with MPI (default: %(default)s)")
    parser.add_argument("--single-mib", type=int, default=1024,
                        help="of the case with one rank (default: %(default)s)")
    parser.add_argument("--particles", type=int, default=5_000_000, help="38 bytes each (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10,
                        help="between two checkpoints of the particle code (default: %(default)s)")
    parser.add_argument("--only", choices=["mpi", "single", "particles", "carried"],
                        help="one case; carried, which compares the thread with an agent, runs only then")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of tailrace; may be given several times")
    options = parser.parse_args()

    with open(os.path.join(options.build, "benchmarks", "bench.json")) as file:
        build = json.load(file)
    shared_base = os.path.abspath(options.directory or os.path.join(options.build, "bench-data"))
    os.makedirs(shared_base, exist_ok=True)
    # Open MPI refuses to run as root, or with more ranks than cores, unless it is told to. MPICH
    # does not.
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1")

    settings = {"keep_local": 1, "keep_shared": 1, **dict(pair.split("=", 1) for pair in options.set)}
    cases = []
    with_mpi = bool(build["mpi_program"])
    if options.only in (None, "mpi") and with_mpi:
        launch = [build["mpiexec"], build["mpiexec_ranks"], str(options.ranks), build["mpi_program"]]
        title = (f"{options.ranks} ranks x {options.rank_mib} MiB +-20 %, "
                 f"{options.ranks_per_node} ranks a node")
        layout = {"files": options.files, "ranks_per_node": options.ranks_per_node}
        cases.append(Case(title, launch, options.rank_mib * MIB, 20, {**layout, **settings}, options.files))
    if options.only in (None, "particles") and with_mpi:
        launch = [build["mpiexec"], build["mpiexec_ranks"], "2", build["particles_program"]]
        cases.append(Computing(launch, options.particles, 2, options.seconds,
                               {"files": 1, "ranks_per_node": 1, **settings}))
    if options.only == "carried" and with_mpi:
        launch = [build["mpiexec"], build["mpiexec_ranks"]]
        cases.append(Carried(os.path.abspath(os.path.join(options.build, "tools", "tailrace")), [*launch, "1"],
                             [*launch, "2", build["particles_program"]], options.particles, 2, options.seconds,
                             {"files": 1, "ranks_per_node": 2, **settings}))
    if options.only != "single" and not with_mpi:
        print("The cases with several ranks are left out, because this build has no MPI.")
    if options.only in (None, "single"):
        cases.append(Case(f"1 rank x {options.single_mib} MiB", [build["program"]],
                          options.single_mib * MIB, 0, {"files": 1, **settings}, 1))

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    print(f"Machine: {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
          f"load {os.getloadavg()[0]:.1f}; {build['build_type']} build by {build['compiler']}")
    print(f"Shared directory on {file_system(shared_base)}, node-local tier on {file_system(options.local)}; "
          f"fio: {version_of(['fio', '--version'])}; "
          f"MPI: {version_of([build['mpiexec'] or 'mpiexec', '--version'], lines=2)}")
    print(f"Settings: {settings}; {options.warm_up} epochs to warm up, {options.epochs} measured, in each of "
          f"{options.repeats} repeats")
    print("Cold: page cache of the files dropped (a virtual disk's host may still cache them)")

    sys.stdout.flush()
    progress = Progress(options.repeats * len(cases))
    for turn in range(options.repeats):  # cases take turns too
        for case in cases:
            step = f"repeat {turn + 1} of {options.repeats}, {case.title}"
            progress.begin(step)
            case.repeat(options.local, shared_base, options, turn)
            progress.end(step)
    progress.close()
    for case in cases:
        case.print()
    try:
        os.rmdir(shared_base)
    except OSError:
        pass  # it existed before, or holds something else
    return 0


if __name__ == "__main__":
    sys.exit(main())
