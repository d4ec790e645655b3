"""Errors of marginals at equal CPU time: every method of fastmix, and the peers that have one, on the same models.

    python benchmarks/accuracy.py [--budgets 1 3 10] [--trials 20] [--families attractive-4 potts ...] [--data FOLDER]

Every method gets the same number of seconds on one thread, after everything has been compiled by a first short call.
Errors are total variation distances of marginals from exact ones: the mean over variables and trials, and the largest
of all. Peers: dwave-samplers (Gibbs sampling by simulated annealing at a constant temperature), PGMax (loopy belief
propagation until nothing changes) for binary models; pyAgrum and pyGMs have exact inference and mean field for such
models, which the times of benchmarks/exact.py and benchmarks/loopy_bp.py cover.

The last table checks log Z: how often it is within three of its stated standard errors.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from numpy.typing import NDArray

from fastmix import FastmixError, PairwiseMRF, infer
from fastmix.comparison import marginal_errors
from fastmix.instances import ising_grid, ising_random, potts_grid
from fastmix.io import read_evidence, read_model

FloatArray = NDArray[np.float64]

OURS = ("auto", "tempered", "swendsen-wang", "gibbs", "projected", "loopy-bp", "mean-field")
UNTIMED = ("loopy-bp", "mean-field")  # they stop when they are done, long before any budget
PEERS = ("dwave-samplers", "PGMax")
MEAN_GOAL, WORST_GOAL = 0.02, 0.1  # of tempering on the grids, at 10 s


class Case(NamedTuple):
    """A model with its exact answer."""

    model: PairwiseMRF
    evidence: dict[int, int] | None
    exact: FloatArray
    log_z: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 3.0, 10.0], metavar="SECONDS")
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="models of each family (default 20)")
    parser.add_argument("--families", nargs="+", metavar="NAME", help=f"among {', '.join(FAMILIES)}; all by default")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=f"among {', '.join(OURS + PEERS)}")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of UAI files, for the family uai")
    parser.add_argument("--quick", action="store_true", help="one second, two trials: a trial")
    options = parser.parse_args()
    if options.quick:
        options.budgets, options.trials = [1.0], 2
    names = options.families or list(FAMILIES)
    if unknown := set(names) - set(FAMILIES):
        parser.error(f"--families must be among {', '.join(FAMILIES)}, got {unknown.pop()}")
    methods = options.methods or [*OURS, *PEERS]
    log_z: list[tuple[float, float]] = []
    short = False
    for name in names:
        cases = list(FAMILIES[name](options))
        if not cases:
            print(f"\n{name}: left out, give the folder of the UAI files with --data")
            continue
        short |= not run_family(name, cases, methods, options.budgets, log_z)
    if log_z:
        inside = sum(abs(off) <= 3.0 * error for off, error in log_z)
        print(f"\nlog Z within three stated standard errors: {inside} of {len(log_z)} (to reach: 99 %)")
    return 1 if short else 0


def run_family(
    name: str, cases: list[Case], methods: list[str], budgets: list[float], log_z: list[tuple[float, float]]
) -> bool:
    print(f"\n{name}: {len(cases)} models; mean error / largest error of a variable, by CPU seconds")
    print(f"  {'':16}" + "".join(f"{f'{b:g} s':>19}" for b in budgets) + "   chosen or refused")
    met = True
    for method in methods:
        cells, notes = [], set()
        for budget in budgets if method not in UNTIMED else budgets[:1]:
            means, worst = [], 0.0
            for number, case in enumerate(cases):
                try:
                    marginals, note = run_method(method, case, budget, number, log_z)
                except (FastmixError, ImportError, RuntimeError) as error:
                    notes.add(f"refused: {' '.join(str(error).split())[:60]}")
                    continue
                notes.add(note)
                error = marginal_errors(case.model, marginals, case.exact)
                means.append(error.mean())
                worst = max(worst, float(error.max()))
            cells.append(f"{np.mean(means):9.4f} /{worst:8.4f}" if means else "-")
            if means and method == "tempered" and budget == 10.0 and name.split("-")[0] in ("attractive", "mixed"):
                met &= bool(np.mean(means) <= MEAN_GOAL and worst <= WORST_GOAL)
        notes.discard("")
        print(
            f"  {method:16}" + "".join(f"{cell:>19}" for cell in cells) + f"   {', '.join(sorted(notes))}", flush=True
        )
    return met


def run_method(
    method: str, case: Case, budget: float, seed: int, log_z: list[tuple[float, float]]
) -> tuple[FloatArray, str]:
    if method == "dwave-samplers":
        return run_dwave(case, budget, seed), ""
    if method == "PGMax":
        return run_pgmax(case), ""
    options: dict[str, Any] = {"time_limit": budget} if method not in UNTIMED else {}
    if method != "loopy-bp":
        options["seed"] = seed
    if method in ("auto", "tempered", "swendsen-wang", "gibbs", "projected"):
        options["num_threads"] = 1
    if method in ("gibbs", "swendsen-wang", "projected"):
        options |= {"num_chains": 64, "num_sweeps": 10**9, "burn_in": 1000}
    warm(method, case)
    result = infer(case.model, method=method, evidence=case.evidence, **options)
    error = getattr(result, "log_z_std_error", None)
    if error is not None and result.log_z is not None:
        log_z.append((result.log_z - case.log_z, error))
    return result.node_marginals, result.method if method == "auto" else ""


_WARM: set[tuple[str, bool]] = set()


def warm(method: str, case: Case) -> None:
    """Compile what a method needs for models of this kind, outside the time that is measured."""
    key = method, bool((case.model.num_states == 2).all())
    if key not in _WARM and method not in UNTIMED:
        _WARM.add(key)
        infer(case.model, method=method, evidence=case.evidence, time_limit=0.5, seed=0, num_threads=1)


# -- the peers ------------------------------------------------------------------------------------------------------


def run_dwave(case: Case, budget: float, seed: int) -> FloatArray:
    """As many sweeps of 1,000 chains as fit into the time, estimated from a short run."""
    from sampling import Dwave  # the benchmark beside this one

    if case.evidence or not is_binary(case.model):
        raise RuntimeError("binary models without evidence only")
    trial = Dwave(case.model, 1000, 20)
    trial.prepare()
    begin = time.process_time()
    trial.run()
    sweeps = max(1, int(20 * budget / max(1e-4, time.process_time() - begin)))
    sampler = Dwave(case.model, 1000, sweeps)
    sampler.seed = seed
    sampler.prepare()
    sampler.run()
    sampler.keep()
    return sampler.answer()[0]


def run_pgmax(case: Case) -> FloatArray:
    import loopy_bp  # the benchmark beside this one

    if case.evidence or not is_binary(case.model):
        raise RuntimeError("binary models without evidence only")
    if not loopy_bp.make_environment():
        raise RuntimeError("cannot be installed here")
    return np.array(loopy_bp.ask_peer("pgmax", case.model, 1)["marginals"])


def is_binary(model: PairwiseMRF) -> bool:
    """Whether all variables have two states and nothing is forbidden, as the peers' Ising models need."""
    return bool((model.num_states == 2).all()) and bool(np.isfinite(model.log_pairwise).all())


# -- the models -----------------------------------------------------------------------------------------------------


def solved(model: PairwiseMRF, evidence: dict[int, int] | None = None) -> Case:
    result = infer(model, method="exact", evidence=evidence)
    assert result.log_z is not None
    return Case(model, evidence, result.node_marginals, result.log_z)


def grids(attractive: bool, strength: float) -> Callable[[argparse.Namespace], Iterator[Case]]:
    def make(options: argparse.Namespace) -> Iterator[Case]:
        for seed in range(options.trials):
            yield solved(ising_grid(16, 16, coupling_max=strength, attractive=attractive, seed=seed))

    return make


def random_graphs(options: argparse.Namespace) -> Iterator[Case]:
    for seed in range(options.trials):
        density = (0.3, 0.5, 0.7)[seed % 3]
        yield solved(ising_random(10, edge_probability=density, coupling_max=3.0, seed=seed))


def potts(options: argparse.Namespace) -> Iterator[Case]:
    for seed in range(options.trials):
        yield solved(potts_grid(8, 8, num_states=3, coupling_max=3.0, attractive=bool(seed % 2), seed=seed))


def uai(options: argparse.Namespace) -> Iterator[Case]:
    for path in sorted(options.data.glob("*.uai")) if options.data else []:
        observed = read_evidence(f"{path}.evid") if Path(f"{path}.evid").exists() else {}
        try:
            yield solved(read_model(path, evidence=observed or None), observed or None)
        except FastmixError as error:
            print(f"{path.name}: {error}", file=sys.stderr)


FAMILIES: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    f"{'attractive' if attractive else 'mixed'}-{strength:g}": grids(attractive, strength)
    for attractive in (True, False)
    for strength in (1.0, 2.0, 3.0, 4.0)
} | {"random": random_graphs, "potts": potts, "uai": uai}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    warnings.simplefilter("ignore")
    sys.exit(main())
