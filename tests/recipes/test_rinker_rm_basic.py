"""recipes/rinker_rm_basic: a reward model from scratch tells the better answer of held-out pairs."""

from __future__ import annotations

from pathlib import Path

from recipes.rinker_rm_basic.make import make
from reward_loop.rinker.rm.config import RMConfig
from reward_loop.rinker.rm.train import train_rm
from reward_loop.training.preferences import read_preferences
from tests.one_thread import one_thread as one_thread
from tests.recipes.rinker_runs import settings, values


def test_it_tells_the_better_answer_of_held_out_pairs(tmp_path: Path) -> None:
    make(tmp_path)
    train_rm(settings(RMConfig, "rinker_rm_basic", tmp_path, "eval_every=0"))
    assert values(tmp_path, "test/accuracy")[-1] > 0.93


def test_as_messages_the_prompts_are_the_same(tmp_path: Path) -> None:
    plain, chat = tmp_path / "plain", tmp_path / "chat"
    make(plain)
    make(chat, chat=True)
    for one, other in zip(read_preferences(plain / "train.jsonl"), read_preferences(chat / "train.jsonl"), strict=True):
        assert list(other.prompt) == [{"role": "user", "content": one.prompt}]
        assert (other.chosen, other.rejected) == (one.chosen, one.rejected)
