"""The rubric: a scoring rule that is an object, made of other rubrics as a torch module is of modules.

Names and semantics are OpenEnv's (its RFC 004 as shipped), so that its users' rubrics run here by changing an import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

from reward_loop.rubrics.evaluation import Given, Steps, call_under_way, called, evaluated, must_await, remembered, settled
from reward_loop.rubrics.score import Score, score_of

PreHook = Callable[["Rubric", Any, Any], object]
Hook = Callable[["Rubric", Any, Any, Score], object]

_OWN = ("_children", "_pre_hooks", "_hooks", "_score")


class Rubric:
    """Subclass it and write `forward`, synchronous or async; call the rubric itself, which runs the hooks too.

    A rubric that is set as an attribute becomes a child, and takes the place of one that was there under this name.
    """

    scale: ClassVar[tuple[float, float] | None] = None
    """(lowest, highest) score, where it isn't (0, 1): what composers normalise by."""

    _children: dict[str, Any]
    _pre_hooks: list[PreHook]
    _hooks: list[Hook]
    _score: Score | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return a rubric that has no children yet, also where a subclass forgets super().__init__()."""
        del args, kwargs
        rubric = super().__new__(cls)
        rubric.__dict__.update(_children={}, _pre_hooks=[], _hooks=[], _score=None)
        return rubric

    def forward(self, action: Any, observation: Any) -> Any:
        """Return the score of an action and of what came of it: a number, a mapping with "score", or an awaitable of one."""
        raise NotImplementedError(f"{type(self).__name__} needs forward(action, observation)")

    def __call__(self, action: Any, observation: Any) -> Any:
        """Return the `Score`: at once where nothing had to be awaited, else an awaitable of it (and a score may be awaited too).

        Raises what `forward` raises, and as `score_of` does for what is no score.
        """
        record = call_under_way()
        if record is None or self._pre_hooks or self._hooks:
            return called(self._steps(action, observation))
        result = self.forward(action, observation)  # most calls are within a composer's or container's, and have no hooks
        return evaluated(self._later(result)) if must_await(result) else self._took(result, record)

    def _later(self, result: Any) -> Steps[Score]:
        return self._took((yield from settled(result)), call_under_way())

    def _took(self, result: Any, record: Given | None) -> Score:
        self.__dict__["_score"] = score = score_of(result)
        if record is not None:
            record[id(self)] = self, score
        return score

    def _steps(self, action: Any, observation: Any) -> Steps[Score]:
        for before in tuple(self._pre_hooks):
            yield from settled(before(self, action, observation))
        result = self.forward(action, observation)
        score = self._took((yield from settled(result)) if must_await(result) else result, call_under_way())
        for after in tuple(self._hooks):
            yield from settled(after(self, action, observation, score))
        return score

    @property
    def hooked(self) -> bool:
        """Whether there are hooks, which see the step too."""
        return bool(self._pre_hooks or self._hooks)

    @property
    def last_score(self) -> Score | None:
        """What the last call gave: that of this task or thread, where it made one; None before the first."""
        here = remembered(self)
        return self._score if here is None else here

    def register_forward_pre_hook(self, hook: PreHook) -> None:
        """Have `hook(rubric, action, observation)`, synchronous or async, run before `forward`."""
        self._pre_hooks.append(hook)

    def register_forward_hook(self, hook: Hook) -> None:
        """Have `hook(rubric, action, observation, score)`, synchronous or async, run after `forward`."""
        self._hooks.append(hook)

    def children(self) -> Iterator[Any]:
        """Yield the rubrics that this one is made of."""
        yield from self._children.values()

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Yield them with their names."""
        yield from self._children.items()

    def rubrics(self) -> Iterator[Any]:
        """Yield every rubric below this one, parents before their children."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yield every rubric below this one with its path, such as "code.syntax"."""
        for name, child in self._children.items():
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from child.named_rubrics(path)

    def get_rubric(self, path: str) -> Any:
        """Return the rubric at a path such as "code.syntax"; KeyError where there is none."""
        found: Any = self
        for name in path.split("."):
            try:
                found = dict(found.named_children())[name]
            except KeyError:
                raise KeyError(f"there is no rubric {path!r}; there are {[path for path, _ in self.named_rubrics()]}") from None
        return found

    def reset(self) -> None:
        """Forget the episode, in every rubric below too. Override to forget more, and call super."""
        for child in self._children.values():
            child.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs: here that of the rubrics below, by path. Override to add settings, and call super."""
        return {f"{name}.{key}": value for name, child in self._children.items() for key, value in child.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        for name, child in self._children.items():
            start = f"{name}."
            child.load_state_dict({key.removeprefix(start): value for key, value in state.items() if key.startswith(start)})

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _OWN:
            if is_rubric(value):
                self._children[name] = value
            else:
                self._children.pop(name, None)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._children.pop(name, None)
        super().__delattr__(name)


def is_rubric(value: object) -> bool:
    """Say whether an object is a rubric, of this package or of another: it is called, and knows the rubrics below it."""
    return isinstance(value, Rubric) or (
        not isinstance(value, type) and callable(value) and hasattr(value, "named_rubrics") and hasattr(value, "forward")
    )


def scores_below(rubric: Rubric) -> dict[str, float]:
    """Return what the rubrics below one gave in its last call here, by path; without those that were not asked."""
    if not rubric.__dict__["_children"] and type(rubric).named_rubrics is Rubric.named_rubrics:
        return {}  # most have nothing below them
    scores = ((path, getattr(below, "last_score", None)) for path, below in rubric.named_rubrics())
    return {path: float(score) for path, score in scores if score is not None}
