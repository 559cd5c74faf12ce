"""What a sweep found: its pictures, the trial it recommends, the figures of its MLflow run."""

import json
from collections.abc import Sequence

from gigaslide.config import Settings
from gigaslide.files import atomic_path, remove, write_text
from gigaslide.sweep import analysis, feasibility, heat_maps, pictures
from gigaslide.sweep.paths import RECOMMENDATION, SWEEP
from gigaslide.sweep.results import STATES, Row
from gigaslide.sweep.space import Space, describe, short_names

_MAP = ("network.kernel_size", "network.stride")


def write(settings: Settings, space: Space, table: Sequence[Row]) -> str | None:
    """Write pictures and recommendation to results/sweep/; return the recommendation in words, None without one."""
    names = short_names(dict.fromkeys(settings.sweep.space))
    found = analysis.recommend(table)
    number = None if found is None else found[0]["number"]
    drawn: dict[str, bytes] = {"pareto.png": pictures.pareto(table, number)}
    drawn["importance.png"] = pictures.importances(analysis.importances(table, list(names.values())))
    if set(_MAP) <= set(names):
        drawn["heat_maps.png"] = heat_maps.heat_maps(table, (names[_MAP[0]], names[_MAP[1]]), number)
    peaks = feasibility.peaks(settings, space)
    if any(peaks.values()):
        extent = settings.sweep.extent_px
        drawn["feasibility.png"] = pictures.feasibility(peaks, feasibility.BUDGETS_GB, (extent[0], extent[1]))
    for name, png in drawn.items():
        with atomic_path(SWEEP / name) as temporary:
            temporary.write_bytes(png)
    if found is None:
        remove(RECOMMENDATION)
        return None
    row, reason = found
    values = {key: row[name] for key, name in names.items()}
    text = {"values": values, "trial": row["number"], "reason": reason, "run_id": row["run_id"]}
    write_text(RECOMMENDATION, json.dumps(text, indent=2) + "\n")
    return (
        f"recommended: {describe(values)}: {reason}. `gigaslide sweep apply` writes it into params.yaml; "
        f"pictures are in {SWEEP}"
    )


def metrics(table: Sequence[Row]) -> dict[str, float]:
    """Return the figures of the sweep's MLflow run."""
    found = {f"trials_{state}": float(sum(row["state"] == state for row in table)) for state in STATES}
    complete = [row for row in table if row["state"] == "complete"]
    if complete:
        found["best_validation_dice"] = max(row["dice"] for row in complete)
        found["step_time_median_s"] = min(row["step_time_s"] for row in complete)
    return found


def why_nothing(settings: Settings, table: Sequence[Row]) -> str:
    """Return why there is no trial to recommend."""
    states = {state: [row for row in table if row["state"] == state] for state in STATES}
    if states["infeasible"] and len(states["infeasible"]) == sum(map(len, states.values())):
        peaks = [row["predicted_peak_gb"] for row in states["infeasible"]]
        height, width = settings.sweep.extent_px
        return (
            f"no trial is feasible: all {len(peaks)} need more than memory.budget_gb: {settings.memory.budget_gb:g}, "
            f"{min(peaks):.1f} to {max(peaks):.1f} GB are predicted for {height} x {width} px; raise the budget, or "
            "set memory.plan: auto"
        )
    counts = ", ".join(f"{len(rows)} {state}" for state, rows in states.items() if rows)
    return f"no trial is complete ({counts}): {SWEEP / 'trials.csv'} says why"
