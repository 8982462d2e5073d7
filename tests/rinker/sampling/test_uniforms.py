from __future__ import annotations

import numpy as np

from reward_loop.rinker.sampling.uniforms import sample_keys, uniforms


def test_the_numbers_are_those_of_splitmix64() -> None:
    # Of seed 1234567, published with the generator: 6457827717110365317, 3203168211198807973, 9817491932198370423.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    keys = np.array([1234567], dtype=np.uint64)
    assert [uniforms(keys, position)[0] for position in range(3)] == [(value >> 11) * 2.0**-53 for value in published]


def test_numbers_are_spread_evenly_over_positions_samples_and_seeds() -> None:
    for keys, positions in (
        (sample_keys(1, 1), 4000),
        (sample_keys(1, 4000), 1),
        (np.concatenate([sample_keys(seed, 1) for seed in range(4000)]), 1),
    ):
        found = np.concatenate([uniforms(keys, position) for position in range(positions)])
        counts, _ = np.histogram(found, bins=10, range=(0, 1))
        assert abs(counts - 400).max() < 80  # more than four standard deviations
        assert len(np.unique(found)) == 4000
        assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.06


def test_seeds_of_any_size_have_numbers_of_their_own() -> None:
    keys = [int(sample_keys(seed, 1)[0]) for seed in (-1, 0, 1, 2**63, 2**64 - 2)]
    assert len(set(keys)) == 5
