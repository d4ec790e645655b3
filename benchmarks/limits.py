"""Are time limits kept? CPU seconds of every verb with a time limit, on models drawn anew each time.

    python benchmarks/limits.py [--seed N] [--budget 300] [--workers 2] [--families grid ...] [--verbs temper ...]

Models are drawn from twelve families with up to 10^6 variables and 10^7 table entries, sizes log-uniformly; every
family meets every verb, in random order, until the budget of seconds is used up. Each case runs in a process of its
own, pinned to a core, after the same call on a tiny model. The figure is the CPU seconds of the call less those of
compiling, and clocks count CPU seconds too, so that other work on the machine changes nothing; to reach: 1.2 times the
limit and a second. ``!`` marks what is over that. A process is ended after six times the limit ("never"), or beyond
``--max-memory`` ("memory"). A refusal counts like an answer: it has to come in time, too. The seed comes from the
operating system and is printed; ``--seed`` draws the same cases again, and ``--repeat FAMILY VERB LIMIT SIZE SEED``,
the first columns of a row, runs one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
for variable in THREADS:  # before NumPy is loaded; the processes of the cases inherit it
    os.environ.setdefault(variable, "1")
time.perf_counter = time.process_time  # so that clocks count CPU seconds of their process: others may use the machine

import numpy as np

import fastmix
from fastmix import FastmixError, MarkovRandomField
from fastmix import graphs as shapes
from fastmix._clock import Clock
from fastmix._memory import available_memory, parse_bytes
from fastmix.denoising import add_noise, denoise

FloatArray = np.typing.NDArray[np.float64]
IntArray = np.typing.NDArray[np.int64]

MOST_VARIABLES = 1_000_000
MOST_ENTRIES = 10_000_000  # of all tables
MOST_LEVELS = 12  # of a picture that was not told how many labels it has
LIMITS = (1.0, 2.0, 5.0, 10.0)
SMALL = 100_000  # variables up to which a limit of 1 s is asked for
KILLED_AFTER = 6.0  # times the limit
WARM_UP = 0.3  # seconds: the limit of the call on a tiny model
TINY = 9  # variables of that model


# -- families ---------------------------------------------------------------------------------------------------------


def pair_model(rng: np.random.Generator, edges: IntArray, num_variables: int, strength: float) -> MarkovRandomField:
    """An Ising model on a graph: mixed couplings or, one time in three, attractive ones."""
    couplings = rng.uniform(0.0 if rng.random() < 1 / 3 else -strength, strength, size=len(edges))
    return MarkovRandomField.ising(edges, couplings, rng.uniform(-1.0, 1.0, size=num_variables))


def rectangle(rng: np.random.Generator, size: int) -> tuple[int, int]:
    """Rows and columns of about as many cells, from squares to strips."""
    rows = max(1, min(size, round(size**0.5 * np.exp(-rng.exponential(0.7)))))
    return rows, max(1, size // rows)


def grid(rng: np.random.Generator, size: int) -> MarkovRandomField:
    rows, cols = rectangle(rng, size)
    return pair_model(rng, shapes.grid_edges(rows, cols), rows * cols, rng.uniform(0.1, 4.0))


def isolated(rng: np.random.Generator, size: int) -> MarkovRandomField:
    return MarkovRandomField.ising(np.zeros((0, 2), dtype=np.int64), 0.0, rng.normal(size=size))


def hubs(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """A few hubs, and leaves joined to one or two of them."""
    num_hubs = int(rng.integers(1, 6))
    leaves = np.arange(num_hubs, max(size, num_hubs + 2))
    to_hubs = [np.column_stack([rng.integers(num_hubs, size=len(leaves)), leaves]) for _ in range(rng.integers(1, 3))]
    edges = np.unique(np.concatenate(to_hubs), axis=0)
    return pair_model(rng, edges, int(leaves[-1]) + 1, rng.uniform(0.05, 1.0))


def complete(rng: np.random.Generator, size: int) -> MarkovRandomField:
    n = min(size, int((MOST_ENTRIES / 2) ** 0.5))
    return pair_model(rng, shapes.complete_edges(n), n, rng.uniform(0.2, 3.0) / n**0.5)


def bipartite(rng: np.random.Generator, size: int) -> MarkovRandomField:
    left = max(1, int(size * rng.uniform(0.05, 0.5)))
    right = max(1, size - left)
    shrink = min(1.0, (MOST_ENTRIES / 4 / (left * right)) ** 0.5)
    left, right = max(1, int(left * shrink)), max(1, int(right * shrink))
    edges = shapes.complete_bipartite_edges(left, right)
    return pair_model(rng, edges, left + right, rng.uniform(0.2, 3.0) / (left + right) ** 0.5)


def potts(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Grids of variables with 3 to 200 states: Potts couplings or tables of random numbers."""
    states = int(np.exp(rng.uniform(np.log(3), np.log(200))))
    rows, cols = rectangle(rng, min(size, max(4, MOST_ENTRIES // (2 * states**2))))
    edges = shapes.grid_edges(rows, cols)
    unary = rng.normal(size=rows * cols * states)
    if rng.random() < 0.5:
        couplings = rng.uniform(0.0, 2.0) * rng.uniform(-1.0 if rng.random() < 0.5 else 0.0, 1.0, size=len(edges))
        tables = np.multiply.outer(couplings, np.eye(states)).reshape(-1)
    else:
        tables = rng.normal(scale=rng.uniform(0.1, 2.0), size=len(edges) * states**2)
    return MarkovRandomField(np.full(rows * cols, states), unary, edges, tables)


def plaquettes(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Factors over the four corners of the cells of a grid."""
    rows, cols = rectangle(rng, min(size, MOST_ENTRIES // 36))
    rows, cols = max(2, rows), max(2, cols)
    corner = np.arange(rows * cols).reshape(rows, cols)[:-1, :-1].reshape(-1)
    scopes = corner[:, None] + np.array([0, 1, cols, cols + 1])
    pairs = np.concatenate([scopes[:, [i, j]] for i in range(4) for j in range(i + 1, 4)])
    edges = np.unique(pairs, axis=0)
    parity = np.array([(-1.0) ** k.bit_count() for k in range(16)])
    tables = np.multiply.outer(rng.normal(scale=rng.uniform(0.1, 1.5), size=len(scopes)), parity)
    return MarkovRandomField(
        np.full(rows * cols, 2), rng.normal(scale=0.5, size=2 * rows * cols), edges, np.zeros(4 * len(edges)),
        scope_starts=4 * np.arange(len(scopes) + 1), scope_variables=scopes.reshape(-1),
        log_factors=tables.reshape(-1),
    )  # fmt: skip


def factors(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Factors over 2 to 14 variables drawn at random, some with zeros; one configuration is always possible."""
    n = max(3, min(size, MOST_VARIABLES // 20))
    states = rng.integers(2, 5, size=n)
    possible = rng.integers(0, states)
    zeros = rng.uniform(0.05, 0.6) if rng.random() < 0.5 else 0.0
    most_arity, near = int(rng.integers(3, 15)), rng.random() < 0.5
    terms: list[tuple[list[int], FloatArray]] = []
    entries = 0
    for _ in range(max(1, int(n * rng.uniform(0.3, 1.5)))):
        arity = min(n, int(rng.integers(2, most_arity + 1)))
        first = int(rng.integers(n - arity + 1))  # neighbors by number: a narrow model; or from anywhere
        scope = np.arange(first, first + arity) if near else rng.choice(n, size=arity, replace=False)
        shape = states[scope]
        if (entries := entries + int(shape.prod())) > MOST_ENTRIES:
            break
        table = rng.normal(scale=0.7, size=shape)
        table[rng.random(table.shape) < zeros] = -np.inf
        table[tuple(possible[scope])] = 1.0
        terms.append((scope.tolist(), table))
    return MarkovRandomField.from_factors(states.tolist(), terms)


def sparse(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Random graphs with one to six neighbors on average, or grown by preference for those with many."""
    if rng.random() < 0.5:
        pairs = rng.integers(size, size=(int(size * rng.uniform(0.5, 2.0 if size > 500_000 else 3.0)), 2))
    else:
        later = np.repeat(np.arange(1, size), rng.integers(1, 3))
        earlier = (later * rng.random(len(later)) ** 2).astype(np.int64)  # the first ones have the most neighbors
        pairs = np.column_stack([earlier, later])
    edges = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return pair_model(rng, edges, size, rng.uniform(0.1, 2.0))


def network(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Bayesian networks: every variable has up to three or four parents among those before it, near or anywhere."""
    n = min(size, MOST_VARIABLES // 10)
    states = rng.integers(2, 2 + int(rng.integers(1, 4)), size=n)
    window = int(np.exp(rng.uniform(np.log(3), np.log(max(4, n)))))
    most_parents = int(rng.integers(1, 5))
    concentration = float(rng.choice([0.1, 0.5, 2.0]))
    terms: list[tuple[list[int], FloatArray]] = []
    for v in range(n):
        before = min(v, window)
        count = min(before, int(rng.integers(most_parents + 1)))
        parents = v - 1 - rng.choice(before, size=count, replace=False) if count else np.zeros(0, dtype=np.int64)
        weights = rng.gamma(concentration, size=[*states[parents], states[v]]) + 1e-6
        terms.append(([*parents.tolist(), v], np.log(weights / weights.sum(axis=-1, keepdims=True))))
    return MarkovRandomField.from_factors(states.tolist(), terms)


def bags(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Chains, or trees, of bags in which all variables are joined: treewidth 2 to 24, whatever the length."""
    width = int(rng.integers(2, 25))
    n = max(width + 1, min(size, MOST_ENTRIES // (4 * width + 2)))
    if rng.random() < 0.5:
        pairs = np.concatenate([np.column_stack([np.arange(n - k), np.arange(k, n)]) for k in range(1, width + 1)])
    else:
        found = [(i, j) for j in range(1, width + 1) for i in range(j)]
        kept = [list(range(width))]
        for v in range(width + 1, n):
            bag = kept[int(rng.integers(max(0, len(kept) - 50), len(kept)))]
            found += [(u, v) for u in bag]
            bag = bag.copy()
            bag[int(rng.integers(width))] = v
            kept.append(bag)
        pairs = np.array(found)
    return pair_model(rng, pairs, n, rng.uniform(0.1, 2.0) / width**0.5)


def drawing(rng: np.random.Generator, size: int) -> FloatArray:
    """A picture of waves, gray values from 0 to 1."""
    rows, cols = rectangle(rng, size)
    rows, cols = max(2, rows), max(2, cols)
    y, x = np.mgrid[:rows, :cols]
    a, b, c = rng.uniform(0.01, 0.3, size=3)
    waves: FloatArray = 0.5 + 0.25 * (np.sin(a * x + c * y) + np.cos(b * y))
    return waves


def picture(rng: np.random.Generator, size: int) -> MarkovRandomField:
    """Denoising of a picture, black and white or of 3 to 20 gray levels."""
    from fastmix.denoising.posterior import denoising_model, label_model

    if rng.random() < 0.5:
        return denoising_model(add_noise(drawing(rng, size) > 0.5, noise=1.25, seed=int(rng.integers(1 << 30))))
    labels = int(rng.integers(3, 21))
    image = drawing(rng, min(size, MOST_ENTRIES // (2 * labels**2)))
    noisy = np.clip(image + rng.normal(scale=0.2, size=image.shape), 0.0, 1.0)
    return label_model(noisy, np.linspace(0.0, 1.0, labels), coupling=rng.uniform(0.2, 2.0), data_weight=4.0)


FAMILIES: dict[str, Callable[[np.random.Generator, int], MarkovRandomField]] = {
    family.__name__: family
    for family in (
        grid, isolated, hubs, complete, bipartite, potts, plaquettes, factors, sparse, network, bags, picture
    )
}  # fmt: skip


# -- verbs ------------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A call: its model, limit and what draws the rest of its arguments."""

    model: MarkovRandomField
    limit: float
    rng: np.random.Generator
    seed: int
    memory: float

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that every verb takes."""
        return {"time_limit": self.limit, "progress": None}


Call = Callable[[], Any]
Verb = Callable[[Asked], Call]


def infer_by(method: str) -> Verb:
    def verb(asked: Asked) -> Call:
        options: dict[str, Any] = {"memory_limit": asked.memory} if method in ("auto", "exact") else {}
        if method not in ("exact", "mean-field", "loopy-bp"):
            options |= {"seed": asked.seed, "num_threads": 1}
        if asked.rng.random() < 0.3:
            options["edge_marginals"] = True
        return lambda: fastmix.infer(asked.model, method=method, **options, **asked.common)

    return verb


def infer_log_z(asked: Asked) -> Call:
    return lambda: fastmix.infer(
        asked.model, log_z=True, memory_limit=asked.memory, seed=asked.seed, num_threads=1, **asked.common
    )


def infer_bracket(asked: Asked) -> Call:
    return lambda: fastmix.infer(
        asked.model, bracket=True, memory_limit=asked.memory, seed=asked.seed, num_threads=1, **asked.common
    )


def sample(asked: Asked) -> Call:
    schedule = [None, "systematic", "random-burn-in"][asked.rng.integers(3)]
    options: dict[str, Any] = {"schedule": schedule, "seed": asked.seed, "num_threads": 1}
    if asked.rng.random() < 0.5:
        options["accuracy"] = float(asked.rng.choice([0.1, 0.01]))
    elif asked.rng.random() < 0.5:
        options |= {"num_draws": 100, "num_chains": int(asked.rng.choice([1, 10, 200]))}
    return lambda: fastmix.sample(asked.model, **options, **asked.common)


def temper(asked: Asked) -> Call:
    options: dict[str, Any] = {"accuracy": 0.01} if asked.rng.random() < 0.5 else {}
    if asked.rng.random() < 0.3:
        options["num_replicas"] = int(asked.rng.integers(2, 40))
    return lambda: fastmix.temper(asked.model, seed=asked.seed, num_threads=1, **options, **asked.common)


def project(asked: Asked) -> Call:
    norm = ["inf", "inf", "frobenius", "spectral", "width"][asked.rng.integers(5)]
    bound = float(asked.rng.choice([0.5, 0.95, 2.5]))
    divergence = ["euclidean", "euclidean", "kl", "piecewise-kl", "reversed-kl"][asked.rng.integers(5)]
    if norm == "width":
        divergence = "euclidean"
    return lambda: fastmix.project(asked.model, norm_bound=bound, norm=norm, divergence=divergence, **asked.common)


def certify(asked: Asked) -> Call:
    criterion = ["auto", "dobrushin", "width", "path", "split"][asked.rng.integers(5)]
    options: dict[str, Any] = {"criterion": criterion, "accuracy": 0.01}
    if criterion in ("auto", "dobrushin") and asked.rng.random() < 0.3:
        options |= {"margin": True}
    elif asked.rng.random() < 0.3:
        options |= {"schedule": "random"}
    elif criterion == "dobrushin" and asked.rng.random() < 0.5:
        options |= {"schedule": "systematic", "per_variable": True}
    return lambda: fastmix.certify(asked.model, **options, **asked.common)


def bracket(asked: Asked) -> Call:
    options: dict[str, Any] = {"confidence": 0.99, "seed": asked.seed} if asked.rng.random() < 0.4 else {}
    return lambda: fastmix.bracket(asked.model, memory_limit=asked.memory, **options, **asked.common)


def most_probable(asked: Asked) -> Call:
    method = ["auto", "auto", "exact", "cut", "expansion", "swap", "search"][asked.rng.integers(7)]
    return lambda: fastmix.most_probable(
        asked.model, method=method, memory_limit=asked.memory, seed=asked.seed, **asked.common
    )


def rows_of(asked: Asked) -> IntArray:
    """Rows of data for the variables of a model: independent but for runs of equal neighbors."""
    model, rng = asked.model, asked.rng
    n = model.num_variables
    most = int(max(3, min(100_000, MOST_ENTRIES // max(1, n))))
    rows = int(np.exp(rng.uniform(np.log(3), np.log(most + 1))))
    data = (rng.random((rows, n)) * model.num_states).astype(np.int64)
    if n > 1:
        same = rng.random((rows, n - 1)) < 0.5
        data[:, 1:] = np.where(same, np.minimum(data[:, :-1], model.num_states[1:] - 1), data[:, 1:])
    data[: model.num_states.max()] = np.arange(model.num_states.max())[:rows, None] % model.num_states
    return data


def learn(asked: Asked) -> Call:
    data, kind = rows_of(asked), ["complete", "chow-liu", "l1", "given"][asked.rng.integers(4)]
    edges: Any = asked.model.edges if kind == "given" else kind
    options: dict[str, Any] = {"edges": edges, "seed": asked.seed, "num_states": asked.model.num_states}
    if asked.rng.random() < 0.4:
        options["objective"] = "pseudo-likelihood"
    elif kind in ("complete", "given") and asked.rng.random() < 0.3:
        options["moments"] = ["exact", "sampled", "tempered"][asked.rng.integers(3)]
    if kind == "l1" or asked.rng.random() < 0.2:
        options["l1"] = 0.01
    if asked.rng.random() < 0.15:
        options = {"hidden": int(asked.rng.integers(2, 50)), "seed": asked.seed}
        data = data % 2
    return lambda: fastmix.learn(data, **options, **asked.common)


def score(asked: Asked) -> Call:
    data = rows_of(asked)
    method = ["auto", "auto", "annealing", "exact"][asked.rng.integers(4)]
    return lambda: fastmix.score(asked.model, data, method=method, seed=asked.seed, **asked.common)


def denoise_picture(asked: Asked) -> Call:
    rng = asked.rng
    options: dict[str, Any] = {}
    if rng.random() < 0.6:
        options["num_labels"] = int(rng.integers(2, 17))
    most_pixels = MOST_ENTRIES // (2 * options.get("num_labels", MOST_LEVELS) ** 2)  # two tables for every pixel
    image = drawing(rng, min(asked.model.num_variables, most_pixels))
    noisy = np.clip(image + rng.normal(scale=0.15, size=image.shape), 0.0, 1.0)
    if rng.random() < 0.3:
        options["method"] = ["loopy-bp", "gibbs", "mean-field", "auto"][rng.integers(4)]
    return lambda: denoise(noisy, seed=asked.seed, num_threads=1, **options, **asked.common)


def compare(asked: Asked) -> Call:
    """Three methods; the limit is for each of them, and three times as much for the reference."""
    methods = asked.rng.choice(["exact", "gibbs", "loopy-bp", "mean-field", "tempered"], size=3, replace=False)
    options = {**asked.common, "time_limit": asked.limit / 6.0, "memory_limit": asked.memory}
    return lambda: fastmix.compare(asked.model, methods=methods.tolist(), seed=asked.seed, num_threads=1, **options)


def draw_exact(asked: Asked) -> Call:
    count = int(np.exp(asked.rng.uniform(0.0, np.log(10_000))))
    return lambda: fastmix.draw_exact(
        asked.model, num_draws=count, seed=asked.seed, memory_limit=asked.memory, **asked.common
    )


def perfect_sample(asked: Asked) -> Call:
    count = int(np.exp(asked.rng.uniform(0.0, np.log(1000))))
    return lambda: fastmix.perfect_sample(asked.model, num_draws=count, seed=asked.seed, **asked.common)


def anneal(asked: Asked) -> Call:
    return lambda: fastmix.anneal(asked.model, seed=asked.seed, num_threads=1, **asked.common)


METHODS = (
    "auto", "exact", "mean-field", "loopy-bp", "gibbs", "swendsen-wang", "tempered", "projected", "annealed", "perfect",
)  # fmt: skip
VERBS: dict[str, Verb] = {
    **{method: infer_by(method) for method in METHODS},
    "log-z": infer_log_z,
    "infer-bracket": infer_bracket,
    **{
        verb.__name__.replace("_", "-"): verb
        for verb in (
            sample, temper, project, certify, bracket, most_probable, learn, score, compare, draw_exact,
            perfect_sample, anneal,
        )
    },
    "denoise": denoise_picture,
}  # fmt: skip


# -- one case, in a process of its own --------------------------------------------------------------------------------


class Case(NamedTuple):
    """What is to be measured; the seed draws the model and the options."""

    family: str
    verb: str
    limit: float
    size: int
    seed: int


def asked_of(case: Case, size: int, limit: float, memory: float) -> Asked:
    """The model of a case, at some size, and the generator of its options, which does not depend on the size."""
    model = FAMILIES[case.family](np.random.default_rng([case.seed, 0]), size)
    return Asked(model, limit, np.random.default_rng([case.seed, 1]), case.seed % (1 << 31), memory)


def run_case(case: Case, memory: float, core: int | None) -> None:
    """Run a case in this process and print what it took."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    asked = asked_of(case, case.size, case.limit, memory)
    tiny = asked_of(case, TINY, WARM_UP, memory)
    call = VERBS[case.verb](asked)
    with contextlib.suppress(FastmixError, ValueError):  # what is refused has been loaded as far as it goes
        VERBS[case.verb](tiny)()
    end_after(KILLED_AFTER * case.limit)
    clock = Clock()
    try:
        answer = call()
        stats = getattr(answer, "stats", {})
        words = f"{getattr(answer, 'status', 'done')}, {stats.get('stopped_by', '')}"
        method = getattr(answer, "method", "")
        words = f"{method}: {words}" if isinstance(method, str) and method else words
    except (FastmixError, ValueError) as error:
        words = f"{type(error).__name__}: {error}"
    row = {
        "cpu": clock.seconds(),
        "compile": clock.compile_seconds(),
        "words": " ".join(words.split())[:160],
        "model": repr(asked.model),
    }
    print(json.dumps(row), flush=True)


def end_after(seconds: float) -> None:
    """End this process once it has used so many more CPU seconds."""
    try:
        import resource
    except ImportError:  # no such thing here: whoever waits ends it by the wall clock
        return
    allowed = int(time.process_time() + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, allowed + 5))


# -- all cases --------------------------------------------------------------------------------------------------------


def draw_cases(
    seed: int, families: list[str], verbs: list[str], limits: list[float], sizes: tuple[int, int]
) -> Iterator[Case]:
    """Cases without end, of sizes between two: every family with every verb, in random order, again and again."""
    rng = random.Random(seed)
    least, most = np.log10(sizes)
    while True:
        pairs = [(family, verb) for family in families for verb in verbs]
        rng.shuffle(pairs)
        for family, verb in pairs:
            size = round(10.0 ** rng.uniform(least, most))
            own = [limit for limit in limits if limit > 1.0 or size <= SMALL] or limits
            yield Case(family, verb, rng.choice(own), size, rng.randrange(1 << 40))


def resident_bytes(pid: int) -> int:
    """Memory of a process; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def measure(case: Case, most_memory: float, core: int | None) -> dict[str, Any]:
    """The row of a case, from a process of its own."""
    command = [sys.executable, __file__, "--repeat", *map(str, case), "--raw", "--max-memory", str(int(most_memory))]
    if core is not None:
        command += ["--core", str(core)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    texts: list[tuple[str, str]] = []
    reader = threading.Thread(target=lambda: texts.append(process.communicate()))
    reader.start()
    end = time.monotonic() + 20.0 * case.limit + 300.0  # by the wall clock, on a machine that others use
    verdict = ""
    while reader.is_alive():
        reader.join(0.2)
        if resident_bytes(process.pid) > most_memory:
            verdict = "memory"
        elif time.monotonic() > end:
            verdict = "never"
        if verdict:
            process.kill()
            reader.join()
    out, err = texts[0]
    row: dict[str, Any] = {**case._asdict(), "cpu": None, "compile": None, "words": "", "model": ""}
    if not verdict and process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        verdict = "never"
    if not verdict and process.returncode:
        verdict = "failed"
        row["words"] = (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1][:200]
    if not verdict:
        row |= json.loads(out.splitlines()[-1])
        over = row["cpu"] - row["compile"] > 1.2 * case.limit + 1.0
        verdict = "over" if over else "kept"
    return row | {"verdict": verdict}


def show(row: dict[str, Any]) -> str:
    """A row as a line of text; the first five columns repeat it."""
    mark = "" if row["verdict"] == "kept" else " !"
    took = "" if row["cpu"] is None else f"{row['cpu'] - row['compile']:.1f}+{row['compile']:.1f}"
    return (
        f"{row['family']:<10} {row['verb']:<14} {row['limit']:>4g} {row['size']:>8} {row['seed']:>13} "
        f"{took:>10} {row['verdict']}{mark}  {row['words']}  {row['model']}"
    )


def summarize(rows: list[dict[str, Any]]) -> list[str]:
    """How many limits each verb and family kept, and all together."""
    lines = []
    for key in ("verb", "family"):
        every, kept = Counter(row[key] for row in rows), Counter(row[key] for row in rows if row["verdict"] == "kept")
        parts = [f"{name} {kept[name]} of {count}" for name, count in sorted(every.items())]
        lines.append(f"kept by {key}: " + ", ".join(parts))
    over = [row for row in rows if row["verdict"] != "kept"]
    lines.append(f"limits kept: {len(rows) - len(over)} of {len(rows)}")
    return lines


def run_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure cases on some cores until the budget is used up; prints each as it ends."""
    cores: list[int | None] = list(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    random.SystemRandom().shuffle(cores)  # several tables may be made at once
    workers = options.workers or max(1, len(cores) - 2)
    free: queue.Queue[int | None] = queue.Queue()
    for k in range(workers):
        free.put(cores[k % len(cores)])
    most_memory = options.max_memory or 0.8 * available_memory() / workers
    sizes = options.min_size, options.max_size
    cases = draw_cases(options.seed, options.families, options.verbs, options.limits, sizes)
    end = time.monotonic() + options.budget
    lock, rows, started = threading.Lock(), [], [0]

    def work(core: int | None) -> None:
        while True:
            with lock:
                if time.monotonic() > end or started[0] == options.cases:
                    return
                started[0] += 1
                case = next(cases)
            row = measure(case, most_memory, core)
            with lock:
                rows.append(row)
                print(show(row), flush=True)
                if options.rows:
                    with open(options.rows, "a") as file:
                        file.write(json.dumps(row) + "\n")

    threads = [threading.Thread(target=work, args=(free.get(),)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="draws the cases; from the operating system by default")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds after which no case begins")
    parser.add_argument("--cases", type=int, help="end after so many")
    parser.add_argument("--workers", type=int, help="processes side by side, each on its own core; all cores but two")
    parser.add_argument("--max-memory", type=parse_bytes, help="of each, such as 4GiB; a share of what is free")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--verbs", nargs="+", default=list(VERBS), choices=list(VERBS))
    parser.add_argument("--limits", nargs="+", type=float, default=list(LIMITS))
    parser.add_argument("--min-size", type=int, default=10, help="variables")
    parser.add_argument("--max-size", type=int, default=MOST_VARIABLES, help="variables")
    parser.add_argument("--rows", help="file that rows are appended to, as lines of JSON")
    parser.add_argument("--repeat", nargs=5, metavar=("FAMILY", "VERB", "LIMIT", "SIZE", "SEED"))
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--raw", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.repeat:
        family, verb, limit, size, seed = options.repeat
        case = Case(family, verb, float(limit), int(size), int(seed))
        memory = options.max_memory or 0.8 * available_memory()
        if options.raw:
            run_case(case, memory / 2, options.core)
        else:
            print(show(measure(case, memory, options.core)))
        return
    options.seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {options.seed}, load average {os.getloadavg()[0]:.1f}")
    print("family, verb, limit, size, seed (these five repeat a row), CPU seconds + compiling, verdict, answer, model")
    for line in summarize(run_all(options)):
        print(line)


if __name__ == "__main__":
    main()
