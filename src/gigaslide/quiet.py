"""TensorFlow without what its C++ libraries write to standard error while they load."""

import os
import sys
import tempfile


def import_tensorflow() -> None:
    """Import TensorFlow; what it writes to standard error while it loads is shown only if the import fails.

    On Linux it always complains of CUDA libraries that are registered twice, GPU or not, before its own switch for
    messages (TF_CPP_MIN_LOG_LEVEL) is read.
    """
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        except BaseException:
            hidden.seek(0)
            os.write(shown, hidden.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)
