"""Hugging Face's Trainer saves and resumes through tailrace: as without interruption, also after a kill."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import is_killed_after

import tailrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the libraries' own
    from transformers import BloomConfig, BloomForCausalLM, Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import HubStrategy

    from tailrace.torch import _runs, huggingface
    from tailrace.torch.huggingface import install
    from tailrace.torch.stopping import Stopping

pytestmark = pytest.mark.filterwarnings("ignore")


class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 64, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def make_trainer(place: Path, **arguments: Any) -> Any:
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2, hidden_dropout=0.1)
    chosen = {"max_steps": 9, "save_steps": 2, "logging_steps": 1, **arguments}
    settings = TrainingArguments(
        str(place), per_device_train_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True, **chosen
    )
    return Trainer(BloomForCausalLM(config), settings, train_dataset=Data(), eval_dataset=Data())


def losses(trainer: Any) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}


def be_killed(place: str) -> None:
    """At the end of writing the checkpoint of step 6, before it is committed."""
    write = _runs.write
    saved = []

    def kill(*args: Any, **kwargs: Any) -> Any:
        written = write(*args, **kwargs)
        saved.append(written)
        if len(saved) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    _runs.write = kill
    trainer = make_trainer(Path(place))
    install(trainer, files=2)
    trainer.train()


def test_training_resumes_after_a_kill(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "uninterrupted", save_strategy="no")
    trainer.train()
    expected = losses(trainer)
    weights = trainer.model.state_dict()

    place = tmp_path / "killed"
    done = subprocess.run([sys.executable, __file__, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert sorted(path.name for path in place.iterdir()) == [
        ".checkpoint-6.unfinished",
        "checkpoint-2",
        "checkpoint-4",
    ]
    names = sorted(path.name for path in (place / "checkpoint-4").iterdir())
    assert len(names) == 3 and names[-1] == "trainer_state.json"  # K files, and what the Trainer looks for
    assert "model/transformer.word_embeddings.weight" in tailrace.read(place / "checkpoint-4")

    trainer = make_trainer(place, save_total_limit=2)
    install(trainer, files=1)
    trainer.train(resume_from_checkpoint=True)
    resumed = losses(trainer)
    assert json.loads((place / "checkpoint-9" / "trainer_state.json").read_text())["global_step"] == 9
    assert sorted(path.name for path in place.iterdir()) == ["checkpoint-8", "checkpoint-9"]
    assert resumed == expected
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def test_the_best_model_and_the_trainers_own_checkpoints_load(tmp_path: Path) -> None:
    make_trainer(tmp_path, max_steps=2, eval_steps=2).train()  # without tailrace; its state holds eval_steps
    # The first of the two evaluations gets the better score.
    best_by = {"load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True}
    trainer = make_trainer(tmp_path, max_steps=6, eval_strategy="steps", eval_steps=2, save_total_limit=1, **best_by)
    scores = iter([2.0, 1.0])
    trainer.compute_metrics = lambda prediction: {"score": next(scores)}
    install(trainer, asynchronous=False)
    trainer.train(resume_from_checkpoint=True)
    best = trainer.state.best_model_checkpoint
    assert best == str(tmp_path / "checkpoint-4")
    saved = tailrace.read(best)["model/transformer.word_embeddings.weight"].load()
    assert torch.equal(trainer.model.transformer.word_embeddings.weight, saved)


def test_pushing_checkpoints_to_the_hub_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.args.push_to_hub = True
    own = trainer._save_checkpoint
    with pytest.raises(tailrace.Error, match="hub_strategy='end'") as caught:
        install(trainer)
    assert caught.value.code == tailrace.Code.UNSUPPORTED and trainer._save_checkpoint == own
    trainer.args.hub_strategy = HubStrategy.END
    install(trainer)
    assert trainer._save_checkpoint != own


def test_what_fails_before_the_writing_fails_the_save_on_all_ranks(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=2)
    install(trainer)

    def fail(path: str) -> None:
        raise OSError(28, "the test's own failure")

    trainer.state.save_to_json = fail
    with pytest.raises(tailrace.Error, match="the test's own failure"):  # as those of add(): raised by start()
        trainer._save_checkpoint(trainer.model, None)
    del trainer.state.save_to_json
    trainer.train()
    assert os.listdir(tmp_path) == ["checkpoint-2"]


def test_a_kill_while_a_checkpoint_is_replaced_leaves_a_whole_one(tmp_path: Path) -> None:
    def contents(place: Path) -> list[str]:
        return [file.read_text() for file in place.iterdir()]

    whole = (["old"] * 2, ["new"] * 2)
    for steps in range(100):
        place, unfinished = tmp_path / str(steps) / "checkpoint-2", tmp_path / str(steps) / ".checkpoint-2.unfinished"
        for directory, text in ((place, "old"), (unfinished, "new")):
            directory.mkdir(parents=True)
            for name in ("trainer_state.json", "weights"):
                (directory / name).write_text(text)
        take_its_name = functools.partial(huggingface._take_its_name, str(unfinished), str(place))
        killed = is_killed_after(steps, take_its_name)
        assert not place.exists() or contents(place) in whole, steps
        install(make_trainer(place.parent))
        assert contents(place) in whole, steps
        huggingface._clear(str(place.parent))
        assert os.listdir(place.parent) == ["checkpoint-2"] and contents(place) in whole, steps
        if not killed:
            break
    assert steps == 5 and contents(place) == ["new"] * 2  # two renames, two files, one directory


def test_training_resumes_after_a_kill_while_a_checkpoint_is_replaced(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=2)
    install(trainer)
    trainer.train()
    # Between the two renames.
    (tmp_path / "checkpoint-2").rename(tmp_path / ".checkpoint-2.replaced")
    (tmp_path / ".checkpoint-2.unfinished").mkdir()
    trainer = make_trainer(tmp_path, max_steps=4)
    install(trainer)
    trainer.train(resume_from_checkpoint=True)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-2", "checkpoint-4"]
    assert trainer.state.global_step == 4 and losses(trainer).keys() == {1, 2, 3, 4}  # the first two of the checkpoint


def test_a_checkpoint_that_cannot_take_the_name_leaves_the_older_one(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint-2"
    place.mkdir()
    (tmp_path / ".checkpoint-2.unfinished").mkdir()
    (tmp_path / ".checkpoint-2.unfinished" / "trainer_state.json").touch()
    rename = os.rename

    def fail(source: str, target: str) -> None:
        if source.endswith(".unfinished"):
            raise OSError(5, "the test's own failure")
        rename(source, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(tailrace.Error, match="the test's own failure") as caught:
        patch.setattr(os, "rename", fail)
        huggingface._take_its_name(str(tmp_path / ".checkpoint-2.unfinished"), str(place))
    assert caught.value.intact == "older checkpoints are intact" and place.is_dir()


def test_a_file_in_the_place_of_a_checkpoint_stops_the_save_and_stays(tmp_path: Path) -> None:
    unfinished, place = tmp_path / ".checkpoint-5.unfinished", tmp_path / "checkpoint-5"
    unfinished.mkdir()
    (unfinished / "trainer_state.json").write_text("new")
    place.write_text("mine")
    with pytest.raises(tailrace.Error, match=f"giving '{place}' its name: Not a directory"):
        huggingface._take_its_name(str(unfinished), str(place))
    assert place.read_text() == "mine" and (unfinished / "trainer_state.json").read_text() == "new"


def test_links_are_replaced_and_what_they_name_stays(tmp_path: Path) -> None:
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    (elsewhere / "weights").write_text("mine")
    unfinished = run / ".checkpoint-2.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "trainer_state.json").write_text("new")
    (run / "checkpoint-2").symlink_to(elsewhere)
    huggingface._take_its_name(str(unfinished), str(run / "checkpoint-2"))
    assert os.listdir(run) == ["checkpoint-2"] and not (run / "checkpoint-2").is_symlink()
    (run / ".checkpoint-2.replaced").symlink_to(elsewhere)  # as a kill would leave it
    (run / ".checkpoint-3.unfinished").symlink_to(elsewhere)
    (run / ".checkpoint-4.unfinished").touch()
    (run / ".checkpoint-5.replaced").symlink_to(elsewhere)
    huggingface._clear(str(run))
    assert sorted(os.listdir(run)) == ["checkpoint-2", "checkpoint-5"]  # that one got its name back
    assert (run / "checkpoint-2" / "trainer_state.json").read_text() == "new"
    (run / "checkpoint-5").unlink()
    (run / "checkpoint-5").symlink_to("nowhere")
    unfinished.mkdir()
    (unfinished / "trainer_state.json").write_text("newer")
    huggingface._take_its_name(str(unfinished), str(run / "checkpoint-5"))
    assert (run / "checkpoint-5" / "trainer_state.json").read_text() == "newer"
    assert (elsewhere / "weights").read_text() == "mine"


if __name__ == "__main__":
    be_killed(sys.argv[1])


def test_sigterm_saves_once_more_and_ends_training(tmp_path: Path) -> None:
    class Asked(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler that a library left would be called as well
    stopping = Stopping(tmp_path)
    trainer = make_trainer(tmp_path, save_steps=100)
    trainer.add_callback(Asked())
    install(trainer, files=2, stopping=stopping)
    trainer.train()
    stopping.close()
    assert stopping.reason() == "signal TERM at rank 0"
    assert trainer.state.global_step == 5
    assert (tmp_path / "checkpoint-5" / "trainer_state.json").exists()
    resumed = make_trainer(tmp_path, save_steps=100)
    install(resumed, files=2)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 9
    assert min(losses(resumed)) == 1
    assert losses(resumed)[5] == losses(trainer)[5]
