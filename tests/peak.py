"""The highest memory of this process so far.

Not `ru_maxrss` where there is something better: on Linux a process starts with that of the one it was forked from, and
keeps it when it becomes another program. What a test run of two gigabytes starts would seem to have taken them.
"""

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Return the largest resident size since this program was started."""
    if _STATUS.exists():
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
