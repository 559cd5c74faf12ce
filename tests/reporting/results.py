"""What the stages before the report write, small."""

from gigaslide import config
from gigaslide.evaluation.boundary import BoundaryCounts
from gigaslide.evaluation.counts import Counts
from gigaslide.evaluation.slide import ELSEWHERE, Outcome
from gigaslide.evaluation.summary import SlideResult, artefact_rows, metrics_of, slide_rows
from gigaslide.reporting.page import Results

SETTINGS = config.load()

SUMMARY = {
    "parameters": 4492,
    "steps": 6,
    "epochs": 3,
    "best_epoch": 1,
    "validation_dice": 0.97,
    "step_time_s": 0.5,
    "megapixels_per_step": 10.0,
    "megapixels_per_s": 20.0,
    "peak_memory_gb": 2.25,
    "train_time_s": 125.0,
    "plan": "whole",
    "device": "CPU",
    "machine": {"cpu": "Some <CPU>", "memory_gb": 25.3, "system": "Linux", "tensorflow": "2.19.1"},
    "git_commit": "abc123",
}
STEPS = [
    {
        "step": step,
        "epoch": step // 2,
        "slide": f"train-{step % 2}",
        "loss": 1.0 / (1 + step),
        "soft_dice": 0.5 + step / 20,
        "step_time_s": 0.5,
        "data_wait_s": 0.0,
        "megapixels_per_s": 20.0,
        "memory_gb": 2.0,
        "learning_rate": 0.01,
    }
    for step in range(6)
]
EPOCHS = [{"epoch": e, "loss": 1.0, "validation_dice": d, "is_best": e < 2} for e, d in enumerate((0.9, 0.97, 0.95))]


def slide_results(names=("good", "bad")):
    results = []
    for index, name in enumerate(names):
        counts = Counts(90, 1 + 4 * index, 1, 10)
        worse = Counts(80, 9, 11, 10)
        outcomes = {
            "network": Outcome(counts, BoundaryCounts(9, 9, 9, 9), {"pen_red": Counts(0, 1, 0, 3), ELSEWHERE: counts}),
            "auto": Outcome(worse, BoundaryCounts(9, 5, 9, 5), {"pen_red": Counts(0, 4, 0, 0), ELSEWHERE: worse}),
        }
        results.append(SlideResult(name, (600, 900), 0.5 if index == 0 else None, 8.0, outcomes))
    return results


def results(names=("good", "bad")):
    outcomes = slide_results(names)
    return Results(
        "k11-s4-seed0",
        SUMMARY,
        STEPS,
        EPOCHS,
        metrics_of(outcomes, SETTINGS.evaluate),
        slide_rows(outcomes),
        artefact_rows(outcomes),
    )
