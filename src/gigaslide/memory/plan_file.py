"""plan.json: a plan that was chosen, or one that a user wrote, with what it is predicted to need.

    name                  for people and for MLflow
    extent_px             [height, width] of the area that it was made for
    cuts                  operations whose maps are kept
    tiles_px              of each segment, by the operation that ends it: [height, width] in pixels of the image
    storage               ram, or disk: where kept maps live
    workers               tiles computed at once
    budget_bytes          what the process was allowed
    predicted_peak_bytes  what the process is expected to take, and term by term in predicted_bytes
    predicted_step_s      seconds of a step
    cluster               of a plan for one (`gigaslide plan --workers`): what else is predicted. Budget, peak and
                          workers are then those of its fullest machine

Only cuts, tiles_px, storage and workers decide anything.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gigaslide.errors import UsageError
from gigaslide.memory.planner import Candidate
from gigaslide.network.graph import IMAGE, Graph
from gigaslide.streaming.plan import Plan, segments


class _PlanFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str = ""
    cuts: list[str]
    tiles_px: dict[str, tuple[int, int]]
    storage: Literal["ram", "disk"] = "ram"
    workers: int = 1


def as_json(candidate: Candidate, shape: tuple[int, int], budget_bytes: float) -> dict[str, Any]:
    """Return what plan.json holds."""
    plan = candidate.plan
    return {
        "name": plan.name,
        "extent_px": list(shape),
        "cuts": list(plan.cuts),
        "tiles_px": {name: list(tile) for name, tile in plan.tiles.items()},
        "storage": plan.storage,
        "workers": plan.workers,
        "budget_bytes": int(budget_bytes),
        "predicted_peak_bytes": candidate.peak_bytes,
        "predicted_bytes": asdict(candidate.prediction),
        "predicted_step_s": round(candidate.step_s, 3),
    }


def read(path: Path, graph: Graph) -> Plan:
    """Return the plan in a file.

    Raises:
        UsageError: there is no such file, it is no plan, or it does not fit the network.
    """
    try:
        values = _PlanFile.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"memory.plan is auto, whole, or a file as `gigaslide plan` writes it; {path} is none"
        ) from None
    except ValidationError as error:
        mistakes = "; ".join(_in_words(item) for item in error.errors(include_url=False))
        raise UsageError(f"{path} is no plan as `gigaslide plan --json` writes it: {mistakes}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no plan as `gigaslide plan --json` writes it: it is no text") from None
    unknown = [name for name in values.cuts if name not in graph.by_name or name in (IMAGE, graph.output.name)]
    if unknown:
        kept = ", ".join(op.name for op in graph.ops[1:-1])
        raise UsageError(f"{path} cuts at {', '.join(unknown)}; this network can be cut at {kept}")
    ends = [segment.output for segment in segments(graph, tuple(values.cuts))]
    if sorted(values.tiles_px) != sorted(ends):
        raise UsageError(
            f"tiles_px of {path} has one tile for each of {', '.join(ends)}; found {dict(values.tiles_px)}"
        )
    step = graph.total_stride
    for name, tile in values.tiles_px.items():
        if any(size < 1 or size % by for size, by in zip(tile, step, strict=True)):
            raise UsageError(
                f"the tile of {name} in {path} is a multiple of {step[0]} x {step[1]} px; found {list(tile)}"
            )
    if values.workers < 1:
        raise UsageError(f"workers of {path} is at least 1; found {values.workers}")
    return Plan(values.name or path.name, tuple(values.cuts), values.tiles_px, values.storage, values.workers)


def _in_words(mistake: Any) -> str:
    where = ".".join(map(str, mistake["loc"]))
    return f"{where}: {mistake['msg']}" if where else str(mistake["msg"])
