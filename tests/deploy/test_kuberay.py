"""The manifest of deploy/kuberay: do its numbers agree, with each other and with what is installed?"""

import re
from typing import Any

import pytest
import yaml

from tests.deploy.mlflow_server import DEPLOY

FACTORS = {"": 1, "M": 10**6, "G": 10**9, "Mi": 2**20, "Gi": 2**30}
FILE = DEPLOY / "kuberay/rayjob.yaml"


def quantity(text: str) -> int:
    found = re.fullmatch(r"(\d+)(|M|G|Mi|Gi)", text)
    assert found is not None, text
    return int(found[1]) * FACTORS[found[2]]


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILE.read_text()))


def cluster() -> dict[str, Any]:
    spec: dict[str, Any] = documents()[1]["spec"]["rayClusterSpec"]
    return spec


def groups() -> list[dict[str, Any]]:
    return [cluster()["headGroupSpec"], *cluster()["workerGroupSpecs"]]


@pytest.mark.parametrize("group", groups(), ids=["head", "workers"])
def test_the_sizes_of_a_node_agree(group: dict[str, Any]) -> None:
    node = group["template"]["spec"]
    (container,) = node["containers"]
    limits = container["resources"]["limits"]
    assert container["resources"]["requests"] == limits
    store_bytes, memory_bytes = int(group["rayStartParams"]["object-store-memory"]), quantity(limits["memory"])
    assert store_bytes == 0.3 * memory_bytes
    volumes = {volume["name"]: volume for volume in node["volumes"]}
    shared = volumes["shm"]["emptyDir"]
    assert shared["medium"] == "Memory"
    assert store_bytes <= quantity(shared["sizeLimit"]) <= 0.35 * memory_bytes
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"project": "/project", "shm": "/dev/shm"}  # the same path everywhere
    claim = volumes["project"]["persistentVolumeClaim"]["claimName"]
    assert (claim, documents()[0]["kind"]) == (documents()[0]["metadata"]["name"], "PersistentVolumeClaim")
    assert documents()[0]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_workers_have_a_tile_for_every_core_and_the_head_has_none() -> None:
    head, *workers = groups()
    assert head["rayStartParams"]["num-cpus"] == "0"
    for group in workers:
        (container,) = group["template"]["spec"]["containers"]
        assert group["rayStartParams"]["num-cpus"] == container["resources"]["limits"]["cpu"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_versions_are_those_of_the_lock_file() -> None:
    lock = (DEPLOY.parent / "uv.lock").read_text()
    locked = dict(re.findall(r'^name = "(\S+)"\nversion = "(\S+)"$', lock, re.M))
    assert cluster()["rayVersion"] == locked["ray"]
    images = set(re.findall(r"REGISTRY/gigaslide:\S+", FILE.read_text() + (DEPLOY / "Dockerfile").read_text()))
    assert images == {f"REGISTRY/gigaslide:{locked['gigaslide']}"}
    assert f"uv=={locked['uv']}" in (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert all((DEPLOY.parent / name).exists() for line in copied for name in line.split())


def test_the_token_is_asked_for() -> None:
    assert cluster()["authOptions"] == {"mode": "token"}
