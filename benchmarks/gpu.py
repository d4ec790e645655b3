"""Gibbs sampling on a GPU: fastmix, and thrml on the same card in the same run where it is installed.

Times are those of the device, from CUDA events around a call, the median of several; for thrml, whose kernels cannot be
bracketed, the wall clock of the best call. Building models and compiling are not timed. Every case says
how far it is from its floor: the time the card needs for the bytes that must come from memory, or for the operations
that must be done. Marginals are checked against exact ones: largest error, and its ratio to the standard error.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # both libraries share the card

import numpy as np
from numpy.typing import NDArray

# Some releases of numba-cuda name functions that NumPy 2.5 no longer has; none of them is called.
for _name, _substitute in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(np, _name):
        setattr(np, _name, getattr(np, _substitute))

from fastmix import infer
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import choose_group_size, cuda_available
from fastmix.graphs import coloring
from fastmix.instances import ising_bipartite, ising_grid, potts_grid
from fastmix.model import MarkovRandomField
from fastmix.model import structure as structure_module

FloatArray = NDArray[np.float64]

Z_LIMIT = 6.0  # largest error in standard errors: two-sided 2e-9 a probability
BURN_IN = 300


@dataclass
class Line:
    """One row of the table at the end."""

    work: str
    what: str
    rate: float
    goal: str = ""
    met: bool | None = None
    floor: str = ""
    check: str = ""
    right: bool = True


@dataclass
class Bench:
    """Options, the card, and the rows so far."""

    repeat: int = 5
    quick: bool = False
    clock: float = 1.98e9
    processors: int = 132
    bandwidth: float = 4.3e12
    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        print(show(line), flush=True)

    @property
    def alu(self) -> float:
        """Logical operations per second: 64 lanes per multiprocessor and cycle."""
        return 64.0 * self.processors * self.clock

    @property
    def issue(self) -> float:
        """Instructions a second, each for one of 32 lanes: four schedulers a multiprocessor."""
        return 128.0 * self.processors * self.clock


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="timed calls of each (default 5)")
    parser.add_argument("--quick", action="store_true", help="few sweeps and small models: a trial")
    parser.add_argument("--only", choices=CASES, metavar="NAME", help=f"one of {', '.join(CASES)}")
    options = parser.parse_args()
    usable, text = cuda_available()
    if not usable:
        print(f"benchmarks/gpu.py: {text}", file=sys.stderr)
        return 2
    bench = run([options.only] if options.only else list(CASES), repeat=options.repeat, quick=options.quick)
    print("\n" + table(bench))
    wrong = [line.work for line in bench.lines if not line.right]
    if wrong:
        print(f"benchmarks/gpu.py: marginals are off in {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def run(names: list[str], *, repeat: int, quick: bool) -> Bench:
    """Run some cases; what they found."""
    from numba import cuda

    bench = Bench(repeat=repeat, quick=quick)
    device = cuda.get_current_device()
    bench.processors = int(getattr(device, "MULTIPROCESSOR_COUNT", 4))
    bench.clock = 1e3 * float(getattr(device, "CLOCK_RATE", 1.98e6))
    if not quick:
        bench.bandwidth = measure_bandwidth(cuda)
    print(
        f"{cuda_available()[1]}: {bench.processors} multiprocessors at {bench.clock / 1e9:.2f} GHz, copies "
        f"{bench.bandwidth / 1e12:.2f} TB/s; numba-cuda {version('numba-cuda')}, thrml {version('thrml')}"
    )
    for name in names:
        CASES[name](bench)
    return bench


def version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def measure_bandwidth(cuda: Any) -> float:
    """Bytes read and written a second by a copy of eight gigabytes on the device, or of a quarter of its memory."""
    size = min(1 << 30, int(cuda.current_context().get_memory_info()[0]) // 32)
    a, b = cuda.device_array(size, dtype=np.float64), cuda.device_array(size, dtype=np.float64)
    return 2.0 * a.nbytes / min(device_seconds(lambda: b.copy_to_device(a), 5))


# -- the cases --------------------------------------------------------------------------------------------------------


def run_many(bench: Bench) -> None:
    model = ising_grid(16, 16, coupling_max=1.0, seed=0)
    chains, sweeps = (1 << 10, 2) if bench.quick else (1 << 20, 200)
    work = f"Ising 16x16, {chains:,} chains"
    # Of 32 updates: 8 bit planes of 7 selections and 2 comparisons, and the 20 exclusive-ors of 2 Philox calls.
    operations = (8 * 9 + 2 * 20) / 32
    floor = bench.alu / operations
    ours = compare(bench, work, model, chains, sweeps, floor, f"{operations:.1f} logical operations", goal=1e12)
    peer = run_thrml(bench, work, model, 1_000 if bench.quick else 1_000_000, 5 if bench.quick else 100)
    relate(bench, work, ours, peer, 15.0)


def run_thousand(bench: Bench) -> None:
    model = ising_grid(16, 16, coupling_max=1.0, seed=0)
    sweeps = 2 if bench.quick else 5000
    work = "Ising 16x16, 1,000 chains"
    # 32 words: 32 multiprocessors have a block each, whose 128 threads update a color at once; latency decides.
    ours = compare(bench, work, model, 1000, sweeps, None, "")
    relate(bench, work, ours, run_thrml(bench, work, model, 1000, 5 if bench.quick else 1000), 3.0)


def run_large(bench: Bench) -> None:
    side, sweeps = (64, 2) if bench.quick else (4096, 100)
    work = f"Ising {side:,}x{side:,}, one chain"
    model = large_grid(side)
    # Four couplings, a field, a code for the neighbors and the state, each once.
    floor = bench.bandwidth / (4 * 4 + 4 + 2 + 1 + 1)
    with two_colors(side, side):
        compare(bench, work, model, 1, sweeps, floor, "24 bytes", goal=1e11, exact=None)
    check_copies(bench, work)


def run_potts(bench: Bench) -> None:
    side, chains, sweeps = (8, 16, 2) if bench.quick else (64, 100_000, 20)
    work = f"3-state Potts {side}x{side}, {chains:,} chains"
    model = potts_grid(side, side, coupling_max=1.0, seed=0)
    # A Philox call for four chains, and for each two table entries, two comparisons and the number of the pattern.
    operations = (20 + 20 + 30) / 4 + 2 * 4 + 3
    compare(bench, work, model, chains, sweeps, bench.issue / operations, f"{operations:.0f} instructions", 1e11, None)
    # Its treewidth is out of reach; a strip as long has the same kernel and exact marginals.
    strip = potts_grid(side, 2 if bench.quick else 8, coupling_max=1.0, seed=0)
    check_marginals(bench, work, strip, min(chains, 1 << 16))


def run_dense(bench: Bench) -> None:
    side, chains, sweeps = (6, 1 << 10, 2) if bench.quick else (22, 1 << 20, 200)
    work = f"binary, complete bipartite {side}+{side}, {chains:,} chains"
    model = ising_bipartite(side, side, coupling_max=0.3, seed=0)
    # Groups of four neighbors: shift, mask, address, load and addition; a quarter of a Philox call, exp, comparison.
    operations = 5.0 * -(-side // 4) + (20 + 20 + 10) / 4 + 10
    compare(bench, work, model, chains, sweeps, bench.issue / operations, f"{operations:.0f} instructions")


CASES: dict[str, Callable[[Bench], None]] = {
    "many": run_many,
    "thousand": run_thousand,
    "large": run_large,
    "potts": run_potts,
    "dense": run_dense,
}


# -- models -----------------------------------------------------------------------------------------------------------


def large_grid(side: int) -> MarkovRandomField:
    """An Ising grid with random fields and couplings, built from arrays."""
    n = side * side
    number = np.arange(n).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    edges = np.concatenate([across, down])
    edges = edges[np.argsort(edges[:, 0] * n + edges[:, 1], kind="stable")]
    rng = np.random.default_rng(5)
    fields, couplings = rng.uniform(-1, 1, n), rng.uniform(-1, 1, len(edges))
    unary = np.multiply.outer(fields, [-1.0, 1.0]).ravel()
    return MarkovRandomField(np.full(n, 2), unary, edges, np.multiply.outer(couplings, [1.0, -1.0, -1.0, 1.0]).ravel())


class two_colors:  # noqa: N801
    """The coloring of a grid written down, instead of half a minute of search; it is checked as any other."""

    def __init__(self, rows: int, cols: int) -> None:
        self.colors = (np.add.outer(np.arange(rows), np.arange(cols)) % 2).ravel()

    def __enter__(self) -> None:
        self.kept = structure_module.color_graph
        structure_module.color_graph = lambda n, edges, neighbors: self.colors

    def __exit__(self, *_: object) -> None:
        structure_module.color_graph = self.kept


# -- timing -----------------------------------------------------------------------------------------------------------


def device_seconds(call: Callable[[], object], repeat: int) -> list[float]:
    """Seconds of the device for every call, from events around it."""
    from numba import config, cuda

    seconds = []
    for _ in range(repeat):
        if getattr(config, "ENABLE_CUDASIM", False):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
            continue
        begin, end = cuda.event(timing=True), cuda.event(timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(cuda.event_elapsed_time(begin, end) / 1e3)
    return seconds


def compare(
    bench: Bench,
    work: str,
    model: MarkovRandomField,
    chains: int,
    sweeps: int,
    floor: float | None,
    because: str,
    goal: float | None = None,
    exact: str | None = "exact",
) -> float:
    """Time sweeps without sums and with both kinds; check the marginals. The rate without sums is returned."""
    rates = {}
    engine = make_chains(model, chains, choose_group_size(model.structure, chains))
    if chains > 1:
        engine.set_states(random_states(model, chains))
    for what, mode in (("no sums", 0), ("Rao-Blackwell sums", 1), ("counts", 2)):
        engine._mode = max(1, mode)
        engine.sweep(2 if bench.quick else min(BURN_IN, sweeps), collect=mode > 0)  # compiles as well
        engine.take_sums()
        seconds = device_seconds(lambda m=mode: engine.sweep(sweeps, collect=m > 0), bench.repeat)
        rates[what] = float(model.num_variables) * chains * sweeps / statistics.median(seconds)
        line = Line(work, what, rates[what])
        if mode and exact is not None:
            line.check, line.right = judge(engine, infer_once(model), sweeps * bench.repeat)
            line.right |= bench.quick
        if not mode:
            if goal is not None:
                line.goal, line.met = f"{goal:.0e}", rates[what] >= goal
            if floor is not None:
                line.floor = f"{rates[what] / floor:.0%} of {floor:.2g} ({because} an update)"
        bench.add(line)
    return rates["no sums"]


def make_chains(model: MarkovRandomField, chains: int, group_size: int = 1) -> CudaChains:
    made = CudaChains(model.structure, num_chains=chains, seed=1, group_size=group_size)
    made.load(model.parameters)
    return made


def random_states(model: MarkovRandomField, chains: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    return rng.integers(0, model.num_states, size=(chains, model.num_variables), dtype=np.uint8)


_EXACT: dict[str, FloatArray] = {}


def infer_once(model: MarkovRandomField) -> FloatArray:
    if model.content_hash not in _EXACT:
        _EXACT[model.content_hash] = infer(model).node_marginals
    return _EXACT[model.content_hash]


def judge(engine: CudaChains, exact: FloatArray, sweeps: int) -> tuple[str, bool]:
    """The largest error of the marginals and its ratio to the standard error, over groups of chains."""
    sums = engine.take_sums()
    means = sums / (sweeps * engine.group_size)
    if means.shape[1] > 1024:  # few enough means to be normal
        means = means[:, : means.shape[1] // 1024 * 1024].reshape(len(means), 1024, -1).mean(axis=2)
    error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
    off = np.abs(means.mean(axis=1) - exact)
    ratio = float((off / np.maximum(error, 1e-7)).max())
    return f"error {off.max():.1e}, {ratio:.1f} s.e.", ratio <= Z_LIMIT


def check_marginals(bench: Bench, work: str, model: MarkovRandomField, chains: int) -> None:
    """The same kernel on a model with exact marginals."""
    sweeps = 4 if bench.quick else 200
    engine = make_chains(model, chains, max(choose_group_size(model.structure, chains), 4))
    engine.set_states(random_states(model, chains))
    engine.sweep(2 if bench.quick else BURN_IN, collect=False)
    seconds = device_seconds(lambda: engine.sweep(sweeps, collect=True), 1)
    text, right = judge(engine, infer_once(model), sweeps)
    rate = float(model.num_variables) * chains * sweeps / seconds[0]
    what = f"check, {model.num_variables:,} variables"
    bench.add(Line(work, what, rate, check=text, right=right or bench.quick))


def check_copies(bench: Bench, work: str) -> None:
    """One chain on copies of a small grid, which are samples of their own: the same kernel, exact marginals."""
    grid = ising_grid(8, 8, coupling_max=0.6, seed=0)
    copies, sweeps = (16, 2) if bench.quick else (16384, 200)
    n = grid.num_variables
    edges = (grid.edges[None] + n * np.arange(copies)[:, None, None]).reshape(-1, 2)
    model = MarkovRandomField(
        np.tile(grid.num_states, copies), np.tile(grid.log_unary, copies), edges, np.tile(grid.log_pairwise, copies)
    )
    with two_colors(8 * copies, 8):
        engine = make_chains(model, 1)
    engine.sweep(2 if bench.quick else BURN_IN, collect=False)
    seconds = device_seconds(lambda: engine.sweep(sweeps, collect=True), 1)
    means = (engine.take_sums()[:, 0] / sweeps).reshape(copies, -1).T
    error = means.std(axis=1, ddof=1) / np.sqrt(copies)
    off = np.abs(means.mean(axis=1) - infer_once(grid))
    ratio = float((off / error).max())
    text = f"error {off.max():.1e}, {ratio:.1f} s.e."
    rate = model.num_variables * sweeps / seconds[0]
    what = f"check, {copies:,} copies of 8x8"
    bench.add(Line(work, what, rate, check=text, right=bench.quick or ratio <= Z_LIMIT))


# -- thrml ------------------------------------------------------------------------------------------------------------


def run_thrml(bench: Bench, work: str, model: MarkovRandomField, chains: int, sweeps: int) -> float | None:
    """Two blocks, one for every color, and chains by vmap; only the last configuration is observed."""
    try:
        import jax
        import jax.numpy as jnp
        from thrml import Block, SamplingSchedule, SpinNode, sample_states
        from thrml.models import IsingEBM, IsingSamplingProgram
    except ImportError as error:
        print(f"benchmarks/gpu.py: thrml is left out: {error}", file=sys.stderr)
        return None
    nodes = [SpinNode() for _ in range(model.num_variables)]
    edges = [(nodes[i], nodes[j]) for i, j in model.edges.tolist()]
    colors = coloring(model.num_variables, model.edges)
    classes = [np.flatnonzero(colors == c) for c in (0, 1)]
    blocks = [Block([nodes[i] for i in members]) for members in classes]
    fields, couplings = model.log_unary[1::2], model.log_pairwise[::4]
    program = IsingSamplingProgram(
        IsingEBM(nodes, edges, jnp.array(fields), jnp.array(couplings), jnp.array(1.0)), blocks, []
    )
    schedule = SamplingSchedule(n_warmup=sweeps, n_samples=1, steps_per_sample=1)
    chain = jax.jit(jax.vmap(lambda key, start: sample_states(key, program, schedule, start, [], [Block(nodes)])[0][0]))
    keys = jax.random.split(jax.random.key(0), chains)
    shapes = [(chains, len(members)) for members in classes]
    start = [jax.random.bernoulli(jax.random.key(k + 1), 0.5, shape) for k, shape in enumerate(shapes)]
    last = np.asarray(chain(keys, start))  # compiles
    seconds = []
    for _ in range(bench.repeat):
        begin = time.perf_counter()
        chain(keys, start).block_until_ready()
        seconds.append(time.perf_counter() - begin)
    rate = float(model.num_variables) * chains * (sweeps + 1) / min(seconds)
    p = last.mean(axis=0)
    error = np.sqrt(np.maximum(p * (1 - p), 1.0 / chains) / chains)
    off = np.abs(p - infer_once(model)[1::2])
    text = f"error {off.max():.1e}, {float((off / error).max()):.1f} s.e."
    bench.add(Line(work, f"thrml, {jax.devices()[0].platform}", rate, check=text))
    return rate


def relate(bench: Bench, work: str, ours: float, peer: float | None, least: float) -> None:
    if peer is not None:
        bench.add(Line(work, "times thrml", ours / peer, f"{least:g}", ours / peer >= least))


# -- the table --------------------------------------------------------------------------------------------------------


def show(line: Line) -> str:
    number = f"{line.rate:.1f}" if line.what == "times thrml" else f"{line.rate:.2e}"
    goal = f"{line.goal} {'met' if line.met else 'MISSED'}" if line.goal else ""
    check = line.check + ("" if line.right else " WRONG")
    return f"{line.work:58}{line.what:34}{number:>10}  {goal:14}{line.floor:48}{check}".rstrip()


def table(bench: Bench) -> str:
    head = f"{'work':58}{'':34}{'updates/s':>10}  {'to reach':14}{'of the floor':48}marginals"
    return "\n".join([head, *map(show, bench.lines)])


if __name__ == "__main__":
    sys.exit(main())
