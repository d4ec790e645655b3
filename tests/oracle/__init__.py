"""Naive twins of the fast functions: plain loops over every configuration, for tiny models only.

Here is what all rooms need (probabilities, random numbers, random models); a room's own twins have a module each.

Nothing here calls a method of the model; only its stored arrays are read. Distributions over configurations are arrays
of shape ``(L_0, .., L_{n-1})``, one axis per variable.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.generator import MAX_THRESHOLD
from fastmix.model import MarkovRandomField

FloatArray = NDArray[np.float64]
Configuration = tuple[int, ...]

RTOL = 1e-11  # of log-weights: sums of tens of terms of up to 1e3 lose about 1e-13 of the largest
MASK = 2**32 - 1
ATOL = 1e-9  # of probabilities and of small log-weights


# -- the model as lists ---------------------------------------------------------------------------------------------


def unary_vectors(model: MarkovRandomField) -> list[list[float]]:
    """The vector of every variable, cut out of the flat array."""
    vectors, start = [], 0
    for count in model.num_states.tolist():
        vectors.append(model.log_unary[start : start + count].tolist())
        start += count
    return vectors


def edge_tables(model: MarkovRandomField) -> dict[tuple[int, int], list[list[float]]]:
    """The table of every edge (i, j), rows for i, cut out of the flat array."""
    tables, position = {}, 0
    for i, j in model.edges.tolist():
        table = []
        for _ in range(int(model.num_states[i])):
            width = int(model.num_states[j])
            table.append(model.log_pairwise[position : position + width].tolist())
            position += width
        tables[i, j] = table
    return tables


def laid_out(
    patterns: Sequence[FloatArray],
    chosen: Sequence[int],
    turned: Sequence[bool],
    weights: Sequence[float] | FloatArray,
    following: Sequence[float] | FloatArray | None = None,
) -> list[FloatArray]:
    """The flat table of every edge that shares patterns, entry by entry."""
    tables = []
    for e, k in enumerate(chosen):
        rows = patterns[k].tolist()
        values = [[weights[e] * entry if weights[e] else 0.0 for entry in row] for row in rows]
        if following is not None and following[e]:
            after = patterns[k + 1].tolist()
            values = [
                [v + following[e] * a for v, a in zip(*both, strict=True)] for both in zip(values, after, strict=True)
            ]
        table = np.array(values) + 0.0
        tables.append((table.T if turned[e] else table).reshape(-1))
    return tables


def factor_tables(model: MarkovRandomField) -> list[tuple[list[int], FloatArray]]:
    """Scope and table of every factor over three or more variables, cut out of the flat arrays."""
    result, position = [], 0
    bounds = np.asarray(model.scope_starts).tolist()
    for first, last in itertools.pairwise(bounds):
        scope = np.asarray(model.scope_variables)[first:last].tolist()
        shape = [int(model.num_states[v]) for v in scope]
        size = math.prod(shape)
        result.append((scope, model.log_factors[position : position + size].reshape(shape)))
        position += size
    return result


def all_configurations(model: MarkovRandomField) -> list[Configuration]:
    """Every configuration, the last variable changing fastest; the single empty one without variables."""
    return list(itertools.product(*(range(count) for count in model.num_states.tolist())))


# -- probabilities --------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """A model as lists: the constant, the vectors of the variables, the tables of edges and of larger factors."""

    constant: float
    unary: list[list[float]]
    tables: dict[tuple[int, int], list[list[float]]]
    factors: list[tuple[list[int], FloatArray]]


_CUT_OUT: deque[tuple[MarkovRandomField, Parts]] = deque(maxlen=8)  # models cannot change


def parts_of(model: MarkovRandomField) -> Parts:
    """The model as lists; those of the last few models are kept."""
    for known, parts in _CUT_OUT:
        if known is model:
            return parts
    parts = Parts(model.log_constant, unary_vectors(model), edge_tables(model), factor_tables(model))
    _CUT_OUT.append((model, parts))
    return parts


def log_weight(model: MarkovRandomField, x: Sequence[int]) -> float:
    """Unnormalized log-probability of one configuration."""
    constant, unary, tables, factors = parts_of(model)
    total = constant
    for i, vector in enumerate(unary):
        total += vector[x[i]]
    for (i, j), table in tables.items():
        total += table[x[i]][x[j]]
    for scope, values in factors:
        total += float(values[tuple(x[v] for v in scope)])
    return total


def log_weights(model: MarkovRandomField) -> list[float]:
    """Log-weights of all configurations, in the order of :func:`all_configurations`."""
    return [log_weight(model, x) for x in all_configurations(model)]


def log_sum_exp(values: Sequence[float]) -> float:
    """Log of the sum of exponentials; -inf for none."""
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return -math.inf
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def log_z(model: MarkovRandomField) -> float:
    """Log of the sum of all weights."""
    return log_sum_exp(log_weights(model))


def joint(model: MarkovRandomField) -> FloatArray:
    """Probability of every configuration, an array with one axis per variable."""
    weights = log_weights(model)
    total = log_sum_exp(weights)
    if total == -math.inf:
        raise ValueError("the model allows no configuration")
    result = np.zeros(tuple(model.num_states.tolist()))
    for x, weight in zip(all_configurations(model), weights, strict=True):
        result[x] = math.exp(weight - total)
    return result


def node_marginals(model: MarkovRandomField) -> list[FloatArray]:
    """Distribution of every variable."""
    marginals = [np.zeros(count) for count in model.num_states.tolist()]
    p = joint(model)
    for x in all_configurations(model):
        for i, state in enumerate(x):
            marginals[i][state] += p[x]
    return marginals


def edge_marginals(model: MarkovRandomField) -> list[FloatArray]:
    """Joint distribution of the two ends of every edge, rows for i."""
    marginals = [np.zeros((model.num_states[i], model.num_states[j])) for i, j in model.edges.tolist()]
    p = joint(model)
    for x in all_configurations(model):
        for e, (i, j) in enumerate(model.edges.tolist()):
            marginals[e][x[i], x[j]] += p[x]
    return marginals


def conditional(model: MarkovRandomField, i: int, x: Sequence[int]) -> FloatArray | None:
    """Distribution of variable i given the others at x; None if the others forbid every state of it."""
    _, unary, tables, factors = parts_of(model)
    weights = [log_weight(model, [*x[:i], state, *x[i + 1 :]]) for state in range(len(unary[i]))]
    if max(weights) > -math.inf:
        total = log_sum_exp(weights)
        return np.array([math.exp(w - total) for w in weights])
    # A forbidden pair elsewhere makes every weight zero; the conditional looks at the terms of variable i alone.
    local = list(unary[i])
    for (a, b), table in tables.items():
        for state in range(len(local)):
            if a == i:
                local[state] += table[state][x[b]]
            elif b == i:
                local[state] += table[x[a]][state]
    for scope, values in factors:
        for state in range(len(local) if i in scope else 0):
            local[state] += float(values[tuple(state if v == i else x[v] for v in scope)])
    total = log_sum_exp(local)
    return None if total == -math.inf else np.array([math.exp(w - total) for w in local])


# -- evidence -------------------------------------------------------------------------------------------------------


def agrees(x: Sequence[int], evidence: Mapping[int, int]) -> bool:
    """Whether a configuration has every observed state."""
    return all(x[i] == state for i, state in evidence.items())


def log_evidence(model: MarkovRandomField, evidence: Mapping[int, int]) -> float:
    """Log of the unnormalized mass of the evidence; -inf when it is impossible."""
    pairs = zip(all_configurations(model), log_weights(model), strict=True)
    return log_sum_exp([weight for x, weight in pairs if agrees(x, evidence)])


def condition(model: MarkovRandomField, evidence: Mapping[int, int]) -> FloatArray:
    """Joint distribution of the variables that are not observed, in their order, given the evidence."""
    total = log_evidence(model, evidence)
    if total == -math.inf:
        raise ValueError("the evidence is impossible")
    rest = [i for i in range(model.num_variables) if i not in evidence]
    result = np.zeros(tuple(int(model.num_states[i]) for i in rest))
    for x, weight in zip(all_configurations(model), log_weights(model), strict=True):
        if agrees(x, evidence):
            result[tuple(x[i] for i in rest)] = math.exp(weight - total)
    return result


# -- random numbers ---------------------------------------------------------------------------------------------------


def rotate(x: int, k: int) -> int:
    return ((x << k) | (x >> (32 - k))) & MASK


def xoshiro(state: list[int]) -> int:
    """The next 32 bits of xoshiro128++, as Blackman and Vigna print it; the state is changed."""
    result = (rotate((state[0] + state[3]) & MASK, 7) + state[0]) & MASK
    t = (state[1] << 9) & MASK
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= t
    state[3] = rotate(state[3], 11)
    return result


class Stream:
    """The numbers of one stream: 32 bits with the two middle values joined."""

    def __init__(self, state: np.ndarray) -> None:
        self.state = [int(word) for word in state]

    def draw(self) -> int:
        v = xoshiro(self.state)
        return v - (v >> 31)

    def site(self, n: int) -> int:
        high, low = self.draw(), self.draw()
        return (high * n + (low * n >> 32)) >> 32


class Updates:
    """Single updates of one model from given numbers of 32 bits; every conditional is enumerated once."""

    def __init__(self, model: MarkovRandomField) -> None:
        self.model = model
        self._known: dict[tuple[int, ...], FloatArray] = {}
        self._around: list[list[int]] = [[] for _ in range(model.num_variables)]
        for i, j in model.edges.tolist():
            self._around[i].append(j)
            self._around[j].append(i)

    def update(self, x: list[int], i: int, u: int) -> FloatArray:
        """Draw the state of variable i, in place; what comes back is its conditional distribution."""
        key = (i, *(x[j] for j in self._around[i]))
        if key not in self._known:
            p = conditional(self.model, i, x)
            assert p is not None
            self._known[key] = p
        p = self._known[key]
        cuts = [min(round(float(q) * 2**32), MAX_THRESHOLD) for q in np.cumsum(p)[:-1]]
        x[i] = sum(u >= cut and cut != MAX_THRESHOLD for cut in cuts)
        return p


# -- random models --------------------------------------------------------------------------------------------------


def random_model(
    rng: np.random.Generator,
    num_variables: int = 4,
    max_states: int = 3,
    edge_probability: float = 0.6,
    scale: float = 1.0,
    forbidden_probability: float = 0.0,
) -> MarkovRandomField:
    """A model with mixed state counts, normal entries and -inf here and there; some configuration is always allowed."""
    counts = [int(rng.integers(1, max_states + 1)) for _ in range(num_variables)]
    pairs = itertools.combinations(range(num_variables), 2)
    edges = [pair for pair in pairs if rng.random() < edge_probability]
    return random_entries(rng, counts, edges, scale, forbidden_probability)


def random_entries(
    rng: np.random.Generator,
    counts: Sequence[int],
    edges: Sequence[tuple[int, int]],
    scale: float = 1.0,
    forbidden_probability: float = 0.0,
) -> MarkovRandomField:
    """A model on given edges (i < j, in order) with normal entries, -inf with a given probability.

    The entries that one random configuration uses stay finite, so that the model always allows that one.
    """
    planted = [int(rng.integers(count)) for count in counts]
    unary, tables = [], []
    for i, count in enumerate(counts):
        for state in range(count):
            value = scale * rng.standard_normal()
            forbidden = rng.random() < forbidden_probability and state != planted[i]
            unary.append(-math.inf if forbidden else value)
    for i, j in edges:
        for a in range(counts[i]):
            for b in range(counts[j]):
                value = scale * rng.standard_normal()
                forbidden = rng.random() < forbidden_probability and (a, b) != (planted[i], planted[j])
                tables.append(-math.inf if forbidden else value)
    constant = float(rng.standard_normal())
    return MarkovRandomField(
        np.array(counts, dtype=np.int64),
        np.array(unary),
        np.array(edges, dtype=np.int64),
        np.array(tables),
        constant,
    )


def random_factors(
    rng: np.random.Generator,
    num_variables: int = 5,
    max_states: int = 3,
    num_factors: int = 3,
    scale: float = 1.0,
    forbidden_probability: float = 0.0,
) -> MarkovRandomField:
    """A model with factors of three or four variables, some pairs and unaries; some configuration is always allowed."""
    counts = rng.integers(1, max_states + 1, size=num_variables).tolist()
    planted = [int(rng.integers(count)) for count in counts]
    scopes = [rng.permutation(num_variables)[: int(rng.integers(3, 5))].tolist() for _ in range(num_factors)]
    scopes += [[0], rng.permutation(num_variables)[:2].tolist(), [num_variables - 1]]
    factors = []
    for scope in scopes:
        table = scale * rng.standard_normal([counts[v] for v in scope])
        forbidden = rng.random(table.shape) < (forbidden_probability if len(scope) > 2 else 0.0)
        forbidden[tuple(planted[v] for v in scope)] = False
        factors.append((scope, np.where(forbidden, -np.inf, table)))
    return MarkovRandomField.from_factors(counts, factors)


def random_states(model: MarkovRandomField, num_chains: int, seed: int = 0) -> np.ndarray:
    """Configurations of which every one is as likely, forbidden ones included."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, model.num_states, size=(num_chains, model.num_variables))


def first_order_model(
    n: int, num_states: int, *, excess: float = 3.0, unary: float = -2.0, labels: Sequence[int] | None = None
) -> tuple[MarkovRandomField, float, float]:
    """A model with two phases that no sequence of small steps joins, with an exact marginal and log Z.

    On the complete graph, pairs that are both in the state ``labels[i]`` of their variable (0 by default) have the
    log-potential J, which is such that the weight of the configuration with all variables there exceeds that of all
    others together by a factor of about ``exp(excess)``; the state itself has the log-potential ``unary``.

    Returns
    -------
    model, average probability of the states labels[i], log Z
    """
    coupling = (n * (math.log(num_states) - unary) + excess) / (n * (n - 1) / 2)
    label = list(labels) if labels is not None else [0] * n
    unaries = [[unary if s == label[i] else 0.0 for s in range(num_states)] for i in range(n)]
    pairs = list(itertools.combinations(range(n), 2))
    tables = np.zeros((len(pairs), num_states, num_states))
    for e, (i, j) in enumerate(pairs):
        tables[e, label[i], label[j]] = coupling
    # By the number k of variables in their labeled states.
    weights = [
        math.log(math.comb(n, k)) + k * unary + (n - k) * math.log(num_states - 1) + coupling * k * (k - 1) / 2
        for k in range(n + 1)
    ]
    total = log_sum_exp(weights)
    share = math.fsum(k / n * math.exp(w - total) for k, w in enumerate(weights))
    return MarkovRandomField.from_tables(unaries, pairs, tables), share, total


# -- assertions -----------------------------------------------------------------------------------------------------


def assert_log_close(actual: object, expected: object, *, rtol: float = RTOL, atol: float = ATOL) -> None:
    """Log-values agree: -inf in the same places, the others to a tolerance; NaN and +inf never pass."""
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert a.shape == b.shape, f"shapes differ: {a.shape} and {b.shape}"
    for values in (a, b):
        assert not (np.isnan(values) | (values == np.inf)).any(), f"not log-values: {values}"
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def assert_probabilities_close(actual: object, expected: object, *, atol: float = ATOL) -> None:
    """Probabilities agree to an absolute tolerance; negative or non-finite ones never pass."""
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert a.shape == b.shape, f"shapes differ: {a.shape} and {b.shape}"
    assert np.isfinite(a).all(), f"not finite: {a}"
    assert (a >= 0.0).all(), f"not probabilities: {a}"
    np.testing.assert_allclose(a, b, rtol=0.0, atol=atol)


def assert_same_weights(
    model: MarkovRandomField, other: MarkovRandomField, order: Sequence[int] | None = None, shift: float = 0.0
) -> None:
    """Every configuration has the same log-weight in both, up to a shift.

    Variable k of ``other`` is variable ``order[k]`` of ``model``.
    """
    order = range(model.num_variables) if order is None else order
    assert [int(model.num_states[i]) for i in order] == other.num_states.tolist(), "state counts differ"
    mine, theirs = [], []
    for x, weight in zip(all_configurations(model), log_weights(model), strict=True):
        mine.append(weight + shift)
        theirs.append(log_weight(other, [x[i] for i in order]))
    assert_log_close(theirs, mine)


def assert_read_only(*arrays: NDArray[np.generic]) -> None:
    """No array can be written to."""
    for array in arrays:
        assert not array.flags.writeable, "an array can be written to"


class RefusedError(Exception):
    """A slow reader does not take the text."""


def is_defined(model: MarkovRandomField) -> bool:
    """Whether every pattern of neighbors leaves every variable a state."""
    return all(
        conditional(model, i, x) is not None for i in range(model.num_variables) for x in all_configurations(model)
    )


def lopsided(seed: int = 5) -> MarkovRandomField:
    """Mixed state counts, asymmetric tables, a forbidden pair, a one-state and an isolated variable."""
    rng = np.random.default_rng(seed)
    counts, pairs = [2, 3, 1, 2, 2, 2], [(0, 1), (0, 3), (1, 2), (1, 3), (3, 4)]
    tables = [1.2 * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    tables[0][1, 2] = -np.inf
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)
