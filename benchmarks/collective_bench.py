"""`make bench-collective`: collective I/O through libtailrace_mpiio.so against the MPI library's own
two-phase I/O.

One program (collective_bench_mpi) uses plain MPI-IO. It runs in turn without the library and with
it: in two layers (the library's own choice) and with p_l = p. Collective buffering is forced on in
the MPI library, with one aggregator per node: by hints for ROMIO (MPICH), and by the collective
component `vulcan` and the same hints for OMPIO (Open MPI). Ratios are the MPI library's time /
tailrace's time, so more than 1 means that tailrace is faster. The table has the median of all
rounds with the least and the greatest.

If PnetCDF 1.14 or later is installed (for Open MPI), a second program does the same through
PnetCDF, with its own intra-node aggregation, with the library, and with neither.

Nodes are simulated: ranks of this machine count as one node in groups (tailrace_ranks_per_node).
With --launch the program runs on real nodes, for example on the test bed:

    collective_bench.py --build build/mpich --launch "tests/testbed/testbed run -n {ranks}" --directory /run/tb/pfs
"""
import argparse
import contextlib
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

from progress import Progress

# The library's local aggregators; None without the library. The others are compared with the first
# way.
WAYS = {"MPI": None, "two layers": "auto", "p_l = p": "all"}
# The same through PnetCDF. Its own aggregation also has one local aggregator per node.
PNETCDF_WAYS = {"PnetCDF": None, "its own aggregation": None, "two layers": "auto"}

# Its collective component, and more ranks than cores.
OPEN_MPI = {"OMPI_MCA_fcoll": "vulcan", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none"}


def patterns(scale):
    return [("btio", str(int(96 * scale))), ("s3d", str(int(80 * scale) // 4 * 4)),
            ("irregular", str(int(1000000 * scale))), ("contiguous", str(max(1, int(16 * scale))))]


class Bench:
    def __init__(self, arguments, config, progress):
        self.arguments, self.progress = arguments, progress
        self.programs = {"MPI": config["collective_program"], "PnetCDF": config.get("pnetcdf_program")}
        self.library = config["mpiio_library"]
        self.launch = arguments.launch or "%s %s {ranks}" % (config["mpiexec"], config["mpiexec_ranks"])

    def run(self, pattern, size, ranks, nodes, ways, way, directory):
        """Seconds of a write and a read, and the lines that the library printed."""
        path = os.path.join(directory, "bench")  # the program removes it
        command = shlex.split(self.launch.format(ranks=ranks))
        if ways[way]:
            command += ["env", "TAILRACE_COLLECTIVE_LOCAL_AGGREGATORS=" + ways[way]]
            if self.arguments.explain:  # these are gathered when the file is closed, within the measured time
                command += ["TAILRACE_MPIIO_STATISTICS=1"]
            if not self.arguments.launch:
                command += ["TAILRACE_COLLECTIVE_RANKS_PER_NODE=%d" % (ranks // nodes)]
            # The launcher may preload a library itself, as the test bed does.
            command += ["sh", "-c", 'LD_PRELOAD="%s${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"' % self.library, "sh"]
        command += [self.programs[next(iter(ways))], pattern, size, path, str(nodes)]
        if ways is PNETCDF_WAYS:
            command += ["real-nodes" if self.arguments.launch else "any-ranks",
                        "1" if way == "its own aggregation" else "0"]
        elif self.arguments.launch:
            command += ["real-nodes"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              timeout=self.arguments.timeout, check=False,
                              env={**os.environ, **OPEN_MPI})
        output = done.stdout.decode(errors="replace")
        result = re.search(r"^\{.*\}$", output, re.M)
        if done.returncode != 0 or not result:
            raise RuntimeError("%s failed:\n%s" % (" ".join(command), output))
        return json.loads(result[0]), re.findall(r"^tailrace: .*$", output, re.M)

    def compare(self, pattern, size, ranks, nodes, ways, directory):
        times = {way: {"write": [], "read": []} for way in ways}
        lines = {}
        base = next(iter(ways))
        self.progress.begin(pattern)
        for _ in range(self.arguments.rounds):
            for way in ways:
                result, lines[way] = self.run(pattern, size, ranks, nodes, ways, way, directory)
                for what in ("write", "read"):
                    times[way][what].append(result[what])
        self.progress.end("%s, %d ranks, %d nodes, %s" % (pattern, ranks, nodes, next(iter(ways))))
        self.progress.close()
        row = "%-11s %3d ranks %d nodes %7.1f MiB" % (pattern, ranks, nodes, result["bytes"] / 2**20)
        if pattern == "btio" and math.isqrt(ranks)**2 != ranks:
            row += " (of %d ranks: the pattern needs a square)" % math.isqrt(ranks)**2
        for what in ("write", "read"):
            row += "   %s: %s %6.3f s" % (what, base, statistics.median(times[base][what]))
            for way in list(ways)[1:]:
                ratios = [a / b for a, b in zip(times[base][what], times[way][what])]
                row += ", %s %.2fx (%.2f..%.2f)" % (way, statistics.median(ratios), min(ratios), max(ratios))
        print(row, flush=True)
        if self.arguments.explain:
            for line in lines["two layers"]:
                print("    " + line, flush=True)


def small_calls(bench, rounds, directory):
    """What the library adds to calls of 64 bytes on each of two ranks, and to an open and close."""
    print("small calls of 2 ranks: median of %d rounds (least..greatest), microseconds" % rounds)
    times = {"MPI": [], "tailrace": []}
    for _ in range(rounds):
        for way in times:
            command = shlex.split(bench.launch.format(ranks=2))
            if way == "tailrace":
                command += ["env", "LD_PRELOAD=" + bench.library]
            done = subprocess.run(command + [bench.programs["MPI"], "small", "400", os.path.join(directory, "small")],
                                  stdout=subprocess.PIPE, timeout=bench.arguments.timeout, check=True)
            times[way].append(json.loads(done.stdout))
    for what in ("write", "read", "open"):
        row = "  %-5s" % what
        for way, results in times.items():
            each = [1e6 * one[what] for one in results]
            row += "  %s %.1f (%.1f..%.1f)" % (way, statistics.median(each), min(each), max(each))
        ratios = [ours[what] / theirs[what] for theirs, ours in zip(times["MPI"], times["tailrace"])]
        print(row + "  %.1f times as long (%.1f..%.1f)" % (statistics.median(ratios), min(ratios), max(ratios)),
              flush=True)


def merge_rates(config):
    print("merging and coalescing on one core (aim: 20 million requests per second)")
    for ranks in (1, 4, 8, 16):
        done = subprocess.run([config["collective_program"], "merge", "10000000", str(ranks)],
                              stdout=subprocess.PIPE, check=True)
        result = json.loads(done.stdout)
        print("  %2d lists: %.1f million requests per second" % (ranks, result["requests"] / result["seconds"] / 1e6),
              flush=True)


def without_pnetcdf():
    """Why PnetCDF's own intra-node aggregation is not compared."""
    try:
        version = subprocess.run(["pkg-config", "--modversion", "pnetcdf"], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, check=True).stdout.decode().strip()
    except (OSError, subprocess.CalledProcessError):
        version = None
    if version is None:
        why = "there is no PnetCDF here"
    elif [int(part) for part in re.findall(r"\d+", version)[:2]] < [1, 14]:
        why = "it came with 1.14 and this is " + version
    else:
        why = "PnetCDF %s is built for another MPI library than this build" % version
    return "PnetCDF's own intra-node aggregation (nc_num_aggrs_per_node): absent, " + why


def comparisons(arguments, config):
    """Pattern, size, ranks, nodes and ways of each comparison."""
    for pattern, size in patterns(arguments.scale):
        if arguments.pattern and pattern not in arguments.pattern:
            continue
        for ranks in map(int, arguments.ranks.split(",")):
            for nodes in map(int, arguments.nodes.split(",")):
                yield pattern, size, ranks, nodes, WAYS
            if config.get("pnetcdf_program"):
                # PnetCDF sees the real nodes: this machine or, with --launch, those of the
                # launcher.
                nodes = int(arguments.nodes.split(",")[-1]) if arguments.launch else 1
                yield pattern, size, ranks, nodes, PNETCDF_WAYS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build directory")
    parser.add_argument("--directory", help="where the file is written (default: a fresh one in the build directory)")
    parser.add_argument("--ranks", default="8,16")
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the sizes")
    parser.add_argument("--pattern", action="append", help="only this pattern; may be repeated")
    parser.add_argument("--launch", help="command that starts {ranks} ranks on real nodes")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for one run")
    parser.add_argument("--explain", action="store_true", help="print the statistics of the last round")
    arguments = parser.parse_args()
    with open(os.path.join(arguments.build, "benchmarks", "bench.json"), encoding="utf-8") as file:
        config = json.load(file)
    if not config.get("collective_program"):
        sys.exit("bench: built without MPI")
    merge_rates(config)
    if not config.get("pnetcdf_program"):
        print(without_pnetcdf())
    steps = list(comparisons(arguments, config))
    bench = Bench(arguments, config, Progress(len(steps)))
    with contextlib.ExitStack() as stack:
        # On real nodes the directory need not exist on this machine.
        directory = arguments.directory if arguments.launch else stack.enter_context(
            tempfile.TemporaryDirectory(dir=arguments.directory or arguments.build))
        if not arguments.launch and not arguments.pattern:
            small_calls(bench, arguments.rounds, directory)
        for pattern, size, ranks, nodes, ways in steps:
            bench.compare(pattern, size, ranks, nodes, ways, directory)


main()
