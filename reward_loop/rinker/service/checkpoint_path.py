"""The names of what is saved: `tinker://MODEL/weights/NAME` and `tinker://MODEL/sampler_weights/NAME`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from reward_loop.errors import RequestFailedError

CheckpointFolder = Literal["weights", "sampler_weights"]
"""weights: to train on from; sampler_weights: to sample from."""

_SCHEME = "tinker://"
# A name becomes a folder: no separators, nothing hidden, nothing that leads elsewhere, and short enough for every file system.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=@+-]{0,127}")


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """Where something was saved. Raises RequestFailedError("user") for a name that can't be one."""

    model_id: str
    folder: CheckpointFolder
    name: str

    def __post_init__(self) -> None:
        checked_name(self.model_id, "model id")
        checked_name(self.name, "checkpoint name")

    def __str__(self) -> str:
        return f"{_SCHEME}{self.model_id}/{self.folder}/{self.name}"

    @classmethod
    def parse(cls, path: str) -> CheckpointPath:
        """Read a path. Raises RequestFailedError("user") for what is none."""
        parts = path.removeprefix(_SCHEME).split("/")
        if not path.startswith(_SCHEME) or len(parts) != 3:
            raise RequestFailedError(f"{path!r} is no path of a checkpoint: write tinker://MODEL/weights/NAME", category="user")
        model_id, folder, name = parts
        for known in get_args(CheckpointFolder):
            if folder == known:
                return cls(model_id, known, name)
        raise RequestFailedError(f"{path!r} names the folder {folder!r}; there are weights and sampler_weights", category="user")


def checked_name(name: str, what: str) -> str:
    """Return a name that may become a folder's. Raises RequestFailedError("user")."""
    if not _NAME.fullmatch(name):
        rule = "use up to 128 letters, digits and _ . : = @ + -, beginning with a letter, a digit or _"
        raise RequestFailedError(f"{what} {name!r}: {rule}", category="user")
    return name
