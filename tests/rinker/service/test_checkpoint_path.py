from __future__ import annotations

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.service.checkpoint_path import CheckpointPath


@pytest.mark.parametrize("path", ["tinker://m/weights/a", "tinker://session:train:0/sampler_weights/step-100.final"])
def test_a_path_comes_back_as_it_was(path: str) -> None:
    assert str(CheckpointPath.parse(path)) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "weights/a",
        "/etc/passwd",
        "http://m/weights/a",
        "tinker://m/weights",
        "tinker://m/weights/a/b",
        "tinker://m/other/a",
        "tinker://m/weights/",
        "tinker:///weights/a",
        "tinker://m/weights/..",
        "tinker://../weights/a",
        "tinker://m/weights/.hidden",
        "tinker://m/weights/a\x00b",
        "tinker://m/weights/a\n",
        "tinker://m/weights/a\\b",
        "tinker://m/weights/" + "a" * 129,
        "tinker://m/weights/ä",
    ],
)
def test_what_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(RequestFailedError) as refused:
        CheckpointPath.parse(path)
    assert refused.value.category == "user"
