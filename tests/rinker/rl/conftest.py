"""A model to train, for every test of the loop."""

from __future__ import annotations

import pytest

from tests.rinker.rl.copy_task import write_model


@pytest.fixture(scope="session")
def copy_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of an untrained model for the copy task."""
    return write_model(tmp_path_factory.mktemp("copy"))
