"""Makes the policy of this recipe, of random weights: python -m recipes.rinker_cold_start.make RUN [--seed 0]."""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers.utils import logging

from recipes.reward_model.letters import LETTERS
from recipes.tiny_policies import policy


def make(run: Path, *, seed: int = 0) -> Path:
    """Write a model whose tokens are the letters, and return its directory."""
    return policy(run / "policy", LETTERS, seed=seed)


if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    parser = argparse.ArgumentParser(description="Make the policy that learns from a reward model.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(make(asked.run, seed=asked.seed))
