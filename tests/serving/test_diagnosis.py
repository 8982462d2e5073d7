"""The end of a server's log becomes an error with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_loop.serving.diagnosis import explain

NOISE = """INFO 11-21 01:17:38 [core.py:1] all is well
(APIServer pid=7) INFO 11-21 01:17:38 [core_client.py:770] [shutdown] MPClient: start timeout=2s
nanobind: leaked 514 functions!
 - leaked function "create_fcmpOGE"
"""


def explained(tmp_path: Path, text: str) -> str:
    log = tmp_path / "rm-0.log"
    log.write_text(text)
    return explain(log)


def test_the_last_error_is_said_without_its_prefix_and_before_its_consequences(tmp_path: Path) -> None:
    text = (
        "(EngineCore pid=1) ERROR 11-21 01:17:38 [core.py:1512] Traceback (most recent call last):\n"
        "(EngineCore pid=1) ERROR 11-21 01:17:38 [core.py:1512] "
        "RuntimeError: Unsupported CPU attention configuration: head_dim=16\n"
        "(APIServer pid=2) ERROR 11-21 01:17:38 [async.py:9] vllm.v1.engine.exceptions.EngineDeadError: EngineCore had an issue\n"
    )
    said = explained(tmp_path, text + NOISE)
    assert said.startswith("it said RuntimeError: Unsupported CPU attention configuration: head_dim=16; most likely vLLM on")
    assert "rm-0.log" in said


def test_information_and_noise_at_the_end_are_left_out(tmp_path: Path) -> None:
    said = explained(tmp_path, "ValueError: no\n" + NOISE)
    assert "leaked" not in said
    assert "all is well" not in said


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("OSError: [Errno 98] Address already in use", "another program listens"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "gpu_memory_utilization"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory", "this machine's memory"),
        ("ValueError: Model architectures ['FooForBar'] are not supported for now.", "can't serve the architecture"),
        ("api_server.py: error: unrecognized arguments: --nonsense", "rollout.engine_kwargs"),
        ("ValueError: 4.0 GiB KV cache is needed, which is larger than the available 0.2 GiB", "cpu_kv_cache_mb"),
    ],
)
def test_known_causes_have_remedies(tmp_path: Path, line: str, remedy: str) -> None:
    said = explained(tmp_path, line + "\n")
    assert line in said
    assert remedy in said


def test_an_unknown_cause_shows_the_end_of_the_log(tmp_path: Path) -> None:
    said = explained(tmp_path, "\n".join(f"line {number}" for number in range(100)))
    assert "line 99" in said
    assert "line 20" not in said
    assert "most likely" not in said


def test_a_log_that_is_missing_is_said(tmp_path: Path) -> None:
    assert "can't be read" in explain(tmp_path / "none.log")
