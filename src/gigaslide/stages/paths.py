"""Where the stages read and write, relative to the project's folder; dvc.yaml names the same."""

from pathlib import Path

STORES = Path("data/stores")
MODEL_FILE = Path("models/model.keras")
RUN_FILE = Path("models/run.json")
# Not a DVC output: DVC deletes a stage's outputs before it runs it.
# Maps of a step that do not fit into memory.
SCRATCH = Path("models/scratch")
CHECKPOINTS = Path("models/checkpoint")
SLIDES = Path("data/slides")  # where `gigaslide add` brings slides while params.yaml names the demo
PREPARE = Path("results/prepare")
TRAIN = Path("results/train")
EVALUATE = Path("results/evaluate")
REPORT = Path("results/report")
ADD = Path("results/add")
COHORT = Path("results/cohort")
