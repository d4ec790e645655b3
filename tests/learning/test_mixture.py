"""Mixtures of trees against enumeration, and as hidden variables of ``learn``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import fastmix
from fastmix import Mixture, Status
from fastmix._clock import NO_LIMIT
from fastmix.learning import read_data, read_table
from fastmix.learning.mixture import mixture_by_name
from fastmix.learning.mixture_trees import _information, best_parents, rooted
from fastmix.learning.tree_mixture import MixtureRows, TreeMixture, tables_of
from oracle import learning as naive_learning
from oracle import mixtures as naive


def random_mixture(seed: int, *, tree: bool = True) -> TreeMixture:
    """A mixture of a few components with a random forest and random tables."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    num_states = rng.integers(1, 4, n)
    parents = np.array([rng.integers(-1, i) if i and tree else -1 for i in range(n)], dtype=np.int64)
    label = rng.permutation(n)  # so that parents are not only before their children
    shuffled = np.full(n, -1, dtype=np.int64)
    for i, parent in enumerate(parents):
        shuffled[label[i]] = label[parent] if parent >= 0 else -1
    above = np.where(shuffled >= 0, num_states[shuffled], 1)
    size = int(rng.integers(1, 4))
    counts = rng.gamma(1.0, 1.0, (int((above * num_states).sum()), size))
    return TreeMixture(num_states, shuffled, rng.dirichlet(np.ones(size)), tables_of(counts, num_states, shuffled, 0.1))


def random_rows(mixture: TreeMixture, seed: int, gaps: float) -> MixtureRows:
    rng = np.random.default_rng(seed)
    states = rng.integers(0, mixture.num_states, (6, len(mixture.num_states))).astype(np.int32)
    states[rng.random(states.shape) < gaps] = -1
    weights = rng.random(6)
    return MixtureRows(states, weights / weights.sum(), (states < 0).any(axis=1))


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_expected_counts_are_those_of_enumeration(seed: int, gaps: float) -> None:
    mixture = random_mixture(seed)
    rows = random_rows(mixture, seed, gaps)
    value, totals, counts = mixture.expected_counts(rows, NO_LIMIT)
    expected = naive.expected_counts(mixture, rows.states, rows.weights)
    assert value == pytest.approx(expected[0], abs=1e-12)
    np.testing.assert_allclose(totals, expected[1], atol=1e-12)
    np.testing.assert_allclose(counts, expected[2], atol=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(20))
def test_trees_are_those_of_the_mutual_informations(seed: int) -> None:
    mixture = random_mixture(seed)
    rows = random_rows(mixture, seed, 0.0)
    found = _information(mixture, rows, 6.0, NO_LIMIT)
    expected = naive.information(mixture, rows.states, rows.weights, 6.0)
    np.fill_diagonal(found, 0.0)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if len(expected) > 1:
        parents = best_parents(mixture, rows, 6.0, NO_LIMIT)
        total = sum(expected[i, p] for i, p in enumerate(parents) if p >= 0)
        others = [rooted(np.array(edges), len(expected)) for edges in _spanning_trees(len(expected))]
        best = max(sum(expected[i, p] for i, p in enumerate(other) if p >= 0) for other in others)
        assert total == pytest.approx(best, abs=1e-6)


def _spanning_trees(n: int) -> list[Any]:
    """Edges of all trees of n nodes, every node joined to one with a smaller number in some order."""
    import itertools

    pairs = list(itertools.combinations(range(n), 2))
    chosen = itertools.combinations(pairs, n - 1)
    return [edges for edges in chosen if (rooted(np.array(edges), n) == -1).sum() == 1]


def test_sparse_and_dense_products_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastmix.learning import mixture_trees

    mixture = random_mixture(3)
    rows = random_rows(mixture, 3, 0.0)
    dense = _information(mixture, rows, 6.0, NO_LIMIT)
    monkeypatch.setattr(mixture_trees, "SPARSE_SHARE", 2.0)
    np.testing.assert_allclose(_information(mixture, rows, 6.0, NO_LIMIT), dense, atol=1e-6)


def test_draws_have_the_distribution_of_what_is_missing() -> None:
    mixture = random_mixture(7)
    row = np.full((1, len(mixture.num_states)), -1, dtype=np.int32)
    row[0, 0] = 0
    count = 20_000
    rows = MixtureRows(np.repeat(row, count, axis=0), np.full(count, 1.0 / count), np.ones(count, dtype=bool))
    drawn = mixture.completed(rows, np.random.default_rng(0), NO_LIMIT).states
    listed = naive.completions(mixture, row[0])
    masses = [sum(naive.joint_probability(mixture, x, k) for k in range(mixture.num_components)) for x in listed]
    seen = [(drawn == x).all(axis=1).sum() for x in listed]
    expected = count * np.array(masses) / sum(masses)
    kept = expected > 5
    chi_squared = float(((np.array(seen)[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    assert chi_squared < kept.sum() + 6.0 * np.sqrt(2.0 * kept.sum())  # far below 1e-6 for a chi-squared variable


@pytest.mark.parametrize("seed", range(10))
def test_long_rows_of_unlikely_states_do_not_underflow(seed: int) -> None:
    n = 500
    rng = np.random.default_rng(seed)
    parents = np.array([-1, *np.zeros(n - 1, dtype=int)], dtype=np.int64)
    num_states = np.full(n, 2)
    counts = rng.gamma(0.05, 1.0, (int(2 + 4 * (n - 1)), 2)) + 1e-9
    mixture = TreeMixture(num_states, parents, np.full(2, 0.5), tables_of(counts, num_states, parents, 1e-6))
    states = rng.integers(0, 2, (1, n)).astype(np.int32)
    whole = MixtureRows(states, np.ones(1), np.zeros(1, dtype=bool))
    split = []
    for first in (0, 1):
        part = states.copy()
        part[0, 0] = first
        split.append(MixtureRows(part, np.ones(1), np.zeros(1, dtype=bool)))
    open_row = states.copy()
    open_row[0, 0] = -1
    gap = MixtureRows(open_row, np.ones(1), np.ones(1, dtype=bool))
    expected = np.logaddexp(*[mixture.row_logs(rows, NO_LIMIT)[0] for rows in split])
    assert mixture.row_logs(gap, NO_LIMIT)[0] == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(mixture.row_logs(whole, NO_LIMIT)).all()


@pytest.mark.parametrize("seed", range(8))
def test_models_are_the_mixtures(seed: int) -> None:
    mixture = random_mixture(seed)
    data = cast("Any", SimpleNamespace(variable_names=None, state_names=None))
    model = mixture.to_model(data)
    rows = random_rows(mixture, seed, 0.3)
    states = rows.states
    if mixture.num_components > 1:
        states = np.hstack([states, np.full((len(states), 1), -1)])
    found = naive_learning.log_likelihood(model, states)
    np.testing.assert_allclose(found, mixture.row_logs(rows, NO_LIMIT), atol=1e-10)


def drawn_classes(seed: int, count: int = 800) -> np.ndarray[Any, Any]:
    """Rows of three kinds that a pairwise model has not many parameters for."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, size=(count, 1))
    rows = (rng.random((count, 8)) < np.array([0.05, 0.5, 0.95])[kind]).astype(int)
    return np.asarray(rows)


def test_one_component_is_the_tree_of_chow_and_liu() -> None:
    rows = drawn_classes(0)
    tree = fastmix.learn(rows, edges="chow-liu")
    mixture = fastmix.learn(rows, hidden=Mixture(num_components=1), seed=0)
    assert mixture.model.edges.tolist() == tree.model.edges.tolist()
    others = drawn_classes(1)
    assert fastmix.score(mixture.model, others).log_likelihood == pytest.approx(
        fastmix.score(tree.model, others).log_likelihood, abs=2e-3
    )


def test_the_number_of_components_is_found() -> None:
    train, valid, test = (drawn_classes(seed, 3000) for seed in range(3))
    result = fastmix.learn(train, validation=valid, hidden=Mixture(tree=False), seed=0)
    assert result.status is Status.OK
    assert result.model.variable_names is not None
    assert result.model.variable_names[-1] == "hidden 0"
    assert 3 <= result.stats["num_components"] <= 8
    score = fastmix.score(result.model, test)
    assert score.log_z == pytest.approx(0.0, abs=1e-9)
    tree = fastmix.learn(train, edges="chow-liu")
    assert score.log_likelihood > fastmix.score(tree.model, test).log_likelihood + 0.05
    assert result.validation_log_likelihood == pytest.approx(fastmix.score(result.model, valid).log_likelihood)


def test_rows_are_held_out_without_validation_data() -> None:
    result = fastmix.learn(drawn_classes(0), hidden=Mixture(), seed=1)
    assert result.validation_log_likelihood is not None
    again = fastmix.learn(drawn_classes(0), hidden=Mixture(), seed=1)
    np.testing.assert_array_equal(result.model.parameters, again.model.parameters)


def test_missing_values_are_summed_over() -> None:
    rows = drawn_classes(0, 3000)
    holes = rows.copy()
    holes[np.random.default_rng(0).random(rows.shape) < 0.3] = -1
    test = drawn_classes(5, 2000)
    whole = fastmix.learn(rows, hidden=Mixture(num_components=3), seed=0)
    part = fastmix.learn(holes, hidden=Mixture(num_components=3), seed=0)
    known = fastmix.score(whole.model, test).log_likelihood
    assert fastmix.score(part.model, test).log_likelihood > known - 0.03


def test_auto_takes_what_the_validation_data_like() -> None:
    train, valid = drawn_classes(0, 2000), drawn_classes(1, 2000)
    result = fastmix.learn(train, validation=valid, hidden="auto", seed=0)
    known = {entry["hidden"]: entry["validation_log_likelihood"] for entry in result.stats["tried_hidden"]}
    assert result.validation_log_likelihood == max(known.values())
    assert set(known) == {"without", "mixture"}


def test_frames_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    rows = drawn_classes(0)
    frame = pandas.DataFrame(np.array(["no", "yes"])[rows], columns=list("abcdefgh"))
    result = fastmix.learn(frame, hidden=Mixture(num_components=2), seed=0)
    assert result.model.variable_names == (*"abcdefgh", "hidden 0")
    assert result.model.state_names is not None
    assert result.model.state_names[-2:] == (("no", "yes"), ("0", "1"))
    assert fastmix.score(result.model, frame).num_rows == len(frame)
    assert fastmix.score(result.model, read_data(frame)).num_rows == len(frame)


def test_time_ends_with_the_best_so_far() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (3000, 60))
    result = fastmix.learn(rows, hidden=Mixture(), time_limit=0.3, seed=0)
    assert result.status in (Status.NOT_CONVERGED, Status.OK)
    assert result.stats["stopped_by"] in ("time_limit", "done")


@pytest.mark.parametrize(
    ("hidden", "others", "word"),
    [
        ("some", {}, "hidden"),
        ("auto", {}, "validation"),
        (Mixture(), {"objective": "pseudo-likelihood"}, "objective"),
        (Mixture(), {"within": fastmix.NormBall()}, "within"),
        (Mixture(), {"edges": "chow-liu"}, "edges"),
        (Mixture(), {"edges": [(0, 1)]}, "edges"),
    ],
)
def test_what_does_not_go_together_is_refused(hidden: Any, others: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        fastmix.learn(drawn_classes(0), hidden=hidden, **others)


@pytest.mark.parametrize("options", [{"num_components": "many"}, {"num_components": 0}, {"smoothing": 0.0}])
def test_mixtures_check_themselves(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Mixture(**options)


def test_names_on_the_command_line() -> None:
    for text in ("mixture", "mixture:16", "classes", "classes:4"):
        assert str(mixture_by_name(text)) == text
    with pytest.raises(ValueError, match="mixture"):
        mixture_by_name("mixture:many")


def test_real_data() -> None:
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "../shared/data/debd"
    if not folder.exists():
        pytest.skip("shared data are absent")
    train, valid, test = (read_table(folder / f"nltcs.{part}.csv.xz") for part in ("train", "valid", "test"))
    result = fastmix.learn(train, validation=valid, hidden=Mixture(), seed=3)
    assert fastmix.score(result.model, test).log_likelihood > -6.03
