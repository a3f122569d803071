"""Reads what `tailrace report` draws: results of `tailrace bench` and `tailrace profile` (JSON), and
records of sessions (JSON Lines; docs/records.md explains the fields). Pure, except for reading
files."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass, field
from typing import Any

import shapes

Json = dict[str, Any]


class NotReadable(Exception):
    """A file that is neither results nor a record; the sentence says why."""


@dataclass
class Spread:
    """Median, least and most of some values."""

    median: float
    least: float
    most: float
    count: int

    @staticmethod
    def of(values: list[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values), len(values))


# Facts about a benchmark's machine on which a rate depends, as it does on a setting.
PLACE = ("host", "directory", "file_system", "local_directory", "local_file_system", "tailrace", "threads")


@dataclass
class BenchRun:
    """One run of a benchmark, with its settings and its place. Sizes are in bytes, times in seconds."""

    settings: Json
    result: Json
    machine: Json


@dataclass
class Session:
    """A session's record: its head, its epochs, and its end (None if the session was killed)."""

    head: Json
    epochs: list[Json] = field(default_factory=list)
    end: Json | None = None

    @property
    def files(self) -> int:
        return int(self.head["settings"].get("files", 1))

    @property
    def facts(self) -> Json:
        """Facts that must be equal in sessions that are pooled. If a fact is named twice, the value in
        use counts."""
        named = ("nodes", "ranks", "job", "shared_dir", "file_system", "io_engine", "tailrace")
        facts = {key: self.head[key] for key in named}
        passed = (*named, "name", "files", "record", "record_dir", "record_bytes")
        rest = {key: value for key, value in self.head["settings"].items() if key not in passed}
        return {**facts, "files": self.files, **rest}

    @property
    def committed(self) -> list[Json]:
        return [epoch for epoch in self.epochs if epoch["state"] == "committed"]


@dataclass
class Material:
    """Everything that was read."""

    runs: list[BenchRun] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    profiles: list[tuple[str, Json]] = field(default_factory=list)  # with the names of their files
    passed_over: int = 0  # lines of records that a killed program left unfinished, or of no known session
    unread: list[str] = field(default_factory=list)  # records that could not be opened, and why


def record_files(directory: str, state: str, material: Material) -> list[str]:
    """The records of sessions on a shared directory: those in `state` that name it. Unreadable records
    are noted."""
    wanted = os.path.realpath(directory)
    found = []
    try:
        names = sorted(os.listdir(state)) if os.path.isdir(state) else []
    except OSError as error:
        raise NotReadable(f"{state}: {error.strerror}") from error
    for name in names:
        path = os.path.join(state, name)
        if name.endswith((".jsonl", ".jsonl.1")):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    named = json.loads(file.readline()).get("shared_dir", "")
                if os.path.realpath(named) == wanted:
                    found.append(path)
            except OSError as error:
                if (note := f"{path}: {error.strerror}") not in material.unread:
                    material.unread.append(note)
            except (ValueError, AttributeError, TypeError, RecursionError):
                continue
    return found


def default_state() -> str:
    """The directory in which sessions keep their records, unless `record_dir` says otherwise."""
    if chosen := os.environ.get("TAILRACE_RECORD_DIR"):
        return chosen
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "tailrace")


def read(paths: list[str], state: str) -> Material:
    """Reads every path: results, records, or a directory that sessions have used."""
    material = Material()
    for path in paths:
        if os.path.isdir(path):
            records = record_files(path, state, material)
            if not records:
                unread = "".join(f"; could not be read: {one}" for one in material.unread)
                raise NotReadable(f"{path} is a directory, and {state} has no record of a session on it{unread}")
            for record in records:
                read_file(record, material)
        else:
            read_file(path, material)
    return material


def read_file(path: str, material: Material) -> None:
    """Adds what the file holds to `material`."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise NotReadable(f"{path}: {error.strerror}") from error
    try:
        whole = shapes.cleaned(json.loads(text))
    except (ValueError, RecursionError):
        whole = None
    try:
        if isinstance(whole, dict) and "tailrace_bench" in whole:
            add_results(whole, material)
            return
        if isinstance(whole, dict) and "tailrace_profile" in whole:
            add_profile(shapes.clean_text(os.path.basename(path).removesuffix(".json")), whole, material)
            return
        before = len(material.sessions)
        add_records(text, material)
    except shapes.Misshapen as error:
        raise NotReadable(f"{path} is damaged: {error}") from error
    if len(material.sessions) == before:
        raise NotReadable(f"{path} holds neither results of `tailrace bench` or `profile` nor records of sessions")


def add_results(results: Json, material: Material) -> None:
    """Adds the runs of one benchmark."""
    shapes.check_bench(results)
    machine = results["machine"]
    place = {key: machine[key] for key in PLACE}
    for run in results["runs"]:
        settings = {key: value for key, value in results["cases"][run["case"]].items() if key != "refused"}
        material.runs.append(BenchRun({**settings, **place}, run, machine))


def add_profile(label: str, profile: Json, material: Material) -> None:
    """Adds what was counted of one program."""
    shapes.check_profile(profile)
    material.profiles.append((label, profile))


def add_records(text: str, material: Material) -> None:
    """Adds the sessions of one record. An unfinished last line, as a killed program leaves it, is
    passed over."""
    by_uid = {session.head["run_uid"]: session for session in material.sessions}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = shapes.cleaned(json.loads(line))
            kind, uid = entry["record"], entry["run_uid"]
        except (ValueError, KeyError, TypeError, RecursionError):
            material.passed_over += 1
            continue
        try:
            shapes.check(uid, shapes.is_text, "run_uid")
            shapes.check_entry(entry)
        except shapes.Misshapen as error:
            raise shapes.Misshapen(f"line {number}: {error}") from error
        if kind == "session":
            if uid not in by_uid:
                by_uid[uid] = Session(entry)
                material.sessions.append(by_uid[uid])
        elif uid not in by_uid:
            material.passed_over += 1
        elif kind == "epoch":
            by_uid[uid].epochs.append(entry)
        elif kind == "end":
            by_uid[uid].end = entry


def rate(run: BenchRun) -> float:
    """Bytes per second until durable."""
    return float(run.result["bytes_per_second"])


def received_rate(run: BenchRun) -> float:
    """As the ISPDC paper measures it: received bytes / time of the writers."""
    return float(run.result["received_bytes_per_second"])


def leaders(epoch: Json) -> list[Json]:
    """The leaders of an epoch's flush, slowest first. A leader's time is that of its own work."""
    found = [node for node in epoch["nodes"] if node["role"] == "leader"]
    return sorted(found, key=leader_seconds, reverse=True)


def leader_seconds(leader: Json) -> float:
    """The time from the first file made until durable."""
    return float(leader["prepare_seconds"] + leader["move_seconds"] + leader["commit_seconds"])


def leader_parts(leader: Json) -> dict[str, float]:
    """The time of its writers by what they did, as shares of the leader's own time, because they work
    side by side."""
    threads = max(1, len(leader["threads"]))
    received = sum(thread["received_write_seconds"] for thread in leader["threads"]) / threads
    local = sum(thread["local_write_seconds"] + thread["read_seconds"] for thread in leader["threads"]) / threads
    return {"received": received, "local": local, "other": max(0.0, leader_seconds(leader) - received - local)}


def node_bytes(node: Json) -> int:
    """A node's own bytes: a leader wrote them, a follower sent them."""
    return int(node["local_bytes"] if node["role"] == "leader" else node["sent_bytes"])


def imbalance(epoch: Json) -> float:
    """How much the nodes' own bytes differ: half of the spread / mean, as in "+-20 %"."""
    own = [node_bytes(node) for node in epoch["nodes"]]
    mean = sum(own) / len(own) if own else 0
    return (max(own) - min(own)) / 2 / mean if mean else 0.0
