"""Where lines break: within names that no line holds, never between a number and its unit."""

from __future__ import annotations

import pytest

from paceline.report.words import BREAK, LONG, NO_BREAK, keep_units, may_break


@pytest.mark.parametrize(
    "name", ["x" * 300, "/mnt/very_long/path.to/train_the_model_final_v2.py", "模" * 40, "a" * 16 + "/b"]
)
def test_long_name_may_break_and_loses_nothing(name: str) -> None:
    pieces = may_break(name).split(BREAK)
    assert "".join(pieces) == name
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= LONG + 1


def test_name_breaks_after_its_joints() -> None:
    assert may_break("practical7_accumulation.py").split(BREAK) == ["practical7_", "accumulation.", "py"]
    assert may_break("short_name.py and words") == "short_name.py and words"


def test_number_and_unit_stay_together() -> None:
    assert keep_units("9.00 MiB or 27 ms, 16 % of 2 ranks, 3 s") == (
        f"9.00{NO_BREAK}MiB or 27{NO_BREAK}ms, 16{NO_BREAK}% of 2 ranks, 3{NO_BREAK}s"
    )
    assert keep_units("in 2 sweeps") == "in 2 sweeps"
