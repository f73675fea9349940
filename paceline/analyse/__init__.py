"""From runs to rows: pure functions, no torch, nothing stored. docs/metrics.md defines every number.

Try it: `paceline show STUDY`, or `pytest tests/unit/test_analyse_summary.py`.
"""

from paceline.analyse.intervals import interval_is_narrow
from paceline.analyse.scaling import ratio
from paceline.analyse.summary import group_runs, summarise

__all__ = ["group_runs", "interval_is_narrow", "ratio", "summarise"]
