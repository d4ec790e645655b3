"""Is anything slower than before? Every row of the benchmarks on this tree and on an older commit, turn by turn.

    python benchmarks/against.py [--commit 6fce669] [--repeat 7] [--rows exact sample ...] [--gpu]

The older commit is checked out into a temporary folder. One process per version stays alive, both run a row in turn,
and the ratio is that of the medians of CPU seconds, old over new: 1 is as fast as before, less is slower. On the CPU
everything runs on one thread. Rows are public calls, so that they exist in both versions; throughput of samplers is
the difference between a long and a short run, without set-up (or, where the set-up takes seconds, by the sampler's own
clock, seconds per 1e9 updates). The exit code is 1 if a ratio is below 0.95.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEAST = 0.95

Row = Callable[[], Callable[[], Any]]


# -- in the process of one version ----------------------------------------------------------------------------------


def rows(gpu: bool) -> dict[str, Row]:
    """Rows by name: each makes its model, and returns the work that is timed."""
    import inspect

    import numpy as np

    import fastmix
    from fastmix import graphs
    from fastmix.instances import ising_grid, potts_grid

    model_class = getattr(fastmix, "MarkovRandomField", None) or fastmix.PairwiseMRF

    parameters = inspect.signature(fastmix.loopy_bp).parameters
    # The older version knows one criterion only.
    dobrushin: Any = {"criterion": "dobrushin"} if "criterion" in inspect.signature(fastmix.certify).parameters else {}
    order: Any = "message_order" if "message_order" in parameters else "schedule"

    def grid(size: int, top: float, **kind: Any) -> Any:
        return ising_grid(size, size, coupling_max=top, seed=0, **kind)

    def normal(edges: Any, scale: float) -> Any:
        return model_class.ising(edges, np.random.default_rng(0).normal(scale=scale, size=len(edges)))

    def exact(model: Any) -> Row:
        return lambda: lambda: fastmix.infer(model, method="exact")

    def project(make: Callable[[], Any], **options: Any) -> Row:
        def prepare() -> Callable[[], Any]:
            model = make()
            return lambda: fastmix.project(model, **options)

        return prepare

    def sample(make: Callable[[], Any], **options: Any) -> Row:
        def prepare() -> Callable[[], Any]:
            model = make()
            return lambda sweeps: fastmix.sample(
                model, num_sweeps=sweeps, burn_in=0, seed=1, num_threads=1, edge_marginals=False, **options
            )

        return prepare

    def temper(make: Callable[[], Any], **options: Any) -> Row:
        def prepare() -> Callable[[], Any]:
            model = make()
            return lambda sweeps: fastmix.temper(
                model, num_sweeps=sweeps, burn_in=100, seed=1, num_threads=1, edge_marginals=False, **options
            )

        return prepare

    def divergence(top: float, **options: Any) -> Row:
        return project(lambda: grid(16, top), norm_bound=2.5, seed=1, **options)

    if gpu:
        cuda = {"backend": "cuda"}
        return {
            "gpu sample 16x16, 65,536 chains": sample(lambda: grid(16, 1.0), num_chains=65536, **cuda),
            "gpu sample 1000x1000, 64 chains": sample(lambda: grid(1000, 1.0), num_chains=64, **cuda),
            "gpu sample Potts 64x64, 10,000 chains": sample(
                lambda: potts_grid(64, 64, num_states=3, coupling_max=1.0, seed=0), num_chains=10_000, **cuda
            ),
            "gpu sample dense 44, 65,536 chains": sample(
                lambda: normal(graphs.complete_bipartite_edges(22, 22), 0.3), num_chains=65536, **cuda
            ),
            "gpu temper 16x16, 1,024 ladders": temper(lambda: grid(16, 3.0), num_ensembles=1024, **cuda),
            "gpu reversed KL 16x16, 100,000 chains": divergence(
                1.5, divergence=fastmix.ReversedKL(pool_size=100_000, backend="cuda")
            ),
        }

    return {
        "exact 16x16 attractive 1.5": exact(grid(16, 1.5, attractive=True)),
        "exact 16x16 mixed 3": exact(grid(16, 3.0)),
        "project inf 16x16 c=2.5": project(lambda: grid(16, 3.0, attractive=True), norm_bound=2.5),
        "project inf 16x16 c=0.95": project(lambda: grid(16, 3.0, attractive=True), norm_bound=0.95),
        "project inf 300x300 c=2.5": project(lambda: grid(300, 3.0, attractive=True), norm_bound=2.5),
        "project 3-state 60x60": project(
            lambda: potts_grid(60, 60, num_states=3, coupling_max=2.0, seed=0), norm_bound=1.5
        ),
        "project spectral 16x16 c=2.5": project(
            lambda: grid(16, 3.0, attractive=True), norm_bound=2.5, norm="spectral"
        ),
        "project spectral 16x16 c=0.95": project(
            lambda: grid(16, 3.0, attractive=True), norm_bound=0.95, norm="spectral"
        ),
        "project paper's dual 8x8 c=0.95": project(
            lambda: grid(8, 3.0, attractive=True), norm_bound=0.95, solver=fastmix.PaperDual()
        ),
        "project paper's dual 8x8": project(
            lambda: grid(8, 3.0, attractive=True), norm_bound=2.5, solver=fastmix.PaperDual()
        ),
        "certify 300x300": lambda: (lambda model: lambda: fastmix.certify(model, accuracy=0.01, **dobrushin))(
            grid(300, 0.2)
        ),
        "sample 16x16, one chain": sample(lambda: grid(16, 1.0), num_chains=1),
        "sample 16x16, 1,000 chains": sample(lambda: grid(16, 1.0), num_chains=1000),
        "sample Potts 64x64, 100 chains": sample(
            lambda: potts_grid(64, 64, num_states=3, coupling_max=1.0, seed=0), num_chains=100
        ),
        "sample 22+22 bipartite, 1,000 chains": sample(
            lambda: normal(graphs.complete_bipartite_edges(22, 22), 0.3), num_chains=1000
        ),
        "sample 16x16, random schedule": sample(lambda: grid(16, 1.0), num_chains=8, schedule="random"),
        "sample Potts 64x64, random schedule": sample(
            lambda: potts_grid(64, 64, num_states=3, coupling_max=1.0, seed=0), num_chains=8, schedule="random"
        ),
        "sample 1000x1000, one chain": sample(lambda: grid(1000, 1.0), num_chains=1),
        "swendsen-wang 64x64": sample(
            lambda: model_class.ising(graphs.grid_edges(64, 64), 0.44), num_chains=8, method="swendsen-wang"
        ),
        "temper 16x16": temper(lambda: grid(16, 3.0)),
        "temper 5-state Potts 8x8": temper(lambda: potts_grid(8, 8, num_states=5, coupling_max=2.0, seed=0)),
        "temper dense 60": temper(lambda: normal(graphs.complete_edges(60), 60**-0.5 * 2.0)),
        "loopy bp 16x16": lambda: (lambda model: lambda: fastmix.loopy_bp(model, max_iter=20_000, tol=1e-300))(
            grid(16, 1.0)
        ),
        "loopy bp residual 100x100": lambda: (lambda model: lambda: fastmix.loopy_bp(model, **{order: "residual"}))(
            grid(100, 1.0)
        ),
        "loopy bp Potts 50x50": lambda: (lambda model: lambda: fastmix.loopy_bp(model, max_iter=500, tol=1e-300))(
            potts_grid(50, 50, num_states=4, coupling_max=1.0, seed=0)
        ),
        "mean field 16x16": lambda: (lambda model: lambda: [fastmix.mean_field(model, seed=k) for k in range(20)])(
            grid(16, 1.0)
        ),
        "piecewise KL 16x16": divergence(1.5, divergence=fastmix.PiecewiseKL()),
        "reversed KL 16x16": divergence(1.5, divergence=fastmix.ReversedKL()),
        "reversed KL 16x16, couplings to 3": divergence(3.0, divergence=fastmix.ReversedKL()),
        "write and read UAI 100x100": lambda: (lambda model: lambda: uai(model))(grid(100, 1.0)),
    }


def uai(model: Any) -> None:
    from fastmix import io

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.uai")
        write = getattr(io, "write_uai", None) or io.write_model
        read = getattr(io, "read_uai", None) or io.read_model
        write(model, path) if io.__name__ and _model_first(write) else write(path, model)
        read(path)


def _model_first(write: Callable[..., Any]) -> bool:
    import inspect

    return next(iter(inspect.signature(write).parameters)) == "model"


def seconds_of(work: Callable[..., Any], wall: bool) -> float:
    """Seconds of a call; of a sampler per thousand sweeps, by the difference between a long and a short run."""
    import inspect

    clock = time.perf_counter if wall else time.process_time

    def timed(*arguments: int) -> float:
        start = clock()
        work(*arguments)
        return clock() - start

    if not inspect.signature(work).parameters:
        return timed()
    if getattr(work, "large", None) is None:
        work.large = timed(20) > 3.0  # type: ignore[attr-defined]
    if work.large and not wall:  # type: ignore[attr-defined]
        return 1e9 / float(work(400).stats["updates_per_second"])
    if not hasattr(work, "sweeps"):
        sweeps = 200
        while timed(sweeps) < max(0.25, 0.6 * (short := timed(20))) + short and sweeps < 10**7:
            sweeps *= 2
        work.sweeps = sweeps  # type: ignore[attr-defined]
    sweeps = work.sweeps  # type: ignore[attr-defined]
    return max((timed(sweeps) - timed(20)) / (sweeps - 20) * 1000.0, 1e-9)


def serve(gpu: bool) -> None:
    """Answer requests, one line each: the name of a row; seconds come back."""
    table, ready = rows(gpu), {}
    print(json.dumps(list(table)), flush=True)
    for line in sys.stdin:
        name = json.loads(line)
        try:
            if name not in ready:
                ready.clear()
                ready[name] = table[name]()
                seconds_of(ready[name], gpu)  # compiles
            answer: Any = seconds_of(ready[name], gpu)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:100]
        print(json.dumps(answer), flush=True)


# -- in the process that compares -----------------------------------------------------------------------------------


class Version:
    """A process that runs rows with the package of one source tree."""

    def __init__(self, source: Path, gpu: bool) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve", *(["--gpu"] if gpu else [])]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
        )
        self.rows = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a process of one version ended: run with --serve to see why")
        return json.loads(line)

    def __call__(self, name: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(name) + "\n")
        self.process.stdin.flush()
        return self.read()


def commit_of(folder: Path) -> str:
    """The commit of a folder, and whether what it holds differs from that."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or f"{folder}, of no known commit"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="6fce669")
    parser.add_argument("--source", type=Path, help="the src folder of an older version, instead of a commit")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--rows", nargs="*", default=[], help="only rows whose name contains one of these")
    parser.add_argument("--gpu", action="store_true", help="rows of an NVIDIA GPU, in wall-clock seconds")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.gpu)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        source = options.source
        if source is None:
            archive = subprocess.run(
                ["git", "archive", options.commit, "src"], cwd=ROOT, capture_output=True, check=True
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            source = Path(folder) / "src"
        old, new = Version(source, options.gpu), Version(ROOT / "src", options.gpu)
        worst = 1.0
        print(f"old: {commit_of(options.source) if options.source else options.commit}, new: {commit_of(ROOT)}")
        print(f"{'row':42} {'old':>10} {'new':>10} {'old/new':>8}   (medians of {options.repeat}, seconds)")
        for name in new.rows:
            if options.rows and not any(part in name for part in options.rows):
                continue
            pairs = []
            for turn in range(options.repeat):
                first, second = (old, new) if turn % 2 == 0 else (new, old)
                one, two = first(name), second(name)
                pairs.append((one, two) if turn % 2 == 0 else (two, one))
                if isinstance(one, str) or isinstance(two, str):
                    break
            if isinstance(pairs[-1][0], str) or isinstance(pairs[-1][1], str):
                print(f"{name:42} {pairs[-1][0]} | {pairs[-1][1]}", flush=True)
                continue
            before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
            worst = min(worst, before / after)
            print(f"{name:42} {before:10.4g} {after:10.4g} {before / after:8.2f}", flush=True)
    return int(worst < LEAST)


if __name__ == "__main__":
    sys.exit(main())
