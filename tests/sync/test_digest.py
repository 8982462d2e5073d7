"""The digest of a bucket: it sees any damage, and is the same wherever and however it is made."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.sync.digest import WIDTH, WORDS, digest_of

TABLE_BYTES = WORDS * 8
ROW_BYTES = WIDTH * 8
ROWS = WORDS // WIDTH


@cache
def _random(seed: int) -> torch.Tensor:
    return torch.randint(256, (4 * TABLE_BYTES,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def bucket(size: int, seed: int = 0) -> torch.Tensor:
    return _random(seed)[:size].clone()


def digest_of_words(words: torch.Tensor) -> str:
    return digest_of(words.view(torch.uint8))


SIZES = st.one_of(st.integers(1, 300), st.sampled_from([TABLE_BYTES - 1, TABLE_BYTES, 2 * TABLE_BYTES + 13]))


@settings(max_examples=25)
@given(SIZES, st.data())
def test_any_changed_byte_changes_it(size: int, data: st.DataObject) -> None:
    original = bucket(size)
    changed = original.clone()
    changed[data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
    assert digest_of(changed) != digest_of(original)


@pytest.mark.parametrize("distance", [1, 2, WIDTH - 1, WIDTH, WIDTH + 1, 5 * WIDTH, 5 * (WIDTH + 1), WORDS - 1, WORDS, WORDS + 1])
@pytest.mark.parametrize("word", [1, 0x3F80 << 48, 1 << 62, -(1 << 63)])
def test_two_words_that_change_places_change_it(distance: int, word: int) -> None:
    """Also those that differ in their highest bit alone, as x and -x do."""
    words = bucket(3 * TABLE_BYTES).view(torch.int64)
    for here in (0, 7 * WIDTH + 11, WORDS - 1):
        words[here + distance] = words[here] ^ word
        swapped = words.clone()
        swapped[here], swapped[here + distance] = words[here + distance], words[here]
        assert digest_of_words(swapped) != digest_of_words(words)


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, WIDTH - 1), min_size=2, max_size=2, unique=True), st.integers(0, WIDTH), st.sampled_from([1, 1 << 62])
)
def test_rows_with_the_same_sum_that_change_places_change_it(rows: list[int], shift: int, word: int) -> None:
    """As in an identity matrix: each row has one word, and the sums of all rows are the same."""
    table = torch.zeros(ROWS, WIDTH, dtype=torch.int64)
    table[torch.arange(ROWS), (torch.arange(ROWS) + shift) % WIDTH] = word
    swapped = table.clone()
    swapped[rows] = table[rows[::-1]]
    assert digest_of_words(swapped.view(-1)) != digest_of_words(table.view(-1))


@pytest.mark.parametrize("size", [8, 64, ROW_BYTES, 5 * ROW_BYTES, TABLE_BYTES])
@pytest.mark.parametrize("distance", [1, 3])
def test_two_blocks_that_change_places_change_it(size: int, distance: int) -> None:
    original = bucket(4 * TABLE_BYTES)
    first, second = slice(0, size), slice(distance * size, (distance + 1) * size)
    swapped = original.clone()
    swapped[first], swapped[second] = original[second], original[first]
    assert digest_of(swapped) != digest_of(original)


@pytest.mark.parametrize("size", [1, 7, 8, 9, TABLE_BYTES])
def test_a_tail_that_is_missing_or_too_much_changes_it_also_where_it_is_zero(size: int) -> None:
    longer = torch.cat([bucket(TABLE_BYTES + 24), torch.zeros(size, dtype=torch.uint8)])
    assert digest_of(longer) != digest_of(longer[:-size])


def test_a_slot_that_still_has_an_earlier_bucket_in_part_changes_it() -> None:
    mixed = bucket(2 * TABLE_BYTES)
    mixed[: TABLE_BYTES // 2] = bucket(TABLE_BYTES // 2, seed=1)
    assert digest_of(mixed) != digest_of(bucket(2 * TABLE_BYTES))


def test_it_depends_on_the_bytes_alone() -> None:
    original = bucket(3 * TABLE_BYTES + 11)
    moved = torch.cat([torch.zeros(3, dtype=torch.uint8), original])[3:]
    assert moved.data_ptr() % 8
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = digest_of(original)
    torch.set_num_threads(threads)
    assert digest_of(moved) == alone == digest_of(original)


def test_it_is_what_it_was() -> None:
    """Trainer and server may run other versions of the package."""
    assert digest_of(torch.arange(256, dtype=torch.uint8).repeat(9000)) == "f9fd6b98f98f74cc2c4863c02724df2a"


@pytest.mark.gpu
@pytest.mark.parametrize("size", [5, 4096, 3 * TABLE_BYTES + 13])
def test_a_gpu_makes_the_same_one(size: int) -> None:
    assert digest_of(bucket(size).cuda()) == digest_of(bucket(size))
