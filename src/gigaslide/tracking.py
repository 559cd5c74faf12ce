"""Runs in MLflow: the sole importer of mlflow.

The store is SQLite in `mlruns/`, artifacts lie beside it. Everything that writes does so under one file lock: several
processes may create the store, or log into it, at once, and SQLite knows one writer at a time.

Names are the same in every run, so that runs compare in the UI; a metric that has a unit carries it in its name.
"""

import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from gigaslide.errors import UsageError
from gigaslide.files import atomic_path

if TYPE_CHECKING:
    import keras
    from mlflow import MlflowClient

FOLDER = Path("mlruns")
_CHAMPION = "champion"
_PARENT = "mlflow.parentRunId"  # MLflow's own tag for nested runs
_TEST_DICE = "test_dice_mean"
_ROWS_PER_BATCH = 100  # MLflow takes 1000 metrics in a request


class Run:
    """One MLflow run that is open for writing.

    A run may be opened again by a later stage with `resume`.
    """

    def __init__(self, client: "MlflowClient", folder: Path, run_id: str) -> None:
        self._client = client
        self._folder = folder
        self.run_id = run_id
        self.name: str = client.get_run(run_id).info.run_name

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Log settings; those that the run has already keep their value."""
        from mlflow.entities import Param

        with _locked(self._folder):
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
        with _locked(self._folder):
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
        history = self._client.get_metric_history(self.run_id, metric)
        return max((point.step for point in history), default=-1) + 1

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        with _locked(self._folder):
            for key, value in tags.items():
                self._client.set_tag(self.run_id, key, value)

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file, or a folder with all that is in it, into the run's artifacts."""
        log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        with _locked(self._folder):
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
        with _locked(self._folder):
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
        with _locked(self._folder), mlflow.start_run(run_id=self.run_id), warnings.catch_warnings():
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
        """Give `version` the alias `champion` if its test Dice is better than the present champion's."""
        from mlflow.exceptions import MlflowException

        with _locked(self._folder):
            try:
                champion = self._client.get_model_version_by_alias(registered_name, _CHAMPION)
                best = float(champion.tags[_TEST_DICE])
            except MlflowException:
                best = -1.0
            self._client.set_model_version_tag(registered_name, str(version), _TEST_DICE, repr(test_dice))
            if test_dice <= best:
                return False
            self._client.set_registered_model_alias(registered_name, _CHAMPION, str(version))
            return True

    def finish(self, status: str = "FINISHED") -> None:
        """Close the run: FINISHED, FAILED or KILLED."""
        with _locked(self._folder):
            self._client.set_terminated(self.run_id, status)


def start(experiment: str, name: str, folder: Path = FOLDER, parent_run_id: str | None = None) -> Run:
    """Open a new run, nested in another one if that is given; creates store and experiment if they are not there."""
    client = _client(folder)
    with _locked(folder):
        found = client.get_experiment_by_name(experiment)
        location = (folder / "artifacts").resolve().as_uri()
        experiment_id = (
            found.experiment_id
            if found
            else client.create_experiment(experiment, artifact_location=f"{location}/{experiment}")
        )
        tags = {_PARENT: parent_run_id} if parent_run_id else {}
        run = client.create_run(experiment_id, run_name=name, tags=tags)
    return Run(client, folder, run.info.run_id)


def resume(run_id: str, folder: Path = FOLDER) -> Run | None:
    """Open a run again; None when the store does not know it (any more)."""
    from mlflow.exceptions import MlflowException

    client = _client(folder)
    try:
        with _locked(folder):
            client.update_run(run_id, "RUNNING")
        return Run(client, folder, run_id)
    except MlflowException:
        return None


def fetch_model(uri: str, target: Path, folder: Path = FOLDER) -> dict[str, Any]:
    """Write the registered network `models:/name@alias` or `models:/name/version` to `target`; return its metadata.

    Raises:
        UsageError: there is no such network.
    """
    import tempfile

    import mlflow
    from mlflow.exceptions import MlflowException

    if not (folder / "mlflow.db").exists():
        raise UsageError(f"{uri} names a network in MLflow's registry, and there is none in {folder.absolute()}")
    _client(folder)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            found = Path(mlflow.artifacts.download_artifacts(uri, dst_path=temporary))
        except (MlflowException, OSError) as error:
            raise UsageError(f"{uri} should be a network in the registry of {folder}: {error}") from None
        networks = sorted(found.rglob("*.keras"))
        if len(networks) != 1:
            raise UsageError(f"{uri} should hold one network in Keras' format; it holds {len(networks)}")
        with atomic_path(target) as copy:
            shutil.copyfile(networks[0], copy)
        return dict(mlflow.models.Model.load(found).metadata or {})


def _client(folder: Path) -> "MlflowClient":
    # No call home, no thread that samples the machine every ten seconds: memory_gb is measured per step.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    folder.mkdir(parents=True, exist_ok=True)
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with _locked(folder):
        mlflow.set_tracking_uri(uri)
        client = mlflow.MlflowClient(uri)
        # The first call creates the tables.
        client.search_experiments(max_results=1)
    return client


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    # Held by the kernel for a process: it is free again when its holder is dead.
    with FileLock(folder / ".lock", is_singleton=True):
        yield
