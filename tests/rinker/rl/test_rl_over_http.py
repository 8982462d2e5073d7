"""The loop is the same over HTTP: it knows nothing but the clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.clients.in_process import local_service
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from tests.rinker.rl.runs import run


async def test_a_run_over_http_is_the_run_in_this_process(
    tmp_path: Path, copy_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    lora: dict[str, Any] = {"base_model": copy_model, "lora": {"rank": 4}}
    settings: dict[str, Any] = {"model": lora, "adam": {"learning_rate": 1e-2}, "steps": 2}
    here = await run(tmp_path / "here", copy_model, **settings)
    backend = local_service(tmp_path / "there-weights", None, None, None)
    async with serving(backend, ServerSettings(port=0)) as url:
        client = ServiceClient(base_url=url, api_key="tml-test")
        there = await run(tmp_path / "there", copy_model, service=client, **settings)
        await client.close()
    await backend.close()
    for name in ("reward/total", "optim/loss", "optim/kl_sample_train_v1"):
        assert there.series(name) == pytest.approx(here.series(name), abs=1e-5)
    assert "is not given back" not in caplog.text
