"""How torch computes during a call; afterwards it is as it was for whoever else uses it.

Both are the process's, and its models train side by side in threads: the switch stays on while one of them wants it, and of those
that draw random numbers one computes at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch

from reward_loop.errors import RequestFailedError

DRAWING = threading.RLock()
"""To be held by whoever sets torch's random state, until it has put back the one that it found."""


class _Switch:
    """Deterministic algorithms: on while anybody uses them, then again as it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = (False, False)

    @contextmanager
    def on(self) -> Generator[None]:
        """Be one who uses them."""
        with self._lock:
            if self._users == 0:
                self._before = (
                    torch.are_deterministic_algorithms_enabled(),
                    torch.is_deterministic_algorithms_warn_only_enabled(),
                )
                torch.use_deterministic_algorithms(True)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    enabled, warn_only = self._before
                    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


_SWITCH = _Switch()


@contextmanager
def deterministic(wanted: bool, device: torch.device) -> Generator[None]:
    """Use only algorithms that give the same result every time.

    The switch is the process's: what other threads compute meanwhile obeys it too.
    """
    if not wanted:
        yield
        return
    if device.type == "cuda" and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        raise RequestFailedError(
            "deterministic=True on a GPU needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment before torch is first used",
            category="server",
        )
    with _SWITCH.on():
        yield


class OwnRandomness:
    """Random numbers of one engine, which nobody else's draws change."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [device] if device.type == "cuda" else list[torch.device]()
        with DRAWING, torch.random.fork_rng(self._devices):
            torch.manual_seed(seed)
            self.state = self._read()

    @contextmanager
    def drawn(self) -> Generator[None]:
        """Let what is drawn inside come from here; other engines that draw wait meanwhile."""
        with DRAWING, torch.random.fork_rng(self._devices):
            torch.set_rng_state(self.state["cpu"])
            if "cuda" in self.state:
                torch.cuda.set_rng_state(self.state["cuda"], self._devices[0])
            yield
            self.state = self._read()

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from a `state`; of the kinds of devices that this one has."""
        self.state = {name: state.get(name, value) for name, value in self.state.items()}

    def _read(self) -> dict[str, torch.Tensor]:
        state = {"cpu": torch.get_rng_state()}
        if self._devices:
            state["cuda"] = torch.cuda.get_rng_state(self._devices[0])
        return state
