"""Reads a ground truth that a rule compares with text; a missing one is refused, for every answer would be wrong."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real

from reward_loop.errors import DataError


def truth_text(ground_truth: object) -> str:
    """The ground truth, a text or a number (18.0 is 18), as stripped text; DataError for anything else and for ""."""
    match ground_truth:
        case str() if ground_truth.strip():
            return ground_truth.strip()
        case bool():
            pass
        case float() if ground_truth.is_integer():  # a column of whole numbers with one gap comes so from Parquet
            return str(int(ground_truth))
        case Real() | Decimal():
            return str(ground_truth)
        case _:
            pass
    raise DataError(
        f"the ground truth {ground_truth!r} is neither a text nor a number; "
        "put the expected answer into reward_model['ground_truth'] of the data set"
    )
