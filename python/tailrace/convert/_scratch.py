"""Tensors whose memory is a file without a name. The kernel writes it out when memory is short. It is
gone when the tensors or the process are."""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np
import torch

_HEAP_BYTES = 4096  # a mapping for less would waste most of its page


class Scratch:
    """Makes tensors in a file in `directory`. Not thread-safe."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: Any = None
        self._end = 0

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor with a storage of its own. Raises OSError if the disk has no room for it."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= _HEAP_BYTES:
            return torch.empty(shape, dtype=dtype)
        return torch.from_numpy(self.bytes(nbytes)).view(dtype).view(shape)

    def bytes(self, nbytes: int) -> Any:
        """An array of bytes. Its space is reserved now, because a write to a mapped hole on a full
        disk kills the process."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 (closed by __exit__)
        start = self._end
        os.posix_fallocate(self._file.fileno(), start, nbytes)
        self._end = -(-(start + nbytes) // 4096) * 4096
        return np.memmap(self._file, np.uint8, "r+", start, (nbytes,)).view(np.ndarray)
