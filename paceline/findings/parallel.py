"""Conclusions about several ranks: do they communicate, what does it cost, and who is late.

In: a `Case`. Out: a `Finding`, or None where there is nothing to say.
Exercise: `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.findings.case import Case, count, of_step, ordinal, percent, severity_of
from paceline.quantity import format_bytes, format_duration
from paceline.record import Finding

EXPOSED_SHARE = 0.15


def find_missing_collectives(case: Case) -> Finding | None:
    """no_collectives"""
    if not case.ranks_are_apart:
        return None
    text = (
        f"{count(case.row.world, 'rank')} ran, and not one collective was recognised in a training step. "
        "Either each rank trains a model of its own, or they communicate in a way that Paceline does not "
        "see. Check that the model is wrapped (DistributedDataParallel, fully_shard …) after "
        "init_process_group."
    )
    return Finding("no_collectives", text, {"world": case.row.world, "collective_calls": 0}, "warning")


def find_exposed_communication(case: Case) -> Finding | None:
    """communication_exposed"""
    exposed_s, step_s = case.value("exposed_comm_s"), case.step_time_s
    if case.row.world == 1 or not step_s or exposed_s < EXPOSED_SHARE * step_s:
        return None
    share = exposed_s / step_s
    hidden_s = max(0.0, case.value("comm_busy_s") - exposed_s)
    bandwidth = case.value("bus_bandwidth_bytes_s")
    speed = f" at a bus bandwidth of {format_bytes(bandwidth)}/s" if bandwidth else ""
    longer = "over more micro-steps " if case.value("micro_steps") > 1 else ""
    accumulate = f"accumulate gradients {longer}under no_sync, " if _is_data_parallel(case) else ""
    text = (
        f"{of_step(exposed_s, step_s)} is communication that no computing hides, beside "
        f"{format_duration(hidden_s)} that is hidden: "
        f"{count(int(case.value('collective_calls')), 'collective')}, "
        f"{format_bytes(case.value('collective_bytes'))}{speed}. Likely the transfers take longer "
        f"than what is computed beside them. Give each rank a larger batch, {accumulate}or send fewer bytes "
        "(a lower precision, compression)."
    )
    numbers = {
        "exposed_comm_s": exposed_s,
        "hidden_comm_s": hidden_s,
        "share": share,
        "collective_calls": case.value("collective_calls"),
        "collective_bytes": case.value("collective_bytes"),
    }
    return Finding("communication_exposed", text, numbers, severity_of(share))


def find_straggler(case: Case) -> Finding | None:
    """straggler"""
    straggler = case.straggler
    if straggler is None:
        return None
    late_s = straggler.late_s * straggler.share_of_steps  # per step
    # A median step contains what is always late, and nothing of what is late at times.
    cost = late_s / (case.step_time_s if straggler.always else case.step_time_s + late_s)
    if straggler.always:
        when = "in every step"
    elif straggler.every:
        when = f"in every {ordinal(straggler.every)} step"
    else:
        when = f"in {percent(straggler.share_of_steps)} of the steps"
    places = {
        "data": "it falls behind before the model is called (its data, or work that only it does)",
        "forward": "it falls behind in the forward pass (more work, or a slower device)",
        "backward": "it falls behind between backward and optimizer",
        "other": "it falls behind between backward and optimizer",
        "optimizer": "it falls behind in or after the optimizer (logging or saving on that rank?)",
    }
    cause = places.get(straggler.place or "", "it is slower within the backward pass, or has more to do")
    if not straggler.always:
        cause = "something happens on that rank alone (saving, logging, validation, a slow sample?)"
    text = (
        f"Rank {straggler.rank} arrives {format_duration(straggler.late_s)} after the others {when}, and "
        f"they wait: {percent(cost)} of the time. {cause[0].upper()}{cause[1:]}. Compare that rank's input "
        "and core with another's."
    )
    numbers = {
        "rank": straggler.rank,
        "late_s": straggler.late_s,
        "share_of_steps": straggler.share_of_steps,
        "share": cost,
    }
    if straggler.every:
        numbers["every"] = straggler.every
    return Finding("straggler", text, numbers, severity_of(cost))


def find_needless_synchronisation(case: Case) -> Finding | None:
    """accumulation_synchronises"""
    facts = [fact for fact in case.facts("communication") if fact.get("micro_steps", 0) > 1]
    if not facts or not _is_data_parallel(case):
        return None
    synchronising, micro_steps = (
        max(float(fact.get(name, 0)) for fact in facts)
        for name in ("synchronising_micro_steps", "micro_steps")
    )
    if synchronising < 2:
        return None
    step_s = case.step_time_s
    # A sharded model gathers its parameters in every micro-step all the same.
    is_sharded = any("reduce_scatter" in fact.get("by_kind", {}) for fact in facts)
    kinds = ("reduce_scatter",) if is_sharded else ("reduce_scatter", "all_reduce")
    share_saved = max(_byte_share(fact, kinds) for fact in facts)
    saved_s = case.value("exposed_comm_s") * share_saved * (1 - 1 / synchronising)
    remedy = (
        "model.set_requires_gradient_sync(False) for all but the last one (it keeps unsharded gradients: "
        "more memory)"
        if is_sharded
        else "`with model.no_sync():` around all but the last one"
    )
    saving = f" That would save about {of_step(saved_s, step_s)}." if saved_s else ""
    text = (
        f"Gradients are accumulated over {micro_steps:g} micro-steps, and {synchronising:g} of them "
        f"synchronise where one is enough. Use {remedy}.{saving}"
    )
    share = saved_s / step_s if step_s else 0.0
    numbers = {
        "micro_steps": micro_steps,
        "synchronising_micro_steps": synchronising,
        "saved_s": saved_s,
        "share": share,
    }
    return Finding("accumulation_synchronises", text, numbers, severity_of(share))


def _is_data_parallel(case: Case) -> bool:
    """Whether ranks with samples of their own reduce gradients: tensor parallelism cannot leave that out.

    The probe knows it of most models ("batch"); else the gradients' bytes tell, which are the parameters'.
    """
    if case.row.world == 1:
        return False
    if case.facts("batch"):
        return True
    for rank in (rank for run in case.runs for rank in run.ranks):
        fact = rank.facts.get("communication", {})
        parameters = rank.facts.get("memory", {}).get("start_of_step", {}).get("parameters", 0)
        reduced = _reduced_bytes(fact, ("all_reduce", "reduce_scatter")) / max(
            1.0, float(fact.get("synchronising_micro_steps", 1))
        )
        # Of a sharded model each rank holds a part, and hands in the gradients of the whole.
        if any(0.99 < reduced / (parameters * parts) < 1.01 for parts in (1, case.row.world) if parameters):
            return True
    return False


def _reduced_bytes(fact: Mapping[str, Any], kinds: tuple[str, ...]) -> float:
    by_kind = fact.get("by_kind", {})
    return float(sum(by_kind[kind]["bytes"] for kind in kinds if kind in by_kind))


def _byte_share(fact: Mapping[str, Any], kinds: tuple[str, ...]) -> float:
    total = float(fact.get("bytes") or 0)
    return _reduced_bytes(fact, kinds) / total if total else 0.0
