"""One function of PyTorch that tells a watcher when it is called.

Enters: where the function is, and whom to tell. Leaves: the function as it was, to its callers.

    pytest tests/check/test_watch.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(
    owner: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Both are called with the function's own arguments."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = function(*args, **kwargs)
        if after is not None:
            after(*args, **kwargs)
        return result

    setattr(owner, name, told)
