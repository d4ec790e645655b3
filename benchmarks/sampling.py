"""Gibbs sampling: fastmix beside dwave-samplers and thrml, on the same models in the same run.

All get one thread and are timed in CPU seconds, turn by turn; every library makes the same number of updates. Building
models and compiling are not timed. fastmix adds up the conditional probabilities of every update (Rao-Blackwell sums)
and hands them over within its time, the peers only return the last configuration of every chain; the line "no sums" is
fastmix doing as little. Marginals are checked against exact ones: largest error, its standard error, and the largest
ratio of the two over all states.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import numba
import numpy as np
from numpy.typing import NDArray

from fastmix import MarkovRandomField, infer
from fastmix.chains.cpu import CpuChains
from fastmix.graphs import coloring
from fastmix.instances import ising_bipartite, ising_grid, potts_grid
from fastmix.model.reduce import reduce_model

FloatArray = NDArray[np.float64]

BURN_IN = 200  # sweeps of fastmix before the first timed one; the peers start at random in every call
PIECES = 16  # parts of a timed run of a single chain, whose means give the standard error
# Largest error in standard errors. For the 80 means of a single chain (Student, 79 degrees of freedom) two-sided 6e-8 a
# variable, 1.5e-5 for 256 of them; less elsewhere.
Z_LIMIT = 6.0
LARGE_BYTES = 200.0  # a variable, beyond the model
LARGE_SPEEDUP = 1.7  # two threads over one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, metavar="N", help="timed calls of each library (default 5; --quick 2)")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the sweeps, small models: a trial")
    parser.add_argument("--only", choices=CASES, metavar="NAME", help=f"one of {', '.join(CASES)}")
    parser.add_argument("--data", type=Path, metavar="FILE", help="ObjectDetection_15.uai, for the case object")
    options = parser.parse_args()
    if options.repeat is None:
        options.repeat = 2 if options.quick else 5
    if options.repeat < 2:
        parser.error(f"--repeat must be at least 2, got {options.repeat}")
    print(f"Gibbs sampling, one thread, CPU seconds, best and median of {options.repeat}; {versions()}")
    wrong = [name for name, case in CASES.items() if options.only in (None, name) and not case(options)]
    print(f"\nload average at the end {load()}")
    if wrong:
        message = f"marginals more than {Z_LIMIT:g} standard errors off in {', '.join(wrong)}"
        print(f"benchmarks/sampling.py: {message}", file=sys.stderr)
    return 1 if wrong else 0


# -- the cases: each prints its table and says whether the marginals are right ----------------------------------------


def run_one(options: argparse.Namespace) -> bool:
    model = ising_grid(16, 16, coupling_max=1.0, seed=0)
    return compare("Ising 16x16, one chain", model, 1, 200_000, options, {"dwave-samplers": 1.5})


def run_many(options: argparse.Namespace) -> bool:
    model = ising_grid(16, 16, coupling_max=1.0, seed=0)
    goals = {"thrml": 6.0, "dwave-samplers": 8.0}
    return compare("Ising 16x16, 1,000 chains", model, 1000, 1000, options, goals)


def run_dense(options: argparse.Namespace) -> bool:
    model = ising_bipartite(22, 22, coupling_max=0.3, seed=0)
    goals = {"dwave-samplers": 5.0}
    return compare("binary, complete bipartite 22+22, 1,000 chains", model, 1000, 1000, options, goals)


def run_potts(options: argparse.Namespace) -> bool:
    side, chains = (16, 20) if options.quick else (64, 100)
    sweeps = scaled(250, options)
    model = potts_grid(side, side, coupling_max=1.0, seed=0)
    samplers: list[Any] = [Fastmix(model, chains, sweeps), Fastmix(model, chains, sweeps, collect=False)]
    seconds = interleave(samplers, options.repeat)
    title = f"3-state Potts {side}x{side}, {chains} chains"
    rates = report(title, samplers, seconds, model.num_variables * chains * sweeps, None)
    goal("updates per second", rates["fastmix"], 5e7)
    # Its treewidth of 64 is out of reach. As many variables in strips of width 8 have the same kernel and are checked.
    strip = potts_grid(side, 8, coupling_max=1.0, seed=0)
    right = check_copies("Potts", strip, side // 8, chains, sweeps, samplers[0].engine.kernel)
    return right and agrees(samplers, None)


def run_object(options: argparse.Namespace) -> bool:
    if options.data is None:
        print("\nObjectDetection_15: left out, give its path with --data")
        return True
    from fastmix.io import read_model

    original = read_model(options.data)
    reduction = reduce_model(original, None)  # each variable has one forbidden label
    model, chains, sweeps = reduction.model, 100, scaled(500, options)
    exact = infer(original).node_marginals[reduction.unary_positions]
    samplers: list[Any] = [Fastmix(model, chains, sweeps), Fastmix(model, chains, sweeps, collect=False)]
    seconds = interleave(samplers, options.repeat)
    states = f"{original.num_states.max()} states, one of them forbidden"
    title = f"{options.data.stem}, {original.num_variables} variables of {states}, {chains} chains"
    report(title, samplers, seconds, model.num_variables * chains * sweeps, exact)
    return agrees(samplers, exact)


def run_large(options: argparse.Namespace) -> bool:
    side, sweeps = (300, 50) if options.quick else (1000, 250)
    model = ising_grid(side, side, coupling_max=1.0, seed=0)
    held, peak = traced_bytes(model)
    samplers = [Fastmix(model, 1, sweeps, pieces=1, collect=collect) for collect in (True, False)]
    seconds = interleave(samplers, options.repeat)
    title = f"Ising {side:,}x{side:,}, one chain"
    rates = report(title, samplers, seconds, model.num_variables * sweeps, None)
    goal("updates per second", rates["fastmix"], 1e8)
    arrays = array_bytes(samplers[0].engine) / model.num_variables
    print(
        f"  bytes per variable beyond the model: {arrays:.0f} in the engine's arrays, {held:.0f} with the adjacency,",
        end="",
    )
    print(f" {peak:.0f} at most while building (to reach: {LARGE_BYTES:g}: {verdict(held <= LARGE_BYTES)})")
    same = compare_threads(model, max(1, sweeps // 10), 8 * options.repeat)
    # As many sites as it takes for the kernel to cut colors into chunks, in copies of a grid with exact marginals.
    grid = ising_grid(16, 16, coupling_max=1.0, seed=0)
    right = check_copies("Ising", grid, 256, 1, 10 * sweeps, samplers[0].engine.kernel)
    return right and same and agrees(samplers, None)


def compare_threads(model: MarkovRandomField, num_sweeps: int, repeat: int) -> bool:
    """Wall clock of two threads beside one, in pairs of short calls: what slows the machine slows both of a pair."""
    engines = [make_chains(model, 1, num_threads=count) for count in (1, 2)]
    walls: list[list[float]] = [[], []]
    cpu = [0.0, 0.0]
    for k in range(repeat + 1):
        for t, engine in enumerate(engines):
            start, begin = time.process_time(), time.perf_counter()
            engine.sweep(num_sweeps, collect=True)
            if k:  # the first call starts the threads
                walls[t].append(time.perf_counter() - begin)
                cpu[t] += time.process_time() - start
    best, pairs = min(walls[0]) / min(walls[1]), statistics.median(a / b for a, b in zip(*walls, strict=True))
    print(f"  two threads over one, wall clock: best {best:.2f}, median of {repeat} pairs {pairs:.2f}", end="")
    print(f" (to reach: {LARGE_SPEEDUP:g}: {verdict(pairs >= LARGE_SPEEDUP)}; load {load()}, ", end="")
    print(f"CPU time of the two together {cpu[1] / cpu[0]:.2f} of one)")
    return np.array_equal(engines[0].get_states(), engines[1].get_states())


def run_cold(options: argparse.Namespace) -> bool:
    script = Path(__file__).with_name("cold_start.py")
    if options.quick:
        print(f"\nfirst call in a fresh process: python {script}")
    else:
        print("\nfirst call in a fresh process, wall clock, import included", flush=True)
        subprocess.run([sys.executable, str(script)], check=True)
    return True


CASES: dict[str, Callable[[argparse.Namespace], bool]] = {
    "one": run_one,
    "many": run_many,
    "potts": run_potts,
    "dense": run_dense,
    "object": run_object,
    "large": run_large,
    "cold": run_cold,
}


# -- the samplers: run() is timed, answer() gives marginals and their standard errors ---------------------------------


def make_chains(model: MarkovRandomField, num_chains: int, *, num_threads: int = 1) -> CpuChains:
    chains = CpuChains(model.structure, num_chains=num_chains, seed=1, num_threads=num_threads)
    chains.load(model.parameters)
    return chains


class Fastmix:
    """Chains of fastmix that go on from call to call."""

    def __init__(
        self,
        model: MarkovRandomField,
        num_chains: int,
        num_sweeps: int,
        *,
        collect: bool = True,
        pieces: int | None = None,
    ) -> None:
        self.name = "fastmix" if collect else "fastmix, no sums"
        self.collect = collect
        self.num_sweeps, self.pieces = num_sweeps, pieces or (PIECES if num_chains == 1 else 1)
        self.engine = make_chains(model, num_chains)
        rng = np.random.default_rng(0)
        shape = num_chains, model.num_variables
        self.engine.set_states(np.floor(rng.random(shape) * model.num_states).astype(np.int64))
        self.engine.sweep(BURN_IN)  # compiles as well
        self.means: list[FloatArray] = []

    def prepare(self) -> None: ...

    def keep(self) -> None: ...

    def run(self) -> None:
        if not self.collect:
            self.engine.sweep(self.num_sweeps)
            return
        for sweeps in split(self.num_sweeps, self.pieces):
            self.engine.sweep(sweeps, collect=True)
            self.means.append(self.engine.take_sums() / sweeps)

    def answer(self) -> tuple[FloatArray, FloatArray] | None:
        """Over the chains, which are independent, or over the parts of a single one."""
        if not self.collect:
            return None
        means = np.mean(self.means, axis=0) if self.engine.num_chains > 1 else np.concatenate(self.means, axis=1)
        return means.mean(axis=1), means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])


class LastStates:
    """Marginals of a binary model from the last configurations of independent chains."""

    def __init__(self, num_variables: int) -> None:
        self.ones, self.count = np.zeros(num_variables), 0

    def add(self, states: NDArray[np.bool_]) -> None:
        self.ones += states.sum(axis=0)
        self.count += len(states)

    def answer(self) -> tuple[FloatArray, FloatArray]:
        p = self.ones / self.count
        # Never zero: a state that has not come up may still have a small probability.
        error = np.sqrt(np.maximum(p * (1.0 - p), 1.0 / self.count) / self.count)
        return np.stack([1.0 - p, p], axis=1).reshape(-1), np.repeat(error, 2)


class Dwave:
    """Simulated annealing at a constant temperature of 1: Gibbs sampling with a systematic scan.

    Its energies are minimized, hence the signs.
    """

    name = "dwave-samplers"

    def __init__(self, model: MarkovRandomField, num_chains: int, num_sweeps: int) -> None:
        import dimod
        from dwave.samplers import SimulatedAnnealingSampler

        fields, couplings = ising_parameters(model)
        pairs = dict(zip(map(tuple, model.edges.tolist()), (-couplings).tolist(), strict=True))
        self.bqm = dimod.BinaryQuadraticModel.from_ising(dict(enumerate((-fields).tolist())), pairs)
        self.variables = list(range(model.num_variables))
        self.num_chains, self.num_sweeps = num_chains, num_sweeps
        self.sampler = SimulatedAnnealingSampler()
        self.seed = 0
        self.start: Any = None  # an earlier result to go on from
        self.last = LastStates(model.num_variables)

    def prepare(self) -> None:
        self.seed += 1

    def run(self) -> None:
        self.result = self.sample(self.num_chains, self.num_sweeps)

    def sample(self, num_chains: int, num_sweeps: int) -> Any:
        return self.sampler.sample(
            self.bqm,
            beta_schedule_type="custom",
            beta_schedule=[1.0],
            num_sweeps_per_beta=num_sweeps,
            num_reads=num_chains,
            proposal_acceptance_criteria="Gibbs",
            randomize_order=False,
            initial_states=self.start,
            seed=self.seed,
        )

    def keep(self) -> None:
        """One chain has one last configuration, too few to check: then a run of many that is not timed."""
        result = self.sample(1000, BURN_IN) if self.num_chains == 1 else self.result
        self.last.add(result.record.sample[:, np.argsort(list(result.variables))] > 0)

    def answer(self) -> tuple[FloatArray, FloatArray]:
        return self.last.answer()


class Thrml:
    """Two blocks, one for every color, and chains by vmap; only the last configuration is observed."""

    name = "thrml"

    def __init__(self, model: MarkovRandomField, num_chains: int, num_sweeps: int) -> None:
        import jax
        import jax.numpy as jnp
        from thrml import Block, SamplingSchedule, SpinNode, sample_states
        from thrml.models import IsingEBM, IsingSamplingProgram

        fields, couplings = ising_parameters(model)
        nodes = [SpinNode() for _ in range(model.num_variables)]
        edges = [(nodes[i], nodes[j]) for i, j in model.edges.tolist()]
        colors = coloring(model.num_variables, model.edges)
        assert colors.max() == 1
        self.classes = [np.flatnonzero(colors == c) for c in (0, 1)]
        blocks = [Block([nodes[i] for i in members]) for members in self.classes]
        ebm = IsingEBM(nodes, edges, jnp.array(fields), jnp.array(couplings), jnp.array(1.0))
        program = IsingSamplingProgram(ebm, blocks, [])
        schedule = SamplingSchedule(n_warmup=num_sweeps, n_samples=1, steps_per_sample=1)
        everything = [Block(nodes)]
        self.jax, self.num_chains, self.key = jax, num_chains, jax.random.key(0)
        self.chains = jax.jit(
            jax.vmap(lambda key, start: sample_states(key, program, schedule, start, [], everything)[0][0])
        )
        self.last = LastStates(model.num_variables)
        self.prepare()
        self.run()  # compiles

    def prepare(self) -> None:
        random = self.jax.random
        self.key, start, key = random.split(self.key, 3)
        self.keys = random.split(key, self.num_chains)
        halves = random.split(start, 2)
        shapes = [(self.num_chains, len(members)) for members in self.classes]
        self.start = [random.bernoulli(k, 0.5, shape) for k, shape in zip(halves, shapes, strict=True)]
        self.jax.block_until_ready((self.keys, self.start))

    def run(self) -> None:
        self.result = self.chains(self.keys, self.start).block_until_ready()

    def keep(self) -> None:
        self.last.add(np.asarray(self.result))

    def answer(self) -> tuple[FloatArray, FloatArray]:
        return self.last.answer()


def ising_parameters(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """Fields h and couplings J of exp(sum h s + sum J s s) for a binary model with finite tables."""
    unary, tables = model.log_unary.reshape(-1, 2), model.log_pairwise.reshape(-1, 2, 2)
    couplings = (tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]) / 4.0
    fields = (unary[:, 1] - unary[:, 0]) / 2.0
    np.add.at(fields, model.edges[:, 0], (tables[:, 1].sum(axis=1) - tables[:, 0].sum(axis=1)) / 4.0)
    np.add.at(fields, model.edges[:, 1], (tables[:, :, 1].sum(axis=1) - tables[:, :, 0].sum(axis=1)) / 4.0)
    return fields, couplings


# -- timing and tables -------------------------------------------------------------------------------------------------


def compare(
    title: str, model: MarkovRandomField, chains: int, sweeps: int, options: argparse.Namespace, goals: dict[str, float]
) -> bool:
    """Time fastmix and every peer that is installed; say what was to be reached."""
    sweeps = scaled(sweeps, options)
    exact = infer(model).node_marginals
    samplers: list[Any] = [Fastmix(model, chains, sweeps), Fastmix(model, chains, sweeps, collect=False)]
    for peer in (Dwave, Thrml):
        if peer is Thrml and chains == 1:
            continue
        try:
            samplers.append(peer(model, chains, sweeps))
        except ImportError:
            print(f"benchmarks/sampling.py: {peer.name} is not installed and left out", file=sys.stderr)
    seconds = interleave(samplers, options.repeat)
    rates = report(title, samplers, seconds, model.num_variables * chains * sweeps, exact)
    for name, least in goals.items():
        if name in rates:
            goal(f"times {name}", rates["fastmix"] / rates[name], least)
    return agrees(samplers, exact)


def agrees(samplers: list[Any], exact: FloatArray | None) -> bool:
    """Whether all marginals are right, and the configurations of fastmix the same with sums and without."""
    engines = [s.engine for s in samplers if isinstance(s, Fastmix)]
    same = all(np.array_equal(engines[0].get_states(), engine.get_states()) for engine in engines)
    answers = [s.answer() for s in samplers] if exact is not None else []
    return same and all(z_scores(*answer, exact).max() <= Z_LIMIT for answer in answers if answer is not None)


def interleave(samplers: list[Any], repeat: int) -> list[list[float]]:
    """CPU seconds of every call of every sampler, taking turns."""
    seconds: list[list[float]] = [[] for _ in samplers]
    for _ in range(repeat):
        for sampler, own in zip(samplers, seconds, strict=True):
            sampler.prepare()
            start = time.process_time()
            sampler.run()
            own.append(time.process_time() - start)
            sampler.keep()
    return seconds


def report(
    title: str, samplers: list[Any], seconds: list[list[float]], updates: int, exact: FloatArray | None
) -> dict[str, float]:
    """Print the table of a case; updates per second by name, from the best times."""
    print(f"\n{title}: {updates:.3g} updates a call, kernel {samplers[0].engine.kernel}, load {load()}")
    errors = (
        ("", "")
        if exact is None
        else (f"{'largest':>10}{'std':>9}{'largest':>9}", f"{'error':>10}{'error':>9}{'ratio':>9}")
    )
    print(f"{'':20}{'updates per second':>20}{'seconds':>16}{'time / ours':>16}{errors[0]}")
    print(f"{'':20}{'best':>10}{'median':>10}" + f"{'best':>8}{'median':>8}" * 2 + errors[1])
    ours = min(seconds[0]), statistics.median(seconds[0])
    for sampler, own in zip(samplers, seconds, strict=True):
        best, median = min(own), statistics.median(own)
        line = f"  {sampler.name:18}{updates / best:10.2e}{updates / median:10.2e}{best:8.3f}{median:8.3f}"
        line += f"{best / ours[0]:8.2f}{median / ours[1]:8.2f}"
        answer = sampler.answer() if exact is not None else None
        if answer is not None:
            line += describe_errors(*answer, exact)
        print(line, flush=True)
    return {s.name: updates / min(own) for s, own in zip(samplers, seconds, strict=True)}


def describe_errors(mean: FloatArray, error: FloatArray, exact: FloatArray) -> str:
    difference = np.abs(mean - exact)
    worst = int(difference.argmax())
    return f"{difference[worst]:10.1e}{error[worst]:9.1e}{z_scores(mean, error, exact).max():9.2f}"


def z_scores(mean: FloatArray, error: FloatArray, exact: FloatArray) -> FloatArray:
    # Sums are kept to 24 bits, which is all that is left where the chains agree exactly.
    return np.abs(mean - exact) / np.maximum(error, 2.0**-23)


def goal(what: str, reached: float, least: float) -> None:
    number = f"{reached:.2e}" if least > 1e3 else f"{reached:.2f}"
    print(f"  {what}: {number} (to reach: {least:g}: {verdict(reached >= least)})", flush=True)


def verdict(met: bool) -> str:
    return "met" if met else "SHORT"


def check_copies(what: str, model: MarkovRandomField, copies: int, chains: int, sweeps: int, kernel: str) -> bool:
    """Check a kernel on many disjoint copies of a model whose marginals are known."""
    n = model.num_variables
    edges = (model.edges[None] + n * np.arange(copies)[:, None, None]).reshape(-1, 2)
    whole = MarkovRandomField(
        np.tile(model.num_states, copies), np.tile(model.log_unary, copies), edges, np.tile(model.log_pairwise, copies)
    )
    sampler = Fastmix(whole, chains, sweeps, pieces=1)
    assert sampler.engine.kernel == kernel
    sampler.run()
    # Copies and chains are all independent of one another.
    means = sampler.means[0].reshape(copies, len(model.log_unary), chains)
    means = means.transpose(1, 0, 2).reshape(-1, copies * chains)
    mean, error = means.mean(axis=1), means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
    exact = infer(model).node_marginals
    difference, scores = np.abs(mean - exact), z_scores(mean, error, exact)
    worst = int(difference.argmax())
    print(f"  {kernel} checked on {copies} copies of a small {what} grid, {whole.num_variables:,} variables:", end="")
    print(f" largest error {difference[worst]:.1e}, std error {error[worst]:.1e}, largest ratio {scores.max():.2f}")
    return bool(scores.max() <= Z_LIMIT)


def traced_bytes(model: MarkovRandomField) -> tuple[float, float]:
    """Bytes a variable that an engine and the adjacency it makes hold, and the most while it is being made."""
    make_chains(ising_grid(250, 250, coupling_max=1.0, seed=0), 1)  # imports what large models need
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    engine = make_chains(model, 1)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert engine.num_chains == 1
    return (held - before) / model.num_variables, (peak - before) / model.num_variables


def array_bytes(engine: CpuChains) -> int:
    """Bytes of all the arrays that an engine holds, other than those of the model."""
    arrays: dict[int, NDArray[Any]] = {}
    pending: list[Any] = [value for name, value in vars(engine).items() if name != "model"]
    while pending:
        value = pending.pop()
        if isinstance(value, np.ndarray):
            arrays[id(value)] = value
        elif isinstance(value, list | tuple):
            pending.extend(value)
    return sum(a.nbytes for a in arrays.values())


def split(total: int, parts: int) -> list[int]:
    return np.diff(np.linspace(0, total, min(parts, total) + 1).astype(int)).tolist()  # type: ignore[no-any-return]


def scaled(sweeps: int, options: argparse.Namespace) -> int:
    return max(1, sweeps // 20) if options.quick else sweeps


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = [f"Python {platform.python_version()}", f"Numba {numba.__version__}"]
    for name in ("dwave-samplers", "thrml", "jax"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


if __name__ == "__main__":
    sys.exit(main())
