"""One operator of PyTorch's own test database, on a virtual device and on the CPU.

PyTorch's wheel carries the database by which its own device-generic tests are made
(`torch.testing._internal.common_methods_invocations.op_db`): for every operator, how to make sample
inputs for a device. The samples are made on the virtual device, copied to the CPU, and both run:
forward, backward, in place and with `out=`.

Enters: an OpInfo. Leaves: a verdict with the first difference. Runs inside a process that has virtual
devices. Used by `benchmarks/virtual_opinfo.py` and by `tests/virtual`.
"""

from __future__ import annotations

import random
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "virtual:1"
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
MAX_SAMPLES = 40


@dataclass
class Verdict:
    """What became of one operator."""

    name: str
    status: str = "same"  # same | close | different | not comparable
    cause: str = ""
    checks: int = 0
    kinds: list[str] = field(default_factory=list)  # forward, backward, in place, out


class Difference(AssertionError):
    """The virtual device did not do what the CPU did."""


def load_database() -> list[Any]:
    """All OpInfos; the package that their module imports for its own tests need not be installed."""
    if "expecttest" not in sys.modules:
        substitute = types.ModuleType("expecttest")
        substitute.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = substitute
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def compare(op: Any, dtypes: Sequence[torch.dtype] = DTYPES) -> Verdict:
    """Run all samples of one operator in every way it supports, for every one of the dtypes."""
    verdict = Verdict(full_name(op))
    for dtype in dtypes:
        if dtype in op.supported_dtypes("cpu") and verdict.status != "different":
            compare_dtype(op, dtype, verdict)
    if verdict.checks == 0 and verdict.status == "same":
        verdict.status, verdict.cause = "not comparable", "no sample runs on the CPU"
    return verdict


def compare_dtype(op: Any, dtype: torch.dtype, verdict: Verdict) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sample in make_samples(op, dtype):
                compare_sample(op, sample, dtype, verdict)
    except NotComparable:
        return
    except Exception as error:
        verdict.status = "different"
        verdict.cause = f"{dtype}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


class NotComparable(Exception):
    """The CPU itself has no answer to compare with."""


def make_samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    wants_gradient = bool(op.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    seed_everything()
    try:
        next(iter(op.sample_inputs("cpu", dtype, requires_grad=wants_gradient)), None)
    except Exception as error:
        raise NotComparable(f"the CPU makes no samples: {type(error).__name__}") from error
    seed_everything()
    for number, sample in enumerate(op.sample_inputs(DEVICE, dtype, requires_grad=wants_gradient)):
        if number >= MAX_SAMPLES:
            return
        yield sample


def compare_sample(op: Any, sample: Any, dtype: torch.dtype, verdict: Verdict) -> None:
    call = Call(sample.input, tuple(sample.args), dict(sample.kwargs))
    ways: list[tuple[str, Callable[[Call], Any]]] = [("forward", lambda c: run_forward(op, c))]
    if op.supports_autograd and (dtype.is_floating_point or dtype.is_complex):
        ways.append(("backward", lambda c: run_backward(op, c)))
    if op.get_inplace() is not None and not sample.broadcasts_input:
        ways.append(("in place", lambda c: run_in_place(op, c)))
    if op.supports_out:
        ways.append(("out", lambda c: run_out(op, c)))
    for kind, run in ways:
        compare_way(op, kind, run, call, verdict)


def compare_way(op: Any, kind: str, run: Callable[[Call], Any], call: Call, verdict: Verdict) -> None:
    expected, expected_error = outcome(run, call.copied_to("cpu"))
    found, found_error = outcome(run, call.copied_to(DEVICE))
    if expected_error is not None:
        return  # nothing to compare with
    if found_error is not None:
        raise Difference(f"{kind}: {type(found_error).__name__}: {found_error}") from found_error
    verdict.checks += 1
    if kind not in verdict.kinds:
        verdict.kinds.append(kind)
    place = call.result_place()
    if not compare_values(kind, expected, found, place, is_unset=leaves_memory_unset(op)):
        verdict.status = "close"


def outcome(run: Callable[[Call], Any], call: Call) -> tuple[Any, Exception | None]:
    seed_everything()
    try:
        return run(call), None
    except Exception as error:
        return None, error


def compare_values(kind: str, expected: Any, found: Any, place: str, is_unset: bool) -> bool:
    """Whether all is bitwise equal; raises when it is not even close."""
    expected_leaves, expected_shape = tree_flatten(expected)
    found_leaves, found_shape = tree_flatten(found)
    if len(expected_leaves) != len(found_leaves):
        raise Difference(f"{kind}: {found_shape} instead of {expected_shape}")
    bitwise = True
    for one, other in zip(expected_leaves, found_leaves, strict=True):
        bitwise &= compare_leaf(kind, one, other, place, is_unset)
    return bitwise


def compare_leaf(kind: str, expected: Any, found: Any, place: str, is_unset: bool) -> bool:
    if not isinstance(expected, torch.Tensor):
        if not isinstance(expected, torch.device) and expected != found and expected == expected:
            raise Difference(f"{kind}: {found!r} instead of {expected!r}")
        return True
    if str(found.device) != place:
        raise Difference(f"{kind}: the result is on {found.device}, not on {place}")
    for property_name in ("shape", "dtype", "layout", "requires_grad"):
        if getattr(expected, property_name) != getattr(found, property_name):
            raise Difference(
                f"{kind}: {property_name} {getattr(found, property_name)} "
                f"instead of {getattr(expected, property_name)}"
            )
    if expected.layout == torch.strided and expected.stride() != found.stride() and expected.numel() > 1:
        raise Difference(f"{kind}: stride {found.stride()} instead of {expected.stride()}")
    if is_unset:
        return True
    here = found.detach().cpu()
    there = expected.detach()
    exactly = {"rtol": 0, "atol": 0, "equal_nan": True}
    if there.layout == torch.strided and torch.allclose(*comparable(here, there), **exactly):
        return True
    torch.testing.assert_close(here, there, equal_nan=True)
    return False


def comparable(*tensors: torch.Tensor) -> Iterator[torch.Tensor]:
    for tensor in tensors:
        plain = tensor.resolve_conj().resolve_neg()
        yield plain.to(torch.uint8) if plain.dtype == torch.bool else plain


@dataclass
class Call:
    """Inputs of one sample."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def copied_to(self, device: str) -> Call:
        def move(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return copy_tensor(value, device)
            if isinstance(value, torch.device) and value.type == "virtual":
                return torch.device(device)
            if isinstance(value, str) and value.startswith("virtual"):
                return device
            return value

        return Call(*(tree_map(move, part) for part in (self.input, self.args, self.kwargs)))

    def result_place(self) -> str:
        """Where the result belongs: on the CPU when the sample asks for it, or names no device at all."""
        leaves = tree_flatten((self.input, self.args, self.kwargs))[0]
        if any(str(leaf) == "cpu" for leaf in leaves if isinstance(leaf, str | torch.device)):
            return "cpu"
        named = [str(leaf) for leaf in leaves if isinstance(leaf, str | torch.device)]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return DEVICE if tensors or any(name.startswith("virtual") for name in named) else "cpu"


def copy_tensor(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Another tensor of the same values and strides; CPU tensors of a sample stay on the CPU."""
    if tensor.device.type == "cpu":
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    moved = tensor.detach().to(device, copy=True)
    if tensor.layout == torch.strided and moved.stride() != tensor.stride() and not has_overlap(tensor):
        strided = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
        moved = strided.copy_(moved)
    return moved.requires_grad_(tensor.requires_grad)


def has_overlap(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


def run_forward(op: Any, call: Call) -> Any:
    return op(call.input, *call.args, **call.kwargs)


def run_backward(op: Any, call: Call) -> Any:
    outputs = [out for out in tree_flatten(run_forward(op, call))[0] if isinstance(out, torch.Tensor)]
    outputs = [out for out in outputs if out.requires_grad]
    leaves = tree_flatten((call.input, call.args, call.kwargs))[0]
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not outputs or not inputs:
        raise NotComparable("nothing to differentiate")
    return torch.autograd.grad(outputs, inputs, [torch.ones_like(out) for out in outputs], allow_unused=True)


def run_in_place(op: Any, call: Call) -> Any:
    with torch.no_grad():
        op.get_inplace()(call.input, *call.args, **call.kwargs)
    return call.input


def run_out(op: Any, call: Call) -> Any:
    with torch.no_grad():
        result = run_forward(op, call)
        target = tree_map(lambda value: torch.empty_like(value), result)
        target = tuple(target) if isinstance(target, tuple) else target
        seed_everything()
        returned = op(call.input, *call.args, **call.kwargs, out=target)
        small = tree_map(lambda value: value.new_empty(0), target)
        seed_everything()
        op(call.input, *call.args, **call.kwargs, out=small)
    if any_cpu(result) and not same_values(result, target):
        raise NotComparable("the CPU itself puts something else into out=")
    return tuple(tree_flatten((returned, target, small))[0])


def any_cpu(result: Any) -> bool:
    leaves = tree_flatten(result)[0]
    return any(isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" for leaf in leaves)


def same_values(one: Any, other: Any) -> bool:
    pairs = zip(tree_flatten(one)[0], tree_flatten(other)[0], strict=True)
    return all(torch.allclose(*comparable(a, b), equal_nan=True) for a, b in pairs)


def leaves_memory_unset(op: Any) -> bool:
    return "empty" in op.name


def seed_everything() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
