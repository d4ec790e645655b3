"""Bayesian networks of BIF files, exactly: fastmix beside pyAgrum, on the same normalized tables in the same run.

Every network is answered without evidence and with evidence on a tenth of its variables, taken from ancestral samples:
the marginals of all variables. Questions with and without evidence take turns, so that none is the one before. Both
sides keep what they keep for users who ask one network many questions, and one question of each kind is asked before
the clock runs: fastmix keeps the plan of elimination and compiled code, pyAgrum one ``LazyPropagation`` with its
junction tree and the messages that new evidence leaves valid (with ``--fresh`` a new one is made for each question).
One thread, CPU seconds, the sum over all calls, those of fastmix first; and the largest difference of two
probabilities, which must not be above 1e-10.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from numpy.typing import NDArray

from exact import limited
from fastmix import MarkovRandomField, infer
from fastmix.io import read_network
from fastmix.model.network import BayesianNetwork

FloatArray = NDArray[np.float64]

TOLERANCE = 1e-10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="BIF files, or folders of them")
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="sets of evidence of each (default 20)")
    parser.add_argument(
        "--limit", type=int, default=60, metavar="SECONDS", help="of pyAgrum on one network (default 60)"
    )
    parser.add_argument("--fresh", action="store_true", help="a new LazyPropagation for every question")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {options.repeat}")
    try:
        import pyagrum
    except ImportError:
        print("benchmarks/networks.py: needs pyAgrum: pip install 'fastmix[bench]'", file=sys.stderr)
        return 2
    pyagrum.setNumberOfThreads(1)
    files = [f for path in options.paths for f in (sorted(path.iterdir()) if path.is_dir() else [path])]
    kept = "a new object each time" if options.fresh else "one object"
    print(f"milliseconds of a call, mean of {options.repeat}, pyAgrum {pyagrum.__version__} (lazy propagation, {kept})")
    print(f"{'':14}{'':>10}{'no evidence':^28}{'evidence on 10 %':^28}{'largest':>12}")
    row = f"{'fastmix':>10}{'pyAgrum':>10}{'ratio':>8}"
    print(f"{'':14}{'variables':>10}{row}{row}{'difference':>12}")
    ratios, worst = [], 0.0
    for file in [f for f in files if ".bif" in f.suffixes]:
        network = read_network(file)
        model, peer = network.to_model(), Peer(network, fresh=options.fresh)
        cases = draw_evidence(network, options.repeat)
        for evidence in ({}, cases[0], {}):
            answer(model, evidence)
        feasible = {
            kind: not limited(lambda: partial(peer.posteriors, evidence), options.limit).startswith(">")  # noqa: B023
            for kind, evidence in ((0, {}), (1, cases[0]))
        }
        ours, theirs, difference = run(model, peer, cases, feasible, options.limit)
        cells = []
        for kind in (0, 1):
            mine, other = 1e3 * statistics.mean(ours[kind]), f"> {1e3 * options.limit:.0f}"
            if feasible[kind]:
                other = f"{1e3 * statistics.mean(theirs[kind]):.3f}"
                ratios.append(sum(theirs[kind]) / sum(ours[kind][: len(theirs[kind])]))
            cells.append(f"{mine:10.3f}{other:>10}{f'{ratios[-1]:.1f}' if feasible[kind] else '':>8}")
        worst = max(worst, difference)
        print(f"{file.name.split('.')[0]:14}{model.num_variables:10}{''.join(cells)}{difference:12.1e}", flush=True)
    print(f"median ratio {statistics.median(ratios):.1f}, least {min(ratios):.1f}, largest difference {worst:.1e}")
    return int(not worst <= TOLERANCE)


def answer(model: MarkovRandomField, evidence: dict[int, int]) -> FloatArray:
    """The marginals of every variable, as one flat array."""
    return infer(model, method="exact", evidence=evidence or None, edge_marginals=False).node_marginals


def run(
    model: MarkovRandomField, peer: Peer, cases: list[dict[int, int]], feasible: dict[int, bool], limit: float
) -> tuple[list[list[float]], list[list[float]], float]:
    """CPU seconds of every call without and with evidence, and the largest difference.

    pyAgrum answers fewer cases where it takes longer than a limit in all.
    """
    ours: list[list[float]] = [[], []]
    theirs: list[list[float]] = [[], []]
    questions: list[tuple[int, dict[int, int]]] = [q for case in cases for q in ((0, {}), (1, case))]
    marginals = []
    for kind, evidence in questions:
        start = time.process_time()
        marginals.append(answer(model, evidence))
        ours[kind].append(time.process_time() - start)
    worst = 0.0
    for (kind, evidence), mine in zip(questions, marginals, strict=True):
        if feasible[kind] and sum(theirs[kind]) < limit:
            start = time.process_time()
            posteriors = peer.posteriors(evidence)
            theirs[kind].append(time.process_time() - start)
            worst = max(worst, float(np.abs(mine - posteriors).max()))
    return ours, theirs, worst


def draw_evidence(network: BayesianNetwork, count: int) -> list[dict[int, int]]:
    """The states of a tenth of the variables, at least one, in ancestral samples."""
    rng, n = np.random.default_rng(0), network.num_variables
    observed = [rng.choice(n, max(1, round(n / 10)), replace=False).tolist() for _ in range(count)]
    return [{v: int(x[v]) for v in some} for some, x in zip(observed, network.sample(count, seed=0), strict=True)]


def pyagrum_network(network: BayesianNetwork) -> Any:
    """The same tables as a pyAgrum network; variable i is node i."""
    import pyagrum

    peer = pyagrum.BayesNet()
    for i, count in enumerate(network.num_states.tolist()):
        peer.add(pyagrum.RangeVariable(f"x{i}", "", 0, count - 1))
    for i, parents in enumerate(network.parents):
        for parent in parents:
            peer.addArc(parent, i)
    for i, (parents, table) in enumerate(zip(network.parents, network.tables, strict=True)):
        # The first variable changes fastest: the child, then the parents from the last to the first, as in ours.
        tensor = pyagrum.Tensor()
        for v in (i, *reversed(parents)):
            tensor.add(peer.variable(v))
        peer.cpt(i).fillWith(tensor.fillWith(table.reshape(-1).tolist()))
    return peer


class Peer:
    """pyAgrum's answers about a network, by one object or by a new one for each."""

    def __init__(self, network: BayesianNetwork, *, fresh: bool) -> None:
        self.network, self.fresh, self.inference = pyagrum_network(network), fresh, None

    def posteriors(self, evidence: dict[int, int]) -> FloatArray:
        """The posterior of every variable, as one flat array."""
        import pyagrum

        if self.inference is None or self.fresh:
            self.inference = pyagrum.LazyPropagation(self.network)
            self.inference.setNumberOfThreads(1)
        inference: Any = self.inference
        inference.setEvidence(evidence)
        inference.makeInference()
        return np.concatenate([inference.posterior(i).toarray() for i in range(self.network.size())])


if __name__ == "__main__":
    sys.exit(main())
