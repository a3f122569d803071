"""The nodes of a program: host files, and how a launcher is told to use fewer nodes than before.

Pure, except for family_of() and read_nodes().
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A line of a host file. slots: how many ranks it takes; None: the file does not say."""

    host: str
    slots: int | None = None


def parse_nodes(text: str) -> list[Node]:
    """Host files of MPICH ("host:4") and Open MPI ("host slots=4"). Raises ValueError."""
    nodes: list[Node] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        host, slots = words[0], None
        if match := re.fullmatch(r"([^:\s]+):([^:\s]*)", host):  # IPv6 has more colons
            host, slots = match[1], _slots(number, match[2])
        for word in words[1:]:
            if word.startswith("slots="):
                slots = _slots(number, word[6:])
        if host.startswith("-") or not re.fullmatch(r"[\w.:%-]+", host, re.ASCII):
            raise ValueError(f"line {number}: {host[:100]!r} is no host name")
        if any(node.host == host for node in nodes):
            raise ValueError(f"line {number}: {host} is there twice")
        nodes.append(Node(host, slots))
    if not nodes:
        raise ValueError("it names no host")
    return nodes


def _slots(line: int, text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII) or int(text) == 0:
        raise ValueError(f"line {line}: {text[:100]!r} is no number of slots from 1 to 999999")
    return int(text)


def read_nodes(path: str) -> list[Node]:
    with open(path, encoding="utf-8") as file:
        try:
            return parse_nodes(file.read())
        except UnicodeDecodeError:
            raise ValueError("it is not a text file") from None


PLACES = ("{nodes}", "{hosts}", "{count}", "{slots}")
STARTED_BY = "TAILRACE_STARTED_BY"  # a setting, by which the program's records name the attempt


def places_in(command: Sequence[str]) -> list[str]:
    """What place() would replace."""
    return [name for name in PLACES if any(name in word for word in command)]


def counts(text: str) -> list[int]:
    """Slurm's counts per node: "4(x2),3" are 4, 4, 3. Empty if it is something else."""
    found: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", piece.strip())
        if not match or int(match[2] or 1) > 1 << 20:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found


def host_file(nodes: Sequence[Node], family: str) -> str:
    """The text of a host file for a launcher of this family."""
    separator = " slots=" if family == "openmpi" else ":"
    return "".join(node.host + ("" if node.slots is None else f"{separator}{node.slots}") + "\n" for node in nodes)


def family_of(program: str) -> str:
    """ "mpich", "openmpi", "srun", or "" for a program that is no known launcher."""
    name = os.path.basename(program)
    if name == "srun":
        return "srun"
    if not re.fullmatch(r"(mpiexec|mpirun|orterun|prterun)([.-]\w+)*", name):
        return ""
    try:
        about = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if re.search(r"HYDRA|mpich|Intel\(R\) MPI", about, re.I):
        return "mpich"
    return "openmpi" if re.search(r"Open ?MPI|OpenRTE|prte", about, re.I) else ""


def place(command: Sequence[str], family: str, nodes: Sequence[Node], given_file: str, new_file: str) -> list[str]:
    """The command on these nodes. Its words may hold {nodes}, a host file; {hosts}, a list with commas;
    {count}, the number of nodes; {slots}, the sum of their slots. If it has neither of the first two and
    does not name the file that the user gave, the launcher gets an option in front of all others."""
    slots = sum(node.slots if node.slots is not None else 1 for node in nodes)
    hosts = ",".join(node.host for node in nodes)
    values = dict(zip(PLACES, (new_file, hosts, str(len(nodes)), str(slots)), strict=True))
    placed = list(command)
    told = False
    for index, word in enumerate(command):
        if given_file and word == given_file:
            placed[index], told = new_file, True
        for name, value in values.items():
            if name in word:
                placed[index] = placed[index].replace(name, value)
                told = told or name in ("{nodes}", "{hosts}")
    exported = ["-x", STARTED_BY] if family == "openmpi" else []  # the others pass the whole environment on
    if told:
        return [placed[0], *exported, *placed[1:]]
    options = {
        "mpich": ["-f", new_file],
        "openmpi": ["--hostfile", new_file, *exported],
        # The step ends when it loses a task or a node. Only the job goes on then (sbatch --no-kill).
        # Slurm may go on counting the cores of a step that died with its node, and would not start the
        # next one on them. So steps may overlap.
        "srun": [
            f"--nodes={len(nodes)}",
            f"--nodelist={hosts}",
            "--kill-on-bad-exit=1",
            "--no-kill=off",
            "--overlap",
        ],
    }
    return [placed[0], *options.get(family, []), *placed[1:]]


def one_per_node(
    command: Sequence[str], family: str, nodes: Sequence[Node], file: str, environment: Mapping[str, str]
) -> list[str]:
    """What comes before a program so that the launcher of `command` starts it once on each node. `file` will be the
    host file. Without nodes: once on this machine."""
    count = max(1, len(nodes))
    hosts = ",".join(node.host for node in nodes)
    if family == "mpich":
        return [command[0], *(["-f", file, "-ppn", "1"] if nodes else []), "-n", str(count)]
    if family == "openmpi":
        # It binds to cores, and keeps the environment to itself, unless told otherwise.
        settings = [name for name in sorted(environment) if name.startswith(("TAILRACE_", "XDG_STATE_"))]
        exported = [word for name in settings for word in ("-x", name)]
        where = ["--hostfile", file, "--map-by", "ppr:1:node"] if nodes else []
        return [command[0], *where, "--bind-to", "none", *exported, "-n", str(count)]
    plugin = [word for word in command if word.startswith("--mpi=")]
    where = [f"--nodes={len(nodes)}", f"--nodelist={hosts}"] if nodes else []
    return [
        command[0],
        "--overlap",
        *where,
        *plugin,
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
    ]
