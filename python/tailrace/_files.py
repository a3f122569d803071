"""Files that a program writes by itself, with whatever library, saved and restored as epochs."""

from __future__ import annotations

from tailrace import _arguments, _core
from tailrace._errors import Code, Error


class FilesToSave:
    """Gives paths for the files of one epoch. Session.save_files makes it."""

    def __init__(self, core: _core.Session) -> None:
        self._core = core
        self._ended = False

    def path(self, name: str) -> str:
        """Where the program is to write its file `name`: a path in the node-local tier.

        name: a relative path, such as "fields.h5" or "fields/u.h5". It belongs to this rank: other
            ranks may use the same.

        The directory is there, and the file is not. The same name gives the same path. Close the
        file before the with-statement ends. Raises Error (invalid argument) for a name that is not
        possible.
        """
        if self._ended:
            raise Error(Code.FAILED_STATE, "these files have been saved or given up; begin others")
        return self._core.files_route(_arguments.checked(name, "name", "no file was begun"))

    def _end(self) -> None:
        self._ended = True


class RestoredFiles:
    """The files of an epoch, in the node-local tier again. Session.restore_files makes it.

    step: the epoch's.
    """

    def __init__(self, core: _core.Session, step: int) -> None:
        self.step = step
        self._core = core

    def path(self, name: str, rank: int | None = None) -> str:
        """Where the restored file `name` lies. The program may do with it what it likes.

        rank: of those that saved the epoch, the one that wrote the file. None: this rank if it has
            saved such a file, otherwise the only rank that has.

        Raises Error: not found if there is no such file, and invalid argument if several ranks have
        it, none of them this one. Another rank's file is brought back when it is first asked for.
        """
        name = _arguments.checked(name, "name", "nothing was read")
        return self._core.files_find(None if rank is None else self._rank(rank), name)

    def names(self, rank: int | None = None) -> list[str]:
        """The files that a rank has saved, in the order in which it asked for their paths. None: this
        rank."""
        return self._core.files_names(self._core.rank if rank is None else self._rank(rank))

    @staticmethod
    def _rank(rank: int) -> int:
        return _arguments.number(rank, "rank", "nothing was read", _arguments.MOST_32 - 1)
