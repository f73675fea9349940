"""Lets a script that calls `torch.compile` run on virtual devices, for which inductor writes no code.

Its graphs run as they are, and one warning says so.

Enters and leaves: nothing. Exercise: `pytest tests/virtual -k compile`
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def install() -> None:
    """Wrap the call by which `torch.compile` hands a graph to inductor."""
    wrapper = torch._TorchCompileInductorWrapper
    compile_graph: Callable[..., Any] = wrapper.__call__

    def compile_or_run(self: Any, graph: torch.fx.GraphModule, inputs: Sequence[Any], **named: Any) -> Any:
        if not _is_for_virtual(graph, inputs):
            return compile_graph(self, graph, inputs, **named)
        _warn_once()
        return graph.forward

    wrapper.__call__ = compile_or_run  # type: ignore[method-assign, assignment]


def _is_for_virtual(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    named = [torch.device(node.kwargs["device"]) for node in graph.graph.nodes if node.kwargs.get("device")]
    return any(place.type == "virtual" for place in [*named, *(tensor.device for tensor in tensors)])


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "torch.compile writes no code for virtual devices: what it would have compiled runs as it is",
        stacklevel=1,
    )
