"""Which moves of replica exchange pay: errors of marginals with each of them and combinations, at equal CPU time.

    python benchmarks/moves.py [--seconds 2.5] [--trials 6] [--families attractive-2 potts-mixed ...]

Every combination of moves gets the same models, the same seeds and the same number of CPU seconds on one thread, after
a first short call that compiles. The clock of a run is the CPU time of the process, so that other work on the machine
takes nothing from it, and the combinations take turns. The defaults take about 6 minutes, ``--quick`` about one.

Columns: the mean error, a total variation distance to exact marginals, over variables and models; by how much it
changes against the first combination, none by default, as the geometric mean over models and the factor of one standard
error; the standard error that the independent ensembles of a run show, a less noisy measure of the same thing unless
all of them are stuck; its change; round trips per second of all ensembles together; the largest R-hat, its median over
models; and sweeps. ``--pairs-every`` makes moves more or less often.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from numpy.typing import NDArray

from fastmix import MarkovRandomField, UnfitMethodError, _clock, infer, temper
from fastmix.inference.compare import marginal_errors
from fastmix.instances import ising_grid, ising_regular, potts_grid
from fastmix.sampling.tempering import ladder

FloatArray = NDArray[np.float64]

COMBINATIONS: tuple[tuple[str, ...], ...] = ((), ("houdayer",))
FAMILIES: dict[str, Callable[[int], MarkovRandomField]] = {
    "attractive-2": lambda seed: ising_grid(16, 16, coupling_max=2.0, attractive=True, seed=seed),
    "attractive-4": lambda seed: ising_grid(16, 16, coupling_max=4.0, attractive=True, seed=seed),
    "mixed-2": lambda seed: ising_grid(16, 16, coupling_max=2.0, seed=seed),
    "mixed-4": lambda seed: ising_grid(16, 16, coupling_max=4.0, seed=seed),
    "potts-mixed": lambda seed: potts_grid(8, 8, num_states=3, coupling_max=3.0, seed=seed),
    "potts-attractive": lambda seed: potts_grid(8, 8, num_states=3, coupling_max=3.0, attractive=True, seed=seed),
    "regular": lambda seed: ising_regular(100, 3, coupling_max=3.0, seed=seed),
}


class Measured(NamedTuple):
    """One run."""

    error: float
    spread: float
    trips_per_second: float
    r_hat: float
    num_sweeps: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.5, metavar="S", help="CPU seconds of a run (default 2.5)")
    parser.add_argument("--trials", type=int, default=6, metavar="N", help="models of each family (default 6)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="of the models (default 0)")
    parser.add_argument("--families", nargs="+", metavar="NAME", help=f"among {', '.join(FAMILIES)}; all by default")
    parser.add_argument(
        "--moves",
        nargs="+",
        metavar="MOVES",
        help="none, houdayer; all by default",
    )
    parser.add_argument("--quick", action="store_true", help="one second, two models: a trial")
    default = ladder.PAIRS_EVERY
    parser.add_argument("--pairs-every", type=int, default=default, metavar="ROUNDS", help=f"default {default}")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.trials = 1.0, 2
    names = options.families or list(FAMILIES)
    if unknown := set(names) - set(FAMILIES):
        parser.error(f"--families must be among {', '.join(FAMILIES)}, got {unknown.pop()}")
    combinations = COMBINATIONS
    if options.moves is not None:
        combinations = tuple(() if text == "none" else tuple(text.split("+")) for text in options.moves)
    ladder.PAIRS_EVERY = options.pairs_every
    _clock.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined]
    print(f"{options.seconds:g} CPU seconds on one thread; load average {os.getloadavg()[0]:.1f}")
    for name in names:
        run_family(name, combinations, options.seconds, range(options.first_seed, options.first_seed + options.trials))
    return 0


def run_family(name: str, combinations: tuple[tuple[str, ...], ...], seconds: float, seeds: range) -> None:
    models = [FAMILIES[name](seed) for seed in seeds]
    exact = [infer(model, method="exact").node_marginals for model in models]
    print(f"\n{name}: {len(seeds)} models")
    print(f"  {'moves':38} {'error':>7} {'change':>14} {'spread':>8} {'change':>14} {'trips/s':>8} {'R-hat':>6} sweeps")
    fitting = [moves for moves in combinations if fits(models[0], moves)]
    runs: dict[tuple[str, ...], list[Measured]] = {moves: [] for moves in fitting}
    for k, seed in enumerate(seeds):
        # In turns, each time from another one on: how much a CPU second does depends on what else the machine does.
        for turn in range(len(fitting)):
            moves = fitting[(k + turn) % len(fitting)]
            runs[moves].append(measure(models[k], exact[k], moves, seconds, seed))
    plain = runs[fitting[0]]
    for moves, results in runs.items():
        print(
            f"  {'+'.join(moves) or 'none':38} {mean(results, 'error'):7.5f} {change(results, plain, 'error'):>14}"
            f" {mean(results, 'spread'):8.5f} {change(results, plain, 'spread'):>14}"
            f" {mean(results, 'trips_per_second'):8.1f} {np.median([r.r_hat for r in results]):6.3f}"
            f" {mean(results, 'num_sweeps'):.0f}",
            flush=True,
        )


def fits(model: MarkovRandomField, moves: tuple[str, ...]) -> bool:
    """Whether the moves are for such a model; what they need is compiled on the way."""
    try:
        temper(model, moves=moves, num_sweeps=30, burn_in=30, seed=0, num_threads=1)
    except UnfitMethodError:
        return False
    return True


def measure(model: MarkovRandomField, exact: FloatArray, moves: tuple[str, ...], seconds: float, seed: int) -> Measured:
    begin = time.process_time()
    result = temper(model, moves=moves, time_limit=seconds, seed=seed, num_threads=1)
    used = time.process_time() - begin
    if used > 1.3 * seconds:
        print(f"  {'+'.join(moves) or 'none'} took {used:.2f} s", file=sys.stderr)
    trips = float(result.round_trips.sum())
    # The stated error has one over the number of round trips added to its square.
    spread = np.sqrt(np.maximum(0.0, result.std_error**2 - 1.0 / (trips + 1.0) ** 2))
    return Measured(
        error=float(marginal_errors(model, result.node_marginals, exact).mean()),
        spread=float(spread.mean()),
        trips_per_second=trips / used,
        r_hat=float(result.r_hat.max()),
        num_sweeps=int(result.stats["num_sweeps"]),
    )


def mean(runs: list[Measured], field: str) -> float:
    return float(np.mean([getattr(r, field) for r in runs]))


def change(runs: list[Measured], plain: list[Measured], field: str) -> str:
    """Ratio to the runs of the first combination, model by model, with the factor of one standard error."""
    pairs: list[tuple[Any, Any]] = [(getattr(a, field), getattr(b, field)) for a, b in zip(runs, plain, strict=True)]
    logs = np.log([(a + 1e-7) / (b + 1e-7) for a, b in pairs])
    error = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.inf
    return f"x{np.exp(logs.mean()):.2f} */{np.exp(error):.2f}"


if __name__ == "__main__":
    sys.exit(main())
