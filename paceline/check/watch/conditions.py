"""Watches what surrounds training: seeds, clocks, waiting for devices, printing, process groups, autocast.

Enters: functions of torch and the standard library that scripts call for these. Leaves: "seed", "made",
"clock", "wait", "print", "group", "wrapped", "autocast" and, at the very end, "end".

    pytest tests/check/test_check_programs.py
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from paceline.check.watch.trace import Trace

CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
NANOSECOND_CLOCKS = tuple(f"{name}_ns" for name in CLOCKS)
RANDOM_DATA = ("randn", "rand", "randint", "randperm", "normal")
MOST_PRINTED = 5000
LONGEST_LINE = 400


def watch_conditions(trace: Trace) -> None:
    watch_seeds(trace)
    watch_clocks(trace)
    watch_waits(trace)
    watch_prints(trace)
    watch_groups(trace)
    atexit.register(lambda: trace.write_last("end", group_left=dist.is_initialized()))


def watch_seeds(trace: Trace) -> None:
    """Was the generator seeded when the first weights and the first random data were made?"""
    seeded = False
    made: set[str] = set()
    torch_: Any = torch  # its functions are replaced
    seed, unseed, register = torch.manual_seed, torch.seed, torch.nn.Module.register_parameter

    @functools.wraps(seed)
    def noted_seed(value: Any) -> Any:
        nonlocal seeded
        seeded = True
        if trace.listens:
            trace.write("seed", value=int(value))
        return seed(value)

    @functools.wraps(unseed)
    def noted_unseed() -> int:
        nonlocal seeded
        seeded = False
        return unseed()

    def note(kind: str) -> None:
        if kind not in made and trace.listens:
            made.add(kind)
            trace.write("made", kind=kind, seeded=seeded)

    @functools.wraps(register)
    def noted_register(module: Any, name: str, parameter: Any) -> None:
        if parameter is not None:
            note("model")
        register(module, name, parameter)

    def watch_random(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("generator") is None:
                note("data")
            return function(*args, **kwargs)

        return drawn

    torch_.manual_seed = torch_.random.manual_seed = noted_seed
    torch_.seed = torch_.random.seed = noted_unseed
    torch_.nn.Module.register_parameter = noted_register
    for name in RANDOM_DATA:
        setattr(torch, name, watch_random(getattr(torch, name)))


def watch_clocks(trace: Trace) -> None:
    def watch(name: str, unit_s: float) -> None:
        read = getattr(time, name)

        @functools.wraps(read)
        def noted() -> Any:
            value = read()
            # Libraries read clocks too: only the script's own readings count.
            if trace.listens and trace.is_own(sys._getframe(1).f_code.co_filename):
                trace.write("clock", function=name, value_s=value * unit_s)
            return value

        setattr(time, name, noted)

    for name in CLOCKS:
        watch(name, 1.0)
    for name in NANOSECOND_CLOCKS:
        watch(name, 1e-9)
    timeit.default_timer = time.perf_counter


def watch_waits(trace: Trace) -> None:
    """Calls after which all that a device was given is done, so that a clock tells the truth."""

    def watch(owner: Any, name: str, own: bool = False) -> None:
        wait = getattr(owner, name)

        @functools.wraps(wait)
        def noted(*args: Any, **kwargs: Any) -> Any:
            result = wait(*args, **kwargs)
            if trace.listens and (not own or trace.is_own(sys._getframe(1).f_code.co_filename)):
                trace.write("wait", function=name)
            return result

        setattr(owner, name, noted)

    for owner in (torch.accelerator, torch.cuda, torch.get_device_module()):
        watch(owner, "synchronize")
    watch(torch.cuda.Stream, "synchronize")
    # A virtual device's stream is of a class in C, which takes no watcher: who asks for it, waits for it.
    watch(torch.cuda, "current_stream", own=True)
    watch(dist, "barrier")
    for name in ("item", "tolist", "cpu", "__float__"):
        watch(torch.Tensor, name)


def watch_prints(trace: Trace) -> None:
    """Whole lines of standard output, each once, up to a limit."""
    left = MOST_PRINTED
    started = ""
    write = sys.stdout.write

    def noted(text: str) -> int:
        nonlocal left, started
        if left > 0 and trace.listens and text:
            *lines, started = (started + text).split("\n")
            started = started[:LONGEST_LINE]
            for line in lines[:left]:
                left -= 1
                trace.write("print", text=line[:LONGEST_LINE])
        return write(text)

    sys.stdout.write = noted  # type: ignore[method-assign]


def watch_groups(trace: Trace) -> None:
    def watch(owner: Any, name: str, what: str, **values: Any) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if trace.listens:
                trace.write(what, **values)
            return function(*args, **kwargs)

        setattr(owner, name, noted)

    init = dist.distributed_c10d.init_process_group

    @functools.wraps(init)
    def init_and_keep(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        # Where a model outlives its destroyed group, gloo's destructor joins its threads while it holds the
        # interpreter's lock, which such a thread may want: the rank hangs. Kept for ever it never runs.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))

    dist.distributed_c10d.init_process_group = init_and_keep
    for name, action in (("init_process_group", "made"), ("destroy_process_group", "destroyed")):
        watch(dist.distributed_c10d, name, "group", action=action)
        setattr(dist, name, getattr(dist.distributed_c10d, name))
    watch(torch.nn.parallel.DistributedDataParallel, "__init__", "wrapped", kind="DistributedDataParallel")
    watch(torch.nn.DataParallel, "__init__", "wrapped", kind="DataParallel")

    enter = torch.autocast.__init__

    @functools.wraps(enter)
    def noted_autocast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        enter(self, device_type, *args, **kwargs)
        if trace.listens:
            enabled = bool(getattr(self, "_enabled", True))
            trace.write("autocast", device=device_type, enabled=enabled)

    torch.autocast.__init__ = noted_autocast  # type: ignore[method-assign]
