"""A model for the conformance checks, and one thread for torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.one_thread import one_thread as one_thread
from tests.rinker.conformance.tiny_policy import tiny_policy


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a policy of 16 tokens, whose weights are large enough that tokens differ."""
    path: Path = tmp_path_factory.mktemp("policy-16")
    return tiny_policy(path, initializer_range=0.2)
