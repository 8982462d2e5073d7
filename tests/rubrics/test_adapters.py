"""What is accepted as a rubric, and what its parameters get."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from reward_loop.errors import ConfigError, DataError, InvalidReward, Unscorable
from reward_loop.functions.isolated import declared_isolation, isolated
from reward_loop.rubrics import Action, Observation, Rubric, as_rubric
from reward_loop.rubrics.adapters import is_async
from reward_loop.rubrics.rubric import scores_below
from tests.rubrics.scoring_rubrics import STEP, Awaited, Fixed

if TYPE_CHECKING:
    from nowhere import MCPClient  # type: ignore[import-not-found]

INFO = {"index": 7}
METADATA = {"raw_prompt": [{"role": "user", "content": "?"}], "ground_truth": "42", "extra_info": INFO, "state": {"turn": 3}}
OBSERVATION = Observation(done=True, metadata=METADATA)
ACTION = Action("It is 42.")


def given(function: Callable[..., Any], observation: Any = OBSERVATION, **bound: Any) -> Any:
    return as_rubric(function, **bound)(ACTION, observation)


# -- rubrics -----------------------------------------------------------------------------------------------------------


def test_a_rubric_is_one() -> None:
    rubric = Fixed()
    assert as_rubric(rubric) is rubric


class TheirRubric:
    """What OpenEnv's rubric can do, without its class: attributes, a plain last_score, children of its own."""

    def __init__(self, score: float, **children: Any) -> None:
        self.score = score
        self.parts = children
        self.last_score: float | None = None
        self.resets = 0

    def __call__(self, action: Any, observation: Any) -> Any:
        for child in self.parts.values():
            child(action, observation)
        self.last_score = self.forward(action, observation)
        return self.last_score

    def forward(self, action: Any, observation: Any) -> Any:
        return self.score

    def children(self) -> Iterator[Any]:
        yield from self.parts.values()

    def named_children(self) -> Iterator[tuple[str, Any]]:
        yield from self.parts.items()

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, child in self.parts.items():
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from child.named_rubrics(path)

    def reset(self) -> None:
        self.resets += 1

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score = state["score"]


class TheirAwaitedRubric(TheirRubric):
    """One whose call gives a coroutine."""

    async def forward(self, action: Any, observation: Any) -> float:
        return self.score

    def __call__(self, action: Any, observation: Any) -> Any:
        return self.forward(action, observation)


def test_another_packages_rubric_is_one_by_what_it_can_do() -> None:
    theirs = TheirRubric(0.5, style=TheirRubric(0.3, tone=TheirRubric(0.2)))
    rubric = as_rubric(theirs)
    assert isinstance(rubric, Rubric)
    assert rubric(*STEP) == 0.5
    assert scores_below(rubric) == {"style": 0.3, "style.tone": 0.2}
    assert rubric.get_rubric("style.tone") is theirs.parts["style"].parts["tone"]
    rubric.reset()
    assert theirs.resets == 1


async def test_another_packages_rubric_may_be_async() -> None:
    rubric = as_rubric(TheirAwaitedRubric(0.5))
    assert is_async(rubric)
    assert await rubric(*STEP) == 0.5


def test_another_packages_rubric_keeps_its_own_state() -> None:
    rubric = as_rubric(TheirRubric(0.5))
    other = as_rubric(TheirRubric(0.1))
    other.load_state_dict(rubric.state_dict())
    assert other(*STEP) == 0.5


def test_what_another_packages_rubric_gives_is_checked() -> None:
    with pytest.raises(InvalidReward):
        as_rubric(TheirRubric(float("nan")))(*STEP)


def test_another_packages_rubric_may_be_part_of_ours() -> None:
    class Outer(Rubric):
        def __init__(self) -> None:
            self.theirs = TheirRubric(0.5, style=TheirRubric(0.3))

        def forward(self, action: Any, observation: Any) -> Any:
            return self.theirs(action, observation)

    rubric = Outer()
    assert rubric(*STEP) == 0.5
    assert scores_below(rubric) == {"theirs": 0.5, "theirs.style": 0.3}


# -- functions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["completion", "response", "solution_str", "message", "content"])
def test_the_text_of_the_action_has_many_names(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def judge({name}): return {name} == 'It is 42.'", namespace)
    assert given(namespace["judge"]) == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", ACTION),
        ("observation", OBSERVATION),
        ("obs", OBSERVATION),
        ("metadata", METADATA),
        ("done", True),
        ("prompt", METADATA["raw_prompt"]),
        ("raw_prompt", METADATA["raw_prompt"]),
        ("ground_truth", "42"),
        ("answer", "42"),
        ("info", INFO),
        ("extra_info", INFO),
        ("state", METADATA["state"]),
    ],
)
def test_an_argument_is_read_by_its_name(name: str, value: Any) -> None:
    namespace: dict[str, Any] = {"value": value}
    exec(f"def judge(completion, {name}): return {name} is value", namespace)
    assert given(namespace["judge"]) == 1.0


@pytest.mark.parametrize("name", ["data_source", "response_ids", "sandbox", "reward_router_address", "reward_model_tokenizer"])
def test_what_the_reward_loop_offers_is_read_from_the_metadata(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def judge({name}): return {name} == 'value'", namespace)
    assert given(namespace["judge"], Observation(metadata={name: "value"})) == 1.0


def test_of_two_names_of_one_thing_the_one_that_was_asked_for_comes_first() -> None:
    both = Observation(metadata={"answer": "1", "ground_truth": "2", "prompt": "1", "raw_prompt": "2"})
    assert given(lambda answer, prompt: answer == prompt == "1", both) == 1.0
    assert given(lambda ground_truth, raw_prompt: ground_truth == raw_prompt == "2", both) == 1.0


def test_a_default_stays_where_the_step_has_no_such_thing() -> None:
    assert given(lambda completion, state="none": state == "none", Observation()) == 1.0


def test_a_none_that_is_there_is_passed() -> None:
    assert given(lambda ground_truth: ground_truth is None, Observation(metadata={"ground_truth": None})) == 1.0


def test_what_a_function_needs_and_the_step_lacks_is_an_error_that_names_it() -> None:
    def judge(completion: str, ground_truth: str) -> float:
        raise AssertionError

    with pytest.raises(DataError, match=r"judge needs 'ground_truth'.*\['prompt'\]"):
        given(judge, Observation(metadata={"prompt": "?"}))


def test_an_unknown_parameter_is_an_error_before_any_step() -> None:
    with pytest.raises(ConfigError, match=r"asks for \['threshold'\]"):
        as_rubric(lambda completion, threshold: 1.0)


def test_an_unknown_parameter_may_be_bound_or_have_a_default() -> None:
    assert given(lambda completion, threshold: threshold, threshold=0.5) == 0.5
    assert given(lambda completion, threshold=0.25: threshold) == 0.25


def test_a_bound_argument_wins_over_the_step() -> None:
    assert given(lambda completion, ground_truth: ground_truth == "43", ground_truth="43") == 1.0


def test_a_bound_argument_that_nobody_takes_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"takes no \['treshold'\]; it takes \['completion', 'threshold'\]"):
        as_rubric(lambda completion, threshold=0.5: threshold, treshold=0.1)


def test_a_function_that_takes_nothing_of_a_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes nothing of a step"):
        as_rubric(lambda: 1.0)


def test_two_parameters_with_names_of_their_own_get_action_and_observation() -> None:
    assert given(lambda a, o: (a, o) == (ACTION, OBSERVATION)) == 1.0
    assert given(lambda a, obs, /: (a, obs) == (ACTION, OBSERVATION)) == 1.0
    assert given(lambda act, observation, scale=0.5: scale) == 0.5


def test_a_parameter_that_is_misspelt_beside_a_known_one_does_not_get_the_observation() -> None:
    with pytest.raises(ConfigError, match="ground_thruth"):
        as_rubric(lambda completion, ground_thruth: 1.0)


def test_a_function_of_any_name_gets_what_verl_passes() -> None:
    seen: dict[str, Any] = {}

    def compute_score(**kwargs: Any) -> float:
        seen.update(kwargs)
        return 1.0

    given(compute_score)
    assert seen == {"solution_str": "It is 42.", "ground_truth": "42", "extra_info": INFO}


def test_a_partial_is_a_function() -> None:
    def judge(completion: str, bonus: float) -> float:
        return len(completion) + bonus

    assert given(functools.partial(judge, bonus=0.5)) == 9.5


@pytest.mark.parametrize(
    "action", ["text", {"content": "text"}, SimpleNamespace(code="text"), SimpleNamespace(message=None, text="text")]
)
def test_the_text_is_found_in_any_action(action: Any) -> None:
    assert as_rubric(lambda completion: completion == "text")(action, None) == 1.0


def test_an_action_without_text_is_an_error_that_names_its_class() -> None:
    with pytest.raises(DataError, match="SimpleNamespace has no text"):
        as_rubric(lambda completion: 1.0)(SimpleNamespace(move="e4"), None)


async def test_a_coroutine_function_is_an_async_rubric() -> None:
    async def judge(completion: str) -> float:
        return float(len(completion))

    rubric = as_rubric(judge)
    assert is_async(rubric)
    assert await rubric(*STEP) == 9.0


async def test_a_function_may_return_an_awaitable() -> None:
    async def later() -> float:
        return 0.5

    assert await as_rubric(lambda completion: later())(*STEP) == 0.5


def test_a_function_may_return_a_dict_or_none() -> None:
    score: Any = given(lambda completion: {"score": 1, "why": "because"})
    assert score.extra == {"why": "because"}
    with pytest.raises(Unscorable):
        given(lambda completion: None)


def test_declared_isolation_survives() -> None:
    assert declared_isolation(as_rubric(isolated("process")(lambda completion: 1.0))) == "process"
    assert declared_isolation(as_rubric(lambda completion: 1.0)) == "thread"


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="42 is no rubric"):
        as_rubric(42)


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_rubric_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text("def compute_score(solution_str):\n    return 0.5\ndef other(solution_str):\n    return 0.25\n")
    assert given(str(file)) == 0.5  # type: ignore[arg-type]
    assert given(file) == 0.5  # type: ignore[arg-type]
    assert as_rubric(str(file), name="other")(*STEP) == 0.25
    assert as_rubric(f"{file}:other")(*STEP) == 0.25
    assert as_rubric(f"file://{file}")(*STEP) == 0.5


def test_a_file_that_is_not_there_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        as_rubric("nowhere.py:judge")


# -- classes -----------------------------------------------------------------------------------------------------------


@dataclass
class Limits:
    longest: int = 100


@dataclass
class StyleConfig:
    weight: float = 1.0
    llm_service: str = "style_judge"
    limits: Limits = field(default_factory=Limits)


class StyleRubric:
    """The seed's: a class with a config dataclass and a client."""

    def __init__(self, config: StyleConfig, mcp_client: MCPClient) -> None:
        self.config = config
        self.mcp = mcp_client

    def __call__(self, action: Any, observation: Any) -> float:
        result: dict[str, float] = self.mcp.call_tool(self.config.llm_service, text=action.message)
        return result["score"]


class Client:
    def call_tool(self, service: str, text: str) -> dict[str, float]:
        return {"score": 0.5 if service == "style_judge" else 0.25}


def test_a_class_is_built_with_its_config_dataclass() -> None:
    rubric: Any = as_rubric(StyleRubric, config={"llm_service": "other", "limits": {"longest": 5}}, mcp_client=Client())
    assert rubric.config == StyleConfig(llm_service="other", limits=Limits(5))
    assert rubric(*STEP) == 0.25


def test_a_config_object_is_taken_as_it_is() -> None:
    config = StyleConfig()
    rubric: Any = as_rubric(StyleRubric, config=config, mcp_client=Client())
    assert rubric.config is config
    assert rubric(*STEP) == 0.5


def test_no_config_means_its_defaults() -> None:
    rubric: Any = as_rubric(StyleRubric, mcp_client=Client())
    assert rubric.config == StyleConfig()


@pytest.mark.parametrize("config", [{"llm_servise": "x"}, {"limits": {"longst": 5}}])
def test_an_unknown_key_of_a_config_is_an_error_that_names_the_nearest(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"did you mean '(llm_service|longest)'"):
        as_rubric(StyleRubric, config=config, mcp_client=Client())


def test_what_a_constructor_needs_and_does_not_get_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"StyleRubric needs \['mcp_client'\]"):
        as_rubric(StyleRubric)


def test_a_constructor_gets_of_what_is_offered_what_it_takes() -> None:
    assert as_rubric(StyleRubric, offered={"mcp_client": Client(), "sandbox": None})(*STEP) == 0.5
    with pytest.raises(ConfigError, match=r"takes no \['sandbox'\]"):
        as_rubric(StyleRubric, mcp_client=Client(), sandbox=None)


def test_a_class_without_a_config_gets_the_settings_as_arguments() -> None:
    assert as_rubric(Fixed, config={"score": 0.5})(*STEP) == 0.5
    with pytest.raises(ConfigError, match="did you mean 'score'"):
        as_rubric(Fixed, config={"scor": 0.5})


def test_a_config_without_an_annotation_stays_a_mapping() -> None:
    class Plain:
        def __init__(self, config: Any) -> None:
            self.config = config

        def __call__(self, action: Any, observation: Any) -> Any:
            return self.config["score"]

    assert as_rubric(Plain, config={"score": 0.5})(*STEP) == 0.5


class Settings(pydantic.BaseModel):
    score: float = pydantic.Field(ge=0)


class Validated(Rubric):
    def __init__(self, config: Settings | None = None) -> None:
        self.config = config

    def forward(self, action: Any, observation: Any) -> Any:
        return self.config.score if self.config else 0.25


def test_a_config_may_be_a_pydantic_model_and_optional() -> None:
    assert as_rubric(Validated, config={"score": 0.5})(*STEP) == 0.5
    assert as_rubric(Validated)(*STEP) == 0.25
    with pytest.raises(ConfigError, match="greater than or equal to 0"):
        as_rubric(Validated, config={"score": -1})


def test_a_constructor_that_raises_is_a_config_error_that_says_what() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

    with pytest.raises(ConfigError, match="Broken can't be built: OSError: no disk"):
        as_rubric(Broken)


def test_an_object_that_is_built_takes_no_config() -> None:
    with pytest.raises(ConfigError, match=r"Fixed is built already and takes no \['score'\]"):
        as_rubric(Fixed(), config={"score": 1})
    with pytest.raises(ConfigError, match="is no class"):
        as_rubric(lambda completion: 1.0, config=StyleConfig())


def test_an_object_keeps_its_scale_and_its_reset() -> None:
    class Turns:
        scale = (0, 10)
        turns = 0

        def __call__(self, action: Any, observation: Any) -> int:
            self.turns += 1
            return self.turns

        def reset(self) -> None:
            self.turns = 0

    rubric = as_rubric(Turns())
    assert list(rubric.scale or ()) == [0, 10]
    assert (rubric(*STEP), rubric(*STEP)) == (1.0, 2.0)
    rubric.reset()
    assert rubric(*STEP) == 1.0


def test_an_async_rubric_is_known_as_such() -> None:
    assert is_async(Awaited())
    assert not is_async(Fixed())
