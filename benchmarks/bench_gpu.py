#!/usr/bin/env python3
"""make bench-gpu: copying a training state from a GPU into host memory, with tailrace and with PyTorch.

The ways take turns over several rounds, so that all see the same machine. The limit is one copy of
the same bytes, from one GPU buffer into one pinned buffer. For each way it measures

  - the seconds for which the program is blocked,
  - the seconds until the copy is complete, and
  - how much longer a training step on the GPU takes while the copy runs.

It prints medians over the rounds, with the smallest and largest, and ratios to the limit in the
same round. "first" takes new pinned memory, as a first save does. The others use memory again.
The copies of stagers stay in memory, so no file system plays a part. "tailrace, session" writes into
/dev/shm, and its flush counts as the rest of the copy. Every staged copy is compared with the state.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time

import torch
from progress import Progress
from torch.distributed.checkpoint.staging import BlockingAsyncStager, DefaultStager, StagingOptions

import tailrace
from tailrace.torch import AsyncStager


def make_state(mib, tensors):
    """Weights of one size in bf16, and as many small ones of 4 KiB in fp32, as a model's norms have."""
    each = (mib << 20) // tensors // 2 // 1024
    state = {}
    for number in range(tensors):
        state[f"layer.{number}.weight"] = torch.randn(each, 1024, device="cuda").bfloat16()
        state[f"layer.{number}.norm"] = torch.randn(1024, device="cuda")
    return state


class Limit:
    """One copy into pinned memory."""

    def __init__(self, state):
        size = sum(tensor.nbytes for tensor in state.values())
        self.source = torch.zeros(size, dtype=torch.uint8, device="cuda")
        self.target = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.stream = torch.cuda.Stream()

    def begin(self, state):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.target.copy_(self.source, non_blocking=True)

    def end(self):
        self.stream.synchronize()


class Tailrace:
    """AsyncStager as StorageWriter uses it."""

    def __init__(self, state, background):
        self.stager, self.background = AsyncStager(background=background), background

    def begin(self, state):
        self.made = self.stager.stage_again(state)

    def end(self):
        return self.made.result() if self.background else self.made


class Session:
    """A session's save, which copies the state once more, into the node-local tier in /dev/shm. The
    flush is waited for and not measured."""

    def __init__(self, state):
        self.place = tempfile.TemporaryDirectory(prefix="bench-gpu-", dir="/dev/shm")
        self.session = tailrace.open(shared_dir=f"{self.place.name}/shared", local_dir=f"{self.place.name}/local")
        self.step = 0

    def begin(self, state):
        self.step += 1
        self.session.save(self.step, state)

    def end(self):
        self.session.wait()


class TailraceFirst(Tailrace):
    def begin(self, state):
        self.stager.close()
        torch._C._host_emptyCache()
        self.stager = AsyncStager(background=False)
        super().begin(state)


class Torch:
    """PyTorch's DefaultStager, which it advises for asynchronous saves."""

    def __init__(self, state, background):
        self.background = background
        options = StagingOptions(
            use_pinned_memory=True,
            use_shared_memory=True,
            use_async_staging=background,
            use_non_blocking_copy=True,
        )
        self.stager = DefaultStager(options)

    def begin(self, state):
        self.made = self.stager.stage(state)

    def end(self):
        made = self.made.result() if self.background else self.made
        torch.cuda.synchronize()  # its copies are asynchronous
        return made


class TorchBlocking(Torch):
    """PyTorch's BlockingAsyncStager, with memory that it keeps."""

    def __init__(self, state):
        self.stager, self.background = BlockingAsyncStager(cache_staged_state_dict=True), False


WAYS = {
    "one copy, pinned (the limit)": Limit,
    "tailrace, first": lambda state: TailraceFirst(state, False),
    "tailrace": lambda state: Tailrace(state, False),
    "tailrace, session": Session,
    "tailrace, background": lambda state: Tailrace(state, True),
    "PyTorch's default": lambda state: Torch(state, False),
    "PyTorch's default, background": lambda state: Torch(state, True),
    "PyTorch's blocking, kept": TorchBlocking,
}
LIMIT = next(iter(WAYS))


class Training:
    """Products of matrices, as a training step has them, queued from Python."""

    def __init__(self):
        self.a = torch.randn(4096, 4096, device="cuda").bfloat16()
        self.b = torch.randn(4096, 4096, device="cuda").bfloat16()

    def steps(self, count):
        """The median milliseconds of a step."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            for _ in range(20):
                torch.mm(self.a, self.b)
            mark.record()
        torch.cuda.current_stream().synchronize()
        return statistics.median(one.elapsed_time(two) for one, two in itertools.pairwise(marks))


def measure(way, state, training, steps):
    torch.cuda.synchronize()
    begin = time.monotonic()
    way.begin(state)
    blocked = time.monotonic() - begin
    made = way.end()
    complete = time.monotonic() - begin
    if made is not None:
        for name, tensor in made.items():
            if not torch.equal(tensor.cuda(), state[name]):
                raise AssertionError(f"{name} differs")
    torch.cuda.synchronize()
    alone = training.steps(steps)
    way.begin(state)
    beside = training.steps(steps)
    way.end()
    return {"blocked": blocked, "complete": complete, "slower": beside / alone}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096, help="size of the state (default: 4096)")
    parser.add_argument("--tensors", type=int, default=128, help="large tensors, and as many small (default: 128)")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_gpu: PyTorch finds no GPU here; this benchmark measures copies from one")
    state, training = make_state(options.mib, options.tensors), Training()
    size = sum(tensor.nbytes for tensor in state.values())
    ways = {name: make(state) for name, make in WAYS.items()}
    rounds, absent = {name: [] for name in ways}, {}
    progress = Progress((options.rounds + 1) * len(ways))
    for number in range(options.rounds + 1):  # the first warms up what each way keeps
        for name, way in ways.items():
            step = f"round {number} of {options.rounds}, {name}" if number else f"warm-up, {name}"
            progress.begin(step)
            try:
                measured = measure(way, state, training, 20)
            except Exception as error:  # of a way that this version of PyTorch does not have, or that fails in it
                if name not in absent and name.startswith("PyTorch"):
                    absent[name] = f"{type(error).__name__}: {error}"
                elif name not in absent:
                    raise
            else:
                if number:
                    rounds[name].append(measured)
            progress.end(step)
    progress.close()
    for name, why in absent.items():
        rounds.pop(name)
        print(f"{name} is left out: {why}")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {size / 2**30:.2f} GiB in "
          f"{len(state)} tensors,")
    print(f"medians of {options.rounds} rounds; x limit: how fast it is beside one pinned copy in the same round;")
    print("step x: how long a training step takes while the copy runs, beside one without a copy")
    print_table(rounds, size)


def print_table(rounds, size):
    titles = "blocked s", "complete s", "GiB/s", "x limit", "smallest", "largest", "step x"
    print(" " * 30 + "".join(title.rjust(12) for title in titles))
    limit = [one["complete"] for one in rounds[LIMIT]]
    for name, measured in rounds.items():
        ratios = [least / one["complete"] for least, one in zip(limit, measured, strict=True)]
        blocked, complete, slower = (
            statistics.median(one[key] for one in measured) for key in ("blocked", "complete", "slower"))
        cells = (f"{blocked:.4f}", f"{complete:.4f}", f"{size / 2**30 / complete:.1f}",
                 f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}", f"{slower:.3f}")
        print(name.ljust(30) + "".join(cell.rjust(12) for cell in cells))


if __name__ == "__main__":
    main()
