"""The rubric as an object: calling it, hooks, what it remembers, what it is made of."""

from __future__ import annotations

import asyncio
import copy
import gc
import math
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from reward_loop.errors import InvalidReward, Unscorable
from reward_loop.rubrics.containers import Gate, Sequential, WeightedSum
from reward_loop.rubrics.rubric import Rubric, is_rubric, scores_below
from reward_loop.rubrics.score import Score, score_of
from tests.rubrics.scoring_rubrics import STEP, Awaited, Fixed, Raising


class Mean(Rubric):
    """The mean of two children, of which one is awaited."""

    def __init__(self, syntax: Rubric, style: Rubric) -> None:
        self.syntax = syntax
        self.style = style

    async def forward(self, action: Any, observation: Any) -> Any:
        return (await self.syntax(action, observation) + await self.style(action, observation)) / 2


class Length(Rubric):
    """The length of the action, after as many turns of the event loop."""

    async def forward(self, action: str, observation: Any) -> float:
        for _ in action:
            await asyncio.sleep(0)
        return float(len(action))


# -- calling it --------------------------------------------------------------------------------------------------------


def test_a_synchronous_rubric_gives_a_number_at_once() -> None:
    assert Fixed(0.5)(*STEP) == 0.5


async def test_a_synchronous_rubric_gives_a_number_at_once_where_a_loop_runs_too_and_it_may_be_awaited() -> None:
    score = Fixed(0.5)(*STEP)
    assert score == 0.5
    assert await score == 0.5


async def test_an_async_rubric_gives_an_awaitable() -> None:
    assert await Awaited(0.5)(*STEP) == 0.5


async def test_an_async_forward_is_called_once() -> None:
    rubric = Awaited(0.5)
    await rubric(*STEP)
    assert rubric.calls == 1


async def test_a_rubric_may_be_run_as_a_task() -> None:
    pending: Any = Awaited(0.5)(*STEP)
    assert await asyncio.create_task(pending) == 0.5


def test_a_subclass_may_forget_to_call_super() -> None:
    assert Mean(Fixed(), Fixed()).get_rubric("style").last_score is None


def test_a_rubric_may_be_a_dataclass() -> None:
    @dataclass(eq=False)
    class Threshold(Rubric):
        least: float = 0.5

        def forward(self, action: Any, observation: Any) -> float:
            return float(len(action) >= self.least)

    assert Threshold(0.2)("abc", None) == 1.0


def test_a_rubric_without_forward_says_what_it_needs() -> None:
    with pytest.raises(NotImplementedError, match="Rubric needs forward"):
        Rubric()(*STEP)


def test_what_forward_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="no such luck"):
        Raising()(*STEP)


# -- what is a score ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [True, 1, 1.0, np.float32(1), np.int64(1), np.array(1.0), Score(1.0)])
def test_a_score_is_any_number(result: Any) -> None:
    score = score_of(result)
    assert type(score) is Score
    assert score == 1.0


@pytest.mark.parametrize("result", [math.nan, math.inf, -math.inf, "1", [1.0], np.array([1.0, 2.0]), object(), 1e39])
def test_what_is_no_finite_number_is_an_error_and_not_0(result: Any) -> None:
    with pytest.raises(InvalidReward):
        Fixed(result)(*STEP)


def test_a_mapping_holds_the_score_and_more() -> None:
    score = score_of({"score": 1, "reason": "fine"})
    assert (score, score.extra) == (1.0, {"reason": "fine"})


def test_a_mapping_without_a_score_is_an_error() -> None:
    with pytest.raises(InvalidReward, match="needs the key"):
        score_of({"reason": "fine"})


@pytest.mark.parametrize("result", [None, {"score": None}])
def test_none_says_that_this_cannot_be_judged(result: Any) -> None:
    with pytest.raises(Unscorable):
        score_of(result)


def test_a_score_pickles_with_its_extra() -> None:
    again = pickle.loads(pickle.dumps(Score(0.5, {"why": "x"})))
    assert (again, again.extra) == (0.5, {"why": "x"})


# -- hooks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_hooks_run_before_and_after_forward_in_the_order_of_their_registration(kind: type[Fixed]) -> None:
    rubric, seen = kind(0.5), list[Any]()
    rubric.register_forward_pre_hook(lambda *call: seen.append(("first", rubric.calls, *call)))

    async def second(*call: Any) -> None:
        seen.append(("second", rubric.calls, *call))

    rubric.register_forward_pre_hook(second)
    rubric.register_forward_hook(lambda *call: seen.append(("third", rubric.calls, *call)))
    await rubric(*STEP)
    assert seen == [("first", 0, rubric, *STEP), ("second", 0, rubric, *STEP), ("third", 1, rubric, *STEP, 0.5)]


@pytest.mark.parametrize(
    "container", [lambda child: Sequential(child), lambda child: Gate(child), lambda child: WeightedSum([child], [1])]
)
@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_hooks_of_a_container_run_before_any_child(container: Callable[[Rubric], Rubric], kind: type[Fixed]) -> None:
    child, calls = kind(), list[int]()

    async def note(*_: Any) -> None:
        calls.append(child.calls)

    rubric = container(child)
    rubric.register_forward_pre_hook(note)
    await rubric(*STEP)
    assert (calls, child.calls) == ([0], 1)


def test_an_after_hook_sees_the_last_score() -> None:
    rubric, seen = Fixed(0.5), list[Any]()
    rubric.register_forward_hook(lambda rubric, *_: seen.append(rubric.last_score))
    rubric(*STEP)
    assert seen == [0.5]


@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_a_hook_that_raises_leaves_no_coroutine_behind(kind: type[Fixed]) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("hook")

    rubric = Sequential(kind())
    rubric.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="hook"):
        await rubric(*STEP)
    gc.collect()  # a coroutine that nobody awaited would warn, and warnings are errors


def test_a_call_that_is_never_awaited_closes_what_it_holds() -> None:
    result: Any = Sequential(WeightedSum([Awaited(), Sequential(Awaited())], [0.5, 0.5]))(*STEP)
    result.close()
    gc.collect()


# -- last_score --------------------------------------------------------------------------------------------------------


async def test_the_last_score_is_none_before_the_first_call_and_then_that_of_the_last() -> None:
    assert Awaited(0.5).last_score is None
    rubric = Awaited(0.5)
    await rubric(*STEP)
    assert rubric.last_score == 0.5
    rubric.score = 0.7
    await rubric(*STEP)
    assert rubric.last_score == 0.7


async def test_concurrent_calls_do_not_see_each_others_scores() -> None:
    length = Length()
    rubric = Sequential(length)

    async def judge(text: str) -> tuple[Any, Any, Any]:
        score = await rubric(text, None)
        await asyncio.sleep(0)
        return score, rubric.last_score, length.last_score

    texts = ["a" * n for n in range(1, 30)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(judge(text)) for text in texts]
    assert [task.result() for task in tasks] == [(len(text),) * 3 for text in texts]


def test_threads_do_not_see_each_others_scores() -> None:
    both = threading.Barrier(2, timeout=10)
    seen: dict[str, Any] = {}

    class Slow(Rubric):
        def forward(self, action: str, observation: Any) -> float:
            both.wait()
            return float(len(action))

    rubric = Slow()

    def judge(text: str) -> None:
        rubric(text, None)
        both.wait()
        seen[text] = rubric.last_score

    threads = [threading.Thread(target=judge, args=[text]) for text in ("a", "bb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"a": 1.0, "bb": 2.0}


async def test_the_scores_of_all_below_can_be_read_by_path() -> None:
    rubric = Sequential(Gate(Awaited(0.5), threshold=0.2), Fixed(0.7))
    await rubric(*STEP)
    assert scores_below(rubric) == {"rubric_0": 0.5, "rubric_0.rubric": 0.5, "rubric_1": 0.7}


# -- what it is made of ------------------------------------------------------------------------------------------------


def test_rubrics_set_as_attributes_are_children_with_paths() -> None:
    inner, other = Mean(Fixed(), Fixed()), Fixed()
    outer = Mean(inner, other)
    assert list(outer.children()) == [inner, other]
    assert [path for path, _ in outer.named_rubrics()] == ["syntax", "syntax.syntax", "syntax.style", "style"]
    assert [path for path, _ in outer.named_rubrics("code")][:2] == ["code.syntax", "code.syntax.syntax"]
    assert list(outer.rubrics()) == [inner, inner.syntax, inner.style, other]
    assert outer.get_rubric("syntax.style") is inner.style


@pytest.mark.parametrize("path", ["", "nothing", "syntax.nothing", "syntax.", "forward"])
def test_an_unknown_path_is_a_key_error_that_names_what_there_is(path: str) -> None:
    with pytest.raises(KeyError, match="style"):
        Mean(Fixed(), Fixed()).get_rubric(path)


def test_a_child_that_is_replaced_takes_the_place_of_the_old_one() -> None:
    rubric, new = Mean(Fixed(), Fixed()), Fixed()
    rubric.style = new
    assert list(rubric.children()) == [rubric.syntax, new]


@pytest.mark.parametrize("value", [None, 1.0])
def test_a_child_that_is_reassigned_to_something_else_is_unregistered(value: Any) -> None:
    rubric: Any = Mean(Fixed(), Fixed())
    rubric.style = value
    assert [name for name, _ in rubric.named_children()] == ["syntax"]
    assert rubric.style is value


def test_a_child_that_is_deleted_is_unregistered() -> None:
    rubric = Mean(Fixed(), Fixed())
    del rubric.style
    assert [name for name, _ in rubric.named_children()] == ["syntax"]
    assert not hasattr(rubric, "style")


def test_a_rubrics_class_is_no_child() -> None:
    rubric: Any = Fixed()
    rubric.kind = Fixed
    assert not is_rubric(Fixed)
    assert list(rubric.children()) == []


def test_reset_reaches_every_rubric_below() -> None:
    class Forgetful(Fixed):
        def reset(self) -> None:
            self.calls = 0

    deep = Forgetful()
    rubric = Sequential(Gate(deep))
    rubric(*STEP)
    rubric.reset()
    assert deep.calls == 0


def test_a_checkpoint_holds_every_rubric_below() -> None:
    gates = Sequential(Gate(Fixed(), threshold=0.3), Mean(Gate(Fixed(), threshold=0.4), Fixed()))
    state = gates.state_dict()
    assert state == {"rubric_0.threshold": 0.3, "rubric_1.syntax.threshold": 0.4}
    others = Sequential(Gate(Fixed()), Mean(Gate(Fixed()), Fixed()))
    others.load_state_dict(state)
    assert others.state_dict() == state


@pytest.mark.parametrize("again", [copy.deepcopy, lambda rubric: pickle.loads(pickle.dumps(rubric))])
def test_a_rubric_can_be_copied_and_pickled_with_its_children(again: Callable[[Any], Any]) -> None:
    rubric = Mean(Fixed(0.1), Gate(Fixed(0.2)))
    twin = again(rubric)
    assert twin.style is not rubric.style
    assert twin.get_rubric("style.rubric").score == 0.2
    twin.style = None
    assert rubric.get_rubric("style") is rubric.style
