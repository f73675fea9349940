"""How many samples a step trains on, from what the script hands to its model.

Enters: the arguments of the model's calls in the counted step. Leaves: the fact "batch", where the count is
sure: in a world of one, or where data parallelism shows that every rank has samples of its own.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from paceline.probe.collectives import flatten


class BatchCounter:
    """The first model called in a micro-step tells its samples."""

    def __init__(self) -> None:
        self._models: list[torch.nn.Module] = []
        self._samples: dict[int, int] = {}  # micro-step → samples

    def called(self, module: torch.nn.Module, inputs: tuple[Any, ...], micro_step: int) -> None:
        if micro_step in self._samples:
            return
        for tensor in flatten(list(inputs)):
            if tensor.dim() > 0:
                self._samples[micro_step] = len(tensor)
                self._models.append(module)
                return

    def fact(self) -> dict[str, Any] | None:
        if not self._samples or not all(map(_has_own_samples, self._models)):
            return None
        return {"samples_per_step": sum(self._samples.values())}


def _has_own_samples(model: torch.nn.Module) -> bool:
    """Ranks that share one model's work (tensor parallelism, a pipeline) may share its samples too."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return True
    meshes = [getattr(parameter, "device_mesh", None) for parameter in model.parameters()]
    if any(mesh is not None and mesh.ndim > 1 for mesh in meshes):
        return False
    kinds: tuple[type, ...] = (torch.nn.parallel.DistributedDataParallel,)
    fsdp = sys.modules.get("torch.distributed.fsdp")  # importing it takes 0.75 s
    if fsdp is not None:
        kinds += (fsdp.FSDPModule, fsdp.FullyShardedDataParallel)
    return any(isinstance(module, kinds) for module in model.modules())
