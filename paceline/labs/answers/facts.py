"""Facts about configurations as half-sentences: what they computed in, sent, and held.

In: lab rows that were measured. Out: texts with numbers. Exercise: `pytest tests/unit/test_lab_answers.py`.
"""

from __future__ import annotations

from paceline.analyse.memory import CATEGORIES
from paceline.analyse.steps import samples_per_step
from paceline.labs.answers.words import is_above, is_below, say, say_share, scaled
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes
from paceline.record import Metric

SIXTEEN_BITS = {"bfloat16": "bf16", "float16": "fp16"}
# A category that changes by less than this share of the peak is not worth a word.
WORTH_A_WORD = 0.05


def samples_of(row: LabRow) -> float | None:
    """Samples of one optimizer step of the whole world."""
    return samples_per_step(row.runs[0]) if row.runs else None


def time_per_sample(row: LabRow) -> Metric | None:
    """The step time over the samples of the step: what compares codes that differ in samples per step."""
    samples = samples_of(row)
    return scaled(row.metric("step_time_s"), 1 / samples) if samples else None


def sixteen_bit_share(row: LabRow) -> float:
    """Of the operations of matrix products, the share in 16 bits."""
    flops = _matmul_flops(row)
    whole = sum(flops.values())
    return sum(flops.get(name, 0.0) for name in SIXTEEN_BITS) / whole if whole else 0.0


def precision_of(row: LabRow) -> str:
    """`bf16`, `fp16`, or `fp32` where no matrix product ran in 16 bits."""
    flops = _matmul_flops(row)
    if not flops:
        return "a precision that was not counted"
    return next((short for name, short in SIXTEEN_BITS.items() if flops.get(name)), "fp32")


def _matmul_flops(row: LabRow) -> dict[str, float]:
    prefix = "matmul_flops."
    metrics = row.row.metrics if row.row else {}
    return {
        name.removeprefix(prefix): metric.median
        for name, metric in metrics.items()
        if name.startswith(prefix)
    }


def say_count(row: LabRow, name: str, of: str = "") -> str:
    """`4`, or "an unknown number of"; with what is counted, `1 collective` or `4 collectives`."""
    metric = row.metric(name)
    number = f"{metric.median:g}" if metric else "an unknown number of"
    return f"{number} {of}{'s' * (number != '1')}" if of else number


def say_traffic(row: LabRow) -> str:
    """`8 MiB (× 1.5 on the bus, at 1.6 GB/s)`: what a rank passes on, as the bus bandwidth counts it."""
    size, bandwidth = row.metric("collective_bytes"), row.metric("bus_bandwidth_bytes_s")
    if size is None:
        return "what is sent"
    said = format_bytes(size.median)
    if bandwidth is None:
        return said
    factor = 2 * (row.world - 1) / row.world  # of an all-reduce
    times = f"× {factor:.3g} on the bus, " if factor != 1 else ""
    return f"{said} ({times}at {bandwidth.median / 1e9:.2g} GB/s)"


def compare_traffic(before: LabRow, after: LabRow) -> str:
    """`16 collectives and 64 MiB per optimizer step become 2 and 8 MiB`."""
    calls = [row.metric("collective_calls") for row in (before, after)]
    sizes = [row.metric("collective_bytes") for row in (before, after)]
    if not all(calls) or not all(sizes):
        return "what is sent was not counted"
    said = [say(size, interval=False) for size in sizes]
    return (
        f"{say_count(before, 'collective_calls', 'collective')} with {said[0]} per optimizer step become "
        f"{say_count(after, 'collective_calls')} with {said[1]}"
    )


def compare_peaks(before: LabRow, after: LabRow) -> str:
    """`24 MiB instead of 31 MiB (−22 %)`."""
    was, now = before.metric("peak_memory_bytes"), after.metric("peak_memory_bytes")
    if not was or not now:
        return "not known"
    change = now.median / was.median - 1
    return f"{format_bytes(now.median)} instead of {format_bytes(was.median)} ({change:+.0%})".replace(
        "%", " %"
    ).replace("-", "−")


def compare_parts(before: LabRow, after: LabRow) -> str:
    """The categories that differ at the peak: `activations 64 → 8 MiB`."""
    peak = before.metric("peak_memory_bytes")
    changed = []
    for category in CATEGORIES:
        was, now = (row.metric(f"memory_bytes.{category}") for row in (before, after))
        if peak and was and now and abs(now.median - was.median) > WORTH_A_WORD * peak.median:
            changed.append(f"{category} {format_bytes(was.median)} → {format_bytes(now.median)}")
    return f"At the peak: {', '.join(changed)}." if changed else "No category changes much at the peak."


def explain_precision(data: LabData, gain: Metric | None, row: LabRow) -> str:
    """Why 16 bits were faster or slower, and what this machine cannot show."""
    if not _matmul_flops(row):
        return "in what precision the matrix products ran was not counted."
    did = f"{say_share(sixteen_bit_share(row))} of the matrix products' operations ran in {precision_of(row)}"
    if data.accelerated:
        if is_above(gain):
            return f"{did}, on the accelerator's matrix units, and half as many bytes are moved."
        small = "the products are too small for the matrix units to outweigh autocast's conversions"
        return f"{did}, but this does not make the step faster: the likely cause is that {small}."
    isa = set(data.machine.get("processor", {}).get("isa", ()))
    native = bool(isa & {"avx512_bf16", "amx_bf16", "bf16"})
    unit = "has instructions for bf16" if native else "has no instructions for bf16 and emulates them"
    if is_above(gain):
        because = f"{did}; this processor {unit}, and likely half as many bytes pass through its caches"
    elif is_below(gain):
        though = f"though this processor {unit}, " if native else f"but this processor {unit}, and "
        because = f"{did}; {though}likely converting to 16 bits and back costs more than it saves"
    else:
        because = f"{did}; this processor {unit}; what that saves does not stand out from the noise here"
    reference = (
        "fp16's backward pass is many times slower on a CPU than fp32's, so bf16 stands for it; GPUs with "
        "matrix units run fp16 several times as fast as fp32"
    )
    return f"{because}. Reference, not measured here: {reference}."
