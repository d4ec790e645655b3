"""For all tests, those in documents and docstrings included."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from importlib.util import find_spec

import pytest

collect_ignore_glob = ["tests/*conftest.py"]  # no examples in them, and one name for several files
if not find_spec("sklearn"):
    collect_ignore_glob += ["src/fastmix/sklearn.py", "docs/learning.md"]
collect_ignore = ["docs/conf.py"]  # its import runs every command for the reference of the documentation


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking for garbage among it took 8 of 100 CPU seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000)
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Constructors are documented in a module of their own, which does not know what they construct."""
    if isinstance(item, pytest.DoctestItem) and item.name.startswith("fastmix.model.constructors."):
        from fastmix import MarkovRandomField

        item.dtest.globs["MarkovRandomField"] = MarkovRandomField


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What a test registers is gone after it; by a hook, because fixtures of every test take seconds in all."""
    added = getattr(sys.modules.get("fastmix.methods.base"), "_ADDED", {})
    before = dict(added)
    try:
        return (yield)
    finally:
        added = getattr(sys.modules.get("fastmix.methods.base"), "_ADDED", {})
        for name in set(added) - set(before):
            del added[name]
