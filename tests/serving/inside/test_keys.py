"""Who may ask a server with keys."""

from __future__ import annotations

import pytest

from reward_loop.serving.inside.keys import check_key
from reward_loop.serving.inside.reply import Refusal


@pytest.mark.parametrize(("keys", "shown"), [([], None), ([None], b"Bearer x"), (["a"], b"Bearer a"), (["a", "b"], b"Bearer b")])
def test_a_right_key_passes_and_any_where_there_is_none(keys: list[str | None], shown: bytes | None) -> None:
    check_key(keys, [] if shown is None else [(b"authorization", shown)])


@pytest.mark.parametrize("shown", [None, b"", b"Bearer ", b"Bearer b", b"a", b"Basic a", b"Bearer \xff"])
def test_a_wrong_key_is_refused(shown: bytes | None) -> None:
    with pytest.raises(Refusal) as caught:
        check_key(["a"], [] if shown is None else [(b"authorization", shown)])
    assert (caught.value.status, caught.value.kind) == (401, "unauthorized")
