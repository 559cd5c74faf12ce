"""Where MLflow's server is, and how long it is waited for. No import of mlflow (tracking.py), which takes seconds.

The server is that of `tracking.uri` or of the environment's MLFLOW_TRACKING_URI. A user name, a password or a token
come from the environment alone, under the names that MLflow has for them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gigaslide.errors import GigaslideError, UsageError

ADDRESS = "MLFLOW_TRACKING_URI"
# MLflow waits 0, 4, 8 and 16 s before it asks again, and a server that was started again has answered by then. Its own
# 7 tries take four minutes, and a training would wait for so long at the end of every epoch.
TRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
TRIES_WHILE_RUNNING, TRIES_AT_START = "4", "1"
_LONGEST_REASON = 200


class TrackingError(GigaslideError):
    """MLflow does not take what it is given, or does not answer."""


def address(uri: str | None) -> str | None:
    """Return the address of the server: `uri`, or else that of the environment; None without one.

    Raises:
        UsageError: what the environment says is no address of a server.
    """
    found = uri or os.environ.get(ADDRESS) or None
    if found is not None and not found.startswith(("http://", "https://")):
        raise UsageError(
            f"{ADDRESS} should be the address of a tracking server, http:// or https://; it is {found}. Unset it to "
            "keep runs in mlruns"
        )
    return found.rstrip("/") if found else None


@contextmanager
def environment(name: str, value: str | None = None) -> Iterator[None]:
    """Have another value of an environment variable (None: the same), and undo what was set meanwhile."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def why(error: BaseException) -> str:
    """Return what it began with, in a line: MLflow wraps what requests wraps around what urllib3 says."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST_REASON]
