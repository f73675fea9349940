"""The period of several optimizers is found from the order of their calls alone."""

import pytest

from paceline.probe.period import Period


def ends(calls: str) -> str:
    """The calls that were taken as the end of a step, as a string of 0 and 1."""
    period = Period()
    return "".join("1" if period.tick(ord(call)) else "0" for call in calls)


@pytest.mark.parametrize(
    ("calls", "settled"),
    [
        ("A" * 12, "1"),
        ("DG" * 8, "01"),
        ("DDDDDG" * 6, "000001"),
        ("ABC" * 6, "001"),
    ],
)
def test_the_last_call_of_a_period_ends_the_step(calls: str, settled: str) -> None:
    assert ends(calls)[-2 * len(settled) :] == settled * 2


def test_a_late_optimizer_is_noticed() -> None:
    period = Period()
    for _ in range(5):
        assert period.tick(1)
    assert not period.revised
    period.tick(2)
    assert period.revised
    assert len(period) == 6


def test_a_long_run_keeps_its_phase() -> None:
    period = Period()
    outcomes = [period.tick(call) for _ in range(5000) for call in (1, 1, 2)]
    assert outcomes[-3:] == [False, False, True]
    assert sum(outcomes[300:]) == (len(outcomes) - 300) / 3
