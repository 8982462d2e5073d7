"""The files of a checkpoint: tensors, and the manifest that says what they must be to the last byte."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from reward_loop.errors import RequestFailedError

FORMAT = 1
MANIFEST = "checkpoint.json"
_KEYS = frozenset({"format", "files", "spec", "digest", "step", "renderer"})


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors of any device as safetensors."""
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)


def write_manifest(folder: Path, what: Mapping[str, Any]) -> None:
    """Write down what the folder holds, with size and digest of each file with tensors."""
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)} for path in sorted(folder.glob("*.safetensors"))}
    manifest = {"format": FORMAT, **what, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a folder says of itself; RequestFailedError if it is no checkpoint, or one of another format."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError:
        raise RequestFailedError(f"{folder} is no checkpoint: it has no {MANIFEST}", category="user") from None
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(manifest, dict) or not manifest.keys() >= {"format"}:
        raise _damaged(path, "it is no manifest")
    if manifest["format"] != FORMAT:
        raise RequestFailedError(f"{path} has format {manifest['format']!r}, and this version reads {FORMAT}", category="user")
    if missing := sorted(_KEYS - manifest.keys()):
        raise _damaged(path, f"it lacks {', '.join(missing)}")
    return manifest


def read_tensors(folder: Path, name: str, manifest: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors of a file; RequestFailedError ("server"), which names it, if a byte of it is not as it was written."""
    path, wanted = folder / name, manifest["files"][name]
    try:
        size = path.stat().st_size
        if size != wanted["bytes"]:
            raise _damaged(path, f"it has {size} bytes of {wanted['bytes']}")
        if _digest(path) != wanted["sha256"]:
            raise _damaged(path, "its digest is not the one in the manifest")
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, str(error)) from error


def flush(path: Path, *, below: bool = True) -> None:
    """Have a folder, and all below it, on the disk before it counts."""
    for entry in (*(path.rglob("*") if below else ()), path):
        handle = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path, why: str) -> RequestFailedError:
    return RequestFailedError(f"{path} can't be read: {why}; use another checkpoint", category="server")
