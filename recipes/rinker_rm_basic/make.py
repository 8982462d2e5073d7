"""Makes the data and the model of this recipe: python -m recipes.rinker_rm_basic.make RUN [--seed 0] [--chat].

The task and the model are those of recipes/reward_model: a prompt names a letter, and the answer with more of it is better.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformers.utils import logging

from recipes.reward_model.letters import base_model, preferences
from reward_loop.training.preferences import Preference, write_preferences

TRAIN_PAIRS, HELD_OUT_PAIRS = 5400, 600


def make(run: Path, *, seed: int = 0, chat: bool = False) -> Path:
    """Write `model`, `train.jsonl` and `held_out.jsonl` to a directory. `chat`: prompts are messages, as a server gets them."""
    model = base_model(run / "model", seed=seed)
    for name, pairs in zip(("train", "held_out"), preferences(TRAIN_PAIRS, HELD_OUT_PAIRS, seed=seed), strict=True):
        write_preferences(run / f"{name}.jsonl", _as_messages(pairs) if chat else pairs)
    return model


def _as_messages(pairs: Sequence[Preference]) -> list[Preference]:
    return [replace(pair, prompt=[{"role": "user", "content": str(pair.prompt)}]) for pair in pairs]


if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    parser = argparse.ArgumentParser(description="Make preferences about letters, and a reward model of random weights.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chat", action="store_true", help="prompts are chat messages")
    asked = parser.parse_args()
    print(make(asked.run, seed=asked.seed, chat=asked.chat))
