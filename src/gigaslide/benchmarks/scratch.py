"""The stages train and evaluate in a folder of its own, so that nothing of the project's own run is touched."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gigaslide.config import PARAMS_FILE, Settings, as_yaml
from gigaslide.errors import GigaslideError


def train_and_evaluate(folder: Path, settings: Settings, show: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run both stages in `folder`, which has the stores; return results/train/summary.json and the test metrics.

    Args:
        folder: the project's folder; params.yaml is written into it.
        settings: what is written there.
        show: let the stages write to the terminal.

    Raises:
        GigaslideError: a stage failed.
    """
    (folder / PARAMS_FILE).write_text(as_yaml(settings), encoding="utf-8")
    for stage in ("train", "evaluate"):
        command = [sys.executable, "-m", "gigaslide", stage]
        done = subprocess.run(command, cwd=folder, capture_output=not show, text=True, check=False)
        if done.returncode:
            reason = "; its message is above" if show else f": {done.stderr.strip()[-500:]}"
            raise GigaslideError(f"{stage} failed{reason}")
    summary, metrics = (
        json.loads((folder / "results" / name).read_text(encoding="utf-8"))
        for name in ("train/summary.json", "evaluate/metrics.json")
    )
    return summary, metrics
