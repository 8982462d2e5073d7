"""Training and sampling over HTTP: what the backend is asked, and what becomes of requests that can't be understood."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.types import AdamParams, Datum, ModelInput, TensorData
from reward_loop.rinker.wire.compression import compressed
from reward_loop.rinker.wire.forward_call import ForwardCall, encode_forward_call
from reward_loop.rinker.wire.forward_output import decode_forward_output
from reward_loop.rinker.wire.protocol import PROTOBUF, messages, serialized
from tests.rinker.server.http_caller import asked_to_sample, calling
from tests.rinker.server.reluctant_threads import ReluctantThreads

DATUM = Datum(ModelInput.from_ints([1, 2, 3]), {"target_tokens": TensorData([2, 3, 4], "int64")})
LARGE = Datum(ModelInput.from_ints([1] * 100_000), {"target_tokens": TensorData([2] * 100_000, "int64")})
TAKES_THE_PLACE: tuple[Any, ...] = ([], "cross_entropy", None, True)


def call_of(model: str, number: int = 1, **fields: Any) -> bytes:
    return encode_forward_call(model, number, ForwardCall([DATUM], "cross_entropy", **fields))


def broken_call(model: str, number: int) -> bytes:
    message = messages.ForwardBackwardRequest(model_id=model, seq_id=number, loss_fn="cross_entropy")
    message.data.add().loss_fn_inputs["weights"].CopyFrom(messages.Tensor(dense=b"abc", shape=[1]))
    return serialized(message)


@pytest.mark.parametrize("packed", [False, True])
async def test_a_pass_is_asked_of_the_backend_as_it_was_sent(packed: bool) -> None:
    async with calling() as caller:
        model = await caller.model()
        body = call_of(model, 1, config={"beta": 0.5}, forward_only=True)
        encoding = {"Content_Encoding": "zstd"} if packed else {}
        result = await caller.result("/forward_backward", compressed(body) if packed else body, Content_Type=PROTOBUF, **encoding)
        assert caller.backend.asked("forward_backward") == [
            ("forward_backward", model, 1, [DATUM], "cross_entropy", {"beta": 0.5}, True)
        ]
        assert decode_forward_output(result.raw).loss_fn_outputs[0]["logprobs"].tolist() == [-1.0, -1.0, -1.0]


async def test_steps_saves_and_loads_are_asked_of_the_backend_as_they_were_sent() -> None:
    async with calling() as caller:
        model = await caller.model()
        at = {"model_id": model}
        stepped = await caller.result("/optim_step", at | {"seq_id": 1, "adam_params": {"learning_rate": 1, "beta2": 0.5}})
        assert stepped.json == {"metrics": {"step": 1.0, "grad_norm": "nan"}, "type": "optim_step"}
        saved = await caller.result("/save_weights", at | {"seq_id": 2, "path": "a", "overwrite": True, "ttl_seconds": 5})
        assert saved.json["path"] == f"tinker://{model}/weights/a"
        loaded = await caller.result("/load_weights", at | {"seq_id": 3, "path": "tinker://a/weights/b", "optimizer": False})
        assert loaded.json["model_id"] == model
        named = await caller.result("/save_weights_for_sampler", at | {"seq_id": 4, "path": "b", "user_metadata": {"k": "v"}})
        assert named.json["path"] == f"tinker://{model}/sampler_weights/b"
        body = at | {"seq_id": 5, "sampling_session_seq_id": 0, "kind": "inflight"}
        sampler = (await caller.result("/save_weights_for_sampler", body)).json["sampling_session_id"]
        assert (await caller.get(f"/samplers/{sampler}")).json["base_model"] == "base"
        assert caller.backend.calls[1:] == [
            ("optim_step", model, 1, AdamParams(learning_rate=1.0, beta2=0.5)),
            ("save_state", model, 2, "a", True, 5, None),
            ("load_state", model, 3, "tinker://a/weights/b", False),
            ("save_weights_for_sampler", model, 4, "b", "snapshot", None, {"k": "v"}),
            ("save_weights_for_sampler", model, 5, None, "inflight", None, None),
        ]


async def test_a_pass_that_can_not_be_understood_takes_its_place_in_the_order() -> None:
    async with calling() as caller:
        model = await caller.model()
        failed = await caller.result("/forward_backward", broken_call(model, 1), Content_Type=PROTOBUF)
        assert failed.json["category"] == "user"
        assert "loss_fn_inputs['weights'] of datum 0" in failed.json["error"]
        assert caller.backend.asked("forward_backward") == [("forward_backward", model, 1, *TAKES_THE_PLACE)]


@pytest.mark.parametrize(
    ("path", "fields", "why"),
    [
        ("/optim_step", {"adam_params": {"learning_rate": "high"}}, "adam_params.learning_rate"),
        ("/optim_step", {"optimizer_params": {"type": "dimuon"}}, "optimizer_params"),
        ("/save_weights", {"path": 5}, "path"),
        ("/save_weights_for_sampler", {"kind": "other"}, "kind"),
        ("/load_weights", {"path": "a"}, "optimizer"),
    ],
)
async def test_a_step_that_can_not_be_understood_takes_its_place_in_the_order(
    path: str, fields: dict[str, Any], why: str
) -> None:
    async with calling() as caller:
        model = await caller.model()
        failed = await caller.result(path, {"model_id": model, "seq_id": 1, **fields})
        assert failed.json["category"] == "user"
        assert why in failed.json["error"]
        assert caller.backend.asked("forward_backward") == [("forward_backward", model, 1, *TAKES_THE_PLACE)]


async def test_a_pass_that_is_given_up_while_it_is_read_takes_its_place_in_the_order() -> None:
    threads = ReluctantThreads(free=1)  # which tells whose pass it is
    async with calling() as caller:
        model = await caller.model()
        caller.backend.open.clear()
        large = encode_forward_call(model, 1, ForwardCall([LARGE], "cross_entropy"))
        assert len(large) > 1 << 18
        promised = await caller.post("/forward_backward", large, Content_Type=PROTOBUF)
        assert caller.backend.asked("forward_backward") == []
        body = {"request_id": promised.json["request_id"]}
        await caller.post("/cancel_future", body)
        assert (await caller.post("/retrieve_future", body)).json["error"] == "the request was cancelled"
        assert caller.backend.asked("forward_backward") == [("forward_backward", model, 1, *TAKES_THE_PLACE)]
        threads.go_on.set()
    assert caller.backend.given_up == 1  # the end of the server does not wait until it is its turn


@pytest.mark.parametrize("number", [0, -1, 2**63, "1", None, 1.5])
async def test_a_request_without_a_place_is_refused(number: object) -> None:
    async with calling() as caller:
        said = await caller.post("/optim_step", {"model_id": await caller.model(), "seq_id": number, "adam_params": {}})
        assert said.status == 400
        assert "seq_id" in said.json["detail"]


async def test_a_pass_is_protobuf_of_a_model_that_is_there() -> None:
    async with calling() as caller:
        model = await caller.model()
        assert (await caller.post("/forward_backward", b"{}", Content_Type="application/json")).status == 400
        assert (await caller.post("/forward_backward", b"\xff\xff", Content_Type=PROTOBUF)).status == 400
        assert (await caller.post("/forward_backward", call_of(model, 0), Content_Type=PROTOBUF)).status == 400
        assert (await caller.post("/forward_backward", call_of("nobody"), Content_Type=PROTOBUF)).status == 404


@pytest.mark.parametrize("name", ["", "m" * 5000])
async def test_a_pass_of_a_model_that_can_have_no_such_name_is_refused(name: str) -> None:
    async with calling() as caller:
        said = await caller.post("/forward_backward", call_of(name), Content_Type=PROTOBUF)
        assert said.status == 400
        assert "model_id" in said.json["detail"]


@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_that_is_too_large_is_refused(packed: bool) -> None:
    async with calling(max_body_mb=1) as caller:
        body = b"\0" * (1 << 21)
        said = await caller.post(
            "/forward_backward",
            compressed(body) if packed else body,
            Content_Type=PROTOBUF,
            Content_Encoding="zstd" if packed else "identity",
        )
        assert said.status == 413
        assert "in several parts" in said.json["detail"]


async def test_a_body_packed_in_another_way_is_refused() -> None:
    async with calling() as caller:
        assert (await caller.post("/create_session", b"abc", Content_Encoding="gzip")).status == 415
        assert (await caller.post("/create_session", b"abc", Content_Encoding="zstd")).status == 400


async def test_sampling_sessions_are_made_of_weights_or_of_a_base_model() -> None:
    async with calling() as caller:
        session = await caller.session()
        body = {"session_id": session, "sampling_session_seq_id": 0}
        first = await caller.post("/create_sampling_session", body | {"model_path": "tinker://m/weights/a"})
        again = await caller.post("/create_sampling_session", body | {"model_path": "tinker://m/weights/a"})
        assert first.json == again.json
        assert caller.backend.asked("create_sampling_session") == [("create_sampling_session", "tinker://m/weights/a", None)]
        both = body | {"sampling_session_seq_id": 1, "model_path": "a", "base_model": "b"}
        assert (await caller.post("/create_sampling_session", both)).status == 400
        nowhere = body | {"sampling_session_seq_id": 2, "model_path": "tinker://no/weights/no"}
        said = await caller.post("/create_sampling_session", nowhere)
        assert (said.status, said.json["error"]) == (400, "there is no such checkpoint")


async def test_every_client_of_a_sampling_session_has_a_number_of_its_own() -> None:
    async with calling() as caller:
        body = {"sampling_session_id": await caller.sampler()}
        assert [(await caller.post("/join_sampling_session", body)).json["client_counter"] for _ in range(2)] == [1, 2]
        assert (await caller.post("/close_sampling_session", body)).status == 200
        assert (await caller.post("/join_sampling_session", body)).status == 404
        assert (await caller.post("/asample", asked_to_sample(body["sampling_session_id"]))).status == 404


async def test_more_sequences_than_allowed_are_refused() -> None:
    async with calling(max_samples=4) as caller:
        sampler = await caller.sampler()
        assert (await caller.post("/asample", asked_to_sample(sampler, num_samples=4))).status == 200
        assert (await caller.post("/asample", asked_to_sample(sampler, 1, num_samples=5))).status == 400
