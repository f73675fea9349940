"""Runs a script on virtual devices: `python -m paceline.virtual --devices 5 script.py args…`.

Enters: options, a script and its arguments. Leaves: the script's own output and exit status.
Exercise: `python -m paceline.virtual --devices 2 --report script.py`
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import paceline.virtual as virtual


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    script = Path(options.script)
    try:
        if not script.is_file():
            raise ValueError(f"{script} is no file; give the path of a Python script")
        virtual.install(options.devices, options.memory, options.link, options.as_cuda)
    except ValueError as mistake:
        print(f"paceline: {mistake}", file=sys.stderr)
        return 2
    sys.argv = [str(script), *options.arguments]
    sys.path[0] = str(script.resolve().parent)  # as `python script.py` would have it
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        if options.report:
            print(describe(options.devices), file=sys.stderr)
    return 0


def describe(devices: int) -> str:
    """Peak memory of every device and the copies between them, as lines of text."""
    lines = ["device        peak bytes      live bytes"]
    for index in range(devices):
        counts = virtual.memory(index)
        lines.append(f"virtual:{index:<4d}{counts.peak_bytes:12,d}    {counts.live_bytes:12,d}")
    lines.append("from → to                       copies           bytes")
    for (source, destination), made in virtual.transfers().items():
        lines.append(f"{source:10s} → {destination:10s}{made.count:16,d}{made.bytes:16,d}")
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m paceline.virtual", description="Run a script on virtual devices."
    )
    parser.add_argument("--devices", type=int, default=5, metavar="N", help="how many devices (5)")
    parser.add_argument("--memory", metavar="SIZE", help="memory of each device, such as 8GiB")
    parser.add_argument("--link", metavar="RATE,LATENCY", help="what joins them, such as 12GB/s,5us")
    parser.add_argument("--as-cuda", action="store_true", help="run a script that says cuda by name")
    parser.add_argument("--report", action="store_true", help="print memory and copies when the script ends")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
