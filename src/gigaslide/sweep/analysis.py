"""What trials say together: which training is hopeless, which parameter matters, which trial to take."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from gigaslide.sweep.results import Row

OBJECTIVES = ("validation Dice", "step time")
# A validation curve is compared from this share of the epochs on, with at least so many others, and is hopeless if its
# best is below this per cent of theirs at the same epoch.
_PRUNE_FROM = 0.5
_PRUNE_OTHERS = 4
_PRUNE_BELOW_PERCENT = 25.0
# Importance is a share of a variance: of fewer trials there is none worth the name.
_VARIANCE_OF = 4
_TREES = 128


def is_hopeless(curve: Sequence[float], others: Iterable[Sequence[float]], epochs: int) -> bool:
    """Whether a training's validation Dice so far is below nearly all `others` at the same epoch.

    Optuna's percentile pruner (as in Golovin et al. 2017, "Google Vizier", the median rule). It knows one objective
    only, so it is shown a study of the curves alone.

    Args:
        curve: validation Dice after each epoch so far.
        others: the same of trainings that have ended.
        epochs: of a whole training.
    """
    if not curve:
        return False
    pruner = optuna.pruners.PercentilePruner(
        # What it is told to keep is the upper part, counted from the best.
        100 - _PRUNE_BELOW_PERCENT,
        n_startup_trials=_PRUNE_OTHERS,
        n_warmup_steps=round(_PRUNE_FROM * epochs),
        n_min_trials=_PRUNE_OTHERS,
    )
    study = optuna.create_study(direction="maximize")
    study.add_trials([_of_curve(other, TrialState.COMPLETE) for other in others if other])
    return pruner.prune(study, _of_curve(curve, TrialState.RUNNING))


def importances(rows: Sequence[Row], parameters: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return each parameter's share of the variance of each objective, over the complete trials.

    Functional ANOVA (Hutter, Hoos and Leyton-Brown 2014); empty where there are too few trials, or nothing differs.
    """
    complete = [row for row in rows if row["state"] == "complete"]
    found: dict[str, dict[str, float]] = {}
    if len(complete) < _VARIANCE_OF:
        return found
    for objective, column in zip(OBJECTIVES, ("dice", "step_time_s"), strict=True):
        study = optuna.create_study()
        # As text: a value may be a list. A forest splits categories as well as numbers.
        choices = {name: sorted({str(row[name]) for row in complete}) for name in parameters}
        distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(choices[name]) for name in parameters
        }
        for row in complete:
            params = {name: str(row[name]) for name in parameters}
            study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=row[column]))
        evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[objective] = dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
            except (ValueError, RuntimeError):
                continue
    return found


def recommend(rows: Sequence[Row]) -> tuple[Row, str] | None:
    """Return the trial to take and why: of those within one standard error of the best Dice, the fastest.

    The one-standard-error rule (Breiman et al. 1984, "Classification and Regression Trees", 3.4.3), with the error of
    the best trial's mean over the validation slides. None where no trial is complete.
    """
    complete = [row for row in rows if row["state"] == "complete"]
    if not complete:
        return None
    best = max(complete, key=lambda row: row["dice"])
    error = best["dice_standard_error"] or 0.0
    near = [row for row in complete if row["dice"] >= best["dice"] - error]
    chosen = min(near, key=lambda row: (row["step_time_s"], -row["dice"]))
    best_text = f"trial {best['number']} has the best validation Dice, {best['dice']:.4f} +- {error:.4f}"
    if chosen is best:
        others = (
            f"none of the {len(near) - 1} others within that is faster" if len(near) > 1 else "no other is within that"
        )
        return chosen, f"{best_text}, and {others}"
    return chosen, (
        f"{best_text}; of the {len(near)} trials within one standard error of it, trial {chosen['number']} is the "
        f"fastest: {chosen['step_time_s']:.3g} s a step instead of {best['step_time_s']:.3g} s, "
        f"validation Dice {chosen['dice']:.4f}"
    )


def _of_curve(curve: Sequence[float], state: TrialState) -> FrozenTrial:
    values: Mapping[int, Any] = dict(enumerate(curve))
    return optuna.create_trial(
        state=state, value=max(curve) if state == TrialState.COMPLETE else None, intermediate_values=dict(values)
    )
