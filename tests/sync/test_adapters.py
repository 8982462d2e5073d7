"""Adapters that servers load themselves: all of them or none, each version by a name of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from aiohttp import web
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForSequenceClassification

from recipes import tiny_models
from reward_loop.errors import ConfigError, WeightSyncError
from reward_loop.serving.spec import ServerSpec
from reward_loop.sync.adapters import AdapterPublisher
from tests.sync.models import PROMPTS, adapted_model, plain_model, scores, shake
from tests.vllm_servers import VLLMServers, ask


class LoRAServer:
    """What vLLM's two routes do, without a model: `loaded` by name, with the folder that it was loaded from."""

    def __init__(self, *, refuses: str = "", sees: bool = True) -> None:
        self.refuses = refuses
        self.sees = sees
        self.loaded: dict[str, Path] = {}
        self.calls: list[str] = []
        self.url = ""

    async def load(self, request: web.Request) -> web.Response:
        """POST /v1/load_lora_adapter."""
        body = await request.json()
        name, folder = body["lora_name"], Path(body["lora_path"])
        self.calls.append(f"load {name}")
        if self.refuses:
            return web.json_response({"error": {"message": self.refuses}}, status=500)
        if not self.sees or not (folder / "adapter_config.json").is_file():
            return web.json_response({"error": {"message": f"No adapter found for {folder}"}}, status=404)
        self.loaded[name] = folder
        return web.Response(text="Success")

    async def unload(self, request: web.Request) -> web.Response:
        """POST /v1/unload_lora_adapter."""
        name = (await request.json())["lora_name"]
        self.calls.append(f"unload {name}")
        if self.loaded.pop(name, None) is None:
            return web.json_response({"error": {"message": f"{name} cannot be found"}}, status=404)
        return web.Response(text="Success")


@asynccontextmanager
async def serving(*servers: LoRAServer) -> AsyncGenerator[list[str]]:
    """Let the servers listen, and give their addresses."""
    runners = list[web.AppRunner]()
    try:
        for server in servers:
            app = web.Application()
            app.router.add_post("/v1/load_lora_adapter", server.load)
            app.router.add_post("/v1/unload_lora_adapter", server.unload)
            runners.append(runner := web.AppRunner(app))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            server.url = f"127.0.0.1:{runner.addresses[0][1]}"
        yield [server.url for server in servers]
    finally:
        for runner in runners:
            await runner.cleanup()


def names_in(directory: Path) -> list[str]:
    """What lies in a directory."""
    return sorted(entry.name for entry in directory.iterdir())


async def test_every_server_loads_each_version_under_a_name_of_its_own(tmp_path: Path) -> None:
    first, second = LoRAServer(), LoRAServer()
    async with serving(first, second) as urls:
        publisher = AdapterPublisher(urls, tmp_path, name="judge")
        served = await publisher.publish_async(adapted_model())
        assert (served.name, served.version) == ("judge-0", 0)
        assert first.loaded == second.loaded == {"judge-0": served.directory}


async def test_what_is_written_is_an_adapter_of_peft(tmp_path: Path) -> None:
    model = adapted_model()
    async with serving(LoRAServer()) as urls:
        served = await AdapterPublisher(urls, tmp_path).publish_async(model)
    loaded = PeftModel.from_pretrained(plain_model(), str(served.directory))
    assert torch.equal(scores(loaded.eval()), scores(model))


async def test_older_versions_stay_as_long_as_they_may_be_asked_for(tmp_path: Path) -> None:
    server = LoRAServer()
    async with serving(server) as urls:
        publisher = AdapterPublisher(urls, tmp_path, kept=1)
        for version in (3, None, 7):
            await publisher.publish_async(adapted_model(), version)
        assert sorted(server.loaded) == ["adapter-4", "adapter-7"]
        assert names_in(tmp_path) == ["adapter-4", "adapter-7"]
        # The older one goes only when the new one is there.
        assert server.calls == ["load adapter-3", "load adapter-4", "load adapter-7", "unload adapter-3"]


async def test_a_server_that_refuses_leaves_all_with_what_they_had_and_the_next_publish_succeeds(tmp_path: Path) -> None:
    good, bad = LoRAServer(), LoRAServer()
    async with serving(good, bad) as urls:
        publisher = AdapterPublisher(urls, tmp_path)
        await publisher.publish_async(adapted_model())
        bad.refuses = "LoRA rank 16 is greater than max_lora_rank 8."
        with pytest.raises(
            WeightSyncError,
            match=rf"1 of 2 servers did not load adapter-1, which was taken from the others: .*{bad.url}.*rank 16",
        ):
            await publisher.publish_async(adapted_model())
        assert list(good.loaded) == list(bad.loaded) == ["adapter-0"]
        assert names_in(tmp_path) == ["adapter-0"]
        bad.refuses = ""
        assert (await publisher.publish_async(adapted_model())).name == "adapter-1"
        assert list(good.loaded) == list(bad.loaded) == ["adapter-0", "adapter-1"]


async def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    good, gone = LoRAServer(), LoRAServer()
    async with serving(gone):
        pass
    async with serving(good) as urls:
        publisher = AdapterPublisher([*urls, gone.url], tmp_path)
        with pytest.raises(WeightSyncError, match=f"{gone.url} can't be reached"):
            await publisher.publish_async(adapted_model())
        assert good.loaded == {}
        # Nobody knows whether it had loaded it: what it may read stays there, and isn't overwritten.
        assert names_in(tmp_path) == ["adapter-0"]
        async with serving(gone) as back:
            assert (await AdapterPublisher([*urls, *back], tmp_path).publish_async(adapted_model())).version == 1


async def test_a_server_that_does_not_see_the_directory_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with serving(LoRAServer(sees=False)) as urls:
        with pytest.raises(WeightSyncError, match=f"every server must see the directory {tmp_path}"):
            await AdapterPublisher(urls, tmp_path).publish_async(adapted_model())


async def test_a_server_without_lora_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    runner = web.AppRunner(web.Application(middlewares=[_like_fastapi]))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        publisher = AdapterPublisher(f"127.0.0.1:{runner.addresses[0][1]}", tmp_path)
        with pytest.raises(
            WeightSyncError, match="--enable-lora and the environment variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
        ):
            await publisher.publish_async(adapted_model())
    finally:
        await runner.cleanup()


@web.middleware
async def _like_fastapi(request: web.Request, handler: Any) -> web.StreamResponse:
    return web.json_response({"detail": "Not Found"}, status=404)


async def test_it_works_from_code_that_is_not_asynchronous(tmp_path: Path) -> None:
    server = LoRAServer()
    async with serving(server) as urls:
        publisher = AdapterPublisher(urls, tmp_path)
        await asyncio.to_thread(publisher.publish, adapted_model())
        assert list(server.loaded) == ["adapter-0"]


async def test_versions_only_rise(tmp_path: Path) -> None:
    async with serving(LoRAServer()) as urls:
        publisher = AdapterPublisher(urls, tmp_path)
        await publisher.publish_async(adapted_model(), 5)
        for old in (5, 4, -1):
            with pytest.raises(WeightSyncError, match=f"version={old} of the adapter adapter must be above 5"):
                await publisher.publish_async(adapted_model(), old)


async def test_bad_adapters_never_leave_the_trainer(tmp_path: Path) -> None:
    server = LoRAServer()
    async with serving(server) as urls:
        publisher = AdapterPublisher(urls, tmp_path)
        with pytest.raises(WeightSyncError, match=r"has the adapters \[\] .*not None"):
            await publisher.publish_async(plain_model())
        with pytest.raises(WeightSyncError, match=r"has the adapters \['default'\].*not 'other'"):
            await publisher.publish_async(adapted_model(), adapter="other")
        broken = adapted_model()
        broken.get_submodule("base_model.model.model.layers.1.mlp.down_proj").lora_B["default"].weight.data[0, 0] = float("nan")
        with pytest.raises(WeightSyncError, match=r"layers\.1\.mlp\.down_proj\.lora_B\.weight of the adapter default holds NaN"):
            await publisher.publish_async(broken)
    assert server.calls == []
    assert names_in(tmp_path) == []


def test_settings_that_cannot_work_are_errors_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        AdapterPublisher("127.0.0.1:1", tmp_path, name="../judge")
    with pytest.raises(ConfigError, match="kept=-1"):
        AdapterPublisher("127.0.0.1:1", tmp_path, kept=-1)


@pytest.mark.vllm
async def test_a_real_reward_server_scores_with_each_version_and_survives_a_bad_one(
    vllm_servers: VLLMServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    path = vllm_servers.model("reward", tiny_models.reward_model)
    options = {"enable_lora": True, "max_lora_rank": 8}
    server = vllm_servers.running(ServerSpec(path, "adapted", "discriminative", max_model_len=512, engine_kwargs=options))
    model = adapters_of(path, r=4)
    expected = {"adapted": scores(model_of(path))}
    publisher = AdapterPublisher(server.url, tmp_path, name="trained")
    for _ in range(2):
        shake(model)
        expected[(await publisher.publish_async(model)).name] = scores(model)
    wide = str(tiny_models.reward_model(tmp_path / ".wide", hidden=96))
    for wrong in (adapters_of(path, r=16), adapters_of(wide, r=4), adapters_of(wide, r=4, modules_to_save=None)):
        with pytest.raises(WeightSyncError, match="answered 500"):
            await publisher.publish_async(wrong)
    for name, wanted in expected.items():
        assert (await served_scores(server.url, name) - wanted).abs().max() < 1e-4
    assert (expected["trained-0"] - expected["trained-1"]).abs().max() > 0.01
    vllm_servers.stop(server)


def model_of(path: str) -> Any:
    """The model of the server, in transformers."""
    return AutoModelForSequenceClassification.from_pretrained(path).eval()


def adapters_of(path: str, **options: Any) -> Any:
    """The same with adapters, and a head of their own."""
    config: dict[str, Any] = {"target_modules": ["q_proj", "v_proj", "down_proj"], "lora_alpha": 8, "modules_to_save": ["score"]}
    return get_peft_model(model_of(path), LoraConfig(**(config | options)))


async def served_scores(url: str, name: str) -> torch.Tensor:
    """What a server says to the prompts, as `scores` does."""
    status, body = await ask(url, "/classify", {"model": name, "input": PROMPTS, "use_activation": False})
    assert status == 200, body
    return torch.tensor([each["probs"] for each in body["data"]])
