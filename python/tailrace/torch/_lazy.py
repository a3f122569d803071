"""tailrace.torch.open: a file's tensors by name, each read and checked when it is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace import _arguments, _checkpoint, _leaves, _restore, _tree
from tailrace._errors import Code, Error
from tailrace.torch._file import is_torch_file


class TensorFile(Mapping[str, Any]):
    """The tensors and arrays of a state by name: the keys joined by '/', as in 'model/0.weight'.

    `file[name]` reads the tensor and compares its bytes with their checksums. Each call reads the
    file again. Several threads may use the object. Arrays in sets and deques have no name here.
    """

    def __init__(self, checkpoint: _checkpoint.Checkpoint, device: Any) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._nodes: dict[str, Any] = {}
        if checkpoint.has_tree:
            with _checkpoint.corrupt_if_strange():
                self._add(checkpoint.skeleton, ())
        else:
            self._nodes = dict.fromkeys(checkpoint)

    def _add(self, node: Any, path: tuple[Any, ...]) -> None:
        if isinstance(node, dict) and node.get("$") in ("array", "view"):
            name = _tree.region_name(path)
            while name in self._nodes:  # keys that differ may read the same
                name += "~"
            self._nodes[name] = node
            return
        members = _restore.members_of(node)
        for key, part in members.items() if isinstance(members, dict) else enumerate(members or ()):
            self._add(part, (*path, key))

    def __getitem__(self, name: str) -> Any:
        part = self.get_slice(name)
        whole = part.load() if isinstance(part, _checkpoint.LazyArray) else part
        if not _leaves.is_tensor(whole):
            return whole
        node = self._nodes[name]
        return _leaves.noted(whole.to(self._device), {} if node is None else node)

    get_tensor = __getitem__

    def get_slice(self, name: str) -> Any:
        """The tensor, for part[...], which reads only the wanted rows. It has shape and dtype. A view
        of a storage that several tensors share is read whole here."""
        try:
            node = self._nodes[name]
        except KeyError:
            raise _checkpoint.NoArrayError(name, self._checkpoint.step, self._nodes) from None
        if node is None:
            return self._checkpoint[name]
        with _checkpoint.corrupt_if_strange():
            storage, ref = _tree.view_of(node), _tree.array_of(node)
            if storage is not None:
                return _leaves.view_of(self._checkpoint[storage.region].load(), node)
            if ref is None:
                raise ValueError(f"a view of {node.get('v')!r}")
            return self._checkpoint[ref.region]

    def __contains__(self, name: object) -> bool:  # Mapping's would read the tensor
        return name in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<TensorFile of {len(self)} tensors and arrays>"

    def close(self) -> None:
        """Closes the file. Tensors that were read stay."""
        self._checkpoint.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open(path: str | os.PathLike[str], *, device: Any = "cpu", step: int | None = None, rank: int = 0) -> TensorFile:
    """Opens what tailrace.torch.save, a session or StorageWriter has saved, and reads only its index.

    device: where tensors go that are taken whole.
    step, rank: as in tailrace.read.

    Raises Error (unsupported) for a file of torch.save.
    """
    place = _arguments.path(path, "path", "nothing was read")
    if os.path.isfile(place) and is_torch_file(place):
        raise Error(
            Code.UNSUPPORTED,
            f"'{place}' is a file of torch.save, not of tailrace's: tailrace.torch.load and torch.load open it, "
            "and `tailrace convert --to tailrace` makes a file of it that opens here; nothing was read",
        )
    checkpoint = _checkpoint.read(place, step=step, rank=rank)
    with _checkpoint.closed_by_failure(checkpoint):
        return TensorFile(checkpoint, device)
