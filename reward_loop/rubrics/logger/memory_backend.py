"""Records kept in this process, for tests and for code that looks at them itself."""

from __future__ import annotations

from collections import deque

from reward_loop.rubrics.logger.record import Record


class MemoryBackend:
    """The last `max_records` records, oldest first, in `records`."""

    def __init__(self, max_records: int = 100_000) -> None:
        self.records: deque[Record] = deque(maxlen=max_records)
        self.closed = False

    def write(self, record: Record) -> None:
        """Keep it."""
        self.records.append(record)

    def flush(self) -> None:
        """Do nothing: what is written can be read."""

    def close(self) -> None:
        """Say so in `closed`."""
        self.closed = True
