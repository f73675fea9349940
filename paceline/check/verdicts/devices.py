"""Several devices in one process: model parallelism (homework 3) and DataParallel (homework 1).

Exercise: `pytest tests/check/test_verdicts_timing.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter

from paceline.check.observations import Event, Seen
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown

MOST_NAMED = 6  # more devices are counted


def num_devices(seen: Seen) -> int:
    machine = seen.main.first("machine") or {}
    return int(machine.get("accelerators", 0))


def placed_layers(seen: Seen) -> list[str]:
    """The device of each layer, in the model's order."""
    model = seen.main.first("model")
    return [device for _, device, _ in model["layers"]] if model else []


def where_built(seen: Seen) -> Event | None:
    """The line that made the first layer."""
    made = (event for event in seen.main.all("made") if event["kind"] == "model")
    return next(made, None) or seen.main.first("model")


def first_forward(seen: Seen) -> Event | None:
    return next((micro.forward for micro in seen.main.micros if micro.forward), None)


def judge_all_layers(seen: Seen) -> Verdict:
    """Does every layer take part in forward?"""
    model, forward = seen.main.first("model"), first_forward(seen)
    if model is None or forward is None:
        return unknown("no model in training was seen")
    called = {name for name, _ in forward["path"]}
    if not called:
        called = (
            {name for name, _, _ in model["layers"]} if forward["layers"] >= len(model["layers"]) else set()
        )
    unused = [name for name, _, _ in model["layers"] if name not in called]
    if unused:
        return fails(
            f"{len(unused)} of {len(model['layers'])} layers are never called: {', '.join(unused[:5])}",
            "let forward go through all layers",
            forward,
        )
    return passes(f"all {len(model['layers'])} layers are used")


def judge_halves(seen: Seen) -> Verdict:
    """Are the first depth // 2 layers on device 0 and the others on device 1?"""
    devices = placed_layers(seen)
    if not devices:
        return unknown("no model was seen")
    names = sorted(set(devices))
    if len(names) != 2:
        return fails(
            f"the layers are on {count(len(names), 'device')}: {', '.join(names)}",
            "put layer i on device 0 if i < depth // 2, else on device 1",
            where_built(seen),
        )
    half = len(devices) // 2
    if devices == [devices[0]] * half + [devices[-1]] * (len(devices) - half):
        return passes(f"{half} layers on {devices[0]}, {len(devices) - half} on {devices[-1]}")
    return fails(
        f"{describe(devices)}; with {len(devices)} layers the first {half} belong on device 0",
        "put layer i on device 0 if i < depth // 2, else on device 1",
        where_built(seen),
    )


def judge_even_split(seen: Seen) -> Verdict:
    """Are the layers spread over all devices, evenly, in order, the remainder to the first devices?"""
    devices, available = placed_layers(seen), num_devices(seen)
    if not devices or not available:
        return unknown("no model on accelerators was seen")
    counts = list(Counter(devices).values())  # in the order of the layers
    model = where_built(seen)
    in_blocks = 1 + sum(a != b for a, b in itertools.pairwise(devices)) == len(counts)
    wanted = min(available, len(devices))
    if len(counts) < wanted:
        return fails(
            f"{len(devices)} layers use {len(counts)} of {available} devices: {describe(devices)}",
            "ask torch.accelerator.device_count() and spread the layers over all of them",
            model,
        )
    if not in_blocks:
        return fails(
            f"neighbouring layers jump between devices: {describe_path(devices)}",
            "give each device one block of neighbouring layers",
            model,
        )
    if max(counts) - min(counts) > 1:
        return fails(
            f"the split is uneven: {describe(devices)}",
            "give every device depth // n layers, and one more to the first depth % n",
            model,
        )
    if counts != sorted(counts, reverse=True):
        return fails(
            f"the remainder is not on the first devices: {describe(devices)}",
            "give one layer more to the first depth % n devices",
            model,
        )
    return passes(f"{len(devices)} layers, {available} devices: {describe(devices)}")


def judge_moves(seen: Seen) -> Verdict:
    """Does the data move where the next layer's device is another one, and only there?"""
    forward = first_forward(seen)
    if forward is None:
        return unknown("no forward pass was seen")
    path = [device for _, device in forward["path"]]
    if not path:
        return unknown("the model is on one device")
    wanted = sum(a != b for a, b in itertools.pairwise(path))
    # Bringing the input to the first layer, from wherever it was, is no move between layers.
    between = [move for move in forward["moves"] if move[2] > 0]
    if len(between) > wanted:
        extra = between[wanted]
        return fails(
            f"the data moves {len(between)} times in one forward pass, where {wanted} would do; "
            f"one too many is {extra[0]} → {extra[1]}",
            "move only where the layer's device changes: x = x.to(layer_device)",
            {"line": extra[3]},
        )
    if len(between) < wanted:
        return unknown(f"{len(between)} of {wanted} moves were seen: the script moves data in another way")
    return passes(f"the data moves {count(wanted, 'time')}, once at each boundary between devices")


def judge_replicas(seen: Seen) -> Verdict:
    """Does DataParallel split the batch over several devices?"""
    models = [event for event in seen.main.all("model") if event["data_parallel"]]
    if not models:
        return fails(
            "the model is not called through nn.DataParallel",
            "model = nn.DataParallel(model, device_ids=...)",
            seen.main.first("model"),
        )
    if num_devices(seen) < 2:
        return unknown("fewer than two devices: DataParallel runs the plain module")
    forward = first_forward(seen)
    used = forward["devices"] if forward else []
    if len(used) < 2:
        return fails(
            f"one of {num_devices(seen)} devices works: {used}", "give all devices as device_ids", models[0]
        )
    return passes(f"the batch is split over {len(used)} devices")


def describe(devices: list[str]) -> str:
    counts = Counter(devices)
    if len(counts) > MOST_NAMED:
        few, many = min(counts.values()), max(counts.values())
        return f"{few if few == many else f'{few} to {many}'} on each of {len(counts)} devices"
    return ", ".join(f"{number} on {device}" for device, number in counts.items())


def describe_path(devices: list[str]) -> str:
    shown = " → ".join(device.rpartition(":")[2] for device in devices[:12])
    return shown + (" …" if len(devices) > 12 else "")
