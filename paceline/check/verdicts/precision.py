"""Mixed precision: where autocast is active, and the scaler's order of calls.

Exercise: `pytest tests/check/test_verdicts.py`.
"""

from __future__ import annotations

from paceline.check.observations import Event, Seen
from paceline.check.trainings import read_trainings
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown

ORDER = "scaler.scale(loss).backward(), then scaler.step(optimizer), then scaler.update()"


def lacks_accelerator(seen: Seen, what: str) -> bool:
    """Is mixed precision off, and perhaps only because this machine has no accelerator?"""
    machine = seen.main.first("machine") or {}
    events = seen.main.all(what)
    return not machine.get("accelerators") and bool(events) and not any(event["enabled"] for event in events)


def switched_off(seen: Seen) -> bool:
    """Would the script use mixed precision on another machine?"""
    return lacks_accelerator(seen, "autocast") or lacks_accelerator(seen, "scaler")


def list_types(seen: Seen) -> list[str]:
    """What the layers returned under autocast."""
    forwards = [micro.forward for micro in seen.main.micros if micro.forward]
    return sorted({kind.removeprefix("torch.") for forward in forwards for kind in forward["autocast_types"]})


def judge_autocast_forward(seen: Seen) -> Verdict:
    """Do the model's layers run under autocast?"""
    forwards = [micro.forward for micro in seen.main.micros if micro.forward]
    if not forwards:
        return unknown("no forward pass with a backward after it was seen")
    off = [forward for forward in forwards if forward["autocast"] < forward["layers"] / 2]
    if not off:
        return passes(f"all forward passes run under autocast; layers return {', '.join(list_types(seen))}")
    if lacks_accelerator(seen, "autocast"):
        return unknown("the script's autocast is off, perhaps because this machine has no accelerator")
    change = "put the forward pass and the loss inside torch.autocast(device_type=...)"
    if any(loss["autocast"] for micro in seen.main.micros for loss in micro.losses):
        return fails("autocast covers the loss, but not the model", change, off[0])
    used = any(event["enabled"] for event in seen.main.all("autocast"))
    other = "; the autocast that was made is for another device, or covers other calls" if used else ""
    return fails(
        f"{len(off)} of {count(len(forwards), 'forward pass', 'forward passes')} ran without autocast{other}",
        change,
        off[0],
    )


def judge_autocast_end(seen: Seen) -> Verdict:
    """Does autocast end before backward and the optimizer?"""
    for micro in seen.main.micros:
        if micro.backward["autocast"]:
            return fails(
                "backward runs under autocast; it takes each operation's type from forward by itself",
                "end the autocast block before backward",
                micro.backward,
            )
    for step in seen.main.steps:
        if step.move and step.move["autocast"]:
            return fails(
                "the optimizer runs under autocast", "end the autocast block before the optimizer", step.move
            )
    if not any(micro.forward and micro.forward["autocast"] for micro in seen.main.micros):
        return unknown("autocast was never active")
    return passes("autocast ends before backward")


def judge_scaled_loss(seen: Seen) -> Verdict:
    """Is backward called on what scaler.scale() returned?"""
    scalers = seen.main.all("scaler")
    if not seen.main.micros:
        return unknown("no backward was seen")
    if not scalers:
        return fails(
            "no GradScaler is made",
            f"make a torch.amp.GradScaler, then {ORDER}",
            seen.main.micros[0].backward,
        )
    if not seen.has_scaler:
        if lacks_accelerator(seen, "scaler"):
            return unknown("the GradScaler is off, perhaps because this machine has no accelerator")
        types = list_types(seen)
        if "bfloat16" in types and "float16" not in types:
            return unknown("the GradScaler is switched off (enabled=False), which bfloat16 does without")
        return fails("the GradScaler is switched off (enabled=False)", "leave enabled=False out", scalers[0])
    plain = [micro for micro in seen.main.micros if not micro.backward["scaled"]]
    if plain:
        return fails(
            f"{len(plain)} of {count(len(seen.main.micros), 'backward call')} got the loss unscaled, "
            "so the scaler divides gradients that were never multiplied",
            "call scaler.scale(loss).backward()",
            plain[0].backward,
        )
    return passes("backward always gets the scaled loss")


def judge_scaler_step(seen: Seen) -> Verdict:
    """Does the optimizer move through the scaler?"""
    if not seen.has_scaler:
        return unknown("no active GradScaler was seen")
    direct = [step for step in seen.main.steps if step.move and not step.move["through_scaler"]]
    if direct:
        return fails(
            f"optimizer.step() is called directly in {len(direct)} of "
            f"{count(len(seen.main.steps), 'optimizer step')}: scaled gradients move the weights too far",
            "call scaler.step(optimizer), which unscales first",
            direct[0].move,
        )
    if not seen.main.steps:
        return unknown("no optimizer step was seen")
    skipped = sum(bool(step.move and step.move["skipped"]) for step in seen.main.steps)
    left_out = f"; it left out {skipped} for gradients that were not finite" if skipped else ""
    return passes(f"the optimizer always moves through scaler.step(){left_out}")


def judge_scaler_update(seen: Seen) -> Verdict:
    """Is scaler.update() called once after each optimizer step, and at no other time?"""
    if not seen.has_scaler:
        return unknown("no active GradScaler was seen")
    again = find_new_scaler(seen)
    if again is not None:
        return fails(
            "a new GradScaler is made during training: it forgets the scale that the one before had found",
            "make one GradScaler, before the loop",
            again,
        )
    steps = [step for step in seen.main.steps if step.move and step.move["through_scaler"]]
    if not steps:
        return unknown("scaler.step() was never called")
    change = "call scaler.update() once, right after scaler.step(optimizer)"
    for step in steps:
        if step.early_updates:
            return fails(
                "scaler.update() is called before scaler.step(): micro-steps of one sum get different scales",
                change,
                step.early_updates[0],
            )
        # Where the script crashed the last step's update may be missing for that reason alone.
        if not step.updates and not (seen.failure and step is steps[-1] and len(steps) > 1):
            return fails(
                "scaler.update() does not follow scaler.step(): the scale never adapts", change, step.move
            )
        if len(step.updates) > 1:
            return fails(
                f"scaler.update() is called {len(step.updates)} times for one optimizer step",
                change,
                step.updates[1],
            )
    return passes("scaler.update() follows each scaler.step() once")


def find_new_scaler(seen: Seen) -> Event | None:
    """One that is made while a training goes on; one of its own for each training is right."""
    beginnings = {training.steps[0].number for training in read_trainings(seen.main) if training.steps}
    for step in seen.main.steps:
        for num_micros, scaler in step.scalers:
            if num_micros or step.number not in beginnings:
                return scaler
    return None


def judge_unscale(seen: Seen) -> Verdict:
    """Are gradients unscaled before they are clipped, and not before they are complete?"""
    if not seen.has_scaler:
        return unknown("no active GradScaler was seen")
    for step in seen.main.steps:
        if step.clip_before_unscale:
            return fails(
                "gradients are clipped while they are scaled: the limit is thousands of times too small",
                "call scaler.unscale_(optimizer) before clipping",
                step.clip_before_unscale,
            )
        if step.backward_after_unscale:
            return fails(
                "backward adds scaled gradients to unscaled ones",
                "call scaler.unscale_(optimizer) once, after the last micro-step",
                step.unscales[0],
            )
    if any(step.clips for step in seen.main.steps):
        return passes("gradients are unscaled before they are clipped")
    return passes("nothing is clipped, so the scaler unscales by itself")
