"""Synchronous reward functions in grader processes, which end at a sample's deadline and are replaced when they die.

Invariants: `timeout_s` counts from the moment at which a process begins with a sample; the process of one that exceeds it is
killed with all that it started; a crash or a hang costs the sample that was under way, and those handed over behind it go to
another process; no lock or queue is shared between processes, so that none can be left in a bad state; nothing is left
behind when the pool or its driver ends. (pebble, which has deadlines too, takes one task at a time over one locked pipe.)
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from reward_loop.config import GraderConfig
from reward_loop.deadline import late, waiting
from reward_loop.errors import ConfigError, DataError, RewardFunctionError, RewardLoopError, WorkerDied
from reward_loop.functions.user_code import UserCode
from reward_loop.isolation import grading
from reward_loop.isolation.grader import Grader, Job, cause_of_death
from reward_loop.isolation.growth import SampleTime, handed_over, niceness, stuck_after
from reward_loop.isolation.nursery import Setup
from reward_loop.isolation.nursery_process import NurseryProcess
from reward_loop.machine import cores_per_worker
from reward_loop.outcome import describe

_TICK_S = 0.005
_DEATH_REPORT_S = 1.0
_NURSERIES = 3
_STILLBORN = 10
_LEAST_MOST = 32


def processes_for(settings: GraderConfig, workers_on_node: int) -> tuple[int, int]:
    """Return how many processes one of the node's workers uses, usually and at most."""
    usual = settings.processes or cores_per_worker(workers_on_node)
    return usual, settings.max_processes or max(_LEAST_MOST, 4 * usual)


class GraderPool:
    """Processes that run one function; `constants` are passed once, not with every call. Used from one event loop at a time."""

    def __init__(
        self,
        function: Callable[..., Any],
        constants: Mapping[str, Any],
        *,
        processes: int,
        max_processes: int,
        timeout_s: float | None,
        memory_mb: int,
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError(f"grader processes need Linux; on {sys.platform} set reward_model.isolation=thread")
        pickled = cloudpickle.dumps((function, dict(constants)))
        self._setup = Setup(UserCode.of_this_process(), pickled, memory_mb)
        self._processes, self._max_processes = processes, max_processes
        self._timeout_s = timeout_s
        self._time = SampleTime()
        self._tickets = itertools.count(1)
        self._jobs: dict[bytes, Job] = {}
        self._queue: deque[Job] = deque()
        self._graders: list[Grader] = []
        self._forking: deque[Grader] = deque()
        self._nursery: NurseryProcess | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Future[None] | None = None
        self._dispatching = self._ticking = False
        self._stillborn = 0

    async def start(self) -> None:
        """Start the processes, so that the first sample need not wait; ConfigError if the function can't be loaded there."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what belonged to the last loop, which is over, can't be awaited here
            self._end_nursery()
            self._jobs.clear()
            self._queue.clear()
            self._dispatching = self._ticking = False
            self._loop, self._opened = loop, None
        if self._opened is None:
            self._opened = loop.create_future()
            self._start_nursery()
        await asyncio.shield(self._opened)

    async def call(self, inputs: Mapping[str, Any]) -> Any:
        """Return what the function returns for these inputs.

        Raises RewardTimeout, WorkerDied (its process crashed), the function's own error where it is one of ours, and otherwise
        RewardFunctionError with its text and line; the traceback is the error's note. A call that is cancelled kills its process.
        """
        with waiting():
            await self.start()
            ticket = next(self._tickets).to_bytes(grading.TICKET, "big")
            job = Job(ticket, cloudpickle.dumps(dict(inputs)), self._running.create_future())
            self._jobs[ticket] = job
            self._queue.append(job)
            self._dispatch_soon()
            try:
                result = await job.result
            except asyncio.CancelledError:
                self._abandon(job)
                raise
        if isinstance(result, RewardLoopError):
            raise result
        return result

    def close(self) -> None:
        """Kill the processes, whatever they do."""
        self._end_nursery()
        self._opened = None
        closed = WorkerDied("the reward loop was closed before this sample was scored")
        if self._loop is not None and not self._loop.is_closed():
            for job in list(self._jobs.values()):
                self._settle(job, closed)
        self._queue.clear()

    @property
    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the pool has not been started")
        return self._loop

    # Processes come and go

    def _start_nursery(self) -> None:
        self._nursery = NurseryProcess(self._setup)
        self._running.add_reader(self._nursery.control.fileno(), self._hear, self._nursery)

    def _end_nursery(self) -> None:
        if self._nursery is None:
            return
        for grader in self._graders:
            self._unwatch(grader.channel)
        self._graders.clear()
        self._forking.clear()
        self._unwatch(self._nursery.control)
        self._nursery.close()
        self._nursery = None

    def _unwatch(self, channel: socket.socket) -> None:
        if self._loop is not None and not self._loop.is_closed() and channel.fileno() >= 0:
            self._loop.remove_reader(channel.fileno())
            self._loop.remove_writer(channel.fileno())
        channel.close()

    def _hear(self, nursery: NurseryProcess) -> None:
        for kind, text in nursery.reports():
            match kind:
                case "ready":
                    for _ in range(self._processes):
                        self._add_grader(nursery)
                    if self._opened is not None and not self._opened.done():
                        self._opened.set_result(None)
                case "failed":
                    self._refuse(ConfigError(text))
                case "forked":
                    grader = self._forking.popleft()
                    grader.pid = int(text)
                    if grader.end is not None:
                        nursery.kill(grader.pid)
                case "died":
                    pid, status = map(int, text.split())
                    self._bury(pid, status)
                case "gone":
                    self._nursery_died()
                case _:
                    pass
            if self._nursery is not nursery:
                return

    def _refuse(self, error: ConfigError) -> None:
        """Give up: neither this nor any later sample can be scored."""
        self._end_nursery()
        if self._opened is None or self._opened.done():
            self._opened = self._running.create_future()
        self._opened.set_exception(error)
        for job in list(self._jobs.values()):
            self._settle(job, error)

    def _nursery_died(self) -> None:
        """Start another and score again what its graders had, unless nurseries die of that."""
        lost = [job for grader in self._graders for job in grader.jobs]
        self._end_nursery()
        if self._opened is None or not self._opened.done():
            self._refuse(ConfigError("the process that loads the reward function for grading died of it; its output says how"))
            return
        for job in reversed(lost):
            job.nurseries_lost += 1
            if job.nurseries_lost == _NURSERIES:
                self._settle(job, WorkerDied(f"the process that starts graders died {_NURSERIES} times while this was scored"))
            else:
                self._queue.appendleft(job)
        self._start_nursery()
        self._dispatch_soon()

    def _add_grader(self, nursery: NurseryProcess) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        grader = Grader(ours)
        with theirs:
            nursery.fork(theirs)
        self._forking.append(grader)
        self._graders.append(grader)
        self._running.add_reader(ours.fileno(), self._answered, grader)

    def _let_go(self, grader: Grader) -> None:
        """End an idle process by closing its channel."""
        self._graders.remove(grader)
        self._unwatch(grader.channel)

    def _bury(self, pid: int, status: int) -> None:
        grader = next((grader for grader in self._graders if grader.pid == pid), None)
        if grader is None:  # it was let go
            return
        self._read(grader)  # its last results may still be there
        self._let_go(grader)
        if grader.jobs:
            self._settle(
                grader.jobs.popleft(), grader.end or WorkerDied(f"the process that scored it died ({cause_of_death(status)})")
            )
        self._take_back(grader)
        if not grader.ready and not grader.end:
            self._stillborn += 1
            if self._stillborn == _STILLBORN:
                self._refuse(
                    ConfigError(f"grader processes die ({cause_of_death(status)}) before they can begin; see their output")
                )
        self._adjust()

    def _kill(self, grader: Grader, reason: RewardLoopError) -> None:
        """Kill a process for the sample under way, once; the ones behind it go to others at once."""
        if grader.end is None and grader in self._graders:
            grader.end = reason
            self._take_back(grader, keep=1)
            if grader.pid is not None and self._nursery is not None:
                self._nursery.kill(grader.pid)
            self._adjust()

    # Samples come and go

    def _abandon(self, job: Job) -> None:
        self._jobs.pop(job.ticket, None)
        for grader in self._graders:
            if grader.jobs and grader.jobs[0] is job:
                self._kill(grader, WorkerDied("its caller was cancelled"))
                return

    def _take_back(self, grader: Grader, keep: int = 0) -> None:
        """Queue the jobs that a process has not begun again, before all others."""
        while len(grader.jobs) > keep:
            self._queue.appendleft(grader.jobs.pop())
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if not self._dispatching and self._queue:
            self._dispatching = True
            self._running.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = False
        now = self._running.time()
        usable = [grader for grader in self._graders if grader.usable]
        # One each, then another each, so that few samples spread over all processes.
        for depth in range(handed_over(self._time.mean_s, len(self._queue), max(1, len(usable)))):
            for grader in usable:
                if len(grader.jobs) <= depth and (job := self._next_job()) is not None:
                    grader.give(job, now)
        for grader in usable:
            self._send(grader)
        self._tick_later()

    def _next_job(self) -> Job | None:
        while self._queue:
            job = self._queue.popleft()
            if job.ticket in self._jobs:  # else its caller was cancelled, or another process was quicker
                return job
        return None

    def _send(self, grader: Grader) -> None:
        if grader.flush():
            self._running.add_writer(grader.channel.fileno(), self._send, grader)
        elif grader.channel.fileno() >= 0:
            self._running.remove_writer(grader.channel.fileno())

    def _answered(self, grader: Grader) -> None:
        self._read(grader)
        if grader.closed:
            self._running.remove_reader(grader.channel.fileno())
            # It ended, which the nursery is about to report with its status, unless the function closed all files.
            gone = WorkerDied("the process that scored it closed its channel to the reward loop")
            self._running.call_later(_DEATH_REPORT_S, self._kill, grader, gone)
            return
        # Before it runs out of work, but not for each sample.
        low = handed_over(self._time.mean_s, len(self._queue), len(self._graders)) // 2
        if self._queue and grader.usable and len(grader.jobs) <= low:
            self._dispatch()

    def _read(self, grader: Grader) -> None:
        """Take the results that have arrived."""
        try:
            for frame in grader.read():
                match frame:
                    case grading.READY:
                        grader.ready = True
                        self._stillborn = 0
                        self._dispatch_soon()
                    case grading.LEAVING:
                        grader.closed = True
                        self._take_back(grader)
                    case _:
                        self._ended(grader, frame[: grading.TICKET], frame[grading.TICKET :])
        except DataError as error:
            self._kill(grader, WorkerDied(error.message))

    def _ended(self, grader: Grader, ticket: bytes, result: bytes) -> None:
        now = self._running.time()
        if grader.jobs and grader.jobs[0].ticket == ticket:
            grader.jobs.popleft()
            self._time.ended(now - grader.since)
            grader.since = now
        if (job := self._jobs.get(ticket)) is None:
            return
        try:
            self._settle(job, cloudpickle.loads(result))
        except Exception as error:  # noqa: BLE001 - unpickling a result runs the user's code
            self._settle(job, RewardFunctionError(f"what it returned can't be sent to another process: {describe(error)}"))

    def _settle(self, job: Job, result: object) -> None:
        if self._jobs.pop(job.ticket, None) is not None and not job.result.done():
            job.result.set_result(result)

    # Time passes

    def _tick_later(self) -> None:
        if self._jobs and not self._ticking:
            self._ticking = True
            self._running.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = self._running.time()
        for grader in list(self._graders):
            if self._timeout_s is not None and grader.running_s(now) > self._timeout_s:
                self._read(grader)  # its result may have been lying there
                if grader.running_s(now) > self._timeout_s:
                    self._kill(grader, late(self._timeout_s))
        self._adjust()
        self._tick_later()

    def _adjust(self) -> None:
        """Have the usual number of processes beside those whose sample looks stuck, which yield to them."""
        if self._nursery is None:
            return
        now = self._running.time()
        living = [grader for grader in self._graders if not (grader.end or grader.closed)]
        stuck_s = stuck_after(self._time.mean_s, self._timeout_s, len(living), self._processes)
        for grader in living:
            if grader.stuck and not grader.jobs:
                self._let_go(grader)  # it was slowed down
            elif not grader.stuck and grader.running_s(now) > stuck_s:
                grader.stuck = True
                self._take_back(grader, keep=1)
                grader.write(grading.DROP_ALL_BUT + grader.jobs[0].ticket)
                self._send(grader)
        stuck = [grader for grader in living if grader.stuck and grader.jobs]
        for grader in stuck:
            grader.slow_down(niceness(len(stuck), self._processes))
        working = sum(not grader.stuck for grader in living)
        wanted = min(self._processes, self._max_processes - len(stuck)) if self._queue or not stuck else self._processes
        for _ in range(wanted - working):
            self._add_grader(self._nursery)
        self._dispatch_soon()
