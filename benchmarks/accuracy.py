"""Errors of marginals at equal CPU time: every method of fastmix, and the peers that have one, on the same models.

    python benchmarks/accuracy.py [--budgets 1 3 10 30] [--trials 20] [--long-trials 20]
        [--families attractive-4 potts ...] [--methods tempered ...] [--data FOLDER] [--rows FILE]

Every method gets the same number of CPU seconds on one thread, after everything has been compiled by a first short
call: the clock that time limits are kept by is that of the process. Errors are total variation distances of marginals
from exact ones: the mean over variables and trials, and the largest of all.

Gibbs sampling and Swendsen-Wang are looked at after each budget in one run that goes on. Projected sampling stops when
its sweeps are done, mostly within 3 s: larger budgets get the same answer.

Peers: dwave-samplers (Gibbs sampling by simulated annealing at a constant temperature, 1,000 chains), PGMax (loopy
belief propagation until nothing changes) and pyGMs (mean field) for binary models, pyAgrum (exact inference). What they
do not stop by a time limit is run to its end, once.

Rows go to a file as they come; the same command goes on where it stopped. The last table checks log Z: how often it is
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

from fastmix import FastmixError, MarkovRandomField, infer, sample
from fastmix.inference.compare import marginal_errors
from fastmix.instances import ising_grid, ising_random, potts_grid
from fastmix.io import read_evidence, read_model

FloatArray = NDArray[np.float64]

FIRST = ("auto", "tempered")  # what the figures to reach are about
CHAINS = ("gibbs", "swendsen-wang", "dwave-samplers")  # runs that go on from one budget to the next
UNTIMED = ("loopy-bp", "mean-field", "PGMax", "pyAgrum", "pyGMs")  # they stop when they are done
METHODS = (*FIRST, "projected", *CHAINS, *UNTIMED)
LONG = 10.0  # seconds beyond which there may be fewer trials
MEAN_GOAL, WORST_GOAL = 0.02, 0.1  # of tempering on the grids, at 10 s


class Task(NamedTuple):
    """A method on a model, to be looked at after each budget."""

    family: str
    case: str
    method: str
    budgets: tuple[float, ...]
    data: str | None


class Case(NamedTuple):
    """A model with its exact answer; real ones have a name."""

    name: str
    model: MarkovRandomField
    evidence: dict[int, int] | None
    exact: FloatArray
    log_z: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 3.0, 10.0, 30.0], metavar="SECONDS")
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="models of each family (default 20)")
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


def plan(options: argparse.Namespace, done: set[tuple[str, str, str, float]]) -> list[Task]:
    """What is not done yet, the most important first and model by model: a run that is stopped early says something."""
    tasks = []
    data = None if options.data is None else str(options.data)
    for place, family in enumerate(options.families or FAMILIES):
        cases = list(FAMILIES[family](options))
        if not cases:
            print(f"{family}: left out, give the folder of the UAI files with --data", file=sys.stderr)
        for number, case in enumerate(cases):
            few = family != "uai" and options.long_trials is not None and number >= options.long_trials
            budgets = tuple(b for b in sorted(options.budgets) if b <= LONG or not few)
            for method in options.methods or METHODS:
                wanted = budgets[:1] if method in UNTIMED else budgets
                missing = tuple(b for b in wanted if (family, case, method, b) not in done)
                if not missing:
                    continue
                if method in CHAINS:
                    tasks.append(((2, number, place), Task(family, case, method, wanted, data)))
                elif method in FIRST:
                    tasks += [
                        (
                            (3 if b > LONG and method == "tempered" else 0, number, place),
                            Task(family, case, method, (b,), data),
                        )
                        for b in missing
                    ]
                else:
                    tasks.append(
                        ((4 if method == "pyGMs" else 1, number, place), Task(family, case, method, missing, data))
                    )
    return [task for _, task in sorted(tasks, key=lambda pair: pair[0])]


def run_all(options: argparse.Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = {(r["family"], r["case"], r["method"], r["budget"]) for r in rows}
    tasks = plan(options, done)
    start = time.monotonic()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_task, task) for task in tasks]
        for count, future in enumerate(as_completed(futures), start=1):
            new = [r for r in future.result() if (r["family"], r["case"], r["method"], r["budget"]) not in done]
            rows += new
            if options.rows is not None:
                with options.rows.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in new)
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


class Answer(NamedTuple):
    """Marginals after a budget, and what else a row says."""

    budget: float
    marginals: FloatArray
    facts: dict[str, Any]


def run_task(task: Task) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    case = load(task.family, task.case, task.data)
    empty: dict[str, Any] = {"mean": None, "worst": None, "note": "", "status": None}
    empty |= {"log_z_off": None, "log_z_error": None, "seconds": None}
    rows = {
        b: {"family": task.family, "case": task.case, "method": task.method, "budget": b, **empty} for b in task.budgets
    }
    seed = int(task.case) if task.case.isdigit() else 0
    try:
        for answer in answers(task.method, case, task.budgets, seed):
            row = rows[answer.budget]
            row |= answer.facts
            if not np.isfinite(answer.marginals).all():
                row["note"] = "not finite"
                continue
            error = marginal_errors(case.model, answer.marginals, case.exact)
            row |= {"mean": float(error.mean()), "worst": float(error.max())}
    except Exception as error:  # one model less, not the end of hours of work
        word = "refused" if isinstance(error, FastmixError | ImportError | RuntimeError) else "failed"
        for row in rows.values():
            if row["mean"] is None:
                row["note"] = f"{word}: {' '.join(str(error).split())[:60]}"
    return list(rows.values())


def answers(method: str, case: Case, budgets: tuple[float, ...], seed: int) -> Iterator[Answer]:
    if method in PEERS:
        yield Answer(budgets[0], PEERS[method](case), {})
    elif method == "dwave-samplers":
        yield from dwave_answers(case, budgets, seed)
    elif method in CHAINS:
        warm(method, case, budgets[0])
        yield from chain_answers(method, case, budgets, seed)
    else:
        warm(method, case, budgets[0])
        yield from method_answers(method, case, budgets, seed)


def method_answers(method: str, case: Case, budgets: tuple[float, ...], seed: int) -> Iterator[Answer]:
    """A run for each budget, except that one that ended by itself is the answer for larger budgets too."""
    options: dict[str, Any] = {} if method == "loopy-bp" else {"seed": seed}
    if method not in UNTIMED:
        options["num_threads"] = 1
    answer = None
    for budget in budgets:
        if answer is None or answer.facts["status"] == "time_limit" or method != "projected":
            limit = {} if method in UNTIMED else {"time_limit": budget}
            begin = time.process_time()
            result = infer(case.model, method=method, evidence=case.evidence, **options, **limit)
            facts = {"seconds": time.process_time() - begin, "status": str(result.status)}
            error = getattr(result, "log_z_std_error", None)
            if error is not None and result.log_z is not None:
                facts |= {"log_z_off": result.log_z - case.log_z, "log_z_error": error}
            if method == "auto":
                facts["note"] = result.method
            answer = Answer(budget, result.node_marginals, facts)
        yield answer._replace(budget=budget)


def chain_answers(method: str, case: Case, budgets: tuple[float, ...], seed: int) -> Iterator[Answer]:
    """One run of 64 chains, its averages after each budget; the first of its parts has the burn-in."""
    options: dict[str, Any] = {"method": method, "num_sweeps": 10**9, "seed": seed, "num_threads": 1}
    total, sweeps, spent = np.zeros(len(case.model.log_unary)), 0, 0.0
    start: dict[str, Any] = {"num_chains": 64, "burn_in": 1000}
    for budget in budgets:
        begin = time.process_time()
        result = sample(case.model, evidence=case.evidence, time_limit=budget - spent, **start, **options)
        spent += time.process_time() - begin
        count = int(result.stats["num_sweeps"])
        total, sweeps = total + count * result.node_marginals, sweeps + count
        yield Answer(budget, total / sweeps, {"seconds": spent, "status": str(result.status)})
        start = {"start": result}


_WARM: set[tuple[str, bool | str]] = set()


def warm(method: str, case: Case, budget: float) -> None:
    """Compile what a method needs for models of this kind, outside the time that is measured.

    On a tiny model first, without a limit: under a short one, what is not compiled yet would be done without.
    """
    binary = bool((case.model.num_states == 2).all())
    # Real models differ in the kernels they need, and in what auto takes; the others are of two kinds.
    key = method, case.model.content_hash if case.name else binary
    if key in _WARM or method in UNTIMED:
        return
    _WARM.add(key)
    shape: dict[str, Any] = {"coupling_max": 3.0, "attractive": True, "seed": 0}
    tiny = ising_grid(4, 4, **shape) if binary else potts_grid(3, 3, num_states=3, **shape)
    for name in ("gibbs", "tempered", "projected") if method == "auto" else (method,):
        infer(tiny, method=name, num_sweeps=50, burn_in=50, seed=0, num_threads=1)
    infer(case.model, method=method, evidence=case.evidence, time_limit=min(budget, 3.0), seed=0, num_threads=1)


# -- the peers ------------------------------------------------------------------------------------------------------


def dwave_answers(case: Case, budgets: tuple[float, ...], seed: int) -> Iterator[Answer]:
    """As many sweeps of 1,000 chains as fit into each budget, estimated from a short run; their last states count."""
    from sampling import Dwave, LastStates  # the benchmark beside this one

    check_binary(case)
    sampler, spent = Dwave(case.model, 1000, 100), 0.0
    sampler.seed = 1000 * seed
    sampler.prepare()
    for budget in (0.0, *budgets):  # the first run is only for the speed
        begin = time.process_time()
        sampler.run()
        seconds = time.process_time() - begin
        if budget:
            spent += seconds
            sampler.start, sampler.last = sampler.result, LastStates(case.model.num_variables)
            sampler.keep()
            yield Answer(budget, sampler.answer()[0], {"seconds": spent})
        later = [b for b in budgets if b > budget]
        sampler.num_sweeps = max(1, int(sampler.num_sweeps * (min(later, default=0.0) - spent) / max(1e-4, seconds)))
        sampler.prepare()


def run_pgmax(case: Case) -> FloatArray:
    import loopy_bp  # the benchmark beside this one

    check_binary(case)
    if not loopy_bp.make_environment():
        raise RuntimeError("cannot be installed here")
    return np.array(loopy_bp.ask_peer("pgmax", case.model, 1)["marginals"])


def run_pygms(case: Case) -> FloatArray:
    import loopy_bp

    check_binary(case)
    if not loopy_bp.make_environment():
        raise RuntimeError("cannot be installed here")
    return np.array(loopy_bp.ask_peer("pygms", case.model, 1)["marginals"])


def run_pyagrum(case: Case) -> FloatArray:
    import pyagrum

    from exact import pyagrum_model, pyagrum_posteriors

    check_binary(case)
    pyagrum.setNumberOfThreads(1)
    return np.array(pyagrum_posteriors(pyagrum_model(case.model), case.model)).reshape(-1)


PEERS: dict[str, Callable[[Case], FloatArray]] = {
    "PGMax": run_pgmax, "pyGMs": run_pygms, "pyAgrum": run_pyagrum,
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
    return Case("" if case.isdigit() else case, model, evidence, result.node_marginals, result.log_z)


def grid(attractive: bool, strength: float) -> Callable[[str, str | None], tuple[MarkovRandomField, None]]:
    def make(case: str, data: str | None) -> tuple[MarkovRandomField, None]:
        return ising_grid(16, 16, coupling_max=strength, attractive=attractive, seed=int(case)), None

    return make


def random_graph(case: str, data: str | None) -> tuple[MarkovRandomField, None]:
    seed = int(case)
    return ising_random(10, edge_probability=(0.3, 0.5, 0.7)[seed % 3], coupling_max=3.0, seed=seed), None


def potts(case: str, data: str | None) -> tuple[MarkovRandomField, None]:
    seed = int(case)
    return potts_grid(8, 8, num_states=3, coupling_max=3.0, attractive=bool(seed % 2), seed=seed), None


def uai(case: str, data: str | None) -> tuple[MarkovRandomField, dict[int, int] | None]:
    path = Path(data or ".") / case
    observed = read_evidence(f"{path}.evid") if Path(f"{path}.evid").exists() else {}
    return read_model(path), dict(observed) or None


def trials(options: argparse.Namespace) -> Iterator[str]:
    return map(str, range(options.trials))


def files(options: argparse.Namespace) -> Iterator[str]:
    return (path.name for path in sorted(options.data.glob("*.uai"))) if options.data else iter(())


MAKERS: dict[str, Callable[[str, str | None], tuple[MarkovRandomField, dict[int, int] | None]]] = {
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
