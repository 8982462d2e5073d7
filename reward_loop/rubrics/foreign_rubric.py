"""A rubric of another package, such as OpenEnv's, taken by what it can do and not by its class.

Each OpenEnv installation has a class of its own, and openenv and mcp 2 can't share an environment: nothing is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reward_loop.rubrics.rubric import Rubric


class ForeignRubric(Rubric):
    """Calls another package's rubric; names, paths and state below it are its own.

    Its `last_score` is one per object, so one object follows one episode at a time: composers clone it for each.
    """

    def __init__(self, rubric: Any) -> None:
        self.inner: Any
        self.__dict__["inner"] = rubric  # not set as an attribute, which would make it a child: those below it are
        for name in ("scale", "updateable"):
            if (said := getattr(rubric, name, None)) is not None:
                setattr(self, name, said)

    def forward(self, action: Any, observation: Any) -> Any:
        """Return what it gives."""
        return self.inner(action, observation)

    def children(self) -> Iterator[Any]:
        """Yield the rubrics directly below it."""
        yield from self.inner.children()

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Yield them with their names."""
        yield from self.inner.named_children()

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yield all rubrics below it with their paths."""
        yield from self.inner.named_rubrics(prefix)

    def reset(self) -> None:
        """Reset it, where it can be."""
        if callable(reset := getattr(self.inner, "reset", None)):
            reset()

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        return dict(self.inner.state_dict()) if hasattr(self.inner, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give it its state."""
        if state:
            self.inner.load_state_dict(dict(state))

    def __repr__(self) -> str:
        return f"ForeignRubric({type(self.inner).__name__})"
