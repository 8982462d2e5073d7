"""Ground truths come as texts and numbers of all libraries."""

from decimal import Decimal

import numpy as np
import pytest

from reward_loop.errors import DataError
from reward_loop.functions.ground_truth import truth_text


@pytest.mark.parametrize("truth", ["18", " 18\n", 18, 18.0, np.int64(18), np.float64(18), np.str_("18"), Decimal(18)])
def test_a_text_or_a_number_is_its_text(truth: object) -> None:
    assert truth_text(truth) == "18"


@pytest.mark.parametrize("truth", [None, "", "  ", True, b"18", ["18"], {"target": "18"}])
def test_anything_else_is_refused_with_its_value(truth: object) -> None:
    with pytest.raises(DataError) as refusal:
        truth_text(truth)
    assert repr(truth) in str(refusal.value)
