"""A rubric that raises, hangs, lies or writes into its input: it is named, and its siblings and the next step are untouched."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reward_loop.errors import JudgeError, RewardTimeout, RubricError, Unscorable
from reward_loop.functions.isolated import isolated
from reward_loop.outcome import ErrorPolicy
from reward_loop.rubrics import Action, Observation, Rubric, RubricComposer
from tests.rubrics.scoring_rubrics import Awaited, Fixed, Hanging, Raising

ACTION, TURN = Action("It is 42."), Observation(metadata={"history": [1, 2]})


class RaisingLater(Rubric):
    """Raises once the event loop has been round."""

    async def forward(self, action: Any, observation: Any) -> Any:
        await asyncio.sleep(0)
        raise ValueError("no such luck")


@isolated("inline")
class RaisingInline(Raising):
    """Raises on the event loop."""


class Stuck(Rubric):
    """Blocks its thread until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def forward(self, action: Any, observation: Any) -> float:
        self.go.wait(10)
        return 1.0


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    rubric = Stuck()
    yield rubric
    rubric.go.set()


# -- raising -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Raising, RaisingLater, RaisingInline])
async def test_a_rubric_that_raises_is_an_error_that_bears_its_name(kind: type[Rubric]) -> None:
    composer = RubricComposer({"good": Fixed(), "bad": kind(), "later": Awaited()})
    with pytest.raises(RubricError, match="rubric bad: ValueError: no such luck") as raised:
        await composer.evaluate(ACTION, TURN)
    assert raised.value.rubric == "bad"
    assert pickle.loads(pickle.dumps(raised.value)).rubric == "bad"
    gc.collect()  # a coroutine that nobody awaited would warn, and warnings are errors


@pytest.mark.parametrize("kind", [Raising, RaisingLater, RaisingInline])
async def test_the_error_of_a_rubric_keeps_what_it_comes_from(kind: type[Rubric]) -> None:
    with pytest.raises(RubricError) as raised:
        await RubricComposer({"bad": kind()}).evaluate(ACTION, TURN)
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("kind", [Raising, RaisingLater, RaisingInline])
def test_compute_raises_the_same(kind: type[Rubric]) -> None:
    with pytest.raises(RubricError, match="rubric bad: ValueError"):
        RubricComposer({"later": lambda a, o: Awaited()(a, o), "bad": kind()}).compute(ACTION, TURN)
    gc.collect()


@pytest.mark.parametrize("result", [float("nan"), float("inf"), "0.5", [1.0], {"reason": "x"}])
async def test_what_is_no_score_is_an_error_that_bears_the_rubrics_name(result: Any) -> None:
    with pytest.raises(RubricError, match="rubric bad: InvalidReward"):
        await RubricComposer({"bad": Fixed(result)}).evaluate(ACTION, TURN)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()])
@pytest.mark.parametrize("place", ["thread", "inline", "task"])
async def test_a_rubric_cannot_end_more_than_itself(error: BaseException, place: str) -> None:
    async def later(completion: str) -> float:
        raise error

    def now(completion: str) -> float:
        raise error

    rubric = later if place == "task" else isolated("inline")(now) if place == "inline" else now
    with pytest.raises(RubricError, match="rubric bad: "):
        await RubricComposer({"bad": rubric, "good": Awaited()}).evaluate(ACTION, TURN)


async def test_an_error_that_names_no_rubric_gets_the_name_and_stays_of_its_class() -> None:
    async def judge(completion: str) -> float:
        raise JudgeError("no answer")

    with pytest.raises(JudgeError, match="rubric style: no answer"):
        await RubricComposer({"style": judge}).evaluate(ACTION, TURN)


async def test_a_composer_within_a_composer_tells_the_whole_path() -> None:
    inner = RubricComposer({"tone": Raising()})

    async def style(action: Any, observation: Any) -> Any:
        return (await inner.clone().evaluate(action, observation)).reward

    with pytest.raises(RubricError, match=r"rubric style\.tone: ValueError"):
        await RubricComposer({"style": style}).evaluate(ACTION, TURN)


@pytest.mark.parametrize("on_error", ["raise", "mask", {"value": 0.5}])
@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_what_cannot_be_judged_stays_so_under_every_policy(kind: type[Fixed], on_error: Any) -> None:
    with pytest.raises(Unscorable, match="rubric bad"):
        await RubricComposer({"bad": kind(None), "good": Fixed()}, on_error={"bad": on_error}).evaluate(ACTION, TURN)


# -- policies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Raising, RaisingLater, RaisingInline])
async def test_under_mask_there_is_no_reward_and_siblings_keep_their_scores(kind: type[Rubric]) -> None:
    composed = await RubricComposer({"bad": kind(), "good": Fixed(0.5)}, on_error={"bad": "mask"}).evaluate(ACTION, TURN)
    assert composed.reward is None
    assert composed.components == composed.raw == composed.contributions == {"good": 0.5}
    assert list(composed.failures) == ["bad"]
    assert composed.failures["bad"].startswith("ValueError: no such luck")


@pytest.mark.parametrize("on_error", [{"value": -1}, "value:-1", ErrorPolicy("value", -1.0)])
async def test_under_value_a_failure_counts_as_if_the_rubric_had_given_it(on_error: Any) -> None:
    composer = RubricComposer(
        {"bad": Raising(), "good": Fixed(0.5)}, {"bad": 2}, scales={"bad": (-3, 1)}, on_error={"bad": on_error}
    )
    composed = await composer.evaluate(ACTION, TURN)
    assert composed.components == {"bad": 0.5, "good": 0.5}
    assert composed.raw["bad"] == -1.0
    assert composed.reward == 1.5
    assert list(composed.failures) == ["bad"]


async def test_a_step_that_failed_leaves_the_next_one_untouched() -> None:
    rubric = Fixed(float("nan"))
    composer = RubricComposer({"a": rubric, "b": Awaited()})
    with pytest.raises(RubricError):
        await composer.evaluate(ACTION, TURN)
    rubric.score = 0.5
    assert (await composer.evaluate(ACTION, TURN)).components == {"a": 0.5, "b": 1.0}


# -- the first failure ends the others ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Raising, RaisingLater])
async def test_the_first_failure_cancels_the_others_and_awaits_them(kind: type[Rubric]) -> None:
    ended = list[str]()

    class SlowToEnd(Hanging):
        async def forward(self, action: Any, observation: Any) -> float:
            try:
                return await super().forward(action, observation)
            finally:
                await asyncio.sleep(0)
                ended.append("cleaned up")

    hanging = SlowToEnd()
    with pytest.raises(RubricError, match="rubric bad"):
        await RubricComposer({"hanging": hanging, "bad": kind()}).evaluate(ACTION, TURN)
    assert not hanging.began.is_set() or ended == ["cleaned up"]


async def test_synchronous_rubrics_after_a_failed_one_are_not_called() -> None:
    last = Fixed()
    with pytest.raises(RubricError):
        await RubricComposer({"bad": Raising(), "last": last}).evaluate(ACTION, TURN)
    assert last.calls == 0


async def test_an_evaluation_that_is_cancelled_ends_its_rubrics() -> None:
    hanging = Hanging()
    task = asyncio.create_task(RubricComposer({"hanging": hanging, "good": Fixed()}).evaluate(ACTION, TURN))
    await hanging.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.cancelled


async def test_an_evaluation_that_is_cancelled_goes_no_further_in_its_thread() -> None:
    began, go, after = asyncio.Event(), threading.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def block(completion: str) -> float:
        loop.call_soon_threadsafe(began.set)
        go.wait(10)
        return 1.0

    def note(completion: str) -> float:
        after.append(1)
        return 1.0

    composer = RubricComposer({"block": block, "after": note})
    task = asyncio.create_task(composer.evaluate(ACTION, TURN))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    composer.close()
    assert after == []


# -- hanging -----------------------------------------------------------------------------------------------------------


async def test_an_async_rubric_that_hangs_is_named_at_its_time_out() -> None:
    hanging = Hanging()
    composer = RubricComposer({"hanging": hanging}, timeouts_s={"hanging": 0.05})
    with pytest.raises(RubricError, match=r"rubric hanging: it did not end within 0.05 s") as raised:
        await composer.evaluate(ACTION, TURN)
    assert hanging.cancelled
    assert isinstance(raised.value.__cause__, RewardTimeout)


async def test_a_synchronous_rubric_that_hangs_is_named_at_its_time_out(stuck: Stuck) -> None:
    composer = RubricComposer({"good": Fixed(), "stuck": stuck}, timeouts_s={"stuck": 0.05})
    with pytest.raises(RubricError, match=r"rubric stuck: it did not end within 0.05 s"):
        await composer.evaluate(ACTION, TURN)


@pytest.mark.parametrize(("on_error", "reward"), [("mask", None), ({"value": 0.25}, 3.25)])
async def test_siblings_of_one_that_hangs_get_their_scores(stuck: Stuck, on_error: Any, reward: float | None) -> None:
    rubrics = {"before": Fixed(), "stuck": stuck, "after": Fixed(), "judge": Awaited()}
    composer = RubricComposer(rubrics, timeouts_s={"stuck": 0.05}, on_error={"stuck": on_error})
    composed = await composer.evaluate(ACTION, TURN)
    assert composed.reward == reward
    assert {name: composed.components[name] for name in ("before", "after", "judge")} == {
        "before": 1.0,
        "after": 1.0,
        "judge": 1.0,
    }
    assert list(composed.failures) == ["stuck"]


async def test_what_a_hanging_rubric_gives_in_the_end_changes_nothing(stuck: Stuck) -> None:
    composer = RubricComposer({"stuck": stuck, "after": Fixed()}, timeouts_s={"stuck": 0.05}, on_error={"stuck": "mask"})
    first = await composer.evaluate(ACTION, TURN)
    stuck.go.set()
    second = await composer.evaluate(ACTION, TURN)
    assert (first.reward, first.components) == (None, {"after": 1.0})
    assert (second.reward, second.components) == (2.0, {"stuck": 1.0, "after": 1.0})


async def test_a_rubric_that_hangs_in_many_steps_does_not_use_up_the_threads(stuck: Stuck) -> None:
    composer = RubricComposer({"stuck": stuck, "after": Fixed()}, timeouts_s={"stuck": 0.001}, on_error={"stuck": "mask"})
    for _ in range(80):
        assert (await composer.evaluate(ACTION, TURN)).components == {"after": 1.0}


async def test_each_rubric_of_a_thread_has_its_own_time() -> None:
    def slow(completion: str) -> float:
        time.sleep(0.06)
        return 1.0

    composer = RubricComposer({f"r{n}": slow for n in range(3)}, timeouts_s={f"r{n}": 0.15 for n in range(3)})
    assert (await composer.evaluate(ACTION, TURN)).reward == 3.0


async def test_what_a_synchronous_rubric_returns_to_be_awaited_has_a_time_out_too() -> None:
    hanging = Hanging()
    composer = RubricComposer({"hanging": lambda a, o: hanging(a, o)}, timeouts_s={"hanging": 0.05})
    with pytest.raises(RubricError, match="rubric hanging: it did not end"):
        await composer.evaluate(ACTION, TURN)
    assert hanging.cancelled


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_compute_keeps_time_outs(stuck: Stuck, kind: str) -> None:
    composer = RubricComposer({"hanging": stuck if kind == "sync" else Hanging()}, timeouts_s={"hanging": 0.05})
    with pytest.raises(RubricError, match="rubric hanging: it did not end within"):
        composer.compute(ACTION, TURN)
    composer.close()


async def test_a_time_out_that_a_rubric_raises_itself_is_its_own_failure() -> None:
    async def judge(completion: str) -> float:
        raise TimeoutError("the judge is slow")

    with pytest.raises(RubricError, match="TimeoutError: the judge is slow"):
        await RubricComposer({"judge": judge}, timeouts_s={"judge": 10}).evaluate(ACTION, TURN)


# -- writing into the input --------------------------------------------------------------------------------------------


def spoil_history(action: Any, observation: Any) -> float:
    observation.metadata["history"].append(3)
    return 1.0


def spoil_action(action: Any, observation: Any) -> float:
    action.message = "changed"
    return 1.0


def spoil_and_raise(action: Any, observation: Any) -> float:
    observation.done = True
    raise ValueError("after the fact")


async def spoil_later(action: Any, observation: Any) -> float:
    await asyncio.sleep(0)
    observation.metadata.clear()
    return 1.0


@pytest.mark.parametrize(
    "spoil", [spoil_history, spoil_action, spoil_and_raise, spoil_later, isolated("inline")(lambda a, o: spoil_history(a, o))]
)
async def test_a_rubric_that_writes_into_its_input_is_named_and_changes_nothing(
    spoil: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def untouched(action: Any, observation: Any) -> float:
        return float(action == ACTION and observation == Observation(metadata={"history": [1, 2]}))

    action, observation = Action("It is 42."), Observation(metadata={"history": [1, 2]})
    composer = RubricComposer({"before": untouched, "spoil": spoil, "after": untouched}, on_error={"spoil": "mask"})
    for _ in range(2):
        composed = await composer.clone().evaluate(action, observation)
        assert {name: composed.components[name] for name in ("before", "after")} == {"before": 1.0, "after": 1.0}
        assert composed.mutated == ("spoil",)
    assert (action, observation) == (Action("It is 42."), Observation(metadata={"history": [1, 2]}))
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().startswith("rubric=spoil wrote into")
