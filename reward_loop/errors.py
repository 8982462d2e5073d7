"""Every error that reward_loop raises on purpose, in one tree.

    RewardLoopError
    ├── ConfigError               a setting is wrong; nothing has started yet
    ├── DataError                 a sample, batch or file does not have the promised form
    ├── RewardFunctionError       a reward function failed on a sample
    │   ├── RewardTimeout         it did not end before its deadline
    │   ├── InvalidReward         it returned something that is no finite reward
    │   └── Unscorable            it says that this sample can't be judged (raised by users, never a failure)
    └── WorkerDied                the process that scored a sample died

Invariants: every error pickles (Ray and process pools carry them), its message holds the offending value and the remedy,
and `sample` names the sample when there is one.
"""

from __future__ import annotations


class RewardLoopError(Exception):
    """Base of all errors of this package. `sample` names the sample (or key) it is about, if there is one."""

    def __init__(self, message: str, sample: str | None = None) -> None:
        super().__init__(message, sample)
        self.message = message
        self.sample = sample

    def __str__(self) -> str:
        return self.message if self.sample is None else f"sample {self.sample}: {self.message}"


class ConfigError(RewardLoopError):
    """A setting is wrong; nothing has been started."""


class DataError(RewardLoopError):
    """A sample, a batch or a file does not have the promised form."""


class RewardFunctionError(RewardLoopError):
    """A reward function failed on a sample; the message carries its exception."""


class RewardTimeout(RewardFunctionError):
    """A reward function did not end before its deadline."""


class InvalidReward(RewardFunctionError):
    """A reward function returned something that is not a finite reward."""


class Unscorable(RewardFunctionError):
    """Raised by a reward function to say that this sample can't be judged: masked under every error policy."""


class WorkerDied(RewardLoopError):
    """The process that scored a sample died while it did so."""
