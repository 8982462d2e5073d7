"""What the servers are asked to be follows from the configuration."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from recipes import tiny_models
from reward_loop.errors import ConfigError
from reward_loop.machine import cores_per_worker
from reward_loop.serving.spec import ServerSpec, share_machine, specs_of
from tests.serving.models import config_of, model_dir


@pytest.fixture
def model(tmp_path: Path) -> str:
    return model_dir(tmp_path / "rm")


def test_one_model_on_a_cpu_is_one_server_named_by_its_path(model: str) -> None:
    [spec] = specs_of(config_of(model))
    assert (spec.model, spec.name, spec.kind, spec.device, spec.world_size) == (model, model, "discriminative", "cpu", 1)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_on_a_cpu_the_defaults_for_gpus_do_not_hold(model: str) -> None:
    [spec] = specs_of(config_of(model))
    assert (spec.dtype, spec.tensor_parallel_size) == ("float32", 1)


def test_on_a_cpu_what_was_set_holds(model: str) -> None:
    [spec] = specs_of(config_of(model, rollout={"dtype": "bfloat16", "tensor_model_parallel_size": 2}))
    assert (spec.dtype, spec.tensor_parallel_size) == ("bfloat16", 2)


def test_updates_are_kept_where_the_configuration_says(model: str) -> None:
    assert specs_of(config_of(model))[0].update_dir is None
    assert specs_of(config_of(model, sync={"update_dir": "/large"}))[0].update_dir == "/large"


def test_replicas_are_numbered(model: str) -> None:
    specs = specs_of(config_of(model, replicas=3, model={"path": model, "name": "rm"}))
    assert [(spec.name, spec.replica, spec.label) for spec in specs] == [("rm", n, f"rm-{n}") for n in range(3)]


def test_several_models_have_names_replicas_and_settings_of_their_own(tmp_path: Path) -> None:
    models = {
        "rm": {"path": model_dir(tmp_path / "a"), "replicas": 2, "scoring": {"pooling": "MEAN"}},
        "judge": {"path": model_dir(tmp_path / "b", "Qwen2ForCausalLM"), "rollout": {"max_model_len": 512}},
    }
    specs = specs_of(config_of("", model={}, models=models, rollout={"max_model_len": 1024, "dtype": "float32"}))
    assert [(spec.name, spec.kind, spec.pooling, spec.max_model_len) for spec in specs] == [
        ("rm", "discriminative", "MEAN", 1024),
        ("rm", "discriminative", "MEAN", 1024),
        ("judge", "generative", None, 512),
    ]


def test_gpus_of_a_pool_make_replicas(model: str) -> None:
    config = config_of(model, server={}, rollout={"tensor_model_parallel_size": 2, "data_parallel_size": 2})
    specs = specs_of(config, pool_gpus=8)
    assert [(spec.device, spec.world_size) for spec in specs] == [("cuda", 4)] * 2
    assert specs[0].dtype == "bfloat16"


@pytest.mark.parametrize("gpus", [1, 3])
def test_gpus_that_do_not_divide_into_replicas_are_refused(model: str, gpus: int) -> None:
    with pytest.raises(ConfigError, match=rf"= 2 GPUs a replica, its pool has {gpus} .*tensor_model_parallel_size"):
        specs_of(config_of(model, server={}), pool_gpus=gpus)


def test_cpu_bundles_of_a_pool_make_replicas(model: str) -> None:
    assert len(specs_of(config_of(model), pool_gpus=0, pool_cpus=3)) == 3


def test_local_servers_on_gpus_get_devices_of_their_own() -> None:
    specs = [ServerSpec("m", "m", replica=number, device="cuda", tensor_parallel_size=2) for number in range(2)]
    assert [spec.devices for spec in share_machine(specs, ["4", "5", "6", "7"])] == [("4", "5"), ("6", "7")]


def test_more_local_servers_than_gpus_are_refused() -> None:
    specs = [ServerSpec("m", "m", replica=number, device="cuda", tensor_parallel_size=2) for number in range(2)]
    with pytest.raises(ConfigError, match=r"replica 1 .* needs 2 GPUs, and 1 are left"):
        share_machine(specs, ["0", "1", "2"])


def test_servers_on_the_cpu_share_its_cores() -> None:
    specs = share_machine([ServerSpec("m", "m", replica=number) for number in range(2)], [])
    assert [spec.threads for spec in specs] == [max(1, cores_per_worker(2) - 1)] * 2


def test_a_model_scored_by_token_is_served_so_and_the_endpoint_picks(tmp_path: Path) -> None:
    [spec] = specs_of(config_of(model_dir(tmp_path / "m", "Qwen2ForRewardModel"), scoring={"pooling": "LAST"}))
    assert spec.pooling == "ALL"


def test_a_process_model_is_scored_at_its_steps(tmp_path: Path) -> None:
    path = model_dir(tmp_path / "m", "Qwen2ForProcessRewardModel")
    tokenizer = tiny_models.tokenizer()
    tokenizer.save_pretrained(path)
    [spec] = specs_of(config_of(path))
    tag = tokenizer.convert_tokens_to_ids(tiny_models.STEP_TAG)
    assert (spec.kind, spec.pooling, spec.step_tag_id) == ("process", "STEP", tag)


def test_only_colocated_servers_that_may_free_their_memory_sleep(model: str) -> None:
    assert specs_of(config_of(model))[0].can_sleep
    assert not specs_of(config_of(model, enable_resource_pool=True))[0].can_sleep
    assert not specs_of(config_of(model, rollout={"free_cache_engine": False}))[0].can_sleep


def test_an_engine_other_than_vllm_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"rollout.name='sglang' is not served; the one engine is 'vllm'"):
        specs_of(config_of(model, rollout={"name": "sglang"}))


def test_a_kind_that_the_model_has_no_head_for_is_refused(tmp_path: Path) -> None:
    path = model_dir(tmp_path / "m", "Qwen2ForCausalLM")
    with pytest.raises(ConfigError, match="no head that scores"):
        specs_of(config_of(path, model={"path": path, "kind": "discriminative"}))
