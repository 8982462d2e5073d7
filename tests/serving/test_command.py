"""The command line of a server is what its spec says, and what the user's options add."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.config_rollout import RolloutConfig
from reward_loop.errors import ConfigError
from reward_loop.serving.command import command_of, flags
from reward_loop.serving.engine_options import engine_options
from reward_loop.serving.spec import ServerSpec

SPEC = ServerSpec("dir", "rm", "discriminative", pooling="LAST")


def options_of(spec: ServerSpec) -> dict[str, list[str]]:
    """The flags of the command with their values."""
    found: dict[str, list[str]] = {}
    for argument in command_of(spec, 4711, {}, run_dir="run").arguments[3:]:
        if argument.startswith("--"):
            found[argument] = []
        else:
            found[list(found)[-1]].append(argument)
    return found


def environment_of(spec: ServerSpec, **environ: str) -> dict[str, str]:
    return dict(command_of(spec, 4711, environ, run_dir="run").environment)


def test_a_server_on_the_cpu_is_one_engine_process_that_can_sleep() -> None:
    options = options_of(SPEC)
    assert options["--model"] == ["dir"]
    assert options["--served-model-name"] == ["rm"]
    assert options["--port"] == ["4711"]
    assert options["--distributed-executor-backend"] == ["uni"]
    assert options["--worker-cls"] == ["reward_loop.serving.inside.sleep_worker.SleepCPUWorker"]
    assert options["--kv-cache-memory-bytes"] == ["256M"]
    environment = environment_of(replace(SPEC, threads=3), VLLM_CPU_KVCACHE_SPACE="4", HOME="h")
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment["HOME"] == "h"
    assert "VLLM_CPU_KVCACHE_SPACE" not in environment


def test_a_server_on_the_cpu_that_is_split_is_not_pinned_to_one_core() -> None:
    split = replace(SPEC, tensor_parallel_size=2)
    assert options_of(split)["--tensor-parallel-size"] == ["2"]
    assert "--distributed-executor-backend" not in options_of(split)
    assert environment_of(split)["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_a_server_on_gpus_has_its_devices_and_sleeps_only_where_it_may() -> None:
    spec = replace(SPEC, device="cuda", devices=("2", "3"), deterministic=True)
    assert environment_of(spec)["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert environment_of(spec)["VLLM_BATCH_INVARIANT"] == "1"
    assert "--worker-cls" not in options_of(spec)
    assert "--enable-sleep-mode" not in options_of(spec)
    assert "--enable-sleep-mode" in options_of(replace(spec, can_sleep=True))


@pytest.mark.parametrize(
    ("pooling", "tag", "pooler"),
    [
        ("LAST", None, {"task": "classify", "seq_pooling_type": "LAST"}),
        ("MEAN", None, {"task": "classify", "seq_pooling_type": "MEAN"}),
        ("ALL", None, {"task": "token_classify", "tok_pooling_type": "ALL"}),
        ("STEP", 3, {"task": "token_classify", "tok_pooling_type": "STEP", "step_tag_id": 3}),
    ],
)
def test_a_model_that_scores_is_pooled_as_asked(pooling: str, tag: int | None, pooler: dict[str, object]) -> None:
    options = options_of(replace(SPEC, pooling=pooling, step_tag_id=tag))  # type: ignore[arg-type]
    assert options["--runner"] == ["pooling"]
    assert json.loads(options["--pooler-config"][0]) == pooler


def test_a_judge_is_not_pooled() -> None:
    options = options_of(replace(SPEC, kind="generative"))
    assert "--runner" not in options
    assert options["--structured-outputs-config.backend"] == ["xgrammar"]


def test_an_option_of_the_users_takes_the_place_of_ours() -> None:
    options = options_of(replace(SPEC, engine_kwargs={"kv_cache_memory_bytes": "1G", "middleware": "a.B"}))
    assert options["--kv-cache-memory-bytes"] == ["1G"]
    arguments = command_of(replace(SPEC, engine_kwargs={"middleware": "a.B"}), 1, {}, run_dir="r").arguments
    assert arguments.count("--middleware") == 2


def test_its_weights_can_be_synced_unless_the_user_has_another_way() -> None:
    assert options_of(SPEC)["--weight-transfer-config.backend"] == ["reward_loop"]
    for theirs in ({"weight_transfer_config": {"backend": "nccl"}}, {"weight-transfer-config.backend": "nccl"}):
        options = options_of(replace(SPEC, engine_kwargs=theirs))
        assert [value for name, value in options.items() if name.startswith("--weight-transfer-config")] in (
            [['{"backend": "nccl"}']],
            [["nccl"]],
        )
    assert "--weight-transfer-config.backend" not in options_of(replace(SPEC, engine_kwargs={"weight_transfer_config": None}))


def test_the_directory_of_its_updates_reaches_both_of_its_processes() -> None:
    command = command_of(SPEC, 1, {"REWARD_LOOP_UPDATE_DIR": "of another one"}, run_dir="r", update_dir="u")
    assert command.environment["REWARD_LOOP_UPDATE_DIR"] == "u"


def test_the_servers_token_comes_from_the_environment() -> None:
    assert environment_of(replace(SPEC, token_env="KEY"), KEY="secret")["VLLM_API_KEY"] == "secret"
    assert "VLLM_API_KEY" not in environment_of(SPEC, KEY="secret")


def test_flags_are_rendered_by_the_type_of_their_value() -> None:
    options = {"a_b": 1, "c": True, "d_e": False, "f": None, "g": {"x": 1}, "h": ["p", "q"]}
    assert flags(options) == ["--a-b", "1", "--c", "--no-d-e", "--g", '{"x": 1}', "--h", "p", "q"]


@given(st.dictionaries(st.from_regex(r"[a-z]+(_[a-z]+){0,2}", fullmatch=True), st.integers() | st.text() | st.booleans()))
def test_no_option_is_lost(options: dict[str, object]) -> None:
    rendered = flags({name: value for name, value in options.items() if name != "middleware"})
    names = [argument for argument in rendered if argument.startswith("--")]
    assert len(names) >= len(options.keys() - {"middleware"})


def test_what_only_gpus_need_is_not_forced_on_a_cpu() -> None:
    assert "gpu_memory_utilization" not in engine_options(RolloutConfig(), "cpu")
    assert engine_options(RolloutConfig(), "cuda")["gpu_memory_utilization"] == 0.5


def test_limits_are_passed_only_where_they_were_set() -> None:
    assert "max_num_seqs" not in engine_options(RolloutConfig(), "cuda")
    assert engine_options(RolloutConfig(max_num_seqs=7), "cuda")["max_num_seqs"] == 7


@pytest.mark.parametrize(
    "engine_kwargs", [{"vllm": {"max-logprobs": 9}}, {"max_logprobs": 9}, {"--max-logprobs": 9, "sglang": {"x": 1}}]
)
def test_the_users_options_may_stand_under_the_engines_name_or_not(engine_kwargs: dict[str, object]) -> None:
    options = engine_options(RolloutConfig(engine_kwargs=engine_kwargs), "cpu")
    assert options["max_logprobs"] == 9
    assert "x" not in options
    assert "sglang" not in options


@pytest.mark.parametrize(
    ("name", "place"), [("port", "the system"), ("tensor-parallel-size", "rollout.tensor_model_parallel_size")]
)
def test_what_is_set_elsewhere_is_refused_with_its_place(name: str, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        engine_options(RolloutConfig(engine_kwargs={"vllm": {name: 1}}), "cpu")


def test_options_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be a mapping"):
        engine_options(RolloutConfig(engine_kwargs={"vllm": [1]}), "cpu")
