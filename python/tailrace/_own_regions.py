"""The names of the regions in which the package keeps what it knows of a state. They are no part of the state.
(The region of a tree is _tree.SKELETON.)"""

from __future__ import annotations

DCP = "tailrace.dcp"  # torch/_metadata.py
DCP_SAVE = "tailrace.dcp.save"
JAX = "tailrace.jax"  # jax/_leaves.py
SEGMENTS = "tailrace.segments"  # torch/_segments.py

ALL = frozenset([DCP, DCP_SAVE, JAX, SEGMENTS])
