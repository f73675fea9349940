"""Where the probe listens: PyTorch's own entry points, which every training script passes through.

Enters: a StepClock and a Health to tell. Leaves: nothing; the script behaves as before. No module,
tensor or optimizer of the script is changed, so that what it saves stays loadable without Paceline.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data.dataloader
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import paceline
from paceline.probe.clock import StepClock
from paceline.probe.health import Health, loss_among
from paceline.probe.phases import LOADER_BEGAN, LOADER_ENDED, MODEL_CALLED


class Roots:
    """The modules that a script calls itself: its models, wrapped or not (and its loss functions)."""

    def __init__(self) -> None:
        self.modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        # Asked at every call, so by number: a weak set would make an object for each question.
        self.module_ids: set[int] = set()
        # In the counted step, who wants to know what the models are called with.
        self.on_call: Callable[[torch.nn.Module, tuple[Any, ...], int], None] | None = None

    def add_module(self, module: torch.nn.Module) -> None:
        self.modules.add(module)
        self.module_ids.add(id(module))

    def parameters(self) -> list[torch.Tensor]:
        """Every parameter, once, those that only an optimizer knows included."""
        found = {id(p): p for module in self.modules for p in module.parameters()}
        for optimizer in self.optimizers:
            found.update((id(p), p) for group in optimizer.param_groups for p in group["params"])
        return list(found.values())

    def buffers(self) -> list[torch.Tensor]:
        return list({id(b): b for module in self.modules for b in module.buffers()}.values())


def install(clock: StepClock, health: Health, roots: Roots) -> None:
    """Listen to optimizers, scalers, backward, data loaders and models."""
    paceline._on_mark = lambda: clock.mark()  # asked for anew: see `listen_no_more`
    _watch_optimizers(clock, health, roots)
    _watch_scalers(clock, health)
    _watch_backward(clock, health)
    _watch_dataloaders(clock)
    _watch_models(clock, roots)


def listen_no_more(clock: StepClock, health: Health, roots: Roots) -> None:
    """In a forked child: what it trains are not the rank's steps, and its end is its own affair."""
    for told in (clock, health):
        for event in told.EVENTS:
            setattr(told, event, lambda *_: None)
    roots.on_call = None


def _watch_optimizers(clock: StepClock, health: Health, roots: Roots) -> None:
    last_id = 0  # a number, since holding the optimizer would keep it and its model alive

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        clock.optimizer_began(optimizer)

    def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal last_id
        if id(optimizer) != last_id:
            roots.optimizers.add(optimizer)
            last_id = id(optimizer)
        if health.scales:
            health.optimizer_stepped(optimizer)
        clock.optimizer_ended(optimizer)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _watch_scalers(clock: StepClock, health: Health) -> None:
    Scaler: Any = torch.amp.GradScaler

    def watch_scale(scale: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(scale)
        def scale_and_remember(scaler: torch.amp.GradScaler, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            health.loss_scaled(outputs, scaled)
            return scaled

        return scale_and_remember

    def watch_step(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def step_or_skip(
            scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
        ) -> Any:
            calls = clock.optimizer_calls
            health.scaler_steps(scaler, optimizer)
            result = step(scaler, optimizer, *args, **kwargs)
            if clock.optimizer_calls == calls:  # it found a non-finite gradient and held the optimizer back
                health.step_skipped()
                clock.optimizer_stepped(optimizer)
            return result

        return step_or_skip

    def watch(kind: Any, /, **options: Any) -> None:
        super(Scaler, kind).__init_subclass__(**options)
        for name, watched in (("scale", watch_scale), ("step", watch_step)):
            if name in vars(kind):
                setattr(kind, name, watched(vars(kind)[name]))

    watch(Scaler)
    # FSDP's scaler has a `scale` of its own, and importing it takes longer than all of the probe.
    Scaler.__init_subclass__ = classmethod(watch)


def _watch_backward(clock: StepClock, health: Health) -> None:
    backward, grad = torch.autograd.backward, torch.autograd.grad

    @functools.wraps(backward)
    def timed_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        # A reentrant checkpoint calls it inside of the script's own call, on a GPU from another thread.
        if clock.in_backward:
            return backward(tensors, *args, **kwargs)
        if not clock.calls_backward:
            health.forget_losses()
        health.backward_called(tensors)
        clock.backward_began()
        try:
            backward(tensors, *args, **kwargs)
        finally:
            clock.backward_ended()

    @functools.wraps(grad)
    def timed_grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if clock.calls_backward or not _trains(outputs, kwargs) or clock.in_backward:
            return grad(outputs, *args, **kwargs)
        health.backward_called(outputs)
        clock.gradients_began()
        try:
            return grad(outputs, *args, **kwargs)
        finally:
            clock.backward_ended()

    torch.autograd.backward, torch.autograd.grad = timed_backward, timed_grad


def _trains(outputs: Any, options: dict[str, Any]) -> bool:
    """Whether these gradients may be a micro-step's last: of a loss, and not to be derived again."""
    return (
        not torch.compiler.is_compiling()
        and not options.get("create_graph")
        and type(loss_among(outputs)) is torch.Tensor  # a compiler traces with tensors of its own
    )


def _watch_dataloaders(clock: StepClock) -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    following = iterator.__next__
    training_thread = threading.main_thread().ident

    @functools.wraps(following)
    def timed_next(self: Any) -> Any:
        if threading.get_ident() != training_thread:  # a script's own prefetching
            return following(self)
        clock.note(LOADER_BEGAN)
        try:
            return following(self)
        finally:
            clock.note(LOADER_ENDED)

    iterator.__next__ = timed_next  # type: ignore[method-assign]


DISCOVERY_STEPS = 2  # a wrapper made in the first step (a late compile, say) is seen in the second


def _watch_models(clock: StepClock, roots: Roots) -> None:
    # Watching every module's call would cost a few microseconds per layer. So all calls are watched for
    # the first steps only, to learn which modules are the outermost ones; then those classes alone.
    call: Callable[..., Any] = torch.nn.Module.__call__
    training_thread = threading.main_thread().ident
    depth = 0

    def watch_all(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        # Inside of backward a checkpoint recomputes: nothing that the script called.
        if torch.compiler.is_compiling() or threading.get_ident() != training_thread or clock.in_backward:
            return call(module, *args, **kwargs)
        if depth == 0:
            if clock.step >= DISCOVERY_STEPS:
                watch_roots_alone()
            if next(module.parameters(), None) is not None:  # a loss function is no model
                roots.add_module(module)
                clock.note(MODEL_CALLED)
        depth += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            depth -= 1

    def watch_roots_alone() -> None:
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        for kind in {type(module) for module in roots.modules}:
            kind.__call__ = watch_root(kind.__call__)  # type: ignore[method-assign]

    def watch_root(inherited: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inherited)
        def call_root(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if id(module) in roots.module_ids and not clock.in_backward:
                if roots.on_call is not None:
                    roots.on_call(module, (*args, *kwargs.values()), clock.micro_steps)
                clock.note(MODEL_CALLED)
            return inherited(module, *args, **kwargs)

        return call_root

    torch.nn.Module.__call__ = watch_all  # type: ignore[method-assign]
