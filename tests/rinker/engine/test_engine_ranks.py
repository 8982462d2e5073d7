"""Several engines that train one model: the same result as one, the same refusals, and as many passes on each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import pytest
import torch
from torch import nn

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, Datum, ModelSpec
from tests.rinker.engine.models import datum, sampled

T = TypeVar("T")


class Meeting:
    """Where threads hand each other something: each gets what all have brought, by their number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=60)
        self._brought: list[Any] = [None] * size

    def exchange(self, number: int, mine: T) -> list[T]:
        self._brought[number] = mine
        self._barrier.wait()
        everything = list(self._brought)
        self._barrier.wait()
        return everything


class ThreadRank(Ranks):
    """One of several threads, each with a replica of the model; `shares` says which data is whose."""

    def __init__(self, number: int, meeting: Meeting, shares: Callable[[int, int], bool]) -> None:
        self._number, self._meeting, self._shares = number, meeting, shares
        self.writes = number == 0
        self.passes = 0

    def wrap(self, module: nn.Module) -> nn.Module:
        def count(*_: object) -> None:
            self.passes += 1

        module.register_forward_hook(count)
        return module

    def share(self, sizes: Sequence[int]) -> Sequence[int]:
        return [at for at in range(len(sizes)) if self._shares(self._number, at)]

    def most(self, value: float) -> float:
        return max(self._meeting.exchange(self._number, value))

    def gather(self, part: T) -> Sequence[T]:
        return self._meeting.exchange(self._number, part)

    def sum_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        mine = list(parameters)
        every = self._meeting.exchange(self._number, [None if one.grad is None else one.grad.clone() for one in mine])
        for at, one in enumerate(mine):
            found = [gradients[at] for gradients in every if gradients[at] is not None]
            one.grad = cast("torch.Tensor", sum(cast("list[torch.Tensor]", found))) if found else None


def on_ranks(
    path: str, work: Callable[[Engine], T], shares: Callable[[int, int], bool], **settings: Any
) -> list[tuple[T, ThreadRank]]:
    meeting = Meeting(2)

    def one(number: int) -> tuple[T, ThreadRank]:
        rank = ThreadRank(number, meeting, shares)
        return work(Engine(ModelSpec(path), EngineSettings.model_validate({"device": "cpu", **settings}), rank)), rank

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, range(2)))


SHARES: dict[str, Callable[[int, int], bool]] = {
    "every other": lambda number, at: at % 2 == number,
    "all but one": lambda number, at: (at == 0) == (number == 1),
    "all on one": lambda number, at: number == 0,
}


@pytest.mark.parametrize("shares", SHARES)
def test_their_gradients_and_metrics_are_those_of_one(language_model: str, shares: str) -> None:
    data = sampled(7)

    def work(engine: Engine) -> tuple[Any, Any, dict[str, torch.Tensor]]:
        output = engine.forward_backward(data, "ppo")
        stepped = engine.optim_step(AdamParams(1e-3, grad_clip_norm=1.0))
        return output, stepped, dict(engine.weights())

    alone, stepped, _ = work(Engine(ModelSpec(language_model), EngineSettings(device="cpu")))
    results = on_ranks(language_model, work, SHARES[shares], micro_batch_tokens=24)
    for (output, step, weights), rank in results:
        assert output.metrics == pytest.approx(dict(alone.metrics), abs=1e-5)
        assert step.metrics == pytest.approx(dict(stepped.metrics), rel=1e-4)
        for got, wanted in zip(output.loss_fn_outputs, alone.loss_fn_outputs, strict=True):
            torch.testing.assert_close(got["logprobs"].to_torch(), wanted["logprobs"].to_torch(), atol=1e-5, rtol=0)
        for name, value in weights.items():
            assert torch.equal(value, results[0][0][2][name])
        assert rank.passes == results[0][1].passes


def test_all_refuse_what_one_of_them_finds(language_model: str) -> None:
    huge = datum([2, 3, 4, 5], weights=[3e38] * 3)

    def refusal(data: list[Datum]) -> Callable[[Engine], str]:
        def work(engine: Engine) -> str:
            with pytest.raises(RequestFailedError) as caught:
                engine.forward_backward(data, "cross_entropy")
            assert all(value.grad is None for value in engine.model.parameters())
            return caught.value.message

        return work

    broken = on_ranks(language_model, refusal([datum([2, 3], weights=[1.0]), huge]), SHARES["every other"])
    assert len({message for message, _ in broken}) == 1
    assert "data[1]" in broken[0][0]
    wrong = on_ranks(language_model, refusal([datum([2, 3]), datum([2, 99])]), SHARES["every other"])
    assert len({message for message, _ in wrong}) == 1
    assert "token 99" in wrong[0][0]
