"""Several machines: every rank's files come to the machine of rank 0, through torchrun's own store.

Enters: this rank's two files, when all is measured. Leaves: on the machine of rank 0, the files of all
ranks. The script's process group is not used: it may be gone, and its collectives are the script's.

    pytest tests/gloo/test_nodes.py
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import TCPStore

PREFIX = "paceline"
PATIENCE = timedelta(seconds=20)  # a dead machine must not hold the others
SUFFIXES = (".jsonl", ".steps")


def gather_files(folder: Path, rank: int, world: int, here: list[int]) -> None:
    """Send this rank's files, or receive those of every rank that is not `here`; then wait for all."""
    # torchrun's agent on the first machine serves this store for as long as any rank lives.
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=PATIENCE)
    if rank == 0:
        for other in sorted(set(range(world)) - set(here)):
            for suffix in SUFFIXES:
                (folder / f"rank{other}{suffix}").write_bytes(store.get(f"{PREFIX}/{other}{suffix}"))
    elif 0 not in here:
        for suffix in SUFFIXES:
            data = (folder / f"rank{rank}{suffix}").read_bytes()
            store.set(f"{PREFIX}/{rank}{suffix}", data)  # type: ignore[arg-type]  # its stub knows no bytes
    if rank == 0:
        store.set(f"{PREFIX}/gathered", "1")
    # Nobody leaves before the first machine has everything: a neighbour's last collective may still need it.
    store.wait([f"{PREFIX}/gathered"], PATIENCE)
