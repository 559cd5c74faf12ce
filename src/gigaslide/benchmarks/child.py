"""`gigaslide bench step` in a process of its own, ended when it takes too long."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gigaslide.errors import GigaslideError

# Arguments of `gigaslide bench step`, and the most seconds that it may take, to its figures.
Measure = Callable[[Sequence[str], float], dict[str, Any]]


def measure(arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Return what `gigaslide bench step` with these arguments writes as JSON.

    Raises:
        GigaslideError: it failed, was killed, or took longer than `limit_s`.
    """
    with tempfile.TemporaryDirectory(prefix="gigaslide-bench-") as folder:
        json_file = Path(folder) / "step.json"
        command = [sys.executable, "-m", "gigaslide", "bench", "step", *arguments, "--json", str(json_file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise GigaslideError(f"it was ended after {limit_s:.0f} s") from None
        if done.returncode < 0:
            raise GigaslideError(f"signal {-done.returncode} ended it: if it was 9, the machine ran out of memory")
        if done.returncode:
            reason = done.stderr.strip().removeprefix("gigaslide: ")[-500:]
            raise GigaslideError(reason or f"exit code {done.returncode}")
        figures: dict[str, Any] = json.loads(json_file.read_text(encoding="utf-8"))
        return figures
