"""Where the prepared stores are read: this project's folder, or the bucket that `prepare` brings them to."""

from pathlib import Path

from gigaslide import provenance
from gigaslide.config import Settings
from gigaslide.slides.bucket import S3Folder
from gigaslide.stages.paths import STORES


def place(settings: Settings) -> Path | S3Folder:
    """Return the folder of stores that a stage reads."""
    return STORES if settings.cluster.stores is None else S3Folder(settings.cluster.stores)


def data_hash(settings: Settings) -> str | None:
    """Return DVC's hash of the stores that a stage reads; None for those that DVC does not know."""
    return provenance.dvc_hash(STORES.as_posix()) if settings.cluster.stores is None else None
