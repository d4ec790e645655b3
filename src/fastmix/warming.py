"""``warm_up()``: everything that compiles on first use, run once on tiny models.

A kernel compiles for the kinds of its arguments: two states or more, pairs or larger factors, forbidden entries, one
chain or many. So :class:`TinyModels` has a model of each kind, and each part of :data:`PARTS` runs a verb on all of
them that it treats differently. What is missing here is found by ``tests/test_warming.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import fastmix
from fastmix._arrays import FloatArray
from fastmix._clock import Clock, Report
from fastmix._context import open_context
from fastmix.model import MarkovRandomField
from fastmix.results import Result, Status

__all__ = ["PARTS", "TinyModels", "WarmUpResult", "warm_up"]

#: Seconds in which a run on a few variables reaches every kernel (tests/test_warming.py).
SHORT_TIME_LIMIT = 1.0
#: Bytes with which no model is solved exactly (tests/test_warming.py).
TINY_MEMORY_LIMIT = 1500.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WarmUpResult(Result):
    """Seconds that compiling each part of the package took, or loading what was compiled before.

    Attributes
    ----------
    parts : mapping of str to float
        Seconds spent compiling for each part; hundredths of a second where the code of an earlier process was loaded.
    stats, provenance : mapping
        As for every :class:`fastmix.results.Result`; ``model`` is an empty one.
    """

    parts: Mapping[str, float]

    advice_by_status: ClassVar[Mapping[Status, str]] = {Status.OK: "Later calls find the code compiled."}

    def __repr__(self) -> str:
        return f"WarmUpResult(parts={dict(self.parts)})"

    def title(self) -> str:
        """The name of the work, with which :meth:`summary` begins."""
        return "warm-up"

    def facts(self) -> dict[str, str]:
        """Seconds of each part."""
        return {name: f"{seconds:.3g} s" for name, seconds in self.parts.items()}

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name, with a row for every part."""
        return {"part": list(self.parts), "seconds": list(self.parts.values())}

    def contents(self) -> dict[str, Any]:
        """Seconds of each part."""
        return {"parts": self.parts}

    def plot(self, axes: Any = None) -> Any:
        """Seconds of each part as bars (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        axes.barh(list(self.parts), list(self.parts.values()))
        axes.set_xlabel("seconds spent compiling")
        return axes


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
    parts: dict[str, float] = {}
    with open_context("warm-up", MarkovRandomField.ising([], 0.0), progress=progress) as context:
        models = TinyModels()
        for name, run in PARTS.items():
            begun = Clock(listener=context.clock.listener, what=name)
            begun.report(len(parts), None, "parts")
            run(models)
            parts[name] = begun.compile_seconds()
        assert context.model is not None
        return context.finish(WarmUpResult(model=context.model, parts=parts))


# -- models -----------------------------------------------------------------------------------------------------------

#: Options of the shortest run of chains.
_SHORT_RUN: dict[str, Any] = {"num_sweeps": 20, "burn_in": 2, "seed": 0, "num_threads": 1}


def _ising(*, coupling_max: float = 0.5, attractive: bool = False, side: int = 3) -> MarkovRandomField:
    """A square grid of binary variables."""
    return fastmix.instances.ising_grid(side, side, coupling_max=coupling_max, attractive=attractive, seed=0)


def _potts(*, attractive: bool = False, side: int = 3) -> MarkovRandomField:
    """A square grid of variables with three states."""
    return fastmix.instances.potts_grid(side, side, num_states=3, coupling_max=0.5, attractive=attractive, seed=0)


def _uneven() -> MarkovRandomField:
    """A chain of three variables with two, three and two states."""
    tables: list[FloatArray] = [np.arange(6.0).reshape(shape) % 4 / 4.0 for shape in ((2, 3), (3, 2))]
    return MarkovRandomField.from_tables([np.zeros(2), np.zeros(3), np.zeros(2)], [(0, 1), (1, 2)], tables)


def _shared_potts() -> MarkovRandomField:
    """A line of variables that share a Potts table, with weights."""
    return MarkovRandomField.from_patterns(np.zeros((4, 4)), [(0, 1), (1, 2), (2, 3)], [np.eye(4)], 0, [0.5, 1.0, 0.2])


def _shared() -> MarkovRandomField:
    """A line of variables that share a table of another form, with weights."""
    pattern = np.arange(16.0).reshape(4, 4) ** 0.5
    return MarkovRandomField.from_patterns(np.zeros((4, 4)), [(0, 1), (1, 2), (2, 3)], [pattern], 0, [0.5, 1.0, 0.2])


def _star() -> MarkovRandomField:
    """Binary variables around one with too many neighbors for a table of their patterns."""
    return MarkovRandomField.ising([(0, i) for i in range(1, 28)], 0.1)


def _crowd() -> MarkovRandomField:
    """Binary variables that are all neighbors."""
    return MarkovRandomField.ising(fastmix.graphs.complete_edges(16), 0.05)


def _coloring() -> MarkovRandomField:
    """Variables of three states on a grid, neighbors of which must differ."""
    differ = np.where(np.eye(3) > 0, -np.inf, 0.0)
    return MarkovRandomField.from_tables(np.zeros((9, 3)), fastmix.graphs.grid_edges(3, 3), [differ] * 12)


def _triples() -> MarkovRandomField:
    """Factors over three binary variables each, which forbid one state."""
    triple = np.where(np.arange(8) == 7, -np.inf, np.arange(8) % 3 / 4.0).reshape(2, 2, 2)
    return MarkovRandomField.from_factors([2] * 6, [((i, i + 1, i + 2), triple) for i in range(4)])


def _uneven_triples() -> MarkovRandomField:
    """Factors over three variables of two and three states."""
    num_states = [2, 3, 2, 3]
    scopes = ((0, 1, 2), (1, 2, 3))
    factors = []
    for scope in scopes:
        shape = [num_states[variable] for variable in scope]
        factors.append((scope, np.arange(float(np.prod(shape))).reshape(shape) % 5 / 4.0))
    return MarkovRandomField.from_factors(num_states, factors)


@dataclass(frozen=True, eq=False)
class TinyModels:
    """A model of a few variables for every kind that kernels tell apart."""

    mixed: MarkovRandomField = field(default_factory=_ising)  #: couplings of both signs
    attractive: MarkovRandomField = field(default_factory=lambda: _ising(attractive=True))
    weak: MarkovRandomField = field(default_factory=lambda: _ising(coupling_max=0.1))  #: certified to mix
    potts: MarkovRandomField = field(default_factory=_potts)
    attractive_potts: MarkovRandomField = field(default_factory=lambda: _potts(attractive=True))
    uneven: MarkovRandomField = field(default_factory=_uneven)  #: unequal numbers of states
    shared_potts: MarkovRandomField = field(default_factory=_shared_potts)  #: one table and weights
    shared: MarkovRandomField = field(default_factory=_shared)
    star: MarkovRandomField = field(default_factory=_star)  #: a variable of high degree
    crowd: MarkovRandomField = field(default_factory=_crowd)  #: all variables have many neighbors
    coloring: MarkovRandomField = field(default_factory=_coloring)  #: forbidden pairs
    triples: MarkovRandomField = field(default_factory=_triples)  #: factors over three binary variables
    uneven_triples: MarkovRandomField = field(default_factory=_uneven_triples)

    def for_chains(self) -> tuple[MarkovRandomField, ...]:
        """Models whose chains are updated by different kernels."""
        pairwise = (self.mixed, self.attractive, self.potts, self.attractive_potts, self.uneven, self.star)
        return (*pairwise, self.shared_potts, self.shared, self.triples, self.uneven_triples)


# -- parts ------------------------------------------------------------------------------------------------------------


def _warm_large_graphs(models: TinyModels) -> None:  # noqa: ARG001 (these are too small)
    """Run what is compiled for large graphs only: visit orders, evidence, treewidth, signs of couplings."""
    from fastmix.exact.search import treewidth_bounds
    from fastmix.graphs import grid_edges
    from fastmix.model.attractive import is_attractive
    from fastmix.model.reduce import reduce_model

    torus = grid_edges(301, 301, torus=True)  # an odd cycle: not two colors
    MarkovRandomField.ising(torus, 0.0).structure.visit_order  # noqa: B018 computed when asked for
    num_variables = 70_000
    path = grid_edges(1, num_variables)
    equal = np.where(np.eye(2) > 0, 0.0, -np.inf)
    tables = np.tile(equal, (len(path), 1, 1))
    model = MarkovRandomField.from_tables(np.zeros((num_variables, 2)), path, tables)
    reduce_model(model, {0: 0}, fold_single=True)
    treewidth_bounds(num_variables, path)
    is_attractive(MarkovRandomField.ising(path, -1.0))


def _warm_exact(models: TinyModels) -> None:
    """Run exact inference and exact draws."""
    line = MarkovRandomField.ising(fastmix.graphs.grid_edges(1, 3000), 0.1)
    for model in (_ising(side=14), _potts(side=9), line):
        fastmix.infer(model, method="exact")
        fastmix.draw_exact(model, num_draws=1, seed=0)
    for _ in range(3):  # the third call for a small model is compiled
        fastmix.infer(models.mixed, method="exact")


def _warm_queries(models: TinyModels) -> None:
    """Answer rows of evidence, some of whose variables every row observes."""
    rows = np.full((2, models.mixed.num_variables), -1)
    rows[:, 0] = 0
    fastmix.prepare(models.mixed, evidence_variables=[0]).ask(rows, most_probable=True)
    fastmix.impute(models.mixed, rows, method="chains", seed=0)
    fastmix.predict(models.mixed, rows, method="loopy-bp")


def _warm_gradients(models: TinyModels) -> None:
    """Differentiate log Z of one set of parameters, and of many side by side."""
    theta = models.mixed.parameters
    for rows in (theta, np.stack([theta] * 8)):
        found = fastmix.log_z(models.mixed.structure, rows)
        found.gradient()
        found.hessian_product(theta)
    first = len(models.mixed.log_unary)
    rows = np.stack([theta[:first]] * 8)
    found.partition.shared_gradients(rows, models.mixed.log_pairwise, np.ones(8))


def _warm_gibbs(models: TinyModels) -> None:
    """Run Gibbs chains: one, a word full, and few with marginals of edges."""
    for model in models.for_chains():
        for num_chains, edge_marginals in ((1, False), (64, False), (4, True)):
            fastmix.sample(model, num_chains=num_chains, edge_marginals=edge_marginals, **_SHORT_RUN)
        fastmix.sample(model, num_chains=4, schedule="random", **_SHORT_RUN)
    for schedule in ("systematic", "random"):
        fastmix.sample(models.crowd, num_chains=4, schedule=schedule, **_SHORT_RUN)


def _warm_swendsen_wang(models: TinyModels) -> None:
    """Run chains of Swendsen-Wang."""
    for model in (models.attractive, models.attractive_potts):
        fastmix.sample(model, method="swendsen-wang", num_chains=4, **_SHORT_RUN)


def _warm_perfect(models: TinyModels) -> None:
    """Draw by coupling from the past."""
    for model in (models.attractive, models.attractive_potts, models.weak):
        fastmix.perfect_sample(model, num_draws=2, seed=0)


def _warm_multicanonical(models: TinyModels) -> None:
    """Walk through all energies."""
    fastmix.infer(models.weak, method="multicanonical", num_walkers=2, num_sweeps=50, seed=0, progress=None)


def _warm_tempered(models: TinyModels) -> None:
    """Run replica exchange."""
    for model in models.for_chains():
        fastmix.temper(model, num_ensembles=2, edge_marginals=True, **_SHORT_RUN)
    for model in (models.mixed, models.potts, models.triples):
        fastmix.temper(model, num_ensembles=2, temperatures=[1.0], **_SHORT_RUN)


def _warm_variational(models: TinyModels) -> None:
    """Run mean field and belief propagation, the latter with both orders of messages."""
    for model in (models.mixed, models.potts, models.attractive_potts, models.uneven, models.coloring):
        fastmix.mean_field(model, seed=0)
        for message_order in ("parallel", "residual"):
            for edge_marginals in (False, True):
                fastmix.loopy_bp(model, message_order=message_order, max_iter=10, edge_marginals=edge_marginals)
    fastmix.loopy_bp(models.shared, max_iter=10)
    fastmix.mean_field(models.shared, seed=0)


def _warm_projected(models: TinyModels) -> None:
    """Project in all norms and divergences, and sample what comes of it."""
    divergences = (fastmix.KL(), fastmix.PiecewiseKL(), fastmix.ReversedKL(pool_size=8))
    for model in (models.mixed, models.potts, models.uneven, models.shared_potts, models.shared):
        for norm in ("inf", "spectral", "frobenius"):
            fastmix.project(model, norm_bound=0.1, norm=norm)
    for model in (models.mixed, models.potts, models.uneven):
        for divergence in divergences:
            fastmix.project(model, norm_bound=0.1, divergence=divergence, seed=0)
    fastmix.project(_ising(coupling_max=1.0), norm_bound=0.1, solver=fastmix.PaperDual())
    fastmix.project(_ising(coupling_max=1.0, side=7), norm="width", norm_bound=0.1)
    fastmix.infer(models.star, method="projected", norm_bound=0.1, seed=0, num_chains=8, num_sweeps=20, burn_in=2)


def _warm_certify(models: TinyModels) -> None:
    """Certify both schedules, where that succeeds and where it does not."""
    for model in (models.weak, models.mixed):
        for schedule in ("systematic", "random"):
            fastmix.certify(model, accuracy=0.01, schedule=schedule)


def _warm_map(models: TinyModels) -> None:
    """Look for the most probable configuration, by each of the ways that have kernels."""
    kinds = (models.mixed, models.attractive, models.star, models.potts, models.attractive_potts, models.uneven)
    for model in (*kinds, models.triples, models.shared_potts, models.shared):
        for method in ("auto", "cut", "messages", "expansion", "swap", "search"):
            with suppress(fastmix.FastmixError):  # not every method is for every model
                fastmix.most_probable(model, method=method, seed=0, time_limit=SHORT_TIME_LIMIT, progress=None)


def _warm_bracket(models: TinyModels) -> None:
    """Bracket log Z and marginals where nothing is exact, without and with draws."""
    for model in (models.mixed, models.attractive, models.potts, models.uneven, models.triples):
        for confidence in (None, 0.9):
            with suppress(fastmix.FastmixError):
                fastmix.bracket(
                    model,
                    memory_limit=TINY_MEMORY_LIMIT,
                    confidence=confidence,
                    seed=0,
                    time_limit=SHORT_TIME_LIMIT,
                    progress=None,
                )


def _warm_denoise(models: TinyModels) -> None:  # noqa: ARG001 (pictures make their own)
    """Clean pictures in black and white, with few labels, and by belief propagation."""
    from fastmix.denoising import denoise

    stripes = np.tile([0.0, 1.0], (6, 3))
    ramp = np.linspace(0.0, 1.0, 144).reshape(12, 12)
    denoise(stripes, seed=0)
    denoise(ramp, seed=0, num_labels=3)
    denoise(ramp, seed=0, method="loopy-bp")


def _warm_learn(models: TinyModels) -> None:
    """Fit models with every objective, and score data under them."""
    from fastmix.learning.activity import ActivityChains

    for model in (models.mixed, models.uneven):
        rows = fastmix.draw_exact(model, num_draws=100, seed=0)
        given: dict[str, Any] = {"num_states": model.num_states, "seed": 0, "max_iter": 1}
        found = fastmix.learn(rows, objective="pseudo-likelihood", **given).model
        for moments in ("exact", "sampled", "tempered"):
            fastmix.learn(rows, moments=moments, num_chains=64, **given)
        fastmix.learn(rows, objective="pseudo-likelihood", edges="chow-liu", **given)
        fastmix.learn(rows, objective="pseudo-likelihood", l1=0.1, **given)
        whole = np.asarray(rows)
        for table in (whole, np.where(np.arange(whole.size).reshape(whole.shape) == 0, -1, whole)):
            fastmix.learn(table, hidden=fastmix.Mixture(num_components=2), **{**given, "max_iter": 3})
        fastmix.score(found, rows, seed=0)
        fastmix.score(found, rows, method="annealing", num_chains=64, tol=1.0, seed=0)

    several = fastmix.draw_exact(models.potts, num_draws=100, seed=0)
    fastmix.score(models.potts, several, method="annealing", num_chains=64, tol=1.0, seed=0)

    # Hidden variables: a machine of two layers, and a chain of hidden ones with many joint states.
    units = np.eye(8, dtype=np.int8)
    given = {"moments": "sampled", "num_chains": 64, "max_iter": 1, "seed": 0}
    fastmix.learn(units, edges="complete", hidden=2, **given)
    chain = [(0, 8), *((8 + k, 9 + k) for k in range(12))]
    fastmix.learn(units, edges=chain, hidden=13, **given)

    # Graphs that grow, in sparse data.
    pair = np.array([[0, 1]])
    chains = ActivityChains(pair, np.zeros(3), np.eye(2, dtype=np.int8), 2, np.random.default_rng(0))
    chains.sweep(1)
    chains.log_zero()


def _warm_fields(models: TinyModels) -> None:  # noqa: ARG001 (examples make their own)
    """Fit a conditional random field to chains by the likelihood and the pseudo-likelihood, and ask it."""
    from fastmix.crf import ConditionalRandomField

    examples = [np.zeros((3, 1)), np.zeros((1, 1))]
    labels = [[0, 1, -1], [0]]
    for objective in ("likelihood", "pseudo-likelihood"):
        field = ConditionalRandomField(objective=objective, max_iter=1).fit(examples, labels)
    field.sample(examples)
    field.set_params(decode="most_probable").predict(examples)


#: What :func:`warm_up` runs, by the name under which it is reported, in the order in which it is run.
PARTS: Mapping[str, Callable[[TinyModels], None]] = {
    "large graphs": _warm_large_graphs,
    "exact": _warm_exact,
    "gibbs": _warm_gibbs,
    "swendsen-wang": _warm_swendsen_wang,
    "perfect": _warm_perfect,
    "tempered": _warm_tempered,
    "multicanonical": _warm_multicanonical,
    "mean-field, loopy-bp": _warm_variational,
    "projected": _warm_projected,
    "certify": _warm_certify,
    "map": _warm_map,
    "bracket": _warm_bracket,
    "denoise": _warm_denoise,
    "learn": _warm_learn,
    "rows": _warm_queries,
    "gradients": _warm_gradients,
    "conditional random fields": _warm_fields,
}
