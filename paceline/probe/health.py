"""Numeric health: losses, the scaler's scale and skips, found without making the device wait.

Enters: what hooks.py sees. Leaves: values in the rows of the steps. A step only keeps the tensors; they are
read a few times a second on a CPU, where that waits for nothing, and on an accelerator after the timed steps.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch

from paceline.step_file import StepFile


class Health:
    """Collects the numbers of the step under way."""

    # What hooks.py calls, and switches off in a forked child.
    EVENTS = ("loss_scaled", "backward_called", "scaler_steps", "optimizer_stepped", "step_skipped")

    def __init__(self) -> None:
        self._unread: list[tuple[int, str, list[torch.Tensor]]] = []  # (row, metric, tensors to add up)
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None
        self._losses: list[torch.Tensor] = []
        self._scale: torch.Tensor | None = None
        self.scales = False  # in the step under way
        self._found_inf: list[torch.Tensor] = []
        self._skipped = False

    def loss_scaled(self, outputs: Any, scaled: Any) -> None:
        if isinstance(outputs, torch.Tensor) and isinstance(scaled, torch.Tensor):
            self._scaled = weakref.ref(scaled), outputs.data

    def forget_losses(self) -> None:
        self._losses = []

    def backward_called(self, tensors: Any) -> None:
        """Keep the loss that backward was called on, as it was before scaling."""
        loss = loss_among(tensors)
        if loss is None:
            return
        if self._scaled is not None and self._scaled[0]() is loss:
            loss = self._scaled[1]
        self._scaled = None
        # .data is the same tensor without its graph, as detach() gives, but past the dispatcher.
        self._losses.append(loss.data)

    def scaler_steps(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        if scaler.is_enabled():
            scale = scaler._scale
            self._scale = scale.clone() if scale is not None else None  # update() changes it in place
            self.scales = self._scale is not None

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Under a scaler: a fused optimizer is always called and skips by itself; its found_inf tells."""
        found_inf = getattr(optimizer, "found_inf", None)
        if isinstance(found_inf, torch.Tensor):
            self._found_inf.append(found_inf)

    def step_skipped(self) -> None:
        self._skipped = True

    def take(self, steps: StepFile) -> None:
        """Keep what belongs to the step whose row was written last; `read_into` fills it in."""
        row = steps.num_rows - 1
        if self._losses:
            self._unread.append((row, "loss", self._losses))
            self._losses = []
        if self._scale is not None:
            self._unread.append((row, "loss_scale", [self._scale]))
            if self._found_inf:
                self._unread.append((row, "skipped", self._found_inf))
            steps.fill(row, "skipped", float(self._skipped))
            self._found_inf, self._scale, self._skipped, self.scales = [], None, False, False

    @property
    def waits_for_nothing(self) -> bool:
        """Whether all that is kept lies in the host's memory, where reading it is free."""
        return all(tensor.device.type == "cpu" for _, _, tensors in self._unread for tensor in tensors)

    def read_into(self, steps: StepFile) -> None:
        """Read what was kept, on an accelerator too: that waits for it, so only after the timed steps."""
        for row, metric, tensors in self._unread:
            total = sum(map(float, tensors))
            steps.fill(row, metric, float(total > 0) if metric == "skipped" else total)
        self._unread.clear()


def loss_among(outputs: Any) -> torch.Tensor | None:
    """The loss, where that is what gradients are asked of: the first of the outputs, if it is one number."""
    first = outputs if isinstance(outputs, torch.Tensor) else next(iter(outputs), None)
    return first if isinstance(first, torch.Tensor) and first.numel() == 1 else None


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
