"""What the three trainings have in common: data, progress, a table, plots, the saved model, and publishing it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from recipes.reward_model.letters import base_model, preferences
from recipes.reward_model.plots import plot
from recipes.reward_model.served import served_accuracy
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.lora import merged_state_dict
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.encoding import EncodedPair, encode_preferences
from reward_loop.training.preferences import read_preferences
from reward_loop.training.reward_model import load_reward_model, save_reward_model
from reward_loop.training.settings import TrainingSettings
from reward_loop.training.trainer import Training, train_reward_model
from reward_loop.training.training_modes import LoraSettings, trained_by, trained_parameters

TRAIN_PAIRS, HELD_OUT_PAIRS = 5000, 600


@dataclass(frozen=True, slots=True)
class Data:
    """Where a run begins: the untrained model's directory, and pairs."""

    model: Path
    train: Sequence[EncodedPair]
    held_out: Sequence[EncodedPair]


@dataclass(frozen=True, slots=True)
class Run:
    """A trained model and how it came to be."""

    model: nn.Module
    training: Training
    tokenizer: Any

    @property
    def accuracy(self) -> float:
        """On the held-out pairs."""
        assert self.training.held_out is not None
        return self.training.held_out.accuracy


def letters_data(directory: Path, *, seed: int = 0) -> Data:
    """Make the untrained model and the preferences of the letters."""
    model = base_model(directory / "untrained", seed=seed)
    train, held_out = preferences(TRAIN_PAIRS, HELD_OUT_PAIRS, seed=seed)
    tokenizer = AutoTokenizer.from_pretrained(model)
    return Data(model, encode_preferences(train, tokenizer), encode_preferences(held_out, tokenizer))


def file_data(model: str, train: Path, held_out: Path, max_tokens: int) -> Data:
    """Read preferences for a model of one's own; pairs that are too long are dropped."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    read = [encode_preferences(read_preferences(p), tokenizer, max_tokens=max_tokens, too_long="drop") for p in (train, held_out)]
    return Data(Path(model), *read)


def trained(
    data: Data,
    mode: RewardModelTrainingMode,
    settings: TrainingSettings,
    *,
    lora: LoraSettings | None = None,
    dtype: Any = "float32",
    device: str = "cpu",
    checkpoints: Path | None = None,
    quiet: bool = False,
) -> Run:
    """Train the model of `data` in this mode."""
    model = trained_by(load_reward_model(data.model, dtype=dtype, seed=settings.seed).to(device), mode, lora)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, disable=quiet) as progress:
        task = progress.add_task(f"{mode}", total=settings.total_steps(len(data.train)), told="")
        training = train_reward_model(
            model,
            data.train,
            settings,
            held_out=data.held_out,
            checkpoints=checkpoints,
            on_step=lambda step: progress.update(task, completed=step.number, told=f"loss {step.loss:.3f}"),
        )
        progress.update(task, completed=len(training.steps))  # a training that had ended before has no step to tell
    return Run(model, training, AutoTokenizer.from_pretrained(data.model))


def write(run: Run, directory: Path) -> None:
    """Write the steps, their plot, and the model as servers load it."""
    steps = run.training.steps
    (directory / "steps.jsonl").write_text("".join(json.dumps(asdict(step)) + "\n" for step in steps), encoding="utf-8")
    looked = [(step.number, step.held_out) for step in steps if step.held_out is not None]
    panels = {
        "loss": {
            "training": [(step.number, step.loss) for step in steps],
            "held out": [(number, seen.loss) for number, seen in looked],
        },
        "held-out accuracy": {"accuracy": [(number, seen.accuracy) for number, seen in looked]},
    }
    plot(directory / "training.png", panels, "step")
    save_reward_model(run.model, directory / "model", run.tokenizer)


def published_weights(run: Run, mode: RewardModelTrainingMode) -> dict[str, torch.Tensor]:
    """Return what a publisher sends: adapters are merged into a copy, and training could go on afterwards."""
    return merged_state_dict(run.model) if mode is RewardModelTrainingMode.LORA else run.model.state_dict()


def main(mode: RewardModelTrainingMode, settings: TrainingSettings, lora: LoraSettings | None = None) -> None:
    """Train, print a table, write model and plots to a directory, and publish to servers where told to."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    asked = _arguments(mode, settings)
    directory: Path = asked.directory
    directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(asked.threads)
    if asked.model is None:
        data = letters_data(directory, seed=asked.seed)
    else:
        data = file_data(asked.model, asked.preferences, asked.held_out, asked.max_tokens)
    changed = {"seed": asked.seed, "steps": asked.steps, "batch_pairs": asked.batch_pairs, "learning_rate": asked.learning_rate}
    run = trained(
        data,
        mode,
        replace(settings, micro_batch_pairs=asked.micro_batch_pairs, **changed),
        lora=lora,
        dtype=asked.dtype,
        device=asked.device,
        checkpoints=directory / "checkpoints",
    )
    write(run, directory)
    _show(run, mode, directory)
    if asked.publish:
        _publish(run, mode, data, asked.publish, asked.version)


def _arguments(mode: RewardModelTrainingMode, settings: TrainingSettings) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Train a reward model on preferences: {mode}.")
    add = parser.add_argument
    add("directory", type=Path, help="where model, plots and checkpoints go; a training that was stopped goes on from there")
    add("--publish", nargs="+", metavar="HOST:PORT", help="servers of the untrained model, which get the trained weights")
    add("--version", type=int, help="of the published weights; the one after the served one if not given")
    add("--seed", type=int, default=0)
    add("--steps", type=int, default=settings.steps)
    add("--batch-pairs", type=int, default=settings.batch_pairs)
    add("--micro-batch-pairs", type=int, help="pairs that are in memory at once")
    add("--learning-rate", type=float, default=settings.learning_rate)
    add("--model", help="a model of your own; then --preferences and --held-out too")
    add("--preferences", type=Path, help="JSON Lines or Parquet with the fields prompt, chosen and rejected")
    add("--held-out", type=Path, help="a file like it, to look at")
    add("--max-tokens", type=int, default=2048)
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the model's body")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--threads", type=int, default=1, help="of the CPU; a model as small as the letters' is faster with one")
    asked = parser.parse_args()
    if asked.model is not None and not (asked.preferences and asked.held_out):
        parser.error("--model needs --preferences and --held-out")
    return asked


def _show(run: Run, mode: RewardModelTrainingMode, directory: Path) -> None:
    table = Table("mode", "trained weights", "steps", "seconds", "loss", "held-out accuracy", title="reward model")
    weights = sum(parameter.numel() for parameter in trained_parameters(run.model).values())
    last = run.training.steps[-1]
    cells = (f"{weights:,}", f"{last.number}", f"{run.training.seconds:.1f}", f"{last.loss:.3f}", f"{run.accuracy:.1%}")
    table.add_row(str(mode), *cells)
    console = Console()
    console.print(table)
    console.print(f"the model is in {directory / 'model'}, the plot in {directory / 'training.png'}", soft_wrap=True)


def _publish(run: Run, mode: RewardModelTrainingMode, data: Data, addresses: Sequence[str], version: int | None) -> None:
    publisher = create_reward_publisher(addresses)
    report = publisher.publish(published_weights(run, mode), version, training_mode=mode)
    print(f"published {report}")
    for address in addresses:
        print(f"{address}: held-out accuracy {served_accuracy(address, data.held_out):.1%}")
