"""A server that speaks S3, on this machine: moto's, with the buckets in its memory."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.mlflow_server import free_port

BUCKET = "slides"
_START_S = 60


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Yield the address of a server with an empty bucket."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("NOT TESTED on a bucket: moto is not installed")
    url = f"http://127.0.0.1:{(port := free_port())}"
    with (folder / "s3.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    try:
        for _ in range(_START_S * 5):
            try:
                request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT", headers=_SIGNED)
                urllib.request.urlopen(request, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "s3.log").read_text()[-2000:]
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


# moto tells by them which of AWS's services is asked.
_SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"}


def environment(url: str) -> dict[str, str]:
    """Return what a machine that may read and write has in its environment."""
    return {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def objects(prefix: str) -> list[str]:
    """Return the names below s3://BUCKET/prefix/."""
    import tensorstore

    from gigaslide.slides.bucket import S3Folder

    found = tensorstore.KvStore.open(S3Folder(f"s3://{BUCKET}/{prefix}").spec()).result().list().result()
    return sorted(key.decode() for key in found)


def remove(name: str) -> None:
    """Remove an object of the bucket."""
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{BUCKET}/{name}"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE", headers=_SIGNED), timeout=5).close()
