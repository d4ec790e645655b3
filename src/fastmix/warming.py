"""``warm_up()``: everything that compiles on first use, run once on tiny models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fastmix
from fastmix._clock import Clock, Report, listening
from fastmix.model import MarkovRandomField
from fastmix.results import jsonable, provenance

__all__ = ["WarmUpResult", "warm_up"]

_MOMENT = 1.0  # seconds, in which runs on a few variables reach every kernel
_LITTLE = 1500.0  # bytes, with which nothing is exact


@dataclass(frozen=True)
class WarmUpResult:
    """What was compiled, or found compiled.

    Attributes
    ----------
    parts : mapping of str to float
        Seconds spent compiling for each part; hundredths of a second where the code of an earlier process was loaded.
    stats : mapping
        ``seconds`` and ``compile_seconds`` of all.
    provenance : mapping
    """

    parts: Mapping[str, float]
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON."""
        facts = {"parts": self.parts, "seconds": self.stats["seconds"], "stats": self.stats}
        return jsonable({**facts, "provenance": self.provenance})


def warm_up(*, progress: Report = "auto") -> WarmUpResult:
    """Seconds that compiling took for every method; later calls, and later processes, find the code on disk.

    Runs every method on the CPU on models of a few variables: with two states, and with three.

    Parameters
    ----------
    progress : "auto", None or callable
        See :func:`fastmix.infer`; told before every part.

    Examples
    --------
    >>> result = warm_up()  # doctest: +SKIP
    >>> result.parts  # doctest: +SKIP
    {'exact': 5.1, 'gibbs': 9.7, ...}
    """
    clock = Clock()
    parts: dict[str, float] = {}
    with listening(progress, "warm-up") as listener:
        work = _parts()
        name = next(work, None)
        while name is not None:
            begun = Clock(listener=listener, what=name)
            begun.report(len(parts), None, "parts")
            following = next(work, None)
            parts[name] = begun.compile_seconds()
            name = following
    return WarmUpResult(parts, clock.stats(), provenance(MarkovRandomField.ising([], 0.0)))


def _parts() -> Iterator[str]:
    """Names of parts, each before it is run, on models that reach every kernel."""
    from fastmix.denoising import denoise
    from fastmix.exact.search import treewidth_bounds
    from fastmix.graphs import grid_edges
    from fastmix.instances import ising_grid, potts_grid
    from fastmix.methods.swendsen_wang import is_swendsen_wang
    from fastmix.model.reduce import reduce_model

    potts: dict[str, Any] = {"num_states": 3, "coupling_max": 0.5, "seed": 0}
    mixed, attractive = (ising_grid(3, 3, coupling_max=0.5, attractive=a, seed=0) for a in (False, True))
    several = potts_grid(3, 3, **potts), potts_grid(3, 3, attractive=True, **potts)
    tables = [np.arange(6.0).reshape(2, 3) % 4 / 4.0, np.arange(6.0).reshape(3, 2) % 4 / 4.0]
    uneven = MarkovRandomField.from_tables([np.zeros(2), np.zeros(3), np.zeros(2)], [(0, 1), (1, 2)], tables)
    dense = MarkovRandomField.ising([(0, i) for i in range(1, 28)], 0.1)  # too many for a table of patterns
    forbidden = MarkovRandomField.from_tables(
        np.zeros((9, 3)), grid_edges(3, 3), [np.where(np.eye(3) > 0, -np.inf, 0.0)] * 12
    )
    triple = np.where(np.arange(8) == 7, -np.inf, np.arange(8) % 3 / 4.0).reshape(2, 2, 2)
    triples = MarkovRandomField.from_factors([2] * 6, [((i, i + 1, i + 2), triple) for i in range(4)])
    every = (mixed, attractive, *several, uneven, dense)
    short: dict[str, Any] = {"num_sweeps": 20, "burn_in": 2, "seed": 0, "num_threads": 1}

    yield "large graphs"
    torus = grid_edges(301, 301, torus=True)  # an odd cycle: not two colors
    MarkovRandomField.ising(torus, 0.0).structure.visit_order  # noqa: B018 computed when asked for
    path, same = grid_edges(1, 70_000), np.where(np.eye(2) > 0, 0.0, -np.inf)
    model = MarkovRandomField.from_tables(np.zeros((70_000, 2)), path, np.tile(same, (len(path), 1, 1)))
    reduce_model(model, {0: 0}, fold_single=True)
    treewidth_bounds(70_000, path)
    is_swendsen_wang(MarkovRandomField.ising(path, -1.0))

    yield "exact"
    line = MarkovRandomField.ising(grid_edges(1, 3000), 0.1)
    for model in (ising_grid(14, 14, coupling_max=0.5, seed=0), potts_grid(9, 9, **potts), line):
        fastmix.infer(model, method="exact")
        fastmix.draw_exact(model, num_draws=1, seed=0)
    for _ in range(3):  # the third call for a small model is compiled
        fastmix.infer(mixed, method="exact")

    yield "gibbs"
    for model in (*every, triples):
        for num_chains, edges in ((1, False), (64, False), (4, True)):
            fastmix.sample(model, num_chains=num_chains, edge_marginals=edges, **short)
        fastmix.sample(model, num_chains=4, schedule="random", **short)

    yield "swendsen-wang"
    for model in (attractive, several[1]):
        fastmix.sample(model, method="swendsen-wang", num_chains=4, **short)

    yield "perfect"
    for model in (attractive, several[1], ising_grid(3, 3, coupling_max=0.1, seed=0)):
        fastmix.perfect_sample(model, num_draws=2, seed=0)

    yield "tempered"
    for model in (*every, triples):
        fastmix.temper(model, num_ensembles=2, edge_marginals=True, **short)

    yield "mean-field, loopy-bp"
    for model in (mixed, *several, uneven, forbidden):
        fastmix.mean_field(model, seed=0)
        for order in ("parallel", "residual"):
            fastmix.loopy_bp(model, message_order=order, max_iter=10)

    yield "projected"
    divergences = (fastmix.KL(), fastmix.PiecewiseKL(), fastmix.ReversedKL(pool_size=8))
    for model in (mixed, several[0], uneven):
        for norm in ("inf", "spectral", "frobenius"):
            fastmix.project(model, norm_bound=0.1, norm=norm)
        for divergence in divergences:
            fastmix.project(model, norm_bound=0.1, divergence=divergence, seed=0)
    fastmix.project(ising_grid(3, 3, coupling_max=1.0, seed=0), norm_bound=0.1, solver=fastmix.PaperDual())
    fastmix.project(ising_grid(7, 7, coupling_max=1.0, seed=0), norm="width", norm_bound=0.1)
    fastmix.infer(dense, method="projected", norm_bound=0.1, seed=0, num_chains=8, num_sweeps=20, burn_in=2)

    yield "certify"
    for model in (ising_grid(3, 3, coupling_max=0.1, seed=0), mixed):
        for schedule in ("systematic", "random"):
            fastmix.certify(model, accuracy=0.01, schedule=schedule)

    yield "map"
    for model in (mixed, attractive, *several, uneven, triples):
        for method in ("auto", "cut", "expansion", "search"):
            with suppress(fastmix.FastmixError):  # not every method is for every model
                fastmix.most_probable(model, method=method, seed=0, time_limit=_MOMENT, progress=None)

    yield "bracket"
    for model in (mixed, attractive, several[0], uneven, triples):
        for confidence in (None, 0.9):
            with suppress(fastmix.FastmixError):
                fastmix.bracket(
                    model, memory_limit=_LITTLE, confidence=confidence, seed=0, time_limit=_MOMENT, progress=None
                )

    yield "denoise"
    denoise(np.tile([0.0, 1.0], (6, 3)), seed=0)
    denoise(np.linspace(0.0, 1.0, 144).reshape(12, 12), seed=0, labels=3)
    denoise(np.linspace(0.0, 1.0, 144).reshape(12, 12), seed=0, method="loopy-bp")

    yield "learn"
    for model in (mixed, uneven):
        rows = fastmix.draw_exact(model, num_draws=100, seed=0)
        given: dict[str, Any] = {"num_states": model.num_states, "seed": 0, "max_iter": 1}
        found = fastmix.learn(rows, objective="pseudo-likelihood", **given).model
        for moments in ("exact", "sampled", "tempered"):
            fastmix.learn(rows, moments=moments, num_chains=64, **given)
        fastmix.learn(rows, objective="pseudo-likelihood", edges="chow-liu", **given)
        fastmix.learn(rows, objective="pseudo-likelihood", l1=0.1, **given)
        fastmix.score(found, rows, seed=0)
        fastmix.score(found, rows, method="annealing", num_chains=64, tol=1.0, seed=0)
    chain = [(0, 8), *((8 + k, 9 + k) for k in range(12))]  # of hidden variables with many joint states
    units = np.eye(8, dtype=np.int8)
    for count, pairs in ((2, "complete"), (13, chain)):
        fastmix.learn(units, edges=pairs, hidden=count, moments="sampled", num_chains=64, max_iter=1, seed=0)
