"""One process that works on a study with trials that train nothing: `python -m tests.sweep.worker JSON`.

The trials run on this machine or, where JSON has an `address`, on the machines of that cluster.
"""

import json
import signal
import sys
from pathlib import Path

from gigaslide import config
from gigaslide.sweep import space
from gigaslide.sweep.owners import Owners
from gigaslide.sweep.places import ThisMachine
from gigaslide.sweep.runner import Runner
from gigaslide.sweep.study import Study
from gigaslide.sweep.verdict import Here

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_trial.py")))


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self, looking=None):
        self.results, self.most_running, self.released_trials = {}, 0, []
        self.looking = looking or (lambda: None)

    def looked(self, running):
        self.looking()
        self.most_running = max(self.most_running, len(running))

    def closing(self, trial, result):
        return result

    def closed(self, trial, result):
        self.results[tuple(trial.cell.values())] = result

    def released(self, trial, run_id):
        self.released_trials.append(trial)


def work(settings, url, folder, name="test", here=None, places=None, looking=None):
    """Work on the study at `url` until nothing is left; return the notes. `looking` is called again and again."""
    found = space.make(settings)
    study = Study(url, name, found, settings.sweep.seed)
    owners, notes = Owners(folder / "owners"), Notes(looking)
    try:
        if found.cells is not None:
            study.enqueue(found.cells)
        here = here or Here((96, 128), 3, 64e9)
        places = places or ThisMachine(settings, COMMAND)
        Runner(settings, found, study, here, owners, notes, folder / "trials", "none", places, 0.02).run()
    finally:
        owners.close(has_left_nothing=True)
    return notes


def small_settings(space=None, budget_gb=128, plan="auto", epochs=4, **sweep):
    """Return settings for a sweep over six cells, one of which is invalid."""
    cells = {"network.kernel_size": [3, 5, 7], "network.stride": [2, 4]}
    changes = {"sweep.values": {"train.epochs": epochs}, "sweep.space": space or cells, "memory.budget_gb": budget_gb}
    changes |= {"memory.plan": plan} | {f"sweep.{key}": value for key, value in sweep.items()}
    return config.load(Path(__file__).parents[2] / "params.yaml").replaced(changes)


if __name__ == "__main__":
    # A shell starts background jobs, and so a test run in the background, deaf to it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    request = json.loads(sys.argv[1])
    settings, folder = small_settings(**request["settings"]), Path(request["folder"])
    if "address" in request:
        from gigaslide.cluster import connection
        from gigaslide.cluster.trials import Machines

        with connection.connected(request["address"], 0, 1, 0) as ray:
            work(settings, request["url"], folder, places=Machines(ray, settings, COMMAND))
    else:
        work(settings, request["url"], folder)
