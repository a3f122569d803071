"""A process that is killed between two steps in a directory, played by an exception that nothing handles."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest


class Killed(BaseException):
    pass


def is_killed_after(steps: int, work: Callable[[], Any]) -> bool:
    """Does the work until it has renamed or removed `steps` times; whether it would have done so once more."""
    left = steps

    def counted(call: Any) -> Any:
        def one(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return call(*args, **kwargs)

        return one

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "unlink", "rmdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        except Killed:
            return True
    return False
