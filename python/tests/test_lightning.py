"""Lightning's Trainer saves and resumes through tailrace: as without interruption."""

from __future__ import annotations

import os
import signal
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import tailrace
from tailrace.torch import lightning
from tailrace.torch.lightning import TailraceCheckpointIO

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own advice


class Model(pl.LightningModule):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 1)
        )

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss: torch.Tensor = self.net(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def train(place: Path, epochs: int, plugin: Any, resume: str | None = None) -> Any:
    pl.seed_everything(3)
    torch.manual_seed(3)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=8)
    model = Model()
    keep = ModelCheckpoint(place, monitor="loss", save_top_k=2, save_last=True)
    trainer = pl.Trainer(
        default_root_dir=place,
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[keep],
        plugins=[plugin],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data, ckpt_path=resume)
    return model


@pytest.mark.parametrize("asynchronous", [False, True])
def test_training_resumes_from_a_checkpoint(tmp_path: Path, asynchronous: bool) -> None:
    def plugin() -> Any:
        return TailraceCheckpointIO(asynchronous=asynchronous)

    train(tmp_path / "a", 3, plugin())
    last = tmp_path / "a" / "last.ckpt"
    assert tailrace.read(last)["state_dict/net.0.weight"].shape == (8, 4)
    assert len(os.listdir(tmp_path / "a")) == 3  # the best two and the last: removed ones are gone
    resumed = train(tmp_path / "b", 4, plugin(), resume=str(last))
    uninterrupted = train(tmp_path / "c", 4, plugin())
    for mine, theirs in zip(resumed.state_dict().values(), uninterrupted.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_in_the_background_files_are_written_and_removed_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    save = lightning.save

    def waits(*arguments: Any, **options: Any) -> None:
        assert go_on.wait(60)
        save(*arguments, **options)

    monkeypatch.setattr(lightning, "save", waits)
    plugin = TailraceCheckpointIO(asynchronous=True)
    weight = torch.ones(8)
    plugin.save_checkpoint({"weight": weight}, tmp_path / "f")
    weight.zero_()  # the program's again
    plugin.remove_checkpoint(tmp_path / "f")
    assert os.listdir(tmp_path) == []
    go_on.set()
    plugin.teardown()
    assert os.listdir(tmp_path) == []

    go_on.clear()
    plugin.save_checkpoint({"weight": weight + 5}, tmp_path / "g")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(lightning, "wait", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            plugin.save_checkpoint({"weight": weight + 6}, tmp_path / "g")
    go_on.set()
    plugin.teardown()
    assert torch.equal(plugin.load_checkpoint(tmp_path / "g")["weight"], torch.full((8,), 5.0))

    plugin.save_checkpoint({"weight": weight + 1}, tmp_path / "g")
    weight.fill_(2)
    assert torch.equal(plugin.load_checkpoint(tmp_path / "g")["weight"], torch.ones(8))
    with pytest.raises(tailrace.Error, match=r"\['path'\]"):
        plugin.save_checkpoint({"path": Fraction(1, 2)}, tmp_path / "h")
    plugin.teardown()
    assert os.listdir(tmp_path) == ["g"]


def test_after_a_failed_save_in_the_background_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = TailraceCheckpointIO(asynchronous=True)
    plugin.save_checkpoint({"step": 1}, tmp_path / "old")
    plugin.teardown()

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("the test's own failure")

    with monkeypatch.context() as patch:
        patch.setattr(lightning, "save", fail)
        plugin.save_checkpoint({"step": 2}, tmp_path / "new")
        plugin.remove_checkpoint(tmp_path / "old")
        with pytest.raises(OSError, match="the test's own failure"):
            plugin.teardown()
    assert plugin.load_checkpoint(tmp_path / "old") == {"step": 1}
    plugin.save_checkpoint({"step": 3}, tmp_path / "new")
    plugin.remove_checkpoint(tmp_path / "old")
    plugin.teardown()
    assert os.listdir(tmp_path) == ["new"]


def test_objects_without_a_safe_encoding_are_named(tmp_path: Path) -> None:
    checkpoint = {"hyper_parameters": {"path": Fraction(1, 2)}}
    with pytest.raises(tailrace.Error, match=r"\['hyper_parameters'\]\['path'\]"):
        TailraceCheckpointIO().save_checkpoint(checkpoint, tmp_path / "f")
    plugin = TailraceCheckpointIO(pickle=True)
    plugin.save_checkpoint(checkpoint, tmp_path / "f")
    with pytest.raises(tailrace.Error, match="weights_only=False"):
        plugin.load_checkpoint(tmp_path / "f")
    assert plugin.load_checkpoint(tmp_path / "f", weights_only=False) == checkpoint
    plugin.remove_checkpoint(tmp_path / "f")
    plugin.remove_checkpoint(tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_a_relative_path_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    plugin = TailraceCheckpointIO(asynchronous=True)
    go_on = threading.Event()
    real = lightning.save

    def wait_and_save(*arguments: Any, **options: Any) -> None:
        assert go_on.wait(60)
        real(*arguments, **options)

    monkeypatch.setattr(lightning, "save", wait_and_save)
    plugin.save_checkpoint({"step": 1}, "old")
    monkeypatch.chdir(tmp_path / "other")
    go_on.set()
    plugin.teardown()
    assert sorted(os.listdir(tmp_path)) == ["old", "other"] and os.listdir(tmp_path / "other") == []


def test_sigterm_saves_once_more_and_ends_fit(tmp_path: Path) -> None:
    class Asked(pl.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if trainer.global_step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler that a library left would be called as well
    before = signal.getsignal(signal.SIGTERM)
    stop = lightning.StopInTime(tmp_path)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=8)
    options: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": tmp_path}
    trainer = pl.Trainer(
        max_epochs=50, min_epochs=30, callbacks=[Asked(), stop], plugins=[TailraceCheckpointIO()], **options
    )
    trainer.fit(Model(), data)
    assert stop.reason == "signal TERM at rank 0"
    assert trainer.global_step == 6
    assert signal.getsignal(signal.SIGTERM) == before
    assert tailrace.torch.load(tmp_path / "stopped.ckpt")["global_step"] == 6
    again = lightning.StopInTime(tmp_path)
    resumed = pl.Trainer(max_steps=8, callbacks=[again], plugins=[TailraceCheckpointIO()], **options)
    resumed.fit(Model(), data, ckpt_path=tmp_path / "stopped.ckpt")
    assert resumed.global_step == 8
    assert again.reason is None
