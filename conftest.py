"""For all tests, those in documents and docstrings included."""

from __future__ import annotations

import contextlib
import gc
import shutil
import sys
import tempfile
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = ["tests/*conftest.py"]  # no examples in them, and one name for several files
if not find_spec("sklearn"):
    collect_ignore_glob += ["src/fastmix/sklearn.py", "docs/learning.md"]
for extra, files in {"torch": "src/fastmix/torch/*", "jax": "src/fastmix/jax.py"}.items():
    if not find_spec(extra):
        collect_ignore_glob.append(files)
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


def registered() -> set[tuple[int, str]]:
    """The number of the registry and the name of all that is registered from outside of fastmix."""
    found = set()
    for number, registry in enumerate(registries()):
        for name, entry in registry.items():
            kind = entry if isinstance(entry, type) else type(entry)
            if not kind.__module__.startswith("fastmix."):
                found.add((number, name))
    return found


def registries() -> list[Any]:
    """The registries of the modules that are loaded; importing them takes time that many tests do not need."""
    found: list[Any] = getattr(sys.modules.get("fastmix._registry"), "REGISTRIES", [])
    return found


DOCS = Path(__file__).parent / "docs"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Pages of the how-to run in a folder that has the files which they offer, as they do for a reader."""
    if not isinstance(item, pytest.DoctestItem) or item.path.parent != DOCS / "howto":
        return (yield)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DOCS / "files", folder, dirs_exist_ok=True)
        with contextlib.chdir(folder):
            return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What a test registers is gone after it; by a hook, because fixtures of every test take seconds in all."""
    before = registered()
    try:
        return (yield)
    finally:
        for number, name in registered() - before:
            del registries()[number].entries[name]
