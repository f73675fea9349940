"""Gives its devices to the processes that this one spawns, as a machine with GPUs gives them its GPUs.

`torch.multiprocessing.spawn` starts a Python that knows nothing of virtual devices. What it unpickles
first, before it imports the script, is the preparation data; so an object in there installs them.

Enters: the arguments of `paceline.virtual.install`. Leaves: nothing.
Exercise: `pytest tests/virtual -k spawned`
"""

from __future__ import annotations

import multiprocessing.spawn
from typing import Any

_arguments: tuple[Any, ...] | None = None


class _Devices:
    """Unpickled, it has installed the devices."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        import paceline.virtual

        assert _arguments is not None
        return paceline.virtual.install, _arguments


def pass_on(*arguments: Any) -> None:
    """From now on let spawned processes call `paceline.virtual.install` with these arguments."""
    global _arguments
    first = _arguments is None
    _arguments = arguments
    if not first:
        return
    prepare = multiprocessing.spawn.get_preparation_data

    def prepare_with_devices(name: str) -> dict[str, Any]:
        return {"paceline_virtual": _Devices(), **prepare(name)}

    multiprocessing.spawn.get_preparation_data = prepare_with_devices
