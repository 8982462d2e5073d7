"""Who may update the weights, and how far they are: one session at a time, its steps in their order, until a time is over.

Invariants: no clock, no I/O; a session that ended never goes on; one whose commit has begun does not expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from reward_loop.serving.inside.reply import Refusal

Step = Literal["ticket", "prepare", "transfer", "verify", "commit", "revert"]
Phase = Literal["started", "ticketed", "prepared", "received", "verified", "committed"]

_BEGINS_IN: Mapping[Step, tuple[Phase, ...]] = {
    "ticket": ("started",),
    "prepare": ("ticketed",),
    "transfer": ("prepared",),
    "verify": ("received",),
    "commit": ("received", "verified"),
    "revert": ("started",),
}
_ENDS_IN: Mapping[Step, Phase] = {
    "ticket": "ticketed",
    "prepare": "prepared",
    "transfer": "received",
    "verify": "verified",
    "commit": "committed",
    "revert": "committed",
}
_CALLS: Mapping[Step, str] = {
    "ticket": "POST /init_weight_transfer_engine",
    "prepare": "POST /update_weights with phase prepare",
    "transfer": "POST /update_weights with phase transfer",
    "verify": "POST /update_weights with phase verify",
    "commit": "POST /finish_weight_update",
    "revert": "POST /finish_weight_update with revert",
}


@dataclass(slots=True, eq=False)
class UpdateSession:
    """One update of one trainer."""

    name: str
    trainer: str
    since_s: float
    """When it began, on the clock of who passes the time in."""
    timeout_s: float
    phase: Phase = "started"
    step: Step | None = None
    """The step that is under way."""
    version: int = 0
    """What it will be once it is prepared."""
    full: bool = False
    """Whether it brings every weight."""
    ended: Refusal | None = None
    """Why it is over."""

    @property
    def expires_s(self) -> float:
        """When it is over, unless its commit has begun."""
        return self.since_s + self.timeout_s

    def expired(self, now_s: float) -> bool:
        """Say whether its time is over."""
        return self.step not in ("commit", "revert") and now_s >= self.expires_s

    def describe(self, now_s: float) -> str:
        """Say who updates the weights, since when, how far they are and until when."""
        rest = "it will not be stopped" if self.step in ("commit", "revert") else f"{self.expires_s - now_s:.1f} s are left to it"
        since = f"since {now_s - self.since_s:.1f} s"
        return f"{self.trainer} updates the weights in the session {self.name!r} {since} ({self.step or self.phase}; {rest})"

    def still(self) -> None:
        """Raise why it is over, if it is."""
        if self.ended is not None:  # a new error each time: it would keep every frame that it was raised in
            raise Refusal(self.ended.status, self.ended.kind, str(self.ended))

    def begin(self, step: Step, now_s: float) -> None:
        """Begin a step; raises Refusal (409) if another one is under way or has to come first, or the time is over."""
        self.still()
        if self.expired(now_s):
            raise self.expiry()
        if self.step is not None:
            raise Refusal(409, "out_of_order", f"session {self.name!r}: {_CALLS[self.step]} is still under way")
        if self.phase not in _BEGINS_IN[step]:
            able = [_CALLS[each] for each, phases in _BEGINS_IN.items() if self.phase in phases]
            raise Refusal(
                409,
                "out_of_order",
                f"session {self.name!r} is {self.phase}: {_CALLS[step]} can't be next, but {' or '.join(able)}",
            )
        self.step = step

    def succeed(self) -> None:
        """End the step that is under way."""
        if self.step is not None:
            self.phase, self.step = _ENDS_IN[self.step], None

    def expiry(self) -> Refusal:
        """Return what a session ends with whose time is over."""
        return Refusal(
            504, "expired", f"session {self.name!r} was over after timeout_s={self.timeout_s:g}; the old weights serve"
        )


class UpdateSlot:
    """The one place for a session."""

    def __init__(self) -> None:
        self.session: UpdateSession | None = None
        self._last: UpdateSession | None = None

    def claim(self, name: str, trainer: str, timeout_s: float, now_s: float) -> UpdateSession:
        """Return a new session; raises Refusal (409) while another one is alive. One that has expired has to be ended first."""
        if self.session is not None:
            raise Refusal(409, "busy", f"{self.session.describe(now_s)}; try again when it has ended")
        self.session = UpdateSession(name, trainer, now_s, timeout_s)
        return self.session

    def expired(self, now_s: float) -> UpdateSession | None:
        """Return the session whose time is over and that has not been ended."""
        return self.session if self.session is not None and self.session.expired(now_s) else None

    def named(self, name: str, now_s: float) -> UpdateSession:
        """Return the session of this name; raises Refusal (409) if there is none, or why it is over."""
        if self.session is not None and self.session.name == name:
            return self.session
        if self._last is not None and self._last.name == name:
            self._last.still()
        other = f"; {self.session.describe(now_s)}" if self.session is not None else ""
        raise Refusal(409, "no_session", f"there is no session {name!r}: POST /start_weight_update first{other}")

    def end(self, session: UpdateSession, why: Refusal) -> bool:
        """End a session, if it is not over; says whether it was not."""
        if session.ended is not None:
            return False
        session.ended = why
        if self.session is session:
            self.session, self._last = None, session
        return True
