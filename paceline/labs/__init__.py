"""The course labs: what they consist of (spec.py)."""
