"""Other engines behind fastmix: proofs by toulbar2, counts by Ganak, and orders of elimination under a memory limit.

Three runs of each file of a most probable configuration: fastmix without the extra, fastmix with it, and toulbar2
alone, which gets the costs of the model given its evidence, without states that nothing supports. Two runs of each file
of log Z: fastmix with the extra, and Ganak alone on the formula of the model as it stands. Limits are seconds of the
clock; CPU seconds, those of the engine's process included, are printed beside them.

    pip install -e ".[map,count]"
    python benchmarks/engines.py --seconds 20 --map shared/uai-map/*.uai.gz
    python benchmarks/engines.py --seconds 60 --count shared/uai-hard/*.cnf.uai.gz
    python benchmarks/engines.py --orders shared/uai-hard/linkage_20.uai.gz
    python benchmarks/engines.py --seconds 60 --family
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import math
import resource
import time
from pathlib import Path
from unittest import mock

import numpy as np

import fastmix
from fastmix import MarkovRandomField, infer, most_probable
from fastmix._clock import Clock
from fastmix._engine import Engine
from fastmix.errors import FastmixError
from fastmix.exact.elimination import model_factors
from fastmix.exact.search import find_order
from fastmix.inference.ganak_worker import CountRequest
from fastmix.inference.weighted_formula import encode
from fastmix.model.reduce import reduce_model
from fastmix.modes import toulbar2_route
from fastmix.modes.toulbar2_route import CostScale
from fastmix.modes.toulbar2_worker import Network

GIB = 2.0**30


def cpu_seconds() -> float:
    """CPU seconds of this process and of those that it has ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def read(path: str):
    """The model of a file and its evidence."""
    model = fastmix.io.read_model(path)
    evidence = Path(path.removesuffix(".gz") + ".evid")
    return model, fastmix.io.read_evidence(evidence, model.num_states) if evidence.exists() else {}


def observed(model: MarkovRandomField, evidence: dict[int, int]) -> MarkovRandomField:
    """The model with its evidence as forbidden states, nothing else taken out."""
    unary = model.log_unary.copy()
    for variable, state in evidence.items():
        begin, end = model.unary_offsets[variable : variable + 2]
        others = np.arange(begin, end) != begin + state
        unary[begin:end][others] = -np.inf
    return model.replace(log_unary=unary)


def toulbar2_alone(model: MarkovRandomField, seconds: float):
    """The log-weight that toulbar2 finds in so many seconds, and whether it is proven."""
    factors = model_factors(model)
    costs = CostScale.of(factors, model.log_constant)
    network = Network(list(factors.num_states), costs.functions(factors), None, 1)
    clock = Clock(seconds)
    with Engine("fastmix.modes.toulbar2_worker:solve", network, seconds=seconds) as engine:
        outcome = engine.receive(clock)
        if outcome is None:
            engine.hurry()
            outcome = engine.receive(Clock(5.0))
    if outcome is None or outcome.states is None:
        return -math.inf, False
    return float(model.log_weight(np.array(outcome.states))), outcome.is_complete


def show_map(path: str, seconds: float) -> None:
    """Print the rows of a file of a most probable configuration."""
    model, evidence = read(path)
    for what in ("without", "with", "toulbar2"):
        begin = cpu_seconds()
        if what == "toulbar2":
            found, exact = toulbar2_alone(reduce_model(model, evidence, fold_single=True).model, seconds)
            gap = ""
        else:
            version = mock.patch.object(toulbar2_route, "engine_version", return_value=None)
            with version if what == "without" else mock.MagicMock():
                result = most_probable(model, evidence=evidence, time_limit=seconds, seed=0)
            found, exact, gap = result.log_weight, result.exact, f"gap {result.gap:.4g}, by {result.method}"
        proven = "proven" if exact else "      "
        print(
            f"{Path(path).name:28}{what:>10}{found / math.log(10.0):14.4f} {proven}"
            f"{cpu_seconds() - begin:8.1f} CPU s  {gap}",
            flush=True,
        )


def show_count(label: str, model: MarkovRandomField, evidence: dict[int, int], seconds: float) -> None:
    """Print the rows of a model whose log Z is wanted."""
    begin = cpu_seconds()
    try:
        result = infer(model, evidence=evidence, log_z=True, time_limit=seconds, seed=0)
        answer = f"{(result.log_z or math.nan) / math.log(10.0):16.9f} {result.log_z_kind}, by {result.method}"
    except FastmixError as error:
        answer = f"{'':>16} {type(error).__name__}"
    print(f"{label:28}{'fastmix':>10}{cpu_seconds() - begin:8.1f} CPU s {answer}", flush=True)
    begin = cpu_seconds()
    formula = encode(observed(model, evidence))
    request = CountRequest(formula.num_variables, formula.clauses, formula.log_weights, formula.log_range, [])
    with Engine("fastmix.inference.ganak_worker:count", request, seconds=seconds) as engine:
        total = engine.receive(Clock(seconds))
    answer = "no count" if total is None else f"{(total + formula.log_constant) / math.log(10.0):16.9f}"
    print(f"{label:28}{'ganak':>10}{cpu_seconds() - begin:8.1f} CPU s {answer}", flush=True)


def show_order(path: str) -> None:
    """Print what the search for an order finds where 8 GiB are all there is."""
    model, evidence = read(path)
    factors = model_factors(reduce_model(model, evidence, fold_single=True).model)
    begin = cpu_seconds()
    order = find_order(factors.num_states, factors.scopes, max_entries=8.0 * GIB / 8.0)
    took = cpu_seconds() - begin
    print(
        f"{Path(path).name:28} treewidth {order.width}, {order.total_entries:.3g} entries, {took:.1f} CPU s", flush=True
    )


# -- a generated family ------------------------------------------------------------------------------------------------


def mastermind(num_pegs: int, num_guesses: int, seed: int) -> MarkovRandomField:
    """A secret of two colors, and for each guess whether more than half of its pegs are right, by counters."""
    rng = np.random.default_rng(seed)
    secret = rng.integers(0, 2, num_pegs)
    counts = [2] * num_pegs
    factors = []
    for guess in rng.integers(0, 2, (num_guesses, num_pegs)):
        at_most_k(counts, factors, list(range(num_pegs)), guess.tolist(), int((guess == secret).sum()))
    return MarkovRandomField.from_factors(counts, factors)


def at_most_k(counts: list, factors: list, pegs: list, wanted: list, most: int) -> None:
    """Add that at most so many variables have the state wanted of them: a counter along them that never overflows."""
    before = None
    for peg, state in zip(pegs, wanted, strict=True):
        counter = len(counts)
        counts.append(most + 1)
        size = 1 if before is None else most + 1
        table = np.full((size, 2, most + 1), -np.inf)
        for already in range(size):
            for value in range(2):
                if already + (value == state) <= most:
                    table[already, value, already + (value == state)] = 0.0
        scope = (peg, counter) if before is None else (before, peg, counter)
        factors.append((scope, table[0] if before is None else table))
        before = counter


def noisy_or(num_causes: int, num_findings: int, seed: int) -> MarkovRandomField:
    """Findings that are all present, each by 40 causes that a chain of logical ORs joins after each has its noise."""
    rng = np.random.default_rng(seed)
    counts = [2] * num_causes
    factors = [((v,), np.log([0.9, 0.1])) for v in range(num_causes)]
    strengths = np.log(np.array([[[1.0, 1e-300], [0.5, 0.5]], [[1.0, 1e-300], [0.2, 0.8]]]))
    either = np.where(np.arange(8).reshape(2, 2, 2) >= 0, -np.inf, 0.0)
    for one, other in np.ndindex(2, 2):
        either[one, other, one | other] = 0.0
    for _ in range(num_findings):
        before = None
        for cause in rng.choice(num_causes, 40, replace=False).tolist():
            active = len(counts)
            counts.append(2)
            noise = strengths[rng.integers(2)]
            factors.append(((cause, active), np.where(noise < -600.0, -np.inf, noise)))
            if before is not None:
                joined = len(counts)
                counts.append(2)
                factors.append(((before, active, joined), either))
                active = joined
            before = active
        factors.append(((before,), np.array([-np.inf, 0.0])))
    return MarkovRandomField.from_factors(counts, factors)


def show_family(seconds: float) -> None:
    """Print the rows of generated models, each kind up to where the time ends."""
    for size in (10, 14, 18):
        show_count(f"mastermind {size}, {size // 2} guesses", mastermind(size, size // 2, size), {}, seconds)
    for size in (2, 4, 8):
        show_count(f"noisy-OR of 40, {size} findings", noisy_or(60, size, size), {}, seconds)
    for size in (100, 400):
        counts: list = [2] * size
        factors: list = [((v,), np.log([0.5, 0.5])) for v in range(size)]
        at_most_k(counts, factors, list(range(size)), [1] * size, 10)
        show_count(f"at most 10 of {size}", MarkovRandomField.from_factors(counts, factors), {}, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--map", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--count", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--orders", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--family", action="store_true")
    options = parser.parse_args()
    for path in options.map:
        show_map(path, options.seconds)
    for path in options.count:
        model, evidence = read(path)
        show_count(Path(path).name, model, evidence, options.seconds)
    for path in options.orders:
        show_order(path)
    if options.family:
        show_family(options.seconds)


if __name__ == "__main__":
    main()
