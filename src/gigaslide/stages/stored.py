"""Where the prepared stores are read: this project's folder, or the bucket that `prepare` brings them to."""

from pathlib import Path

from gigaslide.config import Settings
from gigaslide.slides.bucket import S3Folder
from gigaslide.stages.paths import STORES


def place(settings: Settings) -> Path | S3Folder:
    """Return the folder of stores that a stage reads."""
    return STORES if settings.cluster.stores is None else S3Folder(settings.cluster.stores)
