"""A complete checkpoint with new weights, for a server that reads one by itself and dies of a bad one.

Invariants: what is written has exactly the tensors of the checkpoint that it takes the place of, in the same shapes, all finite;
a directory of its name is complete.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from reward_loop.errors import WeightSyncError

_SHOWN = 10
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf", ".h5", ".msgpack")
_TIED = "lm_head.weight"
_HEAD_BIAS = "score.bias"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The model in a directory: the file of each tensor, its shape, and whether its output layer is its input layer."""

    directory: Path
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]
    tied: bool

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """Read the headers of its safetensors files; raises WeightSyncError where it has none."""
        files, shapes = dict[str, Path](), dict[str, tuple[int, ...]]()
        try:
            config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
            for file in sorted(directory.glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    for name in opened.keys():  # noqa: SIM118 - no mapping
                        files[name], shapes[name] = file, tuple(opened.get_slice(name).get_shape())
        except (OSError, ValueError) as error:
            raise WeightSyncError(f"the checkpoint in {directory} can't be read: {error}") from error
        if not files:
            raise WeightSyncError(f"{directory} holds no safetensors file; save the served model there with save_pretrained")
        return cls(directory, files, shapes, bool(config.get("tie_word_embeddings")))

    def check(self, tensors: Mapping[str, torch.Tensor], *, complete: bool) -> None:
        """Raise WeightSyncError naming every tensor that doesn't fit; `complete`: also those that are missing."""
        if _HEAD_BIAS in self.shapes:
            raise WeightSyncError(
                f"the served model has a {_HEAD_BIAS}, which a vLLM without the reward loop's plugin loses when it loads again: "
                "install reward-loop beside vLLM"
            )
        wrong: list[str] = []
        for name, tensor in tensors.items():
            shape = self.shapes.get(name)
            if shape is None and not self._redundant(name):
                near = difflib.get_close_matches(name, self.shapes, n=1, cutoff=0.0)
                wrong.append(f"{name} is unknown; the nearest is {near[0]}")
            elif shape is not None and shape != tuple(tensor.shape):
                wrong.append(f"{name} has the shape {tuple(tensor.shape)}, the served one {shape}")
            elif not bool(torch.isfinite(tensor).all()):
                wrong.append(f"{name} holds values that are not finite")
        if complete:
            wrong += [f"{name} is missing" for name in self.shapes if name not in tensors and not self._redundant(name)]
        if wrong:
            more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
            raise WeightSyncError(f"these weights don't fit the served model: {'; '.join(wrong[:_SHOWN])}{more}")

    def write(self, target: Path, tensors: Mapping[str, torch.Tensor]) -> int:
        """Write a copy of this checkpoint with these tensors in it, and return the bytes of its weights."""
        weights = {
            name: tensors[name].detach().cpu().contiguous() if name in tensors else self._old(name)
            for name in self.shapes
            if not self._redundant(name)
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}-{os.getpid()}")
        try:
            temporary.mkdir()
            for file in self.directory.iterdir():
                if file.is_file() and not file.name.endswith(_WEIGHTS):
                    shutil.copy2(file, temporary / file.name)
            save_file(weights, temporary / "model.safetensors", {"format": "pt"})
            temporary.rename(target)
        except OSError as error:
            raise WeightSyncError(f"the checkpoint {target} can't be written: {error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return sum(tensor.nbytes for tensor in weights.values())

    def _old(self, name: str) -> torch.Tensor:
        with safe_open(self.files[name], "pt") as opened:
            tensor: torch.Tensor = opened.get_tensor(name)
            return tensor

    def _redundant(self, name: str) -> bool:
        """Whether a server reads another tensor in its place."""
        return self.tied and name == _TIED
