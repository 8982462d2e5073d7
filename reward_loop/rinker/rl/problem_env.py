"""Problems with one answer: a question is asked, the answer is checked, the episode is over."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_loop.errors import DataError
from reward_loop.rinker.rendering import Message, Renderer, StopCondition, TokensWithLogprobs
from reward_loop.rinker.rl.types import Action, Env, EnvGroupBuilder, Observation, StepResult
from reward_loop.rinker.types import ModelInput


class ProblemEnv(Env):
    """One question. The reward is 1 for a right answer, less `format_coef` for one of the wrong form."""

    def __init__(self, renderer: Renderer, convo_prefix: Sequence[Message] = (), format_coef: float = 0.1) -> None:
        self.renderer = renderer
        self.convo_prefix = list(convo_prefix)
        self.format_coef = format_coef

    @abstractmethod
    def get_question(self) -> str:
        """Return what the user asks."""

    @abstractmethod
    def check_answer(self, sample_str: str) -> bool:
        """Whether an answer is right."""

    @abstractmethod
    def check_format(self, sample_str: str) -> bool:
        """Whether an answer has the form that was asked for."""

    @abstractmethod
    def get_reference_answer(self) -> str:
        """Return a right answer."""

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """See `Env`."""
        return self.renderer.build_generation_prompt(self._conversation()), self.renderer.get_stop_sequences()

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        """See `Env`; an answer that was cut off is not of the right form."""
        message, ended = self.renderer.parse_response(action)
        correct = float(self.check_answer(message["content"]))
        formatted = float(ended.is_stop_sequence and self.check_format(message["content"]))
        return StepResult(
            reward=correct + self.format_coef * (formatted - 1.0),
            episode_done=True,
            next_observation=ModelInput.empty(),
            next_stop_condition=self.renderer.get_stop_sequences(),
            metrics={"correct": correct, "format": formatted},
            logs={"question": self.get_question(), "answer": message["content"], "reference": self.get_reference_answer()},
        )

    def reward_columns(self) -> Mapping[str, Any]:
        """See `Env`: the reference answer is the ground truth."""
        return {"reward_model": {"ground_truth": self.get_reference_answer()}, "raw_prompt": self._conversation()}

    def _conversation(self) -> list[Message]:
        return [*self.convo_prefix, Message(role="user", content=self.get_question())]


@dataclass(frozen=True, slots=True)
class ProblemGroupBuilder(EnvGroupBuilder):
    """The same problem, `num_envs` times."""

    env_thunk: Callable[[], Env]
    num_envs: int
    dataset_name: str = "problems"

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise DataError(f"num_envs={self.num_envs}: a group has at least one environment")

    async def make_envs(self) -> Sequence[Env]:
        """See `EnvGroupBuilder`."""
        return [self.env_thunk() for _ in range(self.num_envs)]

    def logging_tags(self) -> Sequence[str]:
        """See `EnvGroupBuilder`."""
        return (self.dataset_name,)
