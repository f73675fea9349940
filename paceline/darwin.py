"""What macOS tells about itself in place of Linux's /proc and /sys.

In: `sysctl`. Out: its values by name, none of them elsewhere or where it knows no such name.

    python -c "from paceline.darwin import ask_sysctl; print(ask_sysctl())"
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys

MODEL = "machdep.cpu.brand_string"
MEMORY_BYTES = "hw.memsize"
PHYSICAL_CORES = "hw.physicalcpu"
FAST_CORES = "hw.perflevel0.physicalcpu"  # only where cores differ, as on Apple's own processors
VIRTUAL = "kern.hv_vmm_present"


@functools.cache
def ask_sysctl() -> dict[str, str]:
    if sys.platform != "darwin":
        return {}
    with contextlib.suppress(OSError):
        names = [MODEL, MEMORY_BYTES, PHYSICAL_CORES, FAST_CORES, VIRTUAL]
        # It complains about names that it does not know, and answers the others.
        asked = subprocess.run(["sysctl", *names], capture_output=True, text=True)
        return dict(line.split(": ", 1) for line in asked.stdout.splitlines() if ": " in line)
    return {}
