"""The last numbers seen, at most so many, and where another one stands among them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence

_GOLDEN = 0.6180339887498949


class Window:
    """Up to `size` numbers; one more pushes out the oldest."""

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self._size = size
        self._by_age: deque[float] = deque()
        self._ordered: list[float] = []
        self._append(values)

    def add(self, values: Sequence[float]) -> None:
        """Take in numbers that arrived together, whose order therefore means nothing and changes nothing."""
        self._append(spread(values) if len(values) > 1 else values)

    def merge(self, values: Sequence[float]) -> None:
        """Take in another window's numbers, the oldest first; where there are too many, the older ones of both go."""
        aged = sorted(_with_age(self._by_age) + _with_age(values))
        self._by_age = deque((value for _, value in aged), maxlen=self._size)
        self._ordered = sorted(self._by_age)

    def rank(self, value: float) -> float:
        """Return the share of the numbers that are less, equal ones counting half."""
        less, not_more = bisect_left(self._ordered, value), bisect_right(self._ordered, value)
        return (less + not_more) / 2 / len(self._ordered)

    def percentile(self, percent: float) -> float:
        """Return it, interpolated between the two numbers around it."""
        place = percent / 100 * (len(self._ordered) - 1)
        below = int(place)
        above = min(below + 1, len(self._ordered) - 1)
        return self._ordered[below] + (place - below) * (self._ordered[above] - self._ordered[below])

    @property
    def low(self) -> float:
        """The smallest."""
        return self._ordered[0]

    @property
    def high(self) -> float:
        """The largest."""
        return self._ordered[-1]

    def values(self) -> list[float]:
        """Return them, the oldest first."""
        return list(self._by_age)

    def _append(self, values: Iterable[float]) -> None:
        for value in values:
            if len(self._by_age) == self._size:
                del self._ordered[bisect_left(self._ordered, self._by_age.popleft())]
            self._by_age.append(value)
            insort(self._ordered, value)


def spread(values: Sequence[float]) -> list[float]:
    """Return the numbers in an order of their own, in which every stretch holds low and high ones alike.

    Ordered by arrival, a batch would leave other numbers in the window each time; in ascending order, its low ones first.
    """
    ordered = sorted(values)
    return [ordered[place] for place in sorted(range(len(ordered)), key=lambda place: place * _GOLDEN % 1.0)]


def _with_age(values: Iterable[float]) -> list[tuple[float, float]]:
    listed = list(values)
    return [((place + 1) / len(listed), value) for place, value in enumerate(listed)]
