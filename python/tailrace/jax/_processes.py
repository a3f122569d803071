"""What the processes of a JAX program tell each other during a save or a restore.

The messages are small JSON texts: lengths, offsets, checksums, failures. They go through the key-value store of
jax.distributed, because any thread may use it, and the collectives of JAX belong to the program's own thread. Arrays
never go this way: each process writes and reads its own part of the files.

A process sends to process 0, and process 0 answers. Every key has one reader, which removes it.
"""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

import jax

from tailrace._errors import Code, Error, sentence_of

_PART_BYTES = 1 << 20  # of one value, because a message of the store is bounded
_PATIENCE_MS = 10_000  # of one request. A wait repeats it, because a disk may be slow.
_COUNT_BYTES = 8

_numbers = itertools.count()
_numbering = threading.Lock()


def _client() -> Any:
    """The connection to the key-value store. JAX has no public name for it; Orbax uses this one, too."""
    try:
        from jax._src.distributed import global_state

        client = global_state.client
    except (ImportError, AttributeError) as error:
        raise Error(
            Code.UNSUPPORTED, f"this version of JAX keeps its key-value store elsewhere: {error}; nothing was done"
        ) from None
    if client is None:
        raise Error(
            Code.FAILED_STATE,
            f"there are {jax.process_count()} processes, and jax.distributed is not initialised in this one, or not "
            "any more; nothing was done",
        )
    return client


class Operation:
    """One save or restore, in which all processes take part. All of them begin the same operations in the same order.
    Begin it before anything can fail, or the processes count differently.

    what: names it in a failure's sentence: "the save"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.rank, self.size = jax.process_index(), jax.process_count()
        with _numbering:
            self._number = next(_numbers)
        self._step = 0

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes on process 0; nothing on the others."""
        step = self._next()
        if self.size == 1:
            return [value]
        if self.rank != 0:
            self._put(f"{step}/from/{self.rank}", value)
            return []
        return [value, *(self._take(f"{step}/from/{other}") for other in range(1, self.size))]

    def scatter(self, values: list[Any]) -> Any:
        """This process's value, of those that process 0 gives."""
        step = self._next()
        if self.size == 1:
            return values[0]
        if self.rank != 0:
            return self._take(f"{step}/to/{self.rank}")
        for other in range(1, self.size):
            self._put(f"{step}/to/{other}", values[other])
        return values[0]

    def broadcast(self, value: Any) -> Any:
        """The value of process 0."""
        return self.scatter([value] * self.size)

    def sentence_of(self, failure: BaseException) -> str:
        """A failure of this process, for the others."""
        return f"process {self.rank} gave up {self._what}: {sentence_of(failure)}"

    def gather_or_why(self, value: Any, failure: BaseException | None) -> tuple[list[Any], str | None]:
        """On process 0 the values of all processes, and the first failure among them."""
        told = self.gather([value, None if failure is None else self.sentence_of(failure)])
        return [value for value, _ in told], next((why for _, why in told if why is not None), None)

    def raise_any(self, failure: BaseException | None) -> None:
        """Raises this process's failure, or on the other processes an Error (aborted) that tells it. Returns if no
        process has failed."""
        _, why = self.gather_or_why(None, failure)
        raise_told(failure, self.broadcast(why))

    def _next(self) -> str:
        self._step += 1
        return f"tailrace/{self._number}/{self._step}"

    def _put(self, key: str, value: Any) -> None:
        client, text = _client(), json.dumps(value, separators=(",", ":")).encode()
        count = max(1, -(-len(text) // _PART_BYTES))
        try:
            for i in range(count):
                head = count.to_bytes(_COUNT_BYTES, "little") if i == 0 else b""
                client.key_value_set_bytes(f"{key}/{i}", head + text[i * _PART_BYTES : (i + 1) * _PART_BYTES])
        except Exception as error:  # what jaxlib raises differs between its versions
            raise self._gone(error) from error

    def _take(self, key: str) -> Any:
        client = _client()
        first = self._wait(client, f"{key}/0")
        count = int.from_bytes(first[:_COUNT_BYTES], "little")
        parts = [first[_COUNT_BYTES:], *(self._wait(client, f"{key}/{i}") for i in range(1, count))]
        return json.loads(b"".join(parts))

    def _wait(self, client: Any, key: str) -> bytes:
        while True:
            try:
                value = bytes(client.blocking_key_value_get_bytes(key, _PATIENCE_MS))
                client.key_value_delete(key)
                return value
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise self._gone(error) from error

    def _gone(self, error: Exception) -> Error:
        return Error(
            Code.TRANSPORT,
            f"process {self.rank} of {self.size} cannot reach the others through jax.distributed: {error}",
        )


def raise_told(failure: BaseException | None, why: str | None) -> None:
    """Raises this process's failure, or Error (aborted) with what process 0 has told of another's."""
    if failure is not None:
        raise failure
    if why is not None:
        raise Error(Code.ABORTED, why)
