"""How many files and functions a call goes through: what somebody reads who follows one call as data do.

    python benchmarks/traces.py [VERB ...] [--edges]

Each call is made twice on a tiny model, with one thread, and the second one is watched by ``sys.setprofile``: by then
everything is compiled, loaded and cached. Counted are the files and functions of fastmix that run in Python, how deep
their calls go, and the pairs of files of which one calls the other. A pair that calls both ways is a knot for a reader;
``--edges`` lists these, and the pairs of rooms that call both ways. Last come numbers of calls that should be few:
reductions of the model by evidence, and models that were built, all and those around one projection.

Functions and files vary a little from run to run where the time decides what is done (bounds, searches).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import fastmix
from fastmix.instances import ising_grid

PACKAGE = Path(fastmix.__file__).resolve().parent
SEED = 1


class Trace:
    """What a call went through, as a profile function of the interpreter."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[CodeType] = set()
        self.edges: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[str] = Counter()  # by name of the function
        self.depth = 0
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, with the function of fastmix that it came from, through whatever is between."""
        if event != "call":
            return
        file = self._file_of(frame)
        if file is None:
            return
        code = frame.f_code
        self.files.add(file)
        if not code.co_name.startswith("<"):  # comprehensions are no functions that somebody reads
            self.functions.add(code)
            self.calls[code.co_name] += 1
        depth = 1
        caller = None
        outer = frame.f_back
        while outer is not None:
            name = self._file_of(outer)
            if name is not None:
                depth += 1
                caller = caller or name
            outer = outer.f_back
        self.depth = max(self.depth, depth)
        if caller is not None and caller != file:
            self.edges[caller, file] += 1

    def _file_of(self, frame: FrameType) -> str | None:
        """The file of a frame within the package; None if it is of another package."""
        path = frame.f_code.co_filename
        if path not in self._names:
            inside = Path(path).is_absolute() and Path(path).resolve().is_relative_to(PACKAGE)
            self._names[path] = str(Path(path).resolve().relative_to(PACKAGE)) if inside else None
        return self._names[path]

    def two_way_files(self) -> list[tuple[str, str]]:
        """Pairs of files that call each other."""
        return sorted((a, b) for a, b in self.edges if a < b and (b, a) in self.edges)

    def two_way_rooms(self) -> list[tuple[str, str]]:
        """Pairs of rooms that call each other; files at the top of the package are in none."""
        rooms = {(room_of(a), room_of(b)) for a, b in self.edges}
        return sorted((a, b) for a, b in rooms if a and b and a < b and (b, a) in rooms)


def room_of(file: str) -> str:
    """The folder of a file at the top of the package, empty for files that are in none."""
    parts = Path(file).parts
    return parts[0] if len(parts) > 1 else ""


def command(*words: str) -> Callable[[], object]:
    """A call of the command line."""

    def run() -> None:
        """Run it within this process, and keep what it prints to itself."""
        from fastmix.cli import main

        printed = io.TextIOWrapper(io.BytesIO())
        argv = sys.argv
        sys.argv = ["fastmix", *words]
        try:
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                contextlib.suppress(SystemExit),
            ):
                main()
        finally:
            sys.argv = argv

    return run


def calls(folder: Path) -> dict[str, Callable[[], object]]:
    """The calls that are watched, by name."""
    grid = ising_grid(4, 4, coupling_max=0.5, seed=0)
    strong = ising_grid(4, 4, coupling_max=2.0, seed=0)
    wide = ising_grid(16, 16, coupling_max=2.0, seed=0)
    rows = np.asarray(fastmix.draw_exact(grid, num_draws=200, seed=0))
    sampled: dict[str, Any] = {"num_chains": 4, "num_sweeps": 50, "num_threads": 1, "seed": SEED}
    one: dict[str, Any] = {"num_threads": 1, "seed": SEED}
    path = folder / "rain.bif"
    path.write_text(
        "network rain { }\n"
        "variable rain { type discrete [ 2 ] { no, yes }; }\n"
        "variable wet { type discrete [ 2 ] { no, yes }; }\n"
        "probability ( rain ) { table 0.8, 0.2; }\n"
        "probability ( wet | rain ) { (no) 0.9, 0.1; (yes) 0.3, 0.7; }\n"
    )
    return {
        "sample": lambda: fastmix.sample(grid, **sampled),
        "infer gibbs": lambda: fastmix.infer(grid, method="gibbs", **sampled),
        "project reversed-kl": lambda: fastmix.project(
            strong, norm_bound=1.0, divergence=fastmix.ReversedKL(pool_size=32), seed=SEED
        ),
        "infer projected": lambda: fastmix.infer(wide, method="projected", num_sweeps=50, **one),
        "learn sampled": lambda: fastmix.learn(
            rows, edges=grid.edges, moments="sampled", num_chains=64, max_iter=5, seed=SEED
        ),
        "bracket rough": lambda: fastmix.bracket(grid, memory_limit=1000, time_limit=0.5, seed=SEED),
        "bracket exact": lambda: fastmix.bracket(grid, seed=SEED),
        "most_probable auto": lambda: fastmix.most_probable(grid, seed=SEED),
        "most_probable search": lambda: fastmix.most_probable(grid, method="search", time_limit=2.0, seed=SEED),
        "fastmix infer x.bif": command("infer", str(path), "--evidence", "wet=yes"),
        "temper": lambda: fastmix.temper(grid, num_sweeps=50, **one),
        "certify": lambda: fastmix.certify(grid),
        "score": lambda: fastmix.score(grid, rows),
        "infer exact": lambda: fastmix.infer(grid),
    }


def watch(call: Callable[[], object]) -> Trace:
    """What the second of two calls goes through."""
    call()
    trace = Trace()
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    return trace


def main() -> None:
    """Print a line for every call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verbs", nargs="*", metavar="VERB", help="the calls whose names begin so; all by default")
    parser.add_argument("--edges", action="store_true", help="list the pairs that call both ways")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        chosen = {
            name: call
            for name, call in calls(Path(name)).items()
            if not options.verbs or any(name.startswith(verb) for verb in options.verbs)
        }
        print(f"{'':22} files functions depth edges both ways  rooms  reduce_model  with_parameters  replace")
        for name, call in chosen.items():
            trace = watch(call)
            files = trace.two_way_files()
            rooms = trace.two_way_rooms()
            built = [trace.calls[function] for function in ("reduce_model", "with_parameters", "replace")]
            print(
                f"{name:22} {len(trace.files):5} {len(trace.functions):9} {trace.depth:5} {len(trace.edges):5} "
                f"{len(files):9} {len(rooms):6} {built[0]:13} {built[1]:16} {built[2]:8}",
                flush=True,
            )
            if options.edges:
                for first, second in [*files, *rooms]:
                    print(f"    {first} <-> {second}")


if __name__ == "__main__":
    main()
