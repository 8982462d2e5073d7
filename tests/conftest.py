"""What tests of several packages share: a Ray cluster on this machine, a tokenizer on disk, and a pipe between processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from reward_loop.functions.custom import user_modules
from tests.fakes import tiny_tokenizer
from tests.pipe import Pipe

pytest_plugins = ["tests.vllm_servers"]

# How long an example takes, or its making, is the machine's affair: it may have servers to run beside the tests.
hypothesis.settings.register_profile("without deadlines", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("without deadlines")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slow."""
    parser.addoption("--slow", action="store_true", help="run the slowest recipes too, each of which starts servers of its own")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a CUDA device where there is none, and what is slow unless it is asked for."""
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test-all"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Forget the users' files that a test loads: every grader process that starts later would load them all."""
    before = set(sys.modules)
    try:
        return (yield)
    finally:
        if imported := sys.modules.keys() - before:
            files = set(user_modules())
            for name in imported:
                if vars(sys.modules[name]).get("__file__") in files:
                    del sys.modules[name]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A real Ray cluster of this machine with 2 CPUs, which ends with the session."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'reward-loop[ray]'")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory that holds `tiny_tokenizer()`, as a policy's does."""
    path: Path = tmp_path_factory.mktemp("policy")
    tiny_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    """A pipe of this test's own."""
    pipe = Pipe(tmp_path / "pipe")
    yield pipe
    pipe.close()
