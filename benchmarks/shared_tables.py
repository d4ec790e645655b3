"""Pictures whose edges share tables: memory, projection, certificates and sampling, one thread.

    python benchmarks/shared_tables.py [--seed N] [--rows 480 --cols 640] [--labels 21] [--only NAME ...]

The picture has normal unaries and a weight of its own on every edge. Its table is Potts, truncated linear, or random,
full and not symmetric. Every row of the table runs in a process of its own, after the same work on a tiny picture,
which compiles. Seconds are CPU seconds, so that other work on the machine changes little; memory is the peak of the
process, the picture included. The exit code is 1 if a row misses what is to be reached.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before NumPy is loaded; the processes of the rows inherit it

import numpy as np

from fastmix import MarkovRandomField, certify, project
from fastmix._clock import NO_LIMIT
from fastmix.chains.cpu import CpuChains
from fastmix.graphs import grid_edges
from fastmix.theory.criteria import CRITERIA
from fastmix.theory.width import model_width
from fastmix.variational.ascent import AscentStart, ProductAscent
from fastmix.variational.loopy_bp import make_messages

GAP = 1e-4  # relative, of projections
TINY = (4, 40)


@dataclass
class Picture:
    """What all pictures of a run have: size, number of labels and seed."""

    rows: int
    cols: int
    labels: int
    seed: int

    def model(self, kind: str, *, strength: float = 1.0) -> MarkovRandomField:
        """The picture with one table of a kind, and weights from half to one and a half times the strength."""
        rng = np.random.default_rng(self.seed)
        scores = rng.normal(size=(self.rows, self.cols, self.labels))
        distance = np.abs(np.subtract.outer(np.arange(self.labels), np.arange(self.labels)))
        tables = {
            "Potts": np.eye(self.labels),
            "truncated": -0.5 * np.minimum(distance, 4.0),
            "full": rng.normal(size=(self.labels, self.labels)),
        }
        weights = strength * rng.uniform(0.5, 1.5, len(grid_edges(self.rows, self.cols)))
        return MarkovRandomField.image(scores, tables[kind], weights=weights)

    def tiny(self) -> Picture:
        """A picture that is only there to compile."""
        return Picture(*TINY, self.labels, self.seed)


Work = Callable[[MarkovRandomField], float]


@dataclass
class Row:
    """One row: the picture, what is measured, and what is to be reached."""

    kind: str
    unit: str
    work: Work
    to_reach: float
    more_is_better: bool = False
    strength: float = 1.0
    most_memory: float = 1e9  # bytes


def model_size(model: MarkovRandomField) -> float:
    """Gigabytes of the arrays of a model, those of its graph included."""
    graph = model.adjacency
    arrays = [model.log_unary, model.num_states, model.edges, model.unary_offsets, model.pairwise_offsets]
    arrays += [graph.indptr, graph.neighbors, graph.edge_ids]
    shared = model.shared_tables
    assert shared is not None
    return (sum(array.nbytes for array in arrays) + shared.num_bytes) / 1e9


def projecting(norm_bound: float, norm: str = "inf") -> Work:
    """CPU seconds of a projection, its gap and its bound checked."""

    def run(model: MarkovRandomField) -> float:
        begin = time.process_time()
        result = project(model, norm_bound=norm_bound, norm=norm, tol=GAP, progress=None)
        seconds = time.process_time() - begin
        assert result.relative_gap <= GAP
        assert result.norm_after <= norm_bound
        assert result.model.shared_tables is not None
        assert "log_pairwise" not in vars(result.model)
        return seconds

    return run


def certifying(model: MarkovRandomField) -> float:
    """CPU seconds of all criteria that apply."""
    begin = time.process_time()
    certify(model, criterion="dobrushin")
    for criterion in CRITERIA.values():
        if criterion.unfit(model) is None:
            criterion.find(model)
    model_width(model)
    return time.process_time() - begin


def sampling(model: MarkovRandomField) -> float:
    """Updates per CPU second of one chain that adds up conditional probabilities."""
    chains = CpuChains(model.structure, num_chains=1, seed=0, num_threads=1)
    chains.load_model(model)
    chains.sweep(1, collect=True)
    best = 0.0
    for _ in range(5):
        begin = time.process_time()
        chains.sweep(2, collect=True)
        best = max(best, 2.0 * model.num_variables / (time.process_time() - begin))
    return best


def sampling_projected(model: MarkovRandomField) -> float:
    """The same of the projected model."""
    return sampling(project(model, norm_bound=0.95, tol=GAP, progress=None).model)


def passing_messages(model: MarkovRandomField) -> float:
    """CPU seconds of an iteration of loopy belief propagation; beliefs are made once, for the memory of a whole run."""
    messages = make_messages(model, message_order="parallel")
    messages.advance(1, 0.0, 0.0)
    best = np.inf
    for _ in range(5):
        begin = time.process_time()
        messages.advance(1, 0.0, 0.0)
        best = min(best, time.process_time() - begin)
    messages.beliefs(every_edge=False)
    return best


def ascending(model: MarkovRandomField) -> float:
    """CPU seconds of a sweep of mean field."""
    ascent = ProductAscent(model, 5, 1e-300, NO_LIMIT)
    start = AscentStart(np.repeat(1.0 / model.num_states, model.num_states))
    begin = time.process_time()
    ascent.follow(start)
    return (time.process_time() - begin) / start.num_sweeps


ROWS: dict[str, Row] = {
    "model": Row("Potts", "GB", model_size, 0.12),
    "project Potts 0.95": Row("Potts", "s", projecting(0.95), 15.0),
    "project Potts 2.5": Row("Potts", "s", projecting(2.5), 15.0),
    "project full 0.95": Row("full", "s", projecting(0.95), 60.0),
    "project full 2.5": Row("full", "s", projecting(2.5), 60.0),
    "project truncated 0.95": Row("truncated", "s", projecting(0.95), 60.0),
    "project truncated 2.5": Row("truncated", "s", projecting(2.5), 60.0),
    "certify Potts": Row("Potts", "s", certifying, 5.0, strength=0.4),
    "certify full": Row("full", "s", certifying, 5.0, strength=0.07),
    "Gibbs Potts": Row("Potts", "updates/s", sampling, 1.5e7, more_is_better=True),
    "Gibbs full": Row("full", "updates/s", sampling, 6e6, more_is_better=True),
    "Gibbs projected Potts": Row("Potts", "updates/s", sampling_projected, 5e6, more_is_better=True),
    "Gibbs projected full": Row("full", "updates/s", sampling_projected, 5e6, more_is_better=True),
    "loopy BP Potts": Row("Potts", "s", passing_messages, 0.25, most_memory=0.7e9),
    "loopy BP truncated": Row("truncated", "s", passing_messages, 1.0, most_memory=0.7e9),
    "loopy BP full": Row("full", "s", passing_messages, 1.0, most_memory=0.7e9),
    "mean field Potts": Row("Potts", "s", ascending, 0.25, most_memory=0.7e9),
    "mean field truncated": Row("truncated", "s", ascending, 1.0, most_memory=0.7e9),
    "mean field full": Row("full", "s", ascending, 1.0, most_memory=0.7e9),
    "loopy BP strong Potts": Row("Potts", "s", passing_messages, 1.0, strength=60.0, most_memory=0.7e9),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="of the pictures; drawn by default")
    parser.add_argument("--rows", type=int, default=480)
    parser.add_argument("--cols", type=int, default=640)
    parser.add_argument("--labels", type=int, default=21)
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--here", action="store_true", help="run the rows in this process, and print JSON")
    options = parser.parse_args()
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if options.seed is None else options.seed
    picture = Picture(options.rows, options.cols, options.labels, seed)
    if options.here:
        for name in options.only:
            print(json.dumps(measured(ROWS[name], picture)))
        return 0
    print(f"{picture.rows} x {picture.cols}, {picture.labels} labels, seed {seed}")
    print("| work | measured | peak memory | to reach |\n|---|---|---|---|")
    missed = [name for name in options.only if not shown(name, picture)]
    return 1 if missed else 0


def measured(row: Row, picture: Picture) -> dict[str, float]:
    """The figure of a row, and the peak memory of this process."""
    row.work(picture.tiny().model(row.kind, strength=row.strength))
    figure = row.work(picture.model(row.kind, strength=row.strength))
    return {"figure": figure, "bytes": 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def shown(name: str, picture: Picture) -> bool:
    """Whether a row, which is printed, reaches what is to be reached."""
    row = ROWS[name]
    size = ["--rows", str(picture.rows), "--cols", str(picture.cols), "--labels", str(picture.labels)]
    command = [sys.executable, __file__, "--here", *size, "--seed", str(picture.seed), "--only", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"| {name} | failed | | {row.to_reach:.3g} {row.unit} |\n{done.stderr[-2000:]}", flush=True)
        return False
    found = json.loads(done.stdout.splitlines()[-1])
    better = found["figure"] >= row.to_reach if row.more_is_better else found["figure"] <= row.to_reach
    reached = better and found["bytes"] <= row.most_memory
    mark = "" if reached else " !"
    memory = f"{found['bytes'] / 1e9:.2f} GB"
    print(f"| {name} | {found['figure']:.3g} {row.unit}{mark} | {memory} | {row.to_reach:.3g} {row.unit} |", flush=True)
    return reached


if __name__ == "__main__":
    sys.exit(main())
