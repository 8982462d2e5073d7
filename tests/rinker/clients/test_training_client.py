from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.types import AdamParams, Datum, ModelInput, TensorData
from tests.rinker.recording_backend import RecordingBackend

ADAM = AdamParams(learning_rate=0.5)


def data(count: int, length: int = 2) -> list[Datum]:
    return [Datum(ModelInput.from_ints([n] * length), {"target_tokens": TensorData([1] * length, "int64")}) for n in range(count)]


@pytest.fixture
def backend() -> Iterator[RecordingBackend]:
    backend = RecordingBackend()
    yield backend
    backend.numbered()  # no test may end with a number that was sent twice


@pytest.fixture
def client(backend: RecordingBackend) -> Iterator[TrainingClient]:
    with ServiceClient(backend=backend, chunks=ChunkLimits(max_data=3)) as service:
        yield service.create_training_client("base").result()


def likelihood(_: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    return -torch.cat(logprobs).sum(), {"mine": 1.0}


def test_the_order_is_that_of_the_calls(client: TrainingClient, backend: RecordingBackend) -> None:
    futures: list[APIFuture[Any]] = [
        client.forward_backward(data(1), "ppo", {"clip_low_threshold": 0.5}),
        client.optim_step(ADAM),
        client.save_state("a", 60, True, {"b": "c"}),
        client.load_state("tinker://m/weights/a"),
        client.load_state_with_optimizer("tinker://m/weights/a"),
        client.save_weights_for_sampler("d"),
        client.save_weights_and_get_sampling_client(),
        client.save_weights_and_get_sampling_client(kind="inflight"),
        client.forward(data(2), "cross_entropy"),
        client.optim_step(adam_params=ADAM),
    ]
    for future in reversed(futures):
        future.result()
    sent = backend.numbered()
    assert [sent[seq_id] for seq_id in range(1, 11)] == [
        ("forward_backward", data(1), "ppo", {"clip_low_threshold": 0.5}, False),
        ("optim_step", ADAM),
        ("save_state", "a", True, 60, {"b": "c"}),
        ("load_state", "tinker://m/weights/a", False),
        ("load_state", "tinker://m/weights/a", True),
        ("save_weights_for_sampler", "d", "snapshot", None, None),
        ("save_weights_for_sampler", None, "snapshot", None, None),
        ("save_weights_for_sampler", None, "inflight", None, None),
        ("forward_backward", data(2), "cross_entropy", None, True),
        ("optim_step", ADAM),
    ]


def test_every_number_is_given_once_whichever_thread_calls(client: TrainingClient, backend: RecordingBackend) -> None:
    def call() -> None:
        for future in [client.optim_step(ADAM) for _ in range(20)]:
            future.result()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(backend.numbered()) == list(range(1, 161))


def test_a_long_pass_is_cut_and_its_results_are_those_of_one(client: TrainingClient, backend: RecordingBackend) -> None:
    backend.metrics = lambda _, part: {"loss:sum": float(len(part)), "length:mean": float(len(part))}
    output = client.forward_backward(data(7), "ppo").result()
    client.optim_step(ADAM).result()
    assert backend.numbered() == {
        1: ("forward_backward", data(7)[:3], "ppo", None, False),
        2: ("forward_backward", data(7)[3:6], "ppo", None, False),
        3: ("forward_backward", data(7)[6:], "ppo", None, False),
        4: ("optim_step", ADAM),
    }
    assert len(output.loss_fn_outputs) == 7
    assert output.metrics == {"loss:sum": 7.0, "length:mean": pytest.approx((3 * 3 + 3 * 3 + 1) / 7)}


def test_a_pass_is_cut_by_its_size_too(backend: RecordingBackend) -> None:
    with ServiceClient(backend=backend, chunks=ChunkLimits(max_bytes=100)) as service:
        client = service.create_training_client("base").result()
        client.forward([*data(3), *data(1, 500), *data(1)], "ppo").result()
    assert [len(part) for _, (_, part, *_) in sorted(backend.numbered().items())] == [3, 1, 1]


def test_a_custom_loss_takes_two_passes_and_holds_back_what_is_called_behind_it(
    client: TrainingClient, backend: RecordingBackend
) -> None:
    sent_before_the_loss: list[set[int]] = []

    def loss(given: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        sent_before_the_loss.append(set(backend.numbered()))
        assert [datum.model_input.to_ints()[0] for datum in given] == [0, 1, 2, 3]
        return likelihood(given, logprobs)

    custom = client.forward_backward_custom(data(4), loss)
    step = client.optim_step(ADAM)
    metrics = custom.result().metrics
    step.result()
    sent = backend.numbered()
    assert sent_before_the_loss == [{1, 2}]
    assert [(len(sent[number][1]), sent[number][2], sent[number][4]) for number in range(1, 5)] == [
        (3, "cross_entropy", True),
        (1, "cross_entropy", True),
        (3, "cross_entropy", False),
        (1, "cross_entropy", False),
    ]
    assert sent[5] == ("optim_step", ADAM)
    assert sent[3][1][0].loss_fn_inputs["weights"].tolist() == [1.0, 1.0]  # minus the gradient
    assert (metrics["loss:sum"], metrics["mine"]) == (8.0, 1.0)


def test_a_function_in_the_place_of_a_losss_name_is_a_custom_loss(client: TrainingClient) -> None:
    assert client.forward_backward(data(1), likelihood).result().metrics["loss:sum"] == 2.0


def test_a_custom_loss_that_fails_poisons_the_client_and_no_other(client: TrainingClient, backend: RecordingBackend) -> None:
    def broken(_: list[Datum], __: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        raise KeyError("no such key")

    custom, behind = client.forward_backward_custom(data(1), broken), client.optim_step(ADAM)
    with pytest.raises(KeyError, match="no such key"):
        custom.result()
    for late in (behind, client.forward(data(1), "ppo"), client.forward_backward_custom(data(1), likelihood)):
        with pytest.raises(RequestFailedError, match="a custom loss of this TrainingClient failed before this call") as failed:
            late.result()
        assert failed.value.category == "user"
    assert set(backend.numbered()) == {1}


def test_a_custom_loss_that_is_cancelled_poisons_the_client_too(client: TrainingClient, backend: RecordingBackend) -> None:
    backend.open.clear()
    custom, behind = client.forward_backward_custom(data(1), likelihood), client.optim_step(ADAM)
    custom.future().cancel()
    with pytest.raises(RequestFailedError, match="a custom loss of this TrainingClient failed"):
        behind.result()


def test_an_operation_that_fails_poisons_nothing(client: TrainingClient, backend: RecordingBackend) -> None:
    backend.failure = RequestFailedError("unknown loss 'wrong'", category="user")
    wrong, step = client.forward_backward(data(5), "wrong"), client.optim_step(ADAM)
    with pytest.raises(RequestFailedError, match="unknown loss 'wrong'"):
        wrong.result()
    step.result()


def test_cancelling_a_future_cancels_its_operation(client: TrainingClient, backend: RecordingBackend) -> None:
    backend.held = {"optim_step"}
    backend.open.clear()
    future = client.optim_step(ADAM)
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    assert future.future().cancel()
    client.forward(data(1), "ppo").result()
    assert backend.numbered()[1] == ("optim_step", ADAM)
    assert backend.given_up == 1


async def test_a_wait_that_gave_up_leaves_the_operation_and_a_cancelled_one_ends_it(
    client: TrainingClient, backend: RecordingBackend
) -> None:
    backend.held = {"optim_step"}
    backend.open.clear()
    future = client.optim_step(ADAM)
    with pytest.raises(TimeoutError, match=r"no result within 0\.01 s; the operation goes on"):
        await future.result_async(timeout=0.01)
    assert not future.future().done()
    task = asyncio.create_task(future.coroutine())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.future().cancelled()


def test_waiting_on_the_clients_own_loop_is_refused_instead_of_lasting_for_ever(
    client: TrainingClient, backend: RecordingBackend
) -> None:
    backend.held = {"optim_step"}
    backend.open.clear()
    errors: list[BaseException] = []
    never = client.optim_step(ADAM)
    passed = client.forward(data(1), "ppo")

    def wait(_: object) -> None:
        try:
            never.result()
        except RuntimeError as error:
            errors.append(error)

    passed.future().add_done_callback(wait)
    passed.result()
    client.forward(data(1), "ppo").result()  # the loop goes on
    assert "would wait for itself" in str(errors[0])


async def test_the_twins_give_what_the_sdks_give(client: TrainingClient) -> None:
    passed = await client.forward_backward_async(data(1), "ppo")
    stepped = await client.optim_step_async(ADAM)
    assert (await passed).metrics["loss:sum"] == 1.0
    await stepped.result_async()
    assert (await (await client.forward_async(data(1), "ppo"))).metrics["loss:sum"] == 3.0
    assert (await (await client.forward_backward_custom_async(data(1), likelihood))).metrics["mine"] == 1.0
    assert (await (await client.save_state_async("a"))).path == "tinker://model-0/weights/a"
    assert (await (await client.load_state_async("b"))).path == "b"
    assert (await (await client.load_state_with_optimizer_async("b"))).path == "b"
    assert (await (await client.save_weights_for_sampler_async("c"))).path == "tinker://model-0/sampler_weights/c"
    assert (await client.save_weights_and_get_sampling_client_async()).get_base_model() == "base"
    assert (await client.create_sampling_client_async("d")).get_base_model() == "base"
    assert await client.get_info_async() == client.get_info()


@pytest.mark.parametrize("call", [TrainingClient.forward, TrainingClient.forward_backward])
def test_without_data_there_is_nothing_to_pass(client: TrainingClient, call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match="no data"):
        call(client, [], "ppo")


def test_arguments_that_are_wrong_take_no_number(client: TrainingClient, backend: RecordingBackend) -> None:
    with pytest.raises(TypeError, match="takes AdamParams, not NoneType"):
        client.optim_step()
    with pytest.raises(ValueError, match="are the same argument"):
        client.optim_step(ADAM, adam_params=ADAM)
    with pytest.raises(RequestFailedError, match="lacks target_tokens"):
        client.forward_backward_custom([Datum(ModelInput.from_ints([1]))], likelihood)
    client.optim_step(ADAM).result()
    assert set(backend.numbered()) == {1}


def test_unloading_frees_the_model(client: TrainingClient, backend: RecordingBackend) -> None:
    client.unload().result()
    assert backend.asked("unload_model") == [("unload_model", "model-0")]
