"""TensorFlow as everything here computes with it: fast, silent, and without packages that it can do without.

It is quiet: what its C++ libraries write to standard error while they load is not shown.

Keras imports scikit-learn, pandas and matplotlib where they are installed, for wrappers, data frames and pictures that
nothing here uses: a third of the time that `import tensorflow` takes. Without them it leaves those parts out.
"""

import importlib.abc
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

_OPTIONAL = ("sklearn", "pandas", "matplotlib")


class _NotInstalled(importlib.abc.MetaPathFinder):
    """Says of some packages that they are not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in _OPTIONAL:
            raise ModuleNotFoundError(f"{fullname} is left out while TensorFlow is imported", name=fullname)
        return None


@contextmanager
def _without_optional() -> Iterator[None]:
    """Within, those packages cannot be imported, unless they were before; afterwards they can."""
    finder = _NotInstalled()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def import_tensorflow() -> None:
    """Import TensorFlow; what it writes to standard error while it loads is shown only if the import fails.

    With oneDNN, unless the environment says otherwise: by itself TensorFlow uses it only on processors that have
    instructions for neural networks (AVX512_VNNI and the like), and without it a step takes twice the time or more.

    On Linux it always complains of CUDA libraries that are registered twice, GPU or not, before its own switch for
    messages (TF_CPP_MIN_LOG_LEVEL) is read.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # from Python, where no command has chosen
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            with _without_optional():
                import keras  # noqa: F401
                import tensorflow  # noqa: F401
        except BaseException:
            hidden.seek(0)
            os.write(shown, hidden.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)
