"""deepspeed.utils.zero_to_fp32 on tailrace's checkpoints, with segments in place of the files that it
looks for.

DeepSpeed uses it, instead of the checkpoint engine, when an engine loads the weights of ZeRO-3
without its optimizer states. Programs call it to get the weights.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch
from deepspeed.utils import zero_to_fp32

from tailrace.torch import _deepspeed_place, _deepspeed_state, _segments

# All public functions of the module call this one for the directory of a tag. So they may have been imported by their
# names before it is replaced.
NAME = "_get_fp32_state_dict_from_zero_checkpoint"
_theirs = getattr(zero_to_fp32, NAME)
_one_at_a_time = threading.Lock()


class _Torch:
    """Stands for torch in that module. Only the loading of files differs."""

    def __init__(self, reader: _segments.Reader, trust_pickle: bool) -> None:
        self._reader = reader
        self._trust_pickle = trust_pickle

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def load(self, segment: str, **options: Any) -> Any:
        tree = self._reader.load(segment, mapped=True, trust_pickle=self._trust_pickle)
        return _deepspeed_state.from_plain(tree)


def install(trust_pickle: bool, name: str) -> None:
    """Makes DeepSpeed's functions accept tailrace's checkpoints, too. `name`: as _segments.Reader has it."""

    def weights(checkpoint_dir: Any, *arguments: Any) -> Any:
        place = os.fspath(checkpoint_dir)
        found = _deepspeed_place.segments_in(place, lambda: _segments.Reader(place, name))
        if found is None:
            return _theirs(checkpoint_dir, *arguments)  # DeepSpeed's own function says what is missing
        with found as reader, _answering(reader, trust_pickle):
            return _theirs(checkpoint_dir, *arguments)

    setattr(zero_to_fp32, NAME, weights)


@contextlib.contextmanager
def _answering(reader: _segments.Reader, trust_pickle: bool) -> Iterator[None]:
    def files(checkpoint_dir: str, pattern: str) -> list[str]:
        found = sorted(fnmatch.filter(reader.owners, pattern), key=zero_to_fp32.natural_keys)
        if not found:
            raise FileNotFoundError(f"'{checkpoint_dir}' has no {pattern}, but {sorted(reader.owners)}")
        return found

    with _one_at_a_time:
        before = zero_to_fp32.get_checkpoint_files
        zero_to_fp32.get_checkpoint_files, zero_to_fp32.torch = files, _Torch(reader, trust_pickle)
        try:
            yield
        finally:
            zero_to_fp32.get_checkpoint_files, zero_to_fp32.torch = before, torch
