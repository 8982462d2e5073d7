"""What a grader process does: call the function on one sample after the other and send each result at once.

Invariant: a result is on its way before the next sample begins, so that of the samples that a process has, the first without a
result is the one under way.
"""

from __future__ import annotations

import functools
import os
import resource
import select
import socket
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import cloudpickle

from reward_loop.errors import ConfigError, InvalidReward, RewardFunctionError, RewardLoopError, RewardTimeout
from reward_loop.functions.user_code import UserCode
from reward_loop.isolation.frames import Frames, framed
from reward_loop.outcome import describe

TICKET = 8
"""Bytes that name a sample, before its inputs and before its result."""
DROP_ALL_BUT = bytes(TICKET)
"""In place of a ticket: the frame takes back every sample which has not begun, but the one whose ticket follows."""
READY = b"ready"
"""The frame that says that this process can begin with samples."""
LEAVING = b"end"
"""The frame that says that this process ends by itself and begins with no other sample."""

_PIECE = 1 << 16


def load(code: UserCode, pickled: bytes) -> Callable[..., Any]:
    """Return the function with its constants, the user's code loaded first; ConfigError if that fails."""
    try:
        code.load()
        function, constants = cloudpickle.loads(pickled)
    except Exception as error:  # unpickling imports the user's modules, which may raise anything
        problem = f"the reward function can't be loaded in another process: {describe(error)}"
        raise ConfigError(f"{problem}; set reward_model.isolation=thread to run it in this one") from error
    return functools.partial(function, **constants)


def serve(channel: socket.socket, function: Callable[..., Any]) -> None:
    """Grade what comes over the channel until it is closed."""
    frames, waiting = Frames(), deque[bytes]()
    arrived = select.poll()
    arrived.register(channel, select.POLLIN)
    channel.sendall(framed(READY))
    while True:
        while not waiting or arrived.poll(0):
            if not (piece := channel.recv(_PIECE)):
                return
            for frame in frames.feed(piece):
                if frame.startswith(DROP_ALL_BUT):
                    waiting = deque(sample for sample in waiting if sample[:TICKET] == frame[TICKET:])
                else:
                    waiting.append(frame)
        sample = waiting.popleft()
        try:
            graded = _grade(function, sample[TICKET:])
        except MemoryError as error:
            channel.sendall(framed(sample[:TICKET] + _failed(_out_of_memory(error), error)) + framed(LEAVING))
            return  # what filled the memory may still be there
        channel.sendall(framed(sample[:TICKET] + graded))


def bound_memory(memory_mb: int) -> None:
    """Let this process take `memory_mb` MiB more than it has now; what it asks for beyond that is a MemoryError."""
    # The data, not the address space: libraries reserve far more addresses than they use.
    has = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    limit = has + (memory_mb << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _grade(function: Callable[..., Any], pickled: bytes) -> bytes:
    """Return the pickled result, or one of our errors: not every other exception survives pickling."""
    try:
        result = function(**cloudpickle.loads(pickled))
        if isinstance(result, Awaitable):
            raise InvalidReward("it returned an awaitable, which only works in this process: set reward_model.isolation=thread")
        return cloudpickle.dumps(result)  # type: ignore[no-any-return]
    except MemoryError:
        raise
    except RewardLoopError as error:
        return _failed(error, error)
    except TimeoutError as error:
        return _failed(RewardTimeout(describe(error)), error)
    except BaseException as error:  # noqa: BLE001 - user code may raise anything; the parent reports it
        return _failed(RewardFunctionError(describe(error)), error)


def _failed(error: RewardLoopError, raised: BaseException) -> bytes:
    """Return the pickled error, with the traceback of what was raised as a note."""
    theirs = raised.__traceback__ and raised.__traceback__.tb_next  # without our own line
    error.add_note("".join(traceback.format_exception(type(raised), raised, theirs)).rstrip())
    return cloudpickle.dumps(error.with_traceback(None))  # type: ignore[no-any-return]


def _out_of_memory(error: MemoryError) -> RewardFunctionError:
    return RewardFunctionError(f"{describe(error)}: it took more memory than reward_model.grader.memory_mb allows")
