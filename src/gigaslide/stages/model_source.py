"""Where a network comes from: the package, a file, or MLflow's registry."""

import shutil
from pathlib import Path

from gigaslide import config, files, tracking
from gigaslide.errors import UsageError
from gigaslide.network import model_file
from gigaslide.network.model_file import About

_REGISTRY = "models:/"


def bring(source: str | None, folder: Path) -> tuple[Path, str]:
    """Copy the network into `folder`, and return the copy with a name for it: results stay with what made them.

    Args:
        source: a .keras file, `models:/name@alias` or `models:/name/version`; None: the one in the package.
        folder: where the copy goes, as model.keras.

    Raises:
        UsageError: there is no such network.
    """
    target = folder / "model.keras"
    if source is not None and source.startswith(_REGISTRY):
        # In a project's folder its server; elsewhere that of the environment.
        uri = config.load().tracking.uri if config.PARAMS_FILE.exists() else None
        about = tracking.fetch_model(source, target, uri=uri)
        model_file.write_about(target, About(**about))
        return target, source
    path = model_file.DEFAULT if source is None else Path(source)
    if not path.is_file():
        raise UsageError(f"--model should be a .keras file, or models:/NAME@ALIAS of MLflow; there is no file {source}")
    if not target.exists() or files.sha256(target) != files.sha256(path):
        with files.atomic_path(target) as temporary:
            shutil.copyfile(path, temporary)
    return target, "gigaslide default" if source is None else path.name
