"""From token ids to text, many rows at once.

Invariant: the text is what `tokenizer.decode(ids, skip_special_tokens=True)` returns, whichever way is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reward_loop.data.byte_level import table_of
from reward_loop.data.columns import Column
from reward_loop.errors import ConfigError


class Decoder:
    """Decodes rows of token ids with the policy's tokenizer; special tokens are left out."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._table = None if tokenizer is None else table_of(tokenizer)

    def check(self) -> None:
        """Raise ConfigError if there is no tokenizer."""
        if self._tokenizer is None:
            raise ConfigError(
                "responses are token ids, but there is no tokenizer to decode them: "
                "set actor_rollout_ref.model.path (or tokenizer_path) to the policy's, or pass text as solution_str"
            )

    def __call__(self, rows: Sequence[Column]) -> list[str]:
        """Return the text of each row of token ids; raises for ids that no tokenizer can take."""
        self.check()
        if self._table is not None:
            return self._table.decode(rows)
        return [self._tokenizer.decode(row.tolist(), skip_special_tokens=True) for row in rows]
