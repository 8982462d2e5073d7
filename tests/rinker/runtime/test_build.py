"""From settings to a service's parts."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reward_loop.errors import ConfigError
from reward_loop.rinker.engine.local_learner import LocalLearner
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.runtime.build import learner_factory, sampler_of, training_service
from reward_loop.rinker.runtime.policy_servers import PolicyServers
from reward_loop.rinker.runtime.reward_actors import on_ray
from reward_loop.rinker.runtime.settings import RuntimeSettings
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.with_logprobs import WithLogprobs
from reward_loop.rinker.types import ModelSpec
from tests.processes import ROOT

ENGINE = EngineSettings(device="cpu")


async def test_by_default_everything_is_in_this_process(language_model: str, tmp_path: Path) -> None:
    made: Any = learner_factory(RuntimeSettings(), ENGINE)(ModelSpec(language_model))
    assert isinstance(made, LocalLearner)
    await made.close()
    assert isinstance(sampler_of(RuntimeSettings(), ENGINE), HFSampler)
    service = training_service(tmp_path, RuntimeSettings(), ENGINE)
    await service.close()


@pytest.mark.ray
async def test_on_ray_both_are_actors_which_start_when_they_are_needed(ray_cluster: None) -> None:
    from reward_loop.rinker.runtime.sampler_pool import SamplerPool

    settings = RuntimeSettings.model_validate({"runtime": "ray", "samplers": {"actors": 3}})
    assert inspect.iscoroutinefunction(learner_factory(settings, ENGINE))
    pool = sampler_of(settings, ENGINE)
    assert isinstance(pool, SamplerPool)
    assert pool.actors == []
    await pool.close()


@pytest.mark.parametrize(("fallback", "kind"), [(True, WithLogprobs), (False, PolicyServers)])
async def test_vllm_servers_sample_and_what_lacks_logprobs_is_scored_here(fallback: bool, kind: type) -> None:
    settings = RuntimeSettings.model_validate({"sampler": "vllm", "vllm": {"logprobs_fallback": fallback}})
    sampler = sampler_of(settings, ENGINE)
    assert isinstance(sampler, kind)
    await sampler.close()


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"runtime": "slurm"}, "runtime"),
        ({"learner": {"ranks": 0}}, "learner.ranks"),
        ({"learner": {"strategy": "fsdp1"}}, "learner.strategy"),
        ({"samplers": {"gpus": -1}}, "samplers.gpus"),
        ({"samplers": {"count": 2}}, "samplers.count"),
        ({"learner": {"placement": "NEAR"}}, "learner.placement"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RuntimeSettings.model_validate(wrong)
    assert ".".join(map(str, caught.value.errors()[0]["loc"])) == key


def test_reward_actors_are_the_reward_loops_workers() -> None:
    assert on_ray({"reward_model": {"timeout_s": 3}, "data": {}}, 4) == {
        "reward_model": {"timeout_s": 3, "executor": "ray", "num_workers": 4},
        "data": {},
    }
    with pytest.raises(ConfigError, match="executor='local'"):
        on_ray({"reward_model": {"executor": "local"}}, 4)


def test_choosing_where_to_run_imports_no_ray_and_no_vllm() -> None:
    program = (
        "import sys; import reward_loop.rinker.runtime.build, reward_loop.rinker.runtime.settings; "
        "print([name for name in ('ray', 'vllm', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
