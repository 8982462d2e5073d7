"""Makes the conversations and the model of this recipe: python -m recipes.rinker_sl_basic.make RUN.

Questions about the alphabet, asked in several ways; every fifth one is kept apart, and the model must answer it from the others.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from transformers.utils import logging

from recipes.tiny_policies import policy

Row = dict[str, Any]


def conversations() -> Iterator[Row]:
    """Yield every question with its answer."""
    for before, letter, behind in zip(ascii_lowercase, ascii_lowercase[1:], ascii_lowercase[2:], strict=False):
        yield _row(f"what comes after {letter}", f"{behind} comes after {letter}")
        yield _row(f"what follows {letter}", f"{behind} comes after {letter}")
        yield _row(f"after {letter}", f"{behind} comes after {letter}")
        yield _row(f"what comes before {letter}", f"{before} comes before {letter}")
        yield _row(f"what precedes {letter}", f"{before} comes before {letter}")
        yield _row(f"before {letter}", f"{before} comes before {letter}")


def make(run: Path) -> Path:
    """Write `model`, `train.jsonl` and `held_out.jsonl` to a directory."""
    model = policy(run / "model", (*ascii_lowercase, " ", "\n"))  # one token for each character, and random weights
    rows = list(conversations())
    random.Random(0).shuffle(rows)
    _write(run / "train.jsonl", [row for place, row in enumerate(rows) if place % 5])
    _write(run / "held_out.jsonl", rows[::5])
    return model


def _row(question: str, answer: str) -> Row:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def _write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    print(make(Path(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__))))
