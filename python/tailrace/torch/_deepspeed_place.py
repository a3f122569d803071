"""Which checkpoint in a directory of DeepSpeed's counts: tailrace's, or that of DeepSpeed's own engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from tailrace._errors import Code, Error
from tailrace.torch import _segments


def segments_in(place: str, opened: Callable[[], _segments.Reader]) -> _segments.Reader | None:
    """What `opened` gives: the segments in `place`. None if DeepSpeed's own engine has saved there since, or nobody but
    it. Raises Error (not found) if files of tailrace's are there, and no checkpoint: one has been lost."""
    if _is_own_newer(place):
        return None
    try:
        return opened()
    except Error as error:
        if error.code == Code.NOT_FOUND and not _has_files(place):
            return None
        raise


def _has_files(place: str) -> bool:
    """Whether files of tailrace's lie in a directory."""
    return os.path.isdir(place) and any(name.endswith(".tailrace") for name in os.listdir(place))


def _is_own_newer(place: str) -> bool:
    """Whether DeepSpeed's own files in a directory are newer than tailrace's. A checkpoint is loaded from one of the
    two, or weights of one save would come with optimizer states of another."""
    newest = {"_states.pt": -1, ".tailrace": -1}
    with contextlib.suppress(OSError):  # opening says what is wrong
        for file in os.scandir(place):
            for ending in newest:
                if file.name.endswith(ending):
                    newest[ending] = max(newest[ending], file.stat().st_mtime_ns)
    return newest["_states.pt"] > newest[".tailrace"]
