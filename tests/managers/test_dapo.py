"""DAPO's overlong penalty, number by number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.data.sample import Sample
from reward_loop.errors import ConfigError, DataError
from reward_loop.managers.dapo import DapoRewardManager
from reward_loop.outcome import Reward
from tests.fakes import config_of, text_batch, tiny_tokenizer, token_batch


def dapo(tokenizer: Any = None, max_resp_len: int | None = 20, **buffer: Any) -> DapoRewardManager:
    settings = {"enable": True, "len": 5, "penalty_factor": 1.0, **buffer}
    config = config_of(reward_model={"reward_kwargs": {"overlong_buffer_cfg": settings, "max_resp_len": max_resp_len}})
    return DapoRewardManager(config, tokenizer, lambda solution_str: 1.0)


def response(tokens: int | None, text: str = "") -> Sample:
    return Sample("fake", text, None, {}, tokens, None, None)


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(1, 0.0), (14, 0.0), (15, 0.0), (16, -0.2), (17, -0.4), (19, -0.8), (20, -1.0), (21, -1.2), (30, -3.0)],
)
def test_a_response_costs_what_it_exceeds_the_buffer_by(tokens: int, penalty: float) -> None:
    reward = dapo().shape(response(tokens), Reward(1.0, {"acc": 1.0}))
    assert reward.value == pytest.approx(1.0 + penalty)
    assert reward.extra == {"acc": 1.0}


def test_the_factor_is_the_penalty_at_the_limit() -> None:
    assert dapo(penalty_factor=0.5).shape(response(20), Reward(1.0)).value == 0.5
    assert dapo(penalty_factor=0.0).shape(response(30), Reward(1.0)).value == 1.0


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 30), st.floats(0, 10))
def test_the_penalty_is_the_formula_of_the_paper(tokens: int, length: int, more: int, factor: float) -> None:
    limit = length + more
    manager = dapo(max_resp_len=limit, len=length, penalty_factor=factor)
    expected = min(-(tokens - (limit - length)) / length * factor, 0.0)
    assert manager.shape(response(tokens), Reward(0.0)).value == pytest.approx(expected)


def test_the_log_says_how_much_and_whether() -> None:
    manager = dapo(log=True)
    assert manager.shape(response(20), Reward(1.0)).extra == {"overlong_reward": -1.0, "overlong": True}
    assert manager.shape(response(15), Reward(1.0)).extra == {"overlong_reward": 0.0, "overlong": False}


def test_of_per_token_rewards_the_last_pays() -> None:
    reward = dapo().shape(response(20), Reward(20.0, {}, (1.0,) * 20))
    assert reward.tokens == (1.0,) * 19 + (0.0,)
    assert reward.value == 19.0


def test_without_the_buffer_nothing_is_paid() -> None:
    assert dapo(enable=False).shape(response(99), Reward(1.0)) == Reward(1.0)
    default = DapoRewardManager(config_of(), None, lambda solution_str: 1.0)
    default.check()
    assert default.shape(response(99), Reward(1.0)) == Reward(1.0)


async def test_padding_is_not_counted() -> None:
    manager = dapo(max_resp_len=4, len=2)
    manager.tokenizer = tiny_tokenizer()
    assert (await manager.run_single(token_batch(["ab"], width=50)))["reward_score"] == 0.5  # a, b and end of sequence
    manager.close()


def test_of_a_text_the_policys_tokenizer_counts_the_tokens() -> None:
    tokens = len(tiny_tokenizer()("What is six times seven?")["input_ids"])
    manager = dapo(tiny_tokenizer(), max_resp_len=tokens, len=1)
    assert manager.shape(response(None, "What is six times seven?"), Reward(1.0)).value == 0.0


async def test_without_a_tokenizer_a_text_cannot_be_counted() -> None:
    manager = dapo()
    with pytest.raises(DataError, match=r"counts response tokens, .* set actor_rollout_ref\.model\.path"):
        await manager.run_single(text_batch(["42"]))
    manager.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_resp_len": None}, r"needs 0 < overlong_buffer_cfg\.len=5 <= max_resp_len=None"),
        ({"max_resp_len": 4}, r"len=5 <= max_resp_len=4"),
        ({"len": 0}, r"0 < overlong_buffer_cfg\.len=0"),
        ({"len": -1}, r"overlong_buffer_cfg\.len: .*\(got -1\)"),
        ({"max_resp_len": 0}, r"max_resp_len: .*\(got 0\)"),
        ({"penalty_factor": -1.0}, r"penalty_factor: .*\(got -1\.0\)"),
        ({"penalty_factor": float("inf")}, r"penalty_factor: .*\(got inf\)"),
        ({"lenght": 5}, r"overlong_buffer_cfg\.lenght: .*; it takes \['max_resp_len', 'overlong_buffer_cfg'\]"),
    ],
)
def test_settings_that_cannot_work_are_config_errors(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"DapoRewardManager: reward_kwargs.*{problem}"):
        dapo(**settings).check()
