"""One JSON object per step in a file: needs no package, and any tool reads it."""

from __future__ import annotations

import json
from pathlib import Path

from reward_loop.errors import ConfigError
from reward_loop.rubrics.logger.record import UPDATES, Record


class JsonlBackend:
    """Appends to `path` lines such as `{"step": 3, "time": …, "reward/total": 0.5, "config/updates": [{"version": 2, …}]}`."""

    def __init__(self, path: str | Path = "rewards.jsonl") -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(path).open("a+", buffering=1, encoding="utf-8")  # noqa: SIM115 - open until `close`
        except OSError as error:
            raise ConfigError(f"backend='jsonl', path={path}: {error}; give a file that can be written to") from error
        self._end_broken_line()

    def write(self, record: Record) -> None:
        """Write its line."""
        numbers = {name: value for name, value in record.numbers().items() if name != UPDATES}
        updates = [{"version": update.version, "changes": update.changes} for update in record.updates]
        line = {"step": record.step, "time": record.time, **numbers, **({UPDATES: updates} if updates else {})}
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False, default=str) + "\n")

    def flush(self) -> None:
        """Do nothing: every line goes to the operating system at once, so that a killed run has lost none that was written."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _end_broken_line(self) -> None:
        """Keep the first line of this run apart from what a killed run left without its end."""
        end = self._file.tell()
        if end:
            self._file.seek(end - 1)
            if self._file.read(1) != "\n":
                self._file.write("\n")
