"""Two machines, here two launchers on one: every rank's steps arrive where rank 0 is."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from paceline.store import Store

PROGRAM = Path(__file__).parent.parent / "programs" / "known_accumulation.py"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_the_ranks_of_both_nodes_are_in_one_record(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = []
    for node in ("a", "b"):
        command = [
            *(sys.executable, "-m", "paceline", "run", "--nproc", "1", "--nnodes", "2"),
            *("--rdzv-endpoint", endpoint, "--rounds", "1", "--steps", "15", "--warmup", "3"),
            *("--store", str(tmp_path / f"{node}.sqlite"), str(PROGRAM)),
        ]
        nodes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    records = []
    for node in "ab":
        with Store(tmp_path / f"{node}.sqlite") as store:
            records += store.runs("known_accumulation")
    assert [record.world for record in records] == [2, 2]
    # Either node may have got rank 0: it has both ranks' steps, the other one its own.
    first, second = sorted(records, key=lambda record: len(record.ranks), reverse=True)
    assert [rank.rank for rank in first.ranks] == [0, 1]
    assert [rank.rank for rank in second.ranks] == [1]
    assert all(len(rank.series["step_time_s"]) == 3 + 15 + 4 for rank in first.ranks)
