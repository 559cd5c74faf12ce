"""Runs in MLflow: the sole importer of mlflow.

They are kept by a server (mlflow_server.py), or without one in SQLite in `mlruns/`, with artifacts beside it. There
everything that writes does so under one file lock: several processes may create the store, or log into it, at once, and
SQLite knows one writer at a time.

Names are the same in every run, so that runs compare in the UI; a metric that has a unit carries it in its name.
"""

import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from gigaslide import mlflow_server
from gigaslide.errors import UsageError
from gigaslide.files import atomic_path
from gigaslide.mlflow_server import TrackingError

if TYPE_CHECKING:
    import keras
    from mlflow import MlflowClient

FOLDER = Path("mlruns")
_CHAMPION = "champion"
_PARENT = "mlflow.parentRunId"  # MLflow's own tag for nested runs
_TEST_DICE = "test_dice_mean"
_ROWS_PER_BATCH = 100  # MLflow takes 1000 metrics in a request
_NO_SUCH_THING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # the latter of an alias


@dataclass(frozen=True)
class _Store:
    """Who keeps the runs: the server at `uri`, or SQLite in `folder` (None with a server)."""

    uri: str
    folder: Path | None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Have the store to oneself if it is SQLite.

        Raises:
            TrackingError: instead of what MLflow raises, but where it answers that there is no such thing.
        """
        from mlflow.exceptions import MlflowException
        from requests import RequestException  # what sends artifacts raises these

        # Held by the kernel for a process: it is free again when its holder is dead.
        lock = nullcontext() if self.folder is None else FileLock(self.folder / ".lock", is_singleton=True)
        with lock:
            try:
                yield
            except (MlflowException, RequestException) as error:
                if getattr(error, "error_code", "") in _NO_SUCH_THING:
                    raise
                why = mlflow_server.why(error)
                raise TrackingError(f"MLflow at {self.uri} did not do what it was asked ({why})") from None


class Run:
    """One MLflow run that is open for writing.

    A run may be opened again by a later stage with `resume`.
    """

    def __init__(self, client: "MlflowClient", store: _Store, run_id: str) -> None:
        self._client = client
        self._store = store
        self.run_id = run_id
        with store.open():
            self.name: str = client.get_run(run_id).info.run_name

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Log settings; those that the run has already keep their value."""
        from mlflow.entities import Param

        with self._store.open():
            known = self._client.get_run(self.run_id).data.params
            new = [Param(key, str(value)) for key, value in params.items() if key not in known]
            for start in range(0, len(new), _ROWS_PER_BATCH):
                self._client.log_batch(self.run_id, params=new[start : start + _ROWS_PER_BATCH])

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log numbers of one step."""
        self.log_rows([{"step": step, **metrics}])

    def log_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log many steps at once: every row has its number under `step`; values that are no numbers are left out."""
        import time

        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        with self._store.open():
            for start in range(0, len(rows), _ROWS_PER_BATCH):
                metrics = [
                    Metric(key, float(value), now_ms, int(row["step"]))
                    for row in rows[start : start + _ROWS_PER_BATCH]
                    for key, value in row.items()
                    if key != "step" and isinstance(value, int | float)
                ]
                self._client.log_batch(self.run_id, metrics=metrics)

    def logged_steps(self, metric: str) -> int:
        """Return the number of the first step that `metric` was not yet logged for."""
        with self._store.open():
            history = self._client.get_metric_history(self.run_id, metric)
        return max((point.step for point in history), default=-1) + 1

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        with self._store.open():
            for key, value in tags.items():
                self._client.set_tag(self.run_id, key, value)

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file, or a folder with all that is in it, into the run's artifacts."""
        log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        with self._store.open():
            log(self.run_id, str(path), folder or None)

    def log_dataset(self, name: str, source: str, digest: str, context: str) -> None:
        """Record which slides went in; `digest` is their DVC hash (at most 36 characters are kept)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name,
            digest=digest[:36],
            source_type="local",
            source=json.dumps({"uri": source}),
            profile=json.dumps({"dvc_hash": digest}),
        )
        with self._store.open():
            tag = InputTag("mlflow.data.context", context)
            self._client.log_inputs(self.run_id, [DatasetInput(dataset, [tag])])

    def log_model(self, model: "keras.Model", registered_name: str, metadata: Mapping[str, Any]) -> int:
        """Log the network with its signature and what is known of it, register it, and return the version it got."""
        import mlflow
        import numpy as np
        from mlflow.models import ModelSignature
        from mlflow.types import Schema, TensorSpec

        signature = ModelSignature(
            Schema([TensorSpec(np.dtype(np.float32), (-1, -1, -1, 3), "image")]),
            Schema([TensorSpec(np.dtype(np.float32), (-1, -1, -1, 1), "logits")]),
        )
        # The parent of an open MLflow run is the process: the fluent call is the only one that logs a Keras model.
        with self._store.open(), mlflow.start_run(run_id=self.run_id), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            info = mlflow.tensorflow.log_model(
                model,
                name="model",
                signature=signature,
                registered_model_name=registered_name,
                metadata=dict(metadata),
                # Named here, because MLflow would find them by loading the model in another process.
                pip_requirements=["tensorflow==2.19.*", "keras"],
            )
        return int(info.registered_model_version)

    def promote(self, registered_name: str, version: int, test_dice: float) -> bool:
        """Give `version` the alias `champion` if its test Dice is better than the present champion's.

        One that somebody made champion by hand, of which no test Dice is known, stays it. A server has nothing by which
        two machines could do this one after the other: of two within the same second, the later one wins.
        """
        from mlflow.exceptions import MlflowException

        with self._store.open():
            try:
                champion = self._client.get_model_version_by_alias(registered_name, _CHAMPION)
                best = float(champion.tags.get(_TEST_DICE, "inf"))
            except MlflowException as error:
                if error.error_code not in _NO_SUCH_THING:
                    raise
                best = -1.0
            self._client.set_model_version_tag(registered_name, str(version), _TEST_DICE, repr(test_dice))
            if test_dice <= best:
                return False
            self._client.set_registered_model_alias(registered_name, _CHAMPION, str(version))
            return True

    def finish(self, status: str = "FINISHED") -> None:
        """Close the run: FINISHED, FAILED or KILLED.

        The last two are said on the way out: what went wrong is worth more than that MLflow does not hear of it.
        """
        with suppress(*([] if status == "FINISHED" else [TrackingError])), self._store.open():
            self._client.set_terminated(self.run_id, status)


def start(
    experiment: str, name: str, folder: Path = FOLDER, parent_run_id: str | None = None, uri: str | None = None
) -> Run:
    """Open a new run, nested in another one if that is given; creates store and experiment if they are not there.

    Raises:
        TrackingError: the server does not answer.
    """
    from mlflow.exceptions import MlflowException

    client, store = _client(folder, uri)
    with store.open():
        found = client.get_experiment_by_name(experiment)
        if found is None:
            # A server knows itself where artifacts belong.
            location = f"{(folder / 'artifacts').resolve().as_uri()}/{experiment}" if store.folder else None
            try:
                client.create_experiment(experiment, artifact_location=location)
            except MlflowException as error:  # by another machine, just now
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            found = client.get_experiment_by_name(experiment)
        tags = {_PARENT: parent_run_id} if parent_run_id else {}
        run = client.create_run(found.experiment_id, run_name=name, tags=tags)
    return Run(client, store, run.info.run_id)


def resume(run_id: str, folder: Path = FOLDER, uri: str | None = None) -> Run | None:
    """Open a run again; None when the store does not know it (any more).

    Raises:
        TrackingError: the server does not answer.
    """
    from mlflow.exceptions import MlflowException

    client, store = _client(folder, uri)
    try:
        with store.open():
            client.update_run(run_id, "RUNNING")
        return Run(client, store, run_id)
    except MlflowException:
        return None


def fetch_model(model: str, target: Path, folder: Path = FOLDER, uri: str | None = None) -> dict[str, Any]:
    """Write the registered network `models:/name@alias` or `models:/name/version` to `target`; return its metadata.

    Raises:
        UsageError: there is no such network.
        TrackingError: the server does not answer.
    """
    import tempfile

    if mlflow_server.address(uri) is None and not (folder / "mlflow.db").exists():
        raise UsageError(f"{model} names a network in MLflow's registry, and there is none in {folder.absolute()}")
    _, store = _client(folder, uri)

    import mlflow
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory() as temporary:
        try:
            found = Path(mlflow.artifacts.download_artifacts(model, dst_path=temporary))
        except (MlflowException, OSError) as error:
            place = store.folder or store.uri
            raise UsageError(f"{model} should be a network in the registry of {place}: {error}") from None
        networks = sorted(found.rglob("*.keras"))
        if len(networks) != 1:
            raise UsageError(f"{model} should hold one network in Keras' format; it holds {len(networks)}")
        with atomic_path(target) as copy:
            shutil.copyfile(networks[0], copy)
        return dict(mlflow.models.Model.load(found).metadata or {})


def _client(folder: Path, uri: str | None) -> tuple["MlflowClient", _Store]:
    # No call home, no thread that samples the machine every ten seconds: memory_gb is measured per step.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault(mlflow_server.TRIES, mlflow_server.TRIES_WHILE_RUNNING)
    address = mlflow_server.address(uri)
    if address is None:
        folder.mkdir(parents=True, exist_ok=True)
        store = _Store(f"sqlite:///{folder / 'mlflow.db'}", folder)
    else:
        store = _Store(address, None)
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with store.open():
        with mlflow_server.environment(mlflow_server.ADDRESS):
            # MLflow writes it into the environment, where a process of ours would take it for the user's wish.
            mlflow.set_tracking_uri(store.uri)
        client = mlflow.MlflowClient(store.uri)
        # The first call creates the tables. A server that does not answer now was not there.
        with mlflow_server.environment(mlflow_server.TRIES, mlflow_server.TRIES_AT_START):
            client.search_experiments(max_results=1)
    return client, store
