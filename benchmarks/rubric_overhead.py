"""What a pipeline of rubrics costs beside one function, as ratios within one run.

python benchmarks/rubric_overhead.py [--samples 2000] [--rounds 7]

Through the whole loop (`RewardLoopManager.compute_rm_score` of texts, an episode per sample):
- function:  one trivial function, in threads as the reward loop runs it (the manager `naive`)
- async:     the same as a coroutine function
- pipeline:  five trivial rubrics by the manager `rubric`
- composer:  a `RubricComposer` of them as a reward function, in threads as the function
- await:     the same as a coroutine function: as a pipeline with judges is run
- inline:    that with rubrics that are declared inline

And per call alone: `acompute` of five rubrics against one function in a thread of a crew.
Rounds take turns, so that what else the machine does hits all of them; each ratio is of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import types
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from reward_loop import DataProto, RewardLoopManager, isolated
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.rubrics import Action, Observation, RubricComposer, as_compute_score

TARGET = 5.0


def length(solution_str: str) -> float:
    """Return how near a text is to a hundred characters."""
    return min(len(solution_str) / 100, 1.0)


async def length_later(solution_str: str) -> float:
    """As `length`, async."""
    return min(len(solution_str) / 100, 1.0)


def boxed(completion: str) -> bool:
    """Return whether a text has an answer."""
    return "\\boxed" in completion


def correct(completion: str, ground_truth: str) -> bool:
    """Return whether a text ends with the truth."""
    return completion.endswith(ground_truth)


def polite(completion: str) -> float:
    """Return how polite a text is."""
    return 1.0 if "please" in completion else 0.0


def by_index(completion: str, extra_info: dict[str, Any]) -> float:
    """Return something of the extra info."""
    return float(extra_info["index"] % 2)


RUBRICS = (length, boxed, correct, polite, by_index)


def pipeline() -> dict[str, Any]:
    """Return the configuration of a reward loop that scores by the five rubrics."""
    entries = [{"name": function.__name__, "rubric": f"{__file__}:{function.__name__}"} for function in RUBRICS]
    kwargs = {"pipeline": {"schema_version": "1.0", "episode_end": entries}}
    return {"reward_model": {"reward_manager": "rubric", "reward_kwargs": kwargs}}


def five(wrap: Callable[[Any], Any]) -> RubricComposer:
    """Return a composer of five trivial rubrics."""
    return RubricComposer({function.__name__: wrap(function) for function in RUBRICS})


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as one that runs on the event loop."""
    return isolated("inline")(types.FunctionType(function.__code__, globals(), function.__name__))


def as_awaited(composer: RubricComposer) -> Callable[..., Any]:
    """Return a coroutine function that evaluates the composer."""

    async def compute_score(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> dict[str, Any]:
        observation = Observation(done=True, metadata={"ground_truth": ground_truth, "extra_info": extra_info})
        composed = await composer.clone().evaluate(Action(solution_str), observation)
        return {"score": composed.reward, "reward_components": composed.components, "reward_weights": dict(composed.weights)}

    return compute_score


def batch(samples: int) -> DataProto:
    """Return texts to score."""
    return DataProto.from_dict(
        non_tensors={
            "solution_str": [f"Could you please look: the answer is \\boxed{{{row}}} = {row}" for row in range(samples)],
            "data_source": ["trivial"] * samples,
            "reward_model": [{"ground_truth": str(row)} for row in range(samples)],
            "extra_info": [{"index": row, "split": "test"} for row in range(samples)],
        }
    )


def through_the_loop(samples: int, rounds: int) -> bool:
    """Time whole batches; return whether the target was met."""
    data = batch(samples)
    functions: dict[str, Any] = {
        "function": length,
        "async": length_later,
        "composer": as_compute_score(five(lambda function: function)),
        "await": as_awaited(five(lambda function: function)),
        "inline": as_awaited(five(inline)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*functions, "pipeline")}
    with ExitStack() as stack:
        managers = {
            name: stack.enter_context(RewardLoopManager({}, compute_score=function)) for name, function in functions.items()
        }
        managers["pipeline"] = stack.enter_context(RewardLoopManager(pipeline()))
        for turn in range(rounds + 1):
            for name, manager in managers.items():
                started = time.perf_counter()
                manager.compute_rm_score(data)
                if turn:  # the first one warms up
                    seconds[name].append(time.perf_counter() - started)
    medians = {name: report(name, times, samples) for name, times in seconds.items()}
    ratios = {name: medians[name] / medians["function"] for name in medians}
    awaited = {name: medians[name] / medians["async"] for name in ("await", "inline")}
    print(f"a pipeline of five rubrics costs {ratios['pipeline']:.2f} x one function (target {TARGET})")
    print(f"the composer alone {ratios['composer']:.2f} x; as coroutine functions ", end="")
    print(f"{awaited['await']:.2f} x, and declared inline {awaited['inline']:.2f} x")
    return ratios["pipeline"] < TARGET


async def per_call(calls: int, rounds: int) -> bool:
    """Time single calls; return whether the target was met."""
    crew, composer = ThreadCrew(4), five(lambda function: function)
    on_the_loop = five(inline)
    action = Action("Could you please look: the answer is \\boxed{3} = 3")
    observation = Observation(metadata={"ground_truth": "3", "extra_info": {"index": 3, "split": "test"}})
    contestants: dict[str, Callable[[], Any]] = {
        "function": lambda: crew.call(length, action.message),
        "composer": lambda: composer.acompute(action, observation),
        "inline": lambda: on_the_loop.acompute(action, observation),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, call in contestants.items():
            started = time.perf_counter()
            for _ in range(calls):
                await call()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    medians = {name: report(name, times, calls) for name, times in seconds.items()}
    composer.close()
    crew.close()
    ratio = medians["composer"] / medians["function"]
    print(f"one call of five rubrics costs {ratio:.2f} x one function in a thread (target {TARGET})")
    return ratio < TARGET


def report(name: str, seconds: list[float], samples: int) -> float:
    """Print a contestant's median and return it."""
    median = statistics.median(seconds)
    spread = f"{min(seconds) / samples * 1e6:.1f} to {max(seconds) / samples * 1e6:.1f}"
    print(f"{name:9} {median / samples * 1e6:8.1f} us per sample ({spread})")
    return median


def main() -> int:
    """Run the benchmark; the exit code says whether the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    met = through_the_loop(arguments.samples, arguments.rounds)
    return 0 if met & asyncio.run(per_call(arguments.samples, arguments.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
