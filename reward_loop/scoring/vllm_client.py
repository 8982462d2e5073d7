"""The client of vLLM reward servers: whole requests, lists of any length, and single samples that travel together.

Invariants: every score is a finite number and belongs to the input it was asked for; a failure is an error, never a score.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, Field, ValidationError
from yarl import URL

from reward_loop.errors import DataError, RewardServerError, WeightSyncError
from reward_loop.scoring.endpoint import api_key, service_url
from reward_loop.scoring.isolate import Refusal, isolated
from reward_loop.scoring.microbatch import MicroBatcher
from reward_loop.scoring.model_version import version_of
from reward_loop.scoring.reward_client import Input, PoolingType, ScoringRequest, ScoringResponse, ScoringResult, pooling
from reward_loop.scoring.score_reply import ScoreReply, parsed
from reward_loop.scoring.side_by_side import side_by_side
from reward_loop.scoring.transport import SHOWN, Call, Reply, encoded, failure, send
from reward_loop.scoring.window import Window
from reward_loop.sync.staleness import OnStale, Staleness
from reward_loop.sync.training_mode import RewardModelTrainingMode

if TYPE_CHECKING:
    from torch import Tensor

_Batchers = dict[tuple[asyncio.AbstractEventLoop, bool, bool], MicroBatcher[Input, ScoringResult]]


class _Runtime(BaseModel):
    version: int = Field(ge=0)


class VLLMRewardClient:
    """Scores texts, or lists of token ids, with the reward model that vLLM serves at an address, directly or behind the router.

    `address` is "host:port", `base_url` has a scheme too; without either it is `host` and `port`. `model_name` may be None where
    one model is served. `timeout_s` bounds one request, all attempts together. Up to `max_batch` inputs share a request,
    a single sample waits up to `max_wait_ms` for others, and `max_in_flight` requests run side by side. `pooling_type` and
    `n_labels` go with every input of `score_batch` and `score_one`. Scores by weights that are more than `max_staleness` versions
    behind the newest that this client knows of are logged, or with `on_stale="raise"` errors. A client may be used in several
    event loops.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8001,
        address: str | None = None,
        base_url: str | None = None,
        model_name: str | None = None,
        timeout_s: float = 120.0,
        max_batch: int = 64,
        max_wait_ms: float = 2.0,
        max_in_flight: int = 8,
        pooling_type: PoolingType | str | None = None,
        n_labels: int | None = None,
        headers: Mapping[str, str] | None = None,
        api_key_env: str | None = None,
        max_staleness: int | None = None,
        on_stale: OnStale = "warn",
    ) -> None:
        here = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        url = service_url(f"http://{here if address is None else address}" if base_url is None else base_url)
        self._base = url.with_path(url.path.rstrip("/").removesuffix("/v1"))
        self.model_name = model_name
        self._timeout_s = timeout_s
        self._window = Window(max_batch, max_wait_ms / 1000.0, max_in_flight)
        self._pooling_type = None if pooling_type is None else pooling(pooling_type)
        self._n_labels = n_labels
        self._headers = dict(headers or {})
        self._api_key_env = api_key_env
        self.staleness = Staleness(max_staleness, on_stale)
        """What this client knows of versions; it may be told of more."""
        self._batchers: _Batchers = {}
        self._closed = False

    @property
    def base_url(self) -> URL:
        """Where the server, or the router, is."""
        return self._base

    @property
    def api_key_env(self) -> str | None:
        """The environment variable that holds the key."""
        return self._api_key_env

    @property
    def headers(self) -> Mapping[str, str]:
        """The further headers of every request."""
        return self._headers

    async def score(self, request: ScoringRequest) -> tuple[ScoringResponse, dict[str, Any]]:
        """Score the inputs of a request, which travel as they are.

        The second value holds the `request`, the `raw_response` and the number of `attempts`. Raises what the server said:
        RequestRejected (4xx), ServerUnavailable, ServerAsleep, RewardServerError for scores that are none; WeightSyncError for
        scores by weights that are too old, if `on_stale` says so.
        """
        reply = await self._post(request)
        answer = parsed(reply, request.inputs)
        if isinstance(answer, Refusal):
            raise answer.error
        info = {"request": request.payload(), "raw_response": json.loads(reply.body), "attempts": reply.attempts}
        version = version_of(reply)
        self.staleness.check(version)
        return ScoringResponse(answer.scores(), {"model": answer.model, "usage": answer.usage, "version": version}), info

    async def score_batch(self, inputs: Sequence[Input], *, normalize: bool = True) -> list[float]:
        """Return one number for each input, in order, in requests of up to `max_batch` side by side.

        Raises what the server said of the first input that it did not score, with `sample` naming its place in the list.
        """
        size = self._window.max_batch
        chunks = [inputs[start : start + size] for start in range(0, len(inputs), size)]

        async def scored(chunk: Sequence[Input]) -> list[ScoringResult | RewardServerError]:
            until = asyncio.get_running_loop().time() + self._timeout_s
            return await isolated(chunk, lambda part: self._ask(part, until, normalize))

        results = await side_by_side([partial(scored, chunk) for chunk in chunks], self._window.max_in_flight)
        return [self._number(result, index) for index, result in enumerate(chain.from_iterable(results))]

    def score_batch_sync(self, inputs: Sequence[Input], *, normalize: bool = True) -> list[float]:
        """Do as `score_batch`, and wait for it; works where an event loop runs too (which stands still meanwhile)."""
        with ThreadPoolExecutor(1, "score_batch_sync") as thread:
            return thread.submit(asyncio.run, self.score_batch(inputs, normalize=normalize)).result()

    async def score_one(self, input: Input, *, normalize: bool = False) -> ScoringResult:  # noqa: A002
        """Score one input, which travels with those that are asked for at the same time; `normalize` for a probability.

        Raises what the server said of this input (another one's fault does not fail it), and WeightSyncError as `score` does.
        """
        if self._closed:
            raise RewardServerError(f"the client of {self._base} was closed; build another one")
        result = await self._batcher(isinstance(input, str), normalize).ask(_checked(input))
        self.staleness.check(result.version)
        return replace(result, index=0)

    def sync_weights(
        self,
        params: Mapping[str, Tensor],
        *,
        timeout_s: float = 600.0,
        version: int | None = None,
        training_mode: RewardModelTrainingMode = RewardModelTrainingMode.FULL,
    ) -> str:
        """Have new weights served by the server at this address, and return their version as text; None: the next one.

        Raises WeightSyncError, naming the tensor and the reason, where the server keeps its old weights. Behind a router, or to
        set more than this, see `create_reward_publisher`.
        """
        # Scoring needs no torch; publishing does.
        from reward_loop.sync.create import create_reward_publisher

        report = create_reward_publisher(self, timeout_s=timeout_s).publish(params, version, training_mode=training_mode)
        self.staleness.told(report.version)
        return str(report.version)

    async def get_model_version(self) -> int:
        """Return the version of the weights that are served."""
        url = self._base / "runtime_version"
        reply = await send(Call(url, self._timeout_s, None, api_key(self._api_key_env, url), self._headers))
        if reply.status != 200:
            raise failure(reply)
        try:
            return _Runtime.model_validate_json(reply.body).version
        except ValidationError:
            raise RewardServerError(f"{url} sent no version: {reply.body[:SHOWN]}") from None

    async def aclose(self) -> None:
        """Take no single samples any more, and wait until those that were asked for in this event loop have their scores."""
        self._closed = True
        for (loop, *_), batcher in self._batchers.items():
            if loop is asyncio.get_running_loop():
                await batcher.drained()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def _batcher(self, texts: bool, normalize: bool) -> MicroBatcher[Input, ScoringResult]:
        key = asyncio.get_running_loop(), texts, normalize
        if key not in self._batchers:
            for other in [other for other in self._batchers if other[0].is_closed()]:
                self._batchers.pop(other, None)
            self._batchers[key] = MicroBatcher(
                lambda part, until: self._ask(part, until, normalize), self._window, self._timeout_s
            )
        return self._batchers[key]

    async def _ask(self, inputs: Sequence[Input], until: float, normalize: bool) -> Sequence[ScoringResult] | Refusal:
        request = ScoringRequest(self.model_name, inputs, self._pooling_type, self._n_labels, normalize)
        reply = await self._post(request, until)
        answer = parsed(reply, inputs)
        if not isinstance(answer, ScoreReply):
            return answer
        version = version_of(reply)
        return [ScoringResult(index, score, version) for index, score in enumerate(answer.scores())]

    async def _post(self, request: ScoringRequest, until: float | None = None) -> Reply:
        url = self._base / "score"
        body = encoded(request.payload(), "VLLMRewardClient")
        return await send(Call(url, self._timeout_s, body, api_key(self._api_key_env, url), self._headers), until)

    def _number(self, result: ScoringResult | RewardServerError, index: int) -> float:
        try:
            if isinstance(result, RewardServerError):
                raise result
            self.staleness.check(result.version)
        except (RewardServerError, WeightSyncError) as error:
            error.sample = f"inputs[{index}]"
            raise
        if isinstance(result.score, list):
            raise RewardServerError(
                f"{self._base} gave {len(result.score)} values for inputs[{index}]; score() returns them, score_batch can't"
            )
        return result.score


def _checked(one: Input) -> Input:
    """Return an input that can be sent; what can't must not take its batch along."""
    try:
        return one if isinstance(one, str) else list(map(operator.index, one))
    except TypeError as error:
        raise DataError(f"an input must be a text or a list of token ids; it is {one!r:.200} ({error})") from None
