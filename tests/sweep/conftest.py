"""Storages of every kind, a real PostgreSQL server among them."""

import itertools
from pathlib import Path

import psycopg
import pytest

from tests.sweep import postgresql

LOCK = Path(__file__).parents[2] / ".pytest_cache/postgresql.lock"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql_url(tmp_path_factory):
    LOCK.parent.mkdir(exist_ok=True)
    with postgresql.server(tmp_path_factory.mktemp("postgresql"), LOCK) as url:
        yield url


@pytest.fixture(params=["sqlite", "journal", "postgresql"])
def storage_url(request, tmp_path):
    """Return the address of an empty storage."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
        name = f"test{next(_numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return url.replace("/postgres", f"/{name}")
    return {"sqlite": f"sqlite:///{tmp_path}/study.db", "journal": f"journal:{tmp_path}/study.log"}[request.param]
