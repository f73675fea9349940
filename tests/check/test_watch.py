"""What the watchers read from PyTorch: factors in the graph, constants in frames, the large batch."""

from __future__ import annotations

import argparse
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from paceline.check.watch import large_batch
from paceline.check.watch.declared import read_declared
from paceline.check.watch.fingerprint import fingerprint_data, fingerprint_weights, pick
from paceline.check.watch.graph import has_other_terms, read_factor
from paceline.check.watch.large_batch import CannotTellError, LossCall, MicroBatch, compare_gradients
from paceline.check.watch.model import ModelWatch
from paceline.check.watch.trace import Trace

WEIGHT = torch.tensor([1.0, 2.0], requires_grad=True)


@pytest.mark.parametrize(
    ("scale", "factor"),
    [
        (lambda loss: loss, 1.0),
        (lambda loss: loss / 4, 0.25),
        (lambda loss: 0.25 * loss, 0.25),
        (lambda loss: loss.float() / torch.tensor(2.0) / 2, 0.25),
        (lambda loss: (loss + 1) / 8, 0.125),
        (lambda loss: (loss / 8) + WEIGHT.sum(), 1.0),  # a sum has no factor of its own
    ],
)
def test_factors_are_read_from_the_graph(scale: Any, factor: float) -> None:
    assert read_factor(scale((WEIGHT**2).mean()))[0] == pytest.approx(factor)


def test_the_scalers_factor_does_not_count_wherever_it_stands() -> None:
    loss = (WEIGHT**2).mean()
    for divided in (lambda x: x / 4, lambda x: x):
        scaled = divided(loss) * torch.tensor(65536.0)
        assert read_factor(scaled, scaled.grad_fn) == (pytest.approx(divided(1.0)), True, False)
    scaled = loss * torch.tensor(65536.0)
    assert read_factor(scaled / 4, scaled.grad_fn) == (pytest.approx(0.25), True, False)
    assert read_factor(loss / 4, scaled.grad_fn) == (pytest.approx(0.25), False, False)


@pytest.mark.parametrize(
    ("change", "other"),
    [
        (lambda loss: loss / 3, False),
        (lambda loss: loss.half() / 3, False),
        (lambda loss: (loss + WEIGHT.sum()) * torch.inf, False),  # an overflow says nothing
        (lambda loss: loss + 0 * WEIGHT.sum(), False),
        (lambda loss: loss / 3 + 1, False),  # a constant changes no gradient
        (lambda loss: (loss + 1e-3 * WEIGHT.sum()) / 3, True),
    ],
)
def test_what_is_added_to_a_loss_is_noticed(change: Any, other: bool) -> None:
    loss = (WEIGHT**2).mean()
    changed = change(loss)
    values = float(changed.detach()), float(loss.detach())
    assert has_other_terms(changed, *values, read_factor(changed)) == other


def test_constants_are_found_in_locals_flags_and_objects() -> None:
    class Settings:
        def __init__(self) -> None:
            self.grad_accum = 8

    accum_steps, batch_index, use_batch = 4, 0, True
    flags, settings = argparse.Namespace(batch_size=32, steps=9), Settings()
    frame = inspect.currentframe()
    assert frame is not None
    found = read_declared([frame])
    expected = {"accum_steps": 4, "flags.batch_size": 32, "settings.grad_accum": 8}
    assert {name: found.get(name) for name in expected} == expected
    assert "batch_index" not in found
    assert "use_batch" not in found
    assert (accum_steps, batch_index, use_batch, flags.steps, settings.grad_accum) == (4, 0, True, 9, 8)


def micro(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> MicroBatch:
    output = model(x)
    loss = F.mse_loss(output, y)
    (loss / 4).backward()
    call = LossCall(F.mse_loss, "mse_loss", (output.detach(), y), {}, float(loss.detach()))
    return MicroBatch((x,), {}, output.detach(), call)


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    model = build()
    micros = [micro(model, torch.randn(6, 3), torch.randn(6, 2)) for _ in range(4)]
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    values = compare_gradients(model, micros, 1.0)
    assert values["actual"] == pytest.approx(values["large"], rel=1e-4, abs=1e-6)
    assert len(values["actual"]) == sum(p.numel() for p in model.parameters())
    assert compare_gradients(model, micros, 2.0)["actual"][0] == pytest.approx(values["actual"][0] / 2)
    after = [p.grad for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True) if b is not None)


def test_the_large_batch_goes_around_ddp_inside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = build()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> Any:
            self.calls += 1  # where DDP may wait for the other ranks
            return self.module(x)

    monkeypatch.setattr(large_batch, "DistributedDataParallel", Wrapper)
    wrapper = Wrapper()
    model = torch.nn.Sequential(wrapper)
    values = compare_gradients(model, [micro(model, torch.randn(6, 3), torch.randn(6, 2))], 0.25)
    assert values["actual"] == pytest.approx(values["large"], rel=1e-4, abs=1e-6)
    model(torch.randn(6, 3))
    assert wrapper.calls == 2  # both by the script


def test_what_cannot_be_recomputed_is_said() -> None:
    model = torch.nn.Sequential(build(), torch.nn.Dropout(0.5))
    micros = [micro(model, torch.randn(6, 3), torch.randn(6, 2))]
    with pytest.raises(CannotTellError, match="dropout"):
        compare_gradients(model, micros, 1.0)
    model = build()
    uneven = [micro(model, torch.randn(size, 3), torch.randn(size, 2)) for size in (6, 4)]
    with pytest.raises(CannotTellError, match="differ in size"):
        compare_gradients(model, uneven, 1.0)
    more = micro(model, torch.randn(6, 3), torch.randn(6, 2))
    more.has_other_terms = True
    with pytest.raises(CannotTellError, match="more than a multiple"):
        compare_gradients(model, [more], 1.0)
    own = micro(model, torch.randn(6, 3), torch.randn(6, 2))
    own.loss = None
    with pytest.raises(CannotTellError, match="not a function"):
        compare_gradients(model, [own], 1.0)


def test_a_move_between_devices_counts_once_under_a_function_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    class PassOn(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    for name in ("to", "cuda", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
    seen: list[Any] = []
    sink = SimpleNamespace(write=lambda event, **values: seen.append(values))
    watch = ModelWatch(Trace(sink, __file__), lambda args, kwargs, output: None)
    watch._watch_moves()
    watch._stack.append(build())
    with PassOn():
        torch.ones(2).to("meta")
    assert [move[:2] for move in watch._moves] == [["cpu", "meta"]]


def test_fingerprints_differ_where_tensors_do() -> None:
    assert pick(torch.arange(100.0), 4).tolist() == [0.0, 25.0, 50.0, 75.0]
    x = torch.randn(64, 64)
    y = x.clone()
    y[17, 3] += 1
    assert fingerprint_data([x]) == fingerprint_data([x.clone()])
    assert fingerprint_data([x]) != fingerprint_data([y])
    one, other = build(), build()
    assert fingerprint_weights(one) == fingerprint_weights(other)
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    assert fingerprint_weights(one) != fingerprint_weights(other)
