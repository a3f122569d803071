"""What a program may have meant by a name that the package does not have."""

from __future__ import annotations

import sys

_MEANT = {
    "save": "tailrace.open gives a session, and its save saves a state; tailrace.torch.save writes one file",
    "load": "tailrace.read opens a checkpoint, and a session's restore_latest fills a state; tailrace.torch.load loads "
    "one file",
    "restore": "tailrace.open gives a session, and its restore_latest fills a state",
    "torch": "import tailrace.torch loads that part",
    "jax": "import tailrace.jax loads that part",
    "convert": "import tailrace.convert loads that part",
}


def error(name: str) -> AttributeError:
    """The AttributeError for this name. Python itself adds the nearest right one."""
    sentence = f"module 'tailrace' has no attribute {name!r}"
    return AttributeError(
        f"{sentence}: {_MEANT[name]}" if name in _MEANT else sentence, name=name, obj=sys.modules["tailrace"]
    )
