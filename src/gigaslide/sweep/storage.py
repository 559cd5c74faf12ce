"""Where a study lies: SQLite beside the runs, a database server, or a journal file."""

import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalRedisBackend
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError

from gigaslide.errors import UsageError

DEFAULT = "sqlite:///mlruns/sweep.db"
_JOURNAL = "journal:"
_WAIT_S = 60  # for another process's transaction
_ATTEMPTS, _AGAIN_S = 5, 1.0


def open_storage(url: str) -> tuple[BaseStorage, Path | None]:
    """Open a storage; return it and, where it has no locks of its own, the file to lock.

    Args:
        url: what SQLAlchemy takes (sqlite:///..., postgresql://...), journal:FILE, or journal+redis://...;
            $VARIABLES are replaced, so that a password need not stand in params.yaml.

    Raises:
        UsageError: it is not understood, or nothing answers there.
    """
    url = os.path.expandvars(url)
    try:
        if url.startswith("journal+redis:"):
            return JournalStorage(JournalRedisBackend(url.removeprefix("journal+"))), None
        if url.startswith(_JOURNAL):
            path = Path(url.removeprefix(_JOURNAL))
            path.parent.mkdir(parents=True, exist_ok=True)
            return JournalStorage(JournalFileBackend(str(path))), None
        parsed = make_url(url)
        file = Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        connect: dict[str, object] = {}
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            connect = {"timeout": _WAIT_S}
        lock_file = file.with_name(f".{file.name}.lock") if file else None
        # The server may have closed a connection that was idle during a long trial.
        arguments = {"connect_args": connect, "pool_pre_ping": True}
        with FileLock(lock_file) if lock_file else nullcontext():
            return _create(parsed.render_as_string(hide_password=False), arguments), lock_file
    except (SQLAlchemyError, ImportError, OSError) as error:
        raise UsageError(
            f"sweep.storage: {shown(url)} does not open ({_first_line(error)}); it is null, sqlite:///FILE, "
            "postgresql://USER@HOST/DATABASE (pip install 'gigaslide[postgresql]') or journal:FILE"
        ) from None


def _create(url: str, arguments: dict[str, Any]) -> RDBStorage:
    """Open a database; the first one to come creates its tables."""
    for attempt in range(_ATTEMPTS):
        try:
            return RDBStorage(url, engine_kwargs=arguments)
        except (IntegrityError, ProgrammingError):
            # Another machine creates the same tables at this moment.
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_AGAIN_S)
    raise RuntimeError("not reached")


def shown(url: str) -> str:
    """Return a storage's address without its password."""
    prefix = "journal+" if url.startswith("journal+") else ""
    if url.startswith(_JOURNAL):
        return url
    try:
        return prefix + make_url(url.removeprefix(prefix)).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "what it names"


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
