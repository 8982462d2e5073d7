"""Scoring rollouts with a reward model behind HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from reward_loop.credit import RewardModelScorer, Rollout, RolloutLike, Step
from reward_loop.errors import (
    ConfigError,
    DataError,
    InvalidReward,
    RequestRejected,
    RewardFunctionError,
    RewardServerError,
    ServerUnavailable,
    Unscorable,
    WeightSyncError,
)
from reward_loop.scoring.reward_client import Score, ScoringRequest, ScoringResponse
from reward_loop.scoring.vllm_client import VLLMRewardClient
from reward_loop.serving.server import VLLMServer
from tests.credit.rollouts import rollout
from tests.scoring.service import HANG_UP, Answer, Service, lengths, scores, service


def client_of(server: Service, timeout_s: float = 20.0, **settings: Any) -> VLLMRewardClient:
    return VLLMRewardClient(base_url=server.base_url, timeout_s=timeout_s, **settings)


def said(text: str, score: object = None) -> Rollout:
    """A rollout of one step whose input is `text`."""
    return Rollout(text, [Step(0, "", text)], {} if score is None else {"rm_score": score, "rm_score_version": 1})


def written(rollouts: Sequence[RolloutLike], key: str = "rm_score") -> list[Any]:
    return [one.meta.get(key, "missing") for one in rollouts]


def picky(body: dict[str, Any]) -> Answer:
    """Score texts with their lengths, but refuse a request in which one is bad."""
    if any("bad" in text for text in body["input"]):
        return 400, {}, '{"error": {"message": "an input is bad"}}'
    return lengths(body)


async def test_each_rollout_gets_the_score_of_its_own_text() -> None:
    rollouts = [rollout("a", [0.0, 0.0]), rollout("b")]
    async with service(lengths) as server:
        await RewardModelScorer(client_of(server, model_name="rm")).score(rollouts)
        assert server.asked == [{"model": "rm", "input": ["see 0\ndo 0\nsee 1\ndo 1", "see 0\ndo 0"], "normalize": True}]
    assert written(rollouts) == [21.0, 10.0]


async def test_each_step_gets_a_score_where_that_is_asked_for() -> None:
    rollouts = [rollout("a", [0.0, 0.0]), rollout("empty", []), Rollout("b", [Step(0, "x", "")])]
    async with service(lengths) as server:
        await RewardModelScorer(client_of(server), "prm", "step").score(rollouts)
    assert written(rollouts, "prm") == [[10.0, 10.0], [], [1.0]]


async def test_the_version_that_scored_is_written_beside_the_score() -> None:
    one, steps = said("x"), rollout("a", [0.0, 0.0])
    async with service(lambda body: scores(*[0.5] * len(body["input"]), version=0)) as server:
        await RewardModelScorer(client_of(server)).score([one])
        await RewardModelScorer(client_of(server), score_level="step").score([steps])
    assert one.meta == {"rm_score": 0.5, "rm_score_version": 0}  # version 0 is a version
    assert steps.meta["rm_score_version"] == [0, 0]


async def test_a_version_may_be_told_in_the_header() -> None:
    one = said("x")
    status, _, body = scores(0.5)
    async with service((status, {"X-Reward-Model-Version": "4"}, body)) as server:
        await RewardModelScorer(client_of(server)).score([one])
    assert one.meta == {"rm_score": 0.5, "rm_score_version": 4}


async def test_a_version_that_the_server_does_not_tell_is_not_the_last_one() -> None:
    one = said("x", 0.1)
    async with service(lengths) as server:
        await RewardModelScorer(client_of(server)).score([one])
    assert one.meta == {"rm_score": 1.0}


class Counting:
    """A client that answers when `together` requests are there, and counts those that were at once."""

    def __init__(self, together: int) -> None:
        self.meeting = asyncio.Barrier(together)
        self.in_flight, self.most_in_flight, self.sizes = 0, 0, list[int]()

    async def score(self, request: ScoringRequest) -> tuple[ScoringResponse, dict[str, Any]]:
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        self.sizes.append(len(request.inputs))
        async with asyncio.timeout(10), self.meeting:
            self.in_flight -= 1
        return ScoringResponse([float(len(each)) for each in request.inputs]), {}


async def test_batches_travel_side_by_side_but_not_too_many() -> None:
    rollouts = [said("x" * size) for size in range(1, 12)]
    client = Counting(together=3)
    await RewardModelScorer(client, batch_size=2, max_in_flight=3).score(rollouts)
    assert written(rollouts) == list(range(1, 12))
    assert (client.most_in_flight, client.sizes) == (3, [2, 2, 2, 2, 2, 1])


async def test_texts_and_token_ids_travel_in_requests_of_their_own() -> None:
    rollouts = [said("four"), Rollout("ids", [Step(0, [1, 2], [3])]), said("x")]
    async with service(lengths) as server:
        await RewardModelScorer(client_of(server)).score(rollouts)
        assert [asked["input"] for asked in server.asked] == [["four", "x"], [[1, 2, 3]]]
    assert written(rollouts) == [4.0, 3.0, 1.0]


def last_label(score: Score) -> float:
    assert isinstance(score, list)
    label = score[-1]
    assert isinstance(label, float)
    return label


async def test_the_input_and_the_number_are_the_callers_to_choose() -> None:
    one = rollout("a", [0.0])
    settings: dict[str, Any] = {"n_labels": 2, "pooling_type": "mean", "normalize": False, "model": "other"}
    async with service(scores([0.25, 0.75])) as server:
        await RewardModelScorer(client_of(server), to_text=lambda one: f"<{one.id}>", to_number=last_label, **settings).score(
            [one]
        )
        asked = {"model": "other", "input": ["<a>"], "normalize": False, "pooling_type": "MEAN", "n_labels": 2}
        assert server.asked == [asked]
    assert written([one]) == [0.75]


async def test_a_steps_input_may_depend_on_its_rollout() -> None:
    one = rollout("a", [0.0, 0.0])
    async with service(lengths) as server:
        step_to_text = lambda rollout, step: "x" * (len(rollout.steps) + step.index)  # noqa: E731
        await RewardModelScorer(client_of(server), score_level="step", step_to_text=step_to_text).score([one])
    assert written([one]) == [[2.0, 3.0]]


# -- what can't be scored ----------------------------------------------------------------------------------------------------


async def test_a_rollout_that_is_refused_fails_the_call_once_all_others_have_their_scores() -> None:
    rollouts = [said("a"), said("bad", 0.3), said("cc"), said("worse bad"), said("ddd")]
    async with service(picky) as server:
        with pytest.raises(RequestRejected, match=r"sample bad: .*an input is bad.*on_error='mask'") as caught:
            await RewardModelScorer(client_of(server)).score(rollouts)
    assert written(rollouts) == [1.0, "missing", 2.0, "missing", 3.0]  # no score of an earlier call stays
    assert "rm_score_version" not in rollouts[1].meta
    assert caught.value.sample == "bad"
    assert "1 more rollouts failed:\n  rollout worse bad: " in str(caught.value)


async def test_under_mask_a_rollout_that_is_refused_has_no_score(caplog: pytest.LogCaptureFixture) -> None:
    rollouts = [said("a"), said("bad", 0.3), said("cc")]
    async with service(picky) as server:
        with caplog.at_level(logging.WARNING):
            await RewardModelScorer(client_of(server), on_error="mask").score(rollouts)
    assert written(rollouts) == [1.0, None, 2.0]
    assert "rollout=bad has no score and is left out: " in caplog.text


async def test_under_mask_a_step_that_is_refused_has_no_score() -> None:
    one = Rollout("r", [Step(0, "", "a"), Step(1, "", "bad"), Step(2, "", "cc")])
    async with service(picky) as server:
        await RewardModelScorer(client_of(server), score_level="step", on_error="mask").score([one])
    assert written([one]) == [[1.0, None, 2.0]]


async def test_what_nobody_can_judge_is_left_out_under_every_policy() -> None:
    def to_text(one: RolloutLike) -> str | None:
        if one.id == "raises":
            raise Unscorable("no answer in it")
        return None if one.id == "none" else "text"

    rollouts = [rollout("none"), rollout("raises", rm_score=7.0), rollout("fine")]
    async with service(lengths) as server:
        await RewardModelScorer(client_of(server), to_text=to_text).score(rollouts)
    assert written(rollouts) == [None, None, 4.0]


async def test_a_to_text_that_fails_costs_its_own_rollout_only() -> None:
    rollouts = [rollout("a", text="four"), rollout("b")]
    async with service(lengths) as server:
        with pytest.raises(Exception, match="sample b: KeyError: 'text'"):
            await RewardModelScorer(client_of(server), to_text=lambda one: one.meta["text"]).score(rollouts)
    assert written(rollouts) == [4.0, "missing"]


async def test_a_to_number_that_fails_costs_its_own_rollout_only() -> None:
    rollouts = [said("a"), said("bbb")]
    async with service(lengths) as server:
        with pytest.raises(RewardFunctionError, match="sample bbb: KeyError: 3"):
            await RewardModelScorer(client_of(server), to_number=lambda score: {1.0: 0.5}[score]).score(rollouts)  # type: ignore[index]
    assert written(rollouts) == [0.5, "missing"]


async def test_a_server_that_is_gone_fails_every_rollout_by_name() -> None:
    rollouts = [said(f"r{row}") for row in range(13)]
    async with service(HANG_UP) as server:
        with pytest.raises(ServerUnavailable) as caught:
            await RewardModelScorer(client_of(server, timeout_s=0.2)).score(rollouts)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("sample r0: ")
    assert (lines[1], len(lines), lines[-1]) == ("12 more rollouts failed:", 13, "  and 2 more")


@pytest.mark.parametrize("key", ["labels", "count"])
async def test_scores_that_are_none_are_errors(key: str) -> None:
    answer = {"labels": scores([0.1, 0.2, 0.7]), "count": scores(1.0, 2.0)}[key]
    remedy = {"labels": "3 values, one per label: choose with to_number", "count": "was asked for 1 scores"}[key]
    async with service(answer) as server:
        with pytest.raises(RewardServerError, match=f"sample x: .*{remedy}"):
            await RewardModelScorer(client_of(server)).score([said("x")])


async def test_scores_of_weights_that_are_too_old_name_the_rollout() -> None:
    rollouts = [said("x"), said("y")]
    answers = [(200, {"X-Reward-Model-Version": version}, scores(0.5)[2]) for version in ("5", "1")]
    async with service(*answers) as server:
        client = client_of(server, max_staleness=1, on_stale="raise")
        with pytest.raises(WeightSyncError, match="sample y: "):
            await RewardModelScorer(client, batch_size=1, max_in_flight=1).score(rollouts)
    assert written(rollouts) == [0.5, "missing"]


class Client:
    """A client of somebody else's."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers

    async def score(self, request: ScoringRequest) -> tuple[ScoringResponse, dict[str, Any]]:
        return ScoringResponse(self.answers, {"version": 3}), {}


async def test_any_client_that_answers_requests_will_do() -> None:
    one = said("x")
    await RewardModelScorer(Client(0.5)).score([one])
    assert one.meta == {"rm_score": 0.5, "rm_score_version": 3}


async def test_what_a_client_gets_wrong_is_no_score() -> None:
    with pytest.raises(RewardServerError, match="sample x: 2 scores came for 1 inputs"):
        await RewardModelScorer(Client(0.5, 0.6)).score([said("x")])
    with pytest.raises(InvalidReward, match="sample x: a reward must be a finite number; got nan"):
        await RewardModelScorer(Client(float("nan"))).score([said("x")])


async def test_the_clients_own_error_stays_as_it_was() -> None:
    down = RewardServerError("down")

    class Down(Client):
        async def score(self, request: ScoringRequest) -> tuple[ScoringResponse, dict[str, Any]]:
            raise down

    with pytest.raises(RewardServerError, match="sample x: down; on_error='mask'"):
        await RewardModelScorer(Down()).score([said("x")])
    assert (down.message, down.sample) == ("down", None)


async def test_nothing_is_asked_of_nothing() -> None:
    await RewardModelScorer(Client()).score([])


async def test_two_rollouts_of_one_id_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(DataError, match="2 rollouts have this id"):
        await RewardModelScorer(Client()).score([said("x"), said("x")])


@pytest.mark.parametrize("wrong", [{"score_level": "token"}, {"on_error": "zero"}, {"batch_size": 0}, {"max_in_flight": 0}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RewardModelScorer(Client(), **wrong)


@pytest.mark.vllm
async def test_a_real_server_scores_rollouts_as_it_scores_their_texts(reward_server: VLLMServer) -> None:
    client = VLLMRewardClient(base_url=reward_server.url)
    rollouts = [rollout("a", [0.0, 0.0]), said("six"), Rollout("long", [Step(0, "long " * 2000, "end")]), said("seven")]
    await RewardModelScorer(client, on_error="mask").score(rollouts)
    texts = ["see 0\ndo 0\nsee 1\ndo 1", "six", "seven"]
    assert written([*rollouts[:2], rollouts[3]]) == pytest.approx(await client.score_batch(texts), abs=1e-6)
    assert written(rollouts)[2] is None
