"""A request that is not served, and why."""

from __future__ import annotations


class Refusal(Exception):
    """Answered with `status` and `reason`; asking again may help after `retry_after_s` seconds, where that is given."""

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(status, reason, retry_after_s)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
