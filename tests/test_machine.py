import json
import os
import platform
import socket
import subprocess
import sys
from types import SimpleNamespace

from gigaslide import machine


def test_plain_values_that_fit_this_machine():
    found = machine.describe_machine()
    assert json.loads(json.dumps(found)) == found
    assert found["python"] == platform.python_version()
    assert found["tensorflow"].startswith("2.19.")
    assert 1 <= found["threads"] <= os.cpu_count()
    assert found["memory_gb"] > 0.5
    assert found["cpu"] and found["system"]


def test_nothing_names_the_host():
    host = socket.gethostname()
    values = [str(value) for value in machine.describe_machine().values()]
    assert host not in values
    assert len(host) < 5 or not any(host in value for value in values)


def test_tensorflow_is_not_imported_to_be_described():
    code = (
        "import sys; from gigaslide.machine import describe_machine\n"
        "print('devices' in describe_machine(), 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_devices_of_an_imported_tensorflow(monkeypatch):
    cpu, gpu = SimpleNamespace(device_type="CPU"), SimpleNamespace(device_type="GPU")
    devices = [cpu]
    tensorflow = SimpleNamespace(
        config=SimpleNamespace(
            list_physical_devices=lambda: devices,
            experimental=SimpleNamespace(get_device_details=lambda device: {"device_name": "METAL"}),
        )
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    assert machine.describe_machine()["devices"] == "CPU"
    devices.append(gpu)
    assert machine.describe_machine()["devices"] == "METAL"


def test_cpu_model_of_linux():
    text = "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\nmodel name\t: AMD EPYC 7B13\n"
    assert machine._linux_cpu(text) == "AMD EPYC 7B13"
    flags = "flags\t\t: fpu {} bmi2\n"
    assert machine._linux_cpu(text + flags.format("avx2 avx512f avx avx512_vnni")) == "AMD EPYC 7B13 (AVX-512 VNNI)"
    assert machine._linux_cpu(text + flags.format("avx avx2")) == "AMD EPYC 7B13 (AVX2)"
    assert machine._linux_cpu("processor\t: 0\nCPU implementer\t: 0x41\n") is None
