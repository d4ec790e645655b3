"""Families of random models with a known truth, for ``ok_shares.py``: what calls say of answers, and which are right.

Every family is a function of a seed. It draws a model, asks for an answer, finds the truth by enumeration or exact
inference and compares. Draws come from NumPy alone, so that two versions of the package are asked the same.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / name) for name in (".", "learning", "projection", "statistical")]

import fastmix
from fastmix import MarkovRandomField
from fastmix.graphs import complete_edges
from fastmix.instances import ising_grid, potts_grid

FloatArray = np.typing.NDArray[np.float64]

ERRORS = 5.0  # standard errors within which an answer is right
EXACT = 1e-6  # and by how much one is off that claims none
LEAST = 1e-9  # of five standard errors of log Z: rounding


@dataclass(frozen=True)
class Answer:
    """What a call said: its status, whether it is right, a number of the truth, and words for those who look closer."""

    status: str
    right: bool
    truth: float  # the same in both versions, or they were not asked the same
    words: str = ""


@dataclass(frozen=True)
class Family:
    """Random models and a call: ``ask`` has the answer for a seed, None where there is none to judge."""

    name: str
    runs: int
    ask: Callable[[int], Answer | None]


def limit_of(rng: np.random.Generator, least: float, most: float) -> float:
    """A time limit in seconds, as likely to be in any range of the same ratio."""
    return math.exp(rng.uniform(math.log(least), math.log(most)))


def off(error: FloatArray, scale: FloatArray, rounding: float = 1e-12) -> bool:
    """Whether any error is beyond what is stated."""
    return bool((error > ERRORS * scale + rounding).any())


def worst(error: FloatArray) -> str:
    return f"largest error {error.max(initial=0.0):.2g}"


# -- scores -----------------------------------------------------------------------------------------------------------


def score_modes(seed: int, least: float, most: float) -> Answer | None:
    """Log Z of models of two or more modes, by rows that are all in one of them."""
    from mode_models import draw_modes

    case = draw_modes(seed)
    rng = np.random.default_rng([seed, 1])
    rows = case.rows[int(rng.integers(len(case.rows)))]
    limit = limit_of(rng, least, most)
    found = fastmix.score(case.model, rows, method="annealing", seed=seed, time_limit=limit, progress=None)
    return judge_score(found, case.log_z, limit)


def score_ferromagnet(seed: int, least: float, most: float) -> Answer | None:
    """The same of complete ferromagnets of 7 to 60 variables with a weak field, of two states or three."""
    from mode_models import _count

    rng = np.random.default_rng([seed, 2])
    n = int(rng.integers(7, 61))
    q = int(rng.integers(2, 4))
    # From where modes part, 2 and 2.77 over n, to where the smaller one is rare.
    coupling = rng.uniform(2.2, 6.0) * (1.0 if q == 2 else 1.4) / n
    tilt = rng.uniform(0.0, 3.0) / n  # log-odds of the modes of nearly all variables, for every variable
    field = tilt * np.arange(q, dtype=float)
    edges = complete_edges(n)
    model = MarkovRandomField.from_tables([field] * n, edges, [coupling * np.eye(q)] * len(edges))
    _, logs = _count(np.array([n]), q, np.array([[coupling]]), field[None])
    rows = np.full((50, n), int(rng.integers(q)))
    flips = rng.random(rows.shape) < 0.05
    rows = np.where(flips, rng.integers(q, size=rows.shape), rows)
    limit = limit_of(rng, least, most)
    found = fastmix.score(model, rows, method="annealing", seed=seed, time_limit=limit, progress=None)
    return judge_score(found, float(np.logaddexp.reduce(logs)), limit)


def judge_score(found: fastmix.ScoreResult, log_z: float, limit: float) -> Answer | None:
    """None where the time ended before there was more than a bound, which claims no log Z."""
    error = abs(found.log_z - log_z)
    claimed = found.log_z_std_error
    if not math.isfinite(claimed):
        return None
    words = f"log Z off by {error:.2g}, error {claimed:.2g}, limit {limit:.2g}, {found.stats.get('stopped_by')}"
    return Answer(str(found.status), bool(error <= max(ERRORS * claimed, LEAST)), log_z, words)


# -- brackets ---------------------------------------------------------------------------------------------------------


def bracket_constants(seed: int) -> Answer:
    """Tiny models with constants of up to 1e12 in their terms, and too little memory for exact inference."""
    from oracle.bounds import missed, random_with_constants

    model, evidence = random_with_constants(seed)
    ways: list[dict[str, Any]] = [
        {},
        {"memory_limit": 64, "time_limit": 0.05},
        {"memory_limit": 200, "time_limit": 0.1, "confidence": 1.0 - 1e-9, "num_draws": 200},
    ]
    result = fastmix.bracket(model, evidence=evidence, seed=seed, progress=None, **ways[seed % len(ways)])
    wrong = missed(result, model, evidence)
    return Answer(str(result.status), not wrong, float(model.log_constant), "; ".join(wrong)[:100])


# -- inference --------------------------------------------------------------------------------------------------------


def grid_or_sparse(seed: int) -> MarkovRandomField:
    """A grid, or a sparse graph, of any strength that auto samples or is exact for."""
    rng = np.random.default_rng([seed, 3])
    kind = int(rng.integers(5))
    strength = 10.0 ** rng.uniform(-1.0, 0.5)
    side = int(rng.integers(3, 13))
    if kind < 2:
        return ising_grid(side, side, coupling_max=strength, attractive=kind == 1, seed=seed)
    if kind == 2:
        return potts_grid(min(side, 8), min(side, 8), num_states=3, coupling_max=strength, seed=seed)
    n = int(rng.integers(8, 50))
    degree = rng.uniform(1.0, 3.0)
    edges = complete_edges(n)
    edges = edges[rng.random(len(edges)) < degree / (n - 1)]
    if not len(edges):
        edges = np.array([[0, 1]])
    if kind == 3:
        return MarkovRandomField.ising(edges, strength * rng.normal(size=len(edges)), rng.normal(size=n))
    counts = rng.integers(2, 5, size=n)
    tables = [strength * rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    return MarkovRandomField.from_tables([rng.normal(size=count) for count in counts], edges.tolist(), tables)


def auto(seed: int, memory_limit: float | None) -> Answer | None:
    """Marginals by ``auto``: None where belief propagation, or mean field, answers."""
    model = grid_or_sparse(seed)
    limit = limit_of(np.random.default_rng([seed, 4]), 0.3, 3.0)
    truth = fastmix.infer(model, method="exact")
    result = fastmix.infer(model, memory_limit=memory_limit, time_limit=limit, seed=seed, num_threads=1, progress=None)
    if result.method in ("loopy-bp", "mean-field"):
        return None
    error = np.abs(result.node_marginals - truth.node_marginals)
    words = f"{result.method}, {model}, limit {limit:.2g}, {worst(error)}"
    return Answer(str(result.status), not beyond(result, error), truth.log_z, words)


def beyond(result: Any, error: FloatArray) -> bool:
    """Whether marginals are off by more than an answer states, chance and bias."""
    stated = getattr(result, "std_error", None)
    if stated is None:
        return bool(error.max(initial=0.0) > EXACT)
    bias = getattr(result, "bias_bound", None)
    return off(error, stated if bias is None else np.hypot(stated, bias), EXACT)


def replicas(seed: int, of_log_z: bool) -> Answer | None:
    """Log Z or marginals by replica exchange, of weak and strong models: None where no log Z is claimed."""
    from error_families import strongly_coupled

    model = strongly_coupled(seed, longest=60) if seed % 2 else grid_or_sparse(seed)
    limit = limit_of(np.random.default_rng([seed, 5]), 0.2, 2.0)
    truth = fastmix.infer(model, method="exact")
    result = fastmix.temper(model, time_limit=limit, seed=seed, num_threads=1, progress=None)
    note = f"{model}, limit {limit:.2g}, {result.stats.get('note', '')}"
    if not of_log_z:
        error = np.abs(result.node_marginals - truth.node_marginals)
        return Answer(str(result.status), not beyond(result, error), truth.log_z, f"{worst(error)}; {note}")
    if result.log_z is None:
        return None
    missing = abs(result.log_z - truth.log_z)
    right = missing <= ERRORS * result.log_z_std_error + 1e-9 * (1.0 + abs(truth.log_z))
    words = f"log Z off by {missing:.2g}, error {result.log_z_std_error:.2g}; {note}"
    return Answer(str(result.status), bool(right), truth.log_z, words)


# -- samples ----------------------------------------------------------------------------------------------------------


def sample_accurately(seed: int, schedule: str | None) -> Answer:
    """Draws to an accuracy, of models that are certified after few sweeps."""
    from error_families import biased_run

    model, accuracy, start = biased_run(seed)
    options = {} if start is None else {"start": start}
    truth = fastmix.infer(model, method="exact")
    result = fastmix.sample(
        model, accuracy=accuracy, schedule=schedule, seed=seed, num_threads=1, progress=None, **options
    )
    error = np.abs(result.node_marginals - truth.node_marginals)
    return Answer(str(result.status), not beyond(result, error), truth.log_z, f"{accuracy:.2g}, {worst(error)}")


def clusters(seed: int, num_chains: int | None) -> Answer:
    """Cluster moves where fields oppose each other."""
    from test_trust import opposing

    from error_families import opposing_halves

    rng = np.random.default_rng([seed, 6])
    model = opposing_halves(seed) if seed % 2 else opposing(seed)
    few = num_chains if num_chains is not None else int(rng.choice([3, 8, 16]))
    num_sweeps = int(rng.choice([300, 1000, 3000]))
    truth = fastmix.infer(model, method="exact")
    result = fastmix.sample(
        model, method="swendsen-wang", num_chains=few, num_sweeps=num_sweeps, seed=seed, num_threads=1, progress=None
    )
    error = np.abs(result.node_marginals - truth.node_marginals)
    words = f"{few} chains, {num_sweeps} sweeps, {worst(error)}; {result.stats.get('note', '')}"
    return Answer(str(result.status), not beyond(result, error), truth.log_z, words)


def gibbs(seed: int) -> Answer:
    """Gibbs sampling of models without a certificate that mix within hundreds of sweeps, and of two modes."""
    from test_trust import bimodal, moderate

    rng = np.random.default_rng([seed, 7])
    model = moderate(seed // 2) if seed % 2 else bimodal(seed // 2)
    num_chains = int(rng.choice([4, 16, 64]))
    num_sweeps = int(rng.choice([1000, 5000]))
    truth = fastmix.infer(model, method="exact")
    result = fastmix.sample(
        model, num_chains=num_chains, num_sweeps=num_sweeps, seed=seed, num_threads=1, progress=None
    )
    error = np.abs(result.node_marginals - truth.node_marginals)
    words = f"{num_chains} chains, {num_sweeps} sweeps, {worst(error)}; {result.stats.get('note', '')}"
    return Answer(str(result.status), not beyond(result, error), truth.log_z, words)


def annealed(seed: int) -> Answer:
    """Annealed populations of attractive models."""
    from error_families import attractive

    model = attractive(seed)
    num_steps = int(np.random.default_rng([seed, 8]).choice([5, 20, 150]))
    truth = fastmix.infer(model, method="exact")
    options = {"num_steps": num_steps, "sweeps_per_step": 1 + num_steps // 20}
    result = fastmix.infer(model, method="annealed", seed=seed, num_threads=1, progress=None, **options)
    error = np.abs(result.node_marginals - truth.node_marginals)
    words = f"{num_steps} steps, {worst(error)}; {result.stats.get('note', '')}"
    wrong = beyond(result, error)
    if result.log_z is not None:
        missing = abs(result.log_z - truth.log_z)
        wrong |= missing > ERRORS * result.log_z_std_error + 1e-9 * (1.0 + abs(truth.log_z))
        words += f", log Z off by {missing:.2g}, error {result.log_z_std_error:.2g}"
    return Answer(str(result.status), not wrong, truth.log_z, words)


# -- learning ---------------------------------------------------------------------------------------------------------


def learn_rows(seed: int, least: int, most: int) -> Answer:
    """Sampled fits: right where no more objective is left to gain than the tolerance."""
    from sampled_fits import fit_few_rows

    found = fit_few_rows(seed, least=least, most=most)
    return Answer(str(found.status), found.gap <= found.tol, found.tol, f"gap {found.gap:.2g}, tol {found.tol:.2g}")


# -- certificates and projections -------------------------------------------------------------------------------------


def certificate(seed: int) -> Answer:
    """Certificates for tiny models; what promises nothing is not wrong, and not ok."""
    from oracle.theory import Chain

    rng = np.random.default_rng([seed, 9])
    n = int(rng.integers(2, 5))
    counts = rng.integers(2, 4, size=n)
    edges = [pair for pair in complete_edges(n).tolist() if rng.random() < 0.7]
    scale = 10.0 ** rng.uniform(-1.5, 0.2)
    constant = 10.0 ** rng.uniform(0.0, 12.0) if rng.random() < 0.3 else 0.0
    tables = [scale * rng.normal(size=(counts[i], counts[j])) + constant * rng.normal() for i, j in edges]
    for table in tables:
        if rng.random() < 0.1:
            table[tuple(rng.integers(0, 2, size=2))] = -np.inf
    model = MarkovRandomField.from_tables([rng.normal(size=count) for count in counts], edges, tables)
    accuracy = float(10.0 ** rng.uniform(-3.0, -1.0))
    schedule = str(rng.choice(["systematic", "random"]))
    order: dict[str, Any] = {"order": np.arange(n)} if schedule == "systematic" else {}
    found = fastmix.certify(model, accuracy=accuracy, schedule=schedule, progress=None, **order)
    right = True
    words = f"{found.criterion}, {schedule}"
    if found.certified and found.num_sweeps is not None:
        chain = Chain(model)
        kernel = np.linalg.matrix_power(chain.sweep(schedule), found.num_sweeps)
        distance = chain.distances(kernel)[0]
        right = distance <= accuracy + 1e-9
        words += f", {found.num_sweeps} sweeps: {distance:.2g} of {accuracy:.2g}"
    return Answer(str(found.status), right, float(scale), words)


def projection(seed: int, huge: bool) -> Answer:
    """Projections: right where the model that comes back is within the bound."""
    from test_huge_tables import NORMS, draw_model, true_norm

    from oracle import random_model

    rng = np.random.default_rng([seed, 10])
    if huge:
        model = draw_model(rng)
    else:
        model = random_model(rng, int(rng.integers(2, 12)), max_states=4, scale=10.0 ** rng.uniform(-1.0, 1.0))
    norm = str(rng.choice(NORMS))
    dependency: Any = str(rng.choice(["range", "linf"]))
    bound = float(rng.choice([0.5, 0.9, 2.5]))
    before = true_norm(model, norm, dependency)
    try:
        result = fastmix.project(model, norm_bound=bound, norm=norm, dependency=dependency, progress=None)
        status = str(result.status)
    except fastmix.NotConvergedError as error:
        result = error.result
        status = "not_converged"
    finite = bool(np.isfinite(result.model.parameters).all())
    after = true_norm(result.model, norm, dependency) if finite else math.inf
    right = after <= bound * (1.0 + 1e-9)
    return Answer(status, right, before, f"{norm} {dependency} {before:.2g} to {after:.12g}, bound {bound:g}")


# -- the most probable ------------------------------------------------------------------------------------------------


def most_probable(seed: int, search: bool) -> Answer:
    """The most probable configuration of models for which exact inference knows it."""
    model = grid_or_sparse(seed)
    best = fastmix.most_probable(model, method="exact", progress=None).log_weight
    limit = limit_of(np.random.default_rng([seed, 11]), 0.1, 1.0)
    options: dict[str, Any] = {"memory_limit": 1000.0} if search else {}
    result = fastmix.most_probable(model, seed=seed, time_limit=limit, progress=None, **options)
    short = best - result.log_weight
    right = abs(short) <= 1e-9 * (1.0 + abs(best))
    words = f"{result.method}, {model}, limit {limit:.2g}, {short:.2g} short, gap {result.gap:.2g}"
    return Answer(str(result.status), right, best, words)


FAMILIES = (
    Family("score, ferromagnets", 40, lambda seed: score_ferromagnet(seed, 3.0, 20.0)),
    Family("score, several modes", 30, lambda seed: score_modes(seed, 3.0, 20.0)),
    Family("score, ferromagnets, short", 60, lambda seed: score_ferromagnet(seed, 0.3, 3.0)),
    Family("score, several modes, short", 50, lambda seed: score_modes(seed, 0.3, 3.0)),
    Family("bracket, constants", 150, bracket_constants),
    Family("infer auto", 60, lambda seed: auto(seed, None)),
    Family("infer auto, little memory", 80, lambda seed: auto(seed, 2000.0)),
    Family("temper, log Z", 80, lambda seed: replicas(seed, True)),
    Family("temper, marginals", 60, lambda seed: replicas(seed, False)),
    Family("sample accuracy, default", 100, lambda seed: sample_accurately(seed, None)),
    Family("sample accuracy, systematic", 100, lambda seed: sample_accurately(seed, "systematic")),
    Family("sample accuracy, random", 100, lambda seed: sample_accurately(seed, "random")),
    Family("sample accuracy, random-burn-in", 60, lambda seed: sample_accurately(seed, "random-burn-in")),
    Family("swendsen-wang, 4 chains", 200, lambda seed: clusters(seed, 4)),
    Family("swendsen-wang, 3 to 16 chains", 200, lambda seed: clusters(seed, None)),
    Family("sample gibbs", 100, gibbs),
    Family("infer annealed", 120, annealed),
    Family("learn sampled, 3 to 10 rows", 100, lambda seed: learn_rows(seed, 3, 10)),
    Family("learn sampled, 30 to 500 rows", 60, lambda seed: learn_rows(seed, 30, 500)),
    Family("certify", 300, certificate),
    Family("project", 200, lambda seed: projection(seed, False)),
    Family("project, huge tables", 200, lambda seed: projection(seed, True)),
    Family("most_probable", 60, lambda seed: most_probable(seed, False)),
    Family("most_probable, search", 60, lambda seed: most_probable(seed, True)),
)
