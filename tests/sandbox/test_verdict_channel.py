"""Whatever a wrong program writes to its judge, its test does not pass, and the sandbox goes on."""

from __future__ import annotations

import asyncio

import hypothesis
from hypothesis import strategies as st

from reward_loop.config import SandboxConfig
from reward_loop.sandbox.inside.codec import encode
from reward_loop.sandbox.local import LocalSandbox
from reward_loop.sandbox.probe import Probe
from reward_loop.sandbox.verdict import Limits

ANSWERS = st.builds(
    lambda sequence, good, value: encode((sequence, good, value), id),
    st.integers(-1, 3),
    st.booleans() | st.none(),
    st.none() | st.integers(0, 5).filter(lambda number: number != 3) | st.text(max_size=3),
)
FRAMES = st.lists(st.binary(max_size=40) | ANSWERS, max_size=4)
FRAMED = FRAMES.map(lambda frames: b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames))
WRITTEN = st.binary(max_size=60) | FRAMED | st.tuples(FRAMED, st.binary(max_size=8)).map(b"".join)

PROGRAM = """
import os
def write(data):
    for number in range(3, 64):
        try: os.write(number, data)
        except OSError: pass
{early}
def f(x):
    write({late!r})
    {end}
"""


def test_no_bytes_on_the_line_make_a_wrong_program_pass(found: Probe) -> None:
    level = max(level for level in found.levels if level <= 2)
    config = SandboxConfig(level=level, min_level=0)

    @hypothesis.settings(max_examples=25, deadline=None)
    @hypothesis.given(WRITTEN, WRITTEN, st.sampled_from(["return 4", "os._exit(0)", "os.closerange(0, 64)"]))
    def never_passes(early: bytes, late: bytes, end: str) -> None:
        program = PROGRAM.format(early=f"write({early!r})" if early else "", late=late, end=end)
        [result] = runner.run(sandbox.run_tests(program, ["assert f(2) == 3"], limits=Limits(wall_s=0.5)))
        assert result.verdict != "passed"
        [honest] = runner.run(sandbox.run_tests("def f(x): return 3", ["assert f(2) == 3"], limits=Limits(wall_s=30.0)))
        assert honest.verdict == "passed"
        assert sandbox.pid == nursery

    with asyncio.Runner() as runner:
        sandbox = runner.run(opened(config, found, level))
        nursery = sandbox.pid
        try:
            never_passes()
        finally:
            runner.run(sandbox.close())


async def opened(config: SandboxConfig, found: Probe, level: int) -> LocalSandbox:
    sandbox = LocalSandbox(config, found.interpreter, level, found.describe(level), 2)
    await sandbox.start()
    return sandbox
