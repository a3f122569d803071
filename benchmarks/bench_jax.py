#!/usr/bin/env python3
"""make bench-jax: checkpoints of a training state in JAX on 2 processes, with Orbax and with tailrace's handler in it.

All ways are Orbax's AsyncCheckpointer on the same arrays. What differs is the handler: Orbax's own with its defaults,
or tailrace's. The ways take turns over several rounds, so that all see the same machine. For each it measures

  - the files of a checkpoint, and their bytes,
  - the seconds for which the program is blocked (`save` returns),
  - the seconds until the checkpoint is durable (`wait_until_finished` returns). tailrace syncs its files, and so does
    TensorStore, with which Orbax writes,
  - the seconds of a restore onto the same shardings after its files were dropped from the cache, and
  - the extra memory of both above the state, with what a way keeps from save to save.

It prints the slowest process's medians with their spread (least to most). The second table has the ratio to Orbax
within each round, as median and spread. If the spread of a ratio contains 1, the run shows no difference.

Before each restore the whole machine is synced and the files are dropped from the cache. Process 0 checks how much of
them is still cached. Every restore is compared with what was saved.
"""

import argparse
import gc
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import ending
from cold_files import PeakMemory, cached_share, drop_from_cache
from progress import Progress

PROCESSES, DEVICES = 2, 2  # devices of each process
ORBAX = "Orbax"
WAYS = {ORBAX: None, "tailrace, K = 1": 1, "tailrace, K = 2": 2}  # number of files


def shapes(layers, hidden, vocabulary):
    found = {"embedding": (vocabulary, hidden), "norm": (hidden,)}
    for layer in range(layers):
        found |= {f"layer_{layer}": {
            "attention": {"qkv": (hidden, 3 * hidden), "out": (hidden, hidden)}, "norm": (hidden,),
            "mlp": {"up": (hidden, 4 * hidden), "up_bias": (4 * hidden,), "down": (4 * hidden, hidden)}}}
    return found


def make_state(sizes):
    """Parameters and AdamW's moments of a transformer, as flax and optax have them: matrices are sharded over all
    devices by rows, vectors are on all of them."""
    import jax
    import numpy as np
    import optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.asarray(jax.devices()), ("devices",))

    def array(shape, seed):
        def part(index):
            extent = [len(range(*one.indices(length))) for one, length in zip(index, shape)]
            start = index[0].indices(shape[0])[0]
            return np.random.default_rng([seed, start]).random(extent, np.float32)

        spec = PartitionSpec("devices" if len(shape) == 2 and shape[0] % mesh.size == 0 else None)
        return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), part)

    is_shape = dict(is_leaf=lambda leaf: isinstance(leaf, tuple))
    flat, structure = jax.tree.flatten(shapes(*sizes), **is_shape)
    trees = [structure.unflatten([array(shape, 100 * i + part) for i, shape in enumerate(flat)]) for part in range(3)]
    count = array((1,), 1)
    return {"params": trees[0], "opt_state": (optax.ScaleByAdamState(count, trees[1], trees[2]), optax.EmptyState())}


def local_bytes(state):
    import jax
    return sum(shard.data.nbytes for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards)


def differences(state, other):
    import jax
    import numpy as np
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True)
    return sum(not np.array_equal(mine.data, its.data) for one, two in pairs
               for mine, its in zip(one.addressable_shards, two.addressable_shards, strict=True))


class Way:
    """An AsyncCheckpointer that is kept from round to round, as a training loop does."""

    def __init__(self, files):
        import orbax.checkpoint as ocp

        from tailrace.jax.orbax import TailraceHandler, TailraceRestore, TailraceSave

        self.handler = ocp.StandardCheckpointHandler() if files is None else TailraceHandler(files=files)
        self.save_args, self.restore_args = (
            (ocp.args.StandardSave, ocp.args.StandardRestore) if files is None else (TailraceSave, TailraceRestore))
        self.checkpointer = ocp.AsyncCheckpointer(self.handler)

    def kept_bytes(self):
        """Memory that stays after a save for the next one."""
        saver = getattr(self.handler, "_saver", None)
        return 0 if saver is None else sum(array.nbytes for array in saver._kept.values())

    def save(self, state, place):
        self.checkpointer.save(place, args=self.save_args(state))
        return self.checkpointer.wait_until_finished

    def restore(self, target, place):
        return self.checkpointer.restore(place, args=self.restore_args(target))


def measure(way, state, place):
    """One save and one restore: what this process has seen."""
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    gc.collect()
    sync_global_devices("before the save")
    kept = way.kept_bytes()
    with PeakMemory() as save_memory:
        begin = time.monotonic()
        wait = way.save(state, place)
        blocked = time.monotonic() - begin
        wait()
        durable = time.monotonic() - begin
    os.sync()
    sync_global_devices("saved")
    paths = [os.path.join(directory, name) for directory, _, names in os.walk(place) for name in names]
    files, nbytes = len(paths), sum(os.path.getsize(path) for path in paths)
    drop_from_cache(place)
    sync_global_devices("dropped")
    cached = cached_share(place) if jax.process_index() == 0 else 0
    target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state)
    sync_global_devices("before the restore")
    with PeakMemory() as restore_memory:
        begin = time.monotonic()
        found = jax.block_until_ready(way.restore(target, place))
        restore = time.monotonic() - begin
    wrong = differences(state, found)
    if wrong:
        raise AssertionError(f"{place}: {wrong} shards differ from what was saved")
    del found
    sync_global_devices("compared")
    if jax.process_index() == 0:
        shutil.rmtree(place)
    return {"files": files, "bytes": nbytes, "blocked": blocked, "durable": durable, "restore": restore,
            "save_memory": save_memory.bytes + kept, "restore_memory": restore_memory.bytes, "cached": cached}


def worker(options):
    """A process of the run. Process 0 writes the rounds into options.json."""
    import logging

    import jax
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    logging.getLogger("absl").setLevel(logging.ERROR)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{options.port}", PROCESSES, options.process)
    state = make_state((options.layers, options.hidden, options.vocabulary))
    ways = {name: Way(WAYS[name]) for name in options.ways}
    rounds = {name: [] for name in ways}
    first = options.process == 0
    progress = Progress((options.rounds + 1) * len(ways)) if first else None
    names = list(ways)
    for number in range(options.rounds + 1):  # the first warms up what each way keeps
        for name in names[number % len(names):] + names[:number % len(names)]:
            step = f"round {number} of {options.rounds}, {name}" if number > 0 else f"warm-up, {name}"
            if progress:
                progress.begin(step)
            mine = measure(ways[name], state, os.path.join(options.directory, f"{number}-{names.index(name)}"))
            everybody = np.asarray(process_allgather(np.array(list(mine.values()), np.float32)))
            if number > 0:
                rounds[name].append(dict(zip(mine, everybody.reshape(PROCESSES, -1).max(axis=0).tolist())))
            if progress:
                progress.end(step)
    if first:
        progress.close()
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        leaves = len(jax.tree.leaves(state))
        with open(options.json, "w") as file:
            json.dump({"processes": PROCESSES, "devices": PROCESSES * DEVICES, "state_bytes": state_bytes,
                       "arrays": leaves, "rounds": rounds}, file, indent=1)
    jax.distributed.shutdown()


COLUMNS = [  # title, key, digits, unit
    ("files", "files", 0, 1), ("MiB", "bytes", 0, 2**20), ("blocked s", "blocked", 2, 1),
    ("durable s", "durable", 2, 1), ("restore s", "restore", 2, 1), ("save MiB", "save_memory", 0, 2**20),
    ("restore MiB", "restore_memory", 0, 2**20),
]
COMPARED = ("blocked", "durable", "restore")


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def ratios(rounds, name, key):
    """Orbax's value over the way's, in each round: above 1 the way is better."""
    return [theirs[key] / ours[key] for theirs, ours in zip(rounds[ORBAX], rounds[name])]


def verdict(values):
    return "no difference shown" if min(values) <= 1 <= max(values) else "better" if min(values) > 1 else "worse"


def print_tables(found):
    rounds = found["rounds"]
    print(f"{found['state_bytes'] / 2**20:.0f} MiB in {found['arrays']} arrays on {found['processes']} processes with "
          f"{found['devices']} devices; median (least-most) of {len(next(iter(rounds.values())))} rounds, of the "
          "slowest process")
    print(" " * 16 + "".join(title.rjust(20) for title, *_ in COLUMNS))
    for name, measured in rounds.items():
        cells = [spread([one[key] / unit for one in measured], digits) for _, key, digits, unit in COLUMNS]
        print(f"{name:16}" + "".join(cell.rjust(20) for cell in cells))
    cached = max(one["cached"] for measured in rounds.values() for one in measured)
    print("cold: before each restore sync(2), and the files are dropped from the cache; at most "
          f"{100 * cached:.1f} % of their pages were cached then")
    if ORBAX in rounds:
        print("\nOrbax's value over the way's in the same round; above 1 the way is better")
        for name in rounds:
            for key in COMPARED if name != ORBAX else ():
                values = ratios(rounds, name, key)
                print(f"{name:16} {key:16} {spread(values, 2):24} {verdict(values)}")


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="a directory on the file system to measure (default: the current one)")
    parser.add_argument("--ways", help="only these ways, separated by semicolons: " + "; ".join(WAYS))
    parser.add_argument("--json", help="also write all rounds to this file")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.ways = [way.strip() for way in options.ways.split(";")] if options.ways else list(WAYS)
    unknown = [way for way in options.ways if way not in WAYS]
    if unknown:
        parser.error(f"there is no way '{unknown[0]}'; the ways are: {'; '.join(WAYS)}")
    if options.process is not None:
        worker(options)
        return
    ending.by_exception()
    with tempfile.TemporaryDirectory(prefix="bench-jax-", dir=options.directory or os.getcwd()) as directory:
        found = run(options, directory)
    print_tables(found)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


def run(options, directory):
    """Runs all rounds in processes of their own. Returns what process 0 has written."""
    told = os.path.join(directory, "rounds.json")
    sizes = [f"--{name}={getattr(options, name)}" for name in ("layers", "hidden", "vocabulary", "rounds")]
    given = ["--ways", ";".join(options.ways), "--directory", directory, "--json", told, f"--port={free_port()}"]
    devices = f"--xla_force_host_platform_device_count={DEVICES}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}
    command = [sys.executable, os.path.abspath(__file__), *sizes, *given]
    started = []
    try:
        for rank in range(PROCESSES):
            started.append(subprocess.Popen([*command, f"--process={rank}"], env=environment))
        codes = [process.wait() for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    if any(codes):
        sys.exit(f"the processes ended with {codes}")
    with open(told) as file:
        return json.load(file)


if __name__ == "__main__":
    main()
