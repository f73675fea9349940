"""Numeric health: losses, the scaler's scale and skips, found without making the device wait.

Enters: what hooks.py sees. Leaves: values for each step's line on a CPU, where reading a number is free;
on an accelerator the tensors are kept where they are and `late_values` reads them after the timed steps.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch


class Health:
    """Collects the numbers of the step under way."""

    def __init__(self) -> None:
        self.late: dict[str, list[tuple[int, list[torch.Tensor]]]] = {
            name: [] for name in ("loss", "loss_scale", "skipped")
        }
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None
        self._scaler: weakref.ref[torch.amp.GradScaler] | None = None
        self._losses: list[torch.Tensor] = []
        self._scale: torch.Tensor | None = None
        self._found_inf: list[torch.Tensor] = []
        self._skipped = False

    def loss_scaled(self, outputs: Any, scaled: Any) -> None:
        if isinstance(outputs, torch.Tensor) and isinstance(scaled, torch.Tensor):
            self._scaled = weakref.ref(scaled), outputs.detach()

    def backward_called(self, tensors: Any) -> None:
        """Keep the loss that backward was called on, as it was before scaling."""
        loss = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return
        if self._scaled is not None and self._scaled[0]() is loss:
            loss = self._scaled[1]
        self._scaled = None
        self._losses.append(loss.detach())

    def scaler_steps(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        self._scaler = weakref.ref(scaler)
        if scaler.is_enabled():
            scale = scaler._scale
            self._scale = scale.clone() if scale is not None else None  # update() changes it in place

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """A fused optimizer is always called and skips by itself: its found_inf tells."""
        if self._scale is None:
            return
        found_inf = getattr(optimizer, "found_inf", None)
        if isinstance(found_inf, torch.Tensor):
            self._found_inf.append(found_inf)

    def step_skipped(self) -> None:
        self._skipped = True

    def take(self, step: int) -> tuple[float, float, float]:
        """Loss, scale and skip of the step that ends now: NaN where the number is still on an accelerator."""
        loss = self._read("loss", step, self._losses)
        scale = skipped = math.nan
        if self._scale is not None:
            scale = self._read("loss_scale", step, [self._scale])
            skipped = 1.0 if self._skipped else self._read("skipped", step, self._found_inf, none=0.0)
            self._found_inf, self._scale, self._skipped = [], None, False
        self._losses = []
        return loss, scale, skipped

    def late_values(self) -> dict[str, list[tuple[int, float]]]:
        """Read what was left on the device: this waits for it, so only after the timed steps."""
        values = {
            name: [(step, sum(map(float, tensors))) for step, tensors in kept]
            for name, kept in self.late.items()
            if kept
        }
        self.late = {name: [] for name in self.late}
        return values

    def _read(self, name: str, step: int, tensors: list[torch.Tensor], none: float = math.nan) -> float:
        """Their sum where reading waits for nothing; on an accelerator they are kept."""
        if not tensors:
            return none
        if tensors[0].device.type == "cpu":
            return sum(map(float, tensors))
        self.late[name].append((step, tensors))
        return math.nan


def gradient_norm(parameters: list[torch.Tensor]) -> float:
    """The 2-norm of this rank's gradients (its own shards), NaN or infinite where they are."""
    squares = 0.0
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None:
            local = getattr(gradient, "_local_tensor", gradient)  # a DTensor's norm would communicate
            norm = float(torch.linalg.vector_norm(local, dtype=torch.float32))
            squares += norm * norm
    return math.sqrt(squares) if math.isfinite(squares) else squares
