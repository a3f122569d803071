"""Turns DeepSpeed's own objects in a state dict into plain ones, and back.

ZeRO keeps a few objects among its numbers: the loss scaler, its stage, the places of parameters in
a flat tensor. These are the allow list. Each becomes a dict of plain values with the mark below. On
load only objects on the list are made again, from plain values, without calling anything that the
file names.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import torch
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

from tailrace._errors import Code, Error

_MARK = "tailrace.deepspeed"

# The class, the function that makes its plain value, and the function that makes the object of a
# plain value.
_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "LossScaler": (LossScaler, lambda v: dict(vars(v)), lambda v: _with_attributes(LossScaler, v)),
    "DynamicLossScaler": (DynamicLossScaler, lambda v: dict(vars(v)), lambda v: _with_attributes(DynamicLossScaler, v)),
    "ZeroStageEnum": (ZeroStageEnum, int, ZeroStageEnum),
    "fragment_address": (fragment_address, lambda v: [v.numel, v.start], lambda v: fragment_address(*v)),
}
_NAMES = {kind: name for name, (kind, _, _) in _KINDS.items()}


def to_plain(value: Any) -> Any:
    """The same tree, with dicts in place of DeepSpeed's objects. Tensors are not copied."""
    if type(value) in _NAMES:
        name = _NAMES[type(value)]
        return {_MARK: name, "v": _KINDS[name][1](value)}
    if isinstance(value, dict):
        if _MARK in value:
            raise Error(Code.INVALID_ARGUMENT, f"a state dict has the key {_MARK!r}, which is taken; nothing was saved")
        return _in_place(copy.copy(value), to_plain)  # with the attributes that a state dict has
    if type(value) in (list, tuple):
        return type(value)(to_plain(part) for part in value)
    return value


def from_plain(value: Any) -> Any:
    """Makes DeepSpeed's objects again in a tree that was just decoded. Changes the tree's containers."""
    if isinstance(value, dict):
        if _MARK not in value:
            return _in_place(value, from_plain)
        try:
            return _KINDS[value[_MARK]][2](value["v"])
        except (KeyError, TypeError, ValueError) as error:
            raise Error(Code.CORRUPT, f"an object of DeepSpeed's cannot be understood: {error!r}") from None
    if type(value) in (list, tuple):
        return type(value)(from_plain(part) for part in value)
    return value


def load_torch_file(path: str | os.PathLike[str], weights_only: bool) -> Any:
    """Loads a file of DeepSpeed's own engine with torch.load, which unpickles tensors and the objects
    on the list above."""
    with torch.serialization.safe_globals([*_NAMES, torch.Size]):
        return torch.load(path, map_location="cpu", weights_only=weights_only)


def _in_place(value: Any, change: Callable[[Any], Any]) -> Any:
    for key, part in value.items():
        value[key] = change(part)
    return value


def _with_attributes(kind: type, values: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    for name in values:
        if callable(getattr(kind, name, None)):
            raise ValueError(f"{kind.__name__} has no value {name!r}")
    vars(made).update(values)
    return made
