"""Give gloo's polling thread way to the rank it serves.

`gloo_tcp_loop` spins on its sockets and takes turns with the rank on the rank's own core. At nice 19 it
still runs whenever the rank waits, so a step waits less (docs/placement.md has the numbers). In: nothing.
Out: how many such threads this process has; every one of them is at nice 19 then. The threads exist once
the process group has connected, so a rank calls this at the first steps' ends. Standard library only.

    python -c "from paceline.probe.gloo_threads import lower_gloo_threads; print(lower_gloo_threads())"
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

THREAD_NAME = "gloo_tcp_loop"
LOWEST = 19


def lower_gloo_threads() -> int:
    tasks = Path("/proc/self/task")
    num_found = 0
    for thread in tasks.iterdir() if tasks.exists() else ():
        # A thread may end between the listing and the reading.
        with contextlib.suppress(OSError):
            if (thread / "comm").read_text().startswith(THREAD_NAME):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), LOWEST)
                num_found += 1
    return num_found
