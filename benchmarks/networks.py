"""Bayesian networks of BIF files, exactly: fastmix beside pyAgrum, on the same normalised tables in the same run.

Every network is answered without evidence and with evidence on a tenth of its variables, taken from ancestral samples:
the marginals of all variables, finding the tree included, building the models not. One thread, CPU seconds, turn by
turn, the sum over all calls; and the largest difference of two probabilities, which must not be above 1e-10.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from numpy.typing import NDArray

from exact import limited
from fastmix import MarkovRandomField, infer
from fastmix.io.bif import read_bif
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
    print(f"milliseconds of a call, mean of {options.repeat}, pyAgrum {pyagrum.__version__} (lazy propagation)")
    print(f"{'':14}{'':>10}{'no evidence':^28}{'evidence on 10 %':^28}{'largest':>12}")
    row = f"{'fastmix':>10}{'pyAgrum':>10}{'ratio':>8}"
    print(f"{'':14}{'variables':>10}{row}{row}{'difference':>12}")
    ratios, worst = [], 0.0
    for file in [f for f in files if ".bif" in f.suffixes]:
        network = read_bif(file)
        model, peer = network.to_model(), pyagrum_network(network)
        infer(model, method="exact")
        none: list[dict[int, int]] = [{} for _ in range(options.repeat)]
        rows = []
        for cases in (none, draw_evidence(network, options.repeat)):
            if limited(lambda: pyagrum_posteriors(peer, cases[0]), options.limit).startswith(">"):  # noqa: B023
                start = time.process_time()
                infer(model, method="exact", evidence=cases[0] or None, edge_marginals=False)
                rows.append(f"{1e3 * (time.process_time() - start):10.3f}{f'> {1e3 * options.limit:.0f}':>10}{'':>8}")
                continue
            ours, theirs, difference = run(model, peer, cases, options.limit)
            rows.append(f"{1e3 * ours:10.3f}{1e3 * theirs:10.3f}{theirs / ours:8.1f}")
            ratios.append(theirs / ours)
            worst = max(worst, difference)
        print(f"{file.name.split('.')[0]:14}{model.num_variables:10}{''.join(rows)}{worst:12.1e}", flush=True)
    print(f"median ratio {statistics.median(ratios):.1f}, least {min(ratios):.1f}, largest difference {worst:.1e}")
    return int(not worst <= TOLERANCE)


def run(model: MarkovRandomField, peer: Any, cases: list[dict[int, int]], limit: float) -> tuple[float, float, float]:
    """Mean CPU seconds of both, and the largest difference; fewer cases where pyAgrum takes longer than a limit."""
    ours = theirs = worst = 0.0
    count = 0
    for evidence in cases:
        if theirs > limit:
            break
        count += 1
        start = time.process_time()
        result = infer(model, method="exact", evidence=evidence or None, edge_marginals=False)
        middle = time.process_time()
        posteriors = pyagrum_posteriors(peer, evidence)
        ours, theirs = ours + middle - start, theirs + time.process_time() - middle
        worst = max(worst, float(np.abs(result.node_marginals - posteriors).max()))
    return ours / count, theirs / count, worst


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


def pyagrum_posteriors(peer: Any, evidence: dict[int, int]) -> FloatArray:
    """Junction tree, messages and the posterior of every variable, as one flat array."""
    import pyagrum

    inference = pyagrum.LazyPropagation(peer)
    inference.setNumberOfThreads(1)
    inference.setEvidence(evidence)
    inference.makeInference()
    return np.concatenate([inference.posterior(i).toarray() for i in range(peer.size())])


if __name__ == "__main__":
    sys.exit(main())
