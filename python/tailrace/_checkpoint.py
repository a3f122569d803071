"""tailrace.read: a checkpoint as a mapping of names to arrays that are loaded on request.

It needs no running job and unpickles nothing. Every byte that is read is compared with its
checksum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import math
import operator
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace import _arguments, _core, _leaves, _mapping, _own_regions, _restore, _tree
from tailrace._errors import Code, Error, about


class LazyArray:
    """An array of a checkpoint. Its shape and type are known at once; its bytes are loaded on request.

    `array[...]` with integers and slices without steps reads only the wanted box, if the array was
    saved with its shape in the format's own terms. With one rank it always was; with several ranks
    it was if it was saved as tailrace.Shard. Any other index reads the whole array and indexes it.
    `numpy.asarray(array)` and `array.load()` read the whole array. Each call reads the file again,
    so keep the result. Several threads may use the object. If the element type belongs to a library
    that is not loaded, asking for type or bytes raises Error (unsupported).
    """

    def __init__(self, checkpoint: Checkpoint, ref: _tree.ArrayRef, rank: int, in_boxes: bool) -> None:
        self._checkpoint = checkpoint
        self._ref = ref
        self._rank = rank  # the rank that saved the region
        self._in_boxes = in_boxes

    @property
    def name(self) -> str:
        return self._ref.region

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array, if the ranks saved shards of one."""
        return self._ref.global_shape or self._ref.shape

    @property
    def dtype(self) -> Any:
        """The element type: a numpy.dtype, or for tensors a torch.dtype."""
        return self._ref.element_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<LazyArray {self.name!r} {self.shape} {self._ref.dtype}>"

    def load(self) -> Any:
        """The whole array, as what it was saved from: a numpy array or a tensor. Raises Error
        (corrupt) if its bytes are not those that were saved."""
        return self._box((0,) * self.ndim, self.shape)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the bytes lie in a file: an array of them is always a copy")
        return np.asarray(self.load(), dtype)

    def __getitem__(self, index: Any) -> Any:
        box = _box_of(index, self.shape) if self._in_boxes else None
        if box is None:
            return self.load()[index]
        offset, shape, drop = box
        return self._box(offset, shape)[tuple(0 if d in drop else slice(None) for d in range(self.ndim))]

    def _box(self, offset: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        if self._ref.is_list and shape[1:] != self.shape[1:]:  # items are read whole
            rows = self._box((offset[0], *[0] * (self.ndim - 1)), (shape[0], *self.shape[1:]))
            box = [slice(o, o + n) for o, n in zip(offset[1:], shape[1:], strict=True)]
            return rows[tuple([slice(None), *box])]
        array = self._ref.empty(shape)
        self._read_box(_leaves.Target(array).leaf, offset)
        return array

    def _read(self, leaf: _leaves.Leaf) -> None:
        """Reads the whole array into this memory."""
        self._read_box(leaf, (0,) * self.ndim)

    def _read_box(self, leaf: _leaves.Leaf, offset: tuple[int, ...]) -> None:
        reader = self._checkpoint._reader
        if self._ref.is_list:
            extent = _leaves.list_shape(self._ref.dtype, self.dtype.itemsize, leaf.shape)
            reader.read_box(self.name, [offset[0], 0][: len(extent)], list(extent), leaf.address, leaf.nbytes)
        elif self._in_boxes:
            reader.read_box(self.name, list(offset), list(leaf.shape), leaf.address, leaf.nbytes)
        else:
            reader.read(self._rank, [(self.name, leaf.address, leaf.nbytes)])


def _box_of(index: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], frozenset[int]] | None:
    """Offset, shape, and the dimensions that integers remove. None for other kinds of index."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in parts) > 1:
        return None
    if Ellipsis in [part if part is Ellipsis else None for part in parts]:
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    if len(parts) > len(shape):
        return None
    parts += [slice(None)] * (len(shape) - len(parts))
    offset, extent, drop = [], [], set()
    for dimension, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            if step != 1:
                return None
            offset.append(start)
            extent.append(max(0, stop - start))
            continue
        if isinstance(part, (bool, np.bool_)):
            return None
        try:
            at = operator.index(part)
        except TypeError:
            return None
        if not -length <= at < length:
            raise IndexError(f"index {at} is out of bounds for dimension {dimension} of {length}")
        offset.append(at % length)
        extent.append(1)
        drop.add(dimension)
    return tuple(offset), tuple(extent), frozenset(drop)


# By the region that tells them: those of the package that save no trees, and what loads these checkpoints.
_LOADED_BY = {
    _own_regions.DCP: ("tailrace.torch.StorageWriter", "dcp.load with tailrace.torch.StorageReader"),
    _own_regions.JAX: ("tailrace.jax", "tailrace.jax.restore"),
}


class NoArrayError(KeyError):
    """A KeyError whose text also has the names that are near, or says that the tree has the name.
    They are sought only for the text, because `in` and `get` raise it, too."""

    def __init__(self, name: object, epoch: int, arrays: Mapping[str, Any], skeleton: Any = None) -> None:
        super().__init__(name)
        self._epoch = epoch
        self._arrays = arrays
        self._skeleton = skeleton

    def __str__(self) -> str:
        text = f"there is no array {self.args[0]!r} in epoch {self._epoch}"
        members = _restore.members_of(self._skeleton)
        if isinstance(members, dict) and self.args[0] in members:
            return f"{text}, but tree()[{self.args[0]!r}] is there"
        by_word = {re.split(r"[./]", name)[-1]: name for name in self._arrays} | {name: name for name in self._arrays}
        near = {by_word[word]: None for word in difflib.get_close_matches(str(self.args[0]), by_word)}
        if near:
            return f"{text}; near are {', '.join(map(repr, near))} of its {len(self._arrays)} arrays"
        return f"{text}; list() of the checkpoint gives the names of its arrays"


class Checkpoint(Mapping[str, LazyArray]):
    """One rank's view of an epoch: its arrays by name, and its tree of containers and plain objects.

    Arrays that the ranks saved together (tailrace.Shard, or an array of the C interface) appear
    whole. If the ranks saved no trees (torch.distributed.checkpoint, C), a name that this rank did
    not save means the array of the first rank that did, because DCP saves what all ranks have on
    one of them. A Checkpoint of a session ends with the session.
    """

    def __init__(
        self,
        reader: _core.Reader,
        rank: int = 0,
        text: bytes | None = None,
        again: Callable[[], _core.Reader] | None = None,
    ) -> None:
        """text: the text of the tree, if it has been read already.
        again: opens the same epoch once more by its path, as mapping its files needs.
        """
        self._reader = reader
        self._again = again
        self.rank = rank
        if not 0 <= rank < reader.rank_count:
            raise Error(
                Code.NOT_FOUND,
                f"there is no rank {rank} in epoch {reader.epoch}: {reader.rank_count} saved it; nothing was read",
            )
        regions = {name: (nbytes, piece) for name, nbytes, piece in reader.regions(rank)}
        self._regions = regions
        self._skeleton: Any = None
        self._lazy: dict[str, LazyArray] = {}
        self._notes: set[str] = set()  # the package's own regions that any rank has
        if _tree.SKELETON in regions:
            if text is None:
                found = np.empty(regions[_tree.SKELETON][0], np.uint8)
                reader.read(rank, [(_tree.SKELETON, found.ctypes.data, found.nbytes)])
                text = found.tobytes()
            self._skeleton = _tree.parse(text)
            with corrupt_if_strange():
                for ref in arrays_in(self._skeleton):
                    self._add_array(ref)
        else:
            self._add_regions()

    @property
    def step(self) -> int:
        return self._reader.epoch

    @property
    def rank_count(self) -> int:
        """The number of ranks that saved the epoch."""
        return self._reader.rank_count

    @property
    def passed_over(self) -> str:
        """The damaged epochs that this one was opened in place of, and why. Empty if there are none."""
        return self._reader.passed_over

    def at_rank(self, rank: int) -> Checkpoint:
        """The same epoch as another rank saved it."""
        return Checkpoint(self._reader, rank, again=self._again)

    def __getitem__(self, name: str) -> LazyArray:
        try:
            return self._lazy[name]
        except KeyError:
            raise NoArrayError(name, self._reader.epoch, self._lazy, self._skeleton) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._lazy)

    def __len__(self) -> int:
        return len(self._lazy)

    def __repr__(self) -> str:  # raises nothing: debuggers and failed tests ask for it
        try:
            return f"<Checkpoint of step {self.step}, rank {self.rank} of {self.rank_count}, {len(self)} arrays>"
        except Error:
            return "<Checkpoint, closed>"

    def tree(self, *, trust_pickle: bool = False, mmap: bool = False, verify: bool | None = None) -> Any:
        """What was saved, with all arrays loaded. They are loaded in file order, with few large reads.

        Pickled objects (Session.save(..., pickle=True)) are refused unless trust_pickle is set,
        because loading them can run any code.

        mmap: the arrays are private mappings of the files. A byte is read when the program uses it,
            and what the program writes never gets into a file. Arrays whose bytes do not lie
            together in one file, and pieces of global arrays, are read.
        verify: with mmap, True reads all bytes once and compares them with their checksums before
            this returns. By default mapped bytes are not compared. Bytes that are read always are.
        """
        check_verify(mmap, verify, "nothing was read")
        return self._load(self.skeleton, trust_pickle, mapped=self._mapped(bool(verify)) if mmap else None)

    def _mapped(self, verify: bool) -> dict[str, npt.NDArray[np.uint8]]:
        """The mapped bytes of this rank's arrays. The program's own files (save_files) are left alone."""
        if self._again is None:
            raise Error(Code.UNSUPPORTED, "a session's epoch is not mapped: open it with tailrace.read")
        made = _mapping.regions(self._reader, self.rank, self._lazy.keys(), self._again, f"epoch {self.step}")
        if verify:
            _mapping.verify(self._reader, self.rank, made)
        return made

    def lazy_tree(self, *, trust_pickle: bool = False) -> Any:
        """What was saved, with a LazyArray in place of each array."""
        return _tree.decode(self.skeleton, lambda ref: self._lazy[ref.region], trust_pickle)

    def _load(
        self,
        node: Any,
        trust_pickle: bool,
        device: Any = "cpu",
        mapped: Mapping[str, npt.NDArray[np.uint8]] | None = None,
    ) -> Any:
        """The tree of a node of the skeleton, its tensors on `device`. Regions that are `mapped` are
        not read."""
        plan = _restore.Plan()

        def array(ref: _tree.ArrayRef) -> Any:
            if ref.global_shape is not None or ref.is_list:
                whole = self._lazy[ref.region].load()
                return whole.to(device) if _leaves.is_tensor(whole) else whole
            if mapped is not None and _mapping.is_mapped(ref, mapped):
                over = _mapping.array(ref, mapped[ref.region])
                return over.to(device) if _leaves.is_tensor(over) else over
            made = ref.empty(device=device)
            if not (_leaves.is_tensor(made) and made.is_meta):  # meta tensors have no bytes
                plan.fills.append(_restore.Fill(ref, _leaves.Target(made)))
            return made

        tree = _tree.decode(node, array, trust_pickle)
        _restore.read_in_place(self._reader, self.rank, plan)
        return tree

    @property
    def has_tree(self) -> bool:
        """Whether the ranks saved trees. Otherwise there are only arrays by name."""
        return _tree.SKELETON in self._regions

    @property
    def skeleton(self) -> Any:
        if not self.has_tree:
            who = "another program than tailrace's Python package"
            for region, (name, loads) in _LOADED_BY.items():
                who = f"{name}, and {loads} loads it" if region in self._notes else who
            raise Error(
                Code.NOT_FOUND,
                f"epoch {self.step} has arrays by name, and no tree of containers: it was saved by {who}; "
                "nothing was read",
            )
        return self._skeleton

    def close(self) -> None:
        """Closes the files. Arrays that were loaded stay."""
        self._reader.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _add_array(self, ref: _tree.ArrayRef) -> LazyArray:
        found = self._regions.get(ref.region)
        try:
            nbytes = ref.nbytes
        except Error:  # loading this array will raise it; the others can be read
            nbytes = -1
        if found is None or nbytes not in (-1, found[0]):
            raise Error(
                Code.CORRUPT,
                f"the tree of rank {self.rank} names {nbytes} bytes in region {ref.region!r}, but there are "
                f"{'none' if found is None else found[0]}",
            )
        # A piece that covers its array can be read in boxes. Shards can too, from all ranks
        # together.
        piece = found[1]
        if ref.is_list:
            if ref.region not in self._whole:
                raise Error(Code.CORRUPT, f"the list {ref.region!r} is in no rank's part")
            ref = dataclasses.replace(ref, global_shape=(self._whole[ref.region][0], *ref.shape[1:]))
        in_boxes = piece is not None and (ref.global_shape is not None or self.rank_count == 1)
        self._lazy[ref.region] = LazyArray(self, ref, self.rank, in_boxes)
        return self._lazy[ref.region]

    @functools.cached_property
    def _whole(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays that the ranks' pieces cover."""
        return {name: tuple(shape) for name, _, shape, complete in self._reader.arrays() if complete}

    def _add_regions(self) -> None:
        whole = self._whole
        for rank in sorted(range(self.rank_count), key=lambda rank: rank != self.rank):  # this one first
            for name, nbytes, piece in self._reader.regions(rank):
                if name in _own_regions.ALL:
                    self._notes.add(name)
                    continue
                if name in self._lazy:
                    continue
                if piece is None:
                    ref = _tree.ArrayRef(name, "numpy", "uint8", (nbytes,))
                else:
                    type_name = _leaves.NAMES.get(piece[0], "uint8")
                    kind = "torch" if type_name == "bfloat16" else "numpy"
                    ref = _tree.ArrayRef(name, kind, type_name, tuple(piece[3]), whole.get(name), tuple(piece[2]))
                self._lazy[name] = LazyArray(self, ref, rank, name in whole)


def arrays_in(node: Any) -> Iterator[_tree.ArrayRef]:
    """The arrays in a part of a skeleton."""
    ref = _tree.array_of(node)
    if ref is not None:
        yield ref
    elif isinstance(node, (dict, list)):
        for part in node.values() if isinstance(node, dict) else node:
            yield from arrays_in(part)


@contextlib.contextmanager
def corrupt_if_strange() -> Iterator[None]:
    """Raises Error (corrupt) for a skeleton that no save writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, Error):
            raise
        raise Error(
            Code.CORRUPT, f"the region {_tree.SKELETON!r} cannot be understood: {error!r}; nothing was read"
        ) from None


def check_verify(mmap: bool, verify: bool | None, intact: str) -> None:
    """Raises Error (invalid argument) if bytes that are read were not to be compared."""
    if verify is False and not mmap:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"verify=False needs mmap=True: bytes that are read are always compared with their checksums; {intact}",
        )


def open_directory(place: str, name: str | None, step: int | None) -> _core.Reader:
    """The newest complete epoch of a directory, or `step`. Warns if a newer one was damaged."""
    try:
        reader = _core.Reader.open_directory(place, name, step)
    except Error as error:
        inner = _first_directory_in(place) if error.code is Code.NOT_FOUND and step is None else None
        if inner is None:
            raise
        raise Error(Code.NOT_FOUND, f"{error}; directories in it are not searched, such as {inner}") from None
    with closed_by_failure(reader):
        warn_of_passed_over(reader)
    return reader


@contextlib.contextmanager
def closed_by_failure(reader: _core.Reader | Checkpoint) -> Iterator[None]:
    """Otherwise its files stay open for as long as somebody keeps the exception."""
    try:
        yield
    except BaseException:
        reader.close()
        raise


def _first_directory_in(place: str) -> str | None:
    try:
        return min((entry.path for entry in os.scandir(place) if entry.is_dir()), default=None)
    except OSError:
        return None


def warn_of_passed_over(reader: _core.Reader) -> None:
    if reader.passed_over:
        warnings.warn(
            f"epoch {reader.epoch} is opened in place of damaged ones: {reader.passed_over}",
            RuntimeWarning,
            stacklevel=4,
        )


def read(
    path: str | os.PathLike[str], *, step: int | None = None, rank: int = 0, name: str | None = None
) -> Checkpoint:
    """Opens a checkpoint without a running job.

    path: a directory of checkpoints, or one of an epoch's files. Of a directory it opens the newest
        complete epoch, or `step`; `name` chooses the job if the directory holds several. If a newer
        epoch is damaged, or has lost a file, there is a RuntimeWarning.
    rank: the rank whose view of the epoch is opened.

    Raises Error: not found if there is no complete epoch, corrupt if it is damaged.
    """
    place = _arguments.path(path, "path", "nothing was read")
    if step is not None:
        step = _arguments.number(step, "step", "nothing was read")
    if name is not None:
        name = _arguments.checked(name, "name", "nothing was read")
    rank = _arguments.number(rank, "rank", "nothing was read")
    with about(place):
        if os.path.isdir(place):
            reader = open_directory(place, name, step)
            with closed_by_failure(reader):
                return Checkpoint(reader, rank, again=lambda: _core.Reader.open_directory(place, name, reader.epoch))
        reader = _core.Reader.open_file(place)
        with closed_by_failure(reader):
            if step is not None and step != reader.epoch:
                raise Error(Code.NOT_FOUND, f"'{place}' is of epoch {reader.epoch}, not {step}; nothing was read")
            return Checkpoint(reader, rank, again=lambda: _core.Reader.open_file(place))
