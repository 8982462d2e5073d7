"""A game of two: the answerer thinks of a number from 0 to 7, the questioner asks three questions and then names it.

A question earns by how much it narrows the number down (up to 0.5 for all three), the right number at the end earns 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reward_loop.rinker.rendering import StopCondition, TokenCompleter, TokensWithLogprobs
from reward_loop.rinker.rl.types import Action, Env, EnvGroupBuilder, Observation, RLDataset, RLDatasetBuilder, StepResult
from reward_loop.rinker.types import ModelInput

NUMBERS, QUESTIONS = 8, 3
PER_BIT = 0.5 / math.log2(NUMBERS)
"""Reward for halving the numbers that it may be."""
RULES: Mapping[str, Callable[[int], bool]] = {
    "odd?": lambda number: number % 2 == 1,
    "two-or-three-of-four?": lambda number: number % 4 >= 2,
    "high?": lambda number: number >= NUMBERS // 2,
}
"""What can be asked besides numbers ("is it 5?"); all three together tell the eight numbers apart."""
YES, NO = "yes", "no"
WORDS = (*RULES, *map(str, range(NUMBERS)), YES, NO)
FIRST_WORD = 3
"""The number of the first word's token: those before it are special."""
_BEGIN, _NO_STOP = 2, list[int]()


def token(word: str) -> int:
    """Return the token of a word."""
    return FIRST_WORD + WORDS.index(word)


def word(token: int) -> str:
    """Return the word of a token; nothing for a special one."""
    return WORDS[token - FIRST_WORD] if token >= FIRST_WORD else ""


def truth(question: str, secret: int) -> bool:
    """Whether yes is the right answer; of what is no question it is not."""
    return RULES[question](secret) if question in RULES else question == str(secret)


class Answerer(Protocol):
    """The other player, who knows the number."""

    async def __call__(self, question: int, secret: int) -> int:
        """Return the token of the answer to the token of a question."""
        ...


async def by_the_rules(question: int, secret: int) -> int:
    """An answerer that always tells the truth."""
    return token(YES if truth(word(question), secret) else NO)


@dataclass(frozen=True, slots=True)
class ByModel:
    """An answerer that is a model: it reads the secret and the question, and says one word."""

    completer: TokenCompleter

    async def __call__(self, question: int, secret: int) -> int:
        """See `Answerer`."""
        answer = await self.completer(answerer_prompt(question, secret), _NO_STOP)
        return answer.tokens[0]


def answerer_prompt(question: int, secret: int) -> ModelInput:
    """Return what a model that answers reads."""
    return ModelInput.from_ints([_BEGIN, token(str(secret)), question])


class QuestionerEnv(Env):
    """One game as the questioner sees it: each of its words is one token."""

    def __init__(self, secret: int, answerer: Answerer) -> None:
        self._secret, self._answerer = secret, answerer
        self._said = [_BEGIN]
        self._asked = 0
        self._possible = frozenset(range(NUMBERS))

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        return ModelInput.from_ints(self._said), _NO_STOP

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        question = action[0]
        if self._asked == QUESTIONS:
            right = float(word(question) == str(self._secret))
            game = " ".join(map(word, [*self._said[1:], question]))
            return StepResult(right, True, ModelInput.empty(), _NO_STOP, {"right": right}, {"game": game, "secret": self._secret})
        answer = await self._answerer(question, self._secret)
        self._asked += 1
        self._said += [question, answer]
        return StepResult(self._narrowed(question, answer), False, ModelInput.from_ints(self._said), _NO_STOP)

    def _narrowed(self, question: int, answer: int) -> float:
        """Forget the numbers that an answer rules out, and return what that earns."""
        before = self._possible
        left = frozenset(number for number in before if truth(word(question), number) == (word(answer) == YES))
        if not left:  # an answerer that is a model may contradict itself
            return 0.0
        self._possible = left
        return PER_BIT * math.log2(len(before) / len(left))


@dataclass(frozen=True, slots=True)
class Games(EnvGroupBuilder):
    """Games about every number, equally often: who always names the same one is right once in eight times."""

    size: int
    answerer: Answerer

    async def make_envs(self) -> Sequence[Env]:
        return [QuestionerEnv(place % NUMBERS, self.answerer) for place in range(self.size)]


@dataclass(frozen=True, slots=True)
class GamesDataset(RLDataset):
    """The same groups again and again: there is no other."""

    batches: int
    groups: int
    size: int
    answerer: Answerer

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return [Games(self.size, self.answerer)] * self.groups

    def __len__(self) -> int:
        return self.batches


@dataclass(frozen=True, slots=True)
class GamesBuilder(RLDatasetBuilder):
    """Evaluated on one game about each number."""

    batches: int
    groups: int
    size: int
    answerer: Answerer = by_the_rules

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        train = GamesDataset(self.batches, self.groups, self.size, self.answerer)
        return train, GamesDataset(1, 1, NUMBERS, self.answerer)


def dataset_builder(batch_size: int, group_size: int, batches: int = 200) -> RLDatasetBuilder:
    """Return the builder for `rinker train rl`: the answerer tells the truth."""
    return GamesBuilder(batches, batch_size, group_size)
