"""How real the virtual device is: PyTorch's own operator database run on it and on the CPU.

An operator passes when every sample gives on the virtual device what it gives on the CPU: values,
shape, strides, type, device; forward, backward, in place and with `out=`. A crash takes down one
worker, is counted, and the next worker goes on behind it.

    python benchmarks/virtual_opinfo.py                  # all, some ten minutes
    python benchmarks/virtual_opinfo.py --only add,sort  # these
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names of operators, with commas between")
    parser.add_argument("--dtype", help="one type instead of five, such as float32")
    parser.add_argument("--json", action="store_true", help="print verdicts as JSON lines, write nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    if options.worker:
        work(only, options.dtype, skip=json.loads(sys.stdin.readline()))
        return 0
    verdicts = gather(only, options.dtype)
    if options.json:
        print("\n".join(json.dumps(verdict) for verdict in verdicts))
    else:
        report(verdicts)
    return 0


def work(only: list[str], dtype: str | None, skip: list[str]) -> None:
    """Compare operators and print a line when each begins and ends."""
    import opinfo_compare

    import paceline.virtual as virtual

    virtual.install(devices=3)
    import torch

    torch.set_num_threads(1)
    dtypes = (getattr(torch, dtype),) if dtype else opinfo_compare.DTYPES
    for op in opinfo_compare.load_database():
        name = opinfo_compare.full_name(op)
        if name in skip or (only and op.name not in only and name not in only):
            continue
        print(json.dumps({"begin": name}), flush=True)
        print(json.dumps(asdict(opinfo_compare.compare(op, dtypes))), flush=True)


def gather(only: list[str], dtype: str | None) -> list[dict[str, Any]]:
    """Verdicts of all operators, from as many workers as crashes make necessary."""
    verdicts: list[dict[str, Any]] = []
    while True:
        begun = None
        command = [sys.executable, __file__, "--worker", "--only", ",".join(only)]
        command += ["--dtype", dtype] if dtype else []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(json.dumps([verdict["name"] for verdict in verdicts]) + "\n")
            worker.stdin.close()
            for line in worker.stdout:
                if not line.startswith("{"):
                    continue  # some operators print
                said = json.loads(line)
                begun = said.get("begin")
                if begun is None:
                    verdicts.append(said)
                    show(said)
        if begun is None:
            return verdicts
        crash = {"name": begun, "status": "different", "cause": f"crash: {worker.returncode}", "checks": 0}
        verdicts.append(crash)
        show(crash)


def show(verdict: dict[str, Any]) -> None:
    if verdict["status"] == "different":
        print(f"{verdict['name']}: {verdict['cause']}", file=sys.stderr, flush=True)


def report(verdicts: list[dict[str, Any]]) -> None:
    from record_result import write_result

    by_status = Counter(verdict["status"] for verdict in verdicts)
    compared = sum(by_status[status] for status in ("same", "close", "different"))
    passed = by_status["same"] + by_status["close"]
    print(f"{passed} of {compared} operators agree ({passed / compared:.2%}); {dict(by_status)}")
    failures = defaultdict(list)
    for verdict in verdicts:
        if verdict["status"] == "different":
            failures[cause_of(verdict["cause"])].append(verdict["name"])
    numbers = {
        "operators_in_database": len(verdicts),
        "operators_compared": compared,
        "checks": sum(verdict["checks"] for verdict in verdicts),
        "agree": passed,
        "bitwise": by_status["same"],
        "pass_rate": passed / compared,
        "failures_by_cause": dict(failures),
        "close_not_bitwise": [v["name"] for v in verdicts if v["status"] == "close"],
        "not_comparable": {v["name"]: v["cause"] for v in verdicts if v["status"] == "not comparable"},
        "details": {v["name"]: v["cause"] for v in verdicts if v["status"] == "different"},
    }
    write_result("virtual_opinfo", numbers)


def cause_of(detail: str) -> str:
    """The kind of failure behind a message."""
    causes = {
        "hold dense tensors": "sparse, nested or quantized tensors",
        "crash": "crash",
        "result is on": "result on the wrong device",
        "stride": "other strides",
        "same device": "device check",
        "not close": "other values",
        "NotImplemented": "no kernel",
    }
    return next((cause for mark, cause in causes.items() if mark in detail), "other")


if __name__ == "__main__":
    sys.exit(main())
