"""The judges: pure functions from what was seen to verdicts, one module per subject.

In: a `Seen` of observations.py. Out: a `Verdict` for one check. `scripts.py` says which apply where.
Exercise: `pytest tests/check/test_verdicts.py`.
"""
