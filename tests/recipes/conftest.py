"""Recipes that serve a tiny model of their own, run side by side; and programs of recipes, run in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.vllm_servers import VLLMServers

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

ServedRecipe = Callable[[str], str]


class Ended(NamedTuple):
    """How the program of a recipe ended; `code` is a text where it ended with a message."""

    code: object
    output: str


RunHere = Callable[..., Ended]


@pytest.fixture(scope="session")
def served_recipe(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vllm_servers: VLLMServers
) -> ServedRecipe:
    """What `run.py` of a recipe printed, of those that the session's tests ask for.

    They have run two at a time, with three servers at most: a start is the work of a single core.
    """
    vllm_servers.make_room(3)
    asking = [item for item in request.session.items if "served_recipe" in getattr(item, "fixturenames", ())]
    files = [item.path.stem for item in asking if not item.get_closest_marker("skip")]
    names = [file.removeprefix("test_") for file in dict.fromkeys(files)]
    with ThreadPoolExecutor(2) as threads:
        runs = dict(zip(names, threads.map(_run, names, [tmp_path_factory.mktemp(name) for name in names]), strict=True))

    def printed(name: str) -> str:
        ended = runs[name]
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return printed


def _run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RECIPES / name / "run.py")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=280)


@pytest.fixture
def run_here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunHere:
    """Run the `main` of a recipe in this process, with these arguments."""

    def run(main: Callable[[], None], *arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exited:
            main()
        return Ended(exited.value.code, capfd.readouterr().out)

    return run
