"""Where observations go, each with the script's line that caused it.

Enters: an observation by name, with its values. Leaves: one JSON line, {"event": "observed", "what": ...,
"line": ...}, and "file" where the line is in a module beside the script.

    pytest tests/check/test_check_programs.py
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec

from paceline.check.watch import EVENT
from paceline.probe.sink import Sink

P = ParamSpec("P")
# A script that never ends must not fill the disk with what is seen of it.
MOST_OBSERVATIONS = 60_000


class Trace:
    """The one place that watchers write to, and the silence while they compute something themselves."""

    def __init__(self, sink: Sink, script: str) -> None:
        self.script = script
        self._folder = os.path.dirname(script) + os.sep
        self._sink = sink
        self._left = MOST_OBSERVATIONS
        self._silent = False
        self._training_thread = threading.get_ident()

    @property
    def listens(self) -> bool:
        """Not to the watchers' own computing, and not to other threads (backward's, a DataLoader's)."""
        return not self._silent and threading.get_ident() == self._training_thread

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def write(self, what: str, **values: Any) -> None:
        if self._left > 0:
            self._left -= 1
            self._sink.write(EVENT, what=what, **{**self.stand(), **values})

    def write_last(self, what: str, **values: Any) -> None:
        """As `write`, also when there was too much before."""
        self._sink.write(EVENT, what=what, complete=self._left > 0, **values)

    def frames(self) -> Iterator[FrameType]:
        """The frames of the script and of the modules beside it, innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self.is_own(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back

    def is_own(self, file: str) -> bool:
        return file.startswith(self._folder) and "site-packages" not in file

    def stand(self) -> dict[str, Any]:
        """The line of the student's code that is running."""
        for frame in self.frames():
            file = frame.f_code.co_filename
            beside = {} if file == self.script else {"file": os.path.relpath(file, self._folder)}
            return {"line": frame.f_lineno, **beside}
        return {}

    def guard(self, watch: Callable[P, None]) -> Callable[P, None]:
        """A watcher that stumbles says so and lets the script go on."""

        @functools.wraps(watch)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            if not self.listens:
                return
            with self.silence():
                try:
                    watch(*args, **kwargs)
                except Exception as error:
                    self.write("stumble", watcher=watch.__name__, reason=f"{type(error).__name__}: {error}")

        return guarded
