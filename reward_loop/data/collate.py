"""From one dict per sample to columns. Invariant: no sample's keys can hide, drop or break another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reward_loop.data.columns import Column, check_name


def collate_columns(infos: Sequence[Mapping[str, object]]) -> dict[str, Column]:
    """One object array of len(infos) per key that any info has, in the order first seen; None where one lacks it.

    Raises DataError for a key that is not a str.
    """
    columns: dict[str, Column] = {}
    for row, info in enumerate(infos):
        for name, value in info.items():
            column = columns.get(name)
            if column is None:
                check_name(name)
                column = columns[name] = np.full(len(infos), None, dtype=object)
            column[row] = value
    return columns
