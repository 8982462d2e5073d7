"""The entry point that vLLM calls in each of its processes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from reward_loop.serving.inside import register
from reward_loop.serving.inside.versions import installed_vllm
from tests.processes import ROOT


def test_vllm_finds_the_entry_point() -> None:
    [plugin] = entry_points(group="vllm.general_plugins", name="reward_loop")
    assert plugin.load() is register


@pytest.mark.skipif(installed_vllm() is None, reason="vLLM is not installed: make setup")
def test_registering_is_cheap_and_silent_and_may_be_done_again() -> None:
    program = (
        "import sys; from reward_loop.serving.inside import register; register(); register();"
        "sys.exit(len({'torch', 'vllm'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
