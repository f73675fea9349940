"""Do something when a module is imported for the first time, however and by whom.

A script may set OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES before it imports torch, which reads them then: who
imports torch before it makes that void. Standard library only.

    pytest tests/unit/test_first_import.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class FirstImport(MetaPathFinder):
    """Asked before the finders that find the module; the context is entered around its execution."""

    def __init__(self, name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._name = name
        self._context = context

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        # Scripts ask for a spec without importing too, to see whether there is such a module.
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Loader) -> None:
        execute = loader.exec_module

        def execute_in_context(module: ModuleType) -> None:
            with self._context():
                execute(module)
            sys.meta_path.remove(self)
            del loader.exec_module  # its class has it

        loader.exec_module = execute_in_context  # type: ignore[method-assign]


def on_first_import(name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
    """Enter the context around the module's execution, or at once where that is over."""
    if name in sys.modules:
        with context():
            return
    sys.meta_path.insert(0, FirstImport(name, context))
