"""The tensors that were committed to an update directory, read when they are asked for.

Invariant: a file that is missing, damaged or holds less than the record says is found before any tensor is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.update_directory import Record, UpdateDirectory


class CommittedWeights(Mapping[str, torch.Tensor]):
    """The weights of a record, by their names in the checkpoint; each is mapped from its file, not copied."""

    def __init__(self, directory: UpdateDirectory, record: Record) -> None:
        """Open the record's files; raises WeightSyncError, which names the file that is not as the record says."""
        self._record = record
        self._files = {name: _opened(directory, name) for name in sorted(set(record.tensors.values()))}
        for tensor, name in record.tensors.items():
            if tensor not in self._files[name][1]:
                raise _damaged(directory, name, f"it holds no {tensor}")

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[self._record.tensors[name]][0].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._record.tensors)

    def __len__(self) -> int:
        return len(self._record.tensors)


def _opened(directory: UpdateDirectory, name: str) -> tuple[Any, frozenset[str]]:
    """Return the file and the names that it holds; safetensors compares its header with its length."""
    open_file: Any = safe_open  # its stubs know a module of Rust only
    try:
        file = open_file(directory.path / name, framework="pt")
        return file, frozenset(file.keys())
    except (OSError, SafetensorError) as error:
        raise _damaged(directory, name, str(error)) from error


def _damaged(directory: UpdateDirectory, name: str, why: str) -> WeightSyncError:
    return WeightSyncError(
        f"{directory.path / name}, which holds committed weights, can't be used ({why}); "
        f"remove {directory.path} to start with the checkpoint's weights, and sync again"
    )
