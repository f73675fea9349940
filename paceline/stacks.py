"""The launcher's question "where do you stand?", and how a rank answers it, whatever it is busy with.

In: a signal. Out: the stacks of all threads, appended to the file that was named at the start. A rank that
is stuck in a collective answers too, since faulthandler needs nothing from the interpreter.
Exercise: `pytest tests/gloo/test_faults.py -k hang`.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

# Scripts use USR1 and USR2 themselves. macOS has no real-time signals, but one that means this very question.
if sys.platform == "darwin":
    STACKS_SIGNAL: int = signal.SIGINFO
else:
    STACKS_SIGNAL = signal.SIGRTMIN + 6


def answer_with_stacks(path: Path) -> None:
    """From now on, write where this process stands into `path` whenever it is asked."""
    stacks = path.open("w")  # open for the process's life: faulthandler holds the file
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
