"""The labs' scripts compute what they claim: launched by torchrun as they stand, against one process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

LABS = Path(__file__).parents[2] / "labs"
CODE_1 = LABS / "practical7" / "practical7_accumulation.py"
CODE_2 = LABS / "practical7" / "practical7_amp.py"
CODE_3 = LABS / "hw2" / "practical5_single.py"
DIM, DEPTH, BATCH, STEPS, SAMPLES, LEARNING_RATE = 64, 2, 8, 6, 1024, 1.0
SIZES = ("--dim", DIM, "--depth", DEPTH, "--batch", BATCH, "--steps", STEPS)


def launch(script: Path, *arguments: object, ranks: int = 2) -> str:
    """Its output; ranks=0 is plain `python script.py`."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    done = subprocess.run(
        [sys.executable, *torchrun, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(tmp_path: Path, script: Path, *arguments: object) -> dict[str, Any]:
    saved = tmp_path / "saved.pt"
    launch(script, *SIZES, "--save", saved, *arguments)
    result: dict[str, Any] = torch.load(saved)
    return result


class Reference:
    """The same training in one process, without DDP, accumulation or scaler."""

    def __init__(self, micro_steps: int, *, mixed: bool = False, one_batch: bool = True) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(DIM, DIM) for _ in range(DEPTH)]
        model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
        self.start = [parameter.detach().clone() for parameter in model.parameters()]
        data = []
        for rank in range(2):
            torch.manual_seed(1 + rank)
            data.append((torch.randn(SAMPLES, DIM), torch.rand(SAMPLES, DIM)))

        self.losses = []
        for step in range(STEPS):
            # The samples of one optimizer step: rank 0's micro-batches, then rank 1's.
            first = step * micro_steps * BATCH
            batches = [
                (x[at : at + BATCH], y[at : at + BATCH])
                for x, y in data
                for at in range(first, first + micro_steps * BATCH, BATCH)
            ]
            if one_batch:
                batches = [(torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches]))]
            model.zero_grad()
            errors = []
            for x, y in batches:
                with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                    output = model(x)
                errors.append((output.float() - y).square())
                (errors[-1].mean() / len(batches)).backward()
            # Rank 0 prints the loss of its own samples.
            self.losses.append(torch.cat(errors)[: micro_steps * BATCH].mean().item())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= LEARNING_RATE * parameter.grad
        self.weights = [parameter.detach() for parameter in model.parameters()]

    def errors_of(self, weights: Iterable[torch.Tensor]) -> list[float]:
        """How far off each weight is, as a share of the way it has gone: all began equal."""
        triples = zip(self.start, self.weights, weights, strict=True)
        return [((found - own).norm() / (own - start).norm()).item() for start, own, found in triples]

    def compare(self, result: dict[str, Any], tolerance: float) -> None:
        assert result["losses"] == pytest.approx(self.losses, rel=tolerance)
        assert max(self.errors_of(result["weights"].values())) < tolerance


def test_code_1_equals_one_process_and_repeats_bitwise(tmp_path: Path) -> None:
    first = train(tmp_path, CODE_1, "--accum-steps", 4)
    Reference(4).compare(first, 1e-5)
    again = train(tmp_path, CODE_1, "--accum-steps", 4)
    assert again["losses"] == first["losses"]
    assert all(torch.equal(again["weights"][name], weight) for name, weight in first["weights"].items())


def test_code_2_equals_one_process(tmp_path: Path) -> None:
    Reference(1).compare(train(tmp_path, CODE_2, "--precision", "fp32"), 1e-5)
    Reference(1, mixed=True, one_batch=False).compare(train(tmp_path, CODE_2), 1e-5)


def test_code_3_with_8_micro_steps_equals_one_batch_8_times_as_large(tmp_path: Path) -> None:
    Reference(8).compare(train(tmp_path, CODE_3, "--accum-steps", 8, "--precision", "fp32"), 1e-5)

    mixed = train(tmp_path, CODE_3, "--accum-steps", 8)
    Reference(8, mixed=True, one_batch=False).compare(mixed, 1e-5)
    # In 16 bits the sum over one large batch is rounded elsewhere than that over eight small ones. Both are
    # nearer to each other than to fp32.
    large = Reference(8, mixed=True)
    rounding = large.errors_of(Reference(8).weights)
    found = large.errors_of(mixed["weights"].values())
    assert all(error < limit for error, limit in zip(found, rounding, strict=True))


def test_without_the_division_the_training_is_another(tmp_path: Path) -> None:
    undivided = train(tmp_path, CODE_1, "--accum-steps", 4, "--no-divide")
    with pytest.raises(AssertionError):
        Reference(4).compare(undivided, 1e-1)


def test_gradients_are_synchronised_on_the_last_micro_step_alone() -> None:
    def ranks_agree(*arguments: str) -> list[bool]:
        """Of each micro-step: whether both ranks hold the same gradients after it."""
        text = launch(CODE_1, *SIZES[:-1], 2, "--accum-steps", 4, "--show-gradients", *arguments)
        norms: dict[int, set[str]] = {}
        # Two ranks may write into one line: unbuffered, a line and its end are two writes.
        for step, norm in re.findall(r"rank \d  micro-step +(\d+)  gradient norm (\d\.\d+e[+-]\d\d)", text):
            norms.setdefault(int(step), set()).add(norm)
        return [len(norms[step]) == 1 for step in sorted(norms)]

    assert ranks_agree() == [False, False, False, True] * 2
    assert ranks_agree("--no-no-sync") == [True] * 8


def test_benchmark_repeats_bitwise_with_seeds_and_differs_without() -> None:
    def losses(*arguments: str) -> list[str]:
        text = launch(LABS / "hw1" / "ddp_benchmark.py", "--dim", DIM, "--steps", 3, *arguments, ranks=0)
        return re.findall(r"loss (\S+)", text)

    assert len(losses()) == 3
    assert losses() == losses()
    assert losses("--no-seed") != losses("--no-seed")
