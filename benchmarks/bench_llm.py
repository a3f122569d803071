#!/usr/bin/env python3
"""make bench-llm: checkpoints of a language model's training state on 2 ranks, with tailrace and with
other libraries.

The ways take turns over several rounds, so that all see the same machine. For each it measures

  - the seconds for which the program is blocked,
  - the seconds until the checkpoint is durable (if the way syncs; else until it has returned),
  - the seconds of a load after its files were dropped from the cache,
  - the seconds of a second load, with all of the files in the cache, and
  - the extra memory of save and cold load above the state. A load's is the memory that no file
    backs; what it maps of files is in a column of its own, because the kernel can drop it.

It prints the slowest rank's medians over the rounds, and ratios in the same run: to a raw direct
write of the same bytes into one file with one request in flight per rank, and to a raw sequential
read through the cache. Every load is compared with what was saved.

Before each load the whole machine is synced and the files are dropped from the cache. Rank 0 checks
how much of them is still cached (mincore). The last table has tailrace's aims: what was measured,
and whether the aim is reached.

If strace is installed, one more round runs under `tailrace profile`. It uses tailrace's posix
engine, because strace does not see io_uring's requests. It gives the writes and reads per GiB and
the backward seeks of a load.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import ending
import llm_aims
import llm_state
from cold_files import PeakMemory, PrivatePeakMemory, cached_share, drop_from_cache, read_into_cache
from llm_ways import WAYS
from progress import Progress

RANKS = 2
RAW_WRITE, RAW_READ = "raw, one file, direct", "raw, one file per rank"
PROFILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools", "profile")


def measure(way, state, blank, place):
    """One save and one load: seconds and bytes of this rank."""
    if dist.get_rank() == 0:
        os.makedirs(place)
    dist.barrier()
    with PeakMemory() as save_memory:
        begin = time.monotonic()
        wait = way.save(state, place)
        blocked = time.monotonic() - begin
        wait()
        durable = time.monotonic() - begin
    os.sync()  # for ways that do not sync, before their files are dropped
    dist.barrier()
    files = sum(len(names) for _, _, names in os.walk(place))
    drop_from_cache(place)
    dist.barrier()
    cached = cached_share(place) if dist.get_rank() == 0 else 0
    load_memory = PrivatePeakMemory()
    load = time_load(way, state, blank, place, load_memory)
    return {"blocked": blocked, "durable": durable, "load": load, "save_memory": save_memory.bytes,
            "load_memory": load_memory.private_bytes, "load_resident": load_memory.bytes,
            "files": files, "cached": cached}


def time_warm_load(way, state, blank, place):
    if dist.get_rank() == 0:
        read_into_cache(place)
    return time_load(way, state, blank, place, contextlib.nullcontext())


def time_load(way, state, blank, place, memory):
    """The seconds of one load of all ranks at the same time, which is then compared with the state."""
    for tensor in blank.values():
        tensor.to_local().zero_()
    dist.barrier()
    with memory:
        begin = time.monotonic()
        way.load(blank, place)
        seconds = time.monotonic() - begin
    wrong = llm_state.differences(state, blank) if way.compares else []
    if wrong:
        raise AssertionError(f"{place}: {len(wrong)} tensors differ, {wrong[0]} first")
    dist.barrier()
    return seconds


def place_of(options, number, name):
    return os.path.join(options.directory, f"{number}-{list(WAYS).index(name)}")


def rank_main(rank, options, results):
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.meeting}/store", rank=rank, world_size=RANKS)
    sizes = (options.layers, options.hidden, options.vocabulary)
    state, blank = llm_state.make(*sizes), llm_state.make(*sizes, fill=False)
    ways, absent = {}, {}
    for name in options.ways:
        try:
            ways[name] = WAYS[name](state, options.directory)
        except (ImportError, OSError) as error:
            absent[name] = str(error)
    rounds = {name: [] for name in ways}
    progress = Progress((options.rounds + 1) * len(ways)) if rank == 0 and options.rounds > 0 else None
    for number in range(options.rounds + 1):  # the first warms up what each way keeps
        for name, way in ways.items():
            place = place_of(options, number, name)
            step = f"round {number} of {options.rounds}, {name}" if number > 0 else f"warm-up, {name}"
            if progress:
                progress.begin(step)
            mine = measure(way, state, blank, place)
            if number > 0:  # the calls that are counted are those of the warm-up
                mine["warm"] = time_warm_load(way, state, blank, place)
            if rank == 0:
                shutil.rmtree(place)
            everybody = [None] * RANKS
            dist.all_gather_object(everybody, mine)
            worst = {key: max(one[key] for one in everybody) for key in mine}
            worst["bytes"] = llm_state.local_bytes(state) * RANKS
            if number > 0:
                rounds[name].append(worst)
            if progress:
                progress.end(step)
    if progress:
        progress.close()
    if rank == 0:
        results.put((rounds, absent))
    dist.barrier()
    dist.destroy_process_group()


def count_calls(options):
    """What each way does to its files in a save and a load, by its name. Empty if strace is missing."""
    with tempfile.TemporaryDirectory(prefix="bench-llm-", dir=options.base) as directory:
        told = os.path.join(options.meeting, "profile.json")
        sizes = [f"--{name}={getattr(options, name)}" for name in ("layers", "hidden", "vocabulary")]
        mine = [sys.executable, os.path.abspath(__file__), *sizes, "--ways", ";".join(options.ways)]
        command = [*mine, "--rounds=0", "--directory", directory]
        profiled = subprocess.Popen([sys.executable, PROFILE, "--dir", directory, "-o", told, "--", *command],
                                    env={**os.environ, "TAILRACE_IO_ENGINE": "posix"}, stderr=subprocess.PIPE,
                                    text=True, start_new_session=True)
        try:
            failure = profiled.communicate()[1]
        except BaseException:
            os.killpg(profiled.pid, signal.SIGKILL)  # the program, strace, and what it traces
            profiled.wait()
            raise
        if profiled.returncode != 0:
            print(f"the calls were not counted: {failure.strip().splitlines()[-1]}", file=sys.stderr)
            return {}
    with open(told) as file:
        files = json.load(file)["files"]
    rows = {}
    for number, name in enumerate(WAYS):
        phases = {"save": [], "restore": []}
        for entry in files:
            if re.search(rf"/0-{number}(/|$)", entry["path"]):
                for phase, tallies in phases.items():
                    tallies.append(entry.get(phase, {}))
        save, restore = (lambda key, of=of: sum(tally.get(key, 0) for tally in of) for of in phases.values())
        if save("written_bytes"):
            read_gib = restore("read_bytes") / 2**30
            rows[name] = {
                "written_bytes": save("written_bytes"),
                "writes_per_gib": save("writes") / (save("written_bytes") / 2**30),
                # None if the files were read through mappings.
                "reads_per_gib": restore("reads") / read_gib if read_gib else None,
                "reads_per_write": restore("reads") / save("writes") if read_gib else None,
                "backward": restore("backward_seeks") + restore("backward_offsets"),
                "syncs": save("syncs"),
            }
    return rows


def summarize(rounds, calls):
    rows = {}
    for name, measured in rounds.items():
        rows[name] = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
        rows[name]["warm_spread"] = [of(one["warm"] for one in measured) for of in (min, max)]
        rows[name].update(calls.get(name, {}))
    for row in rows.values():
        if RAW_WRITE in rows:
            row["durable_ratio"] = rows[RAW_WRITE]["durable"] / row["durable"]
        if RAW_READ in rows:
            row["load_ratio"] = rows[RAW_READ]["load"] / row["load"]
    return rows


COLUMNS = [  # title, key, digits, unit
    ("files", "files", 0, 1), ("blocked", "blocked", 2, 1), ("durable", "durable", 2, 1),
    ("x raw", "durable_ratio", 2, 1), ("load", "load", 2, 1), ("x raw", "load_ratio", 2, 1),
    ("warm", "warm", 2, 1), ("smallest to largest", "warm_spread", 2, 1),
    ("save MiB", "save_memory", 0, 2**20), ("load MiB", "load_memory", 0, 2**20),
    ("and mapped", "load_resident", 0, 2**20),
    ("writes/GiB", "writes_per_gib", 0, 1), ("reads/GiB", "reads_per_gib", 0, 1),
    ("reads/write", "reads_per_write", 2, 1), ("backward", "backward", 0, 1),
]


def print_table(rows, absent):
    first = next(iter(rows.values()))
    print(f"{first['bytes'] / 2**30:.2f} GiB on {RANKS} ranks; seconds are medians of the slowest rank;")
    print("x raw: 1.00 is as fast as a direct write into one file, or a sequential read, in this run; larger is faster")
    print("load: cold; warm: with the files in the cache; load MiB: memory of the cold load that no file backs")
    columns = [column for column in COLUMNS if any(column[1] in row for row in rows.values())]
    print(" " * 28 + "".join(title.rjust(max(8, len(title) + 2)) for title, *_ in columns))
    for name, row in rows.items():
        line = ""
        for title, key, digits, unit in columns:
            found = row.get(key)
            values = found if isinstance(found, list) else [] if found is None else [found]
            cell = " to ".join(f"{value / unit:.{digits}f}" for value in values) or "-"
            line += cell.rjust(max(8, len(title) + 2))
        print(f"{name:28}{line}" + ("" if WAYS[name].synced else "  (does not sync)"))
    for name, why in absent.items():
        print(f"{name:28}is not available: {why}")


def print_aims(rows):
    print("\ntailrace's aims, for tailrace's ways in this run:")
    print("\n".join(llm_aims.table(llm_aims.verdicts(rows, RANKS))))
    ours = [name for name in rows if WAYS[name].synced]
    theirs = [name for name in rows if not WAYS[name].synced]
    print(f"synced by themselves: {'; '.join(ours) or 'none'}")
    if theirs:
        print(f"not synced, so `durable` is the end of the call: {'; '.join(theirs)}")
    cached = max(row["cached"] for row in rows.values())
    print("cold: before each load sync(2), and the files are dropped from the cache; at most "
          f"{100 * cached:.1f} % of a way's pages were cached then (median)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="a directory on the file system to measure (default: the current one)")
    parser.add_argument("--ways", help="only these ways, separated by semicolons: " + "; ".join(WAYS))
    parser.add_argument("--no-calls", action="store_false", dest="calls", help="do not count calls with strace")
    parser.add_argument("--json", help="also write all rounds to this file")
    options = parser.parse_args()
    options.ways = [way.strip() for way in options.ways.split(";")] if options.ways else list(WAYS)
    unknown = [way for way in options.ways if way not in WAYS]
    if unknown:
        parser.error(f"there is no way '{unknown[0]}'; the ways are: {'; '.join(WAYS)}")
    options.base = options.directory or os.getcwd()
    ending.by_exception()
    with tempfile.TemporaryDirectory() as options.meeting:
        with tempfile.TemporaryDirectory(prefix="bench-llm-", dir=options.base) as options.directory:
            rounds, absent = run(options)
        if options.rounds == 0:
            return  # for count_calls()
        if options.calls:
            print("the last round: the calls of each way are counted", file=sys.stderr, flush=True)
        calls = count_calls(options) if options.calls else {}
    rows = summarize(rounds, calls)
    print_table(rows, absent)
    print_aims(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"ranks": RANKS, "rounds": rounds, "calls": calls, "absent": absent}, file, indent=1)


def run(options):
    """Runs all rounds. Returns them by the ways' names, and the reasons why some ways are absent."""
    results = mp.get_context("spawn").SimpleQueue()
    try:
        ranks = mp.spawn(rank_main, (options, results), nprocs=RANKS, join=False)
        while results.empty() and not ranks.join(timeout=0.5):
            pass
        found = results.get()
        while not ranks.join():
            pass
        return found
    finally:
        for process in mp.active_children():
            process.kill()
            process.join()


if __name__ == "__main__":
    main()
