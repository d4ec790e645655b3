"""Certificates past Dobrushin's against exact chains: spectral gaps, contraction of entropy, distances."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest

import strategies
from fastmix import instances
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.graphs import path_edges
from fastmix.model import MarkovRandomField
from fastmix.projection import project
from fastmix.theory import criteria
from fastmix.theory.certify import certify
from fastmix.theory.criteria import CRITERIA, num_random_updates, register_criterion
from fastmix.theory.criterion import CriterionConstant
from fastmix.theory.split_criterion import split_model
from fastmix.theory.width import add_couplings, coupling_matrix, couplings, matrix_width, model_width
from oracle import theory


def random_model(rng: np.random.Generator) -> MarkovRandomField:
    """Dense or sparse, 2 to 4 states, mixed or equal signs, even or lopsided fields; couplings near the criteria."""
    kind = rng.integers(6)
    n = int(rng.integers(2, 7 if kind < 4 else 5))
    pairs = list(itertools.combinations(range(n), 2))
    edges = [pair for pair in pairs if rng.random() < rng.choice([0.4, 1.0])] or pairs[:1]
    scale = float(rng.choice([0.1, 0.3, 0.6, 1.0]))
    fields = rng.normal(size=(n, 1)) * rng.choice([0.0, 0.5, 3.0])
    if kind < 4:
        couplings = scale * (rng.normal(size=len(edges)) if kind < 2 else np.abs(rng.standard_t(3, size=len(edges))))
        return MarkovRandomField.ising(edges, couplings, fields[:, 0])
    counts = rng.integers(2, 4 if n > 3 else 5, size=n)
    unary = [rng.normal(size=count) * rng.choice([0.0, 0.5, 3.0]) for count in counts]
    return MarkovRandomField.from_tables(
        unary, edges, [scale * rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    )


class Exact:
    """Random updates of a tiny model as one reversible matrix."""

    def __init__(self, model: MarkovRandomField) -> None:
        shape = tuple(model.num_states.tolist())
        configurations = np.array(list(itertools.product(*(range(count) for count in shape))))
        weight = model.log_unary[model.unary_offsets[:-1] + configurations].sum(axis=1)
        for e, (i, j) in enumerate(model.edges.tolist()):
            table = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
            weight = weight + table.reshape(shape[i], shape[j])[configurations[:, i], configurations[:, j]]
        p = np.exp(weight - weight.max())
        self.p = p / p.sum()
        self.n = len(shape)
        self.kernel = np.zeros((len(p), len(p)))
        for i in range(self.n):
            others = np.delete(configurations, i, axis=1)
            same = (others[:, None] == others[None]).all(axis=2)
            self.kernel += same * self.p / (same @ self.p)[:, None] / self.n

    def gap(self) -> float:
        root = np.sqrt(self.p)
        return 1.0 - float(np.linalg.eigvalsh(self.kernel * root[:, None] / root)[-2])

    def entropy(self, q: np.ndarray) -> float:
        return float(np.where(q > 0.0, q * np.log(np.maximum(q, 1e-300) / self.p), 0.0).sum())

    def contraction(self, rng: np.random.Generator) -> float:
        """The largest factor by which an update changes the relative entropy, over many starts."""
        size, worst = len(self.p), 0.0
        starts = [np.eye(size)[k] for k in rng.integers(size, size=6)]
        starts += [self.p * (1.0 + 1e-2 * rng.uniform(-1, 1, size)) for _ in range(2)]
        starts += [self.p * np.exp(rng.normal(size=size) * rng.choice([0.3, 3.0])) for _ in range(4)]
        for start in starts:
            q = start / start.sum()
            for _ in range(8):
                before, q = self.entropy(q), q @ self.kernel
                if before > 1e-8:
                    worst = max(worst, self.entropy(q) / before)
        return worst

    def distance(self, num_updates: int) -> float:
        rows = np.linalg.matrix_power(self.kernel, num_updates)
        return 0.5 * float(np.abs(rows - self.p).sum(axis=1).max())


def test_the_exact_chain_is_that_of_the_oracle() -> None:
    model = random_model(np.random.default_rng(5))
    chain = theory.Chain(model)
    np.testing.assert_allclose(chain.target, Exact(model).p, atol=1e-12)
    kernel = np.linalg.matrix_power(Exact(model).kernel, model.num_variables)
    np.testing.assert_allclose(chain.sweep("random"), kernel, atol=1e-12)


@pytest.mark.parametrize("seed", strategies.seeds(100, quick=1))
def test_no_criterion_is_beaten_by_the_exact_chain(seed: int) -> None:
    """20 models a seed: 20 in every run, 2,000 in `make verify`."""
    rng = np.random.default_rng(seed)
    applied = 0
    for _ in range(20):
        model = random_model(rng)
        exact = Exact(model)
        gap, contraction = exact.gap(), None
        for criterion in CRITERIA.values():
            if criterion.unfit(model) is not None:
                continue
            finding = criterion.find(model)
            if finding.log_constant > 30.0:
                continue
            applied += 1
            rate = math.exp(-finding.log_constant) / model.num_variables
            assert gap >= rate * (1.0 - 1e-9), (criterion.name, gap, rate)
            if finding.form == "entropy":
                contraction = exact.contraction(rng) if contraction is None else contraction
                assert contraction <= 1.0 - rate * (1.0 - 1e-6), criterion.name
            for accuracy in (0.3, 0.01):
                number = num_random_updates(model, finding, accuracy)
                if number < 1e9:  # rounding adds up in larger powers of the matrix
                    assert exact.distance(int(number)) <= accuracy + 1e-7
    assert applied > 10


@pytest.mark.parametrize("seed", strategies.seeds(40, quick=1))
def test_models_projected_onto_a_width_mix_as_it_says(seed: int) -> None:
    """10 models a seed: 400 in `make verify`."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(10):
        model, bound = random_model(rng), float(rng.choice([0.3, 0.9]))
        result = project(criteria.scale_couplings(model, 2.0), norm="width", norm_bound=bound, tol=1e-4, progress=None)
        assert result.norm_after <= bound
        exact, rate = Exact(result.model), (1.0 - result.norm_after) / model.num_variables
        assert exact.gap() >= rate * (1.0 - 1e-9)
        assert exact.contraction(rng) <= 1.0 - rate * (1.0 - 1e-6)
        certificate = certify(result.model, accuracy=0.05, criterion="width")
        assert exact.distance(certificate.num_updates) <= 0.05 + 1e-7
        for count in (10, 100):
            assert exact.distance(count) <= criteria.bias_after_updates(result.model, count) + 1e-9


def test_a_constant_that_is_too_small_is_found_out() -> None:
    model = MarkovRandomField.ising([(0, 1)], 0.6)
    exact = Exact(model)
    rate = math.exp(-CRITERIA["path"].find(model).log_constant) / 2
    assert exact.gap() >= rate
    assert exact.gap() < 0.3  # 1 - 2 * 0.6 for a constant of 1 would be 0.5
    assert exact.contraction(np.random.default_rng(0)) > 0.5


# -- certify --------------------------------------------------------------------------------------------------------


def dense_model(scale: float = 0.18) -> MarkovRandomField:
    rng = np.random.default_rng(0)
    edges = list(itertools.combinations(range(60), 2))
    return MarkovRandomField.ising(edges, scale * rng.normal(size=len(edges)) / math.sqrt(60))


def test_auto_is_the_certificate_with_the_fewest_updates() -> None:
    model = dense_model()
    best = certify(model, accuracy=0.01)
    assert best.certified
    assert best.criterion == "width"
    assert (best.valid_for, best.form, best.schedule) == ("random", "entropy", "random")
    assert best.constant == pytest.approx(1.0 / (1.0 - best.width), rel=1e-9)
    assert {other["criterion"] for other in best.others} == {"dobrushin", "path", "split"}
    assert all(not o["certified"] or o["num_updates"] >= best.num_updates for o in best.others)
    assert (best.bias == 0.01).all()
    answer = best.to_dict()
    assert {"criterion", "constant", "width", "margin", "form", "valid_for", "others"} <= set(answer)
    assert answer["num_sweeps"] == -(-best.num_updates // len(best.bias))
    weak = certify(dense_model(0.02), accuracy=0.01)
    assert (weak.criterion, weak.valid_for, weak.form) == ("dobrushin", "systematic", None)
    assert weak.num_sweeps is not None


def test_criteria_that_cannot_be_better_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    certificates, said = [], []
    for ask_all in (500, 5):
        monkeypatch.setattr("fastmix.theory.certify.MAX_EVERY_CRITERION_VARIABLES", ask_all)
        for scale in (0.02, 0.05, 0.1, 0.18, 0.3, 1.0):
            certificates.append(certify(dense_model(scale), accuracy=0.01))
            said.append(sum("not tried" in other["reason"] for other in certificates[-1].others))
    for asked, short in zip(certificates[:6], certificates[6:], strict=True):
        assert (asked.certified, asked.criterion) == (short.certified, short.criterion)
        assert (asked.num_sweeps, asked.num_updates) == (short.num_sweeps, short.num_updates)
    assert said[:6] == [0] * 6
    assert said[6] == 3
    assert said[9:] == [0] * 3
    hard = MarkovRandomField.from_tables(np.zeros((6, 5)), path_edges(6), [np.where(np.eye(5) > 0, -np.inf, 0.0)] * 5)
    certificate = certify(hard, accuracy=0.01, dependency="exact")
    assert certificate.certified
    assert all("does not apply" in other["reason"] for other in certificate.others)


def test_systematic_sweeps_are_dobrushins() -> None:
    model = dense_model()
    only = certify(model, accuracy=0.01, schedule="systematic")
    assert not only.certified
    assert only.criterion == "dobrushin"
    assert all("systematic" in other["reason"] for other in only.others)
    with pytest.raises(ValueError, match=r"^schedule .*criterion='width'"):
        certify(model, accuracy=0.01, criterion="width", schedule="systematic")
    with pytest.raises(ValueError, match=r"^criterion .*'best'") as caught:
        certify(model, accuracy=0.01, criterion="best")
    assert all(name in str(caught.value) for name in ("auto", "dobrushin", *CRITERIA))


def test_a_criterion_that_does_not_apply() -> None:
    model = MarkovRandomField.potts([(0, 1), (1, 2)], 0.5, 3)
    with pytest.raises(UnfitMethodError, match=r"criterion='path' .*binary"):
        certify(model, accuracy=0.01, criterion="path")
    said = {other["criterion"]: other for other in certify(model, accuracy=0.01).others}
    assert "does not apply" in said["path"]["reason"]
    hard = MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [(0, 1)], [[[0.0, 0.0], [0.0, -np.inf]]])
    with pytest.raises(UnfitMethodError, match="forbids pairs"):
        certify(hard, accuracy=0.01, criterion="width")
    assert certify(hard, accuracy=0.01).criterion == "dobrushin"


def test_states_that_a_unary_forbids_do_not_count() -> None:
    tables = [[[0.2, 0.0, 9.0], [0.0, 0.2, 9.0], [0.0, 0.0, 0.0]]]
    model = MarkovRandomField.from_tables([[0.0, 0.0, -np.inf], [0.0, 0.0, -np.inf]], [(0, 1)], tables)
    certificate = certify(model, accuracy=0.01, criterion="path")
    assert certificate.certified


def test_the_budget_of_updates() -> None:
    grid = instances.ising_grid(4, 4, attractive=True, coupling_max=0.0, seed=0)
    grid = grid.replace(log_pairwise=np.tile([0.37, -0.37, -0.37, 0.37], grid.num_edges))
    free = certify(grid, accuracy=0.01, criterion="path", max_updates=math.inf)
    assert free.certified
    number = free.num_updates
    assert number is not None
    tight = certify(grid, accuracy=0.01, criterion="path", max_updates=number - 1)
    assert not tight.certified
    assert "more than max_updates" in tight.advice
    assert certify(grid, accuracy=0.01, criterion="path", max_updates=number).certified
    assert not certify(grid, accuracy=0.01, criterion="dobrushin").certified
    with pytest.raises(ValueError, match=r"^max_updates .*0$"):
        certify(grid, accuracy=0.01, max_updates=0)


@pytest.mark.parametrize("criterion", ["dobrushin", "width", "path", "split"])
def test_the_margin_is_where_the_certificate_ends(criterion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fastmix.theory.path_criterion.MAX_PATH_POINTS", 24
    )  # a coarser integral, in the margin as in the certificates
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2), (2, 3)], [0.1, -0.1, 0.05, 0.1])
    margin = certify(model, accuracy=0.01, criterion=criterion, margin=True).margin
    assert margin is not None
    for factor, certified in ((0.999 * margin, True), (1.05 * margin, False)):
        scaled = criteria.scale_couplings(model, factor)
        certificate = certify(scaled, accuracy=0.01, criterion=criterion, max_sweeps=20)
        assert certificate.certified == certified or criterion == "dobrushin"


@pytest.mark.parametrize("criterion", ["dobrushin", "split"])
def test_the_search_for_a_margin_ends_with_the_time(criterion: str) -> None:
    looks = []

    class Few(Clock):
        def past(self, share: float = 1.0) -> bool:
            looks.append(share)
            return len(looks) > 3

    tried: list[float] = []

    def certifies(factor: float) -> bool:
        tried.append(factor)
        return factor < 3.0

    assert (criteria.largest_factor(certifies, Few()), len(tried)) == (2.0, 3)
    looks.clear()
    assert criteria.largest_factor(lambda factor: factor < 1e9, Few()) == 4.0, "not infinite: there was no time"
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2), (2, 3)], [0.1, -0.1, 0.05, 0.1])
    late = certify(model, accuracy=0.01, criterion=criterion, margin=True, time_limit=1e-9)
    assert (late.margin, late.stats["stopped_by"]) == (0.0, "time_limit")


def test_states_that_a_unary_forbids_are_dropped_before_any_criterion() -> None:
    edges, rng = [(0, 1), (1, 2), (0, 2)], np.random.default_rng(0)
    unary = [np.append(0.1 * rng.normal(size=2), -np.inf) for _ in range(3)]
    tables = [0.2 * rng.normal(size=(3, 3)) + 40.0 * np.outer([0, 0, 1], [0, 0, 1]) for _ in edges]
    plain = MarkovRandomField.from_tables([u[:2] for u in unary], edges, [t[:2, :2] for t in tables])
    model = MarkovRandomField.from_tables(unary, edges, tables)
    for criterion in ("dobrushin", "width", "path", "split"):
        margin = criterion != "path"  # whose search for it takes seconds
        one, other = (certify(m, accuracy=0.01, criterion=criterion, margin=margin) for m in (plain, model))
        assert one.certified
        assert (one.num_sweeps, one.num_updates) == (other.num_sweeps, other.num_updates)
        assert one.margin == pytest.approx(other.margin)


def test_models_without_couplings() -> None:
    for model in (
        MarkovRandomField.from_tables([], [], []),
        MarkovRandomField.from_tables([[0.0]], [], []),
        MarkovRandomField.from_tables([[0.0, 1.0], [0.0, 1.0, 2.0]], [], []),
        MarkovRandomField.ising([(0, 1)], 0.0),
    ):
        for criterion in ("auto", "width", "split"):
            assert certify(model, accuracy=0.1, criterion=criterion).certified


@dataclass(frozen=True)
class PairsOnly:
    """A criterion from outside the package: for one pair of variables the gap is known."""

    name: str = "pairs"

    def unfit(self, model: MarkovRandomField) -> str | None:
        return None if model.num_variables == 2 else "it is for two variables"

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> CriterionConstant:
        return CriterionConstant(-math.log(2.0 * Exact(model).gap()) + 1e-9, "variance", reason="by enumeration")


def test_a_criterion_from_outside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CRITERIA, "entries", dict(CRITERIA))
    register_criterion(PairsOnly())
    for name in ("width", "dobrushin"):
        with pytest.raises(ValueError, match=f"name .*{name}"):
            register_criterion(PairsOnly(name))
    with pytest.raises(TypeError, match="criterion"):
        register_criterion(3)  # type: ignore[type-var]
    model = MarkovRandomField.ising([(0, 1)], 1.5)
    certificate = certify(model, accuracy=0.01, criterion="pairs")
    assert certificate.certified
    assert Exact(model).distance(certificate.num_updates or 0) <= 0.01
    assert "pairs" in {other["criterion"] for other in certify(dense_model(), accuracy=0.01).others}


def test_a_width_without_time_for_dense_matrices_is_a_bound_still(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, _ = coupling_matrix(instances.ising_grid(10, 10, coupling_max=1.0, seed=0))
    best = matrix_width(matrix)
    monkeypatch.setattr("fastmix.theory.width.norm_estimate", None)
    rough = matrix_width(matrix, clock=Clock(1e-4))
    assert (best.proof, rough.proof) == ("eigenvalues", "positive vector")
    assert rough.value >= best.value
    with pytest.raises(TypeError):
        matrix_width(matrix, clock=Clock(60.0))


def test_a_split_is_no_worse_than_its_parents() -> None:
    rng = np.random.default_rng(3)
    edges = list(itertools.combinations(range(40), 2))
    model = MarkovRandomField.ising(edges, 0.08 * rng.standard_t(2.2, size=len(edges)) / math.sqrt(40))
    total = sum(split_model(model))
    assert total <= model_width(model).value
    assert total < 0.95 * min(model_width(model).value, certify(model, accuracy=0.1, criterion="dobrushin").norm_value)


@pytest.mark.parametrize("times", [0.98, 1.02])
def test_a_restricted_boltzmann_machine_is_certified_by_its_largest_singular_value(times: float) -> None:
    """Units of 0 and 1 and weights W: the width is half of the largest singular value, whatever the biases."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(12, 8))
    weights *= times * 2.0 / np.linalg.norm(weights, 2)
    model = MarkovRandomField.rbm(weights, 3.0 * rng.normal(size=12), 3.0 * rng.normal(size=8))
    certificate = certify(model, accuracy=0.01, criterion="width", max_updates=math.inf)
    assert certificate.width == pytest.approx(times, rel=1e-3)
    assert certificate.certified is (times < 1.0)


def test_couplings_are_changed_one_by_one_and_for_large_stars() -> None:
    rng = np.random.default_rng(0)
    model = instances.random_tables([(0, 1), (1, 2), (0, 3), (2, 3)], num_states=[2, 3, 4, 2], scale=1.0, seed=0)
    matrix = coupling_matrix(model)[0].toarray()
    rows, cols, values, _ = couplings(model)
    change = rng.normal(size=len(values))
    changed = coupling_matrix(add_couplings(model, change))[0].toarray()
    matrix[rows, cols] += change
    assert np.triu(changed) == pytest.approx(np.triu(matrix), abs=1e-12)
    leaves = np.arange(1, 200_001)
    star = MarkovRandomField.ising(np.column_stack([np.zeros_like(leaves), leaves]), 0.5)
    half = add_couplings(star, np.full(len(leaves), -0.25))  # a minute row by row
    np.testing.assert_allclose(half.log_pairwise, 0.5 * star.log_pairwise)
