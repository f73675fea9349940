"""An experiment of the kind "table": a script that trains nothing, run once, and the rows that it writes.

In: the planned script. Out: a `RunRecord` in the store whose one rank has the rows as its fact "table".
Exercise: `paceline lab run practical7 --task 4 --scale tiny`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import paceline
from paceline.labs.data import TABLE_FACT
from paceline.labs.plan import Planned
from paceline.machine import describe_machine, identify_machine
from paceline.record import RankRecord, RunRecord, Status
from paceline.run_key import hash_script, run_key
from paceline.store import Store
from paceline.study import Options


def run_table(planned: Planned, store: Store, timeout_s: float, *, fresh: bool, retry: bool) -> None:
    """Run the script unless the store has its rows; a failure is kept like that of any run."""
    config, options = planned.config, Options()
    script_hash, torch_version = hash_script(config.program), metadata.version("torch")
    key = run_key(
        config,
        options,
        1,
        script_hash,
        torch_version=torch_version,
        machine=identify_machine(describe_machine()),
    )
    status = store.keys(planned.study).get(key)
    if not fresh and (status == "ok" or (status is not None and not retry)):
        return
    command = [sys.executable, config.program, *config.arguments]
    started, clock_s = time.time(), time.monotonic()
    rows, cause = _run(command, timeout_s)
    ended: Status = "failed" if rows is None else "ok"
    store.add(
        RunRecord(
            key=key,
            study=planned.study,
            program=config.program,
            arguments=list(config.arguments),
            world=config.world,
            placement=config.placement,
            round=1,
            status=ended,
            cause=cause,
            started=started,
            wall_s=time.monotonic() - clock_s,
            command=command,
            script_hash=script_hash,
            options=asdict(options),
            versions={"paceline": paceline.__version__, "torch": torch_version},
            machine=describe_machine(),
            ranks=[]
            if rows is None
            else [RankRecord(0, facts={TABLE_FACT: {"rows": rows}}, end="script ended")],
        )
    )


def _run(command: list[str], timeout_s: float) -> tuple[list[dict[str, Any]] | None, str | None]:
    """The rows, or None and the sentence that says why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        try:
            done = subprocess.run(
                [*command, "--json-out", str(out)], capture_output=True, text=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            return None, f"did not end within {timeout_s:g} s"
        if done.returncode or not out.exists():
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            return None, f"ended with exit code {done.returncode}: {last[0]}"
        rows: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        return rows, None
