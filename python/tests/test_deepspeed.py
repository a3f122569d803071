"""DeepSpeed's ZeRO on two ranks: saved through tailrace, killed, restored, and its losses as without interruption."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException

import bloom
import tailrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DeepSpeed's own
    import deepspeed
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum

    from tailrace.torch import _deepspeed_state, _runs, _segments
    from tailrace.torch.deepspeed import TailraceCheckpointEngine, export, install
    from tailrace.torch.stopping import Stopping

STAGES = (1, 2, 3)
EMBEDDINGS = "transformer.word_embeddings.weight"


def make_engine(stage: int) -> Any:
    os.environ.update(RANK=str(dist.get_rank()), LOCAL_RANK=str(dist.get_rank()), WORLD_SIZE=str(dist.get_world_size()))
    deepspeed.ops.__compatible_ops__ = {}  # its operations would be compiled first
    model = bloom.make_model(full=False)
    model.register_buffer("steps", torch.zeros(3))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        # Otherwise an engine of stage 3 replaces torch.nn.functional.linear, and with it the rounding of
        # the other engines in its process.
        "zero_optimization": {"stage": stage, "memory_efficient_linear": False},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train(engine: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        loss = engine(**bloom.batch_of(step, engine.module.config)).loss
        engine.backward(loss)
        engine.step()
        engine.module.steps += 1
        losses.append(float(loss.detach()))
    return losses


def tensors_of(engine: Any) -> list[torch.Tensor]:
    """The weights and the optimizer's state of this rank, where they are."""
    state = (engine.module.state_dict(), engine.optimizer.state_dict())
    return [leaf for leaf in torch.utils._pytree.tree_leaves(state) if isinstance(leaf, torch.Tensor)]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    parts = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*parts)


written = threading.Semaphore(0)


def write_and_go_no_further(*args: Any, **kwargs: Any) -> Any:
    write(*args, **kwargs)
    written.release()
    threading.Event().wait()


write = _runs.write


def save_and_be_killed(place: str) -> None:
    engines = {stage: make_engine(stage) for stage in STAGES}
    for stage, engine in engines.items():
        saving = install(engine, files=2)
        assert engine.load_checkpoint(f"{place}/{stage}") == (None, None)  # a first run
        train(engine, range(3))
        torch.save(tensors_of(engine), f"{place}/tensors-{stage}-{dist.get_rank()}")
        engine.save_checkpoint(f"{place}/{stage}", client_state={"seen": {"tokens": 12}})
        losses = train(engine, range(3, 6))  # while the files are written
        Path(place, f"losses-{stage}-{dist.get_rank()}").write_text(json.dumps(losses))
        if stage < 3:
            engine.save_16bit_model(f"{place}/{stage}", "model.bin")
            weights = torch.load(f"{place}/{stage}/model.bin", weights_only=True)
            assert torch.equal(weights[EMBEDDINGS], engine.module.get_parameter(EMBEDDINGS))
        if stage == 1:
            engine.save_checkpoint(f"{place}/{stage}")
            train(engine, range(6, 7))
        saving.wait()
    dist.barrier()
    _runs.write = write_and_go_no_further
    for stage, engine in engines.items():
        engine.save_checkpoint(f"{place}/{stage}")
    for _ in engines:
        written.acquire()
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def go_on(place: str) -> None:
    for stage in STAGES:
        engine = make_engine(stage)
        saving = install(engine, files=1, keep=2)
        # What was killed does not count; the first goes back by name.
        path, client_state = engine.load_checkpoint(f"{place}/{stage}", tag="global_step3" if stage == 1 else None)
        assert "global_step3" in path and os.path.exists(path)
        assert client_state["seen"] == {"tokens": 12} and (engine.module.steps == 3).all()
        saved = torch.load(f"{place}/tensors-{stage}-{dist.get_rank()}")
        assert all(same_bits(*pair) for pair in zip(tensors_of(engine), saved, strict=True)), stage
        expected = json.loads(Path(place, f"losses-{stage}-{dist.get_rank()}").read_text())
        assert train(engine, range(3, 6)) == expected, stage
        if stage == 1:
            with pytest.raises(tailrace.Error, match=r"\['odd'\] is a fractions"):
                engine.save_checkpoint(f"{place}/1", tag="odd", client_state={"odd": Fraction(1, 2)})
            losses_of_other_engines_checkpoints(place)
        engine.save_checkpoint(f"{place}/{stage}")  # again, the one that was killed too
        for step in range(6, 8):
            train(engine, range(step, step + 1))
            engine.save_checkpoint(f"{place}/{stage}")
        saving.wait()
        dist.barrier()
        assert Path(place, str(stage), "latest").read_text() == "global_step8"
        assert {p.name for p in Path(place, str(stage)).iterdir() if p.is_dir()} - {"odd"} == {
            "global_step7",
            "global_step8",
        }
        engine.destroy()


def losses_of_other_engines_checkpoints(place: str) -> None:
    """What DeepSpeed's own engine has written loads, with what it pickles on the allow list."""
    theirs = make_engine(1)
    train(theirs, range(2))
    theirs.save_checkpoint(f"{place}/theirs")
    expected = train(theirs, range(2, 4))
    save_and_wait(theirs, f"{place}/waited")
    ours = make_engine(1)
    install(ours)
    assert ours.load_checkpoint(f"{place}/theirs")[0] is not None
    assert train(ours, range(2, 4)) == expected


def save_and_wait(engine: Any, place: str) -> None:
    """Without a thread `latest` is ours to write, too."""

    def read_only(path: str, mode: str = "r") -> Any:
        assert mode == "r", path
        return open(path, mode)

    saving = install(engine, files=2, asynchronous=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deepspeed.runtime.engine, "open", read_only, raising=False)
        engine.save_checkpoint(place, tag="step")
    assert Path(place, "latest").read_text() == "step"
    assert not list(Path(place, "step").glob("*.unfinished"))
    assert saving.load(f"{place}/step/mp_rank_00_model_states.pt")["global_steps"] == 4
    engine.destroy()
    assert saving._reading is None  # it was cleaned up


def test_a_language_model_goes_on_after_a_kill_within_a_save(tmp_path: Path) -> None:
    with pytest.raises(ProcessExitedException, match="SIGKILL"):
        distributed.run(2, save_and_be_killed, str(tmp_path))
    for stage in STAGES:
        assert len(list((tmp_path / str(stage) / "global_step3").iterdir())) == 2  # K files, and no more
        last, killed = (6, 7) if stage == 1 else (3, 6)
        files = list((tmp_path / str(stage) / f"global_step{killed}").iterdir())
        assert len(files) == 2 and all(file.name.endswith(".unfinished") for file in files)
        with pytest.raises(tailrace.Error):
            tailrace.read(files[0].parent)
        assert (tmp_path / str(stage) / "latest").read_text() == f"global_step{last}"

    weights = tailrace.read(tmp_path / "1" / "global_step3")[f"mp_rank_00_model_states.pt/module/{EMBEDDINGS}"]
    export(tmp_path / "1" / "global_step3", tmp_path / "exported" / "global_step3")
    (tmp_path / "exported" / "latest").write_text("global_step3")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    consolidated = get_fp32_state_dict_from_zero_checkpoint(str(tmp_path / "exported"))
    assert torch.equal(consolidated[EMBEDDINGS], weights.load())

    distributed.run(2, go_on, str(tmp_path))


def test_the_calls_by_hand(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine()
    info = CheckpointCommitInfo("step-1", str(tmp_path), True)
    path = str(tmp_path / "step-1" / "mp_rank_00_model_states.pt")
    weight = torch.arange(1000.0)
    engine.create(info)
    engine.save({"w": weight, "scaler": DynamicLossScaler(8.0, 10, 1, 2, False), "at": ZeroStageEnum.gradients}, path)
    weight += 1  # it was copied
    assert not (tmp_path / "step-1").exists()
    assert engine.commit(info)
    assert (tmp_path / "latest").read_text() == "step-1"
    loaded = engine.load(path)
    assert torch.equal(loaded["w"], torch.arange(1000.0)) and loaded["at"] is ZeroStageEnum.gradients
    assert loaded["scaler"].cur_scale == 8 and loaded["scaler"].has_overflow_serial([]) is False
    with pytest.raises(tailrace.Error, match="has no 'zero"):
        engine.load(str(tmp_path / "step-1" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"))

    # An object without a safe encoding is named; pickled, it needs trust.
    other = CheckpointCommitInfo("step-2", str(tmp_path), True)
    engine.create(other)
    engine.save({"odd": Fraction(1, 2)}, path.replace("step-1", "step-2"))
    with pytest.raises(tailrace.Error, match=r"\['odd'\] is a fractions"):
        engine.commit(other)
    assert (tmp_path / "latest").read_text() == "step-1"
    engine = TailraceCheckpointEngine(pickle=True)
    engine.create(other)
    engine.save({"odd": Fraction(1, 2)}, path.replace("step-1", "step-2"))
    engine.commit(other)
    with pytest.raises(tailrace.Error, match="trust_pickle"):
        engine.load(path.replace("step-1", "step-2"))
    assert TailraceCheckpointEngine(trust_pickle=True).load(path.replace("step-1", "step-2")) == {"odd": Fraction(1, 2)}

    (file,) = (tmp_path / "step-1").iterdir()
    damaged = bytearray(file.read_bytes())
    damaged[damaged.index(torch.arange(1000.0).numpy().tobytes()) + 100] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(tailrace.Error) as caught:
        engine.load(path)
    assert caught.value.code == tailrace.Code.CORRUPT and caught.value.path == str(file)


def test_a_checkpoint_that_has_lost_a_file_is_named(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine(files=2)
    info = CheckpointCommitInfo("step-1", str(tmp_path), True)
    engine.create(info)
    engine.save({"w": torch.arange(1000.0)}, str(tmp_path / "step-1" / "mp_rank_00_model_states.pt"))
    engine.commit(info)
    engine.verify_own(tmp_path, "step-1")
    for file in sorted((tmp_path / "step-1").iterdir()):
        kept = file.rename(tmp_path / file.name)
        # DeepSpeed would find no file of its own, and fail an assertion without a word.
        for call in (lambda: engine.segments_in(str(tmp_path / "step-1")), lambda: engine.verify_own(tmp_path, None)):
            with pytest.raises(tailrace.Error, match=r"no complete epoch in .*step-1") as caught:
                call()
            assert caught.value.code == tailrace.Code.NOT_FOUND
        kept.rename(file)
    engine.verify_own(tmp_path, None)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mp_rank_00_model_states.pt").write_bytes(b"")
    assert engine.segments_in(str(tmp_path / "own")) is None and engine.segments_in(str(tmp_path / "none")) is None
    engine.end_reading()


def test_export_writes_into_its_directory_only(tmp_path: Path) -> None:
    def save(place: Path, segment: str) -> None:
        writer = _segments.Writer("test", files=1, name="test", threads=1, buffer_bytes=1 << 20, pickle=False)
        writer.open(str(place), lambda: None)
        writer.add(segment, lambda: {"w": torch.ones(3)})
        writer.start()
        writer.wait()

    save(tmp_path / "nested", "a/b/states.pt")
    export(tmp_path / "nested", tmp_path / "out")
    assert torch.equal(torch.load(tmp_path / "out" / "a" / "b" / "states.pt", weights_only=True)["w"], torch.ones(3))
    hostile = (str(tmp_path / "elsewhere"), "../elsewhere", "a/../../elsewhere", "..", ".", "")
    for number, segment in enumerate(hostile):
        save(tmp_path / str(number), segment)
        with pytest.raises(tailrace.Error, match="cannot be the name of a segment") as caught:
            export(tmp_path / str(number), tmp_path / "out")
        assert caught.value.code == tailrace.Code.CORRUPT
    assert sorted(os.listdir(tmp_path)) == sorted([*map(str, range(len(hostile))), "nested", "out"])


def test_what_fails_after_the_commit_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine()
    info = CheckpointCommitInfo("step-1", str(tmp_path), True)
    path = str(tmp_path / "step-1" / "mp_rank_00_model_states.pt")
    (tmp_path / "latest.unfinished").mkdir()  # in the way
    engine.create(info)
    engine.save({"w": torch.ones(3)}, path)
    with pytest.raises(tailrace.Error, match="is complete") as caught:
        engine.commit(info)
    assert caught.value.code == tailrace.Code.INVALID_ARGUMENT and caught.value.path == str(tmp_path / "latest")
    assert torch.equal(engine.load(path)["w"], torch.ones(3))

    writer = engine._writer

    def fail() -> None:
        raise ValueError("the test's own failure")

    writer.open(str(tmp_path / "step-2"), fail)
    writer.add("s", lambda: {"w": torch.ones(3)})
    writer.start()
    with pytest.raises(tailrace.Error, match=r"the test's own failure.*the checkpoint is complete") as caught:
        writer.wait()
    assert caught.value.intact is None
    assert _segments.owners_in(str(tmp_path / "step-2")) == {"s": 0}


def test_only_objects_of_the_list_are_made() -> None:
    for value in (
        {"tailrace.deepspeed": "os.system", "v": "true"},
        {"tailrace.deepspeed": "ZeroStageEnum", "v": "x"},
        {"tailrace.deepspeed": "LossScaler", "v": {"update_scale": 1}},
        {"tailrace.deepspeed": []},
    ):
        with pytest.raises(tailrace.Error, match="cannot be understood"):
            _deepspeed_state.from_plain({"a": [value]})
    with pytest.raises(tailrace.Error, match="is taken"):
        _deepspeed_state.to_plain([{"tailrace.deepspeed": 1}])


def stop_at_sigterm(place: str) -> None:
    engine = make_engine(2)
    saving = install(engine, stopping=Stopping(place))
    reason = None
    while reason is None:
        train(engine, range(engine.global_steps, engine.global_steps + 1))
        if engine.global_steps == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        reason = saving.stop_in_time(place, client_state={"reason": "a stop"})
    assert reason == "signal TERM at rank 1"
    Path(place, f"stopped-{dist.get_rank()}").write_text(str(engine.global_steps))
    engine.destroy()
    new = make_engine(2)
    install(new)
    path, client_state = new.load_checkpoint(place)
    assert path is not None and client_state["reason"] == "a stop"
    assert new.global_steps == 2
    train(new, range(2, 3))
    new.destroy()


@pytest.mark.filterwarnings("ignore")
def test_sigterm_at_one_rank_saves_once_more_and_stops_both(tmp_path: Path) -> None:
    distributed.run(2, stop_at_sigterm, str(tmp_path))
    assert [(tmp_path / f"stopped-{rank}").read_text() for rank in (0, 1)] == ["2", "2"]
    assert [path.name for path in tmp_path.glob("global_step*")] == ["global_step2"]
