"""Batches of samples and what scoring needs to know about them: the data layer, public names only."""

from __future__ import annotations

from reward_loop.data.collate import collate_columns
from reward_loop.data.columns import Column
from reward_loop.data.copying import private_copy
from reward_loop.data.foreign import as_data_proto, like
from reward_loop.data.item import DataProtoItem
from reward_loop.data.proto import DataProto
from reward_loop.data.responses import response_lengths

__all__ = [
    "Column",
    "DataProto",
    "DataProtoItem",
    "as_data_proto",
    "collate_columns",
    "like",
    "private_copy",
    "response_lengths",
]
