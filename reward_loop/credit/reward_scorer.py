"""Scores rollouts with a reward model before their credit is assigned, which is synchronous (seed 001, C.4).

Invariants: what stands in `meta[score_key]` afterwards was said by the model, or is None for what could not be judged, and is
never a stand-in; a rollout that failed does not keep an older score; nothing is written before every request has ended.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, get_args

from reward_loop.credit.assigner import ScoreLevel
from reward_loop.credit.model_input import Rendered, conversation, prepared, step_input
from reward_loop.credit.rollout import RolloutLike, StepLike, check_rollouts
from reward_loop.errors import (
    ConfigError,
    RequestRejected,
    RewardFunctionError,
    RewardLoopError,
    RewardServerError,
    Unscorable,
    WeightSyncError,
)
from reward_loop.outcome import describe, finite
from reward_loop.scoring.isolate import Refusal, isolated
from reward_loop.scoring.reward_client import Input, PoolingType, Score, ScoringRequest, ScoringResponse
from reward_loop.scoring.side_by_side import side_by_side

logger = logging.getLogger(__name__)

OnError: TypeAlias = Literal["raise", "mask"]

_ABOUT_THE_INPUT = {400, 413, 422}
_NAMED_FAILURES = 10


class ScoringClient(Protocol):
    """What a scorer needs of a client: VLLMRewardClient, or anything that answers whole requests."""

    async def score(self, request: ScoringRequest) -> tuple[ScoringResponse, dict[str, Any]]:
        """Score the inputs of a request; RewardServerError where that failed."""
        ...


@dataclass(frozen=True, slots=True)
class _Scored:
    value: float
    version: int | None


_Result: TypeAlias = _Scored | RewardLoopError


def one_number(score: Score) -> float:
    """Return a score that is one number; RewardServerError for one per label."""
    if isinstance(score, list):
        raise RewardServerError(
            f"the model gave {len(score)} values, one per label: choose with to_number, e.g. to_number=lambda score: score[0]"
        )
    return score


class RewardModelScorer:
    """Lets a reward model score rollouts, and writes what it says into their `meta`.

    `meta[score_key]` becomes a number (`score_level` "sequence") or a list of one per step ("step"), and
    `meta[score_key + "_version"]` the version of the weights that said it, in the same form, where the server tells.

    `to_text` makes the model's input, text or token ids, of a rollout, `step_to_text` of a rollout and one of its steps; None
    or Unscorable says that it can't be judged, and it gets None. `batch_size` inputs share a request, `max_in_flight` requests
    run side by side; the deadline is the client's. `normalize` asks for probabilities, not logits; `to_number` reduces the
    values of several labels to one. Whatever else goes wrong with a rollout raises under `on_error` "raise", once all others
    have their scores, and gives it None under "mask".
    """

    def __init__(
        self,
        client: ScoringClient,
        score_key: str = "rm_score",
        score_level: ScoreLevel = "sequence",
        batch_size: int = 64,
        *,
        to_text: Callable[[RolloutLike], Input | None] = conversation,
        step_to_text: Callable[[RolloutLike, StepLike], Input | None] = step_input,
        to_number: Callable[[Score], float] = one_number,
        normalize: bool = True,
        model: str | None = None,
        pooling_type: PoolingType | str | None = None,
        n_labels: int | None = None,
        max_in_flight: int = 8,
        on_error: OnError = "raise",
    ) -> None:
        if score_level not in get_args(ScoreLevel) or on_error not in get_args(OnError):
            raise ConfigError(
                f"score_level={score_level!r} is one of {get_args(ScoreLevel)}, on_error={on_error!r} of {get_args(OnError)}"
            )
        if batch_size < 1 or max_in_flight < 1:
            raise ConfigError(f"batch_size={batch_size} and max_in_flight={max_in_flight} must be at least 1")
        self.score_key = score_key
        self.score_level: ScoreLevel = score_level
        self._client = client
        self._batch_size, self._max_in_flight = batch_size, max_in_flight
        self._to_text, self._step_to_text, self._to_number = to_text, step_to_text, to_number
        named: str | None = getattr(client, "model_name", None) if model is None else model
        self._request = partial(ScoringRequest, named, pooling_type=pooling_type, n_labels=n_labels, normalize=normalize)
        self._on_error: OnError = on_error

    async def score(self, rollouts: Sequence[RolloutLike]) -> None:
        """Score all rollouts and write the scores into their `meta`.

        Raises the server's error of the first rollout that it did not score, with `sample` naming it and all others named in
        the message; DataError for two rollouts with one id.
        """
        check_rollouts(rollouts)
        rendered = [self._rendered(rollout) for rollout in rollouts]
        results = iter(await self._ask([each for of_one in rendered for each in of_one]))
        failed: dict[str, RewardLoopError] = {}
        for rollout, of_one in zip(rollouts, rendered, strict=True):
            mine = [next(results) for _ in of_one]
            error = next((one for one in mine if isinstance(one, RewardLoopError) and not isinstance(one, Unscorable)), None)
            if error is not None:
                failed[str(rollout.id)] = error
            self._write(rollout, mine, keep=error is None or self._on_error == "mask")
        if self._on_error == "raise" and failed:
            raise _failure(failed)
        for name, error in failed.items():
            logger.warning("rollout=%s has no score and is left out: %s", name, error)

    def _rendered(self, rollout: RolloutLike) -> list[Rendered]:
        """Return the model's inputs of a rollout: one, or one for each step."""
        if self.score_level == "sequence":
            return [prepared(partial(self._to_text, rollout))]
        return [prepared(partial(self._step_to_text, rollout, step)) for step in rollout.steps]

    async def _ask(self, rendered: Sequence[Rendered]) -> list[_Result]:
        """Return what the model says of each input, in order; what is no input keeps its error."""
        results: dict[int, _Result] = {at: one for at, one in enumerate(rendered) if isinstance(one, RewardLoopError)}
        texts = {at: one for at, one in enumerate(rendered) if isinstance(one, str)}
        tokens = {at: one for at, one in enumerate(rendered) if isinstance(one, list)}  # a request holds texts or tokens
        batches = [chunk for kind in (texts, tokens) for chunk in _chunks(kind, self._batch_size)]
        asked = [partial(isolated, list(batch.values()), self._send) for batch in batches]
        for batch, answers in zip(batches, await side_by_side(asked, self._max_in_flight), strict=True):
            results.update(zip(batch, answers, strict=True))
        return [results[at] for at in range(len(rendered))]

    async def _send(self, inputs: Sequence[Input]) -> Sequence[_Result] | Refusal:
        try:
            response, info = await self._client.score(self._request(inputs))
        except RequestRejected as error:
            if error.status in _ABOUT_THE_INPUT:
                return Refusal(error)
            raise
        except WeightSyncError as error:  # weights that are too old scored this batch; those of the others may be newer
            return [error] * len(inputs)
        if len(response.scores) != len(inputs):
            raise RewardServerError(
                f"{len(response.scores)} scores came for {len(inputs)} inputs; the client must keep their order"
            )
        version = _version(response, info)
        return [self._read(score, version) for score in response.scores]

    def _read(self, score: Score, version: int | None) -> _Result:
        try:
            return _Scored(finite(self._to_number(score)), version)
        except RewardLoopError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the user's to_number may raise anything; it costs its own rollout only
            return RewardFunctionError(describe(error))

    def _write(self, rollout: RolloutLike, results: Sequence[_Result], *, keep: bool) -> None:
        scores = [one.value if isinstance(one, _Scored) else None for one in results]
        versions = [one.version if isinstance(one, _Scored) else None for one in results]
        of_steps, version_key = self.score_level == "step", f"{self.score_key}_version"
        for key in (self.score_key, version_key):
            rollout.meta.pop(key, None)
        if keep:
            rollout.meta[self.score_key] = scores if of_steps else scores[0]
        if keep and any(version is not None for version in versions):
            rollout.meta[version_key] = versions if of_steps else versions[0]


def _chunks(items: Mapping[int, Input], size: int) -> list[dict[int, Input]]:
    listed = list(items.items())
    return [dict(listed[start : start + size]) for start in range(0, len(listed), size)]


def _version(response: ScoringResponse, info: Mapping[str, Any]) -> int | None:
    """Return the version of the weights that scored, from the response or from the body that the client kept."""
    body = info.get("raw_response")
    for said in (response.metadata, body if isinstance(body, Mapping) else {}):
        if isinstance(version := said.get("version"), int):
            return version
    return None


def _failure(failed: Mapping[str, RewardLoopError]) -> RewardLoopError:
    """Return the first rollout's error, which names the others too."""
    (name, first), *others = failed.items()
    error = copy.copy(first)  # one error may be that of a whole batch
    error.sample = name
    lines = [f"  rollout {other}: {why.message}" for other, why in others[:_NAMED_FAILURES]]
    if len(others) > _NAMED_FAILURES:
        lines.append(f"  and {len(others) - _NAMED_FAILURES} more")
    remedy = "; on_error='mask' leaves such rollouts out"
    error.message = "\n".join([f"{first.message}{remedy}", *([f"{len(others)} more rollouts failed:", *lines] if others else [])])
    return error
