"""Which optimizer call ends a training step, when a script has several optimizers.

Enters: the identity of each optimizer as it steps, in order. Leaves: whether that call ends a step. A step is
one period of the sequence: (D, G, D, G …) has period 2, (D, D, D, G …) period 4.

    pytest tests/unit/test_period.py
"""

from __future__ import annotations


class Period:
    """Finds the period as the calls come in, and says when the calls stop following it."""

    def __init__(self) -> None:
        self._pattern: list[int] = []  # one step's calls, in order
        self._history: list[int] = []  # calls since the pattern last changed
        self.revised = False  # the last call contradicted the pattern: steps so far were counted wrongly

    def __len__(self) -> int:
        return len(self._pattern)

    def tick(self, optimizer: int) -> bool:
        """Take one call; True when it ends a step."""
        self._history.append(optimizer)
        if self._pattern == [optimizer] and len(self._history) <= 4096:
            return True  # one optimizer, as nearly always
        position = len(self._history) - 1
        self.revised = False
        if not self._pattern:
            self._pattern = [optimizer]
        elif optimizer != self._pattern[position % len(self._pattern)]:
            self._revise()
        if len(self._history) > 4096 and len(self._history) % len(self._pattern) == 0:
            self._history = self._history[-len(self._pattern) :]  # memory stays bounded; the phase is kept
        return len(self._history) % len(self._pattern) == 0

    def _revise(self) -> None:
        # The shortest pattern that explains every call since the last one that could not be explained.
        # Before the pattern has come round once it is the whole history: (D, D, G) may go on to be
        # (D, D, G, D, D, G).
        calls = self._history
        length = next(
            n for n in range(1, len(calls) + 1) if all(calls[i] == calls[i - n] for i in range(n, len(calls)))
        )
        self._pattern = calls[:length]
        self.revised = True
