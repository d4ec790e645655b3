"""Build the wheel and try it in empty environments: ``python .ci/wheels.py check`` or ``matrix``.

``check`` installs the wheel with this Python and runs the smoke test. ``matrix`` does so for the oldest and the newest
supported NumPy, Numba, SciPy and Python, with tests that need nothing else, and says which Pythons are missing here.
``tag v0.1.0`` says whether the name of a tag fits the version in the package and the release notes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEWEST = (3, 14)  # the newest Python that Numba supports
# Tests that need no extra; the others run with the versions of constraints.txt in `make test`.
TESTS = (
    "tests/model", "tests/exact", "tests/theory", "tests/graphs", "tests/test_instances.py",
    "tests/test_estimates.py",
)  # fmt: skip

SMOKE = """
import importlib.metadata, subprocess, sys
import numpy, numba, scipy
import fastmix
from fastmix.instances import ising_grid
assert "site-packages" in fastmix.__file__, fastmix.__file__
assert fastmix.__version__ == importlib.metadata.version("fastmix")
model = ising_grid(8, 8, coupling_max=1.0, seed=0)
exact = fastmix.infer(model)
assert exact.method == "exact" and exact.status == "ok"
run = fastmix.sample(model, num_sweeps=2000, seed=1)
assert abs(run.node_marginals - exact.node_marginals).max() < 0.05
assert fastmix.certify(fastmix.project(model, norm_bound=0.9).model, accuracy=0.01).certified
tempered = fastmix.temper(model, num_sweeps=200, seed=1)
assert abs(tempered.log_z - exact.log_z) < 1.0
assert fastmix.bracket(model).exact and fastmix.most_probable(model).exact
command = [sys.executable, "-m", "fastmix"]
made = subprocess.run([*command, "generate", "ising-grid", "--rows", "4"], check=True, capture_output=True)
done = subprocess.run([*command, "infer", "-", "--json"], input=made.stdout, check=True, capture_output=True)
assert b'"status": "ok"' in done.stdout
print("smoke test passed: fastmix", fastmix.__version__, "Python", sys.version.split()[0], "NumPy", numpy.__version__,
      "Numba", numba.__version__, "SciPy", scipy.__version__)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def build_wheel(folder: Path) -> Path:
    """The wheel, built from this tree, in which nothing may be left behind."""
    before = ignored_files()
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    left = sorted(ignored_files() - before)
    if left:
        raise SystemExit(f"failed: building left files in the tree: {' '.join(left)}")
    return next(folder.glob("*.whl"))


def ignored_files() -> set[str]:
    """What is in the tree beside the files that git tracks, folders as one entry."""
    command = ["git", "status", "--porcelain", "--ignored"]
    return set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines())


def check_tag(tag: str) -> None:
    """Leave with a message unless a tag is ``v`` and the version, and the release notes begin with that version."""
    source = (ROOT / "src" / "fastmix" / "__init__.py").read_text("utf-8")
    version = source.split('__version__ = "', 1)[1].partition('"')[0]
    notes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heading = next(line for line in notes.splitlines() if line.startswith("## "))
    if tag != f"v{version}":
        raise SystemExit(f"failed: the tag is {tag!r}, the version {version}")
    if heading.split()[1] != version or "unreleased" in heading:
        raise SystemExit(f"failed: the release notes begin with {heading!r}, not with the release of {version}")
    print(f"{tag}: the version and the release notes agree")


def try_wheel(wheel: Path, python: Path, folder: Path, pins: list[str], tests: tuple[str, ...]) -> None:
    """An environment with the wheel and what it asks for, the smoke test, and tests."""
    run(python, "-m", "venv", folder)
    inside = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    extra = ["pytest", "pytest-timeout", "hypothesis", "networkx"] if tests else []
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, *pins, *extra)
    run(inside, "-c", SMOKE, cwd=folder)
    if tests:
        run(inside, "-m", "pytest", "-m", "not slow", "-q", "-p", "no:cacheprovider", *tests)


def oldest_pins() -> list[str]:
    """The lower bounds of the dependencies, as versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [f"{name}=={least}.*" for name, least in (text.split(">=") for text in project["dependencies"])]


def find_pythons() -> dict[tuple[int, int], Path]:
    """Pythons of this machine, by version: those on the path and those of pyenv."""
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    first = int(oldest.removeprefix(">=3."))
    found = {}
    for minor in range(first, NEWEST[1] + 1):
        of_pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for candidate in (shutil.which(f"python3.{minor}"), *of_pyenv):
            if candidate and works(Path(candidate), f"3.{minor}"):
                found[3, minor] = Path(candidate)
    return found


def works(python: Path, version: str) -> bool:
    """Whether a program is the Python it is called after and can make environments."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["check", "matrix", "tag"])
    parser.add_argument("name", nargs="?", default="", help="the tag")
    parser.add_argument("--smoke-only", action="store_true", help="no tests beside the smoke test")
    options = parser.parse_args()
    if options.what == "tag":
        check_tag(options.name)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB", flush=True)
        if options.what == "check":
            try_wheel(wheel, Path(sys.executable), folder / "environment", [], ())
            return
        tests = () if options.smoke_only else TESTS
        pythons = find_pythons()
        for version in range(min(pythons)[1], NEWEST[1] + 1):
            if (3, version) not in pythons:
                print(f"Python 3.{version} is not on this machine: not tried", flush=True)
        failed = []
        for python, pins, which in ((min(pythons), oldest_pins(), "oldest"), (max(pythons), [], "newest")):
            print(f"{which}: Python {python[0]}.{python[1]} {' '.join(pins)}", flush=True)
            try:
                try_wheel(wheel, pythons[python], folder / which, pins, tests)
            except subprocess.CalledProcessError as error:
                failed.append(f"{which} (exit code {error.returncode})")
        if failed:
            raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
