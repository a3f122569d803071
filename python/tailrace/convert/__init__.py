"""Converts checkpoints between formats: torch.save, torch.distributed.checkpoint, safetensors,
tailrace; and from VELOC's.

    from tailrace.convert import convert

    convert("ckpt/step-100", "model.safetensors")

Memory is bounded by the largest tensor, whatever the checkpoint's size. Tensors are mapped from the
source if its format allows it. Otherwise they are read one by one into a mapped scratch file beside
the target, and written from there. The target appears under its name when it is complete and
synced, or not at all. Nothing in a source is run: pickle is read only as far as torch's
`weights_only` reads it.
"""

from __future__ import annotations

import os
from typing import Any

from tailrace import _arguments
from tailrace._errors import Code, Error
from tailrace.convert import _sources, _targets, _veloc
from tailrace.convert._scratch import Scratch

FORMATS = ("torch", "ranks", "safetensors", "dcp", "tailrace", "tailrace-dcp")
SOURCES = (*FORMATS, "veloc")

__all__ = ["FORMATS", "SOURCES", "convert", "format_of", "target_format"]


def format_of(source: str | os.PathLike[str]) -> str:
    """The format of a checkpoint, by its first bytes or its files."""
    return _sources.format_of(_arguments.path(source, "source", "nothing was read"))


def target_format(target: str | os.PathLike[str]) -> str:
    """The format that a name's ending stands for. Raises Error (invalid argument) if it stands for
    none."""
    target = _arguments.path(target, "target", "nothing was written")
    for ending, name in ((".pt", "torch"), (".pth", "torch"), (".bin", "torch"), (".ckpt", "torch"),
                         (".safetensors", "safetensors"), (".tailrace", "tailrace")):  # fmt: skip
        if target.endswith(ending):
            return name
    raise Error(
        Code.INVALID_ARGUMENT,
        f"the name '{target}' does not tell the format; choose one of {', '.join(FORMATS)} (--to)",
    )


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    source_format: str | None = None,
    to: str | None = None,
    rank: int | None = None,
    files: int = 1,
    tensors_only: bool = False,
    replace: bool = False,
    meta: str | os.PathLike[str] | None = None,
) -> int:
    """Converts `source` into `target` and returns the bytes of its tensors.

    source: of a version that VELOC has written, the path of any one of its files.
    source_format, to: one of SOURCES and one of FORMATS. The defaults follow from what `source`
        holds, and from the ending of `target`.
    rank: convert only this rank of a source of several ranks.
    files: K, the number of files of a `tailrace` directory of several ranks, or of a `tailrace-dcp`
        directory.
    tensors_only: leave out everything but tensors, for safetensors, which holds nothing else.
    replace: replace an earlier target, which stays until the new one is complete. This is refused
        if it would remove a part of the source.
    meta: of a version that VELOC has written, the directory of VELOC's key `meta`. Each rank must
        have a checksum there, and match it. Without it, checksums beside the files count, if there
        are any.

    After an Error the source and an earlier target are as they were.
    """
    source = _arguments.path(source, "source", "nothing was written")
    target = os.path.normpath(_arguments.path(target, "target", "nothing was written"))
    files = _arguments.number(files, "files", "nothing was written", _arguments.MOST_32)
    meta = None if meta is None else _arguments.path(meta, "meta", "nothing was written")
    rank = None if rank is None else _arguments.number(rank, "rank", "nothing was written")
    to = to or target_format(target)
    source_format = source_format or format_of(source)
    for name, formats in ((to, FORMATS), (source_format, SOURCES)):
        if name not in formats:
            raise Error(Code.INVALID_ARGUMENT, f"there is no format {name!r}; there are {', '.join(formats)}")
    if meta is not None and source_format != "veloc":
        raise Error(Code.INVALID_ARGUMENT, f"meta is VELOC's, and '{source}' is {source_format}; nothing was written")
    _targets.check_apart(source, target, _sources.files(source, source_format, rank))
    _targets.put_back(target)
    if os.path.lexists(target) and not replace:
        raise Error(
            Code.ALREADY_EXISTS,
            f"'{target}' exists already, and was left as it is; --force, or replace=True, replaces it",
        )
    directory = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(directory):
        raise Error(Code.NOT_FOUND, f"there is no directory '{directory}' to write into; nothing was written")
    with Scratch(directory) as scratch:
        try:
            if source_format == "veloc":
                trees, epoch = _read_veloc(source, rank, to, meta)
            else:
                trees, epoch = _sources.read(source, source_format, rank, scratch), None
        except Error:
            raise
        except (OSError, RuntimeError) as error:
            raise Error(Code.IO_ERROR, f"reading '{source}': {error}; nothing was written") from error
        return _targets.write(trees, target, to, files, tensors_only, epoch)


def _read_veloc(source: str, rank: int | None, to: str, meta: str | None) -> tuple[list[Any], _targets.Epoch | None]:
    """A version as the target holds it best."""
    version = _veloc.read(source, rank, meta)
    if to == "tailrace":  # as libveloc-client would have written it
        return version.regions(), _targets.Epoch(_veloc.JOB, version.number)
    if to == "ranks" or rank is not None:
        return version.trees(), None
    return [{f"rank{number}": tree for number, tree in enumerate(version.trees())}], None
