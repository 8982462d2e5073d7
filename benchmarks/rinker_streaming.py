"""What a step of RL costs when sampling, scoring and learning overlap: `python benchmarks/rinker_streaming.py [--rounds 3]`.

The learner and the sampler are Ray actors of one core each. Rewards come from the reward loop and take as long as sampling, as a
remote judge's do: once because it judges one answer at a time, once because each verdict takes that long. Each stage runs alone
first, in the same loop without the other two; then all three do, in the plain loop and in the streaming one. The figure is the
latter's step time over the longest stage's: of each round, for machines are faster and slower by the minute, and their median.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from transformers.utils import logging as transformers_logging

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from recipes.tiny_models import judge  # noqa: E402
from reward_loop.rinker.backend import Backend  # noqa: E402
from reward_loop.rinker.clients.background_loop import background_loop  # noqa: E402
from reward_loop.rinker.clients.service_client import ServiceClient  # noqa: E402
from reward_loop.rinker.engine.settings import EngineSettings  # noqa: E402
from reward_loop.rinker.loops.observer import Observer  # noqa: E402
from reward_loop.rinker.rendering import StopCondition, TokensWithLogprobs  # noqa: E402
from reward_loop.rinker.rl.config import RLConfig  # noqa: E402
from reward_loop.rinker.rl.train import train  # noqa: E402
from reward_loop.rinker.rl.types import (  # noqa: E402
    Action,
    Env,
    EnvGroupBuilder,
    Observation,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)
from reward_loop.rinker.runtime.build import training_service  # noqa: E402
from reward_loop.rinker.runtime.settings import RuntimeSettings  # noqa: E402
from reward_loop.rinker.sampler import SampleCall  # noqa: E402
from reward_loop.rinker.types import (  # noqa: E402
    Datum,
    ForwardBackwardOutput,
    ModelInput,
    SampledSequence,
    SampleResponse,
    TensorData,
)

GROUPS, SIZE, STEPS, TOKENS = 16, 4, 8, 32
TARGET = 1.15
WAIT = "REWARD_S"
"""Environment variable with the seconds that `verdict` takes."""


async def verdict(response_ids: Sequence[int]) -> float:
    """Return the reward of an answer, later: what the reward loop is given as a custom reward function."""
    await asyncio.sleep(float(os.environ[WAIT]))
    return float(response_ids[0] % 2)


@dataclass(frozen=True)
class Stages:
    """Which stages are at work; the others cost nothing."""

    sampling: bool = True
    learning: bool = True
    reward_s: float = 0.0
    """Seconds that a verdict takes."""
    verdicts: int = GROUPS * SIZE
    """How many are found at a time."""


class Partly:
    """A backend of which one stage may cost nothing."""

    def __init__(self, backend: Backend, stages: Stages) -> None:
        self._backend, self._stages = backend, stages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        """See `Backend`."""
        if self._stages.sampling:
            return await self._backend.sample(session_id, call)
        parity = 0 if call.params.seed is None else call.params.seed % 2
        return SampleResponse([SampledSequence("length", [4 + parity] * TOKENS, [-1.0] * TOKENS)])

    async def forward_backward(
        self, model_id: str, seq_id: int, data: Sequence[Datum], loss_fn: str, *more: Any, **options: Any
    ) -> ForwardBackwardOutput:
        """See `Backend`."""
        if self._stages.learning:
            return await self._backend.forward_backward(model_id, seq_id, data, loss_fn, *more, **options)
        # One datum of them, since the service counts what a model is asked.
        done = await self._backend.forward_backward(model_id, seq_id, data[:1], loss_fn, *more, **options)
        outputs = [{"logprobs": TensorData([-1.0] * one.model_input.length, "float32")} for one in data]
        return dataclasses.replace(done, loss_fn_outputs=outputs)


class Question(Env):
    """Any answer will do."""

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """See `Env`."""
        return ModelInput.from_ints([4, 5, 6, 7]), list[int]()

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        """See `Env`."""
        return StepResult(0.0, True, ModelInput.empty(), [])

    def reward_columns(self) -> Mapping[str, Any]:
        """See `Env`."""
        return {"reward_model": {"ground_truth": ""}, "data_source": "questions"}


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
        """Return how many steps there are."""
        return STEPS


class Times(Observer):
    """Keeps the metrics of each step."""

    def __init__(self) -> None:
        self.metrics: list[Mapping[str, float]] = []

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer`."""
        self.metrics.append(metrics)

    def median(self, name: str) -> float:
        """Return the median over the steps but the first two, which fill the pipeline, and the last two, which empty it."""
        return statistics.median(metrics[name] for metrics in self.metrics[2:-2])


async def step_seconds(folder: Path, backend: Backend, stages: Stages, **settings: Any) -> float:
    """Train all steps, and return the median seconds of one."""
    os.environ[WAIT] = str(stages.reward_s)
    loop = {
        "custom_reward_function": {"path": __file__, "name": "verdict"},
        "reward_model": {"max_concurrency": stages.verdicts},
    }
    sizes = {"batch_size": GROUPS, "group_size": SIZE, "max_tokens": TOKENS, "save_every": 0, "eval_every": 0}
    base = {"log_path": folder, "model": {"base_model": str(folder.parent / "policy")}, "data": {"builder": "pkg://unused"}}
    config = RLConfig.model_validate({**base, **sizes, "rewards": {"reward_loop": loop}, **settings})
    times = Times()
    service = ServiceClient(backend=cast("Backend", Partly(backend, stages)))  # not closed: the backend is for the next one too
    await train(config, service, data=Questions(), observer=times)
    return times.median("time/total")


async def main(rounds: int) -> int:
    """Measure, and print; the exit code says whether the target was met."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        judge(directory / "policy")
        backend = training_service(directory / "weights", RuntimeSettings(runtime="ray"), EngineSettings(device="cpu"))
        folders = (directory / str(number) for number in itertools.count())

        async def timed(stages: Stages, **settings: Any) -> float:
            return await step_seconds(next(folders), backend, stages, **settings)

        ratios: dict[str, list[float]] = {}
        try:
            for _ in range(rounds):
                for kind, ratio in (await compared(timed)).items():
                    ratios.setdefault(kind, []).append(ratio)
        finally:
            await background_loop().run_async(backend.close())
    medians = {kind: statistics.median(values) for kind, values in ratios.items()}
    for kind, median in medians.items():
        print(f"{kind}: {median:.2f} x the longest stage (median of {rounds}), target at most {TARGET}")
    return 0 if max(medians.values()) <= TARGET else 1


async def compared(timed: Callable[..., Awaitable[float]]) -> dict[str, float]:
    """Time the stages and both loops; return the streaming loop's step time over the longest stage's, by the kind of verdicts."""
    ahead = {"stream": {"num_minibatches": 4}, "max_rollouts_in_flight": GROUPS * SIZE}
    one_ahead, two_ahead = ({**ahead, "max_steps_off_policy": steps} for steps in (1, 2))
    sampling = await timed(Stages(learning=False), **one_ahead)
    learning = await timed(Stages(sampling=False), **one_ahead)
    print(f"sampling alone {sampling * 1000:.0f} ms a step, learning alone {learning * 1000:.0f} ms")
    ratios: dict[str, float] = {}
    for kind, verdicts, reward_s, settings in (
        ("one verdict at a time", 1, sampling / (GROUPS * SIZE), one_ahead),
        ("each verdict as long as sampling", GROUPS * SIZE, sampling, two_ahead),
    ):
        scoring = await timed(Stages(False, False, reward_s, verdicts), **one_ahead)
        plain = await timed(Stages(True, True, reward_s, verdicts))
        streamed = await timed(Stages(True, True, reward_s, verdicts), **settings)
        longest = max(sampling, scoring, learning)
        ratios[kind] = streamed / longest
        loops = f"plain loop {plain * 1000:.0f} ms ({plain / longest:.2f}), streaming loop {streamed * 1000:.0f} ms"
        print(f"  {kind}: scoring alone {scoring * 1000:.0f} ms, {loops} ({ratios[kind]:.2f})", flush=True)
    return ratios


if __name__ == "__main__":
    logging.getLogger("reward_loop").setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    sys.exit(asyncio.run(main(options.parse_args().rounds)))
