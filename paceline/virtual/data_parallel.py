"""The functions under `nn.DataParallel` that PyTorch has in C++ for CUDA alone.

`nn.DataParallel` is Python down to seven functions of `torch._C`, which a build without CUDA lacks
and a build with CUDA has for CUDA tensors. Here they are for virtual tensors, with the same copies:
parameters travel in coalesced buffers, a chunk that is already in place does not travel.

Enters: tensors and device indices. Leaves: tensors on those devices.
Exercise: `pytest tests/virtual -k data_parallel`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._utils import _reorder_tensors_as, _take_tensors
from torch.cuda import nccl


def install() -> None:
    """Put the functions where `torch.nn.parallel.comm` looks for them."""
    for function in (
        _broadcast,
        _broadcast_out,
        _broadcast_coalesced,
        _scatter,
        _scatter_out,
        _gather,
        _gather_out,
    ):
        name = function.__name__
        setattr(torch._C, name, _choose(function, getattr(torch._C, name, None)))
    nccl.is_available = _for_cuda_alone(nccl.is_available)


def _for_cuda_alone(is_available: Callable[..., bool]) -> Callable[..., bool]:
    """reduce_add asks whether NCCL can add its tensors, which may say that they are on cuda (--as-cuda)."""

    def has_nccl(tensors: Sequence[Tensor]) -> bool:
        return all(tensor.device.type == "cuda" for tensor in tensors) and is_available(tensors)

    return has_nccl


def _choose(ours: Callable[..., Any], theirs: Callable[..., Any] | None) -> Callable[..., Any]:
    """Ours, but PyTorch's own for CUDA tensors on a machine that has both."""
    if theirs is None:
        return ours

    def chosen(tensors: Any, *arguments: Any) -> Any:
        first = tensors if isinstance(tensors, Tensor) else tensors[0]
        return (theirs if first.device.type == "cuda" else ours)(tensors, *arguments)

    return chosen


def _place(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device("virtual", index)


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    return [tensor.to(_place(index), non_blocking=True) for index in devices]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    return [copy.copy_(tensor, non_blocking=True) for copy in out]


def _broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    """Copies of all tensors on every device; the first device has them already."""
    copies: list[list[Tensor]] = [[] for _ in devices[1:]]
    for chunk in _take_tensors(tensors, buffer_size):  # type: ignore[no-untyped-call]
        flat = torch._C._nn.flatten_dense_tensors(chunk)
        for made, index in zip(copies, devices[1:], strict=True):
            there = flat.to(_place(index), non_blocking=True)
            arrived = torch._C._nn.unflatten_dense_tensors(there, chunk)
            made.extend(part.detach() for part in arrived)
    in_order = [list(_reorder_tensors_as(made, tensors)) for made in copies]  # type: ignore[no-untyped-call]
    return [list(tensors), *in_order]


def _scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
) -> list[Tensor]:
    whole = tensor.contiguous()
    chunks = (
        whole.chunk(len(devices), dim) if chunk_sizes is None else torch.split(whole, list(chunk_sizes), dim)
    )
    placed = []
    for number, (chunk, index) in enumerate(zip(chunks, devices, strict=False)):
        with (streams[number] if streams else None) or nullcontext():
            to = chunk.to(_place(index), non_blocking=True, memory_format=torch.contiguous_format)
            placed.append(to)
    return placed


def _scatter_out(
    tensor: Tensor,
    out: Sequence[Tensor],
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
) -> list[Tensor]:
    sizes = [target.size(dim) for target in out]
    for number, (chunk, target) in enumerate(zip(torch.split(tensor, sizes, dim), out, strict=True)):
        with (streams[number] if streams else None) or nullcontext():
            target.copy_(chunk, non_blocking=True)
    return list(out)


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None = None) -> Tensor:
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    index = torch.accelerator.current_device_index() if destination is None else destination
    return _gather_out(tensors, tensors[0].new_empty(shape, device=_place(index)), dim)


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    sizes = [tensor.size(dim) for tensor in tensors]
    for part, tensor in zip(torch.split(out, sizes, dim), tensors, strict=True):
        part.copy_(tensor, non_blocking=out.device.type != "cpu")
    return out
