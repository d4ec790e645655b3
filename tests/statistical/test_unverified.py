"""Does auto ever say ok for belief propagation that is off? On models drawn at random; run by ``make verify``."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from fastmix import MarkovRandomField, compare, infer
from fastmix.inference.compare import marginal_errors
from fastmix.marginals import InferenceResult
from fastmix.results import Status

OFF = 0.05  # an error of a marginal that an answer called ok must not have
TRIED = 300  # models in which belief propagation converges and is off, in all parts together
PARTS = 6

Tell = Callable[[str, str, str], None]


# -- families: forbidden entries keep Gibbs sampling from them, little memory exact inference -------------------------


def parities(rng: np.random.Generator) -> MarkovRandomField:
    """Soft pairs in loops, and parities of a few triples, which single updates cannot keep."""
    n = int(rng.integers(8, 13))
    pairs = [(i, (i + 1) % n) for i in range(n)] + [(i, (i + 3) % n) for i in range(n)]
    factors = [((i,), rng.normal(scale=0.5, size=2)) for i in range(n)]
    factors += [((i, j), rng.normal(scale=1.5, size=(2, 2))) for i, j in pairs]
    grid = np.indices((2, 2, 2)).sum(axis=0) % 2
    for _ in range(int(rng.integers(1, 4))):
        scope = tuple(int(v) for v in rng.choice(n, 3, replace=False))
        factors.append((scope, np.where(grid == rng.integers(2), 0.0, -np.inf)))
    return MarkovRandomField.from_factors([2] * n, factors)


def colorings(rng: np.random.Generator) -> MarkovRandomField:
    """Different states at both ends of sparse edges, with strong preferences and as many colors as neighbors."""
    n, colors = int(rng.integers(6, 9)), int(rng.integers(3, 5))
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.45]
    edges = edges or [(0, 1)]
    different = np.where(np.eye(colors, dtype=bool), -np.inf, 0.0)
    tables = [different + rng.normal(scale=1.0, size=(colors, colors)) for _ in edges]
    return MarkovRandomField.from_tables(rng.normal(size=(n, colors)), edges, tables)


def linkages(rng: np.random.Generator) -> MarkovRandomField:
    """Copies of hidden parents with a switch, as in pedigrees, observed with noise."""
    n = int(rng.integers(9, 14))
    factors = [((i,), rng.normal(scale=1.0, size=2)) for i in range(n)]
    for child in range(3, n):
        mother, father = (int(v) for v in rng.choice(child, 2, replace=False))
        table = np.full((2, 2, 2), -np.inf)
        chance = rng.uniform(0.05, 0.95)
        for a, b in itertools.product(range(2), repeat=2):
            table[a, b, a] = np.log(chance)
            table[a, b, b] = np.logaddexp(table[a, b, b], np.log1p(-chance)) if a == b else np.log1p(-chance)
        factors.append(((mother, father, child), table))
    first, second = (int(v) for v in rng.choice(n, 2, replace=False))
    factors.append(((first, second), np.array([[0.0, -np.inf], [-np.inf, 0.0]])))
    return MarkovRandomField.from_factors([2] * n, factors)


FAMILIES = (parities, colorings, linkages)


def answers(count: int, part: int) -> tuple[list[InferenceResult], list[float], int]:
    """Answers of auto that are off where belief propagation converges, their errors, and how many right ones are ok."""
    wrong, errors, right_and_ok, number = [], [], 0, 0
    while len(wrong) < count:
        rng = np.random.default_rng([part, number])
        model = FAMILIES[number % len(FAMILIES)](rng)
        log_z = number % 5 == 4
        number += 1
        exact = infer(model, method="exact")
        if exact.log_z_kind == "zero":
            continue
        by_name = infer(model, method="loopy-bp", time_limit=1.0, progress=None)
        if by_name.status is not Status.OK:
            continue
        error = float(marginal_errors(model, by_name.node_marginals, exact.node_marginals).max())
        if error <= OFF and number % 10:
            continue
        result = infer(model, memory_limit=64.0, time_limit=1.0, log_z=log_z, seed=number)
        if error <= OFF:
            right_and_ok += result.status is Status.OK
        elif result.method == "loopy-bp":
            wrong.append(result)
            errors.append(float(marginal_errors(model, result.node_marginals, exact.node_marginals).max()))
    return wrong, errors, right_and_ok


def test_a_few_that_are_off_are_not_ok() -> None:
    wrong, errors, _ = answers(3, 99)
    assert min(errors) > OFF
    assert [result.status for result in wrong] == [Status.UNVERIFIED] * len(wrong)
    assert all(result.stats["note"] and "none" in result.stats["guarantee"] for result in wrong)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_none_that_is_off_is_ok(part: int, tell: Tell) -> None:
    wrong, errors, right_and_ok = answers(TRIED // PARTS, part)
    violations = [
        (result.stats, error)
        for result, error in zip(wrong, errors, strict=True)
        if result.status is Status.OK and error > OFF
    ]
    tell("auto takes belief propagation", f"{len(wrong)} models, part {part}", f"off by 0.05 and ok {len(violations)}")
    tell("auto takes belief propagation", f"right answers, part {part}", f"ok {right_and_ok}")
    assert not violations


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_comparisons_take_no_more_for_granted(tell: Tell) -> None:
    """The row of auto has its verdict."""
    violations, tried = 0, 0
    for seed in range(200):
        model = FAMILIES[seed % len(FAMILIES)](np.random.default_rng([7, seed]))
        exact = infer(model, method="exact")
        if exact.log_z_kind == "zero" or tried == 20:
            continue
        comparison = compare(
            model, methods=["auto"], memory_limit=64.0, time_limit=0.5, seed=1, reference=exact.node_marginals
        )
        row = comparison.rows[0]
        if row.max_error is not None and row.max_error > OFF:
            tried += 1
            violations += row.status == "ok"
    tell("auto in comparisons", f"{tried} models", f"off by 0.05 and ok {violations}")
    assert not violations
