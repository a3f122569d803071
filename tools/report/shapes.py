"""The shape that results and records must have before anything is drawn of them, because a file may be
damaged or written by anybody. Only what is drawn is checked; the rest of a file is left alone.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Check = Callable[[Any], bool]
Shape = Any  # a check, or a list, tuple or dictionary of shapes

MOST = 2**62  # no size or time is larger, and no axis could show it
LAST_MS = 253402300799000  # the end of the year 9999


class Misshapen(Exception):
    """The sentence says which value has the wrong shape."""


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST


def is_count(value: Any) -> bool:
    return isinstance(value, int) and is_number(value)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def is_time(value: Any) -> bool:
    return is_number(value) and value <= LAST_MS


def is_setting(value: Any) -> bool:
    return isinstance(value, (str, bool)) or (isinstance(value, (int, float)) and abs(value) < 2**64)


def is_digits(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10


def is_leader(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") == "leader"


NAMES: dict[Check, str] = {
    is_number: "a number", is_count: "a whole number", is_text: "text", is_switch: "true or false", is_time: "a time",
    is_setting: "text or a number", is_digits: "a number in quotes",
}  # fmt: skip


def some(names: str, check: Check) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), check)


class Each:
    """An object whose values all have one shape, whatever their names are."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


MACHINE = {
    **some("host kernel processor directory file_system local_directory local_file_system tailrace threads", is_text),
    **some("processors memory_bytes", is_count), "began_unix_ms": is_time,
}  # fmt: skip
CASE = {
    **some("followers writers files buffers buffer_bytes processes process_bytes", is_count),
    **some("placement io_engine direct_io", is_text), "durable": is_switch,
}  # fmt: skip
RUN = {**some("case repetition", is_count), **some("bytes_per_second received_bytes_per_second", is_number)}
BENCH = {"machine": MACHINE, "cases": [Each(is_setting)], "runs": [RUN]}

SESSION = {
    **some("job shared_dir file_system io_engine tailrace", is_text), **some("run ranks nodes", is_count),
    "began_unix_ms": is_time, "settings": Each(is_setting),
}  # fmt: skip
EPOCH = {**some("epoch run", is_count), "state": is_text, "flush_seconds": is_number, "nodes": [Each(lambda _: True)]}
CAPTURE = {"bytes": is_count, "most_seconds": is_number}
THREAD = {
    **some("local_bytes received_bytes", is_count),
    **some("read_seconds local_write_seconds received_write_seconds idle_seconds", is_number),
}
LEADER = {
    **some("node group local_bytes received_bytes", is_count),
    **some("prepare_seconds move_seconds commit_seconds", is_number), "threads": [THREAD],
}  # fmt: skip
FOLLOWER = {"role": is_text, "sent_bytes": is_count}
END = some("seconds blocked_seconds", is_number)

COUNTS = some("opens writes reads seeks syncs backward_seeks backward_offsets written_bytes read_bytes", is_count)
PHASE = {**COUNTS, "files": is_count}
FILE_PHASE = {**COUNTS, "write_sizes": Each(is_count), "read_sizes": Each(is_count)}
PROFILE = {
    "phases": {"save": PHASE, "restore": PHASE}, "size_bins": [(is_count, is_text)], "command": [is_text],
    "files": [{"path": is_text}], "unseen": {"io_urings": lambda _: True, "mapped_files": lambda _: True},
    **some("host strace", is_text), "processes": is_count, "seconds": is_number, "began_unix_ms": is_time,
}  # fmt: skip


def check(value: Any, shape: Shape, where: str) -> None:
    """Raises Misshapen, with the place, if the value does not have the shape. Objects may have more
    keys than the shape."""
    if isinstance(shape, (dict, Each)):
        demand(isinstance(value, dict), where, "an object")
        inner = shape.items() if isinstance(shape, dict) else [(key, shape.shape) for key in value]
        for key, one in inner:
            demand(key in value, where, f'"{key}"')
            check(value[key], one, f"{where}.{key}" if where else key)
    elif isinstance(shape, (list, tuple)):
        demand(isinstance(value, list), where, "a list")
        shapes = shape * len(value) if isinstance(shape, list) else shape
        demand(len(shapes) == len(value), where, f"a list of {len(shapes)}")
        for number, (item, one) in enumerate(zip(value, shapes, strict=True)):
            check(item, one, f"{where}[{number}]")
    else:
        demand(shape(value), where, NAMES.get(shape, "something else"))


def demand(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise Misshapen(f"{where[:100] or 'here'}: {what} is expected")


def check_bench(results: Any) -> None:
    check(results, BENCH, "")
    for number, case in enumerate(results["cases"]):
        check(case, CASE, f"cases[{number}]")
    for number, run in enumerate(results["runs"]):
        demand(run["case"] < len(results["cases"]), f"runs[{number}].case", "the number of a case")


def check_entry(entry: Any) -> None:
    """Checks one line of a record."""
    kind = entry["record"]
    if kind == "session":
        check(entry, SESSION, "")
        if "files" in entry["settings"]:
            check(entry["settings"]["files"], is_digits, "settings.files")
    elif kind == "epoch":
        check(entry, EPOCH, "")
        if "capture" in entry:
            check(entry["capture"], CAPTURE, "capture")
        for number, node in enumerate(entry["nodes"]):
            check(node, LEADER if is_leader(node) else FOLLOWER, f"nodes[{number}]")
    elif kind == "end":
        check(entry, END, "")


def check_profile(profile: Any) -> None:
    check(profile, PROFILE, "")
    bounds = [below for below, _ in profile["size_bins"]]
    demand(bounds == sorted(bounds), "size_bins", "an ascending list")
    for number, file in enumerate(profile["files"]):
        demand(file["path"].startswith("/"), f"files[{number}].path", "an absolute path")
        for phase in ("save", "restore"):
            if phase not in file:
                continue
            where = f"files[{number}].{phase}"
            check(file[phase], FILE_PHASE, where)
            for kind in ("write_sizes", "read_sizes"):
                for size in file[phase][kind]:
                    fits = size.isascii() and size.isdecimal() and len(size) < 20 and int(size) < max(bounds, default=0)
                    demand(fits, f"{where}.{kind}", "a size within size_bins")


def cleaned(value: Any) -> Any:
    """The document, also its names, with unprintable characters written as \\xNN or \\uNNNN."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): cleaned(item) for key, item in value.items()}
    return value


def clean_text(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else escaped(ord(one)) for one in text)


def escaped(point: int) -> str:
    return f"\\x{point:02x}" if point <= 0xFF else f"\\u{{{point:04x}}}"
