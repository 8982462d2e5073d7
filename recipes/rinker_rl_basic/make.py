"""Makes the model of this recipe: python -m recipes.rinker_rl_basic.make RUN [--seed 0]."""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers.utils import logging

from recipes.tiny_policies import policy

WORDS = (*"0123456789", "=")


def make(run: Path, *, seed: int = 0) -> Path:
    """Write a model of random weights that has 14 tokens, and return its directory."""
    return policy(run / "model", WORDS, seed=seed)


if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    parser = argparse.ArgumentParser(description="Make the model that learns to copy digits.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(make(asked.run, seed=asked.seed))
