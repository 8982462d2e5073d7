"""Losses by name, and what is said of names and settings that there are not."""

from __future__ import annotations

from typing import get_args

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.losses.loss import LossName
from reward_loop.rinker.losses.registry import TOKEN_LOSSES, check_pair_loss, token_loss
from reward_loop.rinker.losses.settings import loss_settings


def test_there_is_every_loss_that_has_a_name() -> None:
    assert {*TOKEN_LOSSES, "bradley_terry"} == set(get_args(LossName))
    assert [token_loss(name).name for name in TOKEN_LOSSES] == list(TOKEN_LOSSES)


def test_an_unknown_loss_is_refused_with_those_that_are_known() -> None:
    for ask in (token_loss, check_pair_loss):
        with pytest.raises(RequestFailedError, match=r"unknown loss_fn='reinforce'.*cross_entropy.*gspo") as caught:
            ask("reinforce")
        assert caught.value.category == "user"


def test_a_loss_of_the_other_kind_of_model_is_refused() -> None:
    with pytest.raises(RequestFailedError, match="'bradley_terry' trains reward models"):
        token_loss("bradley_terry")
    with pytest.raises(RequestFailedError, match=r"'ppo' trains language models.*use bradley_terry"):
        check_pair_loss("ppo")


def settings_of(name: str, **config: float | str) -> dict[str, float]:
    return loss_settings(name, TOKEN_LOSSES[name].settings, config)


def test_defaults_are_those_of_tinker() -> None:
    assert settings_of("ppo") == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert settings_of("cispo") == {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}
    assert settings_of("dro") == {"beta": 0.05}
    assert settings_of("importance_sampling") == {}


def test_the_seeds_eps_sets_both_thresholds() -> None:
    assert settings_of("ppo", eps=0.25) == {"clip_low_threshold": 0.75, "clip_high_threshold": 1.25}
    with pytest.raises(RequestFailedError, match="give the thresholds alone"):
        settings_of("ppo", eps=0.2, clip_low_threshold=0.8)
    with pytest.raises(RequestFailedError, match=r"eps=1.5 must not be above 1"):
        settings_of("gspo", eps=1.5)
    with pytest.raises(RequestFailedError, match=r"'eps'.* is no setting of cispo"):
        settings_of("cispo", eps=0.2)


def test_a_number_as_text_is_one() -> None:
    assert settings_of("dro", beta="0.1") == {"beta": 0.1}


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("ppo", {"clip_low": 0.8}, r"'clip_low'.* is no setting of ppo, which has clip_low_threshold, clip_high_threshold"),
        ("importance_sampling", {"beta": 1.0}, "no setting at all"),
        ("ppo", {"clip_low_threshold": 1.3}, r"clip_low_threshold=1.3 is above clip_high_threshold=1.2"),
        ("dro", {"beta": "much"}, "must be a number; it is 'much'"),
        ("dro", {"beta": float("nan")}, "finite number that is not negative; it is nan"),
        ("dro", {"beta": -1.0}, "not negative; it is -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, config: dict[str, float | str], message: str) -> None:
    with pytest.raises(RequestFailedError, match=message) as caught:
        settings_of(name, **config)
    assert caught.value.category == "user"
