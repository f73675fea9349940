"""What one call of a collective moves: its kind, its size as nccl-tests counts it, and its bus bytes.

Enters: a dispatched operator and its arguments. Leaves: a Collective, or None for any other operator.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# Operator → (kind, position of the argument whose bytes are the message). As in nccl-tests the message of an
# all-gather is what comes out, that of a reduce-scatter what goes in.
_C10D = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "allgather_": ("all_gather", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_coalesced_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "gather_": ("gather", 0),
    "scatter_": ("scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_": ("all_to_all", 1),
    "alltoall_base_": ("all_to_all", 1),
    "send": ("send", 0),
    "recv_": ("recv", 0),
    "recv_any_source_": ("recv", 0),
    "barrier": ("barrier", None),
}
_FUNCTIONAL = {
    "all_reduce": ("all_reduce", "input"),
    "all_reduce_": ("all_reduce", "input"),
    "all_reduce_coalesced": ("all_reduce", "input"),
    "all_reduce_coalesced_": ("all_reduce", "input"),
    "broadcast": ("broadcast", "input"),
    "broadcast_": ("broadcast", "input"),
    "all_gather_into_tensor": ("all_gather", "output"),
    "all_gather_into_tensor_out": ("all_gather", "output"),
    "all_gather_into_tensor_coalesced": ("all_gather", "output"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "reduce_scatter_tensor_out": ("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", "input"),
    "all_to_all_single": ("all_to_all", "input"),
}


@dataclass(frozen=True)
class Collective:
    """One call on one rank."""

    kind: str
    bytes: int
    ranks: int
    tensors: list[torch.Tensor]

    @property
    def bus_bytes(self) -> float:
        """Bytes that the busiest link must carry, whatever the algorithm (nccl-tests, PERFORMANCE.md)."""
        n = self.ranks
        if self.kind == "all_reduce":
            return self.bytes * 2 * (n - 1) / n
        if self.kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
            return self.bytes * (n - 1) / n
        return float(self.bytes)


def read_collective(operator: Any, arguments: tuple[Any, ...], result: Any) -> Collective | None:
    """What this call moves, if it is a collective."""
    namespace, _, name = operator.name().split(".")[0].partition("::")
    if namespace == "c10d" and name in _C10D:
        kind, position = _C10D[name]
        message = [] if position is None else flatten(arguments[position])
        ranks = _num_ranks(arguments)
    elif namespace == "_c10d_functional" and name in _FUNCTIONAL:
        kind, side = _FUNCTIONAL[name]
        message = flatten(arguments[0] if side == "input" else result)
        ranks = _num_ranks(arguments)
    else:
        return None
    return Collective(kind, sum(t.numel() * t.element_size() for t in message), ranks, message)


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors in nested lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in flatten(item)]
    return []


def _num_ranks(arguments: tuple[Any, ...]) -> int:
    """The size of the group that a call names, by object (c10d) or by name (functional)."""
    distributed: Any = torch.distributed.distributed_c10d
    for argument in arguments:
        if isinstance(argument, torch.ScriptObject):
            group = _group_of(argument)
            if group is not None:
                return int(group.size())
        elif isinstance(argument, str):
            try:
                return int(distributed._resolve_process_group(argument).size())
            except (RuntimeError, ValueError, KeyError):
                continue  # the name of a reduction ("sum"), not of a group
    return torch.distributed.get_world_size()


def _group_of(boxed: torch.ScriptObject) -> Any:
    try:
        return torch.distributed.ProcessGroup.unbox(boxed)
    except (RuntimeError, ValueError, TypeError):
        return None  # a ReduceOp travels in the same kind of box
