"""Both generations of verl's names, and whole trainer configs."""

import logging

import pytest
from omegaconf import OmegaConf

from reward_loop.config_layers import LayerLike
from reward_loop.config_loading import ConfigValue, explain_config, load_config
from reward_loop.config_spellings import SCHEMA, SPELLINGS
from reward_loop.errors import ConfigError


def error_of(*layers: LayerLike, overrides: list[str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(*layers, overrides=overrides or [])
    return str(caught.value)


def explained(key: str, *layers: LayerLike, overrides: list[str] | None = None) -> ConfigValue:
    return next(value for value in explain_config(*layers, overrides=overrides or []) if value.key == key)


@pytest.mark.parametrize(
    ("spelling", "value", "key"),
    [
        ("reward.num_workers", 3, "reward_model.num_workers"),
        ("reward.custom_reward_function.path", "f.py", "custom_reward_function.path"),
        ("reward.custom_reward_function.reward_kwargs.k", 1, "custom_reward_function.reward_kwargs.k"),
        ("reward.reward_manager.name", "dapo", "reward_model.reward_manager.name"),
        ("reward.reward_manager", "dapo", "reward_model.reward_manager.name"),
        ("reward.reward_model.enable_resource_pool", True, "reward_model.enable_resource_pool"),
        ("reward.reward_model.n_gpus_per_node", 4, "reward_model.n_gpus_per_node"),
        ("reward.reward_model.nnodes", 2, "reward_model.nnodes"),
        ("reward.reward_model.model_path", "rm", "reward_model.model.path"),
        (
            "reward.reward_model.rollout.tensor_model_parallel_size",
            1,
            "reward_model.rollout.tensor_model_parallel_size",
        ),
        ("reward.reward_kwargs.max_resp_len", 9, "reward_model.reward_kwargs.max_resp_len"),
        ("reward.sandbox_fusion.url", "http://sandbox", "sandbox_fusion.url"),
        ("reward.timeout", 5.0, "reward_model.timeout_s"),
        ("reward.on_error", "mask", "reward_model.on_error"),
        ("reward.executor", "ray", "reward_model.executor"),
        ("reward.max_rpm", 60, "reward_model.rate_limit.max_rpm"),
        ("reward_model.timeout", 5.0, "reward_model.timeout_s"),
        ("reward_model.reward_manager", "dapo", "reward_model.reward_manager.name"),
        ("reward_model.reward_loop_module_path", "m.py", "reward_model.reward_manager.module.path"),
        ("reward_model.sandbox_fusion.max_concurrent", 2, "sandbox_fusion.max_concurrent"),
    ],
)
def test_both_generations_of_names_are_understood(spelling: str, value: object, key: str) -> None:
    assert explained(key, overrides=[f"{spelling}={value}"]) == ConfigValue(
        key, value, "override" if spelling == key else f"override (as {spelling})"
    )


def test_every_spelling_means_a_setting_of_the_schema() -> None:
    assert all(any(key == known or key.startswith(f"{known}.") for known in SCHEMA) for key in SPELLINGS.values())
    assert set(SCHEMA) <= set(SPELLINGS)


def test_a_legacy_imported_class_ends_up_in_name_and_is_explained() -> None:
    layer = {
        "reward_model": {
            "reward_manager": "naive",
            "reward_loop_source": "importlib",
            "reward_loop_module_path": "m.py",
            "reward_loop_class_name": "Mine",
        }
    }
    assert load_config(layer).reward_model.reward_manager.name == "Mine"
    assert explained("reward_model.reward_manager.name", layer) == ConfigValue(
        "reward_model.reward_manager.name", "Mine", "mapping 1 (as reward_model.reward_loop_class_name)"
    )


def test_a_later_layer_wins_under_another_spelling() -> None:
    assert load_config({"reward": {"num_workers": 2}}, {"reward_model": {"num_workers": 3}}).reward_model.num_workers == 3
    assert load_config({"reward_model": {"num_workers": 3}}, {"reward": {"num_workers": 2}}).reward_model.num_workers == 2


def test_two_spellings_that_disagree_in_one_layer_are_refused() -> None:
    assert error_of({"reward": {"num_workers": 2}, "reward_model": {"num_workers": 3}}) == (
        "reward_model.num_workers=3 (mapping 1) contradicts reward.num_workers=2 (mapping 1): they are the same setting; keep one"
    )
    assert "contradicts" in error_of(overrides=["reward.timeout=1", "reward_model.timeout_s=2"])
    assert "contradicts" in error_of({"reward": {"on_error": "mask"}, "reward_model": {"on_error": {"value": 1}}})


def test_two_spellings_that_agree_are_fine() -> None:
    layer = {"reward": {"num_workers": 2}, "reward_model": {"num_workers": "${reward.num_workers}"}}
    assert load_config(layer).reward_model.num_workers == 2


VERL_2025 = {
    "actor_rollout_ref": {
        "actor": {"strategy": "fsdp", "use_fused_kernels": "${oc.select:actor_rollout_ref.model.use_fused_kernels}"},
        "hybrid_engine": True,
        "model": {"path": "policy", "external_lib": None, "use_fused_kernels": False, "lora_rank": 0},
        "rollout": {"name": "???", "n": 5, "prompt_length": "${oc.select:data.max_prompt_length,512}"},
    },
    "data": {"train_files": "???"},
    "critic": {"strategy": "fsdp", "use_dynamic_bsz": False},
    "reward_model": {
        "enable": False,
        "strategy": "fsdp",
        "model": {
            "path": "rm",
            "input_tokenizer": "${actor_rollout_ref.model.path}",
            "external_lib": "${actor_rollout_ref.model.external_lib}",
            "use_shm": False,
        },
        "micro_batch_size": None,
        "use_dynamic_bsz": "${critic.use_dynamic_bsz}",
        "reward_manager": "naive",
        "reward_loop_source": "register",
        "reward_loop_module_path": None,
        "reward_loop_class_name": None,
        "launch_reward_fn_async": False,
        "sandbox_fusion": {"url": None, "max_concurrent": 64, "memory_limit_mb": 1024},
        "profiler": {"_target_": "verl.utils.profiler.ProfilerConfig", "tool": "${no_such_key}"},
        "use_reward_loop": True,
        "num_workers": 1,
        "rollout": {"_target_": "verl.workers.config.RolloutConfig", "name": "???", "limit_images": None},
    },
    "algorithm": {"_target_": "verl.trainer.config.AlgoConfig", "adv_estimator": "grpo"},
    "custom_reward_function": {"path": None, "name": "compute_score"},
    "trainer": {"experiment_name": 2025, "project_name": "p", "logger": ["console"]},
    "global_profiler": {"tool": None},
    "transfer_queue": {"enable": False},
    "ray_kwargs": {"ray_init": {"num_cpus": None}},
}

VERL_2026 = {
    "actor_rollout_ref": VERL_2025["actor_rollout_ref"],
    "custom_reward_function": {"path": None, "name": None},
    "reward_model": {
        "num_workers": None,
        "reward_manager": None,
        "enable": None,
        "rollout": {"name": None, "dtype": None},
    },
    "sandbox_fusion": {"url": None, "max_concurrent": None},
    "reward": {
        "_target_": "verl.workers.config.RewardConfig",
        "num_workers": 4,
        "compute_score_kwargs": {},
        "custom_reward_function": {"path": "f.py", "name": "score"},
        "reward_manager": {
            "_target_": "verl.workers.config.reward.RewardManagerConfig",
            "source": "register",
            "name": "dapo",
            "module": {"path": None, "name": "custom_reward_manager"},
        },
        "reward_model": {
            "enable": False,
            "model_path": None,
            "rollout": {
                "name": "???",
                "dtype": "float16",
                "disable_log_stats": True,
                "disaggregation": {"enabled": False},
            },
        },
        "sandbox_fusion": {"_target_": "verl.workers.config.SandboxFusionConfig", "url": None, "max_concurrent": 8},
    },
    "skip": {"action": "cache"},
    "distillation": {},
}


def test_a_whole_trainer_config_of_2025_loads() -> None:
    config = load_config(VERL_2025)
    assert (config.reward_model.num_workers, config.reward_model.model.path) == (1, "rm")
    assert (config.actor_rollout_ref.model.path, config.actor_rollout_ref.rollout.n) == ("policy", 5)
    assert config.trainer.experiment_name == "2025"


def test_a_whole_trainer_config_of_2026_loads_although_it_nulls_the_old_keys() -> None:
    config = load_config(OmegaConf.create(VERL_2026))
    assert (config.reward_model.num_workers, config.reward_model.reward_manager.name) == (4, "dapo")
    assert (config.custom_reward_function.path, config.custom_reward_function.name) == ("f.py", "score")
    assert (config.reward_model.rollout.name, config.reward_model.rollout.dtype) == ("vllm", "float16")
    assert config.sandbox_fusion.max_concurrent == 8


def test_unused_keys_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config(VERL_2025)
    assert [record.message for record in caplog.records] == [
        f"reward_model.{key} (mapping 1) ignored: the reward loop has no use for it"
        for key in (
            "strategy",
            "model.input_tokenizer",
            "model.use_shm",
            "use_dynamic_bsz",
            "launch_reward_fn_async",
            "profiler",
        )
    ]


def test_unused_keys_are_flagged_at_the_end_of_the_explanation() -> None:
    values = explain_config({"reward_model": {"strategy": "fsdp"}})
    assert values[-1] == ConfigValue("reward_model.strategy", "fsdp", "mapping 1", ignored=True)
    assert [value.key for value in values[:-1]] == list(SCHEMA)
