"""The ways to save and load that bench_llm.py compares. Each has save(state, place), which returns a function that
waits until the checkpoint is complete, and load(state, place), which fills the state. `synced` says whether the way
makes its files durable by itself. Imported on every rank.
"""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

import llm_state


def nothing():
    pass


def own_file(place):
    return os.path.join(place, f"rank{dist.get_rank()}")


class Raw:
    """One buffer per rank, written and read sequentially, through the cache, in requests of 16 MiB."""

    synced = True
    request_bytes = 16 << 20

    def __init__(self, state):
        self.buffer = memoryview(bytearray(llm_state.local_bytes(state)))

    def save(self, state, place):
        with open(own_file(place), "wb", buffering=0) as file:
            for start in range(0, len(self.buffer), self.request_bytes):
                file.write(self.buffer[start:start + self.request_bytes])
            os.fsync(file.fileno())
        return nothing

    def load(self, state, place):
        with open(own_file(place), "rb", buffering=0) as file:
            for start in range(0, len(self.buffer), self.request_bytes):
                file.readinto(self.buffer[start:start + self.request_bytes])


def copy_into(state, loaded):
    for name, tensor in llm_state.local_part(state).items():
        tensor.copy_(loaded[name])


class TorchSave:
    synced = False
    mmap = False

    def __init__(self, state):
        pass

    def save(self, state, place):
        torch.save(llm_state.local_part(state), own_file(place))
        return nothing

    def load(self, state, place):
        loaded = torch.load(own_file(place), weights_only=True, mmap=self.mmap)
        copy_into(state, loaded)


class TorchSaveMmap(TorchSave):
    mmap = True


class Safetensors:
    synced = False

    def __init__(self, state):
        pass

    def save(self, state, place):
        import safetensors.torch
        safetensors.torch.save_file(llm_state.local_part(state), own_file(place))
        return nothing

    def load(self, state, place):
        import safetensors.torch
        loaded = safetensors.torch.load_file(own_file(place))
        copy_into(state, loaded)


class TailraceSave:
    synced = True

    def __init__(self, state):
        pass

    def save(self, state, place):
        import tailrace.torch
        tailrace.torch.save(llm_state.local_part(state), own_file(place))
        return nothing

    def load(self, state, place):
        import tailrace.torch
        loaded = tailrace.torch.load(own_file(place))
        copy_into(state, loaded)


class Dcp:
    """PyTorch's own writer; asynchronous in its best form: staging memory that is kept, and cached plans."""

    synced = True
    asynchronous = False

    def __init__(self, state):
        self.group = dist.new_group(backend="gloo")
        self.writer = self.make_writer()
        self.stager = self.make_stager()

    def make_writer(self):
        return dcp.FileSystemWriter("")

    def make_stager(self):
        return DefaultStager(StagingOptions(False, False, False, False))

    def reader(self, place):
        return dcp.FileSystemReader(place)

    def save(self, state, place):
        planner = DefaultSavePlanner(enable_plan_caching=True)
        given = dict(checkpoint_id=place, storage_writer=self.writer, planner=planner, process_group=self.group)
        if not self.asynchronous:
            dcp.save(state, **given)
            return nothing
        return dcp.async_save(state, async_stager=self.stager, **given).result

    def load(self, state, place):
        dcp.load(state, storage_reader=self.reader(place))


class DcpAsync(Dcp):
    asynchronous = True


class TailraceDcp(Dcp):
    files = 1

    def make_writer(self):
        from tailrace.torch import StorageWriter
        return StorageWriter(files=self.files)

    def make_stager(self):
        return None  # the writer's own

    def reader(self, place):
        from tailrace.torch import StorageReader
        return StorageReader(place)


class TailraceDcpAsync(TailraceDcp):
    asynchronous = True


class TailraceDcpTwoFiles(TailraceDcpAsync):
    files = 2


WAYS = {
    "raw, one file per rank": Raw,
    "torch.save": TorchSave,
    "torch.save, mmap": TorchSaveMmap,
    "safetensors": Safetensors,
    "tailrace.torch.save": TailraceSave,
    "DCP": Dcp,
    "DCP async": DcpAsync,
    "tailrace DCP, K = 1": TailraceDcp,
    "tailrace DCP async, K = 1": TailraceDcpAsync,
    "tailrace DCP async, K = 2": TailraceDcpTwoFiles,
}
