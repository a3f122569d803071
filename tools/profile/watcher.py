"""From calls to files: which process has which file open, and what was done to it. Pure: calls in,
tallies out.

A descriptor belongs to an opened file. Processes and duplicates of the descriptor (dup, fork) share
the file and its position. strace's `-y` names the file of each descriptor. That name counts if this
bookkeeping knows nothing, or something older: for inherited descriptors, and for those that were
sent by a socket or closed by an exec.

Saving and restoring are separated by descriptor. A descriptor counts to `save` from its opening if
it creates, truncates or only writes. Otherwise it counts to `restore` until its first write or
sync, and to `save` from then on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from strace_lines import EXIT, Call, arguments_of, descriptor_of, name_of
from tally import Tally

# The calls that strace has to trace. strace may not know a name with `?`.
TRACED = (
    "open", "openat", "openat2", "creat", "dup", "dup2", "dup3", "fcntl", "clone", "clone3", "fork", "vfork",
    "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev", "pwritev2",
    "lseek", "fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "ftruncate", "fallocate", "mmap",
    "copy_file_range", "sendfile", "io_submit", "io_uring_setup", "rename", "renameat", "renameat2",
    "chdir", "fchdir",
)  # fmt: skip
MOST_WAITING = 1000  # calls of a thread with an unknown parent; after that many it will stay unknown
IOCB = re.compile(r"aio_lio_opcode=IOCB_CMD_(\w+), aio_fildes=(\d+(?:<[^<>]*>)?)(.*)", re.DOTALL)


@dataclass
class File:
    """A file, under its last name. `replaced` are the files that had this name before the file was
    renamed to it."""

    path: str
    save: Tally = field(default_factory=Tally)
    restore: Tally = field(default_factory=Tally)
    directory: bool = False
    replaced: list[File] = field(default_factory=list)

    def totals(self) -> tuple[Tally, Tally]:
        """The tallies of save and restore, for all files that had the name."""
        save, restore = Tally(), Tally()
        save.add(self.save)
        restore.add(self.restore)
        for earlier in self.replaced:
            for whole, part in zip((save, restore), earlier.totals(), strict=True):
                whole.add(part)
        return save, restore


class Opened:
    """An opened file. `position` is None if it is not known. `ends` has each thread's last pread or
    pwrite."""

    __slots__ = ("ends", "file", "position", "tally")

    def __init__(self, file: File, saves: bool, position: int | None) -> None:
        self.file = file
        self.tally = file.save if saves else file.restore
        self.position = position
        self.ends: dict[int, int] = {}

    def saves(self) -> Tally:
        """From now on it counts to the save phase, and so does its opening."""
        if self.tally is self.file.restore:
            if self.tally.opens:  # an inherited descriptor has none
                self.file.restore.opens -= 1
                self.file.save.opens += 1
            self.tally = self.file.save
        return self.tally


@dataclass
class Process:
    """What a process, or the threads of one, have: descriptors and a working directory."""

    descriptors: dict[int, Opened]
    place: list[str]  # one entry, shared where the directory is


class Watcher:
    """Takes calls and keeps the tallies of every file that they touch."""

    def __init__(self, directory: str) -> None:
        self.files: dict[str, File] = {}
        self.io_urings = 0
        self.whole_syncs = 0  # sync(2), which belongs to no file
        self.threads = 0
        self.processes = 0
        self._directory = directory  # the first process's working directory
        self._running: dict[int, Process] = {}
        self._waiting: dict[int, list[Call]] = {}

    def watch(self, calls: Iterable[Call]) -> None:
        """Takes all calls of a program."""
        for call in calls:
            self._take(call)
        while self._waiting:  # of processes whose start was not seen
            thread = next(iter(self._waiting))
            self._start(thread, Process({}, [self._directory]), new_process=True)

    def _take(self, call: Call) -> None:
        process = self._running.get(call.thread)
        if process is None:
            if self.processes == 0:
                process = self._start(call.thread, Process({}, [self._directory]), new_process=True)
            else:
                # A child may be seen before its parent's fork has returned.
                waiting = self._waiting.setdefault(call.thread, [])
                waiting.append(call)
                if len(waiting) > MOST_WAITING:
                    self._start(call.thread, Process({}, [self._directory]), new_process=True)
                return
        if call.name == EXIT:
            del self._running[call.thread]
        elif (handler := HANDLERS.get(call.name)) is not None:
            handler(self, process, call)

    def _start(self, thread: int, process: Process, new_process: bool) -> Process:
        self._running[thread] = process
        self.threads += 1
        self.processes += new_process
        for call in self._waiting.pop(thread, []):
            self._take(call)
        return process

    def _file(self, path: str) -> File:
        if path not in self.files:
            self.files[path] = File(path)
        return self.files[path]

    def _opened(self, process: Process, argument: str) -> Opened | None:
        """The opened file of a descriptor. None if it is not a file."""
        number, path = descriptor_of(argument)
        known = process.descriptors.get(number)
        if path == "":  # a log without -y
            return known
        if not is_file(path):
            process.descriptors.pop(number, None)
            return None
        if known is None or known.file.path != path:
            known = Opened(self._file(path), saves=False, position=None)
            process.descriptors[number] = known
        return known

    # Calls, by kind.

    def open(self, process: Process, call: Call) -> None:
        arguments = arguments_of(call.arguments)
        if call.name in ("openat", "openat2"):
            _, base = descriptor_of(arguments[0])
            arguments = arguments[1:]
        else:
            base = ""
        path = call.path or os.path.join(base or process.place[0], name_of(arguments[0]))
        path = os.path.normpath(path) if path.startswith("/") else path
        if not is_file(path):
            process.descriptors.pop(call.result, None)
            return
        flags = " ".join(arguments[1:])
        saves = call.name == "creat" or any(flag in flags for flag in ("O_WRONLY", "O_CREAT", "O_TRUNC"))
        opened = Opened(self._file(path), saves, None if "O_APPEND" in flags else 0)
        opened.tally.opens += 1
        opened.file.directory |= "O_DIRECTORY" in flags
        process.descriptors[call.result] = opened

    def duplicate(self, process: Process, call: Call) -> None:
        if call.name == "fcntl" and "F_DUPFD" not in call.arguments:
            return
        opened = self._opened(process, call.arguments)
        if opened is None:
            process.descriptors.pop(call.result, None)
        else:
            process.descriptors[call.result] = opened

    def start(self, process: Process, call: Call) -> None:
        shares_files, shares_place = "CLONE_FILES" in call.arguments, "CLONE_FS" in call.arguments
        child = Process(
            process.descriptors if shares_files else dict(process.descriptors),
            process.place if shares_place else list(process.place),
        )
        self._start(call.result, child, new_process="CLONE_THREAD" not in call.arguments)

    def transfer(self, process: Process, call: Call) -> None:
        """A read or a write, at the descriptor's position or at a given offset."""
        opened = self._opened(process, call.arguments)
        if opened is None:
            return
        if "write" in call.name:
            opened.saves().write(call.result)
        else:
            opened.tally.read(call.result)
        at = None
        if call.name.startswith("p"):
            arguments = arguments_of(call.arguments)
            at = int(arguments[3]) if arguments[3].isdigit() else None  # preadv2 takes -1 for the position
        if at is not None:
            self._at_offset(opened, call.thread, at, call.result)
        elif opened.position is not None:
            opened.position += call.result

    def _at_offset(self, opened: Opened, thread: int, at: int, size: int) -> None:
        if at < opened.ends.get(thread, 0):
            opened.tally.backward_offsets += 1
        opened.ends[thread] = at + size

    def submit(self, process: Process, call: Call) -> None:
        """Linux's native asynchronous I/O."""
        for part in call.arguments.split("{aio_data=")[1:][: call.result]:
            found = IOCB.search(part)
            opened = self._opened(process, found[2]) if found else None
            if found is None or opened is None:
                continue
            lengths = re.findall(r"iov_len=(\d+)", found[3]) or re.findall(r"aio_nbytes=(\d+)", found[3])
            size, offset = sum(map(int, lengths)), re.search(r"aio_offset=(\d+)", found[3])
            if "SYNC" in found[1]:
                opened.saves().syncs += 1
                continue
            if "WRITE" in found[1]:
                opened.saves().write(size)
            elif "READ" in found[1]:
                opened.tally.read(size)
            if offset is not None:
                self._at_offset(opened, call.thread, int(offset[1]), size)

    def copy(self, process: Process, call: Call) -> None:
        """A copy from file to file within the kernel: a read and a write."""
        arguments = arguments_of(call.arguments)
        source, target = (1, 0) if call.name == "sendfile" else (0, 2)
        for argument, write in ((arguments[source], False), (arguments[target], True)):
            opened = self._opened(process, argument)
            if opened is None:
                continue
            if write:
                opened.saves().write(call.result)
            else:
                opened.tally.read(call.result)
            opened.position = None  # a given offset leaves the position, otherwise it moves

    def seek(self, process: Process, call: Call) -> None:
        opened = self._opened(process, call.arguments)
        if opened is None:
            return
        opened.tally.seeks += 1
        if opened.position is not None and call.result < opened.position:
            opened.tally.backward_seeks += 1
        opened.position = call.result

    def sync(self, process: Process, call: Call) -> None:
        if call.name == "sync":
            self.whole_syncs += 1
        elif (opened := self._opened(process, call.arguments)) is not None:
            opened.saves().syncs += 1

    def resize(self, process: Process, call: Call) -> None:
        if (opened := self._opened(process, call.arguments)) is not None:
            opened.saves()

    def map(self, process: Process, call: Call) -> None:
        arguments = arguments_of(call.arguments)
        opened = self._opened(process, arguments[4]) if len(arguments) == 6 else None
        if opened is not None:  # anonymous memory has no descriptor
            writes = "MAP_SHARED" in arguments[3] and "PROT_WRITE" in arguments[2]
            (opened.saves() if writes else opened.tally).maps += 1

    def uring(self, process: Process, call: Call) -> None:
        self.io_urings += 1

    def rename(self, process: Process, call: Call) -> None:
        arguments = arguments_of(call.arguments)
        if "RENAME_EXCHANGE" in arguments[-1]:
            return
        names = []
        if call.name == "rename":
            names = [os.path.join(process.place[0], name_of(argument)) for argument in arguments[:2]]
        else:
            for base, argument in ((arguments[0], arguments[1]), (arguments[2], arguments[3])):
                names.append(os.path.join(descriptor_of(base)[1] or process.place[0], name_of(argument)))
        old, new = (os.path.normpath(name) for name in names)
        moved = {path: new + path[len(old) :] for path in self.files if path == old or path.startswith(old + "/")}
        for path, name in moved.items():
            self._rename(self.files.pop(path), name)

    def _rename(self, file: File, name: str) -> None:
        """What was done to a replaced file stays with the name."""
        if (replaced := self.files.get(name)) is not None:
            file.replaced.append(replaced)
        file.path = name
        self.files[name] = file

    def change_directory(self, process: Process, call: Call) -> None:
        path = descriptor_of(call.arguments)[1] if call.name == "fchdir" else name_of(call.arguments)
        process.place[0] = os.path.normpath(os.path.join(process.place[0], path))


def is_file(path: str) -> bool:
    """Whether it is a file: not a socket, a pipe, memory or a device, and not made by the kernel."""
    if path.startswith("/dev/"):
        return path.startswith("/dev/shm/")
    return path.startswith("/") and not path.startswith(("/proc/", "/sys/", "/memfd:", "/anon_hugepage", "/SYSV"))


def handlers() -> dict[str, Callable[[Watcher, Process, Call], None]]:
    table: dict[str, Callable[[Watcher, Process, Call], None]] = {}
    for name in TRACED:
        if name.startswith(("open", "creat")):
            table[name] = Watcher.open
        elif name.startswith("dup") or name == "fcntl":
            table[name] = Watcher.duplicate
        elif name.startswith("clone") or name.endswith("fork"):
            table[name] = Watcher.start
        elif name.endswith("sync") or name in ("syncfs", "sync_file_range"):
            table[name] = Watcher.sync
        elif name.startswith("rename"):
            table[name] = Watcher.rename
        elif name.endswith("chdir"):
            table[name] = Watcher.change_directory
        elif "read" in name or "write" in name:
            table[name] = Watcher.transfer
    table.update(
        {
            "lseek": Watcher.seek, "ftruncate": Watcher.resize, "fallocate": Watcher.resize, "mmap": Watcher.map,
            "copy_file_range": Watcher.copy, "sendfile": Watcher.copy, "io_submit": Watcher.submit,
            "io_uring_setup": Watcher.uring,
        }
    )  # fmt: skip
    return table


HANDLERS = handlers()
