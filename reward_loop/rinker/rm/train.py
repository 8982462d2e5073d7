"""The loop that trains a reward model: preferences, Bradley and Terry's loss, accuracy on held-out pairs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from reward_loop.errors import DataError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.loops.context import most_tokens
from reward_loop.rinker.loops.observer import Observer, RunResult
from reward_loop.rinker.loops.run_log import RunLog
from reward_loop.rinker.loops.service import run_to_the_end, training_client
from reward_loop.rinker.loops.supervised import run_supervised
from reward_loop.rinker.rm.config import PreferencesConfig, RMConfig
from reward_loop.rinker.types import Datum, ForwardBackwardOutput, ModelInput
from reward_loop.training.encoding import EncodedPair, encode_preferences
from reward_loop.training.losses import pairwise_accuracy
from reward_loop.training.preferences import Preference, kind_of, read_preferences

_EVALUATED_AT_A_TIME = 256


def train_rm(config: RMConfig, *, service: ServiceClient | None = None, observer: Observer | None = None) -> RunResult:
    """Run (or go on with) the training in `config.log_path`, from a thread without an event loop.

    A service of the caller's is not closed. Raises ConfigError and DataError before anything is trained.
    """
    if service is not None:
        return asyncio.run(train(config, service, observer=observer))
    return run_to_the_end(config, lambda own: train(config, own, observer=observer))


async def train(config: RMConfig, service: ServiceClient, *, observer: Observer | None = None) -> RunResult:
    """`train_rm` for a running event loop."""
    log = RunLog("rm", config, observer)
    try:
        async with training_client(service, config, "seq_cls", log.checkpoint) as client:
            limit = await most_tokens(service, client, config.data.max_tokens)
            data, test_path = config.data.model_copy(update={"max_tokens": limit}), config.data.test_path
            pairs = _Pairs(
                _read(data, data.path, client),
                [] if test_path is None else _read(data, test_path, client),
                ("bradley_terry", {"center": config.center} if config.center else None),
            )
            return await run_supervised(config, config.batch_size, client, log, pairs)
    finally:
        log.close()


def pair_data(pairs: Iterable[EncodedPair]) -> list[Datum]:
    """Return pairs as the loss "bradley_terry" takes them."""
    return [_datum(pair) for pair in pairs]


def _datum(pair: EncodedPair) -> Datum:
    inputs: Any = {"rejected_tokens": list(pair.rejected), "margin": [pair.margin]}
    return Datum(ModelInput.from_ints(pair.chosen), inputs)


def _read(data: PreferencesConfig, path: str, client: TrainingClient) -> list[Datum]:
    found = read_preferences(
        path, prompt_field=data.prompt_field, chosen_field=data.chosen_field, rejected_field=data.rejected_field
    )
    _check_labels(path, found)
    tokenizer = None if all(map(_is_tokens, found)) else client.get_tokenizer()
    pairs = encode_preferences(found, tokenizer, max_tokens=data.max_tokens, too_long=data.too_long)
    if not pairs:
        raise DataError(f"{path}: every pair is longer than {data.max_tokens} tokens; raise max_tokens, or shorten them")
    return pair_data(pairs)


def _check_labels(path: str, found: Iterable[Preference]) -> None:
    """Refuse pairs about other scores than the only one that the model here has."""
    for index, one in enumerate(found):
        if one.label not in (None, 0):
            raise DataError(
                f"{path}: the pair is about label {one.label}, and the model has one score; leave label out, or train a head of "
                "several with reward_loop.training",
                f"preferences[{index}]",
            )


def _is_tokens(one: Preference) -> bool:
    return kind_of(one.chosen) == "token ids"


@dataclass(frozen=True, slots=True)
class _Pairs:
    data: Sequence[Datum]
    test: Sequence[Datum]
    loss: tuple[str, LossConfig | None]
    samples: bool = False

    def batch(self, rows: Sequence[int]) -> list[Datum]:
        """See `Task`."""
        return [self.data[row] for row in rows]

    def measured(self, data: Sequence[Datum], output: ForwardBackwardOutput) -> Mapping[str, float]:
        """See `Task`."""
        chosen, rejected = _scores([output])
        return {
            "train_loss": output.metrics["loss:sum"] / len(data),
            "train_accuracy": pairwise_accuracy(chosen, rejected),
            "train_reward_difference": float((chosen - rejected).mean()),
        }

    async def evaluated(self, client: TrainingClient) -> Mapping[str, float]:
        """See `Task`."""
        if not self.test:
            return {}
        loss, settings = self.loss
        outputs: list[ForwardBackwardOutput] = []
        for begin in range(0, len(self.test), _EVALUATED_AT_A_TIME):
            outputs.append(await client.forward(self.test[begin : begin + _EVALUATED_AT_A_TIME], loss, settings))  # noqa: PERF401
        chosen, rejected = _scores(outputs)
        return {
            "test/accuracy": pairwise_accuracy(chosen, rejected),
            "test/loss": sum(output.metrics["loss:sum"] for output in outputs) / len(self.test),
            "test/reward_difference": float((chosen - rejected).mean()),
        }


def _scores(outputs: Iterable[ForwardBackwardOutput]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rewards of the chosen and the rejected answers, [pairs] each."""
    both = [(one["scores"].to_numpy(), one["rejected_scores"].to_numpy()) for output in outputs for one in output.loss_fn_outputs]
    chosen = np.array([float(np.ravel(score)[0]) for score, _ in both])
    rejected = np.array([float(np.ravel(score)[0]) for _, score in both])
    return torch.from_numpy(chosen), torch.from_numpy(rejected)
