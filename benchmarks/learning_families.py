"""Learn from random data sets of eight families, and count the results that break a promise, one line per set.

    python benchmarks/learning_families.py                            # 200 sets, 20 s for each call
    python benchmarks/learning_families.py --sets 40 --limit 4        # a quick look
    python benchmarks/learning_families.py --first 17 --sets 1        # one of them again
    python benchmarks/learning_families.py --most 20                  # sets of few variables, most of which end ok
    python benchmarks/learning_families.py --hidden                   # with hidden="auto"

Every set has rows to learn from, to validate and fresh ones, of 5 to 300 variables, from a law that is drawn too:
latent factors, random pairwise models, mixtures of independent variables, or trees. Three promises:

1. ``learn(train, validation=valid, ridge="auto")`` never has a lower validation score than the best tree.
2. With validation data and without, its model is not below the tree on fresh rows, by more than two standard errors of
   the difference (those of log Z included; a score that is no more than a bound counts as unknown).
3. Of few joint states, where the optimum is known (its own search here, on a list of all of them), no fit that is
   ``ok``, with exact or sampled moments, misses it by more than ten times what its tolerance allows.

CPU seconds are those of the calls of ``learn``. Set NUMBA_NUM_THREADS and OPENBLAS_NUM_THREADS to 1.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

import fastmix
from fastmix.results import Status

KINDS = (
    "sparse",
    "dense",
    "two modes",
    "few rows",
    "constant columns",
    "equal columns",
    "several states",
    "missing",
)
#: Fresh rows, on which models are compared.
NUM_FRESH = 4000
#: Joint states up to which the optimum is looked for here.
MAX_LISTED = 4096
#: Difference of the objective from its optimum that an exact fit may have: it stops by its gradient, at 1e-5.
MAX_EXACT_GAP = 1e-6


@dataclass(frozen=True)
class RandomSet:
    """Rows to learn from, to validate and to compare models on, with their state counts."""

    name: str
    train: np.ndarray
    valid: np.ndarray
    fresh: np.ndarray
    num_states: np.ndarray


# -- laws -------------------------------------------------------------------------------------------------------------


def _factors(rng: np.random.Generator, odds: np.ndarray, count: int, shift: np.ndarray) -> np.ndarray:
    """Binary rows (count, n) that are independent given three normal factors."""
    n = len(odds)
    loads = rng.normal(0.0, 1.0, (3, n)) * (rng.random((3, n)) < 0.4)
    scores = rng.normal(0.0, 1.0, (count, 3)) @ loads + odds + shift
    return rng.random((count, n)) < 1.0 / (1.0 + np.exp(-scores))


def _pairs(rng: np.random.Generator, odds: np.ndarray, count: int, shift: np.ndarray) -> np.ndarray:
    """Binary rows after forty sweeps of Gibbs sampling of a random pairwise model, of degree four on average."""
    n = len(odds)
    upper = np.triu(rng.random((n, n)) < min(1.0, 4.0 / n), 1) * rng.normal(0.0, 1.2, (n, n))
    couplings = upper + upper.T
    rows = rng.random((count, n)) < 1.0 / (1.0 + np.exp(-odds))
    means = rows.mean(axis=0)
    for _ in range(40):
        for i in range(n):
            others = np.flatnonzero(couplings[i])
            field = (rows[:, others] - means[others]) @ couplings[i, others] + odds[i] + shift[:, 0]
            rows[:, i] = rng.random(count) < 1.0 / (1.0 + np.exp(-field))
    return rows


def _mixture(rng: np.random.Generator, odds: np.ndarray, count: int, shift: np.ndarray) -> np.ndarray:
    """Binary rows of a mixture of two to six components with independent variables."""
    components = odds + rng.normal(0.0, 1.5, (int(rng.integers(2, 7)), len(odds)))
    scores = components[rng.integers(len(components), size=count)] + shift
    return rng.random(scores.shape) < 1.0 / (1.0 + np.exp(-scores))


def _tree(rng: np.random.Generator, odds: np.ndarray, count: int, shift: np.ndarray) -> np.ndarray:
    """Binary rows of a random tree: most variables copy that of their parent now and then."""
    n = len(odds)
    rows = rng.random((count, n)) < 1.0 / (1.0 + np.exp(-odds - shift))
    for i in range(1, n):
        copies = rng.random(count) < rng.uniform(0.0, 0.9)
        rows[copies, i] = rows[copies, int(rng.integers(i))]
    return rows


LAWS: tuple[Callable[..., np.ndarray], ...] = (_factors, _pairs, _mixture, _tree)


def random_set(seed: int, most: int = 300) -> RandomSet:
    """A random set of the family ``seed % 8``, of up to so many variables."""
    rng = np.random.default_rng([seed, 36])
    kind = KINDS[seed % len(KINDS)]
    n = round(math.exp(rng.uniform(math.log(5), math.log(most))))
    num_train = int(rng.integers(30, 150)) if kind == "few rows" else round(math.exp(rng.uniform(5.5, 8.5)))
    num_valid = max(20, num_train // 3)
    count = num_train + num_valid + NUM_FRESH
    shares = rng.uniform(0.005, 0.08, n) if kind == "sparse" else rng.uniform(0.1, 0.9, n)
    shift = np.zeros((count, 1))
    if kind == "two modes":
        shift = rng.uniform(2.0, 4.0) * np.where(rng.random((count, 1)) < rng.uniform(0.1, 0.5), 1.0, -1.0)
    if kind == "sparse" and rng.random() < 0.5:  # few rows have most of the ones
        shift = rng.uniform(1.0, 4.0) * (rng.random((count, 1)) < 0.02)
    law = LAWS[int(rng.integers(len(LAWS)))]
    rows = law(rng, np.log(shares / (1.0 - shares)), count, shift).astype(np.int64)
    num_states = np.full(n, 2)
    if kind == "several states":
        num_states = rng.integers(2, 6, n)
        for i in np.flatnonzero(num_states > 2):
            rows[:, i] *= 1 + rng.binomial(num_states[i] - 2, rng.uniform(0.2, 0.8), count)
    if kind == "constant columns":
        rows[:, : 1 + n // 8] = rng.integers(0, 2, 1 + n // 8)
    if kind == "equal columns":
        most = n // 3
        rows[:, :most] = rows[:, most : 2 * most] ^ (rng.random((1, most)) < 0.3)
    train, valid, fresh = np.split(rows, [num_train, num_train + num_valid])
    if kind == "missing":
        share = rng.uniform(0.02, 0.2)
        train, valid = (np.where(rng.random(part.shape) < share, -1, part) for part in (train, valid))
    return RandomSet(f"{seed:4} {kind}, {law.__name__[1:]}", train, valid, fresh, num_states)


# -- checks -----------------------------------------------------------------------------------------------------------


def fresh_difference(
    model: fastmix.MarkovRandomField, tree: fastmix.MarkovRandomField, given: RandomSet, limit: float
) -> tuple[float, float, bool]:
    """By how much a model is better than a tree on fresh rows, the standard error of that, and whether it is known."""
    options: dict[str, Any] = {"missing": None, "seed": 0, "progress": None}
    own = fastmix.score(model, given.fresh, time_limit=max(limit, 10.0), **options)
    base = fastmix.score(tree, given.fresh, **options)
    rows = own.per_row - base.per_row
    error = math.hypot(float(rows.std()) / math.sqrt(len(rows)), own.std_error)
    return float(rows.mean()), error, own.status is Status.OK and base.status is Status.OK


def least_objective(given: RandomSet, ridge: float) -> tuple[float, Callable[[fastmix.MarkovRandomField], float]]:
    """The least value of the penalized objective on the complete graph, and the function itself, from lists of all."""
    states = np.array(list(itertools.product(*map(range, given.num_states))))
    columns = [contrasts(int(q))[states[:, i]] for i, q in enumerate(given.num_states)]
    own = [contrasts(int(q))[given.train[:, i]] for i, q in enumerate(given.num_states)]
    features = np.concatenate(columns + products(columns), axis=1)
    wanted = np.concatenate(own + products(own), axis=1).mean(axis=0)

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its derivative."""
        weights = features @ theta
        log_z = logsumexp(weights)
        moments = np.exp(weights - log_z) @ features
        return log_z - wanted @ theta + 0.5 * ridge * theta @ theta, moments - wanted + ridge * theta

    def of_model(model: fastmix.MarkovRandomField) -> float:
        """The objective of a model, from its log-weights."""
        weights = model.log_weight(states)
        theta = np.linalg.lstsq(features, weights - weights.mean(), rcond=None)[0]
        return float(value(theta)[0])

    start = np.zeros(features.shape[1])
    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9})
    return float(found.fun), of_model


def contrasts(count: int) -> np.ndarray:
    """Orthonormal columns (count, count - 1) that add up to 0 each."""
    return np.linalg.qr(np.concatenate([np.ones((count, 1)), np.eye(count)[:, : count - 1]], axis=1))[0][:, 1:]


def products(columns: list[np.ndarray]) -> list[np.ndarray]:
    """Products of the contrasts of all pairs of variables."""
    pairs = itertools.combinations(columns, 2)
    return [(a[:, :, None] * b[:, None, :]).reshape(len(a), -1) for a, b in pairs]


def wrong_optima(given: RandomSet, limit: float) -> list[str]:
    """Fits that are ``ok`` and miss the optimum, for sets with few joint states and all values."""
    if math.prod(given.num_states.tolist()) > MAX_LISTED or (given.train < 0).any():
        return []
    least, of_model = least_objective(given, 1e-3)
    size = sum(a * b for a, b in itertools.combinations((given.num_states - 1).tolist(), 2)) + sum(given.num_states - 1)
    wrong = []
    for moments in ("exact", "sampled"):
        # A list of all edges: the answer is the fit itself, never a tree.
        edges = np.array(list(itertools.combinations(range(len(given.num_states)), 2)))
        result = fastmix.learn(
            given.train, edges=edges, num_states=given.num_states, moments=moments, seed=0, time_limit=limit,
            progress=None,
        )  # fmt: skip
        allowed = MAX_EXACT_GAP
        if moments == "sampled":
            allowed = 0.5 * min(size, len(given.train)) / len(given.train)
        gap = of_model(result.model) - least
        if result.status is Status.OK and gap > allowed:
            wrong.append(f"{moments} ok but {gap:.2g} from the optimum, {allowed:.2g} allowed")
    return wrong


def check(given: RandomSet, limit: float, options: dict[str, Any]) -> tuple[str, list[str]]:
    """The line of a set, and the promises that it breaks."""
    common: dict[str, Any] = {"num_states": given.num_states, "seed": 0, "progress": None}
    tree = fastmix.learn(given.train, edges="chow-liu", validation=given.valid, **common)
    floor = tree.validation_log_likelihood
    assert floor is not None
    broken = wrong_optima(given, limit)
    line = f"{given.name:30} n={len(given.num_states):3} rows={len(given.train):5}"
    for label, more in (("valid", {"validation": given.valid, "ridge": "auto", **options}), ("alone", {})):
        begun = time.perf_counter()
        cpu = time.process_time()
        result = fastmix.learn(given.train, **common, **more, time_limit=limit)
        cpu = time.process_time() - cpu
        wall = time.perf_counter() - begun - result.stats.get("compile_seconds", 0.0)
        score = result.validation_log_likelihood
        if label == "valid" and (score is None or score < floor - 1e-9):
            broken.append(f"validation score {score}, tree {floor:.4f}")
        mean, error, is_known = fresh_difference(result.model, tree.model, given, limit)
        line += (
            f" | {label} {result.status!s:13} {mean:+8.4f} +-{error:7.4f} {result.model.num_edges:5} edges {cpu:5.1f}s"
        )
        if not is_known:
            line += " UNKNOWN"
        elif mean < -2.0 * error:
            broken.append(f"{label}: fresh rows {mean:.4f} +- {error:.4f} ({result.status}, {result.moments})")
        if wall > 1.2 * limit + 1.0:
            line += f" LATE {wall:.1f}s"
    return line, broken


def main() -> None:
    """Check the sets that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--most", type=int, default=300, help="variables of a set")
    parser.add_argument("--hidden", action="store_true")
    given = parser.parse_args()
    options: dict[str, Any] = {"hidden": "auto"} if given.hidden else {}
    count: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.sets):
        drawn = random_set(seed, given.most)
        line, broken = check(drawn, given.limit, options)
        print(line, *(f"\n     BROKEN {text}" for text in broken), sep="", flush=True)
        count["sets"] += 1
        count["sets with a broken promise"] += bool(broken)
        count["scores unknown"] += line.count("UNKNOWN")
    print(", ".join(f"{number} {name}" for name, number in count.items()))


if __name__ == "__main__":
    main()
