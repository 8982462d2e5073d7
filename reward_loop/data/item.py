"""One row of a batch, as iteration and `data[i]` give it.

Invariant: nothing is read from the batch before it is asked for.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensordict import TensorDict

    from reward_loop.data.proto import DataProto


class DataProtoItem:
    """One row: `batch` without its batch dimension, `non_tensor_batch` with the row's own values, `meta_info`."""

    def __init__(self, row: DataProto) -> None:
        self._row = row
        self.meta_info = row.meta_info

    @cached_property
    def batch(self) -> TensorDict | None:
        """The row's tensors, or None if there are none."""
        batch = self._row.batch
        return None if batch is None else batch[0]

    @cached_property
    def non_tensor_batch(self) -> dict[str, Any]:
        """The row's values by column."""
        return {name: column[0] for name, column in self._row.non_tensor_batch.items()}

    def __reduce__(self) -> tuple[type[DataProtoItem], tuple[DataProto]]:
        # As a batch of one row, because a TensorDict's pickle holds all of the storage that its tensors look at.
        batch = None if self.batch is None else self.batch.unsqueeze(0)
        columns = {name: [value] for name, value in self.non_tensor_batch.items()}
        return DataProtoItem, (type(self._row)(batch, columns, self.meta_info),)
