"""The wrapper that keeps what scoring asks of a service within a limit, and repeats what the service put off."""

from __future__ import annotations

from collections.abc import Sequence

from reward_loop.data import DataProto
from reward_loop.errors import ConfigError, TooManyRequests
from reward_loop.limits.current import under
from reward_loop.limits.reservation import Limiter, Reservation
from reward_loop.limits.retry_after import Throttled, throttled
from reward_loop.managers.scorer import Scorer
from reward_loop.outcome import Reward

ATTEMPTS = 10
"""How often a unit is sent that the service answers with 429 each time."""


def with_rate_limit(scorer: Scorer, limiter: Limiter, attempts: int = ATTEMPTS) -> Scorer:
    """Return a scorer that waits for its turn before each unit; a 429 halts all who share the limit, and the unit goes again.

    What a unit took is what its clients reported, else `usage` in its rewards' extra info, else the estimate. Raises
    TooManyRequests after `attempts` times 429; other errors pass through.
    """

    async def score(data: DataProto) -> Sequence[Reward | Exception]:
        for attempt in range(1, attempts + 1):
            async with limiter.reserve() as reservation:
                report = Report(reservation)
                try:
                    with under(report):
                        results = await scorer(data)
                except Exception as error:  # user code may raise anything; what is no 429 passes through
                    if (answer := report.put_off(error)) is None:
                        raise
                    if attempt == attempts:
                        raise _given_up(attempts, error, answer) from error
                    continue
                report.settle(results)
                return results
        raise ConfigError(f"with_rate_limit(attempts={attempts}): it must be at least 1")

    return score


def _given_up(attempts: int, error: Exception, answer: Throttled) -> TooManyRequests:
    return TooManyRequests(
        f"{error}; so it answered each of {attempts} attempts: lower reward_model.rate_limit.max_rpm, max_tpm or max_concurrent",
        error.body if isinstance(error, TooManyRequests) else "",
        answer.retry_after_s,
    )


class Report:
    """The reservation that one unit works under: adds up what its requests took, and remembers what was said."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._tokens = 0
        self._said_429 = False

    def used(self, tokens: int) -> None:
        """Say how many tokens one more response counted."""
        self._tokens += tokens
        self._reservation.used(self._tokens)

    def throttled(self, retry_after_s: float | None) -> None:
        """Say that the service answered 429."""
        self._said_429 = True
        self._reservation.throttled(retry_after_s)

    def put_off(self, error: Exception) -> Throttled | None:
        """Return what an error says if it is a 429, having reported it unless its client did."""
        answer = throttled(error)
        if answer is not None and not self._said_429:
            self.throttled(answer.retry_after_s)
        return answer

    def settle(self, results: Sequence[Reward | Exception]) -> None:
        """Say what the results tell of the tokens that the unit took, and of a 429, unless its clients did."""
        if not self._tokens and (counted := sum(map(_tokens_of, results))):
            self.used(counted)
        for result in results:
            if isinstance(result, Exception):
                self.put_off(result)


def _tokens_of(result: Reward | Exception) -> int:
    usage = result.extra.get("usage") if isinstance(result, Reward) else None
    if not isinstance(usage, dict):
        return 0
    total = usage.get("total_tokens")
    counts = [total] if total is not None else [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    return sum(count for count in counts if isinstance(count, int) and count > 0)
