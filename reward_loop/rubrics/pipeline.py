"""A running reward pipeline: rubrics, composed as a live configuration says, one composer for each episode.

Invariants: an episode keeps the configuration with which it began; only updates that ask for it (`apply: immediate`) reach
running episodes, between two steps, whole or not at all. Rubrics whose settings did not change are kept, the others are made anew
for the episodes after the change.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from reward_loop.errors import RewardLoopError
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.rubrics.composed import Composed
from reward_loop.rubrics.composer import RubricComposer
from reward_loop.rubrics.live_config import LiveConfig, Versioned
from reward_loop.rubrics.refusal import refused
from reward_loop.rubrics.reward_config import RewardConfig, RubricEntry
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.update import Applies, changes_between

Builders: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], Rubric]]
"""What makes each rubric of its settings, by name."""

MOST_THREADS = 64
"""How many synchronous rubrics run at a time."""


@dataclass(frozen=True, slots=True)
class ComposerOptions:
    """How scores become a reward; see `RubricComposer`."""

    normalize: bool | Literal["running"] = True
    aggregate: Literal["sum", "mean"] = "sum"
    strict: bool = False
    skip_zero_weight: bool = False
    max_concurrency: int | None = None


class RubricPipeline:
    """The rubrics of a configuration, which `live` changes while they run."""

    live: LiveConfig

    def __init__(
        self,
        config: RewardConfig,
        builders: Builders,
        options: ComposerOptions | None = None,
        apply: Applies = "next_reset",
    ) -> None:
        self._builders = builders
        self._options = options or ComposerOptions()
        self._threads = ThreadCrew(MOST_THREADS, name="rubric")
        self._lock = threading.Lock()
        self._rubrics = {entry.name: builders[entry.name](entry.config) for _, entry in config.entries()}
        updateable = {name: frozenset(getattr(rubric, "updateable", ())) for name, rubric in self._rubrics.items()}
        self.live = LiveConfig(config, updateable, check=self._check, apply=apply)
        self._composed = self.live.state.active
        self._composer = self._compose(config)

    @property
    def rubrics(self) -> Mapping[str, Rubric]:
        """The rubrics of the newest episode's configuration, by name."""
        return dict(self._rubrics)

    @property
    def is_async(self) -> bool:
        """Whether an evaluation is to be awaited in any case."""
        return self._composer.is_async

    def start_episode(self) -> Episode:
        """Begin an episode, with what holds now; it is a reset as far as updates are concerned."""
        with self._lock:
            begun = self.live.begin_episode()
            if begun is not self._composed:
                self._recompose(begun)
            return Episode(self._composer.clone(), begun, self.live)

    def close(self) -> None:
        """End the threads in which rubrics run."""
        self._threads.close()

    def _recompose(self, new: Versioned) -> None:
        changed = changes_between(self._composed.config, new.config)
        entries = _by_name(new.config)
        if changed.config:
            self._rubrics |= {name: self._builders[name](entries[name].config) for name in changed.config}
            running = self._composer.state_dict()["running"]  # scales that grow are no matter of one rubric's settings
            self._composer = self._compose(new.config)
            self._composer.load_state_dict({"running": running})
        _set(self._composer, new.config)
        self._composed = new

    def _compose(self, config: RewardConfig) -> RubricComposer:
        entries = _by_name(config)
        return RubricComposer(
            {name: self._rubrics[name] for name in entries},
            weights={name: entry.weight for name, entry in entries.items()},
            scales={name: tuple(entry.config["scale"]) for name, entry in entries.items() if "scale" in entry.config},
            phases={entry.name: phase for phase, entry in config.entries()},
            enabled={name: entry.enabled for name, entry in entries.items()},
            on_error={name: entry.on_error for name, entry in entries.items()},
            timeouts_s={name: entry.timeout_s for name, entry in entries.items() if entry.timeout_s is not None},
            threads=self._threads,
            **asdict(self._options),
        )

    def _check(self, old: RewardConfig, new: RewardConfig) -> None:
        """Raise ConfigRefused where a rubric does not take its new settings."""
        entries = _by_name(new)
        for name in changes_between(old, new).config:
            try:
                self._builders[name](entries[name].config)
            except RewardLoopError as error:
                raise refused("bad_config", error.message) from error


class Episode:
    """One episode's rubrics and weights; steps are evaluated one after another."""

    def __init__(self, composer: RubricComposer, begun: Versioned, live: LiveConfig) -> None:
        self.composer = composer
        self._holds = begun
        self._live = live

    @property
    def config_version(self) -> int:
        """The version of the configuration that the last evaluated step had."""
        return self._holds.version

    @property
    def config(self) -> RewardConfig:
        """This configuration."""
        return self._holds.config

    @property
    def weights(self) -> dict[str, float]:
        """Its weights by rubric."""
        return self.composer.weights

    async def evaluate(self, action: Any, observation: Any) -> Composed:
        """Evaluate a step; raises as `RubricComposer.evaluate` does."""
        self._take_immediate()
        return await self.composer.evaluate(action, observation)

    def begin(self, action: Any, observation: Any) -> Composed | Awaitable[Composed]:
        """As `evaluate`, in this thread as far as that goes; see `RubricComposer.begin`."""
        self._take_immediate()
        return self.composer.begin(action, observation)

    def _take_immediate(self) -> None:
        immediate = self._live.state.immediate
        if immediate.version <= self._holds.version:
            return
        # Settings of rubrics can't be put into those that run; then all waits for the next episode.
        if not changes_between(self._holds.config, immediate.config).config:
            _set(self.composer, immediate.config)
            self._holds = immediate


def _set(composer: RubricComposer, config: RewardConfig) -> None:
    composer.update_weights({entry.name: entry.weight for _, entry in config.entries()})
    composer.set_enabled({entry.name: entry.enabled for _, entry in config.entries()})


def _by_name(config: RewardConfig) -> dict[str, RubricEntry]:
    return {entry.name: entry for _, entry in config.entries()}
