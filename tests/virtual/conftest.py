"""Virtual devices belong to a process for good, so their tests run in processes of their own.

What is in `inside/` is started by `test_inside.py`, one pytest per file; the pytest that collects this
folder leaves it alone.
"""

from __future__ import annotations

import os

import pytest

from paceline.virtual.build import CompilerMissing, build_library

collect_ignore = [] if os.environ.get("PACELINE_INSIDE") else ["inside"]


@pytest.fixture(scope="session")
def library() -> None:
    """The built library; building it takes a minute on a machine that never did."""
    try:
        build_library()
    except CompilerMissing as reason:
        pytest.skip(str(reason))
