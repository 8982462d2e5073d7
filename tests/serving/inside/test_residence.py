"""What is let through to a model that sleeps, or whose weights were dropped."""

from __future__ import annotations

import pytest

from reward_loop.serving.inside.reply import Refusal
from reward_loop.serving.inside.residence import Residence, computes

COMPUTES = [
    "/score",
    "/v1/score",
    "/classify",
    "/pooling",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/rerank",
]
OTHER = ["/health", "/metrics", "/v1/models", "/wake_up", "/is_sleeping", "/update_weights", "/tokenize", "/version"]


@pytest.mark.parametrize(("path", "needed"), [*((path, True) for path in COMPUTES), *((path, False) for path in OTHER)])
def test_only_what_computes_needs_the_model(path: str, needed: bool) -> None:
    assert computes(path) is needed


def test_everything_passes_while_the_model_is_there() -> None:
    Residence().check()


def test_new_weights_find_their_place_while_all_but_the_weights_sleeps() -> None:
    Residence(asleep=True, dropped=True).check_weights()
    with pytest.raises(Refusal, match="the weights sleep") as caught:
        Residence(asleep=True, weights_asleep=True).check_weights()
    assert (caught.value.status, caught.value.kind) == (503, "asleep")


@pytest.mark.parametrize(
    ("residence", "status", "kind", "words"),
    [
        (Residence(asleep=True), 503, "asleep", "POST /wake_up first"),
        (Residence(asleep=True, dropped=True), 503, "asleep", "POST /wake_up first"),
        (Residence(dropped=True), 409, "weights_dropped", "sync them all before scoring"),
    ],
)
def test_nothing_is_computed_while_it_is_not(residence: Residence, status: int, kind: str, words: str) -> None:
    with pytest.raises(Refusal, match=words) as caught:
        residence.check()
    assert (caught.value.status, caught.value.kind) == (status, kind)
