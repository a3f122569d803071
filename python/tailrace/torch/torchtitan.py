"""TorchTitan: its checkpoints in K files, by a checkpoint manager that replaces its own.

    from tailrace.torch.torchtitan import TailraceCheckpointManager

    config.checkpoint = TailraceCheckpointManager.Config(enable=True, interval=500, async_mode="async", files=16)

TorchTitan's manager uses torch.distributed.checkpoint. This one gives it StorageWriter and StorageReader, and
recognises a complete checkpoint when it looks for the newest one. TorchTitan still decides what to save, when, and what
to remove.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torchtitan.components.checkpointer import MODEL, AsyncMode, CheckpointManager
from torchtitan.tools.utils import GarbageCollection

from tailrace._errors import Code, Error
from tailrace.torch._reader import StorageReader
from tailrace.torch._staging import AsyncStager
from tailrace.torch._writer import StorageWriter


class TailraceCheckpointManager(CheckpointManager):  # type: ignore[misc]
    """Making one is collective over all ranks, as with TorchTitan's own manager.

    With the async_mode "async" a save returns when the state is copied. "async_with_pinned_mem"
    copies in a thread, and TorchTitan waits for it before the optimizer's next step. Both write in
    a thread, and keep their staging memory. Checkpoints of TorchTitan itself can be loaded, too.
    Hugging Face's format is left to TorchTitan.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):  # type: ignore[misc]
        files: int = 1
        """K, for all ranks together, at most 64 per rank."""

        trust_pickle: bool = False
        """Load objects that torch does not load with weights_only=True, which may run any code."""

    def __init__(self, config: Config, **parts: Any) -> None:
        super().__init__(config, **parts)
        if not self.enable:
            return
        if not StorageWriter.validate_checkpoint_id(self.folder):
            raise Error(
                Code.UNSUPPORTED, f"checkpoints go into a directory, and '{self.folder}' is not one; nothing was saved"
            )
        # TorchTitan closes it under this name, and makes none of its own.
        self.stager = AsyncStager(background=self.async_mode == AsyncMode.ASYNC_WITH_PINNED_MEM)
        self._writer = StorageWriter(files=config.files, stager=self.stager)
        self._trust_pickle = config.trust_pickle

    @torch.no_grad()
    def dcp_save(
        self,
        state_dict: dict[str, Any],
        checkpoint_id: str,
        async_mode: AsyncMode,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> Any:
        if to_hf:
            return super().dcp_save(state_dict, checkpoint_id, async_mode, enable_garbage_collection, to_hf)
        saving = None
        if async_mode == AsyncMode.DISABLED:
            state_dict_saver.save(state_dict, checkpoint_id=checkpoint_id, storage_writer=self._writer)
        else:
            saving = state_dict_saver.async_save(
                state_dict, checkpoint_id=checkpoint_id, storage_writer=self._writer, process_group=self.pg
            )
        if enable_garbage_collection:
            GarbageCollection.collect("after a save")  # TorchTitan has turned the automatic one off
        return saving

    def dcp_load(self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool) -> None:
        theirs = os.path.isfile(os.path.join(checkpoint_id, ".metadata"))
        if from_hf or (theirs and not _is_complete(checkpoint_id)):
            super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
            return
        state_dict_loader.load(
            state_dict, checkpoint_id=checkpoint_id, storage_reader=StorageReader(trust_pickle=self._trust_pickle)
        )
        if MODEL in self.states:  # its tensors are among the other states, so DCP does not know it
            self.states[MODEL].load_state_dict(state_dict)

    def _find_load_step(self, folder: str = "") -> int:
        """The newest step with a complete checkpoint, of tailrace's or of TorchTitan's own; -1 if
        there is none."""
        folder = folder or self.folder
        newest: int = super()._find_load_step(folder)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        steps = [int(name[1]) for each in names if (name := re.fullmatch(r"step-(\d+)", each))]
        for step in sorted(steps, reverse=True):
            if step <= newest or _is_complete(self._create_checkpoint_id(step, folder)):
                return max(step, newest)
        return newest


def _is_complete(place: str) -> bool:
    """Whether a directory holds a checkpoint that StorageWriter has completed."""
    reader = StorageReader(place)
    try:
        reader.read_metadata()
    except Error as error:
        if error.code == Code.NOT_FOUND:
            return False
        raise
    return not reader.is_native
