"""`gigaslide predict` and `gigaslide prepare` with `--cluster`: slides as tasks, each try in a folder of its own.

A machine that is cut off may go on with its slide while another does it again, and neither can know. So no worker
touches what there is of a slide: every try writes into a folder that no other try knows, and this process, which holds
the lock of the outputs, puts in place what the one try made that the cluster gave as the outcome. The folder lies on
the disk of the outputs, so that this is a rename.
"""

import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from gigaslide import files
from gigaslide.cluster import connection, tasks
from gigaslide.cluster.tasks import Need
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.exports import tools
from gigaslide.prediction import outputs
from gigaslide.slides import preparation
from gigaslide.slides.partial_store import Attempt, remove_partial
from gigaslide.slides.preparation import Prepared
from gigaslide.slides.store import open_store
from gigaslide.stages import predict as stage_predict
from gigaslide.stages import predict_worker, workers
from gigaslide.stages import prepare as stage_prepare
from gigaslide.stages.paths import PREPARE, STORES
from gigaslide.stages.predict_worker import Handing
from gigaslide.stages.prepare_workers import worker_bytes
from gigaslide.stages.workers import Outcome, ProcessDiedError, Turn

Task = Callable[[Any, Turn], Any]
Show = Callable[[float], None]

_STORE_BYTES = 100_000_000  # Ray's least, about: nothing large goes through it
_RAY_BYTES = 100_000_000  # of Ray's own in the process of a worker
_TRIES = ".tries"  # in the folder of the outputs


def predict(options: stage_predict.Options, address: str) -> int:
    """Predict as `stages.predict.run`, over the cluster at `address`; return the exit code.

    Threads and budget of a slide are those of a run without Ray on this machine, and so is the plan; only where a
    machine of the cluster has less memory for a slide does the budget shrink to that. Masks are handed on to other
    tools afterwards and on this machine: the files for them name the folder that they lie in.

    Raises:
        UsageError: Ray is not installed, or the address is none; or as `stages.predict.run`.
        GigaslideError: there is no such cluster, none of its machines is large enough, or one does not see the outputs.
    """
    connection.check(address)

    def run_all(task: Task, jobs: Sequence[Any], count: int, show: Show) -> Iterator[Outcome]:
        files.remove(options.out / _TRIES)  # of a run that was killed
        # What is predicted, and in which time; all that is left of it is handing on.
        predicted = {number: (job, 0.0) for number, job in enumerate(jobs) if job.done is not None}
        new = [number for number in range(len(jobs)) if number not in predicted]
        with closing(_predict(address, task, [jobs[number] for number in new], count, show)) as outcomes:
            for outcome in outcomes:
                number = new[outcome.number]
                if outcome.error is None and jobs[number].handing.tools:
                    predicted[number] = replace(jobs[number], done=outcome.value), outcome.time_s
                else:
                    yield replace(outcome, number=number)
        numbers = list(predicted)
        for outcome in workers.run_all(task, [predicted[number][0] for number in numbers], count):
            number = numbers[outcome.number]
            yield replace(outcome, number=number, time_s=predicted[number][1] + outcome.time_s)

    return stage_predict.run(options, run_all)


def prepare(settings: Settings, stores: Path = STORES, results: Path = PREPARE) -> int:
    """Prepare as `stages.prepare.run`, over the cluster at `cluster.address`; return the exit code.

    A slide that was begun goes on with the windows that are missing, wherever that was.

    Raises:
        UsageError: Ray is not installed; or as `stages.prepare.run`.
        GigaslideError: there is no such cluster, none of its machines is large enough, or one does not see the stores.
    """
    address, threads = str(settings.cluster.address), settings.cluster.threads_per_worker
    connection.check(address)

    def run_all(task: Task, jobs: Sequence[Any], count: int, show: Show) -> Iterator[Outcome]:
        if not jobs:
            return
        need = Need(threads, int(threads * worker_bytes(settings, [job.row for job in jobs])) + _RAY_BYTES)
        attempts: dict[int, Attempt] = {}

        def begin(number: int) -> preparation.Job:
            if number in attempts:
                _say_again(jobs[number].row.name)
            present = jobs[number].store.absolute()
            attempts[number] = Attempt(present)
            sent: preparation.Job = replace(jobs[number], store=attempts[number].store, present=present)
            return sent

        with connection.connected(address, threads, count, _STORE_BYTES):
            for outcome in tasks.run_all(task, jobs, need, stores, show, begin, settings.cluster.workers):
                yield _with_store_in_place(outcome, jobs[outcome.number].store, attempts.pop(outcome.number))

    return stage_prepare.run(settings, stores, results, run_all)


def _predict(
    address: str, task: Task, jobs: Sequence[predict_worker.Job], count: int, show: Show
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of slides that are not predicted yet; their files are in place, and handed on to nobody."""
    if not jobs:
        return
    out = jobs[0].folder.parent.absolute()
    folders: dict[int, Path] = {}
    with connection.connected(address, 1, jobs[0].threads * count, _STORE_BYTES):
        need = _need(jobs[0])

        def begin(number: int) -> predict_worker.Job:
            if number in folders:
                _say_again(jobs[number].folder.name)
            folders[number] = out / _TRIES / uuid.uuid4().hex
            folders[number].mkdir(parents=True)
            budget_bytes = min(jobs[number].budget_bytes, need.memory_bytes)
            model, folder = jobs[number].model.absolute(), folders[number]
            return replace(jobs[number], model=model, folder=folder, budget_bytes=budget_bytes, handing=Handing())

        try:
            for outcome in tasks.run_all(task, jobs, need, out, show, begin):
                if outcome.error is None:
                    _put_outputs_in_place(jobs[outcome.number], outcome.value, folders[outcome.number])
                files.remove(folders.pop(outcome.number))
                yield outcome
        finally:
            files.remove(out / _TRIES)


def _say_again(name: str) -> None:
    console.print(f"{name}: its process or its machine is lost: again", markup=False)


def _put_outputs_in_place(job: predict_worker.Job, summary: dict[str, Any], folder: Path) -> None:
    tools.remove(tools.TOOLS, job.slide, job.folder.parent)
    outputs.clear(job.folder)
    job.folder.mkdir(parents=True, exist_ok=True)
    for name in (*summary["outputs_bytes"], outputs.SUMMARY):  # the summary last: a folder that has it is whole
        (folder / name).replace(job.folder / name)


def _need(job: predict_worker.Job) -> Need:
    """Return what a slide is given of any machine: the cores, and no more of the memory than goes with them.

    Where no machine has as many cores as a slide has threads, those share the cores of one.
    """
    machines = [machine for machine in tasks.machines() if machine.cores]
    cores = min(job.threads, max((machine.cores for machine in machines), default=1))
    shares = [machine.memory_bytes * cores / machine.cores for machine in machines if machine.cores >= cores]
    return Need(cores, int(min([job.budget_bytes, *shares])))


def _with_store_in_place(outcome: Outcome, store: Path, attempt: Attempt) -> Outcome:
    """Do with the store of an outcome what `prepare_slide` does with its own; what was begun stays for the next run."""
    if isinstance(outcome.error, ProcessDiedError):
        return outcome
    if outcome.error is not None:
        files.remove(store)
    elif not outcome.value.unchanged:
        attempt.put_in_place()
        outcome = replace(outcome, value=Prepared(open_store(store), unchanged=False))
    remove_partial(store)
    return outcome
