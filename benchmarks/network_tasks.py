"""Interventions, marginal MAP, counting and EM on BIF files: fastmix beside pgmpy and pyAgrum, in the same run.

    python benchmarks/network_tasks.py FOLDER/alarm.bif.gz ..

The same network and the same ancestral rows go to all sides. Each task is done once before the clock runs, then
``--repeat`` times by fastmix (the median counts) and once by the others; CPU seconds, one thread. Beside each ratio is
the largest difference: of probabilities, of log-probabilities of the states found, or of entries of tables. EM of
pyAgrum stops by its own rule: its column has the difference of the log-likelihoods per row, ours less theirs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

from fastmix import BayesianNetwork, convert, fit_network, infer, most_probable
from fastmix.io import read_network

ROWS = 5000
MISSING = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="BIF files")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of fastmix (default 5)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the neighbors
    print(f"{'':12}{'task':16}{'peer':9}{'fastmix s':>11}{'peer s':>11}{'ratio':>9}{'difference':>12}")
    for path in options.paths:
        network = read_network(path)
        for task in (intervene, explain, count, fill):
            for peer, ours, theirs, compare in task(network):
                ours()
                seconds = statistics.median([timed(ours)[0] for _ in range(options.repeat)])
                other, answer = timed(theirs)
                difference = compare(ours(), answer)
                name = path.name.split(".")[0]
                ratio = other / seconds
                print(
                    f"{name:12}{task.__name__:16}{peer:9}{seconds:11.4g}{other:11.4g}{ratio:9.3g}{difference:12.1e}",
                    flush=True,
                )
    return 0


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it gives."""
    start = time.process_time()
    answer = function()
    return time.process_time() - start, answer


def intervene(network: BayesianNetwork) -> list[Any]:
    """Set a variable with parents and children, and ask for the last of those that follow."""
    from pgmpy.inference import VariableElimination

    has_children = {p for own in network.parents for p in own}
    cause = next(v for v in network.order if network.parents[v] and v in has_children)
    effect = next(i for i, own in enumerate(network.parents) if cause in own)
    name, state = network.variable_names[cause], network.state_names[cause][0]
    target = network.variable_names[effect]
    there = convert(network, to="pgmpy")

    def theirs() -> Any:
        query = VariableElimination(there.do([name])).query([target], evidence={name: state}, show_progress=False)
        order = [query.state_names[target].index(label) for label in network.state_names[effect]]
        return query.values[order]

    def ours() -> Any:
        return infer(network.do({name: state}).ancestral([target]).to_model(), method="exact").marginal(target)

    return [("pgmpy", ours, theirs, lambda a, b: float(np.abs(a - b).max()))]


def explain(network: BayesianNetwork) -> list[Any]:
    """The most probable states of five variables, all others summed out."""
    from pgmpy.inference import VariableElimination

    chosen = np.random.default_rng(0).choice(network.num_variables, 5, replace=False).tolist()
    names = [network.variable_names[v] for v in chosen]
    model = network.to_model()
    elimination = VariableElimination(convert(network, to="pgmpy"))

    def theirs() -> Any:
        found = elimination.map_query(names, show_progress=False)
        return infer(model, evidence=found, method="exact").log_z

    def ours() -> Any:
        return most_probable(model, variables=names).log_weight

    return [("pgmpy", ours, theirs, lambda a, b: float(a - b))]


def count(network: BayesianNetwork) -> list[Any]:
    """Tables from complete rows: without a prior beside pgmpy, with a count of 1 beside pyAgrum."""
    import pyagrum

    rows = network.sample(ROWS, seed=0)
    frame = frame_of(network, rows)
    there = convert(network, to="pgmpy")
    template = convert(network, to="pyagrum")

    def ours() -> Any:
        return fit_network(frame, structure=network, pseudo_count=0.0).network

    def pgmpy() -> Any:
        there.fit(frame)
        return there

    def smoothed() -> Any:
        return fit_network(frame, structure=network, pseudo_count=1.0).network

    def agrum() -> Any:
        learner = pyagrum.BNLearner(frame, template)
        learner.useSmoothingPrior(1.0)  # without a prior it refuses states of parents that do not occur
        return learner.learnParameters(template.dag())

    compare = seen_difference(network, rows)
    return [("pgmpy", ours, pgmpy, compare), ("pyAgrum", smoothed, agrum, compare)]


def fill(network: BayesianNetwork) -> list[Any]:
    """Tables from rows with a tenth of their values missing, by EM."""
    import pyagrum

    rows = network.sample(ROWS, seed=0)
    rows[np.random.default_rng(1).random(rows.shape) < MISSING] = -1
    frame = frame_of(network, rows)
    template = convert(network, to="pyagrum")

    def ours() -> Any:
        return fit_network(frame, structure=network, pseudo_count=1.0, seed=0, num_threads=1).network

    def agrum() -> Any:
        learner = pyagrum.BNLearner(frame.fillna("?"), template, ["?"])
        learner.useEM(1e-6)
        learner.useSmoothingPrior(1.0)
        return learner.learnParameters(template.dag())

    def compare(mine: BayesianNetwork, other: Any) -> float:
        values = [fit_network(rows, structure=found, start="network", max_iter=1).log_likelihood
                  for found in (mine, reordered(network, other))]  # fmt: skip
        return values[0] - values[1]

    return [("pyAgrum", ours, agrum, compare)]


def frame_of(network: BayesianNetwork, rows: Any) -> Any:
    """Rows as a frame of names of states; None where a value is missing."""
    import pandas

    columns = {}
    for v, name in enumerate(network.variable_names):
        columns[name] = np.array([*network.state_names[v], None], dtype=object)[rows[:, v]]
    return pandas.DataFrame(columns)


def reordered(network: BayesianNetwork, other: Any) -> BayesianNetwork:
    """A network of a neighbor with variables, parents and states in the order of ours."""
    theirs = convert(other, to="network")
    tables = []
    for i, name in enumerate(network.variable_names):
        k = theirs.variable_index(name)
        own = [theirs.variable_names[p] for p in theirs.parents[k]]
        axes = [own.index(network.variable_names[p]) for p in network.parents[i]]
        table = np.transpose(theirs.tables[k], (*axes, len(axes)))
        for axis, v in enumerate((*network.parents[i], i)):
            known = theirs.state_names[theirs.variable_index(network.variable_names[v])]
            table = np.take(table, [known.index(label) for label in network.state_names[v]], axis=axis)
        tables.append(table)
    return BayesianNetwork(network.variable_names, network.state_names, network.parents, tables, network.name)


def seen_difference(network: BayesianNetwork, rows: Any) -> Callable[[BayesianNetwork, Any], float]:
    """The largest difference between rows of tables whose parents' states occur: the others are a matter of taste."""

    def compare(mine: BayesianNetwork, other: Any) -> float:
        worst = 0.0
        found = reordered(network, other)
        for own, a, b in zip(network.parents, mine.tables, found.tables, strict=True):
            seen = np.zeros(a.shape[:-1], dtype=bool)
            seen[tuple(rows[:, p] for p in own)] = True
            worst = max(worst, float(np.abs(a - b)[seen].max()))
        return worst

    return compare


if __name__ == "__main__":
    sys.exit(main())
