"""Conclusions about the measurement itself: may the row's numbers be believed, and compared?

In: a `Case`. Out: a `Finding`, or None where there is nothing to say.
Exercise: `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.analyse.health import disturbed_steps
from paceline.analyse.intervals import relative_half_width, rounds_wanted
from paceline.analyse.steps import world_step_times
from paceline.findings.case import Case, count, percent, sentence
from paceline.quantity import format_duration
from paceline.record import Finding

NOISY_STEP = 0.05  # half-width of the interval over the median
NOISY_RATIO = 0.10
HOPELESS = 0.5  # beyond it a width in per cent says nothing to anybody
WANTED = 0.03
DISTURBED_SHARE = 0.10

NEXT_ACTION = {
    "failed": "Mend the cause, then run the same command with --retry; the whole traceback is in the store.",
    "hung": "Look for a rank that skips a collective the others enter; the store has where each stood.",
    "oom": "Try a smaller batch, fewer ranks on this machine, or a sharded model (FSDP).",
    "refused": "Use as many ranks as there are devices (`paceline doctor` lists them), or --virtual N.",
}


def find_bad_end(case: Case) -> Finding | None:
    """failed, hung, oom, refused"""
    if not case.ended_ill:
        return None
    last = case.ended_ill[-1]
    num_ill, num_runs = len(case.ended_ill), len(case.ended_ill) + len(case.runs)
    rounds = f"In {num_ill} of {num_runs} rounds. " if num_runs > 1 else ""
    text = f"{sentence(last.cause)} {rounds}{NEXT_ACTION[last.status]}"
    return Finding(last.status, text, {"runs": num_ill, "of": num_runs}, "warning")


def find_oversubscription(case: Case) -> Finding | None:
    """oversubscribed"""
    if not case.row.oversubscribed:
        return None
    run = (case.runs or case.ended_ill)[-1]
    devices = run.accelerators
    places, kind = (len(devices), "accelerator") if devices else (run.machine.get("cores", 0), "core")
    world = case.row.world
    text = (
        f"{count(world, 'rank')} take turns on {count(places, kind)}, so the row shows contention, not "
        f"what {world} devices would do. It is drawn apart and kept out of fits. Use at most "
        f"{count(places, 'rank')} here."
    )
    return Finding("oversubscribed", text, {"world": world, f"{kind}s": places}, "warning")


def find_noise(case: Case) -> Finding | None:
    """too_noisy"""
    limits = {"step_time_s": NOISY_STEP, "speedup": NOISY_RATIO}
    widths = {
        name: relative_half_width(case.row.metrics[name]) for name in limits if name in case.row.metrics
    }
    noisy = {name: width for name, width in widths.items() if width > limits[name]}
    if not noisy:
        return None
    speedup = case.row.metrics.get("speedup")
    undecided = "speedup" in noisy and speedup is not None and speedup.low < 1 < speedup.high
    name = "speedup" if undecided else max(noisy, key=lambda name: noisy[name] / limits[name])
    width, rounds = noisy[name], case.row.rounds
    metric = case.row.metrics[name]
    what = "step time" if name == "step_time_s" else "speedup"
    if width > HOPELESS:
        low, high = (
            format_duration(v) if metric.unit == "s" else f"{v:.2g} ×" for v in (metric.low, metric.high)
        )
        known = f"may lie anywhere between {low} and {high}"
    else:
        known = f"is known to ±{percent(width)} only"
    verdict = ", too little to say whether it is faster or slower" if undecided else ""
    numbers = {"half_width": width, "rounds": float(rounds)}
    wanted = rounds_wanted(width, rounds, WANTED, others=case.row.launch_noise.freedom)
    if wanted is None:
        pinned = "pin the ranks (--placement tuned), " if case.row.placement == "plain" else ""
        action = (
            f"It would take very many rounds to know it to ±{percent(WANTED)}: find a quieter machine, "
            f"{pinned}or measure more steps (--steps)."
        )
    else:
        numbers["rounds_wanted"] = wanted
        least = "at least " if rounds == 1 else ""
        action = f"Run on with --until 3%, or with {least}--rounds {wanted}, on a quiet machine."
    text = (
        f"The {what} {known}{verdict}: steps differ by "
        f"{percent(case.value('step_time_spread'))}, and {_launches(case)}. {action}"
    )
    return Finding("too_noisy", text, numbers, "warning")


def _launches(case: Case) -> str:
    if "launch_spread" not in case.row.metrics:
        return "one launch does not tell how much launches differ"
    return f"{case.row.rounds} launches by {percent(case.value('launch_spread'))}"


def find_single_launch(case: Case) -> Finding | None:
    """single_launch"""
    speedup = case.row.metrics.get("speedup")
    if case.base is None or speedup is None or speedup.n != 1 or case.row.source != "measured":
        return None
    text = (
        "This speedup rests on one launch of each side. Launches of the same program often differ by 3 to "
        "4 %, which the interval of a single one cannot contain. Compare after --rounds 3 or more."
    )
    return Finding("single_launch", text, {"rounds": 1})


def find_disturbance(case: Case) -> Finding | None:
    """disturbed"""
    share = case.value("disturbed_share")
    if share <= DISTURBED_SHARE:
        return None
    pairs = [(world_step_times(run), disturbed_steps(run)) for run in case.runs]
    times = np.concatenate([times for times, _ in pairs])
    marks = np.concatenate([marks for _, marks in pairs])
    numbers = {"disturbed_share": share}
    slower, is_harmless = "", False
    if (marks == 1).sum() >= 3 and (marks == 0).sum() >= 3:
        numbers["slower"] = float(np.median(times[marks == 1]) / np.median(times[marks == 0]))
        slower = f" Those steps took {numbers['slower']:.2f} × as long as the others."
        is_harmless = numbers["slower"] <= 1 + NOISY_STEP
    text = (
        f"In {percent(share)} of the steps something else used the ranks' cores.{slower} The steps are "
        "marked, not removed. Stop the other programs (or leave a shared machine) and run again with "
        "--fresh."
    )
    return Finding("disturbed", text, numbers, "note" if is_harmless else "warning")


def _notes(case: Case, code: str) -> list[dict[str, Any]]:
    return [
        note for run in case.runs for rank in run.ranks for note in rank.notes if note.get("code") == code
    ]


def find_missing_samples(case: Case) -> Finding | None:
    """no_samples"""
    notes = _notes(case, "no_samples")
    if not notes:
        return None
    text = (
        f"{sentence(notes[0].get('text'))} Communication and memory are not known, or only in part. Give the "
        "script more steps, or use a smaller --steps."
    )
    num_steps = min((len(world_step_times(run)) for run in case.runs), default=0)
    return Finding("no_samples", text, {"timed_steps": num_steps})


def find_restarted_count(case: Case) -> Finding | None:
    """steps_restarted"""
    notes = _notes(case, "steps_restart")
    if not notes:
        return None
    text = (
        f"{sentence(notes[0].get('text'))} What came before were parts of steps and is dropped. Name the "
        "optimizer that ends a step with --step-marker, or call paceline.mark_step()."
    )
    return Finding("steps_restarted", text, {"step": float(notes[0].get("step", 0))})


def find_bad_teardown(case: Case) -> Finding | None:
    """ended_badly"""
    notes = _notes(case, "ended_badly")
    if not notes:
        return None
    text = (
        f"{sentence(notes[0].get('text'))} The measured steps were over by then and count. If it happens "
        "without Paceline too, destroy the process group at the script's end."
    )
    return Finding("ended_badly", text, {"runs": len(notes)})
