"""The tester of `run_tests` as one self-contained text, for a service that takes nothing but the text of a program."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGES = ("reward_loop", "reward_loop.sandbox", "reward_loop.sandbox.inside")
_MODULES = ("channel", "codec", "program", "served", "tester")


@cache
def tester_script() -> str:
    """Return `fusion_script` behind the text of the modules that it needs."""
    here = Path(__file__).parent
    sources = dict.fromkeys(_PACKAGES, "")
    sources |= {f"reward_loop.sandbox.inside.{name}": (here / "inside" / f"{name}.py").read_text("utf-8") for name in _MODULES}
    script = (here / "fusion_script.py").read_text("utf-8")
    return script.replace("SOURCES: dict[str, str] = {}", f"SOURCES: dict[str, str] = {sources!r}", 1)
