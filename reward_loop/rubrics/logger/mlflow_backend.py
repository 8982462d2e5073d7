"""MLflow, on a tracking server or in a local store."""

from __future__ import annotations

import json

from mlflow import MlflowClient  # pyright: ignore[reportMissingImports] - an extra that not every environment can hold
from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]
from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]

from reward_loop.errors import ConfigError
from reward_loop.rubrics.logger.record import Record

_MOST_PER_CALL = 1000


class MlflowBackend:
    """A run in `experiment`, or `run_id`, one of yours, which `close` leaves open; `tracking_uri` None is MLflow's own default.

    A path of a file store needs the environment variable MLFLOW_ALLOW_FILE_STORE=true (MLflow asks for it), `sqlite:///runs.db`
    needs sqlalchemy and alembic.
    """

    def __init__(
        self,
        experiment: str = "reward_loop",
        tracking_uri: str | None = None,
        run_name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._own = run_id is None
        try:
            self._client = MlflowClient(tracking_uri)
            self._run_id = run_id or self._new_run(experiment, run_name)
            self._client.get_run(self._run_id)
        except (MlflowException, ImportError) as error:  # ImportError: the packages that a store by SQL needs
            raise ConfigError(f"backend='mlflow', tracking_uri={tracking_uri!r}: {error}") from error

    def write(self, record: Record) -> None:
        """Log its numbers together; changes of the configuration become files of the run, `config_updates/VERSION.json`."""
        milliseconds = int(record.time * 1000)
        metrics = [Metric(name, value, milliseconds, record.step) for name, value in record.numbers().items()]
        for first in range(0, len(metrics), _MOST_PER_CALL):
            self._client.log_batch(self._run_id, metrics[first : first + _MOST_PER_CALL])
        for update in record.updates:
            changes = json.dumps(update.changes, ensure_ascii=False, default=str)
            self._client.log_text(self._run_id, changes, f"config_updates/{update.version}.json")

    def flush(self) -> None:
        """Do nothing: what is written is there."""

    def close(self) -> None:
        """End the run, if it is the backend's own."""
        if self._own:
            self._client.set_terminated(self._run_id)

    def _new_run(self, experiment: str, run_name: str | None) -> str:
        known = self._client.get_experiment_by_name(experiment)
        experiment_id = known.experiment_id if known else self._client.create_experiment(experiment)
        run_id: str = self._client.create_run(experiment_id, run_name=run_name).info.run_id
        return run_id
