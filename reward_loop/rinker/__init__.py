"""Rinker: a training API in the names of the Tinker SDK, whose rewards come from the reward loop. See docs/rinker.md.

A script that was written with `import tinker` runs with `from reward_loop import rinker as tinker`. Importing this costs next to
nothing: each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward_loop.errors import AuthenticationError as AuthenticationError
    from reward_loop.errors import RequestFailedError as RequestFailedError
    from reward_loop.errors import TrainingError as TrainingError
    from reward_loop.rinker import types as types
    from reward_loop.rinker.clients.rest_client import RestClient as RestClient
    from reward_loop.rinker.clients.sampling_client import SamplingClient as SamplingClient
    from reward_loop.rinker.clients.service_client import ServiceClient as ServiceClient
    from reward_loop.rinker.clients.training_client import TrainingClient as TrainingClient
    from reward_loop.rinker.engine.settings import EngineSettings as EngineSettings
    from reward_loop.rinker.futures import APIFuture as APIFuture
    from reward_loop.rinker.sampling.settings import HFSamplerSettings as HFSamplerSettings
    from reward_loop.rinker.service.settings import ServiceSettings as ServiceSettings
    from reward_loop.rinker.types import AdamParams as AdamParams
    from reward_loop.rinker.types import Datum as Datum
    from reward_loop.rinker.types import EncodedTextChunk as EncodedTextChunk
    from reward_loop.rinker.types import ForwardBackwardOutput as ForwardBackwardOutput
    from reward_loop.rinker.types import LoraConfig as LoraConfig
    from reward_loop.rinker.types import ModelInput as ModelInput
    from reward_loop.rinker.types import ModelSpec as ModelSpec
    from reward_loop.rinker.types import OptimStepResponse as OptimStepResponse
    from reward_loop.rinker.types import SampledSequence as SampledSequence
    from reward_loop.rinker.types import SampleResponse as SampleResponse
    from reward_loop.rinker.types import SamplingParams as SamplingParams
    from reward_loop.rinker.types import TensorData as TensorData

_TYPES = "reward_loop.rinker.types"
_MODULES = {
    "APIFuture": "reward_loop.rinker.futures",
    "AdamParams": _TYPES,
    "AuthenticationError": "reward_loop.errors",
    "Datum": _TYPES,
    "EncodedTextChunk": _TYPES,
    "EngineSettings": "reward_loop.rinker.engine.settings",
    "ForwardBackwardOutput": _TYPES,
    "HFSamplerSettings": "reward_loop.rinker.sampling.settings",
    "LoraConfig": _TYPES,
    "ModelInput": _TYPES,
    "ModelSpec": _TYPES,
    "OptimStepResponse": _TYPES,
    "RequestFailedError": "reward_loop.errors",
    "RestClient": "reward_loop.rinker.clients.rest_client",
    "SampleResponse": _TYPES,
    "SampledSequence": _TYPES,
    "SamplingClient": "reward_loop.rinker.clients.sampling_client",
    "SamplingParams": _TYPES,
    "ServiceClient": "reward_loop.rinker.clients.service_client",
    "ServiceSettings": "reward_loop.rinker.service.settings",
    "TensorData": _TYPES,
    "TrainingClient": "reward_loop.rinker.clients.training_client",
    "TrainingError": "reward_loop.errors",
}


def __getattr__(name: str) -> Any:
    if name == "types":
        return importlib.import_module(_TYPES)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, "types"])
