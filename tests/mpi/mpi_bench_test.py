"""Runs tailrace-mpi-bench on a little data and looks at what it says and leaves; never at times.

    mpi_bench_test.py --program PATH -- mpirun arguments...
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile


class Failure(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failure(what)


def check_leaders(flush, total):
    """Two nodes, each with a file of its own."""
    leaders = flush["leaders"]
    seconds = [leader["seconds"] for leader in leaders]
    expect([leader["node"] for leader in leaders] == [0, 1], f"a leader for each file: {flush}")
    written = sum(leader["bytes"] for leader in leaders)
    expect(total <= written <= total + 2**16, f"leaders write all {total} bytes and what describes them: {flush}")
    expect(min(seconds) > 0 and flush["slowest_seconds"] == max(seconds), f"the slowest leader: {flush}")
    expect(abs(flush["mean_seconds"] - sum(seconds) / 2) < 1e-9, f"the mean of leaders: {flush}")
    expect(abs(flush["slowest_by_mean"] - max(seconds) * 2 / sum(seconds)) < 1e-9, f"slowest by mean: {flush}")


def end_by_signal(options, disk, local, number):
    """A run that is told to end takes its files along."""
    with subprocess.Popen([*options.launch, "1", options.program, disk, "--local-dir", local, "--size", "1MiB",
                           "--repeat", "1000", "--only", "posix"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            if line.startswith("posix "):  # it has begun
                break
        name, = os.listdir(disk)
        os.kill(int(name.rsplit("-", 1)[1]), number)
        said = process.stdout.read()
        process.wait(100)
    expect(process.returncode != 0, f"{number.name} ends it:\n{said}")
    expect(os.listdir(disk) == [] and os.listdir(local) == [], f"{number.name} leaves files:\n{said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("launch", nargs="+")
    options = parser.parse_args()
    top = tempfile.mkdtemp(prefix="tailrace mpi bench ")

    def bench(*arguments, code=0):
        done = subprocess.run([*options.launch, "2", options.program, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=100, check=False)
        expect((done.returncode == 0) == (code == 0), f"{arguments}: status {done.returncode}\n{done.stdout}")
        return done.stdout

    try:
        results, disk, local = (os.path.join(top, name) for name in ("peers.json", "disk", "local"))
        # What killed runs have left is removed, but nothing is reached through a link.
        kept, left = os.path.join(top, "kept"), os.path.join(disk, "tailrace-mpi-bench-left")
        for directory in (kept, left):
            os.makedirs(directory)
            for name in (".tailrace-mpi-bench.lock", "file"):
                with open(os.path.join(directory, name), "w", encoding="utf-8"):
                    pass
        planted = os.path.join(disk, "tailrace-mpi-bench-planted")
        os.symlink(kept, planted)
        said = bench(disk, "--local-dir", local, "--size", "1MiB", "--files", "1,2", "--repeat", "2", "-o", results)
        expect(not os.path.exists(left), "what a killed run has left stays")
        expect(len(os.listdir(kept)) == 2, "what a link names is removed")
        os.remove(planted)
        with open(results, encoding="utf-8") as file:
            document = json.load(file)
        names = [run["strategy"] for run in document["runs"]]
        wanted = ["tailrace", "posix", "posix-direct", "shared-file", "mpi-io-two-phase", "mpi-io-independent"]
        absent = " ".join(document["absent"])
        if "hdf5" not in absent:
            wanted.append("hdf5")
        if "adios2-bp5" not in absent:
            wanted += ["adios2-bp5", "adios2-bp5-async"]
        if "genericio" not in absent:
            wanted.append("genericio")
        expect(names == 2 * wanted, f"the strategies were {names}, not {wanted} for both K")
        expect([run["files"] for run in document["runs"]] == [1] * len(wanted) + [2] * len(wanted), "K is 1, then 2")
        for run in document["runs"]:
            expect(1.6 * 2**20 <= run["bytes"] <= 2.4 * 2**20, f"{run['bytes']} bytes of two ranks with 1 MiB +-20 %")
            expect(run["flush_seconds"]["least"] <= run["flush_seconds"]["median"] <= run["flush_seconds"]["most"],
                   f"a spread out of order: {run}")
            has_local_phase = run["strategy"] in ("tailrace", "adios2-bp5-async")
            expect((run["local_seconds"]["median"] > 0) == has_local_phase, f"a local phase: {run}")
            expect(len(run["flushes"]) == (2 if run["strategy"] == "tailrace" else 0), 
                   f"tailrace tells of leaders: {run}")
        for name in (*wanted, "adios2-bp5", "genericio"):
            expect(name in said, f"{name} is neither a strategy nor named as absent:\n{said}")
        expect(f"\n{4 * len(wanted)} of {4 * len(wanted)} done: K = 2, repetition 2 of 2, " in said,
               f"a line for each step as it ends:\n{said}")
        turns = [wanted[i:] + wanted[:i] for i in range(2)]
        expect(document["turns"] == 2 * turns, f"each is first in turn: {document['turns']}")
        expect("Wrote " not in said, f"what GenericIO prints is not among the results:\n{said}")
        expect(os.listdir(disk) == [] and os.listdir(local) == [], "files are left")

        said = bench(disk, "--local-dir", local, "--size", "1MiB", "--only", "posix,shared-file", "--repeat", "1")
        expect("shared-file" in said and "mpi-io-two-phase  " not in said, f"only two were asked for:\n{said}")
        said = bench(disk, "--local-dir", local, "--size", "1MiB", "--only", "posix", "--repeat", "1", "--variant",
                     "placement=contiguous,leaders_per_file=1")
        expect("tailrace,placement=contiguous,leaders_per_file=1  " in said, f"a variant runs:\n{said}")

        said = bench(disk, "--local-dir", local, "--size", "1MiB", "--files", "2", "--repeat", "2", "--only", "tailrace",
                     "--set", "ranks_per_node=1", "--variant", "record=no", "-o", results)
        with open(results, encoding="utf-8") as file:
            ours, unrecorded = json.load(file)["runs"]
        expect(len(ours["flushes"]) == 2 and not unrecorded["flushes"], "leaders are told of where there is a record")
        for flush in ours["flushes"]:
            check_leaders(flush, ours["bytes"])
        expect(said.count("leaders 2, mean") == 2, f"a line for each flush:\n{said}")

        for wrong, why in (("nokey=1", "nokey"), ("files=2", "itself sets files"), ("writers=many", "writers"),
                           ("record_dir=x", "itself sets record_dir")):
            expect(why in bench(disk, "--variant", wrong, code=1), f"{wrong} is refused before anything runs")
        expect("has the form KEY=VALUE" in bench(disk, "--variant", "fast", code=1), "a variant is made of settings")
        expect("there is no strategy fast" in bench(disk, "--only", "fast", code=1), "unknown names are refused")
        said = bench(disk, "--local-dir", local, "--size", "1TiB", "--warm-up", "100", code=1)
        expect("bytes free" in said, f"what does not fit is refused:\n{said}")
        said = bench(disk, "--local-dir", local, "--size", "1MiB", "-o", os.path.join(top, "no", "file"), code=1)
        expect("No such file" in said and "K = 1" not in said, f"where results go is looked at first:\n{said}")
        expect(os.listdir(disk) == [] and os.listdir(local) == [], "refusals leave files")

        # The second K is more than tailrace takes: that ends the job, its files go, and the first K's results are there.
        # (What a rank says before MPI_Abort may be lost on its way through mpiexec.)
        said = bench(disk, "--local-dir", local, "--size", "1MiB", "--only", "tailrace", "--repeat", "1",
                     "--files", "2,100000", "-o", results, code=1)
        expect(os.listdir(disk) == [] and os.listdir(local) == [], f"a failure leaves files:\n{said}")
        with open(results, encoding="utf-8") as file:
            expect([run["files"] for run in json.load(file)["runs"]] == [2], "results of the K that worked are there")
        for number in (signal.SIGTERM, signal.SIGHUP):
            end_by_signal(options, disk, local, number)
    except (Failure, subprocess.TimeoutExpired) as failure:
        print(failure)
        said = getattr(failure, "output", None)
        if said:  # how far a run came that did not end in time
            print(said.decode(errors="replace"))
        return 1
    finally:
        shutil.rmtree(top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
