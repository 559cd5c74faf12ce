"""Write the recommended settings into params.yaml; its comments and its order stay."""

import json
from pathlib import Path
from typing import Any

from gigaslide.config import PARAMS_FILE
from gigaslide.errors import UsageError
from gigaslide.stages import params_file
from gigaslide.sweep.paths import RECOMMENDATION


def run(params: Path = PARAMS_FILE, recommendation: Path = RECOMMENDATION) -> list[str]:
    """Write the values of `recommendation` into `params`; return what changed, one line each.

    Raises:
        UsageError: no sweep has ended, or the file cannot take the values.
    """
    try:
        values: dict[str, Any] = json.loads(recommendation.read_text(encoding="utf-8"))["values"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{recommendation} has no recommendation ({error!r}): run `make sweep` first") from None
    return params_file.set_values(params, values)
