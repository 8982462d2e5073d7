"""What a reward model is asked and what it answers, whichever client carries it.

Invariant: the scores of a response are in the order of the request's inputs, one entry per input, and every number is finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from reward_loop.errors import ConfigError
from reward_loop.sync.training_mode import RewardModelTrainingMode

if TYPE_CHECKING:
    from torch import Tensor

Score: TypeAlias = float | list[float] | list[list[float]]
"""One number, one per label, or one (or one per label) for each step or token."""

Input: TypeAlias = str | Sequence[int]
"""A text, or its token ids."""


class PoolingType(StrEnum):
    """Which hidden states a score is read from: the last, the mean, the first, those at step tags, or each of them."""

    LAST = "LAST"
    MEAN = "MEAN"
    CLS = "CLS"
    STEP = "STEP"
    ALL = "ALL"

    @classmethod
    def _missing_(cls, value: object) -> PoolingType | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """Texts, or lists of token ids, that one request asks a model to score; `normalize` asks for probabilities, not logits."""

    model: str | None
    inputs: Sequence[Input]
    pooling_type: PoolingType | str | None = None
    n_labels: int | None = None
    normalize: bool = True
    return_hidden_states: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str) or not self.inputs:
            raise ConfigError(f"inputs={self.inputs!r:.100} must be a list of at least one text or list of token ids")
        if len({isinstance(each, str) for each in self.inputs}) > 1:
            raise ConfigError("inputs holds texts as well as token ids; send them in two requests")
        if self.return_hidden_states:
            raise ConfigError("return_hidden_states=True: reward servers give scores only; leave it out")

    def payload(self) -> dict[str, object]:
        """Return the body of POST /score; what is not set is the server's to choose."""
        inputs = [each if isinstance(each, str) else list(each) for each in self.inputs]
        body: dict[str, object] = {"input": inputs, "normalize": self.normalize}
        if self.model is not None:
            body["model"] = self.model
        if self.pooling_type is not None:
            body["pooling_type"] = pooling(self.pooling_type).value
        if self.n_labels is not None:
            body["n_labels"] = self.n_labels
        return body


@dataclass(frozen=True, slots=True)
class ScoringResult:
    """The score of the input at `index` of its request, and the version of the weights that gave it, if the server says so."""

    index: int
    score: Score
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ScoringResponse:
    """The score of each input, in order.

    `metadata` holds the served `model`, the `usage` that the server counted and the `version` of the weights (None: not told).
    """

    scores: Sequence[Score]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def results(self) -> list[ScoringResult]:
        """The scores with the place of their input."""
        version = self.metadata.get("version")
        return [ScoringResult(index, score, version) for index, score in enumerate(self.scores)]


class RewardModelClient(Protocol):
    """Something that scores texts with a reward model."""

    async def score(self, request: ScoringRequest) -> tuple[ScoringResponse, dict[str, Any]]:
        """Score the inputs of a request; the second value says how it was carried."""
        ...

    async def score_batch(self, inputs: Sequence[Input], *, normalize: bool = True) -> list[float]:
        """Return one number for each input."""
        ...

    async def score_one(self, input: Input, *, normalize: bool = False) -> ScoringResult:  # noqa: A002
        """Score one input, which may travel with those that are asked for at the same time."""
        ...

    def sync_weights(
        self,
        params: Mapping[str, Tensor],
        *,
        timeout_s: float = 600.0,
        version: int | None = None,
        training_mode: RewardModelTrainingMode = RewardModelTrainingMode.FULL,
    ) -> str:
        """Have new weights served, and return their version as text."""
        ...

    async def get_model_version(self) -> int:
        """Return the version of the weights that are served."""
        ...


def pooling(value: PoolingType | str) -> PoolingType:
    """Return the pooling type of that name, in any case."""
    try:
        return PoolingType(value)
    except ValueError:
        raise ConfigError(f"pooling_type={value!r} is none of {', '.join(PoolingType.__members__)}") from None
