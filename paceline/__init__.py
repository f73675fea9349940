"""Paceline measures, explains and predicts how a PyTorch model trains in parallel.

Importing the package costs nothing: training scripts may do it for `mark_step` alone.
"""

from collections.abc import Callable

__version__ = "0.1.0"

# The probe of a measured rank puts its step clock here; elsewhere a mark does nothing.
_on_mark: Callable[[], None] | None = None


def mark_step() -> None:
    """Say that a training step ends here, for scripts whose steps no optimizer call marks."""
    if _on_mark is not None:
        _on_mark()
