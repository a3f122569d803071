"""Hugging Face's Accelerate saves and loads through tailrace: as without interruption, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException

import tailrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own
    from accelerate import Accelerator
    from accelerate.utils import DistributedType, ProjectConfiguration

    from tailrace.torch import _runs
    from tailrace.torch.accelerate import install
    from tailrace.torch.stopping import Stopping

pytestmark = pytest.mark.filterwarnings("ignore")


class Counter:
    def __init__(self) -> None:
        self.seen = 0

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


class Run:
    """A model with everything that an Accelerator saves."""

    def __init__(self, place: Path, ours: bool = True, limit: int | None = None, **options: Any) -> None:
        if dist.is_initialized():
            rank, ranks = str(dist.get_rank()), str(dist.get_world_size())
            os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks)
            os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="1")  # asked for, and not used
        names = ProjectConfiguration(str(place), automatic_checkpoint_naming=True, total_limit=limit)
        self.accelerator = Accelerator(cpu=True, project_config=names)
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(9, 33), torch.nn.Dropout(0.2), torch.nn.Linear(33, 1))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        self.net, self.optimizer, self.schedule = self.accelerator.prepare(net, optimizer, schedule)
        self.counter = Counter()
        self.accelerator.register_for_checkpointing(self.counter)
        self.saving = install(self.accelerator, **options) if ours else None

    def train(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            self.counter.seen += 1
            loss = self.net(torch.randn(4, 9)).square().mean()  # of the generators that are saved
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return losses


def test_one_process(tmp_path: Path) -> None:
    run = Run(tmp_path, files=1, limit=2)
    run.train(3)
    run.accelerator.save_state()
    expected = run.train(3)  # while the file is written
    for _ in range(2):
        run.accelerator.save_state()
    run.saving.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["checkpoint_1", "checkpoint_2"]
    run.accelerator.project_configuration.total_limit = None
    run.accelerator.save_state()
    assert run.train(2)

    other = Run(tmp_path / "other")
    other.accelerator.load_state(tmp_path / "checkpoints" / "checkpoint_1")
    assert other.counter.seen == 6 and other.train(1) != expected[:1]
    (file,) = (tmp_path / "checkpoints" / "checkpoint_1").iterdir()
    assert tailrace.read(file.parent)["model/0.weight"].shape == (33, 9)

    with pytest.raises(tailrace.Error, match="no complete checkpoint"):
        other.accelerator.load_state()
    run.accelerator.project_configuration.iteration = 2
    with pytest.raises(tailrace.Error, match="holds a checkpoint already") as caught:
        run.accelerator.save_state()
    assert caught.value.code == tailrace.Code.ALREADY_EXISTS
    other.accelerator.register_for_checkpointing(Counter())
    with pytest.raises(tailrace.Error, match="has 1 custom, the Accelerator 2"):
        other.accelerator.load_state(file.parent)


def test_the_new_checkpoint_stays_when_the_numbers_begin_anew(tmp_path: Path) -> None:
    run = Run(tmp_path, limit=2)
    run.accelerator.project_configuration.iteration = 3
    for _ in range(2):
        run.accelerator.save_state()
    run.saving.wait()
    again = Run(tmp_path, limit=2)
    again.accelerator.save_state()
    again.saving.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["checkpoint_0", "checkpoint_4"]


def test_weights_of_another_model_are_refused_before_anything_changes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with torch.no_grad():
        run.net[0].weight.fill_(2)
    run.accelerator.save_state()
    run.saving.wait()
    for change, options, said in (
        (lambda net: net.append(torch.nn.Linear(1, 1)), {}, r"\['3.weight'\] is not in the checkpoint"),
        (lambda net: net.double(), {}, "is of float32 in the checkpoint, and of float64 here"),
        (lambda net: setattr(net[2], "bias", torch.nn.Parameter(torch.zeros(7))), {"strict": False}, r"shape \(1,\)"),
    ):
        other = Run(tmp_path)
        change(other.net)
        before = {name: tensor.clone() for name, tensor in other.net.state_dict().items()}
        with pytest.raises(tailrace.Error, match=said) as caught:
            other.accelerator.load_state(**options)
        assert caught.value.code == tailrace.Code.INVALID_ARGUMENT
        assert all(torch.equal(tensor, before[name]) for name, tensor in other.net.state_dict().items())
    other = Run(tmp_path)
    other.net.append(torch.nn.Linear(1, 1))
    other.accelerator.load_state(strict=False)
    assert (other.net[0].weight == 2).all()


def refused(run: Run, said: str) -> tailrace.Code:
    before = {name: tensor.clone() for name, tensor in run.net.state_dict().items()}
    with pytest.raises(tailrace.Error, match=said) as caught:
        run.accelerator.load_state()
    assert caught.value.intact == "nothing was loaded"
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.net.state_dict().items())
    return caught.value.code


def test_an_optimizer_with_other_groups_is_refused_before_anything_changes(tmp_path: Path) -> None:
    run = Run(tmp_path, asynchronous=False)
    run.train(1)
    run.accelerator.save_state()
    run = Run(tmp_path)
    group = run.optimizer.param_groups[0]
    one = {**group, "params": group["params"][:1]}
    for groups, said in (
        ([{**group, "params": group["params"][1:]}, one], r"groups of \[4\] parameters, and of \[3, 1\] here"),
        ([one], r"groups of \[4\] parameters, and of \[1\] here"),
    ):
        run.optimizer.optimizer.param_groups = groups
        assert refused(run, said) == tailrace.Code.INVALID_ARGUMENT


def test_a_tree_without_its_parts_is_corrupt(tmp_path: Path) -> None:
    run = Run(tmp_path, asynchronous=False)
    training = run.saving._training_state()
    for name in ("_training_state", "_rank_state"):
        whole = getattr(run.saving, name)()
        for part in whole:
            setattr(run.saving, name, lambda whole=whole, part=part: {k: v for k, v in whole.items() if k != part})
            run.accelerator.save_state()
            assert refused(run, f"has no '{part}'") == tailrace.Code.CORRUPT
        delattr(run.saving, name)
    for optimizer in ({"param_groups": [{}]}, {"param_groups": 1}):
        run.saving._training_state = lambda optimizer=optimizer: {**training, "optimizers": [optimizer]}
        run.accelerator.save_state()
        assert refused(run, "optimizer 0 in .* cannot be understood") == tailrace.Code.CORRUPT


def test_hooks_and_checkpoints_of_accelerates_own(tmp_path: Path) -> None:
    theirs = Run(tmp_path, ours=False)
    theirs.train(2)
    theirs.accelerator.save_state()
    expected = theirs.train(2)
    run = Run(tmp_path, asynchronous=False)
    run.accelerator.load_state()  # theirs
    assert run.train(2) == expected

    def save(models: list[Any], weights: list[Any], place: str) -> None:
        torch.save(weights.pop(), Path(place) / "weights")

    def load(models: list[Any], place: str) -> None:
        models.pop().load_state_dict(torch.load(Path(place) / "weights"))

    run.accelerator.register_save_state_pre_hook(save)
    run.accelerator.register_load_state_pre_hook(load)
    run.accelerator.project_configuration.iteration = 1
    run.accelerator.save_state()
    place = tmp_path / "checkpoints" / "checkpoint_1"
    assert len(list(place.iterdir())) == 2 and not any(name.startswith("model") for name in tailrace.read(place))
    expected = run.train(2)
    run.accelerator.load_state()  # the newest
    assert run.train(2) == expected

    run.counter.seen = Fraction(1, 2)  # type: ignore[assignment]
    with pytest.raises(tailrace.Error, match=r"\['custom'\]\[0\]\['seen'\] is a fractions"):
        run.accelerator.save_state()
    run.accelerator.load_state()
    assert run.train(2) == expected


def test_what_is_sharded_by_others_is_refused(tmp_path: Path) -> None:
    for kind, sentence in (
        ("FSDP", "StorageWriter"),
        ("DEEPSPEED", "tailrace.torch.deepspeed"),
        ("XLA", "is not known"),
    ):
        sharded = SimpleNamespace(
            distributed_type=DistributedType(kind), project_configuration=ProjectConfiguration(), save_state=None
        )
        with pytest.raises(tailrace.Error, match=sentence):
            install(sharded)
        assert sharded.save_state is None
    run = Run(tmp_path, ours=False)
    run.accelerator.project_configuration.save_on_each_node = True
    with pytest.raises(tailrace.Error, match="one file per node"):
        install(run.accelerator)


write = _runs.write


def kill_when_written(*args: Any, **kwargs: Any) -> Any:
    write(*args, **kwargs)
    dist.barrier(args[0])
    os.kill(os.getpid(), signal.SIGKILL)


def save_and_be_killed(place: Path) -> None:
    run = Run(place, files=2)
    torch.manual_seed(dist.get_rank())
    run.train(3)
    run.accelerator.save_state()
    (place / f"losses-{dist.get_rank()}").write_text(json.dumps(run.train(3)))
    run.saving.wait()
    dist.barrier()
    _runs.write = kill_when_written
    run.accelerator.save_state()
    run.accelerator.end_training()


def go_on(place: Path) -> None:
    run = Run(place, files=2)
    run.accelerator.load_state()
    assert run.train(3) == json.loads((place / f"losses-{dist.get_rank()}").read_text())
    assert run.counter.seen == 6
    run.accelerator.project_configuration.iteration = 1
    run.accelerator.save_state()  # the one that was killed
    run.saving.wait()
    assert len(list((place / "checkpoints" / "checkpoint_1").iterdir())) == 2


def test_two_ranks_go_on_after_a_kill(tmp_path: Path) -> None:
    with pytest.raises(ProcessExitedException, match="SIGKILL"):
        distributed.run(2, save_and_be_killed, tmp_path)
    assert len(list((tmp_path / "checkpoints" / "checkpoint_0").iterdir())) == 2
    killed = list((tmp_path / "checkpoints" / "checkpoint_1").iterdir())
    assert killed and all(file.name.endswith(".unfinished") for file in killed)
    distributed.run(2, go_on, tmp_path)


def fail_in_one_ranks_hook(place: Path) -> None:
    run = Run(place)

    def hook(models: list[Any], weights: list[Any], directory: str) -> None:
        if dist.get_rank() == 1:
            raise ValueError("the test's own failure")

    handle = run.accelerator.register_save_state_pre_hook(hook)
    with pytest.raises(tailrace.Error, match="the test's own failure") as caught:
        run.accelerator.save_state()
    assert caught.value.intact == "what was there is intact"
    handle.remove()
    run.accelerator.save_state()
    run.saving.wait()


def test_a_hook_that_fails_on_one_rank_fails_the_save_on_all(tmp_path: Path) -> None:
    distributed.run(2, fail_in_one_ranks_hook, tmp_path)
    assert len(list((tmp_path / "checkpoints" / "checkpoint_0").iterdir())) == 1


def stop_at_sigterm(place: Path) -> None:
    run = Run(place, files=2, stopping=Stopping(place))
    reason = None
    while reason is None:
        run.train(1)
        run.accelerator.project_configuration.iteration = run.counter.seen
        if run.counter.seen == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        assert run.saving is not None
        reason = run.saving.stop_in_time()
    assert reason == "signal TERM at rank 1"
    (place / f"stopped-{dist.get_rank()}").write_text(str(run.counter.seen))


def go_on_after_the_stop(place: Path) -> None:
    run = Run(place, files=2)
    run.accelerator.load_state()
    assert run.counter.seen == 3
    run.train(1)


def test_sigterm_at_one_rank_saves_once_more_and_stops_both(tmp_path: Path) -> None:
    distributed.run(2, stop_at_sigterm, tmp_path)
    assert [(tmp_path / f"stopped-{rank}").read_text() for rank in (0, 1)] == ["3", "3"]
    assert os.listdir(tmp_path / "checkpoints") == ["checkpoint_3"]
    distributed.run(2, go_on_after_the_stop, tmp_path)


def test_stopping_hears_of_checkpoints(tmp_path: Path) -> None:
    with open(os.open(tmp_path / "tailrace.halt", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write("tailrace halt 1\nafter 1\nid 5\nby anna@login\n")
    stopping = Stopping(tmp_path)
    run = Run(tmp_path, limit=1, stopping=stopping)
    assert run.saving is not None
    deadline = time.monotonic() + 20
    while (reason := run.saving.stop_in_time()) is None:
        assert time.monotonic() < deadline
        run.accelerator.save_state()  # once the order is found, one counts
    assert reason == "halted by anna@login after 1 save"
    stopping.close()
    with pytest.raises(tailrace.Error, match="no `stopping`"):
        install(Accelerator(cpu=True)).stop_in_time("place")
