"""How many collectives one backward pass starts: DDP's own, which no Python function announces.

Enters: every operator of a backward pass. Leaves: a count.

    pytest tests/check/test_check_programs.py -k sync
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from paceline.probe.collectives import read_collective


class Collectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        if operator.namespace in ("c10d", "_c10d_functional") and read_collective(operator, args, result):
            self.calls += 1
        return result
