"""tailrace.torch.save and load: one state in one file, as torch.save and torch.load do it.

The file is an epoch of one rank in one file, so the tailrace command and tailrace.read can open it,
too. Each tensor's bytes are a region. Tensors that are views of one storage are saved as that
storage and come back as views of one. For a file object the file is made in, or copied to, a
directory of temporary files that only this user can enter.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

import torch

from tailrace import _arguments, _checkpoint, _core, _leaves, _restore, _tree
from tailrace._checkpoint import read
from tailrace._errors import Code, Error, code_of_writing, older_is_intact
from tailrace.torch import _durable

_MOST_TRIES = 5  # to map a file that is replaced all the time
_COPIED_BYTES = 8 << 20  # at a time, between a file and a file object


def save(
    obj: Any,
    path: str | os.PathLike[str] | IO[bytes],
    *,
    pickle: bool = False,
    threads: int = 2,
    buffer_bytes: int = 8 << 20,
) -> None:
    """Saves tensors, arrays and plain objects in nested containers (such as a state dict) to one file.

    Returns when the file is durable under its name. An older file of that name stays until then,
    and after a failure, unless the Error says that the new one has the name. A symbolic link is
    followed, as torch.save does: the file that it names is replaced. Memory in addition to the
    state: threads x buffer_bytes, and a copy of each tensor that is not contiguous or not on the
    host.

    path: a path, or a file object such as io.BytesIO. The file is written at the file object's
        position, and the caller syncs it. Then the directory of temporary files needs room for the
        file, too.
    pickle: pickles objects that have no safe encoding. load then needs weights_only=False.
    """
    if hasattr(path, "write"):
        if isinstance(path, io.TextIOBase):
            raise Error(Code.INVALID_ARGUMENT, "the file object takes text: open it in binary; nothing was saved")
        if hasattr(path, "writable") and not path.writable():
            raise Error(Code.INVALID_ARGUMENT, "the file object cannot be written to; nothing was saved")
        with _temporary_file("nothing was saved") as made:
            save(obj, made, pickle=pickle, threads=threads, buffer_bytes=buffer_bytes)
            _write_all(made, cast(Any, path))
        return
    target = _target(path)
    threads = _arguments.threads(threads, "nothing was saved")
    buffer_bytes = _arguments.number(buffer_bytes, "buffer_bytes", "nothing was saved")
    skeleton, arrays = _tree.encode(obj, pickle, with_views=True)
    leaves = {name: _leaves.to_save(array, name) for name, array in arrays.items()}
    regions = [(name, leaf.nbytes, leaf.piece()) for name, leaf in leaves.items()]
    # Everything is written in a directory of its own beside the target, whose lock keeps a second
    # save out. Then the file takes its name. The next save removes what a killed save has left.
    place = target + ".unfinished"
    _take(place, target)
    with older_is_intact():
        epoch = _begin(place)
    try:
        (written,) = epoch.paths
        addresses = [leaf.address for leaf in leaves.values()]
        with older_is_intact():
            start = epoch.data_start + _core.head_bytes(regions, [(_tree.SKELETON, len(skeleton))])
            crcs = _core.write_runs(regions, addresses, [(written, start)], threads, buffer_bytes, 0)
            entry = (regions, crcs, [start], [(_tree.SKELETON, skeleton)])
            epoch.commit([entry], _core.CheckedArrays.check([regions]))
        _give_name(written.removesuffix(".unfinished"), target)
    finally:
        # Under the lock. Afterwards the directory may belong to another save.
        shutil.rmtree(place, ignore_errors=True)
        epoch.close()


def _begin(place: str) -> _core.DirectEpoch:
    try:
        return _core.DirectEpoch(place, "tailrace", 0, 1, 1)
    except Error as error:
        if error.code is not Code.BUSY:  # then it is another save's
            with contextlib.suppress(OSError):
                os.rmdir(place)
        raise


def _give_name(made: str, target: str) -> None:
    try:
        os.replace(made, target)
    except OSError as error:
        raise Error(
            code_of_writing(error), f"giving '{target}' its name: {error.strerror}; what was there is intact"
        ) from error
    _durable.sync_name_of(target)


def _take(place: str, target: str) -> None:
    """Makes the directory `place` for this user alone, or takes over what a killed save of this user
    has left there. Anything else under that name is refused, because anybody may have put it there,
    and its files would be written or removed."""
    try:
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place, 0o700)
        there = os.lstat(place)
        own = stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()
        free = own and all(name.startswith("tailrace.") for name in os.listdir(place))
    except OSError:
        return  # removed by a save that has just ended; the next step needs the directory and reports anything else
    if not free:
        what = "is a link" if stat.S_ISLNK(there.st_mode) else "is not this user's" if not own else "holds other files"
        raise Error(
            Code.ALREADY_EXISTS, f"saving '{target}' takes '{place}' for a while, which {what}; nothing was saved"
        )


def load(
    path: str | os.PathLike[str] | IO[bytes],
    map_location: Any = None,
    *,
    into: Any = None,
    weights_only: bool = True,
    mmap: bool | None = None,
    verify: bool | None = None,
    strict: bool = True,
    convert: bool = False,
) -> Any:
    """Loads a file that tailrace.torch.save or torch.save has written. For the latter this is
    torch.load.

    path: a path, or a file object, which is read from its position.
    map_location: as in torch.load: a device for all tensors, or a function or dict that says where
        each goes. For a function or dict, every tensor of a tailrace file comes from "cpu",
        wherever it was when it was saved. By default all are on the host. Not allowed with `into`,
        whose tensors stay where they are.
    into: a state of the same names, shapes and types (such as model.state_dict()), which is filled
        and returned. Tensors are filled in place, without a second copy of the state. Plain objects
        are put into its dicts and lists. If something does not fit, it raises Error (invalid
        argument) with every difference, and nothing is changed. If the file turns out to be damaged
        while it is read, tensors before the damage have been filled already.
    strict: False: tensors that only one of checkpoint and `into` has are left alone. load then
        returns not `into`, but which they are: Differences(missing_keys, unexpected_keys), named as
        load_state_dict names them. Another shape is an error in any case.
    convert: tensors of `into` may be of another floating-point type than the saved ones, or of a
        type that holds all values of theirs. Their values are converted.
    weights_only: refuse pickled objects, which could run any code when they are loaded.
    mmap: the tensors on the host are private mappings of the file. No byte is read before the
        program uses it, and what the program writes into them never gets into the file. Tensors
        whose bytes do not lie together in one file are read. Not allowed with `into`.
    verify: with mmap, True reads all bytes once and compares them before this returns. By default
        mapped bytes are not compared with their checksums, so damage goes unnoticed.

    Every byte that is read is compared with its checksum. If they differ, Error (corrupt) names
    file and offset.
    """
    _checkpoint.check_verify(bool(mmap), verify, "nothing was loaded")
    if into is not None and mmap:
        raise Error(Code.INVALID_ARGUMENT, f"'{path}': mmap and `into` exclude each other; nothing was loaded")
    if into is None and (convert or not strict):
        raise Error(Code.INVALID_ARGUMENT, f"'{path}': strict and convert need `into`; nothing was loaded")
    how: Any = {"strict": strict, "convert": convert}
    if into is not None and map_location is not None:
        raise Error(Code.INVALID_ARGUMENT, f"'{path}': map_location and `into` exclude each other; nothing was loaded")
    if hasattr(path, "read"):
        if isinstance(path, io.TextIOBase):
            raise Error(Code.INVALID_ARGUMENT, "the file object has text: open it in binary; nothing was loaded")
        if hasattr(path, "readable") and not path.readable():
            raise Error(Code.INVALID_ARGUMENT, "the file object cannot be read from; nothing was loaded")
        with _temporary_file("nothing was loaded") as copied:
            _read_all(cast(Any, path), copied)
            if os.path.getsize(copied) == 0:
                why = "the file object has nothing to read where it stands: seek(0) first, if it was just written"
                raise Error(Code.INVALID_ARGUMENT, f"{why}; nothing was loaded")
            try:
                return load(copied, map_location, into=into, weights_only=weights_only, mmap=mmap, verify=verify, **how)
            except Error as error:
                sentence = str(error).replace(f"'{copied}'", "the file object").replace(copied, "the file object")
                raise Error(error.code, sentence) from None
    place = _arguments.path(path, "path", "nothing was loaded")
    if is_torch_file(place):
        if verify is not None:
            raise Error(Code.UNSUPPORTED, f"'{place}': a file of torch.save has no checksums; nothing was loaded")
        if into is not None:
            return _fill_from_torch_file(place, into, weights_only, how)
        return torch.load(place, map_location=map_location, weights_only=weights_only, mmap=mmap)
    move = map_location if callable(map_location) else None
    device = _device("cpu" if move else map_location, place)
    with _in_words_of_load():
        if into is None and mmap:
            loaded = _load_mapped(place, not weights_only, device, bool(verify))
        else:
            with read(place) as checkpoint:
                if into is not None:
                    plan = _restore.compare(checkpoint.skeleton, into, f"'{place}'", not weights_only, **how)
                    _restore.read_in_place(checkpoint._reader, checkpoint.rank, plan)
                    return _finish(plan, into)
                loaded = checkpoint._load(checkpoint.skeleton, not weights_only, device)
    return loaded if move is None else _Moved(move).tree(loaded)


def _load_mapped(place: str, trust_pickle: bool, device: torch.device, verify: bool) -> Any:
    for tries_left in reversed(range(_MOST_TRIES)):
        with read(place) as checkpoint:
            try:
                mapped = checkpoint._mapped(verify)
            except Error as error:
                if error.code is Code.BUSY and tries_left > 0:  # a save has replaced the file meanwhile
                    continue
                raise
            return checkpoint._load(checkpoint.skeleton, trust_pickle, device, mapped)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _in_words_of_load() -> Iterator[None]:
    """What other readers call trust_pickle is weights_only here, as in torch.load."""
    try:
        yield
    except Error as error:
        if "trust_pickle=True" not in str(error):
            raise
        raise Error(error.code, str(error).replace("trust_pickle=True", "weights_only=False")) from None


@contextlib.contextmanager
def _temporary_file(intact: str) -> Iterator[str]:
    """The name of a file that may be made, in a directory that is removed with it. `intact` ends the sentence if that
    directory cannot be made."""
    with _blaming_temporary_files(intact):
        made = tempfile.TemporaryDirectory(prefix="tailrace-")
    try:
        yield os.path.join(made.name, "state")
    finally:
        with _blaming_temporary_files():
            made.cleanup()


@contextlib.contextmanager
def _blaming_temporary_files(intact: str | None = None) -> Iterator[None]:
    """For what is done with them alone. `intact` ends the sentence."""
    try:
        yield
    except Error:
        raise
    except OSError as error:
        where = f"in '{tempfile.tempdir}'" if tempfile.tempdir else "in a temporary file"  # if there is a directory
        why = f"copying a state {where}: {error.strerror}"
        raise Error(code_of_writing(error), f"{why}; {intact}" if intact else why) from error


def _read_all(source: Any, made: str) -> None:
    """Copies a file object, from its position, to the temporary file `made`."""

    def part() -> Any:
        try:
            content = source.read(_COPIED_BYTES)
        except OSError as error:
            raise Error(
                Code.IO_ERROR, f"reading from the file object: {error.strerror or error}; nothing was loaded"
            ) from error
        if content is None:  # it does not wait, and has not ended
            raise Error(Code.BUSY, "the file object has no more without waiting; nothing was loaded")
        return content

    with _blaming_temporary_files("nothing was loaded"), open(made, "wb") as target:
        while content := part():
            target.write(content)


def _write_all(made: str, target: Any) -> None:
    """Copies the temporary file `made` into a file object. A raw one (buffering=0) may take a part of what it is
    given."""
    with _blaming_temporary_files(), open(made, "rb") as source:
        while content := source.read(_COPIED_BYTES):
            _write_part(memoryview(content), target)


def _write_part(left: memoryview, target: Any) -> None:
    while left:
        try:
            taken = target.write(left)
        except OSError as error:
            raise Error(
                code_of_writing(error),
                f"writing to the file object: {error.strerror or error}; it holds a part of the file",
            ) from error
        if taken == 0 or (taken is None and isinstance(target, io.RawIOBase)):
            raise Error(Code.BUSY, "the file object takes no more without waiting; it holds a part of the file")
        left = left[len(left) if taken is None else taken :]


def _fill_from_torch_file(place: str, into: Any, weights_only: bool, how: Any) -> Any:
    # The file is mapped, so it is its own buffer.
    loaded = torch.load(place, map_location="cpu", weights_only=weights_only, mmap=True)
    text, arrays = _tree.encode(loaded, allow_pickle=not weights_only)
    plan = _restore.compare(_tree.parse(text), into, f"'{place}'", not weights_only, arrays, **how)
    for fill in plan.fills:
        fill.target.copy_from(arrays[fill.ref.region])
    return _finish(plan, into)


def _target(path: Any) -> str:
    """The file's final path, behind all links. So everything beside it is on the same file system."""
    given = _arguments.path(path, "path", "nothing was saved")
    if os.path.basename(given) in ("", ".", ".."):  # realpath would drop it, and "name/" become "name"
        raise Error(
            Code.INVALID_ARGUMENT, f"path: '{given}' names a directory, where a file is needed; nothing was saved"
        )
    target = os.path.realpath(given)
    if os.path.islink(target):
        raise Error(Code.INVALID_ARGUMENT, f"'{given}' is a symbolic link that leads to itself; nothing was saved")
    if os.path.exists(given) and not os.path.isfile(given):  # for example a device, which the file would replace
        raise Error(Code.INVALID_ARGUMENT, f"'{given}' exists, and is not a file; nothing was saved")
    return target


class _Moved:
    """Does what torch.load does with a map_location that is a function or dict: it says for each
    storage what takes its place."""

    def __init__(self, move: Callable[[Any, str], Any]) -> None:
        self._move = move
        self._storages: dict[int, tuple[Any, Any]] = {}  # by address: the storage, and what takes its place
        self._tensors: dict[int, tuple[Any, Any]] = {}

    def tree(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            for key, part in value.items():
                value[key] = self.tree(part)
        elif isinstance(value, (list, collections.deque)):
            for i, part in enumerate(value):
                value[i] = self.tree(part)
        elif type(value) is tuple:
            return tuple(self.tree(part) for part in value)
        return value

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = (tensor, self._moved(tensor))
        return self._tensors[id(tensor)][1]

    def _moved(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages or not storage.nbytes():
            self._storages[storage.data_ptr()] = (storage, self._move(storage, "cpu"))
        other = self._storages[storage.data_ptr()][1]
        if other is None or other is storage:
            return tensor
        made: Any = torch.empty(0, dtype=tensor.dtype, device=other.device)
        made.set_(other, tensor.storage_offset(), tensor.shape, tensor.stride())
        return _leaves.noted(made, _leaves.notes(tensor))


def _device(map_location: Any, place: str) -> torch.device:
    if isinstance(map_location, dict):
        map_location = map_location.get("cpu")
    try:
        return torch.device("cpu" if map_location is None else map_location)
    except (TypeError, RuntimeError) as error:
        why = str(error).splitlines()[0].rstrip(" :.")
        raise Error(
            Code.INVALID_ARGUMENT,
            f"'{place}': map_location is {map_location!r}, not one device for all tensors ({why}); nothing was loaded",
        ) from None


def _finish(plan: _restore.Plan, into: Any) -> Any:
    for put in plan.set_plain:
        put()
    return into if plan.left_out is None else plan.left_out


def is_torch_file(path: str) -> bool:
    try:
        # Opening a pipe would wait for somebody who writes into it. What is no file is refused by the core.
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            return False
        with open(path, "rb", buffering=0) as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise Error(
                Code.INVALID_ARGUMENT,
                f"'{path}' is a directory, not a file of tailrace.torch.save or torch.save: tailrace.read loads what a "
                "session saved there, and torch.distributed.checkpoint with tailrace.torch.StorageReader what was "
                "saved through it; nothing was read",
            ) from None
        kind = Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.IO_ERROR
        raise Error(kind, f"opening '{path}': {error.strerror}; nothing was read") from None
