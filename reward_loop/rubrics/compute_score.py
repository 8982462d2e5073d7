"""A rubric as a custom reward function of the reward loop."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from reward_loop.functions.isolated import declared_isolation, isolated
from reward_loop.rubrics.adapters import as_rubric, is_async
from reward_loop.rubrics.composed import Composed
from reward_loop.rubrics.composer import RubricComposer
from reward_loop.rubrics.evaluation import Steps, evaluated, must_await, settled
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.rubric import Rubric, scores_below
from reward_loop.rubrics.score import Score


def as_compute_score(rubric: Any) -> Callable[..., Any]:
    """Return the custom reward function of a `RubricComposer`, or of whatever `as_rubric` takes.

    It gives the score, in a dict where the rubric says more: its extra, and as `components` the scores of the rubrics below it.
    It is a coroutine function where the rubric is one, and else keeps what the rubric declares by `isolated`.
    """
    if isinstance(rubric, RubricComposer):
        return _of_composer(rubric)
    judge = as_rubric(rubric)

    def compute_score(solution_str: str, sandbox: Any = None, **more: Any) -> Any:
        return evaluated(_judged(judge, *_step(solution_str, sandbox, more)))

    async def compute_score_async(solution_str: str, sandbox: Any = None, **more: Any) -> Any:
        result = evaluated(_judged(judge, *_step(solution_str, sandbox, more)))
        return await result if must_await(result) else result

    if is_async(judge):
        return _with_inputs(compute_score_async)
    declared = declared_isolation(judge)
    return _with_inputs(compute_score if declared is None else isolated(declared)(compute_score))


def _of_composer(composer: RubricComposer) -> Callable[..., Any]:
    def compute_score(solution_str: str, sandbox: Any = None, **more: Any) -> Any:
        result = composer.clone().begin(*_step(solution_str, sandbox, more))
        return _columns(result) if isinstance(result, Composed) else evaluated(_told(result))

    async def compute_score_async(solution_str: str, sandbox: Any = None, **more: Any) -> Any:
        return _columns(await composer.clone().evaluate(*_step(solution_str, sandbox, more)))

    return _with_inputs(compute_score_async if composer.is_async else compute_score)


def _told(result: Awaitable[Composed]) -> Steps[dict[str, Any]]:
    return _columns((yield from settled(result)))


def _columns(composed: Composed) -> dict[str, Any]:
    said = {f"{name}.{key}": value for name, extra in composed.extra.items() for key, value in extra.items()}
    failures = {"rubric_failures": composed.failures} if composed.failures else {}
    weights = {"reward_components": composed.components, "reward_weights": dict(composed.weights)}
    return {"score": composed.reward, **said, **weights, **failures}


def _with_inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Show the reward loop that the function takes every input by name, each but the text with a default."""
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _INPUTS]
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    taken = [p for p in others if p.kind is not p.VAR_KEYWORD]
    rest = [p for p in others if p.kind is p.VAR_KEYWORD]
    made: Any = function
    made.__signature__ = signature.replace(parameters=[first, *taken, *named, *rest])
    made.__name__ = made.__qualname__ = "compute_score"
    return function


_INPUTS = ("data_source", "ground_truth", "extra_info", "raw_prompt")


def _step(solution_str: str, sandbox: Any, more: Mapping[str, Any]) -> tuple[Action, Observation]:
    metadata = dict(more) if sandbox is None else {**more, "sandbox": sandbox}
    return Action(solution_str), Observation(done=True, metadata=metadata)


def _judged(judge: Rubric, action: Action, observation: Observation) -> Steps[Any]:
    score: Score = yield from settled(judge(action, observation))
    said = dict(score.extra)
    if below := scores_below(judge):
        said["components"] = below
    return {"score": float(score), **said} if said else float(score)
