"""Versions, from the packages' own records: importing them all would take half a minute."""

import importlib.metadata
import platform

from gigaslide import machine, provenance
from gigaslide.doctor.finding import Check, Found

# What is shown, and the package that it comes in. The wheel openslide-bin carries the number of the library inside.
_PACKAGES = {
    "gigaslide": "gigaslide",
    "TensorFlow": "tensorflow",
    "Keras": "keras",
    "OpenSlide": "openslide-bin",
    "TensorStore": "tensorstore",
    "Numba": "numba",
    "MLflow": "mlflow",
    "DVC": "dvc",
}


def checks() -> list[Check]:
    """Return a check for the machine, for Python, for every package and for git."""
    return [
        Check("machine", _machine),
        Check("Python", lambda: Found("ok", platform.python_version())),
        *(Check(name, lambda package=package: _package(package)) for name, package in _PACKAGES.items()),  # type: ignore[misc]
        Check("Git", _git),
    ]


def _machine() -> Found:
    described = machine.describe_machine()
    return Found("ok", "{cpu}, {cores} cores, {threads} threads for this process, {system}".format(**described))


def _package(package: str) -> Found:
    try:
        return Found("ok", importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return Found("fails", f"the package {package} is not installed", "run `make setup`")


def _git() -> Found:
    commit = provenance.git_commit()
    if commit == "unknown":
        return Found(
            "warning",
            "git is not installed, or this folder has no commit: runs are recorded without one, and DVC needs it",
            "install git and clone gigaslide with it",
        )
    return Found("ok", f"commit {commit[:10]}{' with changes' if commit.endswith('-dirty') else ''}")
