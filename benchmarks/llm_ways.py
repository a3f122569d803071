"""The ways to save and load that bench_llm.py compares.

Each way is made from the state and the directory to measure. save(state, place) returns a function
that waits until the checkpoint is complete. load(state, place) fills the state. `synced` says
whether the way makes its files durable by itself, and `compares` whether a load returns the state.
Making a way raises ImportError or OSError if it is not available. Imported on every rank.
"""

import functools
import mmap
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


@functools.cache
def raw_buffer(size):
    """A buffer as large as this rank's state, at the start of a page, with some content."""
    buffer = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    torch.frombuffer(buffer, dtype=torch.uint8).random_()
    return memoryview(buffer)


class Raw:
    """One buffer per rank, written and read sequentially, through the cache, in requests of 16 MiB."""

    synced = True
    compares = False
    request_bytes = 16 << 20

    def __init__(self, state, directory):
        self.buffer = raw_buffer(llm_state.local_bytes(state))

    def save(self, state, place):
        with open(own_file(place), "wb", buffering=0) as file:
            self.transfer(file.write)
            os.fsync(file.fileno())
        return nothing

    def load(self, state, place):
        with open(own_file(place), "rb", buffering=0) as file:
            self.transfer(file.readinto)

    def transfer(self, call):
        for start in range(0, len(self.buffer), self.request_bytes):
            part = self.buffer[start:start + self.request_bytes]
            assert call(part) == len(part), "a short write or read"


class RawDirect(Raw):
    """All ranks write the same into one file, around the cache, with one request in flight each."""

    def __init__(self, state, directory):
        super().__init__(state, directory)
        sizes = [None] * dist.get_world_size()
        dist.all_gather_object(sizes, len(self.buffer))
        self.offset = sum(sizes[:dist.get_rank()])
        probe = os.path.join(directory, f"probe{dist.get_rank()}")
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
        os.remove(probe)

    def save(self, state, place):
        with open(self.file(place), "wb", buffering=0, opener=self.open_direct) as file:
            file.seek(self.offset)
            self.transfer(file.write)
            os.fsync(file.fileno())
        return nothing

    def load(self, state, place):
        with open(self.file(place), "rb", buffering=0) as file:
            file.seek(self.offset)
            self.transfer(file.readinto)

    @staticmethod
    def file(place):
        return os.path.join(place, "shared")

    @staticmethod
    def open_direct(path, flags):
        return os.open(path, (flags & ~os.O_TRUNC) | os.O_DIRECT, 0o644)


def copy_into(state, loaded):
    for name, tensor in llm_state.local_part(state).items():
        tensor.copy_(loaded[name])


class TorchSave:
    compares = True
    synced = False
    mmap = False

    def __init__(self, state, directory):
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
    compares = True
    synced = False

    def __init__(self, state, directory):
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
    compares = True
    synced = True

    def __init__(self, state, directory):
        pass

    def save(self, state, place):
        import tailrace.torch
        tailrace.torch.save(llm_state.local_part(state), own_file(place))
        return nothing

    def load(self, state, place):
        import tailrace.torch
        tailrace.torch.load(own_file(place), into=llm_state.local_part(state))


class TailraceSaveMmap(TailraceSave):
    """Loads tensors over the mapped file. Mapped bytes are not compared with their checksums, and those
    of the other libraries have none."""

    def load(self, state, place):
        import tailrace.torch
        copy_into(state, tailrace.torch.load(own_file(place), mmap=True))


class TailraceOpen(TailraceSave):
    """Takes one tensor after the other. Each is compared with its checksums."""

    def load(self, state, place):
        import tailrace.torch
        with tailrace.torch.open(own_file(place)) as file:
            for name, tensor in llm_state.local_part(state).items():
                tensor.copy_(file[name])


class Dcp:
    """PyTorch's own writer. The asynchronous one is in its best form: staging memory is kept, and
    plans are cached."""

    compares = True
    synced = True
    asynchronous = False

    def __init__(self, state, directory):
        self.group = dist.new_group(backend="gloo")
        # PyTorch keeps plans by the planner's class. Another way's plans would lack what this
        # writer puts there.
        self.planner = type("Planner" + type(self).__name__, (DefaultSavePlanner,), {})
        self.writer = self.make_writer()
        self.stager = self.make_stager()

    def make_writer(self):
        return dcp.FileSystemWriter("")

    def make_stager(self):
        return DefaultStager(StagingOptions(False, False, False, False))

    def reader(self, place):
        return dcp.FileSystemReader(place)

    def save(self, state, place):
        planner = self.planner(enable_plan_caching=True)
        given = dict(checkpoint_id=place, storage_writer=self.writer, planner=planner, process_group=self.group)
        if not self.asynchronous:
            dcp.save(state, **given)
            return nothing
        return dcp.async_save(state, async_stager=self.stager, **given).result

    def load(self, state, place):
        dcp.load(state, storage_reader=self.reader(place))


class DcpAsync(Dcp):
    asynchronous = True


class DcpSafetensors(Dcp):
    """DCP's writer of safetensors files. Each rank writes its shards."""

    def save(self, state, place):
        writer = dcp.HuggingFaceStorageWriter(place, save_distributed=True)
        dcp.save(state, storage_writer=writer, process_group=self.group)
        return nothing

    def reader(self, place):
        return dcp.HuggingFaceStorageReader(place)


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


class TorchSnapshot:
    compares = True
    synced = False

    def __init__(self, state, directory):
        import torchsnapshot
        self.torchsnapshot = torchsnapshot

    def save(self, state, place):
        whole = self.torchsnapshot.StateDict(**llm_state.local_part(state))
        self.torchsnapshot.Snapshot.take(place, {"state": whole})
        return nothing

    def load(self, state, place):
        whole = self.torchsnapshot.StateDict(**llm_state.local_part(state))
        self.torchsnapshot.Snapshot(place).restore({"state": whole})


class DeepSpeedEngine:
    """A ZeRO-3 engine's calls to its checkpoint engine, with its files' names. They need no training."""

    compares = True
    synced = False

    def __init__(self, state, directory):
        from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo
        self.info = CheckpointCommitInfo
        self.engine = self.make_engine()

    def make_engine(self):
        from types import SimpleNamespace

        from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
        from deepspeed.runtime.model_checkpointing import CHECKPOINT_SERIALIZATION, CHECKPOINT_SERIALIZATION_DEFAULT
        settings = {CHECKPOINT_SERIALIZATION: CHECKPOINT_SERIALIZATION_DEFAULT}
        return TorchCheckpointEngine(SimpleNamespace(checkpoint_config=settings))

    def save(self, state, place):
        info = self.info(os.path.basename(place), os.path.dirname(place), False)
        self.engine.create(info)
        for path, part in self.parts(state, place):
            self.engine.save(part, path)
        return self.finish(info)

    def finish(self, info):
        self.engine.commit(info)
        return nothing

    def load(self, state, place):
        for path, part in self.parts(state, place):
            loaded = self.engine.load(path, map_location="cpu")
            for name, tensor in part.items():
                tensor.copy_(loaded[name])

    @staticmethod
    def parts(state, place):
        whole = llm_state.local_part(state)
        path = os.path.join(place, f"zero_pp_rank_{dist.get_rank()}_mp_rank_00_")
        model = {name: tensor for name, tensor in whole.items() if name.startswith("model.")}
        optimizer = {name: tensor for name, tensor in whole.items() if name not in model}
        return [(path + "model_states.pt", model), (path + "optim_states.pt", optimizer)]


class TailraceDeepSpeedEngine(DeepSpeedEngine):
    synced = True

    def make_engine(self):
        from tailrace.torch.deepspeed import TailraceCheckpointEngine
        return TailraceCheckpointEngine(files=1)

    def finish(self, info):
        self.engine.start()
        return self.engine.wait

    def load(self, state, place):
        super().load(state, place)
        self.engine.end_reading()  # as install() does; otherwise a later save would pay for closing removed files


WAYS = {
    "raw, one file per rank": Raw,
    "raw, one file, direct": RawDirect,
    "torch.save": TorchSave,
    "torch.save, mmap": TorchSaveMmap,
    "safetensors": Safetensors,
    "tailrace.torch.save": TailraceSave,
    "tailrace.torch.save, mmap": TailraceSaveMmap,
    "tailrace.torch.open": TailraceOpen,
    "DCP": Dcp,
    "DCP async": DcpAsync,
    "DCP safetensors": DcpSafetensors,
    "torchsnapshot": TorchSnapshot,
    "DeepSpeed": DeepSpeedEngine,
    "tailrace DeepSpeed, K = 1": TailraceDeepSpeedEngine,
    "tailrace DCP, K = 1": TailraceDcp,
    "tailrace DCP async, K = 1": TailraceDcpAsync,
    "tailrace DCP async, K = 2": TailraceDcpTwoFiles,
}
