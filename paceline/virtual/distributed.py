"""Tells `torch.distributed` that gloo serves virtual devices.

The collectives themselves are in native/collectives.cpp. Here only the tables are filled from which
`init_process_group`, `DeviceMesh` and FSDP choose a backend.

Enters and leaves: nothing.
Exercise: `pytest tests/virtual -k ranks`
"""

from __future__ import annotations

import torch.distributed as dist


def install() -> None:
    """Let `init_process_group()` and `init_process_group("gloo")` serve virtual tensors."""
    if not dist.is_available():
        return
    dist.Backend.default_device_backend_map["virtual"] = dist.Backend.GLOO
    for backend in (dist.Backend.GLOO, dist.Backend.FAKE):
        devices = dist.Backend.backend_capability[backend]
        if "virtual" not in devices:
            devices.append("virtual")
