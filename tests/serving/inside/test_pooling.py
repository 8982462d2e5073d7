"""Scores under a pooling that is not the server's own."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from reward_loop.serving.inside.pooling import Pooling, ServerPooling

TOKENS = [5, 9, 5, 7]
SCORES = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
EVERY_TOKEN = ServerPooling("ALL", step_tag_id=5, linear_head=True)


@pytest.mark.parametrize("own", get_args(Pooling))
def test_a_server_always_pools_its_own_way(own: Pooling) -> None:
    server = ServerPooling(own)
    assert server.unmet(own, normalize=True) is None
    assert server.derived(own, SCORES, TOKENS) is SCORES


@pytest.mark.parametrize(
    ("asked", "scores"), [("LAST", [6.0, 7.0]), ("CLS", [0.0, 1.0]), ("MEAN", [3.0, 4.0]), ("STEP", [[0.0, 1.0], [4.0, 5.0]])]
)
def test_scores_of_every_token_give_any_other_pooling(asked: Pooling, scores: list[float]) -> None:
    assert EVERY_TOKEN.unmet(asked, normalize=False) is None
    assert EVERY_TOKEN.derived(asked, SCORES, TOKENS).tolist() == scores


def test_a_text_without_a_step_has_no_scores_but_keeps_its_labels() -> None:
    assert EVERY_TOKEN.derived("STEP", SCORES, [1, 2, 3, 4]).shape == (0, 2)


def test_the_mean_is_refused_where_it_would_not_be_exact() -> None:
    assert "normalize=false" in str(EVERY_TOKEN.unmet("MEAN", normalize=True))
    assert "not known to be linear" in str(ServerPooling("ALL").unmet("MEAN", normalize=False))


def test_steps_are_refused_where_the_tag_is_not_known() -> None:
    assert "--pooler-config.step_tag_id" in str(ServerPooling("ALL").unmet("STEP", normalize=False))


@pytest.mark.parametrize(("own", "asked"), [("LAST", "MEAN"), ("MEAN", "LAST"), ("CLS", "ALL"), ("STEP", "LAST")])
def test_what_can_not_be_derived_is_refused_with_the_setting_to_change(own: Pooling, asked: Pooling) -> None:
    why = str(ServerPooling(own).unmet(asked, normalize=False))
    assert f"reward_model.scoring.pooling={asked}" in why
    assert f"--pooler-config.pooling_type {asked}" in why
