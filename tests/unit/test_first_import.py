"""Something happens around a module's first import, and nothing before it."""

import contextlib
import importlib
import importlib.util
import sys

import pytest

from paceline.first_import import FirstImport, on_first_import


@pytest.fixture
def trace(tmp_path, monkeypatch):
    (tmp_path / "some_library.py").write_text("import some_trace\nsome_trace.seen.append('executed')\n")
    (tmp_path / "some_trace.py").write_text("seen = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    import some_trace

    @contextlib.contextmanager
    def context():
        some_trace.seen.append("before")
        yield
        some_trace.seen.append("after")

    on_first_import("some_library", context)
    yield some_trace.seen
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, FirstImport)]
    for name in ("some_library", "some_trace"):
        sys.modules.pop(name, None)


def test_the_context_is_around_the_first_execution_alone(trace):
    assert (
        importlib.util.find_spec("some_library") is not None
    )  # a script looks whether there is such a module
    assert importlib.util.find_spec("no_such_library") is None
    assert trace == []
    import some_library

    assert trace == ["before", "executed", "after"]
    assert not any(isinstance(finder, FirstImport) for finder in sys.meta_path)
    importlib.reload(some_library)
    assert trace == ["before", "executed", "after", "executed"]


def test_a_module_that_is_there_already_waits_for_nothing():
    trace = []

    @contextlib.contextmanager
    def context():
        yield
        trace.append("after")

    on_first_import("sys", context)
    assert trace == ["after"]
