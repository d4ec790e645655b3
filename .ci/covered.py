"""Line coverage of the package's Python code, by room, with floors below which it fails.

    python .ci/covered.py [.coverage]

Compiled functions are left out: a tracer does not see them run. Their coverage comes from the process without the
compiler (``tests/test_without_compiler.py``), and that of code for GPUs from the simulator. Files that need the
packages of an extra are left out, and named, where these are not installed: ``make test-extras`` runs their tests.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fastmix"
FLOOR = 97.0  # percent of the lines of the package
ROOM_FLOOR = 93.0  # percent of the lines of each room
NUM_FILES = 15  # those with the most lines that no test runs
# What needs a package of the extras torch, jax, map and count: files, or folders, of the package.
EXTRAS = {
    "torch": ("torch",),
    "jax": ("jax.py",),
    "pytoulbar2": ("modes/toulbar2_route.py", "modes/toulbar2_worker.py"),
    "pyganak": ("inference/ganak.py", "inference/ganak_worker.py"),
}


class Count(NamedTuple):
    """Lines of code, and how many of them no test ran."""

    lines: int
    missed: int

    @property
    def percent(self) -> float:
        """The share of lines that ran, in percent."""
        return 100.0 * (1.0 - self.missed / max(1, self.lines))

    def __add__(self, other: Count) -> Count:  # type: ignore[override]
        return Count(self.lines + other.lines, self.missed + other.missed)


def room_of(file: Path) -> str:
    """The folder of a file in the package; ``top`` for files that are in none."""
    return file.parts[0] if len(file.parts) > 1 else "top"


def left_out() -> list[Path]:
    """Files and folders whose packages are not installed."""
    return [Path(name) for package, names in EXTRAS.items() if find_spec(package) is None for name in names]


def count_files(measured: Coverage) -> dict[Path, Count]:
    """Lines of every file of the package by its path in it; also of files that no test loads."""
    counts = {}
    missing = left_out()
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE)
        if "cuda" in file.parts or any(file.is_relative_to(other) for other in missing):
            continue
        _, lines, _, missed, _ = measured.analysis2(str(path))
        counts[file] = Count(len(lines), len(missed))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=".coverage", help="what coverage.py wrote")
    measured = Coverage(data_file=parser.parse_args().data, config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    files = count_files(measured)
    rooms: dict[str, Count] = defaultdict(lambda: Count(0, 0))
    for file, count in files.items():
        rooms[room_of(file)] += count
    total = sum(rooms.values(), Count(0, 0))

    print(f"{'file':<32} {'lines':>6} {'missed':>6} {'ran':>7}")
    for file, count in sorted(files.items(), key=lambda item: -item[1].missed)[:NUM_FILES]:
        print(f"{file!s:<32} {count.lines:>6} {count.missed:>6} {count.percent:>5.1f} %")
    print(f"\n{'room':<32} {'lines':>6} {'missed':>6} {'ran':>7}")
    for name, count in [*sorted(rooms.items()), ("all", total)]:
        print(f"{name:<32} {count.lines:>6} {count.missed:>6} {count.percent:>5.1f} %")

    if left_out():
        print(f"left out, as their packages are not installed: {', '.join(map(str, left_out()))}")
    low = [name for name, count in sorted(rooms.items()) if count.percent < ROOM_FLOOR]
    if low:
        print(f"below {ROOM_FLOOR:g} %: {', '.join(low)}", file=sys.stderr)
    if total.percent < FLOOR:
        print(f"below {FLOOR:g} %: the package", file=sys.stderr)
    return 1 if low or total.percent < FLOOR else 0


if __name__ == "__main__":
    sys.exit(main())
