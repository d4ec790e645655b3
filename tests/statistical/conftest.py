"""One table at the end of ``make verify``: what the trials counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_ROWS: list[tuple[str, str, str]] = []


@pytest.fixture
def tell() -> Callable[[str, str, str], None]:
    """Adds a row to the table: the trial, what was tried, and what was counted."""
    return lambda trial, what, counted: _ROWS.append((trial, what, counted))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _ROWS:
        terminalreporter.section("trials")
        widths = [max(len(row[k]) for row in _ROWS) for k in range(2)]
        for trial, what, counted in _ROWS:
            terminalreporter.write_line(f"{trial:<{widths[0]}}  {what:<{widths[1]}}  {counted}")
