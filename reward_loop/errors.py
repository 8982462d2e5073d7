"""Every error that reward_loop raises on purpose, in one tree.

    RewardLoopError
    ├── ConfigError               a setting is wrong; nothing has started yet
    ├── DataError                 a sample, batch or file does not have the promised form
    ├── RewardFunctionError       a reward function failed on a sample
    │   ├── RewardTimeout         it did not end before its deadline
    │   ├── InvalidReward         it returned something that is no finite reward
    │   └── Unscorable            it says that this sample can't be judged (raised by users, never a failure)
    ├── WorkerDied                the process that scored a sample died
    ├── SandboxError              the sandbox failed to run a program: a failure of ours, never the program's
    ├── RewardServerError         a server that was asked for a reward failed
    │   ├── ServerUnavailable     it can't be reached, or answered 5xx
    │   ├── ServerAsleep          it sleeps: nothing may be sent to it until it is awake
    │   └── RequestRejected       it answered 4xx: asking again as before is useless (`status`, `body`)
    │       └── TooManyRequests   it answered 429: asking again after `retry_after_s` may work
    ├── RouterError               the router in front of the servers could not be started, or did not do what it was told
    ├── WeightSyncError           new weights did not reach the servers, which keep serving the old ones
    ├── RubricError               a rubric of a pipeline failed (`rubric` is its name), or what it gave can't be used
    │   ├── JudgeError            a judge gave no usable answer: a failure of the judge's, never a low score
    │   └── SchemaVersionError    a rubric configuration is of another version than this code (`expected`, `got`)
    └── TrainingError             a model could not be trained
        ├── RequestFailedError    a request of a training API ended without a result (`category`: whose fault it is)
        └── AuthenticationError   the training API does not know the key that it was given

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


class SandboxError(RewardLoopError):
    """The sandbox failed to run a program; says nothing about the program."""


class RewardServerError(RewardLoopError):
    """A server that was asked for a reward failed."""


class ServerUnavailable(RewardServerError):
    """The server can't be reached, or answered that it can't serve now (5xx)."""


class ServerAsleep(RewardServerError):
    """The servers of the reward model sleep; hold a lease of the RewardModelManager while you ask them."""


class RequestRejected(RewardServerError):
    """The server refused the request (4xx); `body` is the beginning of what it said."""

    def __init__(self, message: str, status: int, body: str = "", sample: str | None = None) -> None:
        super().__init__(message, sample)
        self.status = status
        self.body = body

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.status, self.body, self.sample), self.__dict__


class TooManyRequests(RequestRejected):
    """The server asked to be left alone for `retry_after_s` seconds (None: it did not say for how long)."""

    def __init__(self, message: str, body: str = "", retry_after_s: float | None = None, sample: str | None = None) -> None:
        super().__init__(message, 429, body, sample)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.body, self.retry_after_s, self.sample), self.__dict__


class RouterError(RewardLoopError):
    """The router in front of the reward servers could not be started, or did not do what it was told."""


class WeightSyncError(RewardLoopError):
    """New weights did not reach the servers, or are too old; the message says which tensor or replica, and why."""


class RubricError(RewardLoopError):
    """A rubric failed; `rubric` is its name in the pipeline, where it has one."""

    def __init__(self, message: str, sample: str | None = None, rubric: str | None = None) -> None:
        super().__init__(message, sample)
        self.rubric = rubric

    def __str__(self) -> str:
        return super().__str__() if self.rubric is None else f"rubric {self.rubric}: {super().__str__()}"


class JudgeError(RubricError):
    """A judge could not be asked, or gave no answer that can be used."""


class SchemaVersionError(RubricError):
    """A rubric configuration is of another schema version (`got`) than this code reads (`expected`)."""

    def __init__(self, message: str, sample: str | None = None, expected: str = "", got: str = "") -> None:
        super().__init__(message, sample)
        self.expected = expected
        self.got = got


class TrainingError(RewardLoopError):
    """A model could not be trained: its data, its head or its loss."""


class RequestFailedError(TrainingError):
    """A request to a training API failed; `category` says whose fault it is: "user", "server" or "unknown"."""

    def __init__(self, message: str, sample: str | None = None, category: str = "unknown") -> None:
        super().__init__(message, sample)
        self.category = category


class AuthenticationError(TrainingError):
    """A training API refused the API key."""
