"""Prepared stores in a bucket of an S3 server (AWS, MinIO, Ceph, ...): published by one machine, read by any.

There an object appears whole, or not at all, and nothing is renamed. So a published store has a hash of what it says of
itself in its name, and its objects are not written again with other bytes; its `zarr.json` comes last, and the index of
all stores after that. Who reads while another publishes goes on with the stores of the index that was there. A store
that no index names any more stays: only who knows that nobody reads it can remove it.

The server and who may read are the environment's: AWS_ENDPOINT_URL (without it AWS itself), AWS_REGION,
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what else TensorStore's s3 driver finds.
"""

import hashlib
import json
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorstore

from gigaslide.errors import GigaslideError

_HASH_DIGITS = 16
_UPLOADS = 8  # at once, each of a shard, 12 MB without compression
_LAST = "zarr.json"
# TensorStore's own 32 tries keep an address at which nobody answers for a quarter of an hour.
_RETRIES = {"max_retries": 6, "initial_delay": "500ms", "max_delay": "8s"}


@dataclass(frozen=True)
class S3Folder:
    """A place in a bucket, s3://BUCKET/PREFIX, with what of a `Path` the readers of stores need."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "S3Folder":
        return S3Folder(f"{self.url.rstrip('/')}/{name}")

    def absolute(self) -> "S3Folder":
        """Return itself: it means the same everywhere."""
        return self

    def spec(self, end: str = "/") -> dict[str, Any]:
        """Return TensorStore's description of all keys below this place."""
        bucket, _, path = self.url.removeprefix("s3://").partition("/")
        found: dict[str, Any] = {"driver": "s3", "bucket": bucket, "path": f"{path.rstrip('/')}{end}".lstrip("/")}
        # Not read by the driver itself.
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if endpoint:
            found |= {"endpoint": endpoint.rstrip("/"), "aws_region": region or "us-east-1"}
        elif region:
            found["aws_region"] = region
        if "AWS_ACCESS_KEY_ID" in os.environ:
            # Said to it, because the driver complains on stderr of every other place where it finds no credentials.
            found["aws_credentials"] = {"type": "environment"}
        return {**found, "context": {"s3_request_retries": _RETRIES}}

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return an object's text.

        Raises:
            FileNotFoundError: it is not there.
            OSError: the server does not answer, or does not let us read.
        """
        try:
            found = self._objects().read("").result()
        except ValueError as error:
            raise OSError(str(error)) from None
        if found.state == "missing":
            raise FileNotFoundError(self.url)
        return bytes(found.value).decode(encoding)

    def write(self, content: bytes) -> Any:
        """Begin to write an object, and return what tells by `result()` that it is there."""
        return self._objects().write("", content)

    def _objects(self) -> Any:
        return tensorstore.KvStore.open(self.spec(end="")).result()


def published_name(store: Path) -> str:
    """Return a store's name in the bucket: the same bytes have the same one."""
    found = hashlib.sha256((store / _LAST).read_bytes()).hexdigest()[:_HASH_DIGITS]
    return f"{store.stem}.{found}{store.suffix}"


def publish(stores: Path, url: str | None, index_file: str) -> int:
    """Bring a folder of prepared stores and their index into a bucket; None: nowhere.

    Returns:
        How many stores were sent: those that are there are not sent again.

    Raises:
        GigaslideError: the bucket cannot be read or written.
    """
    if url is None:
        return 0
    target = S3Folder(url)
    index = json.loads((stores / index_file).read_text(encoding="utf-8"))
    sent = 0
    try:
        for entry in index["slides"]:
            store = stores / entry["store"]
            entry["store"] = published_name(store)
            sent += _send(store, target / entry["store"])
        (target / index_file).write((json.dumps(index, indent=1) + "\n").encode()).result()
    except (OSError, ValueError) as error:
        raise GigaslideError(
            f"the stores could not be brought to {url}: {error}. Correct cluster.stores, AWS_ENDPOINT_URL or the "
            "credentials, and run `gigaslide prepare` again: it goes on from there"
        ) from None
    return sent


def _send(store: Path, target: S3Folder) -> bool:
    """Send a store unless all of it is there."""
    try:
        (target / _LAST).read_text()
    except FileNotFoundError:
        pass
    else:
        return False
    waiting: deque[Any] = deque()
    for file in sorted(store.rglob("*")):
        name = file.relative_to(store).as_posix()
        if file.is_file() and name != _LAST:
            waiting.append((target / name).write(file.read_bytes()))
            if len(waiting) > _UPLOADS:
                waiting.popleft().result()
    for write in waiting:
        write.result()
    (target / _LAST).write((store / _LAST).read_bytes()).result()
    return True
