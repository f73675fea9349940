"""Watches training: loss functions, backward, gradients cleared and clipped, the scaler, the optimizer.

Enters: PyTorch's own entry points. Leaves: "loss", "backward", "collective", "zero_grad", "unscale", "clip",
"move", "update" and "large_batch", in the order in which they happen.

    pytest tests/check/test_check_programs.py
"""

from __future__ import annotations

import functools
import math
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from paceline.check.watch.backward_collectives import Collectives
from paceline.check.watch.declared import read_declared
from paceline.check.watch.fingerprint import fingerprint_weights
from paceline.check.watch.graph import has_other_terms, read_factor
from paceline.check.watch.large_batch import CannotTellError, LossCall, MicroBatch, compare_gradients
from paceline.check.watch.losses import detach, watch_losses
from paceline.check.watch.model import ModelWatch
from paceline.check.watch.trace import Trace
from paceline.check.watch.wrap import wrap
from paceline.probe.collectives import flatten

NUM_COMPARISONS = 2  # the first step has nothing to clear before it, so one is not enough
LOOK_FOR_FINITE = 12  # a scaler's first steps may overflow: so many steps are tried
DECLARED_LOOKS = 12  # a number that changes within an optimizer step in so many backward calls is a counter
# A script may average gradients by any of these.
AVERAGING = (
    "all_reduce",
    "all_reduce_coalesced",
    "reduce_scatter_tensor",
    "all_gather_into_tensor",
    "all_gather",
)


class TrainingWatch:
    """The optimizer step under way."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._model = ModelWatch(trace, self._forward_ended)
        self._scaled: tuple[Any, float] | None = None  # the node that GradScaler made, and its scale
        self._losses: list[LossCall] = []  # since the last backward
        self._call: MicroBatch | None = None
        self._micros: list[MicroBatch] = []
        self._last_scale = 1.0  # that GradScaler multiplied a loss by
        self._compared = False
        self._comparisons_left = NUM_COMPARISONS
        self._steps = 0
        self._in_scaler = False
        self._stepped = False
        self._looks = 0
        self._looked_in_step = False
        self._declared: dict[str, int] | None = None  # at the last look
        self._optimizers: WeakKeyDictionary[torch.optim.Optimizer, int] = WeakKeyDictionary()
        self._num_optimizers = 0

    def install(self) -> None:
        self._model.install()
        watch_losses(self._trace, self._loss_computed)
        self._watch_backward()
        self._watch_scaler()
        self._watch_gradients()
        self._watch_collectives()
        register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: self._optimizer_began())
        register_optimizer_step_post_hook(lambda optimizer, args, kwargs: self._optimizer_ended(optimizer))

    # Forward and loss.

    @property
    def _keeps_calls(self) -> bool:
        return self._comparisons_left > 0 and self._steps < LOOK_FOR_FINITE

    def _forward_ended(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._keeps_calls and torch.is_grad_enabled():
            self._call = MicroBatch(detach(args), detach(kwargs), detach(output), None)

    def _loss_computed(self, call: LossCall) -> None:
        if not self._keeps_calls:  # after the compared steps the value alone is needed
            call = LossCall(call.function, call.name, (), {}, call.value)
        self._losses.append(call)

    # Backward.

    def _watch_backward(self) -> None:
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def observed_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if not self._trace.listens:
                backward(tensors, *args, **kwargs)
                return
            before: dict[str, Any] = {}
            self._trace.guard(self._describe_backward)(tensors, before)
            with Collectives() as counted:
                backward(tensors, *args, **kwargs)
            self._trace.guard(self._backward_ended)(before, counted.calls)

        torch.autograd.backward = observed_backward

    def _describe_backward(self, tensors: Any, facts: dict[str, Any]) -> None:
        self._look_at_declared()
        loss = flatten([tensors])[0] if flatten([tensors]) else None
        if loss is None or loss.numel() != 1:
            return
        node, scale = self._scaled or (None, 1.0)
        scaling = read_factor(loss, node)
        found = scaling.by_scaler
        value = float(loss.detach()) / (scale if found else 1.0)
        called = self._losses[0].value if len(self._losses) == 1 else None
        facts.update(
            value=value,
            scaled=found,
            scale=scale if found else None,
            ratio=value / called if called else None,
            factor=scaling.factor,
            other_terms=called is not None and has_other_terms(loss, value, called, scaling),
            loss_calls=len(self._losses),
            autocast=torch.is_autocast_enabled(self._model.device_type()),
            sync=self._model.synchronises(),
            had_gradients=self._model.has_gradients(),
        )

    def _look_at_declared(self) -> None:
        """In each of the first backward calls, later in the first of each optimizer step: some scripts train
        several times, with other numbers."""
        often = self._looks < DECLARED_LOOKS
        if not often and self._looked_in_step:
            return
        self._looks += 1
        self._looked_in_step = True
        declared = read_declared(self._trace.frames())
        if often or declared != self._declared:
            self._trace.write("declared", names=declared)
        self._declared = declared

    def _backward_ended(self, facts: dict[str, Any], collectives: int) -> None:
        self._trace.write("backward", collectives=collectives, **facts)
        if self._call is not None:
            self._call.loss = self._losses[0] if len(self._losses) == 1 else None
            self._call.has_other_terms = bool(facts.get("other_terms"))
            self._micros.append(self._call)
        self._call, self._scaled, self._losses = None, None, []

    # Gradients, on their way to the optimizer.

    def _watch_gradients(self) -> None:
        noted = self._trace.write
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            wrap(owner, "zero_grad", before=self._trace.guard(lambda *a, **k: noted("zero_grad")))

        @self._trace.guard
        def clipped(*args: Any, **kwargs: Any) -> None:
            self._gradients_ready(self._last_scale)
            noted("clip")

        for name in ("clip_grad_norm_", "clip_grad_value_"):
            wrap(torch.nn.utils.clip_grad, name, before=clipped)
            setattr(torch.nn.utils, name, getattr(torch.nn.utils.clip_grad, name))

    def _watch_collectives(self) -> None:
        def watch(name: str, averages: bool) -> None:
            @self._trace.guard
            def noted(*args: Any, **kwargs: Any) -> None:
                own, share = self._model.compare_with_gradients(flatten([*args, *kwargs.values()]))
                self._trace.write("collective", gradients=own, share=share if averages else 0.0)

            wrap(dist.distributed_c10d, name, before=noted)
            setattr(dist, name, getattr(dist.distributed_c10d, name))

        for name in AVERAGING:
            watch(name, averages=True)
        # After a reduce it is half of an average; what else is as large may be the weights.
        watch("broadcast", averages=False)

    def _gradients_ready(self, scale: float) -> None:
        """Backward is over: whatever comes now (unscaling, clipping, the optimizer) changes gradients, which
        will be divided by `scale`."""
        module = self._model.unwrapped
        if self._compared or not self._keeps_calls or module is None or not self._micros:
            return
        self._compared = True
        try:
            values = compare_gradients(module, self._micros, scale)
        except CannotTellError as reason:
            self._give_up(str(reason))
        except Exception as error:
            self._give_up(f"the large batch cannot be computed: {type(error).__name__}: {error}")
        else:
            if all(math.isfinite(value) for value in values["actual"]):
                self._comparisons_left -= 1
                sums = any(
                    micro.loss and micro.loss.kwargs.get("reduction") == "sum" for micro in self._micros
                )
                half = any(parameter.dtype.itemsize == 2 for parameter in module.parameters())
                self._trace.write("large_batch", step=self._steps, sums=sums, half=half, **values)

    def _give_up(self, reason: str) -> None:
        self._comparisons_left = 0
        self._trace.write("large_batch", step=self._steps, reason=reason)

    # Scaler and optimizer.

    def _watch_scaler(self) -> None:
        Scaler: Any = torch.amp.GradScaler
        trace = self._trace

        @trace.guard
        def made(scaler: Any, *args: Any, **kwargs: Any) -> None:
            trace.write("scaler", enabled=scaler.is_enabled(), device=scaler._device)

        @trace.guard
        def unscaling(scaler: Any, *args: Any, **kwargs: Any) -> None:
            if not self._in_scaler:
                self._gradients_ready(scaler.get_scale())
                trace.write("unscale")

        wrap(Scaler, "__init__", after=made)
        wrap(Scaler, "unscale_", before=unscaling)
        wrap(Scaler, "update", before=trace.guard(lambda *a, **k: trace.write("update")))
        scale, step = Scaler.scale, Scaler.step

        @functools.wraps(scale)
        def scale_and_keep(scaler: Any, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if isinstance(scaled, torch.Tensor) and scaler.is_enabled() and trace.listens:
                self._last_scale = scaler.get_scale()
                self._scaled = scaled.grad_fn, self._last_scale
            return scaled

        @functools.wraps(step)
        def step_or_skip(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            trace.guard(self._gradients_ready)(scaler.get_scale())
            self._in_scaler, self._stepped = scaler.is_enabled(), False
            try:
                result = step(scaler, optimizer, *args, **kwargs)
                if not self._stepped:
                    trace.guard(self._write_move)(optimizer, skipped=True)
            finally:
                self._in_scaler = False
            return result

        Scaler.scale, Scaler.step = scale_and_keep, step_or_skip

    def _optimizer_began(self) -> None:
        self._trace.guard(self._gradients_ready)(1.0)

    def _optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped = True
        self._trace.guard(self._write_move)(optimizer, skipped=False)

    def _write_move(self, optimizer: torch.optim.Optimizer, skipped: bool) -> None:
        module = self._model.unwrapped
        self._trace.write(
            "move",
            optimizer=self._number_of(optimizer),
            skipped=skipped,
            through_scaler=self._in_scaler,
            autocast=torch.is_autocast_enabled(self._model.device_type()),
            had_gradients=self._model.has_gradients(),
            weights=fingerprint_weights(module) if module is not None else [],
        )
        self._steps += 1
        self._micros, self._compared, self._looked_in_step = [], False, False

    def _number_of(self, optimizer: torch.optim.Optimizer) -> int:
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = self._num_optimizers
            self._num_optimizers += 1
        return self._optimizers[optimizer]
