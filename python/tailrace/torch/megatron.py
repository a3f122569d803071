"""Megatron-core: its distributed checkpoints in K files, as a backend of its registry of strategies.

    from megatron.core import dist_checkpointing
    from tailrace.torch.megatron import BACKEND, register

    register(files=2)                                          # on all ranks, after init_process_group
    dist_checkpointing.save(sharded_state_dict, "ckpt/iter_100", sharded_strategy=BACKEND)
    state = dist_checkpointing.load(sharded_state_dict, "ckpt/iter_100")

Megatron's own torch_dist backend uses torch.distributed.checkpoint. These strategies translate a state dict as that
backend does, and give it to StorageWriter and StorageReader. Beside the K files a directory holds what Megatron writes
itself: common.pt (everything that is not sharded) and metadata.json, which comes last and names the backend.

The steps of an asynchronous save:

  1. async_save waits for the last save, copies the shards into memory that is kept, and starts a thread that saves.
  2. Megatron runs the request's function in a process and asks for it after each step. It waits for that thread.
  3. The request's finalize function raises what has failed in the thread. Megatron then writes metadata.json.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.strategies import torch as theirs
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.base import (
    AsyncSaveShardedStrategy,
    StrategyAction,
    register_default_strategy,
)
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan

from tailrace._errors import Code, Error
from tailrace.torch import _groups
from tailrace.torch._reader import StorageReader
from tailrace.torch._staging import AsyncStager
from tailrace.torch._writer import StorageWriter
from tailrace.torch.stopping import Stopping

BACKEND = ("tailrace", 1)  # the name and version under which the strategies are registered

Path = str | os.PathLike[str]


class SaveStrategy(AsyncSaveShardedStrategy):  # type: ignore[misc]
    """Making one is collective over all ranks. It makes one save at a time; a second one waits for the
    first.

    files: K, at most 64 per rank.
    options: those of StorageWriter.
    """

    def __init__(self, files: int = 1, **options: Any) -> None:
        super().__init__(*BACKEND)
        self._writer = StorageWriter(files=files, **options)
        self._stager = AsyncStager()
        self._own = _groups.Group(range(dist.get_world_size()))  # the thread's, for DCP's own collectives
        self._thread: threading.Thread | None = None  # of an asynchronous save
        self._failure: BaseException | None = None  # of that save

    def can_handle_sharded_objects(self) -> bool:
        return True

    def save(self, sharded_state_dict: Any, checkpoint_dir: Path) -> None:
        """Returns when the K files are durable."""
        self.wait()
        self._save(_tried(lambda: _by_key(sharded_state_dict)), checkpoint_dir)

    def async_save(self, sharded_state_dict: Any, checkpoint_dir: Path) -> Any:
        """Returns when the shards are copied, with the AsyncRequest that Megatron schedules."""
        self.wait()
        copies = _tried(lambda: self._copy(_by_key(sharded_state_dict)))
        lock = tempfile.NamedTemporaryFile("wb")  # noqa: SIM115, closed by the thread
        fcntl.lockf(lock, fcntl.LOCK_EX)

        def save() -> None:
            try:
                self._save(copies, checkpoint_dir)
            except BaseException as error:  # DCP's CheckpointException is not an Exception
                self._failure = error
            finally:
                lock.close()  # this releases the lock

        self._thread = threading.Thread(target=save, name="tailrace-megatron")
        self._thread.start()
        return AsyncRequest(_wait_for, (lock.name,), [self.wait])

    def wait(self) -> None:
        """Returns when the last asynchronous save is durable. If it failed, raises Error, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _copy(self, by_key: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """The same shards, with staged data."""
        staged = self._stager.stage_again({key: [shard.data for shard in shards] for key, shards in by_key.items()})
        return {
            key: [dataclasses.replace(shard, data=data) for shard, data in zip(shards, staged[key], strict=True)]
            for key, shards in by_key.items()
        }

    def _save(self, by_key: Future[dict[str, list[Any]]], checkpoint_dir: Path) -> None:
        """Saves. Collective. A failure of this rank is raised on all ranks, because the others enter
        DCP's collectives."""
        state: dict[str, Any] = {}
        try:
            state = theirs.mcore_to_pyt_state_dict(by_key.result(), is_loading=False)
            planner = theirs.MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False)
        except Exception as error:
            planner = _Failing(error)
        state_dict_saver.save(
            state,
            checkpoint_id=checkpoint_dir,
            storage_writer=self._writer,
            planner=planner,
            process_group=self._own.get(),
        )


class LoadStrategy(theirs.TorchDistLoadShardedStrategy):  # type: ignore[misc]
    """trust_pickle: unpickle sharded objects that torch does not load with weights_only=True. They may
    run any code. Otherwise they raise Error (unsupported)."""

    def __init__(self, trust_pickle: bool = False) -> None:
        super().__init__()
        self._trust_pickle = trust_pickle

    def load(self, sharded_state_dict: Any, checkpoint_dir: Path) -> Any:
        tensors = [value for value in nested_values(sharded_state_dict) if isinstance(value, ShardedTensor)]
        planner = theirs.MCoreLoadPlanner(
            shapes_validation_sharded_tensors=[tensor for tensor in tensors if not tensor.allow_shape_mismatch],
            allow_shape_mismatch_sharded_tensors={t.key: t for t in tensors if t.allow_shape_mismatch},
        )
        by_key, nesting, names = theirs._replace_state_dict_keys_with_sharded_keys(sharded_state_dict)
        state = theirs.mcore_to_pyt_state_dict(by_key, is_loading=True)
        reader = StorageReader(trust_pickle=self._trust_pickle)
        state_dict_loader.load(state, checkpoint_id=checkpoint_dir, storage_reader=reader, planner=planner)
        plain = {key: theirs._unwrap_pyt_sharded_tensor(value) for key, value in state.items()}
        loaded = theirs._replace_sharded_keys_with_state_dict_keys(plain, nesting, names)
        theirs._restore_dict_types(loaded, sharded_state_dict)
        return loaded

    def load_tensors_metadata(self, checkpoint_dir: Path, metadata: Metadata | None = None) -> Any:
        metadata = metadata or StorageReader(checkpoint_dir).read_metadata()
        return {
            key: ShardedTensor.from_rank_offsets(
                key, torch.empty(of.size, dtype=of.properties.dtype, device="meta")
            ).without_data()
            for key, of in metadata.state_dict_metadata.items()
            if isinstance(of, TensorStorageMetadata)
        }

    def load_sharded_metadata(self, checkpoint_dir: Path) -> Any:
        metadata = StorageReader(checkpoint_dir).read_metadata()
        objects = [
            ShardedObject.empty_from_unique_key(key)
            for key, of in metadata.state_dict_metadata.items()
            if isinstance(of, BytesStorageMetadata)
        ]
        tensors = self.load_tensors_metadata(checkpoint_dir, metadata)
        return {**{found.unique_key: found for found in objects}, **tensors}

    def remove_sharded_tensors(self, checkpoint_dir: Path, key_prefix: str) -> None:
        raise Error(
            Code.UNSUPPORTED,
            f"removing tensors from the checkpoint in '{checkpoint_dir}': its files are not rewritten; it is intact",
        )


def stop_in_time(signal_handler: Any, stopping: Stopping) -> None:
    """Megatron's training loop then asks `stopping` after each iteration. With a reason, it saves once
    more and ends, on all ranks, as after a signal with --exit-signal-handler.

    signal_handler: what the loop asks: megatron.training.get_signal_handler().
    stopping: stays yours, to close.
    """
    signal_handler.signals_received = lambda: [stopping.reason() is not None]


def register(files: int = 1, *, trust_pickle: bool = False, **options: Any) -> SaveStrategy:
    """Registers both strategies as BACKEND, and returns the one that saves. Collective over all ranks.

    If strategies are wrapped (FullyParallelSaveStrategyWrapper), wrap what this returns.

    files, options: those of SaveStrategy.
    trust_pickle: that of LoadStrategy.
    """
    saving = SaveStrategy(files, **options)
    register_default_strategy(StrategyAction.SAVE_SHARDED, *BACKEND, saving)
    register_default_strategy(StrategyAction.LOAD_SHARDED, *BACKEND, LoadStrategy(trust_pickle))
    return saving


class _Failing(DefaultSavePlanner):
    """Makes a save fail on all ranks, because this one has nothing to save."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._failure = failure

    def create_local_plan(self) -> SavePlan:
        raise self._failure


def _tried(work: Callable[[], Any]) -> Future[Any]:
    """The work's result or exception, for later."""
    tried: Future[Any] = Future()
    try:
        tried.set_result(work())
    except Exception as error:
        tried.set_exception(error)
    return tried


def _by_key(sharded_state_dict: Any) -> dict[str, list[Any]]:
    """This rank's shards by their key in the file; only the main ones of shards with replicas."""
    by_key: dict[str, list[Any]] = theirs._replace_state_dict_keys_with_sharded_keys(sharded_state_dict, True)[0]
    return by_key


def _wait_for(locked: str) -> None:
    """Runs in Megatron's process, and returns when the file is no longer locked. A record lock ends
    with its holder, so this also returns when the job was killed. A fork inherits the descriptor,
    but not the lock."""
    try:
        with open(locked, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
    except FileNotFoundError:
        pass  # the save has ended
