"""Metrics of parts, joined as the Tinker SDK joins those of its chunks."""

from __future__ import annotations

import pytest

from reward_loop.errors import TrainingError
from reward_loop.rinker.losses.metrics import joined_metrics


def test_the_name_says_how() -> None:
    parts = [
        ({"a:sum": 1.0, "b:mean": 2.0, "c:min": 3.0, "d:max": 4.0}, 1),
        ({"a:sum": 2.0, "b:mean": 6.0, "c:min": 1.0, "d:max": 0.0}, 3),
    ]
    assert joined_metrics(parts) == {"a:sum": 3.0, "b:mean": 5.0, "c:min": 1.0, "d:max": 4.0}


def test_what_a_part_does_not_have_is_left_out() -> None:
    assert joined_metrics([({"a:sum": 1.0, "b:sum": 1.0}, 1), ({"a:sum": 1.0}, 1)]) == {"a:sum": 2.0}
    assert joined_metrics([]) == {}


@pytest.mark.parametrize("name", ["loss", "loss:median", ":sum", "a:b:sum"])
def test_a_name_without_a_reduction_is_refused(name: str) -> None:
    with pytest.raises(TrainingError, match="must be called NAME:REDUCTION"):
        joined_metrics([({name: 1.0}, 1)])


def test_the_sdk_joins_them_to_the_same() -> None:
    helpers = pytest.importorskip("tinker.lib.chunked_fwdbwd_helpers")
    types = pytest.importorskip("tinker.types")
    parts = [({"loss:sum": 1.5, "entropy:mean": 2.0, "a:max": 1.0}, 1), ({"loss:sum": 2.0, "entropy:mean": 6.0, "a:max": 3.0}, 3)]
    outputs = [
        types.ForwardBackwardOutput(loss_fn_output_type="", loss_fn_outputs=[{}] * count, metrics=metrics)
        for metrics, count in parts
    ]
    assert helpers.combine_fwd_bwd_output_results(outputs).metrics == pytest.approx(joined_metrics(parts))
