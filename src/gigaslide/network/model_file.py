"""A trained network in one file: Keras' own format, with what a prediction has to know beside the weights.

A .keras file is a ZIP; Keras reads the members that it knows and leaves others alone. The member `gigaslide.json` says
at which pixel size the network was trained, which threshold its Dice was measured with, and where it comes from. A
file without it is any Keras network: it is then used at a slide's full resolution.
"""

import json
import zipfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gigaslide.errors import UsageError
from gigaslide.files import atomic_path

if TYPE_CHECKING:
    import keras

# Trained by this pipeline on the demo cohort; its card lies beside it.
DEFAULT = Path(__file__).parents[1] / "models" / "default.keras"
_MEMBER = "gigaslide.json"


@dataclass(frozen=True)
class About:
    """What is known of a network.

    `mpp_um_per_px` is the size of a pixel it was trained on, None where slides of several, or of unknown size were
    used. `run_id` is its run in MLflow.
    """

    mpp_um_per_px: float | None = None
    threshold: float = 0.5
    validation_dice: float | None = None
    run_id: str | None = None
    gigaslide_version: str | None = None
    git_commit: str | None = None


def save(model: "keras.Model", about: About, path: Path) -> None:
    """Write a network and what is known of it."""
    with atomic_path(path) as temporary:
        model.save(temporary)
        write_about(temporary, about)


def write_about(path: Path, about: About) -> None:
    """Add what is known of a network to a file that does not say it yet."""
    with zipfile.ZipFile(path, "a") as file:
        # With a date of its own, the same training would give another file every time.
        file.writestr(zipfile.ZipInfo(_MEMBER), json.dumps(asdict(about), indent=1))


def read_about(path: Path) -> About:
    """Return what a file says of its network; only defaults for a Keras file of other making. Needs no TensorFlow.

    Raises:
        UsageError: it is no .keras file.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if "config.json" not in file.namelist():
                raise UsageError(f"{path} should be a network in Keras' format (.keras); it is another kind of archive")
            if _MEMBER not in file.namelist():
                return About()
            values: dict[str, Any] = json.loads(file.read(_MEMBER))
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UsageError(f"{path} should be a network in Keras' format (.keras), and cannot be read: {error}") from None
    known = {field.name for field in fields(About)}
    return About(**{key: value for key, value in values.items() if key in known})


def load(path: Path) -> "keras.Model":
    """Load the network of a file that `save`, or Keras, wrote.

    Raises:
        UsageError: it is no such file, or needs code that is not in it.
    """
    import keras

    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:  # Keras raises whatever a member of the archive makes it stumble over
        raise UsageError(
            f"{path} should be a network in Keras' format (.keras), and cannot be loaded: {error}"
        ) from None
