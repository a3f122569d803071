"""What lies in the shared directory and in the nodes' tiers: where the program would go on from.

The tailrace command tells (`ls --json`, `drain --json`). Which directory a program uses is told by
the user, by the settings, or by the records of the sessions of its last attempt.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import launchers
from decisions import Epoch

LS_S = 120


@dataclass(frozen=True)
class Place:
    """A shared directory, the job whose files are meant, and node-local tiers that its sessions had."""

    directory: str
    job: str = ""
    local_dirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Session:
    """As a record tells."""

    began_unix_ms: float
    run: int
    place: Place
    uid: str
    started_by: str = ""
    closed: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Survey:
    """What a restore would find. in_shared: the newest one is complete in the shared directory. given_back: some of its
    parts are lost, and redundancy gives them back."""

    newest: Epoch | None = None
    in_shared: bool = False
    given_back: bool = False
    older_exists: bool = False
    job: str = ""
    why_unknown: str = ""
    waiting: dict[str, list[str]] = field(default_factory=dict)  # nodes, by epoch


def directory_in_settings(environment: Mapping[str, str]) -> str:
    """shared_dir, as the environment or the configuration file says. Empty: neither does."""
    if own := environment.get("TAILRACE_SHARED_DIR"):
        return own
    try:
        with open(environment.get("TAILRACE_CONFIG", ""), encoding="utf-8") as file:
            lines = re.findall(r"""^\s*shared_dir\s*=\s*(?:"([^"\\]*)"|'([^']*)')""", file.read(), re.M)
    except OSError:
        return ""
    return "".join(lines[0]) if lines else ""


def record_directory(environment: Mapping[str, str]) -> str:
    if own := environment.get("TAILRACE_RECORD_DIR"):
        return own
    state = environment.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "tailrace")


def session_of(line: str) -> Session | None:
    """From a line of a record, if it is a session's."""
    try:
        record: Any = json.loads(line)
        if record["record"] != "session":
            return None
        place = Place(str(record["shared_dir"]), str(record["job"]), (str(record["settings"]["local_dir"]),))
        started_by = str(record["settings"].get("started_by", ""))
        return Session(float(record["began_unix_ms"]), int(record["run"]), place, str(record["run_uid"]), started_by)
    except (ValueError, KeyError, TypeError):
        return None


def closed_session(line: str) -> str:
    """The uid of the session of whose end a line of a record tells. Empty: it does not."""
    try:
        record: Any = json.loads(line)
        return str(record["run_uid"]) if record["record"] == "end" else ""
    except (ValueError, KeyError, TypeError):
        return ""


def sessions_in_records(directory: str) -> list[Session]:
    """The sessions of this user's programs, in the order in which they say that they began."""
    found: list[Session] = []
    for path in glob.glob(os.path.join(glob.escape(directory), "*.jsonl")):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line for line in file if '"session"' in line or '"end"' in line]
        except OSError:
            continue
        closed = {closed_session(line) for line in lines}
        sessions = [session for line in lines if (session := session_of(line))]
        found += [replace(session, closed=session.uid in closed) for session in sessions]
    return sorted(found, key=lambda session: session.began_unix_ms)


def new_sessions_on(directory: str, place: Place, known: Collection[Session]) -> list[Session] | None:
    """Those that used the place, but for the known ones: no clock of another machine decides which are of an attempt.
    None: nobody keeps records of the place."""
    own = os.path.realpath(place.directory)
    there = [one for one in sessions_in_records(directory) if os.path.realpath(one.place.directory) == own]
    return [one for one in there if one not in known] if there else None


def gives_back(entries: Sequence[dict[str, Any]]) -> bool:
    """Whether the nodes that are there can write again what the others had captured of an epoch. `entries`: what they
    list of it."""
    paths = [path for entry in entries for path in entry["directories"]]
    there = {int(match[1]) for path in paths if (match := re.search(r"\.node(\d+)$", path))}
    sets: dict[tuple[int, ...], dict[str, Any]] = {}
    keepers: set[int] = set()
    for entry in entries:
        for kept in entry.get("protection", []):
            sets[tuple(kept["nodes"])] = kept
            keepers.update(kept["keepers_here"])
    known = {node for members in sets for node in members}
    if not known or known != set(range(max(known) + 1)):
        return False  # all of a set are lost
    for members, kept in sets.items():
        lost = set(members) - there
        if kept["redundancy"] == "partner":  # each is kept by the next one (src/protect/sets.cc)
            next_one = dict(zip(members, (*members[1:], members[0]), strict=True))
            if any(next_one[node] not in keepers & there for node in lost):
                return False
        elif lost and len(lost | (set(members) - keepers)) > kept["losses_survived"]:
            return False
    return True


def judge(listings: Sequence[dict[str, Any]], job: str) -> Survey:
    """One survey from `ls --json` of all nodes. The first listing tells of the shared directory."""
    listed = listings[0]
    jobs = {entry["job"] for entry in (*listed["epochs"], *(e for one in listings for e in one["node_local"]))}
    if not job and len(jobs) > 1:
        return Survey(why_unknown=f"it holds epochs of {len(jobs)} jobs: choose one with --name")
    job = job or next(iter(jobs), "")
    complete = [
        entry
        for entry in listed["epochs"]
        if entry["job"] == job and entry["state"] == "complete" and not entry["replaced"]
    ]
    in_line = [Epoch(entry["epoch"], entry["run"]) for entry in complete if not entry["left_behind"]]
    ranks_here: dict[Epoch, set[str]] = {}
    counts: dict[Epoch, int] = {}
    ranks: dict[Epoch, int] = {}
    waiting: dict[str, list[str]] = {}
    entries: dict[Epoch, list[dict[str, Any]]] = {}
    for listing in listings:
        for entry in listing["node_local"]:
            if entry["job"] != job or entry["ranks_here"] == 0 or entry.get("captured_for"):
                continue
            epoch = Epoch(entry["epoch"], entry["run"])
            places = {f"{listing['host']}:{path}" for path in entry["directories"]}
            if places & ranks_here.setdefault(epoch, set()):
                continue  # a tier that several nodes see
            ranks_here[epoch] |= places
            entries.setdefault(epoch, []).append(entry)
            counts[epoch] = counts.get(epoch, 0) + entry["ranks_here"]
            ranks[epoch] = entry["ranks"]
            waiting.setdefault(str(epoch), []).extend(entry.get("waiting_for", []))
    whole = [epoch for epoch, count in counts.items() if count >= ranks[epoch]]
    given_back = [epoch for epoch in counts if epoch not in (*in_line, *whole) and gives_back(entries[epoch])]
    newest = max([*in_line, *whole, *given_back], default=None)
    return Survey(
        newest=newest,
        in_shared=newest in in_line,
        given_back=newest in given_back,
        older_exists=any(Epoch(entry["epoch"], entry["run"]) != newest for entry in complete),
        job=job,
        waiting={epoch: sorted(set(nodes)) for epoch, nodes in waiting.items() if nodes},
    )


def survey(tool: str, launcher: str, hosts: Sequence[str], place: Place) -> Survey:
    """Asks all nodes. What cannot be learned is `why_unknown`."""
    words = [tool, "ls", "--json", place.directory]
    for local_dir in place.local_dirs:
        words += ["--local-dir", local_dir]
    if not os.path.isdir(place.directory):
        return Survey(job=place.job)
    answers = launchers.everywhere(launcher, hosts, words, LS_S)
    listings = []
    for host, answer in answers.items():
        try:
            listing = json.loads(answer.output)
            listings.append({"host": host, "epochs": listing["epochs"], "node_local": listing["node_local"]})
        except (ValueError, KeyError):
            said = answer.complaints.strip().splitlines()[-1:]
            return Survey(why_unknown=f"{host}: {said[0] if said else 'tailrace ls says nothing'}")
    return judge(listings, place.job) if listings else Survey(why_unknown="no node answers")
