"""The loop of supervised learning."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.loops.context import most_tokens
from reward_loop.rinker.loops.observer import Observer, RunResult
from reward_loop.rinker.loops.renderer import renderer_of
from reward_loop.rinker.loops.run_log import RunLog
from reward_loop.rinker.loops.service import run_to_the_end, training_client
from reward_loop.rinker.loops.supervised import run_supervised
from reward_loop.rinker.sl.config import ConversationsConfig, SLConfig
from reward_loop.rinker.sl.data import read_conversations, with_mean_weights
from reward_loop.rinker.types import Datum, ForwardBackwardOutput

_EVALUATED_AT_A_TIME = 256


def train_sl(config: SLConfig, *, service: ServiceClient | None = None, observer: Observer | None = None) -> RunResult:
    """Run (or go on with) the training in `config.log_path`, from a thread without an event loop.

    A service of the caller's is not closed. Raises ConfigError and DataError before anything is trained.
    """
    if service is not None:
        return asyncio.run(train(config, service, observer=observer))
    return run_to_the_end(config, lambda own: train(config, own, observer=observer))


async def train(config: SLConfig, service: ServiceClient, *, observer: Observer | None = None) -> RunResult:
    """`train_sl` for a running event loop."""
    log = RunLog("sl", config, observer)
    try:
        async with training_client(service, config, "causal_lm", log.checkpoint) as client:
            # A conversation's last token is said by the one before it, and not read.
            limit = await most_tokens(service, client, config.data.max_tokens, unread=1)
            task = _task(config, config.data.model_copy(update={"max_tokens": limit}), client)
            return await run_supervised(config, config.batch_size, client, log, task)
    finally:
        log.close()


def _task(config: SLConfig, source: ConversationsConfig, client: TrainingClient) -> _Conversations:
    renderer = renderer_of(config.renderer, client.get_tokenizer())
    data = read_conversations(source.path, source, renderer, config.train_on_what)
    path = source.test_path
    test = [] if path is None else read_conversations(path, source, renderer, config.train_on_what)
    return _Conversations(data, test, mean=config.reduction == "mean")


@dataclass(frozen=True, slots=True)
class _Conversations:
    data: Sequence[Datum]
    test: Sequence[Datum]
    mean: bool
    samples: bool = True
    loss: tuple[str, LossConfig | None] = field(default=("cross_entropy", None))

    def batch(self, rows: Sequence[int]) -> list[Datum]:
        """See `Task`."""
        data = [self.data[row] for row in rows]
        return with_mean_weights(data) if self.mean else data

    def measured(self, data: Sequence[Datum], output: ForwardBackwardOutput) -> Mapping[str, float]:
        """See `Task`."""
        return {"train_mean_nll": mean_nll(data, output), "num_loss_tokens": float(sum(_taught(datum) for datum in data))}

    async def evaluated(self, client: TrainingClient) -> Mapping[str, float]:
        """See `Task`."""
        if not self.test:
            return {}
        summed, weight = 0.0, 0.0
        for begin in range(0, len(self.test), _EVALUATED_AT_A_TIME):
            some = self.test[begin : begin + _EVALUATED_AT_A_TIME]
            here = sum(float(datum.loss_fn_inputs["weights"].to_numpy().sum()) for datum in some)
            summed += mean_nll(some, await client.forward(some, "cross_entropy")) * here
            weight += here
        return {"test/nll": summed / weight}


def mean_nll(data: Sequence[Datum], output: ForwardBackwardOutput) -> float:
    """Return the mean of -log p over the tokens that are taught, each by its weight."""
    weights = [datum.loss_fn_inputs["weights"].to_numpy() for datum in data]
    logprobs = [np.asarray(one["logprobs"].to_numpy(), dtype=np.float64) for one in output.loss_fn_outputs]
    summed = sum(float((-own * weight).sum()) for own, weight in zip(logprobs, weights, strict=True))
    return summed / float(sum(weight.sum() for weight in weights))


def _taught(datum: Datum) -> int:
    return int(np.count_nonzero(datum.loss_fn_inputs["weights"].to_numpy()))
