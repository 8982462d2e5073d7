"""Running a recipe's script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_script(script: Path, *arguments: str, folder: Path, timeout_s: float = 280.0) -> str:
    """Run a script in a folder, with this interpreter's commands as in an activated environment; return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(script), *arguments]
    environment = {**os.environ, "PATH": path}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
