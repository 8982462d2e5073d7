"""A pipeline that runs: episodes keep what they began with, and updates reach those that begin after them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from reward_loop.errors import ConfigError, RubricError
from reward_loop.rubrics.build import build_pipeline
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.pipeline import Episode, RubricPipeline
from reward_loop.rubrics.refusal import ConfigRefused
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.trajectory import TrajectoryRubric

STEP, END = Observation(), Observation(done=True)


@dataclass
class FixedConfig:
    """What `Fixed` gives."""

    value: float = 1.0


class Fixed:
    """Gives a value of its config, which may change."""

    updateable: ClassVar[tuple[str, ...]] = ("value",)
    scale: ClassVar[tuple[float, float]] = (0.0, 10.0)

    def __init__(self, config: FixedConfig) -> None:
        self.config = config

    def __call__(self, action: Any, observation: Any) -> float:
        return self.config.value


class Free(Fixed):
    """The same, on no scale that it knows."""

    scale = None  # type: ignore[assignment]


class Steps(TrajectoryRubric):
    """Gives the share of steps out of 10."""

    def score_trajectory(self, trajectory: list[Any]) -> float:
        return len(trajectory) / 10


HERE = f"{__name__}."


def pipeline(*per_turn: dict[str, Any], episode_end: Any = (), **options: Any) -> RubricPipeline:
    config = {"schema_version": "1.0", "per_turn": list(per_turn), "episode_end": list(episode_end)}
    return build_pipeline(config, options.pop("resources", None), allowed_prefixes=["tests."], **options)


def fixed(name: str, value: float, **fields: Any) -> dict[str, Any]:
    return {"name": name, "rubric": f"{HERE}Fixed", "config": {"value": value}, **fields}


def weigh(running: RubricPipeline, **weights: float) -> None:
    running.live.propose({"weights": weights}, now=0.0)


async def reward(episode: Episode, observation: Observation = END) -> float | None:
    return (await episode.evaluate(Action("hello"), observation)).reward


async def test_an_episode_is_composed_as_the_configuration_says() -> None:
    running = pipeline(
        {"name": "greets", "rubric": "builtin.regex", "weight": 0.5, "config": {"pattern": "hello"}},
        fixed("quality", 2.5, weight=-10.0),
        episode_end=[{"name": "steps", "rubric": f"{HERE}Steps"}],
    )
    episode = running.start_episode()
    step = await episode.evaluate(Action("hello"), STEP)
    assert (step.reward, step.components) == (0.5 - 2.5, {"greets": 1.0, "quality": 0.25})
    assert (await episode.evaluate(Action("bye"), END)).components == {"greets": 0.0, "quality": 0.25, "steps": 0.2}
    assert (episode.config_version, episode.weights) == (1, {"greets": 0.5, "quality": -10.0, "steps": 1.0})
    assert list(running.rubrics) == ["greets", "quality", "steps"]


async def test_episodes_don_t_share_their_trajectories() -> None:
    running = pipeline(episode_end=[{"name": "steps", "rubric": f"{HERE}Steps"}])
    one, other = running.start_episode(), running.start_episode()
    for _ in range(4):
        await reward(one, STEP)
    assert (await reward(one), await reward(other)) == (0.5, 0.1)


async def test_an_episode_keeps_its_weights_and_the_next_one_has_the_new_ones() -> None:
    running = pipeline(fixed("a", 10), fixed("b", 10))
    before = running.start_episode()
    assert await reward(before, STEP) == 2.0
    weigh(running, a=0.5, b=0.25)
    after = running.start_episode()
    assert (await reward(before), before.config_version) == (2.0, 1)
    assert (await reward(after), after.config_version) == (0.75, 2)


async def test_an_immediate_update_reaches_running_episodes_at_their_next_step() -> None:
    running = pipeline(fixed("a", 10), fixed("b", 10))
    episode = running.start_episode()
    weigh(running, a=0.5)
    running.live.propose({"weights": {"b": 0.25}, "enabled": {"a": False}, "apply": "immediate"}, now=0.0)
    weigh(running, a=9.0, b=9.0)
    assert (await reward(episode), episode.config_version, episode.weights["b"]) == (0.25, 3, 0.25)
    assert (await reward(running.start_episode())) == 9.0


async def test_new_settings_make_a_new_rubric_for_later_episodes_only() -> None:
    running = pipeline(fixed("a", 10), fixed("b", 10))
    before, kept = running.start_episode(), running.rubrics["b"]
    running.live.propose({"config": {"a": {"value": 5}}}, now=0.0)
    after = running.start_episode()
    assert (await reward(before), await reward(after)) == (2.0, 1.5)
    assert running.rubrics["b"] is kept


async def test_an_immediate_update_after_new_settings_waits_for_the_next_episode() -> None:
    running = pipeline(fixed("a", 10), fixed("b", 10))
    episode = running.start_episode()
    running.live.propose({"config": {"a": {"value": 5}}}, now=0.0)
    running.live.propose({"weights": {"b": 3.0}, "apply": "immediate"}, now=0.0)
    assert (await reward(episode), episode.config_version) == (2.0, 1)
    assert await reward(running.start_episode()) == 3.5


async def test_with_immediate_as_the_default_settings_still_wait_for_the_next_episode() -> None:
    running = pipeline(fixed("a", 10), apply="immediate")
    assert running.live.propose({"weights": {"a": 2.0}}, now=0.0).applies == "immediate"
    assert running.live.propose({"config": {"a": {"value": 5}}}, now=0.0).applies == "next_reset"


@pytest.mark.parametrize("value", ["five", None, [1]])
async def test_settings_with_which_a_rubric_can_not_be_built_are_refused_before_they_hold(value: object) -> None:
    running = pipeline({"name": "length", "rubric": "builtin.length", "config": {"most": 5}})
    with pytest.raises(ConfigRefused, match="rubric length") as error:
        running.live.propose({"config": {"length": {"least": value}}}, now=0.0)
    assert error.value.code == "bad_config"
    assert await reward(running.start_episode()) == 1.0


async def test_what_is_disabled_is_left_out_and_comes_back() -> None:
    running = pipeline(fixed("a", 10), fixed("b", 10, enabled=False))
    assert await reward(running.start_episode()) == 1.0
    running.live.propose({"enabled": {"a": False, "b": True}}, now=0.0)
    composed = await running.start_episode().evaluate(Action(""), END)
    assert composed.components == {"b": 1.0}


async def test_a_scale_in_the_config_counts_before_that_of_the_rubric() -> None:
    assert await reward(pipeline(fixed("a", 10)).start_episode()) == 1.0
    running = pipeline({**fixed("a", 10), "config": {"value": 10, "scale": [0, 20]}})
    assert await reward(running.start_episode()) == 0.5


async def test_options_reach_the_composer() -> None:
    running = pipeline(fixed("a", 10, weight=1.0), fixed("b", 0, weight=3.0), aggregate="mean", normalize=False)
    assert await reward(running.start_episode()) == 2.5
    running = pipeline(fixed("a", 12), strict=True, normalize=False)
    assert await reward(running.start_episode()) == 12.0


async def test_a_scale_that_grows_goes_on_growing_when_settings_change() -> None:
    running = pipeline({**fixed("a", 10), "rubric": f"{HERE}Free"}, normalize="running")
    assert await reward(running.start_episode()) == 0.0
    for value, placed in ((0, 0.0), (5, 0.5)):
        running.live.propose({"config": {"a": {"value": value}}}, now=0.0)
        assert await reward(running.start_episode()) == placed


@pytest.mark.parametrize("on_error", ["mask", {"value": 5.0}])
async def test_what_a_failing_rubric_is_worth_comes_from_its_entry(on_error: Any) -> None:
    broken = {"name": "b", "rubric": f"{HERE}broken", "on_error": on_error}
    composed = await pipeline(fixed("a", 10), broken).start_episode().evaluate(Action(""), END)
    assert "no judge today" in composed.failures["b"]
    assert composed.reward == (None if on_error == "mask" else 2.0)
    with pytest.raises(RubricError, match="rubric b"):
        await reward(pipeline({**broken, "on_error": "raise"}).start_episode())


def broken(solution_str: str) -> float:
    raise ValueError("no judge today")


async def test_a_rubric_that_takes_too_long_is_reported_by_name() -> None:
    running = pipeline({"name": "slow", "rubric": f"{HERE}slow", "timeout_s": 0.01})
    with pytest.raises(RubricError, match="slow"):
        await reward(running.start_episode())


async def slow(solution_str: str) -> float:
    await asyncio.Event().wait()
    return 1.0


class Judges:
    """Judge services that give half a point for everything."""

    async def call_tool(self, service: str, /, **arguments: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"score": 0.5, "service": service, **arguments}


class SeedStyle:
    """As the seed writes a judge's rubric: synchronous, with a client of its own."""

    def __init__(self, config: dict[str, Any], mcp_client: Any) -> None:
        self.service = config["llm_service"]
        self.mcp = mcp_client

    def __call__(self, action: Any, observation: Any) -> float:
        return float(self.mcp.call_tool(self.service, text=action.message)["score"])


class Awaiting:
    """The same, in the way of this project."""

    def __init__(self, judges: Any) -> None:
        self.judges = judges

    async def __call__(self, action: Any, observation: Any) -> Any:
        return await self.judges.call_tool("style_judge", text=action.message)


async def test_rubrics_get_the_judges_by_the_names_of_their_parameters() -> None:
    running = pipeline(
        {"name": "seed", "rubric": f"{HERE}SeedStyle", "config": {"llm_service": "style_judge"}},
        {"name": "ours", "rubric": f"{HERE}Awaiting"},
        resources=Resources(judges=Judges()),  # type: ignore[arg-type]
    )
    composed = await running.start_episode().evaluate(Action("hello"), END)
    assert composed.components == {"seed": 0.5, "ours": 0.5}
    assert composed.extra["ours"]["text"] == "hello"


def test_a_rubric_that_lacks_what_it_needs_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"rubric seed.*mcp_client"):
        pipeline({"name": "seed", "rubric": f"{HERE}SeedStyle", "config": {"llm_service": "style_judge"}})


async def test_a_file_of_the_users_is_a_rubric(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def long(solution_str, least=3):\n    return float(len(solution_str) >= least)\n")
    entry = {"name": "long", "rubric": f"{tmp_path}/mine.py:long", "config": {"least": 5}}
    assert await reward(pipeline(entry).start_episode()) == 1.0


async def test_no_step_ever_mixes_weights_while_updates_come() -> None:
    running = pipeline(fixed("a", 10, weight=0.0), fixed("b", 10, weight=0.0))
    seen = set[float | None]()

    async def episodes() -> None:
        for _ in range(50):
            episode = running.start_episode()
            rewards = {await reward(episode, STEP) for _ in range(3)}
            assert len(rewards) == 1
            seen.update(rewards)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(episodes())
        for number in range(1, 101):
            weigh(running, a=float(number), b=-float(number))
            await asyncio.sleep(0)
    assert seen == {0.0}
