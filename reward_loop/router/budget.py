"""How many requests may be sent twice: a share of all, so that retries never multiply an overload. Pure."""

from __future__ import annotations

RESERVE = 256
"""Requests that may be sent twice before any share of others is used up: what fails at once when one busy server fails."""


class RetryBudget:
    """Each request earns `share` of a resend, each resend costs one; the purse begins full and holds RESERVE."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._purse = float(RESERVE)
        self._counted = 0

    def spend(self, requests: int) -> bool:
        """Pay for a resend, after so many requests in all; False if there is not enough, and then nothing is taken."""
        self._purse = min(self._purse + (requests - self._counted) * self._share, float(RESERVE))
        self._counted = requests
        if self._purse < 1.0:
            return False
        self._purse -= 1.0
        return True
