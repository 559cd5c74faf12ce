"""The stages after training, with what they are handed: the trained network and its MLflow run.

They go on in the run that the training opened, so that one run holds everything of one network.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gigaslide import tracking
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import UsageError
from gigaslide.network.model_file import read_about
from gigaslide.slides.store import open_split
from gigaslide.stages import engines
from gigaslide.stages import report as report_stage
from gigaslide.stages.paths import MODEL_FILE, RUN_FILE, SCRATCH, STORES
from gigaslide.stages.stored import data_hash, place

if TYPE_CHECKING:
    import keras


def evaluate(settings: Settings) -> None:
    """Evaluate the trained network, register it, and make it champion if its test Dice is the best so far.

    Raises:
        UsageError: nothing was trained yet.
    """
    # Not above: the report needs no TensorFlow.
    import keras

    from gigaslide.stages import evaluate as evaluate_stage
    from gigaslide.streaming import devices

    with _run(settings) as run:
        choice = engines.choose_here(settings, [store.shape for store in open_split(place(settings), "test")])
        devices.set_threads(choice.candidate.plan.workers)
        model = keras.saving.load_model(MODEL_FILE)
        engine = engines.build(settings, choice, model, SCRATCH)
        metrics = evaluate_stage.run(settings, engine, run)
        digest = data_hash(settings) or "not-in-dvc"
        run.log_dataset(f"{STORES.name}-test", str(place(settings)), digest, "test")
        _register(settings, run, model, metrics)


def report(settings: Settings) -> None:
    """Write the report and keep it with the run.

    Raises:
        UsageError: nothing was trained yet.
    """
    with _run(settings) as run:
        report_stage.run(settings, run)


def _register(settings: Settings, run: tracking.Run, model: "keras.Model", metrics: dict[str, Any]) -> None:
    dice = metrics["dice_mean"]
    if dice is None:
        return
    name = settings.tracking.model_name
    version = run.log_model(model, name, asdict(read_about(MODEL_FILE)))
    promoted = run.promote(name, version, dice)
    console.print(
        f"test Dice {dice:.4f} (mean of {metrics['slide_count']} slides); {name} version {version} "
        f"{'is the new champion' if promoted else 'is registered, the champion stays'}",
        markup=False,
    )


@contextmanager
def _run(settings: Settings) -> Iterator[tracking.Run]:
    if not (RUN_FILE.exists() and MODEL_FILE.exists()):
        raise UsageError(f"{MODEL_FILE} and {RUN_FILE} are not there: run `gigaslide train` first")
    noted = json.loads(RUN_FILE.read_text(encoding="utf-8"))
    # MLflow's store may have been emptied, or be another one, since: what is measured now is still kept.
    uri = settings.tracking.uri
    run = tracking.resume(noted["run_id"], uri=uri) or tracking.start(
        settings.tracking.experiment, noted["run_name"], uri=uri
    )
    run.log_params(settings.flat())
    try:
        yield run
    except BaseException:
        run.finish("FAILED")
        raise
    run.finish()
