"""Train the network on the prepared slides of the split `train`, choose the best epoch on `validation`.

Killed at any moment, the stage goes on from the last whole epoch when it is started again with the same settings,
slides and code, in the same MLflow run.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from rich.progress import Progress

from gigaslide import machine, provenance, tracking
from gigaslide.config import Settings
from gigaslide.console import console, progress_bar
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.files import remove, write_text
from gigaslide.memory.counters import device_counter
from gigaslide.memory.meter import MemoryMeter
from gigaslide.memory.watchdog import Watchdog
from gigaslide.mlflow_server import TrackingError
from gigaslide.network import unet
from gigaslide.slides.store import Store, open_split
from gigaslide.slides.working_resolution import WorkingResolution, working_resolution
from gigaslide.stages import engines, train_results
from gigaslide.stages.engines import Choice
from gigaslide.stages.paths import CHECKPOINTS, SCRATCH, STORES, TRAIN
from gigaslide.stages.stored import data_hash, place
from gigaslide.streaming import devices
from gigaslide.streaming.engine import Engine
from gigaslide.training import checkpoint, loop
from gigaslide.training.checkpoint import TrainingState

# Logged to MLflow for every step, next to loss and soft_dice.
_STEP_METRICS = (
    "loss",
    "soft_dice",
    "step_time_s",
    "data_wait_s",
    "megapixels_per_s",
    "memory_gb",
    "learning_rate",
)


@dataclass(frozen=True)
class Trial:
    """A training that is part of a sweep: its MLflow run belongs to another one."""

    parent_run_id: str
    run_name: str
    # Told after every epoch, and at the start of a training that goes on.
    on_epoch: Callable[[TrainingState], None]


# Gives the engine that computes the steps, for as long as it is open.
OpenEngine = Callable[[Settings, Choice, keras.Model], AbstractContextManager[Engine]]


def run(settings: Settings, trial: Trial | None = None, open_engine: OpenEngine | None = None) -> None:
    """Train, write models/ and results/train/, and log one MLflow run.

    Args:
        settings: of the training.
        trial: the sweep's, if it is part of one.
        open_engine: another engine than that of this process; it must compute the same.

    Raises:
        UsageError: a split has no slide.
        DoesNotFit: no plan keeps to the memory budget.
        GigaslideError: the loss is not a number, or the network predicts nothing on any validation slide.
    """
    train_stores, validation_stores = (_stores(settings, split) for split in ("train", "validation"))
    stores = [*train_stores, *validation_stores]
    resolution = working_resolution(stores, settings.slides.mpp_um_per_px)
    resolution.warn_if_it_differs(settings.network.kernel_size)
    fingerprint = _fingerprint(settings, stores)
    state = checkpoint.load(CHECKPOINTS / "state.npz", fingerprint) or TrainingState()
    run = _open_run(settings, fingerprint, trial)
    open_now = ExitStack()
    try:
        # With MLflow loaded: the budget is for all of the process.
        elsewhere = open_engine is not None
        choice = engines.choose(settings, [store.shape for store in stores], maps_elsewhere=elsewhere)
        network, agreement = _start_network(settings, choice)
        engine = open_now.enter_context((open_engine or _engine_here)(settings, choice, network))
        meter = MemoryMeter(device=device_counter())
        if state.epoch:
            console.print(f"going on after epoch {state.epoch} of {settings.train.epochs}")
        # A sweep calls its prediction for the extent of its constraint by that name.
        predicted = "predicted_here_gb" if trial else "predicted_peak_gb"
        run.log_metrics({predicted: choice.candidate.peak_bytes / 1e9})
        _describe_run(run, settings, engine, agreement, resolution)
        with progress_bar() as bar, _watchdog(choice, meter):
            on_epoch = trial.on_epoch if trial else None
            observer = _Observer(settings, run, bar, fingerprint, len(train_stores), state, on_epoch)
            state = loop.train(
                engine,
                train_stores,
                validation_stores,
                settings.train,
                settings.evaluate.threshold,
                meter,
                observer,
                state,
            )
        summary = train_results.summary(settings, state, engine, train_stores, choice)
        by_split = {"train": train_stores, "validation": validation_stores}
        noted = {"run_id": run.run_id, "run_name": run.name, **resolution.as_json()}
        threshold = settings.evaluate.threshold
        train_results.write(engine.model, state, choice, summary, noted, by_split, threshold)
        observer.catch_up()
        numbers = ("best_epoch", "peak_memory_gb", "train_time_s")
        run.log_metrics({key: summary[key] for key in numbers})
        run.log_metrics(
            {
                "best_validation_dice": summary["validation_dice"],
                "step_time_median_s": summary["step_time_s"],
            }
        )
        run.log_artifact(TRAIN, "train")
    except KeyboardInterrupt:
        run.finish("KILLED")
        raise
    except TrackingError as error:
        run.finish("FAILED")
        raise GigaslideError(f"{error}: what was trained is kept, and the same command goes on from here") from None
    except Exception:
        run.finish("FAILED")
        raise
    finally:
        open_now.close()
    run.finish()
    remove(CHECKPOINTS)
    console.print(
        f"validation Dice {state.best_validation_dice:.4f} after epoch {state.best_epoch + 1}, "
        f"{summary['step_time_s']:.3f} s a step, peak {summary['peak_memory_gb']:.2f} GB"
    )


@dataclass
class _Observer:
    """Progress bar, MLflow and checkpoint, told of every step and epoch."""

    settings: Settings
    run: tracking.Run
    bar: Progress
    fingerprint: str
    slides: int
    state: TrainingState
    on_epoch: Callable[[TrainingState], None] | None = None
    is_behind: bool = False  # MLflow did not take the last epochs

    def __post_init__(self) -> None:
        total = self.settings.train.epochs * self.slides
        self.task = self.bar.add_task("train", total=total, completed=len(self.state.step_rows))
        # A kill between checkpoint and MLflow leaves MLflow behind: bring it up to date.
        self._log(self.state)
        if self.on_epoch is not None and self.state.epoch:
            self.on_epoch(self.state)

    def step(self, row: dict[str, Any]) -> None:
        if not row["loss"] < float("inf"):
            raise GigaslideError(
                f"the loss is {row['loss']} at step {row['step']} ({row['slide']}): lower train.learning_rate "
                f"(now {self.settings.train.learning_rate})"
            )
        self.bar.advance(self.task)

    def epoch(self, state: TrainingState) -> None:
        self.state = state
        checkpoint.save(CHECKPOINTS / "state.npz", state, self.fingerprint)
        try:
            self._log(state)
            self.is_behind = False
        except TrackingError as error:
            # A step may take minutes, and a server that is gone comes back: the next epoch logs what is missing.
            if not self.is_behind:
                console.print(f"{error}; the training goes on, and logs later what is missing", markup=False)
            self.is_behind = True
        if self.on_epoch is not None:
            self.on_epoch(state)
        row = state.epoch_rows[-1]
        text = (
            f"epoch {state.epoch:3d}/{self.settings.train.epochs}  loss {row['loss']:.4f}  "
            f"validation Dice {row['validation_dice']:.4f}{'  best' if row['is_best'] else ''}"
        )
        self.bar.update(self.task, description=text) if console.is_terminal else console.print(text)

    def catch_up(self) -> None:
        """Log what MLflow has not taken so far.

        Raises:
            TrackingError: it still does not; the checkpoint is there, and the same command goes on from here.
        """
        if self.is_behind:
            self._log(self.state)

    def _log(self, state: TrainingState) -> None:
        first_step, first_epoch = (self.run.logged_steps(name) for name in ("loss", "validation_dice"))
        self.run.log_rows(
            [{"step": row["step"], **{key: row[key] for key in _STEP_METRICS}} for row in state.step_rows[first_step:]]
        )
        self.run.log_rows(
            [
                {
                    "step": row["epoch"],
                    "epoch_loss": row["loss"],
                    "validation_dice": row["validation_dice"],
                    "validation_dice_se": row["validation_dice_se"],
                }
                for row in state.epoch_rows[first_epoch:]
            ]
        )


def _start_network(settings: Settings, choice: Choice) -> tuple[keras.Model, devices.Agreement | None]:
    """Set up TensorFlow for the chosen plan, and compare an accelerator with the CPU before it is trusted."""
    train = settings.train
    devices.set_threads(choice.candidate.plan.workers)
    agreement = devices.check_accelerator(
        devices.step_on(settings.network, train.seed, train.dice_weight, train.cross_entropy_weight)
    )
    keras.utils.set_random_seed(train.seed)
    tf.config.experimental.enable_op_determinism()
    with tf.device(devices.CPU):  # another device may draw other weights from the same seed
        network = unet.build(settings.network, train.seed)
    return network, agreement


@contextmanager
def _engine_here(settings: Settings, choice: Choice, network: keras.Model) -> Iterator[Engine]:
    yield engines.build(settings, choice, network, SCRATCH)


def _stores(settings: Settings, split: str) -> list[Store]:
    stores = open_split(place(settings), split)
    if not stores:
        raise UsageError(f"training needs a slide in the split {split!r}, and the cohort table has none there")
    return stores


def _fingerprint(settings: Settings, stores: Sequence[Store]) -> str:
    blocks = {key: getattr(settings, key).model_dump() for key in ("network", "train", "memory")}
    blocks["threshold"] = settings.evaluate.threshold
    return provenance.fingerprint(blocks, [store.attributes for store in stores])


def _open_run(settings: Settings, fingerprint: str, trial: Trial | None) -> tracking.Run:
    """Open the run that a killed process left, or a new one; note it before the first step."""
    note = CHECKPOINTS / "run.json"
    left = json.loads(note.read_text(encoding="utf-8")) if note.exists() else None
    if left:
        run = tracking.resume(left["run_id"], uri=settings.tracking.uri)
        if run and left["fingerprint"] == fingerprint:
            return run
        if run:
            run.finish("KILLED")
    network = settings.network
    name = f"k{network.kernel_size}-s{network.stride}-seed{settings.train.seed}"
    run = tracking.start(
        settings.tracking.experiment,
        trial.run_name if trial else name,
        parent_run_id=trial.parent_run_id if trial else None,
        uri=settings.tracking.uri,
    )
    write_text(note, json.dumps({"run_id": run.run_id, "fingerprint": fingerprint}))
    return run


def _watchdog(choice: Choice, meter: MemoryMeter) -> Watchdog:
    plan = choice.candidate.plan
    return Watchdog(choice.budget_bytes, plan.name, choice.candidate.peak_bytes, meter.current_bytes)


def _describe_run(
    run: tracking.Run,
    settings: Settings,
    engine: Engine,
    agreement: devices.Agreement | None,
    resolution: WorkingResolution,
) -> None:
    run.log_params(settings.flat())
    known = {key: value for key, value in resolution.as_json().items() if key != "mpp_sources"}
    run.log_params({"parameters": engine.model.count_params(), **known})
    run.log_params({f"mpp_sources.{source}": count for source, count in resolution.sources})
    if agreement is not None:
        run.log_metrics(
            {
                "device_loss_difference": agreement.loss_difference,
                "device_gradient_difference": agreement.gradient_difference,
            }
        )
    stores_hash = data_hash(settings)
    tags = {"git_commit": provenance.git_commit(), "plan": engine.plan, "device": devices.device_name()}
    tags |= {f"cluster.{key}": str(value) for key, value in settings.cluster if settings.cluster.address}
    if stores_hash:
        tags["dvc_hash.data_stores"] = stores_hash
    run.set_tags(tags | {f"machine.{key}": str(value) for key, value in machine.describe_machine().items()})
    for split in ("train", "validation"):
        run.log_dataset(f"{STORES.name}-{split}", str(place(settings)), stores_hash or "not-in-dvc", split)
