from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.truncation import Fit


def test_what_fits_is_left_as_it_is() -> None:
    assert Fit(3)([1, 2, 3]) == [1, 2, 3]
    assert Fit(None)(list(range(100_000))) == list(range(100_000))


def test_too_long_is_an_error_with_both_lengths_unless_truncation_is_asked_for() -> None:
    with pytest.raises(DataError, match=r"4 tokens.*takes 3: raise .*max_model_len.*too_long=truncate_left"):
        Fit(3)([1, 2, 3, 4])


def test_truncation_keeps_the_end_and_the_token_that_begins_every_text() -> None:
    assert Fit(3, "truncate_left")([7, 1, 2, 3, 4]) == [2, 3, 4]
    assert Fit(3, "truncate_left", first_token=7)([7, 1, 2, 3, 4]) == [7, 3, 4]
    assert Fit(3, "truncate_left", first_token=7)([1, 7, 2, 3, 4]) == [2, 3, 4]


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(2, 20), st.sampled_from([None, 0]))
def test_truncated_conversations_are_never_longer_than_the_limit_and_end_as_they_did(
    ids: list[int], limit: int, first: int | None
) -> None:
    kept = Fit(limit, "truncate_left", first)(list(ids))
    assert len(kept) == min(limit, len(ids))
    assert kept[1:] == ids[len(ids) - len(kept) + 1 :]


def test_a_model_without_room_for_a_response_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="takes 3 tokens has no room for a response: the chat template closes it with 2"):
        Fit(3, end_tokens=2)
