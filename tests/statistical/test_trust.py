"""Verdicts and error bars against the truth, on families of models that are hard for them; run by ``make verify``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmix import MarkovRandomField, certify, infer, sample, temper
from fastmix.exact.enumeration import enumerate_model
from fastmix.graphs import grid_edges
from fastmix.instances import ising_grid
from fastmix.io import read_model
from fastmix.results import Status
from oracle import conditional, first_order_model, log_sum_exp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FloatArray = NDArray[np.float64]
Tell = Callable[[str, str, str], None]

LARGE = 0.1  # an error that an answer called ok must not have


# -- families ---------------------------------------------------------------------------------------------------------


def moderate(seed: int) -> MarkovRandomField:
    """Models without a certificate that mix within hundreds of sweeps."""
    rng = np.random.default_rng([seed, 7])
    if seed % 4 == 0:
        return ising_grid(4, 4, coupling_max=rng.uniform(0.6, 1.2), attractive=True, seed=seed)
    if seed % 4 == 1:
        return ising_grid(4, 4, coupling_max=rng.uniform(0.8, 1.6), seed=seed)
    if seed % 4 == 2:
        pairs = list(itertools.combinations(range(10), 2))
        return MarkovRandomField.ising(pairs, coupling=0.16 * rng.uniform(0.5, 1.1), field=0.1 * rng.normal(size=10))
    pairs = grid_edges(3, 3).tolist()
    return MarkovRandomField.potts(
        pairs, coupling=rng.uniform(0.5, 1.2), num_states=3, field=0.5 * rng.normal(size=(9, 3))
    )


def opposing(seed: int) -> MarkovRandomField:
    """Attractive models whose fields pull the two halves apart: clusters seldom change their states."""
    rng = np.random.default_rng([seed, 8])
    rows, cols = (4, 4) if seed % 2 else (3, 4)
    side = np.where(np.arange(rows * cols) % cols < cols / 2, 1.0, -1.0)
    field = side * rng.uniform(0.3, 1.5) * rng.uniform(0.7, 1.3, size=rows * cols)
    return MarkovRandomField.ising(grid_edges(rows, cols), coupling=rng.uniform(0.5, 1.5), field=field)


def bimodal(seed: int) -> MarkovRandomField:
    """Two or three modes of similar weight that single updates seldom leave; some hidden behind exchanged states."""
    rng = np.random.default_rng([seed, 9])
    if seed % 4 == 0:
        n = int(rng.integers(8, 14))
        pairs = list(itertools.combinations(range(n), 2))
        return MarkovRandomField.ising(pairs, coupling=rng.uniform(1.2, 2.5) / n, field=rng.uniform(-0.05, 0.05))
    if seed % 4 == 3:
        field = 0.1 * rng.normal(size=(8, 3))
        return MarkovRandomField.potts(grid_edges(2, 4), coupling=rng.uniform(1.5, 3.0), num_states=3, field=field)
    edges = grid_edges(4, 4)
    signs = rng.choice([-1, 1], size=16) if seed % 4 == 2 else np.ones(16)
    coupling = rng.uniform(0.6, 1.2) * signs[edges[:, 0]] * signs[edges[:, 1]]
    return MarkovRandomField.ising(edges, coupling=coupling, field=0.05 * rng.normal(size=16))


def rare_neighbor(seed: int) -> MarkovRandomField:
    """x_1 is nearly certain unless x_0 is in a rare state; x_2 makes x_1 vary a little from sweep to sweep."""
    rng = np.random.default_rng([seed, 10])
    p = 10.0 ** rng.uniform(-6.0, -3.0)
    joint = np.array([[(1.0 - p) * (1.0 - 1e-7), (1.0 - p) * 1e-7], [0.5 * p, 0.5 * p]])
    weak = rng.uniform(0.1, 0.5)
    return MarkovRandomField.from_tables(
        [[0, 0], [0, 0], [0, 0]], [(0, 1), (1, 2)], [np.log(joint), [[weak, -weak], [-weak, weak]]]
    )


def exact_marginals(model: MarkovRandomField) -> FloatArray:
    return infer(model, method="exact").node_marginals


class Trial:
    """Runs of one family: how many said ok, how many of these were wrong, and how often their intervals held."""

    def __init__(self, family: Callable[[int], MarkovRandomField], count: int, **options: Any) -> None:
        self.count, self.false_ok, self.covered = count, 0, []
        for seed in range(count):
            model = family(seed)
            truth = exact_marginals(model)
            result = sample(model, seed=seed, num_threads=1, **options)
            if result.status != Status.OK:
                continue
            error = np.abs(result.node_marginals - truth)
            self.false_ok += bool(error.max() > LARGE)
            entries = np.flatnonzero((truth > 1e-3) & (truth < 1.0 - 1e-3))
            if family is rare_neighbor:
                entries = np.array([3])
            if entries.size:
                self.covered.append(float((error[entries] <= 1.96 * result.std_error[entries]).mean()))

    @property
    def num_ok(self) -> int:
        return len(self.covered)

    @property
    def coverage(self) -> float:
        return float(np.mean(self.covered))

    def __str__(self) -> str:
        return f"ok {self.num_ok} of {self.count}, wrong {self.false_ok}, coverage {self.coverage:.3f}"


# -- error bars -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_chains", [3, 4, 16, 64])
def test_coverage_of_models_that_mix_slowly(num_chains: int, tell: Tell) -> None:
    trials = [Trial(moderate, 300, num_chains=num_chains, num_sweeps=sweeps) for sweeps in (1000, 5000)]
    for trial, sweeps in zip(trials, (1000, 5000), strict=True):
        tell("gibbs, moderate", f"{num_chains} chains, {sweeps} sweeps", str(trial))
    # Over 250 runs the coverage has a standard error below 1.5 %, at 95 %.
    assert all(trial.coverage >= 0.93 for trial in trials)
    assert all(trial.false_ok == 0 for trial in trials)


@pytest.mark.parametrize("num_chains", [4, 16, 64])
def test_coverage_of_cluster_moves_with_opposing_fields(num_chains: int, tell: Tell) -> None:
    trials = [
        Trial(opposing, 2500, num_chains=num_chains, num_sweeps=sweeps, method="swendsen-wang")
        for sweeps in (300, 1000)
    ]
    for trial, sweeps in zip(trials, (300, 1000), strict=True):
        tell("swendsen-wang, opposing fields", f"{num_chains} chains, {sweeps} sweeps", str(trial))
    assert sum(trial.false_ok for trial in trials) <= 2
    pooled = np.concatenate([trial.covered for trial in trials])
    assert pooled.mean() >= 0.93


@pytest.mark.parametrize("num_chains", [4, 16, 64])
def test_coverage_where_a_neighbor_has_a_rare_state(num_chains: int, tell: Tell) -> None:
    trial = Trial(rare_neighbor, 500, num_chains=num_chains, num_sweeps=1000)
    tell("gibbs, rare neighbor", f"{num_chains} chains, 1000 sweeps", str(trial))
    assert trial.num_ok > 400
    assert trial.coverage >= 0.93


@pytest.mark.parametrize("name", ["Segmentation_11", "Segmentation_12", "Segmentation_13"])
def test_coverage_on_segmentations(name: str, shared_data: Any, tell: Tell) -> None:
    model = read_model(shared_data / "uai" / f"{name}.uai")
    truth = exact_marginals(model)
    beyond, statuses = [], []
    for seed in range(4):
        result = sample(model, seed=seed)
        known = result.std_error == 0.0
        z = np.abs(result.node_marginals - truth) / np.where(known, 1.0, result.std_error)
        statuses.append(str(result.status))
        if result.status == Status.OK:
            beyond.append(float((z > 3.0).mean()))
    tell("gibbs, real models", name, f"{', '.join(statuses)}; beyond 3 standard errors {beyond}")
    # A normal distribution has 0.27 %; the entries of one run are not independent.
    assert all(share <= 0.01 for share in beyond)


# -- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_chains", [1, 2, 3, 4, 8, 16])
def test_few_chains_do_not_agree_too_easily(num_chains: int, tell: Tell) -> None:
    trials = [Trial(bimodal, 540, num_chains=num_chains, num_sweeps=sweeps) for sweeps in (1000, 5000)]
    wrong, num_ok = sum(trial.false_ok for trial in trials), sum(trial.num_ok for trial in trials)
    tell("gibbs, bimodal", f"{num_chains} chains", f"ok {num_ok} of 1080, wrong {wrong}")
    assert wrong <= 10  # under 1 %
    if num_chains <= 2:
        assert num_ok == 0


def first_order_trial(seed: int) -> tuple[MarkovRandomField, float, NDArray[np.int64]]:
    rng = np.random.default_rng([seed, 11])
    n, num_states = int(rng.integers(8, 30)), int(rng.integers(4, 24))
    labels = rng.integers(0, num_states, size=n) if seed % 2 else np.zeros(n, dtype=np.int64)
    model, share, _ = first_order_model(
        n, num_states, excess=rng.uniform(-2.0, 5.0), unary=-rng.uniform(0.0, 3.0), labels=labels.tolist()
    )
    return model, share, labels


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("method", ["tempered", "gibbs"])
def test_first_order_transitions(method: str, part: int, tell: Tell) -> None:
    wrong, num_ok, errors = 0, 0, []
    for seed in range(100 * part, 100 * part + 100):
        model, share, labels = first_order_trial(seed)
        if method == "tempered":
            result: Any = temper(model, num_sweeps=1000, seed=seed)
        else:
            result = sample(model, num_sweeps=1000, seed=seed)
        found = result.node_marginals[model.unary_offsets[:-1] + labels].mean()
        errors.append(abs(float(found) - share))
        if result.status == Status.OK:
            num_ok += 1
            wrong += errors[-1] > LARGE
    tell(f"{method}, first order", "verdicts", f"ok {num_ok} of 100, wrong {wrong}")
    assert wrong == 0
    if method == "tempered":  # right, and not only doubted
        assert np.mean(errors) < 0.08


def potts_on_the_complete_graph(
    n: int, num_states: int, coupling: float, unary: float
) -> tuple[MarkovRandomField, float]:
    """The model, and the probability of state 0, whose unary is given, by the numbers of variables in each state."""
    first = [coupling * k * (k - 1) / 2 + unary * k - math.lgamma(k + 1) for k in range(n + 1)]
    others = [0.0] + [-math.inf] * n
    for _ in range(num_states - 1):
        each = [coupling * k * (k - 1) / 2 - math.lgamma(k + 1) for k in range(n + 1)]
        others = [log_sum_exp([others[k] + each[m - k] for k in range(m + 1)]) for m in range(n + 1)]
    weights = [first[k] + others[n - k] for k in range(n + 1)]
    total = log_sum_exp(weights)
    share = math.fsum(k / n * math.exp(w - total) for k, w in enumerate(weights))
    field = np.zeros((n, num_states))
    field[:, 0] = unary
    pairs = list(itertools.combinations(range(n), 2))
    return MarkovRandomField.potts(pairs, coupling=coupling, num_states=num_states, field=field), share


def test_first_order_transitions_of_cluster_moves(tell: Tell) -> None:
    wrong, num_ok = 0, 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 12])
        n, q = int(rng.integers(15, 40)), int(rng.integers(6, 20))
        # Around the transition of the complete graph, J n = 2 (q - 1) / (q - 2) ln(q - 1).
        critical = 2.0 * (q - 1) / (q - 2) * math.log(q - 1) / n
        model, share = potts_on_the_complete_graph(n, q, critical * rng.uniform(0.9, 1.3), rng.uniform(-0.2, 0.6))
        result = sample(model, method="swendsen-wang", num_sweeps=500, num_chains=16, seed=seed)
        if result.status == Status.OK:
            num_ok += 1
            wrong += bool(abs(result.node_marginals[::q].mean() - share) > LARGE)
    tell("swendsen-wang, first order", "200 models", f"ok {num_ok}, wrong {wrong}")
    assert wrong == 0


# -- bounds and certificates ------------------------------------------------------------------------------------------


def test_no_lower_bound_is_above_log_z(tell: Tell) -> None:
    from fastmix.sampling.tempering.ladder import make_path
    from fastmix.sampling.tempering.phases import find_phases, lower_bounds

    rng = np.random.default_rng(13)
    above = tried = 0
    for seed in range(1000):
        n = int(rng.integers(2, 7))
        counts = rng.integers(2, 4, size=n).tolist()
        pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.6]
        scale = rng.uniform(0.1, 4.0)
        tables = [scale * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
        model = MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)
        truth = enumerate_model(model).log_z
        path = make_path(model)
        bounds = lower_bounds(path, find_phases(path, rng=np.random.default_rng(seed)), np.ones(1))[:, 0]
        tried += len(bounds)
        above += int((bounds > truth + 1e-9).sum())
    tell("lower bounds on log Z", f"{tried} of 1000 models", f"violated {above}")
    assert tried > 500
    assert above == 0


def sweep_matrix(model: MarkovRandomField) -> FloatArray:
    """Transition matrix of a sweep over the variables in order; all are binary and every conditional is defined."""
    n = model.num_variables
    states = list(itertools.product(range(2), repeat=n))
    number = {x: k for k, x in enumerate(states)}
    result = np.eye(len(states))
    for i in range(n):
        step = np.zeros((len(states), len(states)))
        for x in states:
            p = conditional(model, i, x)
            assert p is not None
            for s in range(2):
                step[number[x], number[(*x[:i], s, *x[i + 1 :])]] += p[s]
        result = result @ step
    return result


def test_no_certificate_is_beaten(tell: Tell) -> None:
    """Distances from the worst start after the certified number of systematic sweeps, from the transition matrix."""
    rng = np.random.default_rng(14)
    certified = beaten = 0
    for _ in range(500):
        n = int(rng.integers(2, 5))
        pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.7]
        tables = [rng.uniform(0.1, 1.5) * rng.normal(size=(2, 2)) for _ in pairs]
        for table in tables:
            if rng.random() < 0.1:
                table[tuple(rng.integers(0, 2, size=2))] = -np.inf
        model = MarkovRandomField.from_tables([rng.normal(size=2) for _ in range(n)], pairs, tables)
        certificate = certify(model, accuracy=0.05, order=np.arange(n))
        if not certificate.certified or certificate.num_sweeps is None:
            continue
        certified += 1
        matrix = np.linalg.matrix_power(sweep_matrix(model), certificate.num_sweeps)
        target = enumerate_model(model)
        weights = np.exp([model.log_weight(x) - target.log_z for x in itertools.product(range(2), repeat=n)])
        beaten += bool(0.5 * np.abs(matrix - weights).sum(axis=1).max() > 0.05)
    tell("certificates", f"{certified} certified of 500 models", f"violated {beaten}")
    assert certified > 100
    assert beaten == 0
