"""The course labs: what they are (spec.py), what a scale runs (plan.py), what was measured (data.py)."""
