"""Episodes as what a model is trained on.

Invariants: position i of a sequence's numbers belongs to its token i + 1, which the model is to give after token i; where the
policy did not speak, log-probability, advantage and mask are 0; every action token is in exactly one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reward_loop.errors import DataError
from reward_loop.rinker.rl.types import Trajectory
from reward_loop.rinker.types import Datum, ModelInput

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """T tokens, and for each but the first: the sampler's log-probability, the advantage, and whether the policy drew it."""

    tokens: list[int]
    logprobs: FloatArray
    """[T - 1]."""
    advantages: FloatArray
    """[T - 1]."""
    mask: FloatArray
    """[T - 1]; 1 where the policy spoke."""

    @property
    def action_tokens(self) -> int:
        """How many tokens the policy drew."""
        return int(self.mask.sum())

    def weighted(self, factor: float) -> TrainingSequence:
        """Return it with all advantages times `factor`."""
        return replace(self, advantages=self.advantages * factor)

    def plus(self, advantages: FloatArray) -> TrainingSequence:
        """Return it with these added to the advantages of what the policy drew."""
        return replace(self, advantages=self.advantages + advantages * self.mask)

    def datum(self, loss_fn: str = "importance_sampling") -> Datum:
        """Return it as the client takes it; the mask goes along only for a loss that reads one."""
        inputs = {
            "target_tokens": np.asarray(self.tokens[1:], dtype=np.int64),
            "logprobs": self.logprobs.astype(np.float32),
            "advantages": self.advantages.astype(np.float32),
        }
        if loss_fn == "gspo":
            inputs["sequence_ratio_mask"] = self.mask.astype(np.float32)
        return Datum(ModelInput.from_ints(self.tokens[:-1]), inputs)  # type: ignore[arg-type]  # Datum makes TensorData


def training_sequences(trajectory: Trajectory, advantage: float = 0.0) -> list[TrainingSequence]:
    """Return the sequences of one episode: one where each observation begins with all that came before it, else several.

    An action in which nothing was drawn, and a first token that nothing stands before, train nothing.
    """
    done: list[TrainingSequence] = []
    open_: _Open | None = None
    for transition in trajectory.transitions:
        seen = transition.ob.to_ints()
        if open_ is None or not open_.extended_by(seen):
            done += [] if open_ is None else open_.closed()
            open_ = _Open()
        open_.observe(seen[len(open_.tokens) :])
        open_.act(transition.ac.tokens, transition.ac.logprobs, advantage)
    return done + ([] if open_ is None else open_.closed())


class _Open:
    """A sequence that may still grow."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._advantages: list[float] = []
        self._mask: list[float] = []

    def extended_by(self, seen: Sequence[int]) -> bool:
        return list(seen[: len(self.tokens)]) == self.tokens

    def observe(self, tokens: Sequence[int]) -> None:
        self._add(tokens, [0.0] * len(tokens), 0.0, 0.0)

    def act(self, tokens: Sequence[int], logprobs: Sequence[float], advantage: float) -> None:
        if len(tokens) != len(logprobs):
            raise DataError(f"an action of {len(tokens)} tokens has {len(logprobs)} log-probabilities; it needs one for each")
        self._add(tokens, logprobs, advantage, 1.0)

    def closed(self) -> list[TrainingSequence]:
        if not any(self._mask[1:]):
            return []
        numbers = (np.asarray(values[1:], dtype=np.float64) for values in (self._logprobs, self._advantages, self._mask))
        return [TrainingSequence(self.tokens, *numbers)]

    def _add(self, tokens: Sequence[int], logprobs: Sequence[float], advantage: float, drawn: float) -> None:
        self.tokens += tokens
        self._logprobs += logprobs
        self._advantages += [advantage] * len(tokens)
        self._mask += [drawn] * len(tokens)
