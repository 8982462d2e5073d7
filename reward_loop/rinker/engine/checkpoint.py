"""Checkpoints of the engine: what is trained, what the optimiser remembers, and all that a model is used with.

A checkpoint is a directory:

    checkpoint.json         the spec, the step, the renderer's name, and size and digest of the files with tensors
    weights.safetensors     what is trained (adapters and head, or the whole model), in float32, by its names in the engine
    optimizer.safetensors   the optimiser's moments, if they were asked for
    random.safetensors      the state of the random numbers
    model/                  configuration of the model and of its adapters, and the tokenizer, as transformers and peft read them

Invariants: it is in place whole or not at all, whenever the process is killed (of one that takes the place of another, the older
one may then be left as `.replaced-…` beside it); it is read and checked to the last byte before anybody uses it; nothing in it
runs code when it is loaded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.checkpoint_files import flush, read_manifest, read_tensors, write_manifest, write_tensors
from reward_loop.rinker.engine.identity import spec_as_json, spec_from_json, what_decides
from reward_loop.rinker.engine.unfinished import sweep, take_place, unfinished_prefix
from reward_loop.rinker.types import ModelSpec
from reward_loop.training.reward_model import plain_model

MODEL_FOLDER = "model"
_WEIGHTS, _OPTIMIZER, _RANDOM = "weights.safetensors", "optimizer.safetensors", "random.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one holds; all tensors are whole and on the CPU when it is read."""

    spec: ModelSpec
    digest: str
    """See `identity.model_digest`."""
    step: int
    renderer: str | None
    weights: Mapping[str, torch.Tensor]
    random: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, torch.Tensor] | None = None
    """None: none was asked for; empty: it had not stepped yet."""


def write_checkpoint(directory: Path, checkpoint: Checkpoint, model: nn.Module, tokenizer: Any = None) -> None:
    """Write it, in the place of one that may be there; raises RequestFailedError ("server") where that can't be done."""
    directory = directory.absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        sweep(directory.parent)
        folder = Path(tempfile.mkdtemp(prefix=unfinished_prefix(), dir=directory.parent))
        try:
            folder.chmod(0o755)  # as mkdir makes them, not as mkdtemp does
            _fill(folder, checkpoint, model, tokenizer)
            take_place(folder, directory)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # nothing is there if it got its name
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        raise RequestFailedError(f"the checkpoint {directory} can't be written: {error}", category="server") from error


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read one and check every byte; raises RequestFailedError: "user" if there is none, "server" for a file that is damaged."""
    manifest = read_manifest(directory)
    tensors = {name: read_tensors(directory, name, manifest) for name in manifest["files"]}
    return Checkpoint(
        spec_from_json(manifest["spec"]),
        manifest["digest"],
        manifest["step"],
        manifest["renderer"],
        tensors[_WEIGHTS],
        tensors[_RANDOM],
        tensors.get(_OPTIMIZER),
    )


def check_fits(directory: Path, found: Checkpoint, spec: ModelSpec, digest: str, *, optimizer: bool) -> None:
    """Raise RequestFailedError ("user") unless a model of this spec and digest can go on from the checkpoint."""
    before, now = what_decides(found.spec), what_decides(spec)
    changed = [f"{key} was {before[key]!r} and is {now[key]!r}" for key in now if before[key] != now[key]]
    if not changed and found.digest != digest:
        changed = [f"its base model {found.spec.base_model} has other layers or weights than {spec.base_model}"]
    if changed:
        raise RequestFailedError(
            f"{directory} is of another model: {'; '.join(changed)}. Create the model from the checkpoint, or as it was",
            category="user",
        )
    if optimizer and found.optimizer is None:
        raise RequestFailedError(
            f"{directory} holds no optimiser's state; load it without (optimizer=False), which begins it anew", category="user"
        )


def _fill(folder: Path, checkpoint: Checkpoint, model: nn.Module, tokenizer: Any) -> None:
    write_tensors(folder / _WEIGHTS, checkpoint.weights)
    write_tensors(folder / _RANDOM, checkpoint.random)
    if checkpoint.optimizer is not None:
        write_tensors(folder / _OPTIMIZER, checkpoint.optimizer)
    plain: Any = plain_model(model)
    plain.config.save_pretrained(folder / MODEL_FOLDER)
    adapters: Mapping[str, Any] = getattr(model, "peft_config", {})
    for config in adapters.values():
        config.save_pretrained(folder / MODEL_FOLDER)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder / MODEL_FOLDER)
    what = {
        "spec": spec_as_json(checkpoint.spec),
        "digest": checkpoint.digest,
        "step": checkpoint.step,
        "renderer": checkpoint.renderer,
    }
    write_manifest(folder, what)
    flush(folder)
