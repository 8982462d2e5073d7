from __future__ import annotations

import importlib
import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError
from reward_loop.rubrics.logger import RewardLogger


def test_an_unknown_backend_or_option_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'wandbb' is none of tensorboard, wandb, mlflow, jsonl, memory"):
        RewardLogger("wandbb")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no option project; it has path"):
        RewardLogger("jsonl", project="x")
    with pytest.raises(ConfigError, match="can be written to"):
        RewardLogger("jsonl", path=tmp_path)
    with pytest.raises(ValueError, match="queue_records=0"):
        RewardLogger("memory", queue_records=0)


MISSING = """
import sys
sys.modules.update(dict.fromkeys(["tensorboard", "wandb", "mlflow"]))  # as if they were not installed
from reward_loop.errors import ConfigError
from reward_loop.rubrics.logger import RewardLogger
assert "torch" not in sys.modules
for name in ("tensorboard", "wandb", "mlflow"):
    try:
        RewardLogger(name)
    except ConfigError as error:
        print(error)
"""


def test_a_missing_package_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True, timeout=120)
    for name, line in zip(("tensorboard", "wandb", "mlflow"), done.stdout.splitlines(), strict=True):
        assert line == f"backend='{name}' needs {name}: pip install 'reward-loop[{name}]'"


def log_example(logger: RewardLogger) -> None:
    for step in range(3):
        logger.log_step(step=step, reward=float(step), components={"style": 0.5}, weights={"style": 1.0 if step == 0 else 0.25})
    logger.log_config_update(2, {"weights": {"style": 0.25}}, step=2)
    logger.close()


EXAMPLE: Mapping[str, list[tuple[int, float]]] = {
    "reward/total": [(0, 0.0), (1, 1.0), (2, 2.0)],
    "reward/style": [(0, 0.5), (1, 0.5), (2, 0.5)],
    "reward/weights/style": [(0, 1.0), (1, 0.25)],
    "config/updates": [(2, 2.0)],
    "progress/samples": [(0, 1.0), (1, 1.0), (2, 1.0)],
}
"""What every backend's own reader finds after `log_example`, as (step, value)."""


def test_lines_of_json_hold_what_was_logged_and_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rewards.jsonl"
    log_example(RewardLogger("jsonl", path=path))
    with path.open("a") as file:
        file.write('{"step": 3, "rew')  # a run that was killed
    log_example(RewardLogger("jsonl", path=path))
    lines = path.read_text().splitlines()
    assert lines[3] == '{"step": 3, "rew'
    for run in (lines[:3], lines[4:]):
        rows = [json.loads(line) for line in run]
        assert rows[2]["config/updates"] == [{"version": 2, "changes": {"weights": {"style": 0.25}}}]
        for name, points in EXAMPLE.items():
            if name != "config/updates":
                assert [(row["step"], row[name]) for row in rows if name in row] == points


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    reader = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(reader, reason="needs the extra tensorboard")
    log_example(RewardLogger("tensorboard", log_dir=tmp_path))
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(EXAMPLE)
    for name, points in EXAMPLE.items():
        assert [(event.step, event.value) for event in events.Scalars(name)] == points
    [text] = events.Tensors("config/changes/text_summary")
    assert json.loads(text.tensor_proto.string_val[0]) == {"version": 2, "changes": {"weights": {"style": 0.25}}}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackers report on their users; not from these tests."""
    for name, value in {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}.items():
        monkeypatch.setenv(name, value)


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """Read the history of an offline run: a log of LevelDB's form, with a header of 7 bytes, holding protobuf records."""
    record_type: Any = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left_in_block = 32768 - place % 32768
        if left_in_block < 7:
            place += left_in_block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a record in one piece, or its last piece
            record = record_type()
            record.ParseFromString(whole)
            whole = b""
            if record.history.item:
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}


@pytest.mark.usefixtures("no_network")
def test_an_offline_run_of_wandb_holds_what_was_logged(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    log_example(RewardLogger("wandb", mode="offline", dir=str(tmp_path), name="example"))
    wandb.teardown()  # `finish` may return before wandb's own process has written the file
    [file] = tmp_path.rglob("*.wandb")
    rows = list(rows_of(file))
    for name, points in EXAMPLE.items():
        assert [(row["reward_step"], row[name]) for row in rows if name in row] == points
    assert json.loads(rows[2]["config/changes"]) == {"2": {"weights": {"style": 0.25}}}


@pytest.mark.usefixtures("no_network")
def test_a_run_of_wandb_that_is_shared_stays_open(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    with wandb.init(mode="offline", dir=str(tmp_path), project="mine") as run:
        log_example(RewardLogger("wandb", run=run))
        run.log({"loss": 0.5})
    wandb.teardown()
    [file] = tmp_path.rglob("*.wandb")
    rows = list(rows_of(file))
    assert [row["reward/total"] for row in rows if "reward/total" in row] == [0.0, 1.0, 2.0]
    assert [row["loss"] for row in rows if "loss" in row] == [0.5]


def points_of(client: Any, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]


@pytest.mark.usefixtures("no_network")
def test_a_file_store_of_mlflow_holds_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "runs").as_uri()
    log_example(RewardLogger("mlflow", tracking_uri=uri, experiment="rewards", run_name="example"))
    client = mlflow.MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name("rewards").experiment_id])
    assert (run.info.run_name, run.info.status) == ("example", "FINISHED")
    assert set(run.data.metrics) == set(EXAMPLE)
    for name, points in EXAMPLE.items():
        assert points_of(client, run.info.run_id, name) == points
    changes = next((tmp_path / "runs").rglob("config_updates/2.json"))
    assert json.loads(changes.read_text()) == {"weights": {"style": 0.25}}


@pytest.mark.usefixtures("no_network")
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")  # what mlflow asks of sqlalchemy
def test_a_run_of_mlflow_in_sqlite_that_is_shared_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    pytest.importorskip("sqlalchemy", reason="mlflow's sqlite store needs it")
    pytest.importorskip("alembic", reason="mlflow's sqlite store needs it")
    monkeypatch.chdir(tmp_path)
    client = mlflow.MlflowClient("sqlite:///runs.db")
    run = client.create_run(client.create_experiment("mine", artifact_location=(tmp_path / "files").as_uri()))
    log_example(RewardLogger("mlflow", tracking_uri="sqlite:///runs.db", run_id=run.info.run_id))
    assert points_of(client, run.info.run_id, "reward/total") == EXAMPLE["reward/total"]
    assert client.get_run(run.info.run_id).info.status == "RUNNING"


@pytest.mark.usefixtures("no_network")
def test_what_mlflow_refuses_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    uri = (tmp_path / "runs").as_uri()
    with pytest.raises(ConfigError, match="MLFLOW_ALLOW_FILE_STORE"):
        RewardLogger("mlflow", tracking_uri=uri)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with pytest.raises(ConfigError, match="no-such-run"):
        RewardLogger("mlflow", tracking_uri=uri, run_id="no-such-run")
