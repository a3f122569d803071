"""DeepSpeed (ZeRO 1-3): its checkpoints in K files, written in the background.

    import deepspeed
    from tailrace.torch.deepspeed import install

    engine, *_ = deepspeed.initialize(model=model, config=config, ...)
    install(engine, files=2)                                  # on all ranks
    engine.load_checkpoint("ckpt")                            # as ever
    ...
    engine.save_checkpoint("ckpt")                            # returns when the state is copied

Each file that DeepSpeed names is a segment of the K files in DIRECTORY/TAG (_segments has the steps). When they are
committed, rank 0 replaces DIRECTORY/latest, and then removes the checkpoints beyond `keep`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import inspect
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from tailrace import _arguments
from tailrace._errors import Code, Error
from tailrace.torch import _deepspeed_place, _deepspeed_state, _durable, _segments, _zero_to_fp32
from tailrace.torch.stopping import Stopping


class _SegmentPath(str):
    """The name of a file that exists, because DeepSpeed checks that, with the segment that it stands
    for."""

    segment: str

    def __new__(cls, file: str, segment: str) -> _SegmentPath:
        made = super().__new__(cls, file)
        made.segment = segment
        return made


class TailraceCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """A CheckpointEngine of DeepSpeed. install() makes it. wait() and stop_in_time() are for you; the
    other methods are for DeepSpeed.

    All calls come from the thread that trains. Making one is collective over all ranks, and so is
    every save. Memory: one copy of what this rank saves, and two buffers of `buffer_bytes` while it
    is written. load() gives mapped tensors.
    """

    _save_checkpoint: Callable[..., Any]  # the engine's; install() gives it

    def __init__(
        self,
        config_params: Any = None,
        *,
        files: int = 1,
        keep: int | None = None,
        pickle: bool = False,
        trust_pickle: bool = False,
        name: str = "tailrace",
        threads: int = 2,
        buffer_bytes: int = 8 << 20,
        stopping: Stopping | None = None,
    ) -> None:
        super().__init__(config_params)
        if keep is not None and keep < 1:
            raise Error(Code.INVALID_ARGUMENT, f"keep is {keep}, and must be 1 or more; nothing was done")
        self.name = "TailraceCheckpointEngine"
        self._keep = keep
        self._job = name
        self._trust_pickle = trust_pickle
        self._place = ""
        self._reading: tuple[Any, _segments.Reader] | None = None
        self._writer = _segments.Writer(
            "deepspeed",
            files=files,
            name=name,
            threads=threads,
            buffer_bytes=buffer_bytes,
            pickle=pickle,
            stopping=stopping,
        )

    # ---- what DeepSpeed calls ----------------------------------------------------------------------------

    def create(self, info: Any) -> None:
        # The thread may find another working directory.
        save_dir = os.path.abspath(_arguments.path(info.save_dir, "save_dir", "nothing was saved"))
        tag = str(info.tag)
        place = self._place = os.path.join(save_dir, tag)
        self.end_reading()

        def then() -> None:
            if info.save_latest:
                _durable.replace(os.path.join(save_dir, "latest"), lambda file: file.write(tag.encode()))
            if self._keep is not None:
                _rotate(save_dir, place, self._keep, self._job)

        self._writer.open(place, then)

    def save(self, state_dict: Any, path: str) -> None:
        """Copies the tensors. save_checkpoint raises a failure when all ranks hear of it."""
        segment = os.path.relpath(os.path.abspath(path), self._place)
        if not segment.startswith(os.pardir):
            self._writer.add(segment, lambda: _deepspeed_state.to_plain(state_dict))
            return
        try:
            _save_for_others(state_dict, path)
        except Exception as error:
            self._writer.fail(error)

    def commit(self, info: Any) -> bool:
        """Returns when everything saved since create is durable and can be loaded."""
        self.start()
        self.wait()
        return True

    def load(self, path: str, map_location: Any = None) -> Any:
        """Loads one file as DeepSpeed names it: a segment of a checkpoint, or a file of DeepSpeed's
        own engine.

        Every byte of a segment is compared with its checksum before this returns. Its tensors on the
        host are private mappings of the files until end_reading(), so they take no memory of their
        own."""
        if isinstance(path, _SegmentPath):
            place, segment = os.path.dirname(path), path.segment
        elif os.path.isfile(path) and os.path.basename(path) not in (self.segments_in(os.path.dirname(path)) or ()):
            return _to_device(_deepspeed_state.load_torch_file(path, not self._trust_pickle), map_location)
        else:
            place, segment = os.path.split(path)
        tree = self._reader(place).load(segment, mapped=True, trust_pickle=self._trust_pickle)
        return _to_device(_deepspeed_state.from_plain(tree), map_location)

    def is_decoupled(self) -> bool:
        # DeepSpeed then leaves the commit and `latest` to us, and calls cleanup(). Otherwise it
        # would write `latest` again after the commit, in place.
        return True

    def get_commit_info(self) -> Any:
        # Otherwise DeepSpeed would commit before the next step, and wait for the files there.
        return None

    def preserves_storage_sharing(self) -> bool:
        # Each tensor is saved by itself, so DeepSpeed need not clone views of larger storages.
        return False

    def cleanup(self) -> None:
        """Waits for the last save. engine.destroy() calls it."""
        self.end_reading()
        self.wait()

    # ---- what install() calls, and you -------------------------------------------------------------------

    def start(self) -> None:
        """Begins to write what was saved since create. Collective. Raises Error, on all ranks, if one
        of them could not save. For an object without a safe encoding it is (invalid argument), with
        the object's path in the state."""
        self._writer.start()

    def wait(self) -> None:
        """Returns when the last save is durable. If it failed, raises Error, on all ranks and once.
        Then the checkpoint it would have replaced is intact."""
        self._writer.wait()

    def stop_in_time(self, save_dir: str | os.PathLike[str], **options: Any) -> str | None:
        """The reason to stop, or None; the same on all ranks at the same call. Call it after each step,
        before a save_checkpoint of your own. The first call with a reason calls save_checkpoint, with
        these arguments, and returns when that checkpoint is durable. Collective. Needs
        install(stopping=...)."""
        return self._writer.stop_in_time(lambda: self._save_checkpoint(save_dir, **options))

    def segments_in(self, place: str) -> dict[str, int] | None:
        """Like _segments.owners_in, but keeps the files open for load(). None, too, if DeepSpeed's own engine has saved
        there since. Raises Error (not found) if files of tailrace's are there, and no checkpoint: one has been lost."""
        found = _deepspeed_place.segments_in(place, lambda: self._reader(place))
        return None if found is None else found.owners

    def paths_of(self, place: str, pattern: str) -> list[str] | None:
        """What load() takes for the segments of a checkpoint whose names match, in order. None: a place without a
        checkpoint of tailrace's."""
        found = self.segments_in(place)
        if found is None:
            return None
        file = next(os.path.join(place, name) for name in sorted(os.listdir(place)) if name.endswith(".tailrace"))
        return [_SegmentPath(file, name) for name in sorted(fnmatch.filter(found, pattern))]

    def verify_own(self, load_dir: str | os.PathLike[str], tag: Any) -> None:
        """Compares what this rank saved in a checkpoint with its checksums. If it is damaged on some rank,
        raises Error on all of them. DeepSpeed loads the weights first, and would find damage of the
        optimizer's states when it has changed those. Collective."""

        def verify(rank: int, ranks: int) -> None:
            latest = os.path.join(load_dir, "latest")
            if tag is None and not os.path.isfile(latest):
                return  # DeepSpeed says so
            place = os.path.join(load_dir, str(tag if tag is not None else Path(latest).read_text().strip()))
            if not self.segments_in(place) or self._reader(place).rank_count != ranks:
                return  # DeepSpeed's own checkpoint; or other ranks', whose optimizer states it refuses
            for segment, owner in self._reader(place).owners.items():
                if owner == rank:
                    self._reader(place).verify(segment)

        self._writer.together(verify)

    def end_reading(self) -> None:
        """Closes the files that load() has opened. Tensors of theirs that are still in use get memory of
        their own. Call it after calls of load() by yourself; load_checkpoint does."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading[1].close()

    def _reader(self, place: str) -> _segments.Reader:
        """One reader for all segments of a checkpoint, because DeepSpeed loads several in turn. So its
        tables are read once."""
        try:
            files = sorted((file.name, file.inode(), file.stat().st_mtime_ns) for file in os.scandir(place))
        except OSError:
            files = []  # opening says what is wrong
        if self._reading is None or self._reading[0] != (place, files):
            self.end_reading()
            self._reading = ((place, files), _segments.Reader(place, self._job))
        return self._reading[1]


def install(engine: Any, *, asynchronous: bool = True, **options: Any) -> TailraceCheckpointEngine:
    """Makes a DeepSpeed engine save and load through tailrace. Returns its new checkpoint_engine.
    Collective.

    files: K, for all ranks together, at most 64 per rank.
    asynchronous: save_checkpoint returns when the state is copied. When the checkpoint is complete
        it can be loaded, and `latest` names it. Before dist.destroy_process_group() call
        engine.destroy(), or wait() of the returned object. If False, save_checkpoint returns when
        the checkpoint is durable.
    keep: the number of checkpoints that stay in save_dir. Older ones of tailrace's of the same
        `name` are removed after each save. None: all.
    pickle: pickles objects in client_state that have no safe encoding. Loading them needs
        trust_pickle.
    trust_pickle: load pickled objects, and DeepSpeed's own files, whatever they hold. They may run
        any code.
    name: the job's name, a part of the files' names. If jobs of several names have saved under one
        tag, that of this name is loaded.
    threads, buffer_bytes: per rank, for writing.
    stopping: what stop_in_time() of the returned object asks (tailrace.torch.stopping). It is told how
        long checkpoints take. It stays yours, to close.

    Checkpoints of DeepSpeed's own engine can be loaded, too. From now on DeepSpeed's
    get_fp32_state_dict_from_zero_checkpoint accepts tailrace's checkpoints besides its own.
    save_16bit_model still writes a file of torch.save, because that file is for other programs.
    """
    made = TailraceCheckpointEngine(engine._config, **options)
    _zero_to_fp32.install(made._trust_pickle, made._job)
    engine.checkpoint_engine = made
    save_checkpoint, load_checkpoint = engine.save_checkpoint, engine.load_checkpoint
    all_names, parameters = engine._get_all_ckpt_names, inspect.signature(load_checkpoint)

    def save(*args: Any, **kwargs: Any) -> Any:
        saved = save_checkpoint(*args, **kwargs)
        made.start()
        if not asynchronous:
            made.wait()
        return saved

    @functools.wraps(load_checkpoint)
    def load(*args: Any, **kwargs: Any) -> Any:
        made.wait()
        how = parameters.bind(*args, **kwargs)
        how.apply_defaults()
        try:
            if how.arguments["load_optimizer_states"] and not how.arguments["load_module_only"]:
                # Before DeepSpeed changes the weights.
                made.verify_own(how.arguments["load_dir"], how.arguments["tag"])
            return load_checkpoint(*args, **kwargs)
        finally:
            made.end_reading()

    # DeepSpeed looks for its files by patterns; here they are segments.
    def names(checkpoints_path: str, tag: str) -> list[str]:
        pattern = os.path.basename(engine._get_ckpt_name(checkpoints_path, tag, mp_placeholder="*"))
        found = made.paths_of(os.path.join(checkpoints_path, str(tag)), pattern)
        return all_names(checkpoints_path, tag) if found is None else found

    if hasattr(engine.module, "ckpt_layer_path_list"):
        _find_layers(engine.module, made)
    engine.save_checkpoint, engine.load_checkpoint, engine._get_all_ckpt_names = save, load, names
    made._save_checkpoint = save
    return made


def _find_layers(pipeline: Any, made: TailraceCheckpointEngine) -> None:
    """A PipelineModule has files of its own for each layer, which it looks for by a pattern, too."""
    all_names = pipeline.ckpt_layer_path_list

    def names(place: str, local_layer: int) -> Any:
        found = made.paths_of(place, f"layer_{local_layer + pipeline._local_start:02d}-*model_states.pt")
        return all_names(place, local_layer) if found is None else found

    pipeline.ckpt_layer_path_list = names


def export(
    checkpoint: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    trust_pickle: bool = False,
    name: str | None = None,
) -> None:
    """Writes DeepSpeed's own files (torch.save) of a checkpoint, DIRECTORY/TAG, into the directory
    `target` and nowhere else. They serve zero_to_fp32.py, universal checkpoints, and engines
    without tailrace. Memory: 16 MiB, since the states are mapped.

    trust_pickle: also write objects that install(pickle=True) has pickled. They are unpickled for
        that, which may run any code.
    name: that of install(), needed only if jobs of several names have saved there.
    """
    target = _arguments.path(target, "target", "nothing was written")
    place = _arguments.path(checkpoint, "checkpoint", "nothing was read")
    job = None if name is None else _arguments.checked(name, "name", "nothing was read")
    with _segments.Reader(place, job) as reader:
        for segment in reader.owners:
            path = os.path.join(target, segment)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            except OSError as error:
                raise Error(
                    Code.IO_ERROR,
                    f"making the directory '{os.path.dirname(path)}': {error.strerror}",
                ) from error
            tree = reader.load(segment, mapped=True, trust_pickle=trust_pickle)
            _save_for_others(_deepspeed_state.from_plain(tree), path)


def _to_device(tree: Any, map_location: Any) -> Any:
    # DeepSpeed passes a function to say that everything stays on the host.
    device = torch.device("cpu" if map_location is None or callable(map_location) else map_location)
    if device.type == "cpu":
        return tree
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)


def _save_for_others(state: Any, path: str) -> None:
    _durable.replace(path, lambda file: torch.save(state, file))


def _rotate(save_dir: str, place: str, keep: int, name: str) -> None:
    """Removes the oldest checkpoints of the job `name` until `keep` are left; never this one, under whichever name, nor
    the one that `latest` names, nor what has files of another job."""
    stay = {os.path.realpath(place)}
    with contextlib.suppress(OSError, ValueError):
        stay.add(os.path.realpath(os.path.join(save_dir, Path(save_dir, "latest").read_text().strip())))
    others = []
    for entry in os.scandir(save_dir):
        may_go = entry.is_dir(follow_symlinks=False) and os.path.realpath(entry.path) not in stay
        if may_go and _segments.is_of(entry.path, name):
            others.append((max(file.stat().st_mtime_ns for file in os.scandir(entry.path)), entry.path))
    for _, place in sorted(others, reverse=True)[keep - 1 :]:
        try:
            shutil.rmtree(place)
        except OSError as error:
            warnings.warn(f"removing the old checkpoint '{place}': {error.strerror}", stacklevel=2)
