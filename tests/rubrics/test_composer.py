"""Many rubrics as one reward: the numbers, the phases, the weights."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from typing import Any

import numpy as np
import pytest

from reward_loop.errors import RubricError
from reward_loop.functions.isolated import isolated
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.rubrics import Action, Observation, Rubric, RubricComposer, Score
from reward_loop.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric
from tests.rubrics.scoring_rubrics import Awaited, Fixed, Meeting

ACTION, TURN, END = Action("It is 42."), Observation(), Observation(done=True)


class Won(ExponentialDiscountingTrajectoryRubric):
    """Gives the number of its steps, a tenth each."""

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return len(trajectory) / 10


# -- the sum -----------------------------------------------------------------------------------------------------------


async def test_the_reward_is_the_weighted_sum_and_is_not_divided_by_the_weights() -> None:
    composer = RubricComposer(
        {"accuracy": Fixed(0.5), "style": Awaited(0.4), "safety": Fixed(1.0)}, {"style": 0.5, "safety": 2.0}
    )
    composed = await composer.evaluate(ACTION, TURN)
    assert composed.reward == pytest.approx(0.5 + 0.5 * 0.4 + 2.0)
    assert composed.components == {"accuracy": 0.5, "style": 0.4, "safety": 1.0}
    assert composed.contributions == {"accuracy": 0.5, "style": 0.2, "safety": 2.0}
    assert composer.last is composed


def test_a_weight_may_be_negative_and_large() -> None:
    composer = RubricComposer({"toxicity": Fixed(0.8), "task": Fixed(1.0)}, {"toxicity": -10.0})
    assert composer.compute(ACTION, TURN) == (-7.0, {"toxicity": 0.8, "task": 1.0})


def test_a_mean_divides_by_the_sum_of_absolute_weights() -> None:
    composer = RubricComposer({"toxicity": Fixed(0.8), "task": Fixed(1.0)}, {"toxicity": -3.0}, aggregate="mean")
    assert composer.compute(ACTION, TURN)[0] == pytest.approx((-2.4 + 1.0) / 4)
    assert sum(composer.last_contributions.values()) == pytest.approx(-0.35)
    assert RubricComposer({"a": Fixed()}, {"a": 0}, aggregate="mean").compute(ACTION, TURN)[0] == 0.0


def test_nothing_is_lost_to_rounding() -> None:
    names = [f"r{n}" for n in range(10)]
    composer = RubricComposer({name: Fixed(1.0) for name in names}, dict.fromkeys(names, 0.1))
    assert composer.compute(ACTION, TURN)[0] == 1.0


async def test_the_order_is_that_of_the_declaration_whoever_ends_first() -> None:
    class Turns(Rubric):
        def __init__(self, turns: int) -> None:
            self.turns = turns

        async def forward(self, action: Any, observation: Any) -> float:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            return 0.5

    composer = RubricComposer({"slow": Turns(9), "sync": Fixed(), "fast": Turns(0), "middle": Turns(4)})
    composed = await composer.evaluate(ACTION, TURN)
    for by_rubric in (composed.components, composed.raw, composed.contributions):
        assert list(by_rubric) == ["slow", "sync", "fast", "middle"]


async def test_compute_and_acompute_give_the_same() -> None:
    composer = RubricComposer({"a": Fixed(0.3), "b": Fixed(0.4)}, {"b": 3})
    assert composer.compute(ACTION, TURN) == await composer.acompute(ACTION, TURN)


@pytest.mark.parametrize("value", [True, 1, np.float32(1.0), {"score": 1, "why": "because"}])
def test_a_score_is_what_a_rubrics_score_may_be(value: Any) -> None:
    composer = RubricComposer({"a": Fixed(value)})
    assert composer.compute(ACTION, TURN)[0] == 1.0
    assert composer.last is not None
    assert composer.last.extra == ({"a": {"why": "because"}} if isinstance(value, dict) else {})


def test_the_scores_below_a_rubric_are_in_its_extra() -> None:
    class Outer(Rubric):
        def __init__(self) -> None:
            self.inner = Fixed(0.3)

        def forward(self, action: Any, observation: Any) -> Any:
            return Score(self.inner(action, observation), {"why": "because"})

    composer = RubricComposer({"outer": Outer()})
    composer.compute(ACTION, TURN)
    assert composer.last is not None
    assert composer.last.extra == {"outer": {"why": "because", "components": {"inner": 0.3}}}


async def test_the_last_score_of_a_rubric_is_that_of_the_composers_last_evaluation() -> None:
    rubric = Fixed(0.1)
    rubric(ACTION, TURN)
    rubric.score = 0.2
    await RubricComposer({"a": rubric}).evaluate(ACTION, TURN)
    assert rubric.last_score == 0.2


def test_it_takes_whatever_is_a_rubric() -> None:
    composer = RubricComposer({"by_name": lambda completion: len(completion) / 10, "by_place": lambda a, o: 0.5})
    assert composer.compute(ACTION, TURN)[1] == {"by_name": 0.9, "by_place": 0.5}
    assert all(isinstance(rubric, Rubric) for rubric in composer.rubrics.values())


def test_no_rubrics_make_a_reward_of_0() -> None:
    assert RubricComposer({}).compute(ACTION, TURN) == (0.0, {})


# -- normalisation -----------------------------------------------------------------------------------------------------


def test_a_score_is_placed_between_0_and_1_on_its_declared_scale() -> None:
    composer = RubricComposer({"a": Fixed(0.3), "b": Fixed(0.3)}, scales={"a": (-1, 1)})
    assert composer.compute(ACTION, TURN)[1] == {"a": pytest.approx(0.65), "b": 0.3}
    assert composer.last_raw == {"a": 0.3, "b": 0.3}


def test_a_scale_is_taken_from_the_composer_then_the_config_then_the_rubric() -> None:
    class Config:
        scale = (0, 2)

    class Scaled(Fixed):
        scale = (0.0, 4.0)

    class Configured(Scaled):
        config = Config()

    class ByMapping(Scaled):
        config = {"scale": [0, 5]}  # noqa: RUF012 - what users write

    rubrics = {"said": Configured(), "config": Configured(), "mapping": ByMapping(), "rubric": Scaled(), "none": Fixed()}
    composer = RubricComposer(rubrics, scales={"said": [0, 10]})  # type: ignore[dict-item]
    assert composer.compute(ACTION, TURN)[1] == {"said": 0.1, "config": 0.5, "mapping": 0.2, "rubric": 0.25, "none": 1.0}


@pytest.mark.parametrize(("score", "placed"), [(1.5, 1.0), (-0.5, 0.0)])
def test_a_score_off_its_scale_is_clipped_with_one_warning(score: float, placed: float, caplog: pytest.LogCaptureFixture) -> None:
    composer = RubricComposer({"a": Fixed(score)})
    clone = composer.clone()
    for one in (composer, composer, clone):
        assert one.compute(ACTION, TURN)[1] == {"a": placed}
    [record] = caplog.records
    assert "rubric=a" in record.message
    assert "declare its scale" in record.message


def test_in_strict_mode_an_undeclared_score_off_the_scale_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    composer = RubricComposer({"a": Fixed(-0.5), "b": Fixed(3)}, scales={"b": (0, 2)}, strict=True, on_error={"a": "mask"})
    assert composer.compute(ACTION, TURN) == (None, {"b": 1.0})
    assert composer.last is not None
    assert "declares no scale and gave -0.5" in composer.last.failures["a"]
    assert [record.message[:8] for record in caplog.records] == ["rubric=b"]
    with pytest.raises(RubricError, match=r"rubric a: it declares no scale.*\[-0.5, 1\]"):
        RubricComposer({"a": Fixed(-0.5)}, strict=True).compute(ACTION, TURN)


def test_without_normalisation_scores_stay_as_they_are() -> None:
    composer = RubricComposer({"a": Fixed(7), "b": Fixed(-3)}, normalize=False, scales={"a": (0, 10)})
    assert composer.compute(ACTION, TURN) == (4.0, {"a": 7.0, "b": -3.0})


def test_a_running_scale_is_only_used_where_it_is_asked_for_and_no_scale_is_declared() -> None:
    rubrics = {"a": Fixed(5), "b": Fixed(5)}
    composer = RubricComposer(rubrics, normalize="running", scales={"b": (0, 10)})
    placed = []
    for score in (5, 9, 7, 1):
        rubrics["a"].score = score
        placed.append(composer.compute(ACTION, TURN)[1])
    assert [scores["a"] for scores in placed] == [0.0, 1.0, 0.5, 0.0]
    assert [scores["b"] for scores in placed] == [0.5] * 4


def test_a_running_scale_is_part_of_a_checkpoint_and_shared_by_clones() -> None:
    rubric = Fixed(0)
    composer = RubricComposer({"a": rubric}, normalize="running")
    composer.compute(ACTION, TURN)
    rubric.score = 10
    composer.clone().compute(ACTION, TURN)
    assert composer.state_dict()["running"] == {"a": [0.0, 10.0]}
    rubric.score = 5
    other = RubricComposer({"a": rubric}, normalize="running")
    other.load_state_dict(composer.state_dict())
    assert other.compute(ACTION, TURN)[1] == {"a": 0.5}


@pytest.mark.parametrize("scale", [(1, 1), (1, 0), (0, math.inf), (0,), "01", (False, True), None, 3])
def test_a_scale_that_is_none_is_refused_when_the_composer_is_made(scale: Any) -> None:
    with pytest.raises(ValueError, match="the scale of rubric a is"):
        RubricComposer({"a": Fixed()}, scales={"a": scale})


# -- weights -----------------------------------------------------------------------------------------------------------


def test_a_missing_weight_is_1() -> None:
    assert RubricComposer({"a": Fixed(), "b": Fixed()}, {"a": 2}).weights == {"a": 2.0, "b": 1.0}


def test_a_weight_of_an_unknown_rubric_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="there is no rubric b; there are a"):
        RubricComposer({"a": Fixed()}, {"b": 1.0})
    with pytest.raises(KeyError, match="there is no rubric b"):
        RubricComposer({"a": Fixed()}).update_weights({"b": 1.0})


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, True, "1", None, [1]])
def test_a_weight_that_is_no_finite_number_is_refused_and_changes_nothing(weight: Any) -> None:
    expected = ValueError if isinstance(weight, float) else TypeError
    with pytest.raises(expected, match="the weight of rubric a"):
        RubricComposer({"a": Fixed()}, {"a": weight})
    composer = RubricComposer({"a": Fixed(), "b": Fixed()})
    with pytest.raises(expected):
        composer.update_weights({"b": 5.0, "a": weight})
    assert composer.weights == {"a": 1.0, "b": 1.0}


def test_weights_are_updated_in_part_and_at_once() -> None:
    composer = RubricComposer({"a": Fixed(), "b": Fixed()}, {"b": 2})
    assert composer.update_weights({"a": 0.5}) == ({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 2.0})
    assert composer.compute(ACTION, TURN)[0] == 2.5


def test_the_weights_that_are_given_out_are_a_copy() -> None:
    composer = RubricComposer({"a": Fixed()})
    composer.weights["a"] = 5.0
    composer.enabled["a"] = False
    assert (composer.weights, composer.enabled) == ({"a": 1.0}, {"a": True})


async def test_an_evaluation_keeps_the_weights_of_its_start() -> None:
    release = asyncio.Event()

    async def judge(completion: str) -> float:
        await release.wait()
        return 1.0

    composer = RubricComposer({"judge": judge})
    pending = asyncio.create_task(composer.evaluate(ACTION, TURN))
    await asyncio.sleep(0)
    composer.update_weights({"judge": 100})
    release.set()
    assert (await pending).reward == 1.0


def test_a_rubric_of_weight_0_is_a_metric() -> None:
    rubric = Fixed(0.7)
    composer = RubricComposer({"metric": rubric}, {"metric": 0})
    assert composer.compute(ACTION, TURN) == (0.0, {"metric": 0.7})
    assert rubric.calls == 1


def test_rubrics_of_weight_0_may_be_skipped() -> None:
    rubric = Fixed(0.7)
    composer = RubricComposer({"judge": rubric, "b": Fixed()}, {"judge": 0}, skip_zero_weight=True)
    assert composer.compute(ACTION, TURN) == (1.0, {"b": 1.0})
    assert rubric.calls == 0
    composer.update_weights({"judge": 1})
    assert composer.compute(ACTION, TURN)[1] == {"judge": 0.7, "b": 1.0}


def test_a_rubric_may_be_disabled_and_enabled() -> None:
    rubric = Fixed(0.7)
    composer = RubricComposer({"judge": rubric, "b": Fixed()}, enabled={"judge": False})
    assert composer.compute(ACTION, TURN) == (1.0, {"b": 1.0})
    assert rubric.calls == 0
    assert composer.set_enabled({"judge": True}) == ({"judge": False, "b": True}, {"judge": True, "b": True})
    assert composer.compute(ACTION, TURN)[1] == {"judge": 0.7, "b": 1.0}
    with pytest.raises(TypeError, match="true or false"):
        composer.set_enabled({"b": 0})  # type: ignore[dict-item]
    with pytest.raises(KeyError):
        composer.set_enabled({"c": True})


@pytest.mark.parametrize("off", [{"weights": {"won": 0}, "skip_zero_weight": True}, {"enabled": {"won": False}}])
def test_a_rubric_that_follows_the_episode_sees_every_step_all_the_same(off: dict[str, Any]) -> None:
    composer = RubricComposer({"won": Won()}, **off)
    assert composer.compute(ACTION, TURN) == (0.0, {})
    assert composer.compute(ACTION, TURN) == (0.0, {})
    composer.update_weights({"won": 1})
    composer.set_enabled({"won": True})
    assert composer.compute(ACTION, END)[1] == {"won": 0.3}


def test_a_rubric_that_only_follows_may_fail_without_the_sample() -> None:
    class Broken(Won):
        def score_trajectory(self, trajectory: Any) -> float:
            raise ValueError("broken")

    composer = RubricComposer({"won": Broken(), "b": Fixed()}, enabled={"won": False})
    assert composer.compute(ACTION, END) == (1.0, {"b": 1.0})
    assert composer.last is not None
    assert "ValueError: broken" in composer.last.failures["won"]


# -- phases ------------------------------------------------------------------------------------------------------------


def test_rubrics_of_the_episodes_end_are_absent_before_it() -> None:
    composer = RubricComposer({"turn": Fixed(0.1), "end": Fixed(0.5)}, phases={"end": "episode_end"})
    assert composer.compute(ACTION, TURN) == (0.1, {"turn": 0.1})
    assert composer.compute(ACTION, END) == (0.6, {"turn": 0.1, "end": 0.5})


def test_an_episode_that_ends_with_its_first_step_runs_both_phases() -> None:
    composer = RubricComposer({"turn": Fixed(0.1), "end": Fixed(0.5)}, phases={"end": "episode_end"})
    assert list(composer.compute(ACTION, END)[1]) == ["turn", "end"]


async def test_a_step_after_the_last_is_an_error_until_reset() -> None:
    composer = RubricComposer({"a": Fixed()})
    composer.compute(ACTION, END)
    with pytest.raises(RubricError, match="the episode is over"):
        composer.compute(ACTION, TURN)
    with pytest.raises(RubricError, match="the episode is over"):
        await composer.acompute(ACTION, END)
    composer.reset()
    assert composer.compute(ACTION, TURN)[0] == 1.0


def test_a_trajectory_rubric_of_the_episodes_end_sees_all_steps() -> None:
    composer = RubricComposer({"won": Won()}, phases={"won": "episode_end"})
    assert composer.compute(ACTION, TURN) == (0.0, {})
    assert composer.compute(ACTION, END) == (0.2, {"won": 0.2})


def test_reset_resets_every_rubric() -> None:
    composer = RubricComposer({"won": Won()})
    composer.compute(ACTION, TURN)
    composer.reset()
    assert composer.compute(ACTION, END)[1] == {"won": 0.1}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"phases": {"a": "sometimes"}}, ValueError, "per_turn or episode_end"),
        ({"phases": {"b": "per_turn"}}, KeyError, "no rubric b"),
        ({"scales": {"b": (0, 1)}}, KeyError, "no rubric b"),
        ({"enabled": {"b": True}}, KeyError, "no rubric b"),
        ({"on_error": {"b": "mask"}}, KeyError, "no rubric b"),
        ({"timeouts_s": {"b": 1}}, KeyError, "no rubric b"),
        ({"timeouts_s": {"a": 0}}, ValueError, "seconds above 0"),
        ({"timeouts_s": {"a": True}}, ValueError, "seconds above 0"),
        ({"timeouts_s": {"a": math.inf}}, ValueError, "seconds above 0"),
        ({"on_error": {"a": "ignore"}}, ValueError, "on_error of rubric a"),
        ({"on_error": {"a": "value:x"}}, ValueError, "on_error of rubric a"),
        ({"on_error": {"a": {"value": math.nan}}}, ValueError, "on_error of rubric a"),
        ({"on_error": {"a": {"value": True}}}, ValueError, "on_error of rubric a"),
        ({"on_error": {"a": {"value": 2}}, "strict": True}, ValueError, "declare the rubric's scale"),
        ({"aggregate": "max"}, ValueError, "sum or mean"),
        ({"normalize": "always"}, ValueError, "running"),
        ({"max_concurrency": 0}, ValueError, "1 or more"),
    ],
)
def test_what_is_wrong_with_a_composer_is_said_when_it_is_made(settings: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RubricComposer({"a": Fixed()}, **settings)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "a" * 65, 3])
def test_a_name_is_what_experiment_trackers_take(name: Any) -> None:
    with pytest.raises(ValueError, match="can't be called"):
        RubricComposer({name: Fixed()})


def test_a_name_may_have_64_characters_with_dots_and_dashes() -> None:
    assert RubricComposer({"a.b-c_D9" * 8: Fixed()}).weights


# -- combine -----------------------------------------------------------------------------------------------------------


def test_combine_makes_a_reward_of_components() -> None:
    composer = RubricComposer({"a": Fixed(), "b": Fixed()}, {"a": 2, "b": -1})
    assert composer.combine({"a": 0.5, "b": 0.25}) == 0.75
    assert composer.combine({"b": 0.25}) == -0.25
    assert composer.combine({}) == 0.0
    assert composer.last is None
    assert RubricComposer({"a": Fixed(), "b": Fixed()}, {"b": -3}, aggregate="mean").combine({"a": 1.0, "b": 1.0}) == -0.5


def test_combine_refuses_what_it_does_not_know_and_what_is_no_number() -> None:
    composer = RubricComposer({"a": Fixed()})
    with pytest.raises(KeyError, match="no rubric b"):
        composer.combine({"b": 1.0})
    with pytest.raises(ValueError, match="finite"):
        composer.combine({"a": math.nan})


# -- concurrency -------------------------------------------------------------------------------------------------------


async def test_async_rubrics_run_at_the_same_time() -> None:
    barrier = asyncio.Barrier(3)
    composer = RubricComposer({"a": Meeting(barrier), "b": Meeting(barrier), "c": Meeting(barrier)})
    assert (await composer.evaluate(ACTION, TURN)).reward == 3.0


async def test_synchronous_rubrics_run_beside_async_ones_in_one_thread() -> None:
    began = asyncio.Event()
    loop, threads = asyncio.get_running_loop(), list[threading.Thread]()

    def note(completion: str) -> float:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(began.set)
        return 1.0

    async def judge(completion: str) -> float:
        async with asyncio.timeout(10):
            await began.wait()
        return 1.0

    composer = RubricComposer({"judge": judge, "a": note, "b": lambda completion: note(completion)})
    assert (await composer.evaluate(ACTION, TURN)).reward == 3.0
    assert threads[0] is threads[1]
    assert threads[0] is not threading.current_thread()


async def test_a_rubric_that_is_declared_inline_runs_on_the_loop() -> None:
    @isolated("inline")
    def here(completion: str) -> float:
        return float(threading.current_thread() is main)

    main = threading.current_thread()
    assert (await RubricComposer({"a": here, "b": lambda completion: 1.0}).evaluate(ACTION, TURN)).reward == 2.0


async def test_at_most_max_concurrency_run_at_a_time() -> None:
    now, most = 0, 0

    async def judge(completion: str) -> float:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return 1.0

    composer = RubricComposer({f"r{n}": judge for n in range(6)}, max_concurrency=2)
    assert (await composer.evaluate(ACTION, TURN)).reward == 6.0
    assert most == 2


async def test_threads_may_be_given() -> None:
    crew = ThreadCrew(1, name="mine")
    composer = RubricComposer({"a": lambda completion: float(threading.current_thread().name.startswith("mine"))}, threads=crew)
    assert (await composer.evaluate(ACTION, TURN)).reward == 1.0
    composer.close()
    assert await crew.call(lambda: 1) == 1
    crew.close()


def test_compute_awaits_async_rubrics_where_no_loop_runs() -> None:
    composer = RubricComposer({"a": Awaited(0.5), "b": Fixed(0.25)})
    assert composer.compute(ACTION, TURN) == (0.75, {"a": 0.5, "b": 0.25})
    composer.close()
    assert composer.compute(ACTION, TURN)[0] == 0.75


def test_compute_awaits_what_a_synchronous_rubric_returns() -> None:
    composer = RubricComposer({"a": lambda a, o: Awaited(0.5)(a, o), "b": Fixed(0.25)})
    assert composer.compute(ACTION, TURN) == (0.75, {"a": 0.5, "b": 0.25})


@pytest.mark.parametrize("rubric", [Awaited(), lambda a, o: Awaited()(a, o)])
async def test_compute_of_an_async_rubric_where_a_loop_runs_says_what_to_do(rubric: Any) -> None:
    with pytest.raises(RuntimeError, match=r"rubric a must be awaited.*acompute"):
        RubricComposer({"a": rubric}).compute(ACTION, TURN)


async def test_compute_of_synchronous_rubrics_works_where_a_loop_runs() -> None:
    assert RubricComposer({"a": Fixed(0.5)}).compute(ACTION, TURN)[0] == 0.5


def test_compute_runs_rubrics_in_the_callers_thread() -> None:
    main = threading.current_thread()
    composer = RubricComposer({"a": lambda a, o: float(threading.current_thread() is main)})
    assert composer.compute(ACTION, TURN)[0] == 1.0


# -- episodes side by side ---------------------------------------------------------------------------------------------


def test_a_clone_is_an_episode_of_its_own() -> None:
    composer = RubricComposer({"won": Won(), "b": Fixed()}, {"b": 0})
    composer.compute(ACTION, TURN)
    clone = composer.clone()
    composer.update_weights({"b": 5})
    assert clone.compute(ACTION, END) == (0.1, {"won": 0.1, "b": 1.0})
    assert composer.compute(ACTION, END) == (5.2, {"won": 0.2, "b": 1.0})
    assert clone.rubrics["won"] is not composer.rubrics["won"]
    assert clone.rubrics["b"] is composer.rubrics["b"]


async def test_clones_can_be_evaluated_at_the_same_time() -> None:
    composer = RubricComposer({"length": lambda completion: len(completion) / 100, "judge": Awaited(0.5)})
    texts = ["a" * n for n in range(50)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(composer.clone().evaluate(Action(text), END)) for text in texts]
    assert [task.result().components["length"] for task in tasks] == [n / 100 for n in range(50)]


def test_an_object_with_a_reset_is_one_per_episode() -> None:
    class Turns:
        turns = 0

        def __call__(self, action: Any, observation: Any) -> float:
            self.turns += 1
            return self.turns / 10

        def reset(self) -> None:
            self.turns = 0

    composer = RubricComposer({"turns": Turns()})
    composer.compute(ACTION, TURN)
    assert composer.clone().compute(ACTION, TURN)[0] == 0.1
    assert composer.compute(ACTION, TURN)[0] == 0.2


def test_a_rubric_that_cannot_be_copied_says_what_it_needs() -> None:
    class Locked(Won):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    with pytest.raises(RubricError, match=r"rubric won: .*clone\(\)"):
        RubricComposer({"won": Locked()}).clone()

    class Cloned(Locked):
        def clone(self) -> Cloned:
            return Cloned()

    assert RubricComposer({"won": Cloned()}).clone().compute(ACTION, END)[0] == 0.1


def test_a_checkpoint_holds_weights_what_is_enabled_and_the_rubrics_settings() -> None:
    composer = RubricComposer({"won": Won(gamma=0.5), "b": Fixed()}, {"b": 3})
    composer.set_enabled({"b": False})
    state = composer.state_dict()
    assert state == {
        "weights": {"won": 1.0, "b": 3.0},
        "enabled": {"won": True, "b": False},
        "running": {},
        "rubrics": {"won": {"gamma": 0.5, "intermediate_reward": 0.0}},
    }
    other = RubricComposer({"won": Won(), "b": Fixed()})
    other.load_state_dict(state)
    assert other.state_dict() == state


def test_a_checkpoint_of_other_rubrics_is_refused_and_changes_nothing() -> None:
    composer = RubricComposer({"a": Fixed()})
    with pytest.raises(KeyError, match="no rubric b"):
        composer.load_state_dict({"weights": {"a": 5.0}, "enabled": {"b": True}})
    assert composer.weights == {"a": 1.0}


def test_nothing_is_logged_where_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        RubricComposer({"a": Fixed(), "b": Fixed(0.5)}).compute(ACTION, TURN)
    assert caplog.records == []
