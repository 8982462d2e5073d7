"""`rinker export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reward_loop.errors import ConfigError


def export(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Directory of a run (its last checkpoint), or of one checkpoint.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIRECTORY", help="Where the model goes; it must not be there.")],
    adapter: Annotated[
        bool, typer.Option("--adapter", help="Write the adapters alone, as peft loads them, instead of a whole model.")
    ] = False,
    base_model: Annotated[
        str | None, typer.Option("--base-model", metavar="PATH", help="Where the base model lies now, if not where it was.")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that comes with the base model.")
    ] = False,
) -> None:
    """Write a checkpoint as a Hugging Face model, adapters merged in."""
    from reward_loop.rinker.engine.export import export_model

    found = _folder(checkpoint)
    export_model(found, out, merge=not adapter, base_model=base_model, trust_remote_code=trust_remote_code)
    Console(stderr=True).print(f"{found} -> {out}", soft_wrap=True, highlight=False)


def _folder(given: Path) -> Path:
    """Return the folder of a checkpoint: the one that is given, or of a run's last one."""
    from reward_loop.rinker.loops.run_log import CHECKPOINTS, read_checkpoints
    from reward_loop.rinker.loops.weights_folder import weights_folder

    if not given.is_dir():
        raise ConfigError(f"{given} is no directory; give that of a run (its log_path) or of a checkpoint")
    if not (given / CHECKPOINTS).exists():
        return given
    saved = read_checkpoints(given)
    if not saved:
        raise ConfigError(f"the run in {given} has saved nothing yet")
    return weights_folder(given, saved[-1].state_path)
