import subprocess
import sys
from pathlib import Path

import pytest

from tests.peak import peak_bytes

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no better counter")
def test_the_peak_of_a_process_is_its_own():
    """This one holds 300 MB; one that it starts, and that does nothing, has not held them."""
    held = b"x" * 300_000_000
    code = "from tests.peak import peak_bytes as peak; print(peak()); held = b'x' * 200_000_000; print(peak())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    idle, grown = map(int, done.stdout.split())
    assert peak_bytes() > len(held)
    assert idle < 100e6
    assert grown - idle == pytest.approx(200e6, rel=0.05)
