"""The random numbers that tokens are drawn with: a function of seed, sample and position alone.

Invariant: nothing else goes in, so the same seed draws the same tokens whatever is in the batch, however a call is split, and on
whichever device or process it runs. A generator per sequence would give the same at many times the cost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

_STEP = 0x9E3779B97F4A7C15
_64 = 0xFFFF_FFFF_FFFF_FFFF


def sample_keys(seed: int, samples: int) -> Keys:
    """Return the keys of the sequences of a call with this seed."""
    start = np.array([seed & _64], dtype=np.uint64)
    return _mixed(_mixed(start) + np.arange(1, samples + 1, dtype=np.uint64) * np.uint64(_STEP))


def uniforms(keys: Keys, position: int) -> npt.NDArray[np.float64]:
    """Return for each sequence the number in [0, 1) that draws its token at `position`.

    Splitmix64 (Steele, Lea and Flood, OOPSLA 2014), whose n-th number needs no number before it.
    """
    bits = _mixed(keys + _steps(position + 1)) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _steps(count: int) -> np.uint64:
    # Python's integers: numpy warns where the product of two scalars wraps around, which it does not of arrays.
    return np.uint64(count * _STEP & _64)


def _mixed(value: Keys) -> Keys:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
