"""Synchronous reward functions in other processes, which end at the sample's deadline and are replaced when they die.

Invariants: `timeout_s` counts from the moment a process takes a sample (queueing excluded); the process of a sample that
exceeds it is killed; a crash costs the sample that caused it; the child loads the user's files itself, so what it runs is what
the parent would run.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import pebble

from reward_loop.errors import ConfigError, RewardFunctionError, RewardLoopError, RewardTimeout, WorkerDied
from reward_loop.functions.custom import load_module, user_modules
from reward_loop.outcome import describe

_START_METHOD = "forkserver"  # a fork of a process with threads deadlocks; spawn pays the start of an interpreter each time


class GraderProcesses:
    """Processes that run one synchronous function; `constants` are passed once, not with every call."""

    def __init__(
        self, function: Callable[..., Any], constants: Mapping[str, Any], processes: int, timeout_s: float | None
    ) -> None:
        self._timeout_s = timeout_s
        self._pool = pebble.ProcessPool(
            max_workers=processes,
            context=multiprocessing.get_context(_START_METHOD),
            initializer=_prepare,
            initargs=(user_modules(), cloudpickle.dumps((function, dict(constants)))),
        )

    async def call(self, inputs: Mapping[str, Any]) -> Any:
        """Return what the function returns for these inputs.

        Raises RewardTimeout, WorkerDied (its process crashed), the function's own error where it is one of ours, and otherwise
        RewardFunctionError with its text and line.
        """
        future = self._pool.schedule(_grade, args=[cloudpickle.dumps(dict(inputs))], timeout=self._timeout_s)
        try:
            ended: bytes = await asyncio.wrap_future(future)
        except TimeoutError:
            limit = f"{self._timeout_s} s (reward_model.timeout_s)"
            raise RewardTimeout(f"not scored within {limit}; its process was killed") from None
        except pebble.ProcessExpired as error:
            raise WorkerDied(f"the process that scored it died (exit code {error.exitcode})") from None
        result = cloudpickle.loads(ended)
        if isinstance(result, RewardLoopError):
            raise result
        return result

    def close(self) -> None:
        """Kill the processes, whatever they do."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()


_function: Callable[..., Any]


def _prepare(modules: list[str], pickled: bytes) -> None:
    """Load the function, or remember why it can't be: a process that dies here would be started over and over."""
    global _function
    try:
        for path in modules:
            load_module(path)
        function, constants = cloudpickle.loads(pickled)
        _function = functools.partial(function, **constants)
    except Exception as error:  # noqa: BLE001 - unpickling imports the user's modules, which may raise anything
        _function = functools.partial(_refuse, describe(error))


def _refuse(problem: str, **_: Any) -> None:
    raise ConfigError(f"the reward function can't be loaded in another process: {problem}")


def _grade(pickled: bytes) -> bytes:
    """Return the pickled result, or one of our errors: not every other exception survives pickling."""
    try:
        return _pickled(_function(**cloudpickle.loads(pickled)))
    except RewardLoopError as error:
        return _pickled(error)
    except TimeoutError as error:
        return _pickled(RewardTimeout(describe(error)))
    except BaseException as error:  # noqa: BLE001 - user code may raise anything; the parent reports it
        return _pickled(RewardFunctionError(describe(error)))


def _pickled(value: object) -> bytes:
    return cloudpickle.dumps(value)  # type: ignore[no-any-return]
