"""Publishing to servers without the plugin: a whole checkpoint, checked before, read while they pause, taken back by all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from reward_loop.errors import WeightSyncError
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.publisher import RewardModelPublisher
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.sync.stock_servers import StockServer, stock_servers

HEAD_ONLY = RewardModelTrainingMode.HEAD_ONLY
UPDATE = ["pause", "reload_weights", "reset_prefix_cache", "update_weight_version", "resume"]


def weights(value: float) -> dict[str, torch.Tensor]:
    body = {"model.embed_tokens.weight": (6, 4), "model.layers.0.mlp.up_proj.weight": (3, 4)}
    return {name: torch.full(shape, value) for name, shape in (body | {"score.weight": (1, 4)}).items()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForSequenceClassification"]}))
    (directory / "tokenizer.json").write_text("{}")
    save_file(weights(0.0), directory / "model.safetensors", {"format": "pt"})
    return directory


def publisher(tmp_path: Path, *servers: StockServer, **options: Any) -> RewardModelPublisher:
    addresses = [server.url for server in servers]
    return create_reward_publisher(addresses, rank0_only=False, timeout_s=10.0, directory=str(tmp_path / "published"), **options)


def assert_all_serve(servers: tuple[StockServer, ...], expected: Mapping[str, torch.Tensor]) -> None:
    for server in servers:
        assert not server.paused
        assert server.weights.keys() == expected.keys()
        assert all(torch.equal(server.weights[name], tensor) for name, tensor in expected.items())


def test_all_servers_read_a_complete_checkpoint(tmp_path: Path, model: Path) -> None:
    with stock_servers(StockServer(model), StockServer(model)) as servers:
        report = publisher(tmp_path, *servers).publish(weights(1.0))
        assert_all_serve(servers, weights(1.0))
        assert [server.calls for server in servers] == [UPDATE, UPDATE]
        assert [server.version for server in servers] == ["1", "1"]
    assert (report.version, report.plane, report.tensors, report.nbytes) == (1, "checkpoint", 3, 160)
    written = tmp_path / "published" / "version-1"
    assert sorted(file.name for file in written.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_part_is_put_into_what_is_served_also_by_another_publisher(tmp_path: Path, model: Path) -> None:
    with stock_servers(StockServer(model)) as servers:
        publisher(tmp_path, *servers).publish(weights(1.0))
        publisher(tmp_path, *servers).publish({"score.weight": torch.full((1, 4), 2.0)}, training_mode=HEAD_ONLY)
        assert_all_serve(servers, {**weights(1.0), "score.weight": torch.full((1, 4), 2.0)})
        with pytest.raises(WeightSyncError, match=r"version 2 is served, and it is not in .*elsewhere"):
            publisher(tmp_path / "elsewhere", *servers).publish(weights(3.0))
        for _ in range(3):
            publisher(tmp_path, *servers).publish(weights(3.0))
    assert sorted(each.name for each in (tmp_path / "published").iterdir()) == ["version-4", "version-5"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.layers.0.mlp.up_porj.weight": torch.ones(3, 4)}, r"up_porj.weight is unknown; the nearest is .*up_proj.weight"),
        ({"score.weight": torch.ones(2, 4)}, r"score.weight has the shape \(2, 4\), the served one \(1, 4\)"),
        ({"score.weight": torch.tensor([[1.0, torch.nan, 0.0, 0.0]])}, "score.weight holds values that are not finite"),
        ({"model.embed_tokens.weight": None}, "model.embed_tokens.weight is missing"),
        ({"score.weight": torch.ones(1, 4, dtype=torch.float64)}, "torch.float64"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_server_is_told(
    tmp_path: Path, model: Path, change: dict[str, torch.Tensor | None], said: str
) -> None:
    wrong = {name: tensor for name, tensor in (weights(1.0) | change).items() if tensor is not None}
    with stock_servers(StockServer(model)) as servers:
        with pytest.raises(WeightSyncError, match=said):
            publisher(tmp_path, *servers).publish(wrong)
        assert servers[0].calls == []
        assert_all_serve(servers, weights(0.0))


@pytest.mark.parametrize("call", UPDATE[:-1])
def test_where_one_server_fails_all_serve_the_old_weights_and_the_next_update_succeeds(
    tmp_path: Path, model: Path, call: str
) -> None:
    with stock_servers(StockServer(model, fails=call), StockServer(model)) as servers:
        one = publisher(tmp_path, *servers)
        with pytest.raises(WeightSyncError, match=rf"1 of 2 servers did not .*{servers[0].url} answered 500"):
            one.publish(weights(1.0))
        assert_all_serve(servers, weights(0.0))
        assert not (tmp_path / "published" / "version-1").exists()
        one.publish(weights(1.0), 9)
        assert_all_serve(servers, weights(1.0))


def test_versions_only_rise(tmp_path: Path, model: Path) -> None:
    with stock_servers(StockServer(model)) as servers:
        one = publisher(tmp_path, *servers)
        assert one.publish(weights(1.0), 0).version == 0
        assert one.publish(weights(1.0), 5).version == 5
        for version in (5, 4):
            with pytest.raises(WeightSyncError, match=f"version {version} is not above 5"):
                one.publish(weights(2.0), version)
        assert_all_serve(servers, weights(1.0))


def test_tied_weights_are_written_once(tmp_path: Path, model: Path) -> None:
    tied = {"model.embed_tokens.weight": torch.zeros(6, 4), "lm_head.weight": torch.zeros(6, 4)}
    (model / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    save_file(tied, model / "model.safetensors")
    new = torch.ones(6, 4)
    with stock_servers(StockServer(model)) as servers:
        one = publisher(tmp_path, *servers, generative=True)
        one.publish({"model.embed_tokens.weight": new, "lm_head.weight": new})
        assert_all_serve(servers, {"model.embed_tokens.weight": new})


def test_a_checkpoint_of_several_files_becomes_one(tmp_path: Path, model: Path) -> None:
    parts = weights(0.0)
    save_file({"score.weight": parts.pop("score.weight")}, model / "model-00002-of-00002.safetensors")
    with stock_servers(StockServer(model)) as servers:
        save_file(parts, model / "model-00001-of-00002.safetensors")
        (model / "model.safetensors").unlink()
        (model / "model.safetensors.index.json").write_text("{}")
        publisher(tmp_path, *servers).publish(weights(1.0))
    written = tmp_path / "published" / "version-1"
    assert sorted(file.name for file in written.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert load_file(written / "model.safetensors").keys() == weights(0.0).keys()


def test_servers_that_can_not_be_told_are_refused_with_the_remedy(tmp_path: Path, model: Path) -> None:
    with (
        stock_servers(StockServer(model, dev_mode=False)) as servers,
        pytest.raises(WeightSyncError, match="VLLM_SERVER_DEV_MODE=1"),
    ):
        publisher(tmp_path, *servers).publish(weights(1.0))
    with stock_servers(StockServer(model)) as servers:
        with pytest.raises(WeightSyncError, match="only takes plane=directory, not gloo"):
            publisher(tmp_path, *servers, plane="gloo").publish(weights(1.0))
        servers[0].model = Path("org/model")
        with pytest.raises(WeightSyncError, match="pass checkpoint="):
            publisher(tmp_path, *servers).publish(weights(1.0))
        publisher(tmp_path, *servers, checkpoint=str(model)).publish(weights(1.0))
        assert_all_serve(servers, weights(1.0))


def test_a_head_with_a_bias_is_refused_because_stock_servers_lose_it(tmp_path: Path, model: Path) -> None:
    save_file(weights(0.0) | {"score.bias": torch.zeros(1)}, model / "model.safetensors")
    with stock_servers(StockServer(model)) as servers, pytest.raises(WeightSyncError, match=r"score\.bias.*loses"):
        publisher(tmp_path, *servers).publish(weights(1.0) | {"score.bias": torch.ones(1)})
