"""Rubrics made of rubrics: in order, gated, weighted, and in lists and dicts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from reward_loop.rubrics.evaluation import Steps, all_settled, discard, evaluated, must_await, settled
from reward_loop.rubrics.rubric import Rubric

_TOLERANCE = 1e-6


class Sequential(Rubric):
    """Run rubrics in order and return the last one's score; one that gives 0 ends it with 0, and none at all gives 1."""

    def __init__(self, *rubrics: Any) -> None:
        for number, rubric in enumerate(rubrics):
            setattr(self, f"rubric_{number}", rubric)
        self._list = list(rubrics)

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        """Return the score of the last rubric, or 0."""
        return evaluated(self._in_order(action, observation))

    def _in_order(self, action: Any, observation: Any) -> Steps[float]:
        score = 1.0
        for rubric in self._list:
            score = yield from settled(rubric(action, observation))
            if score == 0.0:
                break
        return score

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, index: int) -> Any:
        return self._list[index]


class Gate(Rubric):
    """Let a score of `threshold` or more pass, and give 0 for less."""

    def __init__(self, rubric: Any, threshold: float = 1.0) -> None:
        self.rubric = rubric
        self.threshold = threshold

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        """Return the rubric's score, or 0."""
        return evaluated(self._gated(action, observation))

    def _gated(self, action: Any, observation: Any) -> Steps[float]:
        score: float = yield from settled(self.rubric(action, observation))
        return score if score >= self.threshold else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the threshold, and what the rubric has."""
        return {"threshold": self.threshold, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.threshold = state.get("threshold", self.threshold)
        super().load_state_dict(state)


class WeightedSum(Rubric):
    """Add up scores by weights whose sum is 1; a `RubricComposer` takes any weights."""

    def __init__(self, rubrics: Iterable[Any], weights: Iterable[float]) -> None:
        self._list, self._weights = list(rubrics), [*weights]
        if len(self._list) != len(self._weights):
            raise ValueError(f"{len(self._list)} rubrics have {len(self._weights)} weights; give each rubric one")
        if not math.isclose(total := math.fsum(self._weights), 1.0, abs_tol=_TOLERANCE, rel_tol=0.0):
            raise ValueError(f"the weights {self._weights} sum to {total}, not 1.0; RubricComposer takes any weights")
        for number, rubric in enumerate(self._list):
            setattr(self, f"rubric_{number}", rubric)

    @property
    def weights(self) -> list[float]:
        """The weights, in a list of the caller's own."""
        return list(self._weights)

    def forward(self, action: Any, observation: Any) -> float | Awaitable[float]:
        """Return the sum; rubrics that must be awaited run at the same time."""
        return evaluated(self._sum(action, observation))

    def _sum(self, action: Any, observation: Any) -> Steps[float]:
        results = list[Any]()
        try:
            for rubric in self._list:
                results.append(rubric(action, observation))
        except BaseException:  # whatever it was: coroutines that were made must not be left unawaited
            discard(result for result in results if must_await(result))
            raise
        scores = yield from all_settled(results)
        return math.fsum(weight * score for weight, score in zip(self._weights, scores, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, and what the rubrics have."""
        return {"weights": self.weights, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._weights = list(state.get("weights", self._weights))
        super().load_state_dict(state)


class RubricList(Rubric):
    """Holds rubrics by number, for a `forward` of a subclass or for the environment to choose from."""

    def __init__(self, rubrics: Iterable[Any] | None = None) -> None:
        self._list = list[Any]()
        self.extend(rubrics or ())

    def append(self, rubric: Any) -> None:
        """Add a rubric."""
        setattr(self, f"rubric_{len(self._list)}", rubric)
        self._list.append(rubric)

    def extend(self, rubrics: Iterable[Any]) -> None:
        """Add rubrics."""
        for rubric in rubrics:
            self.append(rubric)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, index: int) -> Any:
        return self._list[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list)


class RubricDict(Rubric):
    """Holds rubrics by name, for a `forward` of a subclass or for the environment to choose from."""

    def __init__(self, rubrics: Mapping[str, Any] | None = None) -> None:
        self.update(rubrics or {})

    def update(self, rubrics: Mapping[str, Any]) -> None:
        """Add rubrics, and put them in place of those of the same names."""
        for name, rubric in rubrics.items():
            self[name] = rubric

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._children.keys()

    def values(self) -> ValuesView[Any]:
        """Return the rubrics."""
        return self._children.values()

    def items(self) -> ItemsView[str, Any]:
        """Return the names with the rubrics."""
        return self._children.items()

    def __setitem__(self, name: str, rubric: Any) -> None:
        if not name or "." in name or name in dir(type(self)):
            raise ValueError(f"a rubric can't be called {name!r}: it is a path, or hides an attribute of {type(self).__name__}")
        setattr(self, name, rubric)

    def __getitem__(self, name: str) -> Any:
        return self._children[name]

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)
