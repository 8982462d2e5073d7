"""The normalizer that training code calls: what it saw of each environment, and one method.

Invariants: a call takes the reward in first and normalises it then; a batch is taken in whole before any of it is normalised, and
its result and what is kept of it do not depend on the order of arrival; a bad reward or state changes nothing; calls from
several threads are as if one came after the other.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from reward_loop.errors import InvalidReward
from reward_loop.outcome import finite
from reward_loop.rubrics.normalizer.history import History
from reward_loop.rubrics.normalizer.interval import interval
from reward_loop.rubrics.normalizer.method import Method
from reward_loop.rubrics.normalizer.min_max import MinMax
from reward_loop.rubrics.normalizer.moments import Moments
from reward_loop.rubrics.normalizer.percentile import Percentile
from reward_loop.rubrics.normalizer.population import Population
from reward_loop.rubrics.normalizer.running_mean_std import RunningMeanStd

_logger = logging.getLogger(__name__)

MethodName = Literal["running_mean_std", "min_max", "percentile", "population"]
EnvId = str | int
DEFAULT_ENVIRONMENT = "default"
_VERSION = 1


class RewardNormalizer:
    """Make rewards of different environments comparable; every value comes back within `clip_range` (None: as it is).

    Single calls see what came before them, so their results depend on the order; code that scores samples side by side calls
    `batch`. Set `update` to False to normalise by what is known without learning from it. Not for GRPO: a z-score before the
    group's mean is subtracted rescales the advantages (see `reward_loop.credit.Normalization`).
    """

    def __init__(
        self,
        method: MethodName = "running_mean_std",
        per_environment: bool = True,
        clip_range: tuple[float, float] | None = (-10.0, 10.0),
        eps: float = 1e-8,
        update: bool = True,
        window: int = 10_000,
        percentile_range: tuple[float, float] | None = None,
        max_environments: int = 4096,
        degenerate: float = 0.0,
    ) -> None:
        if not eps > 0 or window < 1 or max_environments < 1:
            raise ValueError(f"eps={eps} must be above 0, window={window} and max_environments={max_environments} at least 1")
        if percentile_range is not None and method != "percentile":
            raise ValueError(f"percentile_range={percentile_range} is for method='percentile'; the method is {method!r}")
        self.method: MethodName = method
        self.update = update
        self._method = _method(method, eps, percentile_range, degenerate)
        self._clip_range = None if clip_range is None else interval("clip_range", clip_range)
        self._window = window if self._method.keeps_window else None
        self._most = max_environments
        self._seen: OrderedDict[str, History] = OrderedDict()
        self._said_forgotten = False
        self._lock = threading.Lock()
        if per_environment and self._method.pooled:
            _logger.warning("method=population is over all environments; per_environment=True is ignored, set it to False")
        self.per_environment = per_environment and not self._method.pooled

    def __call__(self, reward: float, env_id: EnvId | None = None) -> float:
        """Return the reward normalised among those of its environment. Raises ValueError for what is no finite number."""
        value, name = _number(reward), self._name(env_id)
        with self._lock:
            if self.update:
                self._take_in(name, [value])
                self._forget()
            return self._normalized([value], [self._seen.get(name)])[0]

    def batch(self, rewards: Iterable[float], env_ids: Iterable[EnvId | None] | None = None) -> list[float]:
        """Return the rewards normalised, in their order; without `env_ids` all are of one environment.

        Raises ValueError, and learns nothing, where a reward is no finite number or has no environment.
        """
        values = [_number(reward) for reward in rewards]
        names = [self._name(env_id) for env_id in ([None] * len(values) if env_ids is None else env_ids)]
        if len(names) != len(values) or isinstance(env_ids, str):
            raise ValueError(f"{len(values)} rewards have the env_ids {names!r:.200}; name the environment of each in a list")
        with self._lock:
            if self.update:
                self._take_in_batch(values, names)
            if self._method.pooled and values:
                normalized = self._normalized(values, [History(values, None)] * len(values))
            else:
                normalized = self._normalized(values, [self._seen.get(name) for name in names])
            self._forget()
        return normalized

    @property
    def stats(self) -> dict[str, Moments]:
        """Count, mean, spread and range of every environment's rewards so far, as they are now."""
        with self._lock:
            return {name: seen.moments for name, seen in self._seen.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen, as JSON can hold it: loaded again, the next results are the same to the bit."""
        with self._lock:
            return self._state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. Raises ValueError, and changes nothing, for one of another method, kind or version."""
        seen = self._read(state)
        with self._lock:
            self._seen = OrderedDict(seen)
            self._forget()

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another process saw: its state, or its `drain` where it is merged again and again."""
        other = self._read(state)
        with self._lock:
            for name, history in other.items():
                if name in self._seen:
                    self._seen[name].merge(history)
                    self._seen.move_to_end(name)
                else:
                    self._seen[name] = history
            self._forget()

    def drain(self) -> dict[str, Any]:
        """Return the state and forget it, so that what is merged elsewhere is counted once."""
        with self._lock:
            state = self._state()
            self._seen.clear()
            return state

    def _take_in_batch(self, values: list[float], names: list[str]) -> None:
        rewards_of: dict[str, list[float]] = {}
        for value, name in zip(values, names, strict=True):
            rewards_of.setdefault(name, []).append(value)
        for name in sorted(rewards_of):  # which environment is forgotten first must not depend on the order of arrival
            self._take_in(name, rewards_of[name])

    def _take_in(self, name: str, rewards: list[float]) -> None:
        if name in self._seen:
            self._seen[name].add(rewards)
            self._seen.move_to_end(name)
        else:
            self._seen[name] = History(rewards, self._window)

    def _forget(self) -> None:
        """Drop the environments not used for longest, beyond the most that are kept."""
        if len(self._seen) > self._most and not self._said_forgotten:
            self._said_forgotten = True
            _logger.warning(
                "more than %d environments: the least recently used are forgotten; is env_id=%r an episode's id?",
                self._most,
                next(reversed(self._seen)),
            )
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)

    def _name(self, env_id: EnvId | None) -> str:
        return str(env_id) if self.per_environment and env_id is not None else DEFAULT_ENVIRONMENT

    def _normalized(self, values: list[float], seen: Sequence[History | None]) -> list[float]:
        """Return the rewards as they stand in their environments; one of which nothing is known is as it came."""
        pairs = zip(values, seen, strict=True)
        normalized = [value if history is None else self._method.normalize(history, value) for value, history in pairs]
        if self._clip_range is None:
            return normalized
        low, high = self._clip_range
        return [min(max(value, low), high) for value in normalized]

    def _state(self) -> dict[str, Any]:
        return {**self._kind(), "envs": {name: seen.as_state() for name, seen in self._seen.items()}}

    def _kind(self) -> dict[str, Any]:
        return {"version": _VERSION, "method": self.method, "per_environment": self.per_environment}

    def _read(self, state: Mapping[str, Any]) -> dict[str, History]:
        for key, value in self._kind().items():
            if state.get(key) != value:
                raise ValueError(f"the state has {key}={state.get(key)!r}, this normalizer {key}={value!r}; build one like it")
        envs = state.get("envs")
        if not isinstance(envs, Mapping):
            raise ValueError(f"the state's envs are {envs!r:.200}, not a mapping of names to statistics")
        return {str(name): History.from_state(held, self._window) for name, held in envs.items()}

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**self.__dict__, "_lock": None, "_seen": self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._seen = OrderedDict(self._read(state["_seen"]))


def _method(name: str, eps: float, percentile_range: tuple[float, float] | None, degenerate: float) -> Method:
    match name:
        case "running_mean_std":
            return RunningMeanStd(eps)
        case "min_max":
            return MinMax(degenerate)
        case "percentile":
            return Percentile(percentile_range, degenerate)
        case "population":
            return Population(eps)
        case _:
            raise ValueError(f"method={name!r} is none of {', '.join(get_args(MethodName))}")


def _number(reward: object) -> float:
    try:
        return finite(reward) + 0.0  # -0.0 becomes 0.0, so that equal rewards have equal bits
    except InvalidReward as error:
        raise ValueError(f"{error}; leave samples without a reward out") from None
