import importlib.metadata
import json
import math
import resource
import signal
import sqlite3
import subprocess
import sys
from collections import namedtuple
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import numpy as np
import psutil
import pytest
import yaml

from gigaslide import config, provenance
from gigaslide.doctor import command, compute, probe, project, resources, software
from gigaslide.doctor.finding import Check, Finding, Found, examine
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.slides import reader, store
from tests.stages.project import PARAMS, gigaslide, make_project

GOOD: dict[str, Any] = {"device": "CPU", "onednn": True, "agreement": None, "refusal": ""}
AGREEMENT = {"device": "GPU", "loss_difference": 1e-8, "gradient_difference": 2e-7, "tolerance": 0.0039}


def found(checks: list[Check]) -> dict[str, Finding]:
    return {check.name: examine(check) for check in checks}


def broken(*_: object, **__: object) -> Never:
    raise RuntimeError("boom [not markup]")


@pytest.mark.slow  # another process imports TensorFlow
def test_the_command_on_this_machine(tmp_path: Path) -> None:
    done = gigaslide(make_project(tmp_path), "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    status = {check["name"]: check["status"] for check in report["checks"]}
    assert report["fails"] is False
    assert {"TensorFlow", "TensorFlow starts", "GPU agrees with CPU", "memory", "disk", "store", "slide"} <= set(status)
    assert {status[name] for name in ("TensorFlow starts", "params.yaml", "store", "slide")} == {"ok"}
    assert sorted(path.name for path in tmp_path.rglob("*doctor*")) == []


@pytest.fixture
def in_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and a TensorFlow that is well at once."""
    monkeypatch.chdir(make_project(tmp_path))
    monkeypatch.setattr(compute, "ask_tensorflow", lambda settings: GOOD)
    return tmp_path


def test_plain_lines_and_exit_code(in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok       TensorFlow: " + importlib.metadata.version("tensorflow") in lines
    assert all(line.startswith(("ok", "warning")) for line in lines[:-1])
    (in_project / "params.yaml").write_text("network: {kernel_size: [11]}")
    assert command.run() == 1
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "params.yaml:" in line]
    assert line.startswith("fails    params.yaml: params.yaml has ")
    assert "network.kernel_size: " in line
    assert "received [11]" in line
    assert line.endswith("-> correct params.yaml")
    assert lines[-1].startswith(f"1 of {len(lines) - 1} checks fail")


def test_json(in_project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "slide", broken)
    assert command.run(as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["fails"] is True
    (check,) = [check for check in report["checks"] if check["status"] == "fails"]
    assert check == {
        "name": "slide",
        "status": "fails",
        "found": "RuntimeError: boom [not markup]",
        "advice": "",
    }


def test_whatever_breaks_the_others_go_on(in_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [*software.checks(), *compute.checks(lambda: GOOD), *resources.checks(None), *project.checks()]
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    for index in range(len(checks)):
        changed = [*checks]
        changed[index] = Check(names[index], broken)
        findings = command.examine_all(changed)
        assert [finding.name for finding in findings] == names
        assert [finding.name for finding in findings if finding.status == "fails"] == [names[index]]
        checks[index] = Check(names[index], lambda: Found("ok", ""))  # the next rounds need not look again


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    terminal = Console(force_terminal=True, width=60, record=True, highlight=False)
    monkeypatch.setattr(command, "console", terminal)
    command.show([Finding("disk", "warning", "3 GB [free] " * 9, "free some"), Finding("git", "ok", "x", "")], False)
    text = terminal.export_text()
    assert max(map(len, text.splitlines())) <= 60
    assert "[free]" in text
    assert "-> free some" in text
    assert text.rstrip().endswith("nothing fails; 1 of 2 checks warn")


# software


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "dvc":
            raise importlib.metadata.PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    lines = found(software.checks())
    assert lines["DVC"] == Finding("DVC", "fails", "the package dvc is not installed", "run `make setup`")
    assert lines["Keras"].status == "ok"


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git_commit", lambda: "unknown")
    assert found(software.checks())["Git"].status == "warning"


# what computes


def test_a_gpu_that_agrees() -> None:
    lines = found(compute.checks(lambda: {**GOOD, "device": "NVIDIA H200", "agreement": AGREEMENT}))
    assert {line.status for line in lines.values()} == {"ok"}
    assert lines["device"].found == "NVIDIA H200"
    assert "2.0e-07" in lines["GPU agrees with CPU"].found


@pytest.mark.parametrize("factor", [0.5, math.nan])
def test_a_gpu_that_is_wrong(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    from gigaslide.streaming import devices

    def step(device: str) -> devices.StepResult:
        return devices.StepResult(0.7, 0.5, [np.ones(3, np.float32) * (1 if device == devices.CPU else factor)], 0.0)

    monkeypatch.setattr(devices, "step_on", lambda *settings: step)
    monkeypatch.setattr(devices, "set_threads", lambda workers: None)
    monkeypatch.setattr(devices, "accelerator", lambda: "GPU:0")
    monkeypatch.setattr(devices, "device_name", lambda: "Apple M1 Ultra")
    asked = {"network": compute.DEFAULT_NETWORK, "seed": 0, "dice_weight": 1.0, "cross_entropy_weight": 1.0}
    answer = json.loads(json.dumps(probe.answer(asked)))
    lines = found(compute.checks(lambda: answer))
    assert lines["TensorFlow starts"].status == "ok"
    assert lines["GPU agrees with CPU"].status == "fails"
    assert lines["GPU agrees with CPU"].found.startswith("Apple M1 Ultra is refused")
    assert lines["GPU agrees with CPU"].found.endswith("at most 0.0039")
    assert "GIGASLIDE_DEVICE=cpu" in lines["GPU agrees with CPU"].advice


def test_tensorflow_that_does_not_start() -> None:
    def ask() -> dict[str, Any]:
        raise GigaslideError("ended by SIGILL")

    lines = found(compute.checks(ask))
    assert lines.pop("TensorFlow starts").status == "fails"
    assert {line.status for line in lines.values()} == {"warning"}


@pytest.mark.parametrize(
    ("returncode", "stdout", "stderr", "error", "message"),
    [
        (-signal.SIGILL, "", "", GigaslideError, "ended by SIGILL"),
        (1, "", "Traceback\nImportError: no such thing\n", GigaslideError, "^ImportError: no such thing$"),
        (0, '\n{"error": "set it", "says_what_to_do": true}\n', "", UsageError, "^set it$"),
        (0, 'noise\n{"error": "odd", "says_what_to_do": false}\n', "", GigaslideError, "^odd$"),
    ],
)
def test_what_may_come_back(
    monkeypatch: pytest.MonkeyPatch, returncode: int, stdout: str, stderr: str, error: type[Exception], message: str
) -> None:
    done = subprocess.CompletedProcess([], returncode, stdout, stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(error, match=message):
        compute.ask_tensorflow(None)


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> Never:
        raise subprocess.TimeoutExpired("probe", 600)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(GigaslideError, match="no answer"):
        compute.ask_tensorflow(None)


def test_the_network_that_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(*_: object, input: str, **__: object) -> subprocess.CompletedProcess[str]:
        asked.append(json.loads(input))
        return subprocess.CompletedProcess([], 0, json.dumps(GOOD), "")

    monkeypatch.setattr(subprocess, "run", run)
    settings = config.load(PARAMS)
    assert compute.ask_tensorflow(settings) == compute.ask_tensorflow(None) == GOOD
    assert asked[0] == asked[1]  # params.yaml as it comes is what is asked about without one
    config.Network.model_validate(asked[0]["network"])


@pytest.mark.parametrize(("machine", "status"), [("x86_64", "warning"), ("arm64", "ok")])
def test_onednn_off(monkeypatch: pytest.MonkeyPatch, machine: str, status: str) -> None:
    monkeypatch.setattr(compute.platform, "machine", lambda: machine)
    assert found(compute.checks(lambda: {**GOOD, "onednn": False}))["oneDNN"].status == status


def test_an_nvidia_gpu_that_tensorflow_does_not_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("GIGASLIDE_DEVICE", raising=False)
    monkeypatch.setattr(compute, "_NVIDIA_DRIVER", tmp_path)
    assert "and-cuda" in found(compute.checks(lambda: GOOD))["device"].advice
    monkeypatch.setenv("GIGASLIDE_DEVICE", "cpu")
    assert found(compute.checks(lambda: GOOD))["device"].status == "ok"


def test_a_mac_without_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIGASLIDE_DEVICE", raising=False)
    monkeypatch.setattr(compute, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(compute.platform, "machine", lambda: "arm64")
    assert "tensorflow-metal is not installed" in found(compute.checks(lambda: GOOD))["device"].found


# resources


@pytest.mark.parametrize(
    ("budget_gb", "limit_gb", "status", "words"),
    [
        (None, None, "ok", "16.0 GB, 10.0 GB free"),
        (8, None, "ok", "memory.budget_gb is 8"),
        (12, None, "warning", "more than is free"),
        (128, None, "warning", "more than there is"),
        (8, 4, "warning", "4.0 GB (limit of this container or job), 4.0 GB free"),
        (8, 64, "ok", "16.0 GB, "),
    ],
)
def test_memory(
    monkeypatch: pytest.MonkeyPatch, budget_gb: float | None, limit_gb: float | None, status: str, words: str
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=16e9, available=10e9))
    monkeypatch.setattr(resources, "cgroup_limit_bytes", lambda: limit_gb and limit_gb * 1e9)
    result = resources.memory(budget_gb)
    assert result.status == status
    assert words in result.text


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/job/step", {"job/step/memory.max": "max", "job/memory.max": "4000"}, 4000),
        ("0::/job/step", {"job/step/memory.max": "300", "job/memory.max": "4000"}, 300),
        ("0::/", {"memory.max": "5000"}, 5000),  # as a container sees its own group
        ("3:cpuset:/a\n4:cpu,memory:/b\n0::/", {"memory/b/memory.limit_in_bytes": "700"}, 700),
        ("0::/", {}, None),
        ("0::/", {"memory.max": "max"}, None),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, membership: str, files: dict[str, str], limit: int | None) -> None:
    (tmp_path / "cgroup").write_text(membership + "\n")
    for name, text in files.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(text + "\n")
    assert resources.cgroup_limit_bytes(tmp_path / "cgroup", tmp_path / "sys") == limit


def test_no_control_groups(tmp_path: Path) -> None:
    assert resources.cgroup_limit_bytes(tmp_path / "none") is None


def test_sampled_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = SimpleNamespace(describe=lambda: "resident set, sampled every 5 ms")
    monkeypatch.setattr(resources, "MemoryMeter", lambda: meter)
    assert resources.measuring().status == "warning"


@pytest.mark.parametrize(("free_gb", "status"), [(50, "ok"), (5, "warning"), (0.1, "fails")])
def test_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_gb: float, status: str) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda folder: usage(1e12, 0, free_gb * 1e9))
    result = resources.disk({"this folder": tmp_path, "data": tmp_path})
    assert result.status == status
    assert result.text == f"{free_gb:.1f} GB free for this folder, data"


@pytest.mark.parametrize(("limit", "status"), [(256, "warning"), (4096, "ok"), (resource.RLIM_INFINITY, "ok")])
def test_open_files(limit: int, status: str) -> None:
    assert resources.open_files(limit).status == status


# the project


def test_outside_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = found(project.checks())
    assert lines["params.yaml"].status == "warning"
    assert {line.status for name, line in lines.items() if name != "params.yaml"} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_settings_with_a_mistake(tmp_path: Path) -> None:
    values = yaml.safe_load(PARAMS.read_text())
    values["network"]["strides"] = 3
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    result = project.params(tmp_path / "params.yaml")
    assert result.status == "fails"
    assert "network.strides: this key is unknown" in result.text


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file in the way")
    result = project.store(tmp_path / "data")
    assert result.status == "fails"
    assert str(tmp_path / "data") in result.text


def test_a_store_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Never:
        raise ValueError("RESOURCE_EXHAUSTED: No space left on device")  # what TensorStore raises

    monkeypatch.setattr(store.StoreWriter, "write", full)
    result = project.store(tmp_path)
    assert result.status == "fails"
    assert "No space left" in result.text
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_reads_back_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.Store, "read_mask", lambda self, window: np.zeros(window.shape, np.uint8))
    result = project.store(tmp_path)
    assert result.status == "fails"
    assert "other pixels" in result.text


def test_openslide_that_reads_wrong_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(reader.SlideReader, "read", lambda self, window: (np.zeros((*window.shape, 3), np.uint8), None))
        assert project.slide(tmp_path).status == "fails"
    monkeypatch.setitem(sys.modules, "gigaslide.slides.reader", None)  # its import fails
    assert examine(Check("slide", lambda: project.slide(tmp_path))).status == "fails"


def make_database(folder: Path) -> Path:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        connection.execute("create table runs (lifecycle_stage text)")
        connection.execute("insert into runs values ('active'), ('deleted')")
        connection.commit()
    return folder


def test_a_database_that_opens(tmp_path: Path) -> None:
    folder = make_database(tmp_path / "mlruns")
    assert project.database(folder) == Found("ok", f"{folder}/mlflow.db opens, 1 run")


@pytest.mark.parametrize("content", [b"no database at all, but long enough to look like one" * 9, b""])
def test_a_database_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlflow.db").write_bytes(content)
    assert project.database(tmp_path).status == "fails"


def test_a_database_that_someone_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_database(tmp_path / "mlruns")
    monkeypatch.setattr(project, "_PATIENCE_S", 0.05)
    with closing(sqlite3.connect(folder / "mlflow.db")) as writer:
        writer.execute("begin exclusive")
        assert project.database(folder).status == "warning"
        writer.rollback()


def test_a_folder_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project.os, "access", lambda path, mode: False)
    assert project.database(tmp_path / "mlruns").status == "fails"
