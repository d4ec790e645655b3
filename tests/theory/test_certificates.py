from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastmix
import oracle
import strategies
from fastmix import graphs, instances
from fastmix._loops import run_loop
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.theory import dobrushin
from fastmix.theory.bias import SMALLEST_BIAS, bias_after, safe_matrix, sweep_in_place
from fastmix.theory.certificate import Certificate
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.dependency import DEPENDENCIES, dependency_matrix
from fastmix.theory.norms import NORMS, matrix_norm
from oracle import theory

# The other criteria, and the choice among them, are the matter of test_criteria.py.
certify = functools.partial(fastmix.certify, criterion="dobrushin")

INF = math.inf
ROUNDING = 1e-12  # of transition matrices multiplied up by floating point

# Strengths from easily certified to hopeless.
TINY_SCALES = (0.05, 0.2, 0.5, 1.0, 5.0)


def cycle(n: int = 4, coupling: float = 0.3, field: float = 0.1) -> MarkovRandomField:
    return MarkovRandomField.ising(graphs.cycle_edges(n), coupling, field)


# -- a certificate is never beaten by the exact distance ------------------------------------------------------------


def assert_never_beaten(
    model: MarkovRandomField, matrix: Any, schedule: str, order: Sequence[int] | None = None, num_sweeps: int = 10
) -> None:
    """The worst exact distances after 1, 2, .. sweeps are at most what the matrix promises."""
    chain = theory.Chain(model)
    kernel = chain.sweep(schedule, order)
    power = np.eye(len(kernel))
    for t in range(1, num_sweeps + 1):
        power = power @ kernel
        joint, marginals = chain.distances(power)
        bias = bias_after(matrix, t, schedule=schedule, order=order)
        assert joint <= bias.sum() + ROUNDING, f"joint distance {joint} after {t} sweeps, promised {bias.sum()}"
        for i, distance in enumerate(marginals):
            assert distance <= bias[i] + ROUNDING, f"variable {i} at {distance} after {t} sweeps, promised {bias[i]}"


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@given(model=strategies.models(min_variables=1, max_variables=4, max_states=3, scales=TINY_SCALES), data=st.data())
def test_bias_is_never_beaten(model: MarkovRandomField, schedule: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(model.num_variables))) if schedule == "systematic" else None
    for dependency in ("exact", "sigmoid"):
        assert_never_beaten(model, dependency_matrix(model, dependency=dependency), schedule, order)


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@settings(max_examples=20)
@given(model=strategies.ising_models(min_variables=5, max_variables=5, max_coupling=0.6))
def test_bias_is_never_beaten_on_five_spins(model: MarkovRandomField, schedule: str) -> None:
    for dependency in ("exact", "linf"):
        assert_never_beaten(model, dependency_matrix(model, dependency=dependency), schedule)


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@pytest.mark.parametrize("couplings", [[1.0], [0.5, 0.5], [0.3, -0.4, 0.5]])
def test_half_of_the_dependency_would_be_beaten(couplings: list[float], schedule: str) -> None:
    n = len(couplings) + 1
    model = MarkovRandomField.ising(graphs.path_edges(n), couplings, 0.1)
    matrix = dependency_matrix(model, dependency="exact")
    assert_never_beaten(model, matrix, schedule)
    with pytest.raises(AssertionError, match="promised"):
        assert_never_beaten(model, 0.5 * matrix, schedule)


def test_another_order_or_direction_would_be_beaten() -> None:
    # A table that lets x_1 move x_0 and hardly the other way round: R transposed is no bound.
    model = MarkovRandomField.from_tables([[0.0, 0.0], [0.0, 6.0]], [(0, 1)], [[[1.0, -1.0], [-1.0, 1.0]]])
    matrix = dependency_matrix(model, dependency="exact").toarray()
    assert matrix[0, 1] > 5 * matrix[1, 0]
    assert_never_beaten(model, matrix, "systematic")
    chain = theory.Chain(model)
    _, marginals = chain.distances(chain.sweep("systematic"))
    assert marginals[0] > bias_after(matrix.T, 1)[0]


@given(
    model=strategies.models(min_variables=1, max_variables=4, max_states=3, scales=(0.05, 0.2, 0.4)),
    accuracy=st.sampled_from([0.5, 0.1, 0.01, 1e-4]),
    schedule=st.sampled_from(["systematic", "random"]),
    per_variable=st.booleans(),
    dependency=st.sampled_from(["exact", "sigmoid", "range"]),
    max_sweeps=st.sampled_from([1, 3, 20_000]),
)
def test_certified_sweeps_reach_the_accuracy(
    model: MarkovRandomField, accuracy: float, schedule: str, per_variable: bool, dependency: str, max_sweeps: int
) -> None:
    c = certify(
        model,
        accuracy=accuracy,
        schedule=schedule,
        per_variable=per_variable,
        dependency=dependency,
        max_sweeps=max_sweeps,
    )
    assert_consistent(c, model)
    if not c.certified:
        return
    assert c.num_sweeps is not None
    chain = theory.Chain(model)
    joint, marginals = chain.distances(np.linalg.matrix_power(chain.sweep(schedule), c.num_sweeps))
    assert max(marginals) <= c.max_bias + ROUNDING
    assert joint <= c.total_bias + ROUNDING
    assert all(distance <= bias + ROUNDING for distance, bias in zip(marginals, c.bias.tolist(), strict=True))
    assert (max(marginals) if per_variable else joint) <= accuracy + ROUNDING


def assert_consistent(c: Certificate, model: MarkovRandomField) -> None:
    """What every certificate fulfils."""
    assert c.status == (Status.OK if c.certified else Status.NOT_CONVERGED)
    assert (c.num_sweeps is None) == (not c.certified)
    assert c.bias.shape == (model.num_variables,)
    assert (c.bias >= 0.0).all()
    assert (c.bias <= 1.0).all()
    assert c.max_bias == c.bias.max(initial=0.0)
    oracle.assert_read_only(c.bias)
    assert (c.num_updates is None) == (c.norm_value >= 1.0)
    if c.norm_value < 1.0:
        assert c.certified
        assert c.num_updates is not None
        assert c.num_sweeps is not None
        assert c.num_sweeps * max(1, model.num_variables) <= c.num_updates + model.num_variables - 1
    if c.certified:
        assert (c.max_bias if c.per_variable else c.total_bias) <= c.accuracy
    else:
        assert c.offending
        way_out = "project" if undefined_conditional(model) is None else "infer"
        assert f"fastmix.{way_out}" in c.advice
        assert f"fastmix {way_out}" in c.advice
    sums = [value for _, value in c.offending]
    assert sums == sorted(sums, reverse=True)
    assert len(sums) <= 10
    assert json.loads(json.dumps(c.to_dict(), allow_nan=False))["num_sweeps"] == c.num_sweeps


# -- the iteration against plain loops ------------------------------------------------------------------------------


@given(model=strategies.models(max_variables=5, max_states=3, scales=TINY_SCALES), data=st.data())
def test_systematic_bias_is_just_above_exact_arithmetic(model: MarkovRandomField, data: st.DataObject) -> None:
    matrix = dependency_matrix(model).toarray()
    order = data.draw(st.none() | st.permutations(range(model.num_variables)))
    for t in (0, 1, 2, 5):
        expected = theory.systematic_bias(matrix, t, order)
        actual = bias_after(matrix, t, order=order).tolist()
        assert all(a >= b for a, b in zip(actual, expected, strict=True))
        np.testing.assert_allclose(actual, [float(b) for b in expected], rtol=1e-12, atol=SMALLEST_BIAS)


@given(model=strategies.models(min_variables=1, max_variables=5, max_states=3, scales=TINY_SCALES))
def test_random_bias_matches_update_after_update(model: MarkovRandomField) -> None:
    matrix = dependency_matrix(model).toarray()
    for t in (0, 1, 2, 5):
        actual = bias_after(matrix, t, schedule="random")
        np.testing.assert_allclose(actual, theory.random_bias(matrix, t, cut_each=False), rtol=1e-12)


@pytest.mark.parametrize("row_sum", [0.01, 0.9, 3.0, 10.0, 200.0])
def test_random_bias_of_a_star_lies_between_cutting_often_and_seldom(row_sum: float) -> None:
    n = 200
    matrix = np.zeros((n, n))
    matrix[0, 1:] = row_sum / (n - 1)
    matrix[1:, 0] = 0.3 / row_sum
    for t in (1, 2, 5):
        actual = bias_after(matrix, t, schedule="random")
        assert (actual >= theory.random_bias(matrix, t, cut_each=True) * (1 - 1e-13)).all()
        assert (actual <= theory.random_bias(matrix, t, cut_each=False) * (1 + 1e-10)).all()


def test_the_kernel_is_the_same_without_compilation() -> None:
    matrix = dependency_matrix(instances.ising_grid(5, 5, coupling_max=0.4, seed=0))
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data
    order = np.random.default_rng(0).permutation(25)
    for total, entry, most in ((0.1, INF, 100), (INF, 1e-3, 100), (0.0, 0.0, 7)):
        fast, slow = np.ones(25), np.ones(25)
        inputs = (*arrays, order, total, entry, most)
        made = run_loop(sweep_in_place, inputs, (fast,), compiled=True)
        assert made == run_loop(sweep_in_place, inputs, (slow,), compiled=False)
        np.testing.assert_allclose(fast, slow, rtol=1e-14)


@given(model=strategies.models(min_variables=1, max_variables=5, max_states=3))
def test_bias_falls_with_the_sweeps_and_rises_with_the_bound(model: MarkovRandomField) -> None:
    for schedule in ("systematic", "random"):
        before = np.ones(model.num_variables)
        for t in range(4):
            after = bias_after(model, t, schedule=schedule)
            assert (after <= before).all()
            before = after
        values = [
            bias_after(model, 2, dependency=dependency, schedule=schedule)
            for dependency in ("exact", "sigmoid", "range")
        ]
        assert (values[0] <= values[1] * (1 + 1e-9)).all()
        if not model.has_forbidden:  # entries of "range" may be infinite then, and are cut at one in every update
            assert (values[1] <= values[2] * (1 + 1e-9)).all()


def test_tiny_dependencies_neither_vanish_nor_slow_down() -> None:
    matrix = 1e-200 * np.array([[0.0, 1.0], [1.0, 0.0]])
    bias = bias_after(matrix, 50)
    assert (bias >= SMALLEST_BIAS).all()
    assert (bias <= 1e-49).all()


def test_infinite_dependencies_are_cut_at_one() -> None:
    matrix = np.array([[0.0, INF, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]])
    # In place: variable 2 is free at once, variable 0 stays at 1 as long as variable 1 is not exactly right.
    assert bias_after(matrix, 1).round(6).tolist() == [1.0, 0.1, 0.0]
    assert bias_after(matrix, 20).round(6).tolist() == [1.0, 0.1, 0.0]
    values = bias_after(matrix, 20, schedule="random")
    assert values[0] == 1.0
    assert 0.1 <= values[1] <= 0.1 + 1e-6


# -- the certificate ------------------------------------------------------------------------------------------------


@given(
    model=strategies.ising_models(max_coupling=0.6) | strategies.potts_models(max_coupling=1.0),
    accuracy=st.floats(1e-6, 0.9),
    norm=st.sampled_from([None, *NORMS]),
    schedule=st.sampled_from(["systematic", "random"]),
)
def test_sweeps_are_never_above_the_theorem(
    model: MarkovRandomField, accuracy: float, norm: str | None, schedule: str
) -> None:
    for dependency in DEPENDENCIES:
        c = certify(model, accuracy=accuracy, norm=norm, schedule=schedule, dependency=dependency, max_sweeps=300)
        assert_consistent(c, model)
        if norm is not None:
            value = matrix_norm(dependency_matrix(model, dependency=dependency), norm)
            assert c.norm == norm
            assert c.norm_value == pytest.approx(value, rel=1e-9, abs=1e-12)
        if c.num_updates is not None:
            n = model.num_variables
            assert c.num_updates == pytest.approx(n * math.log(n / accuracy) / (1 - c.norm_value), abs=1.001)


@given(
    model=strategies.ising_models(max_coupling=0.6),
    accuracy=st.floats(1e-6, 0.9),
    schedule=st.sampled_from(["systematic", "random"]),
    per_variable=st.booleans(),
)
def test_sweeps_are_the_smallest_for_which_the_bias_is_small_enough(
    model: MarkovRandomField, accuracy: float, schedule: str, per_variable: bool
) -> None:
    c = certify(model, accuracy=accuracy, schedule=schedule, per_variable=per_variable, max_sweeps=300)
    if c.stats["method"] != "iteration":
        return
    assert c.num_sweeps is not None
    last, before = (bias_after(model, t, schedule=schedule) for t in (c.num_sweeps, c.num_sweeps - 1))
    measure = np.max if per_variable else np.sum
    assert measure(last) <= accuracy < measure(before) * (1 + 1e-13)
    np.testing.assert_array_equal(c.bias, last)


def test_a_certificate_of_a_grid_and_its_order() -> None:
    model = instances.ising_grid(16, 16, coupling_max=0.35, seed=0)
    colors = graphs.coloring(model.num_variables, model.edges)
    natural = certify(model, accuracy=0.01)
    colored = certify(model, accuracy=0.01, order=np.argsort(colors, kind="stable"))
    scattered = certify(model, accuracy=0.01, schedule="random")
    for c in (natural, colored, scattered):
        assert c.certified
        assert c.norm == "spectral"
        assert_consistent(c, model)
    assert natural.num_sweeps is not None
    assert scattered.num_sweeps is not None
    assert natural.num_sweeps < scattered.num_sweeps
    assert natural.provenance["options"]["accuracy"] == 0.01
    assert natural.provenance["model_hash"] == model.content_hash
    assert natural.stats["seconds"] > 0.0


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@pytest.mark.parametrize("norm", [None, *NORMS])
@pytest.mark.parametrize("per_variable", [False, True])
def test_where_the_iteration_stops_the_norm_goes_on(schedule: Any, norm: Any, per_variable: bool) -> None:
    model = MarkovRandomField.ising(graphs.path_edges(6), 0.2)
    full = certify(model, accuracy=1e-6, norm=norm, schedule=schedule, per_variable=per_variable)
    assert full.stats["method"] == "iteration"
    assert full.num_sweeps is not None
    previous = INF
    for max_sweeps in (1, 2, 4, 8):
        c = certify(
            model, accuracy=1e-6, norm=norm, schedule=schedule, per_variable=per_variable, max_sweeps=max_sweeps
        )
        assert c.certified
        assert_consistent(c, model)
        assert c.num_sweeps is not None
        if c.stats["method"] == "iteration":
            assert c.num_sweeps == full.num_sweeps
            continue
        assert c.stats["num_iterated"] == max_sweeps
        assert full.num_sweeps <= c.num_sweeps <= previous
        previous = c.num_sweeps
        # No more is claimed than the iteration itself gives after as many sweeps.
        honest = bias_after(model, c.num_sweeps, schedule=schedule)
        assert (c.bias >= honest).all()
        assert c.total_bias >= honest.sum()


def test_a_norm_next_to_one_needs_many_sweeps_and_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MarkovRandomField.ising(graphs.cycle_edges(10), math.atanh(0.5 - 1e-9))
    c = certify(model, accuracy=0.01, max_sweeps=100)
    assert c.certified
    assert c.num_sweeps is not None
    assert 1e9 < c.num_sweeps < 1e11
    monkeypatch.setattr(dobrushin, "MAX_CERTIFICATE_VISITS", 10.0)
    assert certify(model, accuracy=0.01, max_sweeps=100).stats["num_iterated"] == 0


def test_strong_couplings_are_not_certified_and_the_worst_variables_named() -> None:
    edges = [(0, k) for k in range(1, 14)] + [(k, k + 1) for k in range(1, 13)]
    model = MarkovRandomField.ising(edges, 2.0)
    for schedule in ("systematic", "random"):
        c = certify(model, accuracy=0.01, schedule=schedule)
        assert not c.certified
        assert_consistent(c, model)
        assert c.offending[0][0] == 0
        assert c.offending[0][1] == pytest.approx(13 * math.tanh(2.0))
        assert len(c.offending) == 10
        assert c.num_updates is None
        assert "norm_bound" in c.advice
        assert "variable 0" in c.advice


def test_exactly_critical_is_not_certified() -> None:
    # A cycle of dependencies of exactly 1/2: every norm is 1.
    model = MarkovRandomField.ising(graphs.cycle_edges(8), 0.5)
    c = certify(model, accuracy=0.1, dependency="range")
    assert not c.certified
    assert c.norm_value == pytest.approx(1.0)
    assert certify(model, accuracy=0.1, dependency="sigmoid").certified


def test_forbidden_pairs_are_certified_through_sigmoid_and_exact_only() -> None:
    table = [[0.0, 0.0, -INF], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    # One pair forbidden in each direction around: sigmoid is 1 there, exact far lower.
    model = MarkovRandomField.from_tables(np.zeros((2, 3)), [(0, 1)], [table])
    for dependency in ("range", "l1", "linf"):
        c = certify(model, accuracy=0.1, dependency=dependency)
        assert not c.certified
        assert c.norm_value == INF
        assert c.to_dict()["norm_value"] is None
        assert "infinite" in c.advice
        assert "dependency='sigmoid'" in c.advice
        assert c.bias.tolist() == [1.0, 1.0]
        assert_consistent(c, model)
    assert not certify(model, accuracy=0.1).certified
    assert certify(model, accuracy=0.1, dependency="exact").certified


# -- evidence, time, and a certificate of one's own -----------------------------------------------------------------


def test_evidence_is_that_of_the_conditioned_model() -> None:
    model = instances.ising_grid(3, 3, coupling_max=0.5, seed=0)
    given, by_hand = certify(model, accuracy=0.01, evidence={4: 1}), certify(model.condition({4: 1}), accuracy=0.01)
    assert given.num_sweeps == by_hand.num_sweeps
    np.testing.assert_array_equal(given.bias, by_hand.bias)
    assert given.provenance["options"]["evidence"] == {"4": 1}


def test_out_of_time_the_promise_is_weaker_and_holds() -> None:
    model = instances.ising_grid(10, 10, coupling_max=0.2, seed=0)
    for schedule in ("systematic", "random"):
        best = certify(model, accuracy=1e-6, schedule=schedule)
        late = certify(model, accuracy=1e-6, schedule=schedule, time_limit=1e-9)
        assert best.certified
        assert late.certified
        assert (late.stats["num_iterated"], late.stats["method"]) == (0, "geometric")
        assert best.num_sweeps <= late.num_sweeps
    strong = instances.ising_grid(10, 10, coupling_max=3.0, seed=0)
    assert not certify(strong, accuracy=0.1, time_limit=1e-9).certified


def weighted_certificate(model: MarkovRandomField, accuracy: float) -> Certificate:
    """By weighted row sums: if ``R w <= c w`` for one vector w >= 1, then ``delta <= c^t w`` after t sweeps.

    A certificate written outside the package: a matrix from above, its proof, and a :class:`Certificate` to hold it.
    """
    R = safe_matrix(model, "sigmoid")
    w = np.ones(model.num_variables)
    for _ in range(50):  # toward the leading eigenvector; any w is valid
        w = R @ w + w
        w /= w.min()
    c = float((R @ w / w).max()) * (1.0 + 1e-12)
    sweeps = math.ceil(math.log(accuracy / w.sum()) / math.log(c)) if c < 1.0 else None
    bias = np.ones(len(w)) if sweeps is None else np.minimum(1.0, c**sweeps * w)
    return Certificate(
        model=model, certified=sweeps is not None, accuracy=accuracy, per_variable=False, schedule="systematic",
        num_sweeps=sweeps, dependency="sigmoid", norm="weighted", norm_value=c, bias=bias, max_bias=float(bias.max()),
        total_bias=float(bias.sum()), statement="",
    )  # fmt: skip


def test_a_certificate_of_ones_own() -> None:
    model = MarkovRandomField.ising([(0, k) for k in range(1, 6)], 0.3)  # a star: row sums are above 1
    assert matrix_norm(dependency_matrix(model), "inf") > 1.0
    own = weighted_certificate(model, 0.01)
    assert own.certified
    assert own.to_dict()["norm"] == "weighted"
    for order in (None, [5, 0, 1, 2, 3, 4]):
        assert (bias_after(model, own.num_sweeps, order=order) <= own.bias).all()


@pytest.mark.parametrize("seed", range(12))
def test_the_margin_is_that_of_the_certificate_asked_for(seed: int) -> None:
    """Just below the margin the same call certifies, and a little above it does not: norm, limits and all."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 7))
    pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.7] or [(0, 1)]
    model = MarkovRandomField.ising(pairs, rng.uniform(0.02, 0.4, len(pairs)), rng.normal(size=n), num_variables=n)
    options: dict[str, Any] = {
        "accuracy": 0.1,
        "norm": rng.choice(["inf", "1", "frobenius", "spectral"]).item(),
        "max_sweeps": int(rng.choice([1, 3, 20_000])),
        "max_updates": [None, 2.0 * n, 5.0 * n][int(rng.integers(3))],
        "criterion": "dobrushin",
        "per_variable": bool(rng.random() < 0.5),
    }
    plain = certify(model, **options)
    margin = certify(model, margin=True, **options).margin
    assert margin is not None
    assert (margin >= 1.0) == plain.certified

    def certified(factor: float) -> bool:
        return certify(model.replace(log_pairwise=factor * model.log_pairwise), **options).certified

    assert margin == 0.0 or certified(margin * (1.0 - 1e-9))
    assert margin > 1e6 or not certified((margin or 1e-6) * 1.01)


def test_what_a_certificate_says_of_itself() -> None:
    """One line, whatever the size of the model; sweeps wherever there is a promise; the accuracy of the command."""
    seen = set()
    pairs = list(itertools.combinations(range(60), 2))
    for seed, strength in enumerate((0.18, 0.18, 0.02, 0.3)):
        n = 60
        model = MarkovRandomField.ising(pairs, strength * np.random.default_rng(seed).normal(size=len(pairs)) / n**0.5)
        found = fastmix.certify(model)
        assert found.accuracy == 0.01
        assert "\n" not in repr(found)
        assert len(repr(found)) < 200
        assert (found.num_sweeps is None) == (not found.certified)
        if found.certified and found.valid_for == "random":
            assert found.num_sweeps * n >= found.num_updates > (found.num_sweeps - 1) * n
        seen.add(found.criterion if found.certified else None)
    assert {"dobrushin", "width"} <= seen


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_sweeps_without_end_stop_where_nothing_changes(seed: int, schedule: Any) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.random((6, 6)) * (rng.random((6, 6)) < 0.5) * rng.choice([0.2, 1.0])
    np.fill_diagonal(matrix, 0.0)
    last = bias_after(matrix, 2**62, schedule=schedule)
    assert (last <= bias_after(matrix, 1000, schedule=schedule)).all()
    again = bias_after(matrix, 2**62 + 1, schedule=schedule)
    assert again.tolist() == last.tolist()
