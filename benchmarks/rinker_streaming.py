"""What a step of RL costs when sampling, scoring and learning overlap: `python benchmarks/rinker_streaming.py`.

A reward takes as long as sampling. Sampler, judge and learner are stand-ins that take a fixed time, as those on devices of their
own do: what is measured is the loop. Each stage runs alone first, in the same loop with the other two at no cost; then all three,
in the plain loop and in the streaming one, which samples one step ahead. The figure is its step time over the longest stage's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_loop.rinker.backend import SamplerKind, SavedForSampler
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.loops.observer import Observer
from reward_loop.rinker.rendering import StopCondition, TokensWithLogprobs
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.rewards import EpisodeReward
from reward_loop.rinker.rl.train import train
from reward_loop.rinker.rl.types import (
    Action,
    Env,
    EnvGroupBuilder,
    Observation,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
    Trajectory,
)
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import (
    AdamParams,
    Datum,
    ForwardBackwardOutput,
    GetInfoResponse,
    GetServerCapabilitiesResponse,
    ModelData,
    ModelInput,
    ModelSpec,
    OptimStepResponse,
    SampledSequence,
    SampleResponse,
    SaveWeightsResponse,
    TensorData,
)

GROUPS, SIZE, STEPS, TOKENS = 16, 4, 8, 16
SLOTS = 8
"""Episodes that the sampler draws at a time."""
SAMPLE_S, REWARD_S, DATUM_S = 0.160, 0.020, 0.016
"""Seconds for an answer, for a reward (one at a time, so that all take as long as sampling), for a datum of a pass."""


class StandIn:
    """A backend whose sampler and learner take a fixed time on devices of their own."""

    def __init__(self, sample_s: float, datum_s: float) -> None:
        self._sample_s, self._datum_s = sample_s, datum_s
        self._slots, self._device = asyncio.Semaphore(SLOTS), asyncio.Lock()

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        """See `Backend`."""
        return GetServerCapabilitiesResponse([])

    async def create_model(self, spec: ModelSpec, user_metadata: Mapping[str, Any] | None = None, **_: Any) -> str:
        """See `Backend`."""
        return "model"

    async def create_model_from_state(self, path: str, **_: Any) -> str:
        """See `Backend`."""
        raise NotImplementedError

    async def unload_model(self, model_id: str) -> None:
        """See `Backend`."""

    async def get_info(self, model_id: str) -> GetInfoResponse:
        """See `Backend`."""
        return GetInfoResponse(model_id, ModelData("stand-in", "stand-in"), is_lora=False)

    async def forward_backward(
        self,
        model_id: str,
        seq_id: int,
        data: Sequence[Datum],
        loss_fn: str,
        config: LossConfig | None = None,
        *,
        forward_only: bool = False,
    ) -> ForwardBackwardOutput:
        """See `Backend`."""
        async with self._device:
            await asyncio.sleep(self._datum_s * len(data))
        outputs = [{"logprobs": TensorData([-1.0] * one.model_input.length, "float32")} for one in data]
        return ForwardBackwardOutput("logprobs", outputs, {"loss:sum": 0.0})

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        """See `Backend`."""
        return OptimStepResponse({})

    async def save_state(self, model_id: str, seq_id: int, name: str, **_: Any) -> SaveWeightsResponse:
        """See `Backend`."""
        return SaveWeightsResponse(f"tinker://{model_id}/weights/{name}")

    async def load_state(self, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> None:
        """See `Backend`."""

    async def save_weights_for_sampler(
        self, model_id: str, seq_id: int, name: str | None, kind: SamplerKind = "snapshot", **_: Any
    ) -> SavedForSampler:
        """See `Backend`."""
        return SavedForSampler(f"tinker://{model_id}/sampler_weights/{name}", "session")

    async def create_sampling_session(self, *, model_path: str | None = None, base_model: str | None = None) -> str:
        """See `Backend`."""
        return "session"

    async def sampling_session_model(self, session_id: str) -> str:
        """See `Backend`."""
        return "stand-in"

    async def close_sampling_session(self, session_id: str) -> None:
        """See `Backend`."""

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        """See `Backend`."""
        async with self._slots:
            await asyncio.sleep(self._sample_s)
        return SampleResponse([SampledSequence("length", [random.randrange(2)] * TOKENS, [-1.0] * TOKENS)])

    async def close(self) -> None:
        """See `Backend`."""


class Question(Env):
    """Any answer will do; the judge looks at its first token."""

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """See `Env`."""
        return ModelInput.from_ints([1, 2, 3, 4]), list[int]()

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        """See `Env`."""
        return StepResult(0.0, True, ModelInput.empty(), [])


class Group(EnvGroupBuilder):
    """Some questions of one group."""

    async def make_envs(self) -> Sequence[Env]:
        """See `EnvGroupBuilder`."""
        return [Question() for _ in range(SIZE)]


class Questions(RLDataset, RLDatasetBuilder):
    """Batches of them."""

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """See `RLDatasetBuilder`."""
        return self, None

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """See `RLDataset`."""
        return [Group() for _ in range(GROUPS)]

    def __len__(self) -> int:
        """See `Backend`."""
        return STEPS


class Judge:
    """Judges one episode at a time, each for `seconds`."""

    whole_groups = False

    def __init__(self, seconds: float) -> None:
        self._seconds, self._turn = seconds, asyncio.Lock()

    async def score(self, group: str, episodes: Sequence[tuple[Env, Trajectory]]) -> list[EpisodeReward]:
        """See `EpisodeScorer`."""
        async with self._turn:
            await asyncio.sleep(self._seconds)
        first = [trajectory.transitions[0].ac.tokens[0] for _, trajectory in episodes]
        return [EpisodeReward(float(token % 2)) for token in first]


class Times(Observer):
    """Keeps the metrics of each step."""

    def __init__(self) -> None:
        self.metrics: list[Mapping[str, float]] = []

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer`."""
        self.metrics.append(metrics)

    def median(self, name: str) -> float:
        """Return the median over the steps but the first, which fills the pipeline, and the last, which samples nothing ahead."""
        return statistics.median(metrics[name] for metrics in self.metrics[1:-1])


async def step_seconds(folder: Path, sample_s: float, reward_s: float, datum_s: float, **settings: Any) -> float:
    """Train all steps, and return the median seconds of one."""
    base = {"log_path": folder, "model": {"base_model": "stand-in"}, "data": {"builder": "pkg://unused"}}
    sizes = {"batch_size": GROUPS, "group_size": SIZE, "max_tokens": TOKENS, "save_every": 0, "eval_every": 0}
    config = RLConfig.model_validate({**base, **sizes, **settings})
    times = Times()
    service = ServiceClient(backend=StandIn(sample_s, datum_s))
    try:
        await train(config, service, data=Questions(), scorer=Judge(reward_s), observer=times)
    finally:
        await service.close()
    return times.median("time/total")


async def main() -> None:
    """Measure, and print."""
    # More episodes than the sampler draws at a time, so that it never waits for the loop.
    ahead = {"stream": {"num_minibatches": 8}, "max_steps_off_policy": 1, "max_rollouts_in_flight": 2 * SLOTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stages = {
            "sampling": await step_seconds(folder / "1", SAMPLE_S, 0.0, 0.0, **ahead),
            "scoring": await step_seconds(folder / "2", 0.0, REWARD_S, 0.0, **ahead),
            "learning": await step_seconds(folder / "3", 0.0, 0.0, DATUM_S, **ahead),
        }
        plain = await step_seconds(folder / "4", SAMPLE_S, REWARD_S, DATUM_S)
        streamed = await step_seconds(folder / "5", SAMPLE_S, REWARD_S, DATUM_S, **ahead)
    for stage, seconds in stages.items():
        print(f"{stage:8} alone     {seconds * 1000:6.0f} ms a step")
    print(f"all, plain loop    {plain * 1000:6.0f} ms a step: {plain / max(stages.values()):.2f} x the longest stage")
    print(f"all, streaming     {streamed * 1000:6.0f} ms a step: {streamed / max(stages.values()):.2f} x the longest stage")


if __name__ == "__main__":
    logging.getLogger("reward_loop").setLevel(logging.ERROR)
    asyncio.run(main())
