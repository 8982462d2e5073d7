from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import tinker

from recipes.tiny_models import judge, reward_model, tokenizer
from reward_loop import rinker
from reward_loop.errors import ConfigError, RequestFailedError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.types import AdamParams, Datum, LoraConfig, ModelInput, ModelSpec, TensorData
from tests.one_thread import one_thread as one_thread
from tests.rinker.recording_backend import RecordingBackend


def test_models_are_created_as_they_were_asked_for() -> None:
    backend = RecordingBackend()
    with ServiceClient(backend=backend) as service:
        service.create_lora_training_client("base").result()
        service.create_lora_training_client("base", 8, seed=3, train_mlp=False, train_unembed=False).result()
        service.create_training_client("base", kind="seq_cls", num_labels=2).result()
        service.create_training_client("base", lora=LoraConfig(rank=2)).result()
        service.create_training_client(ModelSpec("base", seed=5)).result()
    assert list(backend.specs.values()) == [
        ModelSpec("base", lora=LoraConfig(rank=32)),
        ModelSpec("base", lora=LoraConfig(rank=8, seed=3, train_mlp=False, train_unembed=False), seed=3),
        ModelSpec("base", kind="seq_cls", num_labels=2),
        ModelSpec("base", lora=LoraConfig(rank=2)),
        ModelSpec("base", seed=5),
    ]


def test_the_future_of_a_client_is_usable_as_the_client() -> None:
    with ServiceClient(backend=RecordingBackend()) as service:
        client = service.create_lora_training_client("base", 8)
        assert isinstance(client, rinker.APIFuture)
        assert client.model_id == "model-0"
        assert client.forward([Datum(ModelInput.from_ints([1]))], "ppo").result().metrics["loss:sum"] == 1.0
        assert "TrainingClient" in repr(client)
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = client.no_such_name


async def test_the_twins_give_the_clients_themselves() -> None:
    backend = RecordingBackend()
    with ServiceClient(backend=backend, user_metadata={"run": "7"}) as service:
        assert (await service.create_lora_training_client("base")).model_id == "model-0"
        assert (await service.create_lora_training_client_async("base")).model_id == "model-1"
        fresh = await service.create_training_client_from_state_async("path", base_model="other")
        resumed = await service.create_training_client_from_state_with_optimizer_async("path", base_model="other")
        assert (fresh.model_id, resumed.model_id) == ("model-2", "model-3")
        assert backend.asked("create_model_from_state") == [
            ("create_model_from_state", "path", optimizer, "other", {"run": "7"}) for optimizer in (False, True)
        ]
        assert (await service.create_sampling_client_async(base_model="base")).get_base_model() == "base"
        assert (await service.get_server_capabilities_async()).supported_models[0].model_name == "base"


def test_capabilities_are_asked_for_by_both_names() -> None:
    with ServiceClient(backend=RecordingBackend()) as service:
        assert service.get_server_capabilities() == service.create_rest_client().get_server_capabilities().result()


def test_nothing_to_sample_from_is_refused_at_once() -> None:
    with ServiceClient(backend=RecordingBackend()) as service, pytest.raises(ValueError, match="give model_path or base_model"):
        service.create_sampling_client()


def test_closing_cancels_what_runs_and_closes_the_backend_once() -> None:
    backend = RecordingBackend()
    backend.held = {"optim_step"}
    backend.open.clear()
    service = ServiceClient(backend=backend)
    client = service.create_training_client("base").result()
    running = client.optim_step(AdamParams())
    with pytest.raises(TimeoutError):
        running.result(timeout=0.05)
    for _ in range(2):
        service.close("success", detail="done").result()
    assert running.future().cancelled()
    assert backend.numbered() == {1: ("optim_step", AdamParams(learning_rate=1e-4))}
    assert backend.given_up == 1
    assert backend.closed == 1
    with pytest.raises(RuntimeError, match="is closed"):
        client.optim_step(AdamParams())


def test_an_interrupt_ends_what_runs_with_the_block() -> None:
    backend = RecordingBackend()
    backend.held = {"optim_step"}
    backend.open.clear()

    def script() -> None:
        with ServiceClient(backend=backend) as service:
            client = service.create_training_client("base").result()
            client.optim_step(AdamParams())
            raise KeyboardInterrupt  # as Ctrl-C does while a result is waited for

    with pytest.raises(KeyboardInterrupt):
        script()
    assert backend.closed == 1


def test_a_server_has_its_settings_itself() -> None:
    with pytest.raises(
        ConfigError, match=r"are of a service in this process, and base_url='http://127\.0\.0\.1:9' names a server"
    ):
        ServiceClient(base_url="http://127.0.0.1:9", engine=rinker.EngineSettings())


def test_a_rest_client_needs_a_server_or_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="needs base_url or TINKER_BASE_URL"):
        rinker.RestClient()
    with (
        ServiceClient(backend=RecordingBackend()) as service,
        pytest.raises(RequestFailedError, match="has no list of its checkpoints"),
    ):
        service.create_rest_client().list_user_checkpoints().result()


def test_a_service_in_this_process_lists_and_removes_its_checkpoints(tmp_path: Path) -> None:
    base = str(judge(tmp_path / "judge"))
    with ServiceClient(checkpoint_dir=tmp_path / "checkpoints", user_metadata={"run": "7"}) as service:
        rest = service.create_rest_client()
        client = service.create_training_client(base).result()
        client.save_state("one", ttl_seconds=3600).result()
        client.save_weights_for_sampler("two").result()
        newest, oldest = rest.list_checkpoints(client.model_id).result().checkpoints
        assert (newest.checkpoint_id, newest.checkpoint_type) == ("sampler_weights/two", "sampler")
        assert (oldest.checkpoint_id, oldest.checkpoint_type) == ("weights/one", "training")
        assert oldest.expires_at is not None
        assert (oldest.expires_at - oldest.time).total_seconds() == 3600
        run = rest.get_training_run(client.model_id).result()
        assert (run.base_model, run.last_checkpoint, run.user_metadata) == (base, oldest, {"run": "7"})
        assert rest.get_weights_info_by_tinker_path(oldest.tinker_path).result().base_model == base
        assert rest.list_training_runs().result().cursor.total_count == 1
        rest.delete_checkpoint(client.model_id, oldest.checkpoint_id).result()
        assert rest.list_user_checkpoints(limit=5).result().checkpoints == [newest]
        assert client.get_tokenizer().encode("six times seven") == tokenizer().encode("six times seven")


def test_a_reward_model_is_trained_by_the_same_client(tmp_path: Path) -> None:
    base = str(reward_model(tmp_path / "reward"))
    with ServiceClient(checkpoint_dir=tmp_path / "checkpoints") as service:
        client = service.create_training_client(base, kind="seq_cls").result()
        pair = [Datum(ModelInput.from_ints([5, 6, 7]), {"rejected_tokens": TensorData([5, 6], "int64")})]
        losses = []
        for _ in range(3):
            losses.append(client.forward_backward(pair, "bradley_terry").result().metrics["loss:sum"])
            client.optim_step(AdamParams(learning_rate=1e-2)).result()
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["ServiceClient", "TrainingClient", "SamplingClient"])
def test_methods_have_the_sdks_arguments_in_the_sdks_order(name: str) -> None:
    ours, theirs = getattr(rinker, name), getattr(tinker, name)
    shared = [method for method in dir(theirs) if not method.startswith("_") and hasattr(ours, method)]
    assert len(shared) >= 7
    for method in shared:
        if callable(getattr(theirs, method)) and method != "create":
            ours_of, theirs_of = (list(inspect.signature(getattr(one, method)).parameters.values()) for one in (ours, theirs))
            assert [(one.name, one.kind) for one in ours_of] == [(one.name, one.kind) for one in theirs_of], method
            defaults = [(one.default, other.default) for one, other in zip(ours_of, theirs_of, strict=True)]
            assert [one for one, other in defaults if one != other and method != "close"] == [], method


def test_public_names_are_the_sdks_where_both_have_them() -> None:
    for name in ("Datum", "ModelInput", "TensorData", "AdamParams", "SamplingParams", "RequestFailedError", "APIFuture", "types"):
        assert hasattr(tinker, name)
        assert hasattr(rinker, name)
    assert rinker.types.AdamParams is rinker.AdamParams
    assert {"ServiceClient", "types"} <= set(dir(rinker))
    with pytest.raises(AttributeError, match="no attribute 'AdminClient'"):
        _ = rinker.AdminClient
