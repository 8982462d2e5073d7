"""How a reward model's score and another number become one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never, get_args

from reward_loop.errors import ConfigError

CombineMode: TypeAlias = Literal["replace", "add", "multiply", "weighted", "bonus"]


@dataclass(frozen=True, slots=True)
class Combination:
    """replace: s. add: b + s. multiply: b s. weighted: alpha b + (1 - alpha) s. bonus: b + rm_coeff s (seed 001)."""

    mode: CombineMode = "bonus"
    rm_coeff: float = 1.0
    alpha: float = 0.5

    def __post_init__(self) -> None:
        if self.mode not in get_args(CombineMode):
            raise ConfigError(f"mode={self.mode!r} is none of {', '.join(get_args(CombineMode))}")
        if not math.isfinite(self.rm_coeff) or not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"rm_coeff={self.rm_coeff} must be a finite number and alpha={self.alpha} between 0 and 1")

    def __call__(self, base: float, score: float) -> float:
        """Return the combination of a base b with a score s."""
        factor, addend = self.terms(score)
        return factor * base + addend

    def terms(self, score: float) -> tuple[float, float]:
        """Return (factor, addend): for a given score, every mode is factor * base + addend."""
        match self.mode:
            case "replace":
                return 0.0, score
            case "add":
                return 1.0, score
            case "multiply":
                return score, 0.0
            case "weighted":
                return self.alpha, (1.0 - self.alpha) * score
            case "bonus":
                return 1.0, self.rm_coeff * score
            case _:
                assert_never(self.mode)
