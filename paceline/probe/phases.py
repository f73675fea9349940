"""From the events of one step to the time of its phases: a pure function.

Enters: when the step began, and its events in order. Leaves: seconds per phase and the number of
micro-steps. The hooks only write events down, so that a step pays for two list entries per event and the
arithmetic waits for its end.

    pytest tests/unit/test_clock.py
"""

from __future__ import annotations

# Events, in the order in which a step has them.
LOADER_BEGAN, LOADER_ENDED, MODEL_CALLED, BACKWARD_BEGAN, BACKWARD_ENDED, OPTIMIZER_BEGAN, STEPPED = range(7)

# Phases. What follows a backward is told apart only by the next event: another micro-batch makes it data, the
# optimizer makes it other (unscaling, clipping).
DATA, FORWARD, BACKWARD, AFTER, OPTIMIZER = range(5)

Event = tuple[int, float]

# data_s, dataloader_s, forward_s, backward_s, optimizer_s, other_s, micro_steps of record.STEP_METRICS
StepPhases = tuple[float, float, float, float, float, float, int]


def phase_after(phase: int, event: int, in_optimizer: bool) -> int:
    """Which phase begins with this event."""
    if event == MODEL_CALLED:
        return phase if phase == BACKWARD else FORWARD  # a checkpointed module runs again inside backward
    if event == BACKWARD_BEGAN:
        return BACKWARD
    if event == BACKWARD_ENDED:
        return OPTIMIZER if in_optimizer else AFTER  # with a closure, backward runs inside step()
    if event == OPTIMIZER_BEGAN:
        return OPTIMIZER
    if event == LOADER_BEGAN and phase in (FORWARD, AFTER):
        return DATA  # after FORWARD: a validation pass that no backward ended
    return DATA if event == STEPPED else phase


# The same as a table, [in_optimizer][phase][event]: a step looks up, it does not decide.
FOLLOWING = [
    [[phase_after(phase, event, in_optimizer) for event in range(7)] for phase in range(5)]
    for in_optimizer in (False, True)
]


def cut(began_s: float, events: list[Event]) -> StepPhases:
    """Share the time from `began_s` to the last event out among the phases."""
    spent_s = [0.0, 0.0, 0.0, 0.0, 0.0]
    other_s = dataloader_s = loader_began_s = 0.0
    phase, since_s = DATA, began_s
    micro_steps = 0
    following = FOLLOWING[False]
    for event, at_s in events:
        if event <= LOADER_ENDED:
            if event == LOADER_BEGAN:
                loader_began_s = at_s
            else:
                dataloader_s += at_s - loader_began_s
        elif event == BACKWARD_ENDED:
            micro_steps += 1
        elif event >= OPTIMIZER_BEGAN:
            following = FOLLOWING[event == OPTIMIZER_BEGAN]
        after = following[phase][event]
        if after != phase:
            if phase == AFTER and after != FORWARD and after != DATA:
                other_s += at_s - since_s
            else:
                spent_s[phase] += at_s - since_s
            phase, since_s = after, at_s
    spent_s[phase] += events[-1][1] - since_s
    data_s, forward_s, backward_s, after_s, optimizer_s = spent_s
    return data_s + after_s, dataloader_s, forward_s, backward_s, optimizer_s, other_s, micro_steps
