"""Errors of marginals at equal CPU time: every method of fastmix, and the peers that have one, on the same models.

    python benchmarks/accuracy.py [--budgets 1 3 10 30] [--trials 20] [--other-trials 20] [--long-trials 20]
        [--families attractive-4 potts ...] [--methods tempered ...] [--data FOLDER] [--rows FILE]

Every method gets the same number of CPU seconds on one thread, after everything has been compiled by a first short
call: the clock that time limits are kept by is that of the process. Errors are total variation distances of marginals
from exact ones: the mean over variables and trials, and the largest of all.

Peers: dwave-samplers (Gibbs sampling by simulated annealing at a constant temperature, 1,000 chains), PGMax (loopy
belief propagation until nothing changes) and pyGMs (mean field) for binary models, pyAgrum (exact inference). What they
do not stop by a time limit is run to its end, once.

Rows go to a file one by one; the same command goes on where it stopped. The last table checks log Z: how often it is
within three of its stated standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
time.perf_counter = time.process_time  # type: ignore[assignment]  # so that limits are CPU seconds of this process
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from numpy.typing import NDArray

from fastmix import FastmixError, PairwiseMRF, infer
from fastmix.comparison import marginal_errors
from fastmix.instances import ising_grid, ising_random, potts_grid
from fastmix.io import read_evidence, read_model

FloatArray = NDArray[np.float64]

FIRST = ("auto", "tempered")  # what the figures to reach are about
OTHERS = ("swendsen-wang", "gibbs", "projected", "dwave-samplers")
UNTIMED = ("loopy-bp", "mean-field")  # they stop when they are done, long before any budget
UNTIMED_PEERS = ("PGMax", "pyGMs", "pyAgrum")
METHODS = (*FIRST, *OTHERS, *UNTIMED, *UNTIMED_PEERS)
LONG = 10.0  # seconds beyond which there may be fewer trials
MEAN_GOAL, WORST_GOAL = 0.02, 0.1  # of tempering on the grids, at 10 s


class Task(NamedTuple):
    """A method on a model."""

    family: str
    case: str
    method: str
    budget: float
    data: str | None


class Case(NamedTuple):
    """A model with its exact answer."""

    model: PairwiseMRF
    evidence: dict[int, int] | None
    exact: FloatArray
    log_z: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 3.0, 10.0, 30.0], metavar="SECONDS")
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="models of each family (default 20)")
    parser.add_argument(
        "--other-trials", type=int, metavar="N", help=f"fewer for methods other than {' and '.join(FIRST)}"
    )
    parser.add_argument("--long-trials", type=int, metavar="N", help=f"fewer for budgets over {LONG:g} s")
    parser.add_argument("--families", nargs="+", metavar="NAME", help=f"among {', '.join(FAMILIES)}; all by default")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=f"among {', '.join(METHODS)}; all by default")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of UAI files, for the family uai")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="where rows go, and are taken from if they are there")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), metavar="N", help="side by side (default: cores)"
    )
    parser.add_argument("--report", action="store_true", help="only print what the rows say")
    parser.add_argument("--quick", action="store_true", help="one second, two trials: a trial")
    options = parser.parse_args()
    if options.quick:
        options.budgets, options.trials = [1.0], 2
    for name in ("families", "methods"):
        known = FAMILIES if name == "families" else METHODS
        if unknown := set(getattr(options, name) or ()) - set(known):
            parser.error(f"--{name} must be among {', '.join(known)}, got {unknown.pop()}")
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()] if has_rows(options.rows) else []
    if not options.report:
        rows = run_all(options, rows)
    return report(rows, options)


def has_rows(path: Path | None) -> bool:
    return path is not None and path.exists()


def plan(options: argparse.Namespace) -> list[Task]:
    """All tasks, the most important ones first: a run that is stopped early has them."""
    stages: list[list[Task]] = [[], [], [], []]
    data = None if options.data is None else str(options.data)
    for family in options.families or FAMILIES:
        cases = list(FAMILIES[family](options))
        if not cases:
            print(f"{family}: left out, give the folder of the UAI files with --data", file=sys.stderr)
        for number, case in enumerate(cases):
            few = family != "uai" and options.other_trials is not None and number >= options.other_trials
            for method in options.methods or METHODS:
                if method in UNTIMED + UNTIMED_PEERS:
                    if method in UNTIMED or not few:
                        stages[1].append(Task(family, case, method, options.budgets[0], data))
                    continue
                for budget in options.budgets:
                    long = budget > LONG
                    if long and options.long_trials is not None and number >= options.long_trials:
                        continue
                    if method in OTHERS and few:
                        continue
                    stages[3 if long else 0 if method in FIRST else 2].append(Task(family, case, method, budget, data))
    return [task for stage in stages for task in stage]


def run_all(options: argparse.Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = {(r["family"], r["case"], r["method"], r["budget"]) for r in rows}
    tasks = [t for t in plan(options) if (t.family, t.case, t.method, t.budget) not in done]
    start = time.monotonic()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_task, task) for task in tasks]
        for count, future in enumerate(as_completed(futures), start=1):
            rows.append(future.result())
            if options.rows is not None:
                with options.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
            if sys.stderr.isatty() or count % 50 == 0:
                print(f"{count} of {len(tasks)} runs, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return rows


# -- tables ---------------------------------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]], options: argparse.Namespace) -> int:
    met = True
    for family in [name for name in FAMILIES if any(r["family"] == name for r in rows)]:
        here = [r for r in rows if r["family"] == family]
        budgets = sorted({r["budget"] for r in here})
        print(f"\n{family}: mean error / largest error of a variable (models), by CPU seconds")
        print(f"  {'':16}" + "".join(f"{f'{b:g} s':>25}" for b in budgets) + "   chosen or refused")
        for method in METHODS:
            mine = [r for r in here if r["method"] == method]
            if not mine:
                continue
            cells = []
            for budget in budgets:
                found = [r for r in mine if r["budget"] == budget and r["mean"] is not None]
                if not found:
                    cells.append("-")
                    continue
                mean, worst = np.mean([r["mean"] for r in found]), max(r["worst"] for r in found)
                cells.append(f"{mean:9.4f} /{worst:8.4f} ({len(found)})")
                if method == "tempered" and budget == LONG and family.split("-")[0] in ("attractive", "mixed"):
                    met &= bool(mean <= MEAN_GOAL and worst <= WORST_GOAL)
            notes = sorted({r["note"] for r in mine if r["note"]})
            print(f"  {method:16}" + "".join(f"{cell:>25}" for cell in cells) + f"   {'; '.join(notes)[:200]}")
    checked = [r for r in rows if r["log_z_error"] is not None]
    mixed = [r for r in checked if r["status"] != "not_mixed"]
    for name, chosen in (("all runs", checked), ("runs that call themselves mixed", mixed)):
        if chosen:
            inside = sum(abs(r["log_z_off"]) <= 3.0 * r["log_z_error"] for r in chosen)
            print(f"\nlog Z within three stated standard errors, {name}: {inside} of {len(chosen)} (to reach: 99 %)")
    print(f"tempered, mean and largest error on the grids at {LONG:g} s: {'met' if met else 'missed'}")
    return 0 if met else 1


# -- one run --------------------------------------------------------------------------------------------------------


def run_task(task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    case = load(task.family, task.case, task.data)
    row: dict[str, Any] = {**task._asdict(), "mean": None, "worst": None, "note": "", "status": None}
    row |= {"log_z_off": None, "log_z_error": None, "seconds": None}
    del row["data"]
    seed = int(task.case) if task.case.isdigit() else 0
    try:
        marginals = run_method(task.method, case, task.budget, seed, row)
    except (FastmixError, ImportError, RuntimeError) as error:
        row["note"] = f"refused: {' '.join(str(error).split())[:60]}"
        return row
    if not np.isfinite(marginals).all():
        row["note"] = "not finite"
        return row
    error = marginal_errors(case.model, marginals, case.exact)
    row |= {"mean": float(error.mean()), "worst": float(error.max())}
    return row


def run_method(method: str, case: Case, budget: float, seed: int, row: dict[str, Any]) -> FloatArray:
    if method in PEERS:
        return PEERS[method](case, budget, seed)
    options: dict[str, Any] = {"time_limit": budget} if method not in UNTIMED else {}
    if method != "loopy-bp":
        options["seed"] = seed
    if method in ("auto", "tempered", "swendsen-wang", "gibbs", "projected"):
        options["num_threads"] = 1
    if method in ("gibbs", "swendsen-wang", "projected"):
        options |= {"num_chains": 64, "num_sweeps": 10**9, "burn_in": 1000}
    warm(method, case)
    begin = time.process_time()
    result = infer(case.model, method=method, evidence=case.evidence, **options)
    row["seconds"] = time.process_time() - begin
    row["status"] = str(result.status)
    error = getattr(result, "log_z_std_error", None)
    if error is not None and result.log_z is not None:
        row |= {"log_z_off": result.log_z - case.log_z, "log_z_error": error}
    if method == "auto":
        row["note"] = result.method
    return result.node_marginals


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

    check_binary(case)
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


def run_pgmax(case: Case, budget: float, seed: int) -> FloatArray:
    import loopy_bp  # the benchmark beside this one

    check_binary(case)
    if not loopy_bp.make_environment():
        raise RuntimeError("cannot be installed here")
    return np.array(loopy_bp.ask_peer("pgmax", case.model, 1)["marginals"])


def run_pygms(case: Case, budget: float, seed: int) -> FloatArray:
    import loopy_bp

    check_binary(case)
    if not loopy_bp.make_environment():
        raise RuntimeError("cannot be installed here")
    return np.array(loopy_bp.ask_peer("pygms", case.model, 1)["marginals"])


def run_pyagrum(case: Case, budget: float, seed: int) -> FloatArray:
    import pyagrum

    from exact import pyagrum_model, pyagrum_posteriors

    check_binary(case)
    pyagrum.setNumberOfThreads(1)
    return np.array(pyagrum_posteriors(pyagrum_model(case.model), case.model)).reshape(-1)


PEERS: dict[str, Callable[[Case, float, int], FloatArray]] = {
    "dwave-samplers": run_dwave, "PGMax": run_pgmax, "pyGMs": run_pygms, "pyAgrum": run_pyagrum,
}  # fmt: skip


def check_binary(case: Case) -> None:
    """All variables have two states and nothing is forbidden or observed, as the peers' Ising models need."""
    model = case.model
    if case.evidence or not (model.num_states == 2).all() or not np.isfinite(model.log_pairwise).all():
        raise RuntimeError("binary models without evidence only")


# -- the models -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def load(family: str, case: str, data: str | None) -> Case:
    model, evidence = MAKERS[family](case, data)
    result = infer(model, method="exact", evidence=evidence)
    assert result.log_z is not None
    return Case(model, evidence, result.node_marginals, result.log_z)


def grid(attractive: bool, strength: float) -> Callable[[str, str | None], tuple[PairwiseMRF, None]]:
    def make(case: str, data: str | None) -> tuple[PairwiseMRF, None]:
        return ising_grid(16, 16, coupling_max=strength, attractive=attractive, seed=int(case)), None

    return make


def random_graph(case: str, data: str | None) -> tuple[PairwiseMRF, None]:
    seed = int(case)
    return ising_random(10, edge_probability=(0.3, 0.5, 0.7)[seed % 3], coupling_max=3.0, seed=seed), None


def potts(case: str, data: str | None) -> tuple[PairwiseMRF, None]:
    seed = int(case)
    return potts_grid(8, 8, num_states=3, coupling_max=3.0, attractive=bool(seed % 2), seed=seed), None


def uai(case: str, data: str | None) -> tuple[PairwiseMRF, dict[int, int] | None]:
    path = Path(data or ".") / case
    observed = read_evidence(f"{path}.evid") if Path(f"{path}.evid").exists() else {}
    return read_model(path, evidence=observed or None), dict(observed) or None


def trials(options: argparse.Namespace) -> Iterator[str]:
    return map(str, range(options.trials))


def files(options: argparse.Namespace) -> Iterator[str]:
    return (path.name for path in sorted(options.data.glob("*.uai"))) if options.data else iter(())


MAKERS: dict[str, Callable[[str, str | None], tuple[PairwiseMRF, dict[int, int] | None]]] = {
    **{
        f"{'attractive' if attractive else 'mixed'}-{strength:g}": grid(attractive, strength)
        for attractive in (True, False)
        for strength in (1.0, 2.0, 3.0, 4.0)
    },
    "random": random_graph, "potts": potts, "uai": uai,
}  # fmt: skip
FAMILIES: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = dict.fromkeys(MAKERS, trials) | {"uai": files}


if __name__ == "__main__":
    sys.exit(main())
