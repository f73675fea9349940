"""A fast part of the operator database; `benchmarks/virtual_opinfo.py` runs all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "virtual_opinfo.py"
OPERATORS = """
add addcdiv addmm argmax as_strided baddbmm bernoulli bmm broadcast_to cat cholesky_inverse chunk clamp
clone conj_physical copysign cummax cumsum diagonal digamma dot einsum empty_like erf exp eye fft.rfft
fill flip floor_divide gather ge geqrf grid_sampler_2d histc index_add index_fill index_put index_select
isfinite kron kthvalue lerp linalg.eigh linalg.lu_solve linalg.qr linalg.svd linspace log_softmax
logcumsumexp lu_solve masked_fill masked_select matmul max median mode multinomial native_batch_norm
native_layer_norm nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.cross_entropy
nn.functional.ctc_loss nn.functional.dropout nn.functional.embedding nn.functional.embedding_bag
nn.functional.gelu nn.functional.group_norm nn.functional.interpolate nn.functional.max_pool2d
nn.functional.multi_head_attention_forward nn.functional.pad nn.functional.scaled_dot_product_attention
nonzero norm normal polar prod put quantile repeat reshape roll scatter scatter_add searchsorted
sigmoid softmax sort split square squeeze std sum svd svd_lowrank take tensordot topk trace trapezoid triu
unbind unfold unique unsqueeze var view_as_complex vstack where zeros_like
"""


COMPLEX = "conj_physical linalg.lu_solve mul svd"


@pytest.mark.parametrize(("dtype", "only"), [("float32", OPERATORS), ("complex64", COMPLEX)])
def test_operators_do_on_the_device_what_they_do_on_the_cpu(library: None, dtype: str, only: str) -> None:
    command = [sys.executable, str(SCRIPT), "--json", "--dtype", dtype, "--only", ",".join(only.split())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert {v["name"].split(".")[0] for v in verdicts} == {name.split(".")[0] for name in only.split()}, (
        done.stderr
    )
    assert [v for v in verdicts if v["status"] == "different"] == []
    assert all(v["checks"] for v in verdicts)
    assert {kind for v in verdicts for kind in v["kinds"]} == {"forward", "backward", "in place", "out"}


def test_comparison_sees_a_result_on_another_device(library: None) -> None:
    code = """
import torch, paceline.virtual, opinfo_compare
paceline.virtual.install(3)
found = torch.ones(1, device="virtual:2")
try:
    opinfo_compare.compare_values("forward", torch.ones(1), found, opinfo_compare.DEVICE, is_unset=False)
except opinfo_compare.Difference as difference:
    print(difference)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPT.parent, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "forward: the result is on virtual:2, not on virtual:1\n", done.stderr
