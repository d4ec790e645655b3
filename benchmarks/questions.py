"""Many rows of evidence on one Bayesian network: ``prepare(..).ask`` beside single calls, pyAgrum and pgmpy.

    python benchmarks/questions.py FILE.bif ... [--rows 10000] [--seconds 20]
    python benchmarks/questions.py --drawn 5

Rows come from ancestral samples; a tenth and half of the variables are observed, the same ones in all rows or others
in each. Marginals of all variables, one thread, CPU microseconds a row. Peers keep one object for all rows and answer
as many as fit into ``--seconds``. The last column is the largest difference to single calls of fastmix.

With ``--drawn`` drawn grids take the place of files, with couplings of a strength that is drawn, too: 64 rows by belief
propagation side by side, by single calls of it, and 16 of them by chains; the shares of rows that converge and mix; and
the mean differences of probabilities to the exact ones, over all variables and rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from numpy.typing import NDArray

import fastmix
from fastmix.io import read_network
from fastmix.model.network import BayesianNetwork

Rows = NDArray[np.int64]
Answer = Callable[[NDArray[np.int64]], None]


def draw_rows(network: BayesianNetwork, count: int, share: float, same: bool, seed: int) -> Rows:
    """Rows of ancestral samples, of which a share of the variables is observed: the same ones in all rows or not."""
    rng = np.random.default_rng(seed)
    full = np.asarray(fastmix.ancestral_sample(network, num_draws=count, seed=seed).states, dtype=np.int64)
    n = full.shape[1]
    if same:
        seen = np.zeros(full.shape, dtype=bool)
        seen[:, rng.permutation(n)[: max(1, round(share * n))]] = True
    else:
        seen = rng.random(full.shape) < share
    return np.where(seen, full, -1)


def per_row(answer: Answer, rows: Rows, seconds: float) -> float:
    """CPU microseconds a row of a function that answers one, for as many rows as fit into some seconds."""
    begun = time.process_time()
    answered = 0
    while answered < len(rows) and time.process_time() - begun < seconds:
        answer(rows[answered])
        answered += 1
    return 1e6 * (time.process_time() - begun) / answered


def single_calls(model: fastmix.MarkovRandomField) -> Answer:
    """One call of ``infer`` for every row."""
    return lambda row: void(fastmix.infer(model, method="exact", evidence=observed(row), edge_marginals=False))


def pyagrum_rows(network: BayesianNetwork) -> Answer | None:
    """Lazy propagation that is kept, and given the evidence of each row."""
    try:
        import pyagrum
    except ImportError:
        return None
    pyagrum.setNumberOfThreads(1)
    other = pyagrum.BayesNet()
    for name, states in zip(network.variable_names, network.state_names, strict=True):
        other.add(pyagrum.LabelizedVariable(name, "", [f"s{k}" for k in range(len(states))]))
    for v, parents in enumerate(network.parents):
        for parent in parents:
            other.addArc(int(parent), v)
    for v, table in enumerate(network.tables):
        names = [network.variable_names[p] for p in network.parents[v]]
        cpt = other.cpt(v)
        order = [n for n in reversed(cpt.names) if n != network.variable_names[v]]
        axes = [names.index(n) for n in order]
        cpt.fillWith(np.asarray(table).transpose([*axes, len(names)]).reshape(-1).tolist())
    engine = pyagrum.LazyPropagation(other)

    def answer(row: Rows) -> None:
        engine.setEvidence(observed(row))
        for v in range(len(row)):
            engine.posterior(v).tolist()

    return answer


def observed(row: Rows) -> dict[int, int]:
    """The evidence of a row by variable."""
    return {int(v): int(row[v]) for v in np.flatnonzero(row >= 0)}


def void(_: object) -> None:
    """Forget an answer."""


def check(model: fastmix.MarkovRandomField, rows: Rows, answers: Any) -> float:
    """The largest difference of a marginal to that of a single call, over some rows."""
    largest = 0.0
    for k in range(0, len(rows), max(1, len(rows) // 20)):
        one = fastmix.infer(model, method="exact", evidence=observed(rows[k]))
        largest = max(largest, float(np.abs(one.node_marginals - answers.node_marginals[k]).max()))
    return largest


def drawn(num_draws: int) -> None:
    """A line for every drawn grid: 64 rows, of which a tenth is observed."""
    print("grid              coupling   loopy-bp   single calls      chains  converged  mixed   error, of chains")
    for seed in range(num_draws):
        rng = np.random.default_rng(seed)
        num_states = int(rng.integers(2, 4))
        side = int(rng.integers(8, 12 if num_states == 2 else 9))
        coupling = float(rng.uniform(0.5, 3.0))
        model = fastmix.instances.potts_grid(side, side, num_states=num_states, coupling_max=coupling, seed=seed)
        full = rng.integers(0, num_states, size=(64, side * side))
        rows = np.where(rng.random(full.shape) < 0.1, full, -1)
        seconds = {}
        answers = {}
        for method, asked in (("loopy-bp", rows), ("chains", rows[:16]), ("exact", rows)):
            fastmix.predict(model, asked[:2], method=method, num_threads=1, seed=0, progress=None)
            begun = time.process_time()
            answers[method] = fastmix.predict(model, asked, method=method, num_threads=1, seed=0, progress=None)
            seconds[method] = 1e6 * (time.process_time() - begun) / len(asked)
        single = per_row(
            lambda row, m=model: void(fastmix.loopy_bp(m, evidence=observed(row), progress=None)), rows[:32], 5.0
        )
        errors = []
        for method in ("loopy-bp", "chains"):
            found = answers[method].node_marginals
            errors.append(float(np.abs(found - answers["exact"].node_marginals[: len(found)]).mean()))
        settled = float((answers["loopy-bp"].row_status == "unverified").mean())
        mixed = float((answers["chains"].row_status == "ok").mean())
        print(
            f"{f'{side}x{side}, {num_states} states':18}{coupling:8.2f}{seconds['loopy-bp']:11.0f}{single:15.0f}"
            f"{seconds['chains']:12.0f}{settled:11.0%}{mixed:7.0%}{errors[0]:9.4f}{errors[1]:9.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files of Bayesian networks")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each peer, and for single calls")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drawn", type=int, default=0, help="drawn grids in place of files")
    options = parser.parse_args()
    if options.drawn:
        print("CPU microseconds a row, one thread")
        drawn(options.drawn)
        return
    print("CPU microseconds a row, one thread; in brackets how often the time of ask")
    print(f"{'network':12}{'observed':>18}{'ask':>9}{'single calls':>18}{'pyAgrum':>18}{'difference':>13}")
    for path in options.paths:
        network = read_network(path)
        model = network.to_model()
        prepared = fastmix.prepare(model)
        for share in (0.1, 0.5):
            for same in (True, False):
                rows = draw_rows(network, options.rows, share, same, options.seed)
                prepared.ask(rows[:100], num_threads=1, progress=None)
                begun = time.process_time()
                answers = prepared.ask(rows, num_threads=1, progress=None)
                own = 1e6 * (time.process_time() - begun) / len(rows)
                line = f"{path.name.partition('.')[0]:12}{f'{share:.0%}, ' + ('same' if same else 'any'):>18}{own:9.1f}"
                for answer in (single_calls(model), pyagrum_rows(network)):
                    if answer is None:
                        line += f"{'-':>18}"
                        continue
                    answer(rows[0])
                    cost = per_row(answer, rows, options.seconds)
                    line += f"{f'{cost:.0f} ({cost / own:.0f})':>18}"
                print(f"{line}{check(model, rows, answers):13.1e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
