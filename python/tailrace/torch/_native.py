"""Checkpoints that torch.distributed.checkpoint's own writer has left in a directory.

A save into that directory replaces them: when ours is committed, their files are removed, the
metadata first. Our metadata name the metadata they replace. So a reader that finds both knows which
was written last.
"""

from __future__ import annotations

import collections
import hashlib
import os
import pathlib
import pickle
import re
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata

from tailrace._errors import Code, Error
from tailrace.torch import _durable

_METADATA = re.compile(r"\.metadata$|__\d+\.metadata$")  # the latter for ranks that saved without the others
_DATA = re.compile(r"__\d+_\d+\.distcp$")


def mark_of(place: str) -> str | None:
    """A mark that identifies the checkpoint in a directory. None if there is none."""
    found = hashlib.sha256()
    try:
        names = _names(place, _METADATA)
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found.update(file.read())
    except OSError as error:
        raise Error(Code.IO_ERROR, f"looking into '{place}': {error.strerror}; nothing was changed") from error
    return found.hexdigest() if names else None


def remove(place: str) -> None:
    """Removes the checkpoint in a directory in which ours is complete. Raises Error (I/O error) if it
    cannot."""
    try:
        for pattern in (_METADATA, _DATA):
            names = _names(place, pattern)
            for name in names:
                os.remove(os.path.join(place, name))
            if names:
                _durable.sync(place)
    except OSError as error:
        raise Error(
            Code.IO_ERROR,
            f"removing the checkpoint of torch.distributed.checkpoint's own writer from '{place}', which this one "
            f"replaces: {error.strerror}; the new checkpoint is complete",
        ) from error


def _names(place: str, pattern: re.Pattern[str]) -> list[str]:
    return sorted(name for name in os.listdir(place) if pattern.match(name)) if os.path.isdir(place) else []


class _Unpickler(pickle.Unpickler):
    """Unpickles DCP's .metadata: DCP's own classes and torch's types, and nothing that does anything."""

    def find_class(self, module: str, name: str) -> Any:
        plain = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("pathlib", "PosixPath"): pathlib.PurePosixPath,
            ("pathlib._local", "PosixPath"): pathlib.PurePosixPath,
            ("torch", "Size"): torch.Size,
            ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
        }
        if (module, name) in plain:
            return plain[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module == dcp_metadata.__name__ and isinstance(getattr(dcp_metadata, name, None), type):
            return getattr(dcp_metadata, name)
        if (module, name) == ("torch.distributed.checkpoint.filesystem", "_StorageInfo"):
            return _StorageInfo
        raise pickle.UnpicklingError(f"it names {module}.{name}, which does not belong in it")


class Reader(FileSystemReader):
    """DCP's own reader, except for the metadata. DCP would unpickle those whatever they hold."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        place = os.path.join(os.fspath(self.path), ".metadata")
        try:
            with open(place, "rb") as file:
                metadata = _Unpickler(file).load()
            if not isinstance(metadata, Metadata):
                raise pickle.UnpicklingError(f"it is a {type(metadata).__name__}")
        except OSError as error:
            raise Error(Code.NOT_FOUND, f"opening '{place}': {error.strerror}; nothing was read") from None
        except MemoryError:
            raise
        except Exception as error:  # a hostile pickle can raise anything
            raise Error(Code.CORRUPT, f"'{place}' cannot be understood: {error}; nothing was read") from None
        return metadata
