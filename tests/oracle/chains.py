"""Gibbs sampling as plain loops, with the random numbers of the kernels, and models that each kernel takes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

import oracle
from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains
from fastmix.chains.generator import make_streams

SYSTEMATIC = ("table", "four", "single", "kept", "field", "product")
RANDOM = ("random",)
KERNELS = SYSTEMATIC + RANDOM
ESTIMATORS = ("rao-blackwell", "counts")

CUT = 2.0**-24 + 2.0**-30  # of a conditional probability as it is added up: cut to 24 bits, after rounding to 32

# -- the naive sampler -----------------------------------------------------------------------------------------------


class Naive:
    """Gibbs sampling with loops over everything, from given streams and a given order."""

    def __init__(
        self,
        model: MarkovRandomField,
        states: np.ndarray,
        seed: int,
        order: Sequence[int] | None = None,
        chunks: Sequence[int] | None = None,
    ) -> None:
        self.model = model
        self.n = model.num_variables
        self.x = [list(map(int, row)) for row in states]
        self.order = order  # None for a random schedule, which draws places in the order of a sweep
        self.places = model.structure.visit_order[0].tolist()
        self.chunks = list(itertools.pairwise(chunks if chunks is not None else [0, self.n]))
        count = len(self.chunks)
        streams = make_streams(seed, 0, count * len(self.x))
        self.streams = [[oracle.Stream(streams[:, c * count + q]) for q in range(count)] for c in range(len(self.x))]
        self.counts = np.zeros((len(model.log_unary), len(self.x)))
        self.conditionals = np.zeros_like(self.counts)
        self.updates = oracle.Updates(model)

    def update(self, c: int, i: int, u: int) -> None:
        p = self.updates.update(self.x[c], i, u)
        start = self.model.unary_offsets[i]
        self.conditionals[start : start + len(p), c] += p

    def sweep(self) -> None:
        for c, x in enumerate(self.x):
            for q, (first, last) in enumerate(self.chunks):
                stream = self.streams[c][q]
                for place in range(first, last):
                    i = self.places[stream.site(self.n)] if self.order is None else self.order[place]
                    self.update(c, i, stream.draw())
            for i, state in enumerate(x):
                self.counts[self.model.unary_offsets[i] + state, c] += 1

    def sums(self, estimator: str) -> np.ndarray:
        return self.conditionals if estimator == "rao-blackwell" and self.order is not None else self.counts


def applies(kernel: str, model: MarkovRandomField) -> bool:
    binary = bool((model.num_states == 2).all())
    if kernel == "four":
        return binary and model.adjacency.max_degree <= 4
    return kernel not in ("field", "kept") or (binary and not model.has_forbidden)


class Engine(CpuChains):
    """Chains that know their model."""

    model: MarkovRandomField


def make(model: MarkovRandomField, kernel: str, *, num_chains: int = 3, seed: int = 1, **options) -> Engine:
    options.setdefault("num_threads", 1)
    options |= {"schedule": "random"} if kernel in RANDOM else {"kernel": kernel}
    engine = Engine(model.structure, num_chains=num_chains, seed=seed, forbidden=model.has_forbidden, **options)
    engine.model = model
    engine.load(model.parameters)
    return engine


def order_for(model: MarkovRandomField, kernel: str) -> list[int] | None:
    return None if kernel in RANDOM else model.structure.visit_order[0].tolist()


def lopsided_binary(seed: int = 6) -> MarkovRandomField:
    """A triangle with a tail and an isolated variable, asymmetric tables."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (0, 2), (1, 2), (2, 3)]
    tables = [1.2 * rng.normal(size=(2, 2)) for _ in pairs]
    return MarkovRandomField.from_tables([0.7 * rng.normal(size=2) for _ in range(5)], pairs, tables)


def models_for(kernel: str) -> MarkovRandomField:
    return lopsided_binary() if kernel in ("four", "field", "kept") else oracle.lopsided()


# -- no randomness: the same numbers, the same states -----------------------------------------------------------------


def check_against_naive(
    model: MarkovRandomField,
    kernel: str,
    *,
    num_chains: int,
    num_sweeps: int,
    seed: int,
    states: np.ndarray | None = None,
) -> None:
    """All states after every sweep and the sums, by both estimators, are those of the naive sampler."""
    states = oracle.random_states(model, num_chains, seed) if states is None else states
    naive = Naive(model, states, seed, order_for(model, kernel))
    engines = [make(model, kernel, num_chains=num_chains, seed=seed, estimator=e) for e in ESTIMATORS]
    for engine in engines:
        engine.set_states(states)
    for _ in range(num_sweeps):
        naive.sweep()
        for engine in engines:
            engine.sweep(1, collect=True)
            assert engine.get_states().tolist() == naive.x
    for engine, estimator in zip(engines, ESTIMATORS, strict=True):
        check_sums(engine.take_sums(), naive.sums(estimator), model, num_sweeps)


def check_sums(sums: np.ndarray, expected: np.ndarray, model: MarkovRandomField, num_sweeps: int) -> None:
    np.testing.assert_allclose(sums, expected, rtol=0, atol=num_sweeps * CUT)
    if model.num_variables:
        totals = np.add.reduceat(sums, model.unary_offsets[:-1])
        np.testing.assert_allclose(totals, num_sweeps, rtol=0, atol=num_sweeps * 1e-12)
    assert (sums >= 0).all()
