"""The name by which vLLM finds our weight transfer: `--weight-transfer-config '{"backend": "reward_loop"}'`."""

from __future__ import annotations

from contextlib import suppress

BACKEND = "reward_loop"


def register_backend() -> None:
    """Tell vLLM's registry of weight transfers about ours; may be called again. The engine is imported when it is used."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    with suppress(ValueError):  # it is registered already
        WeightTransferEngineFactory.register_engine(BACKEND, "reward_loop.serving.inside.transfer_engine", "RewardTransferEngine")
