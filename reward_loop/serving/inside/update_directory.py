"""The directory in which a server keeps the updates of its weights: what is staged, what was committed, and how an update stands.

It is what the process that speaks HTTP and the one that holds the model have in common, and it outlives both: a server that was
killed starts again with the weights that it had committed. It holds up to three files of the model's size: what serves, what
served before, and what is staged.

Invariants: every file is replaced whole, so that a kill leaves what was or what is to be; what the record names exists; the
record names a version only once its weights serve.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from reward_loop.errors import WeightSyncError

VARIABLE = "REWARD_LOOP_UPDATE_DIR"
"""Environment variable that names the directory; without it there is one per start of the server, below the temporary ones."""

State = Literal["prepared", "receiving", "received", "verified", "committed", "refused", "failed"]
"""`refused`: what was asked is wrong; `failed`: it was right, and did not work. Nothing of such an update is kept."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the update of a session stands; `why` where it was refused or failed."""

    session: str
    state: State
    why: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Plain values: `digests` (one text per bucket) once received, `seconds` of the commit."""


@dataclass(frozen=True, slots=True)
class Record:
    """The weights that serve: those of the checkpoint, except for the tensors that a file of the directory holds."""

    version: int = 0
    """0: the checkpoint's, as the server was started, unless a trainer gave another meaning to it."""
    tensors: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of the safetensors file (in the directory) that holds the tensor of this name."""
    updated: bool = False
    """Whether anything was ever committed."""


class UpdateDirectory:
    """The directory at `path`, made when it is first written to."""

    def __init__(self, path: str | Path, *, lasting: bool = True) -> None:
        self.path = Path(path)
        self.lasting = lasting
        """Whether a server that starts again finds it again; else it ends with its server."""

    @classmethod
    def of(cls, instance: str) -> UpdateDirectory:
        """Return the one of this server, by vLLM's `VllmConfig.instance_id`."""
        if named := os.environ.get(VARIABLE):
            return cls(named)
        return cls(Path(tempfile.gettempdir()) / f"reward-loop-updates-{instance}", lasting=False)

    @property
    def staged(self) -> Path:
        """The file that an update is received in."""
        return self.path / "staged.safetensors"

    def status(self, session: str) -> Status | None:
        """Return how the update of this session stands; None before it was heard of."""
        found = self.read("status.json")
        return Status(**found) if found is not None and found["session"] == session else None

    def note(self, status: Status) -> None:
        """Say how an update stands."""
        self.write("status.json", asdict(status))

    def record(self) -> Record:
        """Return what was committed last."""
        found = self.read("record.json")
        return Record(**found) if found is not None else Record()

    def previous(self) -> Record | None:
        """Return what was committed before that; None if there is no way back."""
        found = self.read("previous.json")
        return Record(**found) if found is not None else None

    def commit(self, version: int, names: Iterable[str]) -> None:
        """Keep the staged file, which holds these tensors, as what serves from now on; raises FileNotFoundError without one."""
        before = self.record()
        name = f"version-{version}-{os.urandom(4).hex()}.safetensors"  # a version may come twice, after a revert
        self.staged.replace(self.path / name)
        self.write("previous.json", asdict(before))
        self.write("record.json", asdict(Record(version, {**before.tensors, **dict.fromkeys(names, name)}, updated=True)))

    def revert(self) -> None:
        """Go back to what was committed before; there is no way back twice."""
        before = self.previous()
        if before is None:
            raise WeightSyncError(f"there is no update to take back in {self.path}")
        self.write("record.json", asdict(before))
        (self.path / "previous.json").unlink()

    def forget(self) -> None:
        """Drop every committed tensor: a checkpoint that was loaded by other means serves now, under the last version."""
        before = self.record()
        if before.tensors:
            self.write("record.json", asdict(Record(before.version, updated=before.updated)))
            (self.path / "previous.json").unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a server that was killed has left here: half an update, half a file."""
        for file in (*self.path.glob(".*.json-*"), *self.path.glob("rank-*.json"), self.staged, *self.obsolete()):
            file.unlink(missing_ok=True)

    def obsolete(self) -> list[Path]:
        """Return the files of tensors that neither record names. To remove a large one takes a good part of a second."""
        kept = {name for record in (self.record(), self.previous() or Record()) for name in record.tensors.values()}
        return [file for file in self.path.glob("version-*.safetensors") if file.name not in kept]

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the values of a JSON file, None if there is none; raises WeightSyncError if it is damaged."""
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise WeightSyncError(
                f"{self.path / name} is damaged ({error}); remove {self.path}, and sync the weights again"
            ) from None
        return found

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a JSON file."""
        self.path.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}-")
        with os.fdopen(handle, "w") as file:
            json.dump(value, file)
        Path(temporary).replace(self.path / name)
