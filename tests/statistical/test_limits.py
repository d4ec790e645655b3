"""Are time limits kept? A few cases of each family of benchmarks/limits.py, drawn anew from seeds; `make verify`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "limits.py"
FAMILIES = (
    "grid", "isolated", "hubs", "complete", "bipartite", "potts", "plaquettes", "factors", "sparse", "network", "bags",
    "picture",
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def run_cases(family: str, rows: Path, num_cases: int, *more: str) -> list[dict[str, object]]:
    """Rows of the table of limits, measured one after the other."""
    command = [
        sys.executable, str(SCRIPT), "--families", family, "--cases", str(num_cases), "--workers", "1", "--limits", "2",
        "--max-size", "30000", "--max-memory", "4GiB", "--budget", "3000", "--rows", str(rows), *more,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in rows.read_text().splitlines()]


@pytest.mark.skipif(sys.platform == "win32", reason="processes are ended by signals")
@pytest.mark.parametrize("family", FAMILIES)
def test_limits_are_kept(family: str, tmp_path: Path, tell: Callable[[str, str, str], None]) -> None:
    """To keep: 1.2 times the limit and a second, which is told; the test fails on what takes three times as long."""
    rows = run_cases(family, tmp_path / "rows.jsonl", 12, "--seed", str(FAMILIES.index(family)))
    kept = sum(row["verdict"] == "kept" for row in rows)
    tell("limits", "every verb, random models of twelve families", f"kept {kept} of {len(rows)}")
    assert len(rows) == 12
    for row in rows:
        took = row["cpu"]
        assert row["verdict"] in ("kept", "over"), row
        assert isinstance(took, float), row
        assert took - float(str(row["compile"])) < 3.0 * (1.2 * 2.0 + 1.0), row
