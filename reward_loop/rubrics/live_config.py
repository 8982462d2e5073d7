"""The configuration of a running pipeline: what holds now, what holds from the next reset on, and how it came to be.

A state machine without I/O, tasks or a clock: who asks passes in the time, and `record` writes down each change before it
holds. Invariants: a change is checked whole, then holds whole or not at all; whoever reads gets one configuration, never parts
of two; versions count up by one with each change; updates may come from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from reward_loop.rubrics.refusal import refused
from reward_loop.rubrics.reward_config import RewardConfig
from reward_loop.rubrics.update import Applies, Changes, Updateable, changes_between, parse_update, updated

FIRST_VERSION = 1
REMEMBERED = 1000
"""How many changes `audit` holds; the file that `keep_audit` writes has all."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change that holds: the values before and after, of what it changed only."""

    version: int
    time: float
    """Seconds since 1970."""
    who: str
    old: Changes
    new: Changes
    applies: Applies


@dataclass(frozen=True, slots=True)
class Versioned:
    """A configuration with its number."""

    config: RewardConfig
    version: int


@dataclass(frozen=True, slots=True)
class State:
    """All that holds at one moment."""

    active: Versioned
    """What the newest episode began with."""
    latest: Versioned
    """What the next episode will begin with."""
    immediate: Versioned
    """The last one that running episodes take over too."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What an update led to: the configuration that holds from then on, its version, and from when."""

    config: RewardConfig
    version: int
    applies: Applies


class LiveConfig:
    """A configuration that updates change while the pipeline runs.

    `updateable` lists each rubric's settings that may change, `check(old, new)` raises ConfigRefused for values that its rubric
    refuses, and `record` keeps a change before it holds: if it raises, nothing has changed.
    """

    def __init__(
        self,
        config: RewardConfig,
        updateable: Updateable | None = None,
        *,
        check: Callable[[RewardConfig, RewardConfig], None] | None = None,
        record: Callable[[Change], None] | None = None,
        apply: Applies = "next_reset",
    ) -> None:
        first = Versioned(config, FIRST_VERSION)
        self.base = config
        """What it began with."""
        self.updateable: Updateable = updateable or {}
        self.record = record
        self.follows: str | None = None
        """The address that takes the updates in place of this object, if one does."""
        self._check = check
        self._apply: Applies = apply
        self._state = State(first, first, first)
        self._audit = deque[Change](maxlen=REMEMBERED)
        self._watchers = list[Callable[[], object]]()
        self._lock = threading.RLock()

    @property
    def state(self) -> State:
        """All that holds now, of one moment."""
        return self._state

    @property
    def active(self) -> RewardConfig:
        """What the newest episode began with."""
        return self._state.active.config

    @property
    def version(self) -> int:
        """The number of `active`."""
        return self._state.active.version

    @property
    def pending(self) -> RewardConfig:
        """What the next episode will begin with; equal to `active` where nothing has changed since."""
        return self._state.latest.config

    @property
    def latest_version(self) -> int:
        """The number of `pending`."""
        return self._state.latest.version

    @property
    def audit(self) -> tuple[Change, ...]:
        """The last changes, oldest first."""
        return tuple(self._audit)

    def begin_episode(self) -> Versioned:
        """Return what an episode that begins now is to use until its end; it becomes the active one."""
        if self._state.active is not self._state.latest:
            with self._lock:
                self._state = replace(self._state, active=self._state.latest)
        return self._state.active

    def propose(
        self,
        patch: Mapping[str, Any],
        if_match: int | None = None,
        *,
        now: float,
        who: str = "python",
        apply: Applies | None = None,
    ) -> Accepted:
        """Take an update (see `update`), whole or not at all. Of several before a reset the last one wins, field by field.

        `if_match` is the version that the update is made for. Raises ConfigRefused (code "conflict" for another version) and
        SchemaVersionError; then nothing has changed.
        """
        with self._lock:
            if self.follows is not None:
                raise refused("read_only", f"this pipeline follows {self.follows}; send the update there")
            state = self._state
            update = parse_update(patch, state.latest.config, self.updateable)
            for wanted in (if_match, update.config_version):
                if wanted is not None and wanted != state.latest.version:
                    raise refused(
                        "conflict", f"the update is for version {wanted}, and {state.latest.version} holds; read it again"
                    )
            return self._take(update.changes, update.apply or apply, now, who)

    def replay(self, changes: Iterable[Change]) -> None:
        """Take over changes that were recorded before; none of them is recorded again."""
        with self._lock:
            for change in changes:
                new = updated(self.pending, change.new)
                self._refuse_unusable(new)
                self._hold(Versioned(new, change.version), change.applies)
                self._audit.append(change)
        self._tell()

    def adopt(self, latest: Versioned, immediate: Versioned) -> None:
        """Take over what the process that takes the updates has, whatever its version.

        Raises ConfigRefused if it has other rubrics, or settings that this process refuses; then nothing has changed.
        """
        with self._lock:
            for new in (latest.config, immediate.config):
                self._refuse_other_rubrics(new)
                self._refuse_unusable(new)
            active = immediate if immediate != self._state.immediate else self._state.active
            self._state = State(active, latest, immediate)
        self._tell()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Have `changed` called after every change, in the thread that made it; returns what ends this."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def _take(self, changes: Changes, wanted: Applies | None, now: float, who: str) -> Accepted:
        old = self._state.latest
        new = updated(old.config, changes)
        made = changes_between(old.config, new)
        if made.config and wanted == "immediate":
            raise refused("not_updateable", "settings of rubrics change at the next reset only; leave out apply: immediate")
        applies = wanted or ("next_reset" if made.config else self._apply)
        if made:
            self._refuse_unusable(new)
            change = Change(old.version + 1, now, who, changes_between(new, old.config), made, applies)
            if self.record is not None:
                self.record(change)
            self._hold(Versioned(new, change.version), applies)
            self._audit.append(change)
            self._tell()
        latest = self._state.latest
        return Accepted(latest.config, latest.version, applies)

    def _refuse_unusable(self, new: RewardConfig) -> None:
        if self._check is not None:
            self._check(self.pending, new)

    def _hold(self, latest: Versioned, applies: Applies) -> None:
        if applies == "immediate":
            self._state = State(latest, latest, latest)
        else:
            self._state = replace(self._state, latest=latest)

    def _tell(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    def _refuse_other_rubrics(self, theirs: RewardConfig) -> None:
        for ours, other in zip_longest(self._fixed(self.pending), self._fixed(theirs)):
            if ours != other:
                raise refused("bad_config", f"the configuration is of another pipeline: it has {other}, and this one {ours}")

    def _fixed(self, config: RewardConfig) -> list[dict[str, Any]]:
        """What of a configuration never changes."""
        entries = [(phase, entry, self.updateable.get(entry.name, frozenset())) for phase, entry in config.entries()]
        return [
            {
                "phase": phase,
                **{key: value for key, value in entry.as_dict().items() if key not in ("weight", "enabled", "config")},
                "config": {key: value for key, value in entry.config.items() if key not in may},
            }
            for phase, entry, may in entries
        ]
