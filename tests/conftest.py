from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Generator
from pathlib import Path

# Before NumPy is loaded, here and in the processes that tests start: one thread for linear algebra. Matrices are tiny
# here, threads of several workers wait for each other, and they wait busily: that took a sixth of all CPU seconds.
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# Before Hypothesis is: strategies of other packages are not looked for, which loads all of Trio in every process.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# The same examples in every run: a failure is a change of the code, not of the weather. `make verify` looks for others:
# it chooses its profile with --hypothesis-profile.
settings.register_profile("fastmix", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("verify", deadline=None, max_examples=500, print_blob=True)
settings.load_profile("fastmix")

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Where the CUDA simulator is chosen, threads of a block take turns in it, unless it is to be as it is."""
    chosen = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0" and "FASTMIX_SIMULATOR" not in os.environ
    if chosen and importlib.util.find_spec("numba_cuda") is not None:
        from simulator import take_turns

        take_turns()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Tests hold no examples: they are not searched for them."""
    found = yield
    return [node for node in found if type(node).__name__ != "DoctestModule"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests of many seconds to the front, or one of the workers ends alone with them."""
    items.sort(key=lambda item: (item.get_closest_marker("first") is None, item.path.parent.name != "statistical"))


def pytest_runtest_teardown() -> None:
    """No test sees pictures of another."""
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured for their reader: lines of text, then one table of what the trials counted."""
    rows: list[tuple[str, str, str]] = []
    for outcome in ("passed", "failed", "xfailed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "to print":
                    terminalreporter.write_line(value)
                elif name == "trial":
                    rows.append(tuple(value))
    if not rows:
        return
    rows = add_up(rows)
    terminalreporter.section("trials")
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for trial, what, counted in sorted(rows):
        terminalreporter.write_line(f"{trial:<{widths[0]}}  {what:<{widths[1]}}  {counted}")


def add_up(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """One row for parts of a trial that tell the same text with other whole numbers, which are added up."""
    number = re.compile(r"(?<![\d.])\d+(?![\d.]*\.\d)")
    sums: dict[tuple[str, str, str], list[int]] = {}
    for trial, what, counted in rows:
        key = trial, what, number.sub("0", counted)
        counts = [int(count) for count in number.findall(counted)]
        before = sums.setdefault(key, [0] * len(counts))
        sums[key] = [total + count for total, count in zip(before, counts, strict=True)]
    added = []
    for (trial, what, text), counts in sums.items():
        left = iter(counts)
        added.append((trial, what, number.sub(lambda _, left=left: str(next(left)), text)))
    return added


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str, str, str], None]:
    """Add a row to the table that ``make verify`` prints: the trial, what was tried, and what was counted.

    Whole numbers of rows that say the same otherwise are added up: parts of one trial become one row. Rows travel with
    the report of the test, so that they also arrive from the workers of a parallel run.
    """
    return lambda trial, what, counted: record_property("trial", (trial, what, counted))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of extras whose packages are not installed, unless this run is there to test them."""
    for marker in item.iter_markers("extras"):
        for package in marker.args:
            if importlib.util.find_spec(package) is None and "FASTMIX_TEST_EXTRAS" not in os.environ:
                pytest.skip(f"needs {package}, which make test-extras installs")


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Generator[None, None, None]:
    """Files of tests need not outlive a power failure: a file is written, but nobody waits until it is on the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)
        yield


@pytest.fixture
def little_work_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share work that one of them would otherwise do faster alone."""
    monkeypatch.setattr("fastmix.chains.threads.Threads.min_updates", 0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the data files that are kept beside the repository; the test is skipped without it."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the repository")
    return path


@pytest.fixture(scope="session")
def competition(shared_data: Path) -> Path:
    """Folder of instances of the UAI competition among the shared data; the test is skipped without it."""
    if not (shared_data / "uai").is_dir():
        pytest.skip("needs the folder uai among the shared data")
    return shared_data / "uai"
