#!/usr/bin/env python3
"""make bench-llm: checkpoints of a language model's training state on 2 ranks, tailrace beside the others.

For every way, in turn and several rounds over, so that all see the same machine: the seconds that the program is
blocked, the seconds until the checkpoint is durable (where the way syncs; else until it has returned), the seconds of a
load after its files were dropped from the cache, and the extra memory of both above the state. Medians over the rounds
of the slowest rank, and ratios to a raw sequential write or read of the same bytes in the same run. Every load is
compared with what was saved.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import llm_state
from llm_ways import WAYS

RANKS = 2
RAW = "raw, one file per rank"


def drop_from_cache(place):
    for directory, _, names in os.walk(place):
        for name in names:
            file = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


class PeakMemory:
    """The most memory that this process had above what it had at the start, from the kernel's high-water mark."""

    def __enter__(self):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self.start = self.read("VmRSS")
        return self

    def __exit__(self, *exception):
        self.bytes = max(0, self.read("VmHWM") - self.start)

    @staticmethod
    def read(field):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(field + ":"))


def measure(way, state, blank, place):
    """One save and one load; seconds and bytes of this rank."""
    if dist.get_rank() == 0:
        os.makedirs(place)
    dist.barrier()
    with PeakMemory() as save_memory:
        begin = time.monotonic()
        wait = way.save(state, place)
        blocked = time.monotonic() - begin
        wait()
        durable = time.monotonic() - begin
    os.sync()  # of those that do not sync, before their files are dropped from the cache
    dist.barrier()
    files = sum(len(names) for _, _, names in os.walk(place))
    for tensor in blank.values():
        tensor.to_local().zero_()
    drop_from_cache(place)
    dist.barrier()
    with PeakMemory() as load_memory:
        begin = time.monotonic()
        way.load(blank, place)
        load = time.monotonic() - begin
    wrong = [] if place.endswith("raw") else llm_state.differences(state, blank)
    if wrong:
        raise AssertionError(f"{place}: {len(wrong)} tensors differ, {wrong[0]} first")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(place)
    return {"blocked": blocked, "durable": durable, "load": load, "save_memory": save_memory.bytes,
            "load_memory": load_memory.bytes, "files": files}


def rank_main(rank, options, results):
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.directory}/meeting", rank=rank, world_size=RANKS)
    sizes = (options.layers, options.hidden, options.vocabulary)
    state, blank = llm_state.make(*sizes), llm_state.make(*sizes, fill=False)
    ways = {name: WAYS[name](state) for name in options.ways}
    rounds = {name: [] for name in ways}
    for number in range(options.rounds + 1):  # the first warms up what each way keeps
        for name, way in ways.items():
            place = os.path.join(options.directory, f"{number}-" + ("raw" if name == RAW else "way"))
            mine = measure(way, state, blank, place)
            everybody = [None] * RANKS
            dist.all_gather_object(everybody, mine)
            worst = {key: max(one[key] for one in everybody) for key in mine}
            worst["bytes"] = llm_state.local_bytes(state) * RANKS
            if number > 0:
                rounds[name].append(worst)
            if rank == 0 and sys.stderr.isatty():
                print(f"\rround {number} of {options.rounds}: {name}".ljust(70), end="", file=sys.stderr, flush=True)
    if rank == 0:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        results.put(rounds)
    dist.barrier()
    dist.destroy_process_group()


def summarize(rounds):
    rows = {}
    for name, measured in rounds.items():
        rows[name] = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
    for row in rows.values():
        if RAW in rows:
            row["durable_ratio"] = rows[RAW]["durable"] / row["durable"]
            row["load_ratio"] = rows[RAW]["load"] / row["load"]
    return rows


def print_table(rows):
    first = next(iter(rows.values()))
    print(f"{first['bytes'] / 2**30:.2f} GiB on {RANKS} ranks; seconds are medians of the slowest rank;")
    print("x raw: as fast as the raw sequential write or read of the same run = 1.00, larger is faster")
    print(f"{'':28}{'files':>6}{'blocked':>9}{'durable':>9}{'x raw':>7}{'load':>8}{'x raw':>7}"
          f"{'save MiB':>10}{'load MiB':>10}")
    for name, row in rows.items():
        note = "" if WAYS[name].synced else "  (does not sync)"
        print(f"{name:28}{row['files']:6.0f}{row['blocked']:9.2f}{row['durable']:9.2f}"
              f"{row.get('durable_ratio', float('nan')):7.2f}{row['load']:8.2f}{row.get('load_ratio', float('nan')):7.2f}"
              f"{row['save_memory'] / 2**20:10.0f}{row['load_memory'] / 2**20:10.0f}{note}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="on the file system to measure (default: the current one)")
    parser.add_argument("--ways", help="only these, separated by semicolons: " + "; ".join(WAYS))
    parser.add_argument("--json", help="write all rounds to this file too")
    options = parser.parse_args()
    options.ways = [way.strip() for way in options.ways.split(";")] if options.ways else list(WAYS)
    unknown = [way for way in options.ways if way not in WAYS]
    if unknown:
        parser.error(f"there is no way '{unknown[0]}'; there are: {'; '.join(WAYS)}")
    base = options.directory or os.getcwd()
    with tempfile.TemporaryDirectory(prefix="bench-llm-", dir=base) as directory:
        options.directory = directory
        results = mp.get_context("spawn").SimpleQueue()
        ranks = mp.spawn(rank_main, (options, results), nprocs=RANKS, join=False)
        while results.empty() and not ranks.join(timeout=0.5):
            pass
        rounds = results.get()
        while not ranks.join():
            pass
    print_table(summarize(rounds))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"ranks": RANKS, "rounds": rounds}, file, indent=1)


if __name__ == "__main__":
    main()
