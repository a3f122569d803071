"""tailrace.torch.save and load: one state in one file, in the place of torch.save and torch.load.

The file is an epoch of one rank in one file, so the tailrace command and tailrace.read open it too. Each tensor's
bytes are a region; tensors that are views of one storage are saved as that storage and come back as views of one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import Any

import torch

from tailrace import _arguments, _core, _leaves, _restore, _tree
from tailrace._checkpoint import read
from tailrace._errors import Code, Error
from tailrace.torch import _durable


def save(
    obj: Any, path: str | os.PathLike[str], *, pickle: bool = False, threads: int = 2, buffer_bytes: int = 8 << 20
) -> None:
    """Saves tensors, arrays and plain objects in nested containers (a state dict, say) to one file.

    Returns when the file is durable under its name. An older file of that name stays until then, and after a
    failure. A symbolic link is followed, as torch.save follows it: the file that it names is replaced. Memory beyond
    the state: threads x buffer_bytes, and a copy of each tensor that is not contiguous or not on the host.

    pickle: objects that have no safe encoding are pickled; load then needs weights_only=False.
    """
    target = _target(path)
    threads = _arguments.number(threads, "threads", "nothing was saved", _arguments.MOST_32)
    buffer_bytes = _arguments.number(buffer_bytes, "buffer_bytes", "nothing was saved")
    skeleton, arrays = _tree.encode(obj, pickle, with_views=True)
    leaves = {name: _leaves.to_save(array, name) for name, array in arrays.items()}
    regions = [(name, leaf.nbytes, leaf.piece()) for name, leaf in leaves.items()]
    # Everything is written in a directory of its own beside the target, whose lock keeps a second save out; then
    # the file takes its name. What a killed save has left is removed by the next one.
    place = target + ".unfinished"
    _take(place, target)
    epoch = _core.DirectEpoch(place, "tailrace", 0, 1, 1)
    try:
        (written,) = epoch.paths
        start = epoch.data_start + _core.head_bytes(regions, [(_tree.SKELETON, len(skeleton))])
        addresses = [leaf.address for leaf in leaves.values()]
        crcs = _core.write_runs(regions, addresses, [(written, start)], threads, buffer_bytes, 0)
        epoch.commit([(regions, crcs, [start], [(_tree.SKELETON, skeleton)])])
        os.replace(written.removesuffix(".unfinished"), target)
        _durable.sync_directory_of(target)
    except OSError as error:
        raise Error(Code.IO_ERROR, f"giving '{target}' its name: {error.strerror}; what was there is intact") from error
    finally:
        # Under the lock: afterwards the directory may be another save's.
        shutil.rmtree(place, ignore_errors=True)
        epoch.close()


def _take(place: str, target: str) -> None:
    """Makes the directory `place` for this user alone, or takes what a killed save of this user has left there: anybody
    may have put something else under the name, whose files would be written or removed."""
    try:
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place, 0o700)
        there = os.lstat(place)
        own = stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()
        free = own and all(name.startswith("tailrace.") for name in os.listdir(place))
    except OSError:
        return  # removed by a save that has just ended; anything else is told by the next step, which needs it too
    if not free:
        what = "is a link" if stat.S_ISLNK(there.st_mode) else "is not this user's" if not own else "holds other files"
        raise Error(
            Code.ALREADY_EXISTS, f"saving '{target}' takes '{place}' for a while, which {what}; nothing was saved"
        )


def load(path: str | os.PathLike[str], *, into: Any = None, map_location: Any = None, weights_only: bool = True) -> Any:
    """Loads what tailrace.torch.save has written, or torch.save (then this is torch.load).

    into: a state of the same names, shapes and types (model.state_dict(), say), which is filled and returned: tensors
        in place, without a second copy of the state; plain objects are put into its dicts and lists. What does not
        fit raises Error (invalid argument) with every difference, and nothing is changed. When the file turns out to
        be damaged while it is read, tensors before the damage have been filled already.
    map_location: a device for all tensors; by default the host's memory, wherever they were. A dict or a function only
        of a file of torch.save: tailrace's do not say where tensors were. Not with `into`, whose tensors stay where
        they are.
    weights_only: refuse pickled objects, which could run any code when they are loaded.

    Every byte is compared with its checksum; Error (corrupt) names file and offset where they differ.
    """
    place = _arguments.path(path, "path", "nothing was loaded")
    if into is not None and map_location is not None:
        raise Error(Code.INVALID_ARGUMENT, f"'{place}': map_location goes with no `into`; nothing was loaded")
    if _is_torch_file(place):
        if into is not None:
            return _fill_from_torch_file(place, into, weights_only)
        return torch.load(place, map_location=map_location, weights_only=weights_only)
    device = _device(map_location, place)
    with read(place) as checkpoint:
        if into is not None:
            plan = _restore.compare(checkpoint.skeleton, into, f"'{place}'", not weights_only)
            _restore.read_in_place(checkpoint._reader, checkpoint.rank, plan)
            return _finish(plan, into)
        return checkpoint._load(checkpoint.skeleton, not weights_only, device)


def _fill_from_torch_file(place: str, into: Any, weights_only: bool) -> Any:
    # Mapped, so that the file is its own buffer.
    loaded = torch.load(place, map_location="cpu", weights_only=weights_only, mmap=True)
    text, arrays = _tree.encode(loaded, allow_pickle=not weights_only)
    plan = _restore.compare(_tree.parse(text), into, f"'{place}'", not weights_only, arrays)
    for fill in plan.fills:
        fill.target.copy_from(arrays[fill.ref.region])
    return _finish(plan, into)


def _target(path: Any) -> str:
    """Where the file goes: behind all links, so that everything beside it is on its file system."""
    given = _arguments.path(path, "path", "nothing was saved")
    target = os.path.realpath(given)
    if os.path.islink(target):
        raise Error(Code.INVALID_ARGUMENT, f"'{given}' is a symbolic link that leads to itself; nothing was saved")
    if os.path.exists(given) and not os.path.isfile(given):  # a device, say, which the file would replace
        raise Error(Code.INVALID_ARGUMENT, f"'{given}' is there, and is no file; nothing was saved")
    return target


def _device(map_location: Any, place: str) -> torch.device:
    try:
        return torch.device("cpu" if map_location is None else map_location)
    except (TypeError, RuntimeError):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"'{place}': map_location is {map_location!r}, not one device for all tensors; nothing was loaded",
        ) from None


def _finish(plan: _restore.Plan, into: Any) -> Any:
    for put in plan.set_plain:
        put()
    return into


def _is_torch_file(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError as error:
        kind = Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.IO_ERROR
        raise Error(kind, f"opening '{path}': {error.strerror}; nothing was read") from None
