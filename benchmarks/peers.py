#!/usr/bin/env python3
"""Compares tailrace with its peers. tailrace-mpi-bench and fio take turns, and the table has ratios
within this run.

    python3 benchmarks/peers.py --build build/mpich --ranks 2 --rank-mib 256 --files 1,2,4

In every turn, for every K, tailrace-mpi-bench runs all strategies, A B C B C A. Then fio writes as
many bytes into as many files, in a few ways. Everything is timed until it is durable. For tailrace
that is the flush, which the program does not wait for; "with save" is all of it. The table has
medians of all samples with (least..most). Ratios are the other's time / tailrace's. With --launch
the ranks run elsewhere, for example on a test cluster, and fio is left out. The exit status says
whether everything worked (all bytes are compared), not how fast it was. Uses only the standard
library.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile

from bench import FIO_VARIANTS, MIB, file_system, fio_rate, run, version_of
from progress import Progress


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build directory")
    parser.add_argument("--directory", help="directory of the files (default: in the build directory)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank-mib", type=int, default=256, help="per rank (default: %(default)s)")
    parser.add_argument("--imbalance", default="20", help="percent; several with commas (default: %(default)s)")
    parser.add_argument("--files", default="1,2,4", help="K, several with commas (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=2, help="per turn and strategy (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="epochs of tailrace before (default: %(default)s)")
    parser.add_argument("--only", help="strategies, as tailrace-mpi-bench --list names them, and fio")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of tailrace")
    parser.add_argument("--variant", action="append", default=[], metavar="KEY=VALUE,...",
                        help="run tailrace once more, with these settings too")
    parser.add_argument("--launch", help="instead of mpiexec: a command before the program; {ranks} is replaced")
    parser.add_argument("-o", "--output", help="all samples as JSON")
    return parser.parse_args()


class Results:
    """(imbalance, K) -> name -> {"flush": [MiB/s], "local": [s], "open": [s], "cold": [MiB/s], "warm":
    [MiB/s], "slowest by mean": [one for each flush's leaders]}"""

    def __init__(self):
        self.cases, self.settings, self.bytes, self.absent = {}, {}, {}, []

    def add(self, case, name, kind, values):
        self.cases.setdefault(case, {}).setdefault(name, {}).setdefault(kind, []).extend(values)

    def add_run(self, case, line):
        name, total = line["strategy"], line["bytes"] / MIB
        self.settings[name], self.bytes[case] = line["settings"], line["bytes"]
        self.add(case, name, "local", line["local_seconds"]["values"])
        self.add(case, name, "open", line["open_seconds"]["values"])
        for kind, key in (("flush", "flush_seconds"), ("cold", "cold_read_seconds"), ("warm", "warm_read_seconds")):
            self.add(case, name, kind, [total / seconds for seconds in line[key]["values"]])
        if line["flushes"]:
            self.add(case, name, "slowest by mean", [flush["slowest_by_mean"] for flush in line["flushes"]])

    def print(self, case):
        ways = self.cases[case]
        print(f"\nK = {case[1]}, sizes +-{case[0]} %, {self.bytes[case] / MIB:,.0f} MiB in all")
        print(f"  {'':<46} {'MiB/s durable':>22} {'tailrace/x':>10} {'with save':>10} {'samples':>8} "
              f"{'cold read':>10} {'warm':>7}")
        ours = whole = None
        if "tailrace" in ways:
            flush, local = ways["tailrace"]["flush"], ways["tailrace"]["local"]
            total = self.bytes[case] / MIB
            ours = statistics.median(flush)
            whole = statistics.median(total / (total / rate + seconds) for rate, seconds in zip(flush, local))
        for name, kinds in sorted(ways.items(), key=lambda way: -statistics.median(way[1]["flush"])):
            flush = kinds["flush"]
            middle = statistics.median(flush)
            ratio, with_save = (f"{mine / middle:.2f}" if ours else "-" for mine in (ours, whole))
            reads = [f"{statistics.median(kinds[kind]):,.0f}" if kind in kinds else "-" for kind in ("cold", "warm")]
            spread = f"({min(flush):,.0f}..{max(flush):,.0f})"
            print(f"  {name:<46} {middle:8,.0f} {spread:>13} {ratio:>10} {with_save:>10} {len(flush):>8} "
                  f"{reads[0]:>10} {reads[1]:>7}")
        if "tailrace" in ways:
            local, opened = (statistics.median(ways["tailrace"][kind]) for kind in ("local", "open"))
            print(f"  tailrace: save blocked the program for {local:.3f} s; opening a session to read took {opened:.3f} s")
        for name, kinds in ways.items():
            if uneven := kinds.get("slowest by mean"):
                print(f"  {name}: slowest leader / mean of leaders {statistics.median(uneven):.2f} "
                      f"({min(uneven):.2f}..{max(uneven):.2f}), {len(uneven)} flushes")


def strategies_turn(options, place, case, results, only):
    with tempfile.TemporaryDirectory() as scratch:
        output = os.path.join(scratch, "results.json")
        launch = (shlex.split(options.launch.format(ranks=options.ranks)) if options.launch else
                  [options.mpiexec, options.mpiexec_ranks, str(options.ranks)])
        command = [*launch, options.program, place, "--size", f"{options.rank_mib}MiB", "--imbalance", str(case[0]),
                   "--files", str(case[1]), "--repeat", str(options.repeat), "--warm-up", str(options.warm_up),
                   "-o", output]
        for setting in options.set:
            command += ["--set", setting]
        for variant in options.variant:
            command += ["--variant", variant]
        if only:
            command += ["--only", ",".join(only)]
        text = run(command)
        with open(output) as file:
            document = json.load(file)
    results.absent = document["absent"]
    for line in document["runs"]:
        results.add_run(case, line)
    return text


def write_samples(options, results):
    if options.output:
        with open(options.output, "w") as file:
            json.dump({"ranks": options.ranks, "rank_mib": options.rank_mib, "settings": results.settings,
                       "absent": results.absent,
                       "cases": [{"imbalance_percent": case[0], "files": case[1], "bytes": results.bytes[case],
                                  "samples": results.cases[case]} for case in results.cases]}, file, indent=1)


def measure(options, build, place, cases, results, only, with_fio):
    progress = Progress(options.turns * len(cases))
    for turn in range(options.turns):
        for case in cases:
            step = f"turn {turn + 1} of {options.turns}, K = {case[1]}, +-{case[0]} %"
            progress.begin(step)
            text = strategies_turn(options, place, case, results, only)
            if with_fio:
                for name, flags in FIO_VARIANTS.items():
                    for writers in sorted({case[1], 8}):
                        rate = fio_rate(place, results.bytes[case], writers, flags)
                        if rate:
                            results.add(case, f"fio, {writers} file(s), {name}", "flush", [rate / MIB])
            if turn == 0 and case == cases[0]:
                where = "" if options.launch else f" on {file_system(place)}"
                print(f"{options.ranks} ranks x {options.rank_mib} MiB{where}; {os.cpu_count()} cores, load "
                      f"{os.getloadavg()[0]:.1f}; {build['build_type']} build by {build['compiler']}; "
                      f"fio: {version_of(['fio', '--version'])}")
                print(text.split("\nK = ")[0].strip(), flush=True)
            write_samples(options, results)
            progress.end(step)
    progress.close()


def main():
    options = options_of()
    with open(os.path.join(options.build, "benchmarks", "bench.json")) as file:
        build = json.load(file)
    if not build["mpi_program"]:
        sys.exit("peers: this build has no MPI")
    options.mpiexec, options.mpiexec_ranks = build["mpiexec"], build["mpiexec_ranks"]
    options.program = os.path.abspath(os.path.join(options.build, "benchmarks", "tailrace-mpi-bench"))
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1")
    place = os.path.abspath(options.directory or os.path.join(options.build, "bench-data"))
    only = options.only.split(",") if options.only else []
    with_fio = not options.launch and shutil.which("fio") and (not only or "fio" in only)
    only = [name for name in only if name != "fio"]
    if options.only and not only:
        sys.exit("peers: --only fio leaves nothing to compare it with")
    cases = [(int(imbalance), int(files)) for imbalance in options.imbalance.split(",")
             for files in options.files.split(",")]
    if not options.launch:
        os.makedirs(place, exist_ok=True)

    results = Results()
    try:  # now, because hours of work must not end with a file that cannot be written
        write_samples(options, results)
    except OSError as error:
        sys.exit(f"peers: {error}")
    try:
        measure(options, build, place, cases, results, only, with_fio)
    finally:  # the results so far, also if a strategy has failed
        for case in results.cases:
            results.print(case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
