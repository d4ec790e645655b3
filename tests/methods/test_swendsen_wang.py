from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm
from scipy.stats import t as student

import fastmix
import oracle
from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.graphs import connected_components, erdos_renyi_edges
from fastmix.instances import ising_grid, ising_random, potts_grid
from fastmix.methods import swendsen_wang
from fastmix.methods.swendsen_wang import ClusterChains, check_swendsen_wang, is_swendsen_wang
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import reduce_model
from fastmix.testing import conformance_models
from naive_ladder import Stream

FALSE_ALARM = 1e-6  # of every statistical test
INF = math.inf

Rule = Callable[["Parts", list[int], Callable[[], float], list[int]], list[int]]


# -- models in parts, and the naive twin ----------------------------------------------------------------------------


@dataclass
class Parts:
    """A model as T(a, b) = J [a = b] + r(a) + s(b), edges in lexicographic order; J < 0 for binary variables only."""

    unary: list[list[float]]
    edges: list[tuple[int, int]]
    coupling: list[float]
    left: list[list[float]] | None = None
    right: list[list[float]] | None = None

    def functions(self) -> tuple[list[list[float]], list[list[float]]]:
        none = [[0.0] * len(self.unary[i]) for i, _ in self.edges], [[0.0] * len(self.unary[j]) for _, j in self.edges]
        return self.left or none[0], self.right or none[1]

    def model(self) -> MarkovRandomField:
        tables = [
            [[J * (a == b) + r[a] + s[b] for b in range(len(s))] for a in range(len(r))]
            for J, r, s in zip(self.coupling, *self.functions(), strict=True)
        ]
        return MarkovRandomField.from_tables(
            [np.array(u) for u in self.unary], self.edges, [np.array(t) for t in tables]
        )

    def attractive(self) -> tuple[list[bool], Parts]:
        """Variables to exchange the states of, the smallest of a component never, and the model after that."""
        flip: dict[int, bool] = {}
        for start in range(len(self.unary)):
            queue = [] if start in flip else [start]
            flip.setdefault(start, False)
            for v in queue:  # grows
                for (i, j), J in zip(self.edges, self.coupling, strict=True):
                    if J and v in (i, j):
                        u = i + j - v
                        if u not in flip:
                            queue.append(u)
                        assert flip.setdefault(u, flip[v] ^ (J < 0)) == flip[v] ^ (J < 0)
        unary = [list(u) for u in self.unary]
        for (i, j), r, s in zip(self.edges, *self.functions(), strict=True):
            unary[i] = [u + x for u, x in zip(unary[i], r, strict=True)]
            unary[j] = [u + x for u, x in zip(unary[j], s, strict=True)]
        flips = [flip[i] for i in range(len(unary))]
        unary = [u[::-1] if f else u for u, f in zip(unary, flips, strict=True)]
        kept = [(e, abs(J)) for e, J in zip(self.edges, self.coupling, strict=True) if J]
        return flips, Parts(unary, [e for e, _ in kept], [J for _, J in kept])


def clusters_of(n: int, bonds: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Ascending members of each cluster, in the order of the smallest."""
    label = list(range(n))
    for i, j in bonds:
        label = [label[i] if k == label[j] else k for k in label]
    groups: dict[int, list[int]] = {}
    for v in range(n):
        groups.setdefault(label[v], []).append(v)
    return list(groups.values())


def cluster_weights(parts: Parts, cluster: Sequence[int]) -> list[float]:
    """Weights of the states of a cluster, the largest 1."""
    total = [sum(values) for values in zip(*(parts.unary[i] for i in cluster), strict=True)]
    return [math.exp(t - max(total)) for t in total]


def choose(weights: Sequence[float], uniform: float) -> int:
    level = uniform * sum(weights)
    return next(s for s in range(len(weights)) if level < sum(weights[: s + 1]))


def sweep(
    parts: Parts,
    x: list[int],
    uniform: Callable[[], float],
    before: list[int],
    holds: Callable[[float], bool] | None = None,
) -> list[int]:
    """One sweep of an attractive model; ``before`` is what x was a sweep ago, of no use here."""
    bonds = []
    for (i, j), J in zip(parts.edges, parts.coupling, strict=True):
        p = -math.expm1(-J)
        kept = uniform() < p if holds is None else holds(p)
        if x[i] == x[j] and kept:
            bonds.append((i, j))
    return draw_clusters(parts, bonds, uniform)


def draw_clusters(parts: Parts, bonds: list[tuple[int, int]], uniform: Callable[[], float]) -> list[int]:
    y = [0] * len(parts.unary)
    for cluster in clusters_of(len(y), bonds):
        weights = cluster_weights(parts, cluster)
        state = choose(weights, uniform()) if len(weights) > 1 else 0
        for i in cluster:
            y[i] = state
    return y


def twin_run(parts: Parts, seed: int, chain: int, num_sweeps: int) -> list[list[int]]:
    """Configurations of a chain from its start on."""
    flips, plain = parts.attractive()
    stream = Stream(make_streams(seed, chain, 1)[:, 0])

    def uniform() -> float:
        high, low = stream.draw(), stream.draw()
        return ((high << 21 | low >> 11) + 0.5) * 2.0**-53

    def holds(probability: float) -> bool:
        return stream.draw() < min(round(probability * 2.0**32), MAX_THRESHOLD)

    path = [draw_clusters(plain, [], uniform)]
    for _ in range(num_sweeps):
        path.append(sweep(plain, path[-1], uniform, [], holds))
    return [[s ^ f for s, f in zip(y, flips, strict=True)] for y in path]


@st.composite
def parts_models(draw: st.DrawFn, max_variables: int = 6, max_states: int = 3, forbidden: bool = True) -> Parts:
    """Attractive models of mixed state counts; binary ones with negative couplings on no odd cycle."""
    n = draw(st.integers(0, max_variables))
    binary = draw(st.booleans())
    counts = draw(st.lists(st.integers(1, max_states), min_size=n, max_size=n)) if not binary else [2] * n
    pairs = list(itertools.combinations(range(n), 2))
    edges = sorted(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else []
    scale = draw(st.sampled_from([0.3, 1.0, 3.0, 1e3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    flips = rng.random(n) < draw(st.sampled_from([0.0, 0.5]))
    unary = [rng.normal(size=L) * min(scale, 3.0) for L in counts]
    if forbidden:
        for u in unary:
            u[(rng.random(len(u)) < 0.2) & (np.arange(len(u)) != rng.integers(len(u)))] = -INF
    coupling = []
    for i, j in edges:
        size = float(rng.exponential(scale)) * (counts[i] == counts[j] > 1) * (rng.random() < 0.8)
        coupling.append(-size if counts[i] == 2 and flips[i] != flips[j] else size)
    left = [rng.normal(size=counts[i]).tolist() for i, _ in edges]
    right = [rng.normal(size=counts[j]).tolist() for _, j in edges]
    return Parts([u.tolist() for u in unary], edges, coupling, left, right)


# Fields that pull against the couplings, three components, a variable alone, one of a single state.
ISING = Parts(
    [[0.0, 0.9], [0.3, -0.2], [0.0, -0.7], [0.2, 0.0], [1.1, 0.0], [0.0, 0.4]],
    [(0, 1), (0, 2), (1, 2), (3, 5)],
    [0.7, 1.5, 0.4, 1.1],
    [[0.0, 0.2], [0.1, -0.3], [0.0, 0.0], [0.5, 0.1]],
    [[0.1, 0.0], [0.0, 0.4], [-0.2, 0.2], [0.0, 0.3]],
)
POTTS = Parts(
    [[0.0, 0.6, -0.5], [0.8, 0.0, 0.1], [0.0, 0.0, 0.9], [0.3, 0.0, -INF]],
    [(0, 1), (0, 3), (1, 2), (2, 3)],
    [0.8, 1.4, 0.5, 0.9],
    [[0.0, 0.3, 0.1], [0.2, 0.0, -0.2], [0.0, 0.0, 0.0], [0.4, 0.0, 0.1]],
    [[0.0, 0.0, 0.5], [0.0, 0.1, 0.0], [0.3, 0.0, -0.1], [0.0, 0.2, 0.0]],
)
MIXED = Parts(
    [[0.0, 0.8], [0.5], [0.0, 0.4, -0.9], [0.6, 0.0], [0.1, -0.3, 0.5], [0.0, 0.2, 0.1, -0.4]],
    [(0, 1), (0, 2), (0, 3), (1, 5), (2, 4)],
    [0.0, 0.0, 1.3, 0.0, 0.9],
    [[0.0, 0.4], [0.1, -0.1], [0.3, 0.0], [0.2], [0.0, 0.3, 0.1]],
    [[0.3], [0.0, 0.2, 0.3], [0.0, 0.1], [0.0, 0.3, 0.1, -0.2], [0.2, 0.0, -0.3]],
)
# An antiferromagnet on a cycle of four with a tail, in fields.
FLIPPED = Parts(
    [[0.0, 0.5], [0.4, 0.0], [0.0, -0.3], [0.7, 0.0], [0.0, 0.2]],
    [(0, 1), (0, 3), (1, 2), (2, 3), (3, 4)],
    [-0.8, -1.2, -0.6, -1.0, 0.9],
    [[0.0, 0.2], [0.1, 0.0], [0.0, -0.4], [0.0, 0.3], [0.2, 0.0]],
    [[0.3, 0.0], [0.0, 0.1], [0.2, 0.2], [-0.1, 0.0], [0.0, 0.5]],
)
NAMED = {"ising": ISING, "potts": POTTS, "mixed": MIXED, "flipped": FLIPPED}


# -- no randomness --------------------------------------------------------------------------------------------------


@given(parts=parts_models(), seed=st.integers(0, 2**64 - 1))
def test_twin_draw_by_draw(parts: Parts, seed: int) -> None:
    num_sweeps = 4
    paths = [twin_run(parts, seed, chain, num_sweeps) for chain in range(2)]
    engine = ClusterChains(parts.model(), num_chains=2, seed=seed)
    for k in range(num_sweeps + 1):
        assert engine.get_states().tolist() == [path[k] for path in paths]
        engine.sweep(1, collect=k % 2 == 0)


def test_twin_many_states() -> None:
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(4, 300)) + 3.0 * (np.arange(300) > 255)
    parts = Parts(unary.tolist(), [(0, 1), (1, 2), (2, 3)], [6.0, 8.0, 7.0])
    engine = ClusterChains(parts.model(), num_chains=1, seed=5)
    engine.sweep(50, collect=False)
    assert engine.get_states().max() > 255
    assert engine.get_states()[0].tolist() == twin_run(parts, 5, 0, 50)[-1]


@given(parts=parts_models(max_variables=5))
def test_normal_form_keeps_the_distribution(parts: Parts) -> None:
    model = parts.model()
    form = swendsen_wang._normal_form(model)
    assert (form.couplings > 0).all()
    configurations = oracle.all_configurations(model)
    x = np.array(configurations, dtype=np.int64).reshape(len(configurations), model.num_variables)
    y = x if form.flips is None else x ^ form.flips
    weights = form.log_unary[model.unary_offsets[:-1] + y].sum(axis=1)
    weights += ((y[:, form.heads] == y[:, form.tails]) * form.couplings).sum(axis=1)
    exact = np.asarray(model.log_weight(x))
    allowed = exact > -INF
    assert np.array_equal(allowed, weights > -INF)
    difference = weights[allowed] - exact[allowed]
    assert np.ptp(difference) <= 1e-9


def transition_matrix(parts: Parts) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """All configurations of an attractive model and the probabilities to get from one to another in a sweep."""
    n = len(parts.unary)
    configurations = list(itertools.product(*(range(len(u)) for u in parts.unary)))
    matrix = np.zeros((len(configurations),) * 2)
    for kept in itertools.product([False, True], repeat=len(parts.edges)):
        clusters = clusters_of(n, [e for e, k in zip(parts.edges, kept, strict=True) if k])
        after = np.zeros(len(configurations))
        for b, y in enumerate(configurations):
            if all(len({y[i] for i in cluster}) == 1 for cluster in clusters):
                weights = [(cluster_weights(parts, c), y[c[0]]) for c in clusters]
                after[b] = math.prod(w[s] / sum(w) for w, s in weights)
        for a, x in enumerate(configurations):
            probability = 1.0
            for (i, j), J, k in zip(parts.edges, parts.coupling, kept, strict=True):
                bond = -math.expm1(-J) if x[i] == x[j] else 0.0
                probability *= bond if k else 1.0 - bond
            if probability:
                matrix[a] += probability * after
    return configurations, matrix


TINY = {
    "triangle": Parts(ISING.unary[:3], ISING.edges[:3], ISING.coupling[:3]),
    "square": Parts([*ISING.unary[:3], [0.0, -0.4]], [(0, 1), (0, 3), (1, 2), (2, 3)], [0.7, 0.2, 1.5, 3.0]),
    "potts": Parts(POTTS.unary[:3], [(0, 1), (0, 2), (1, 2)], [0.8, 1.4, 0.5]),
    "forbidden": Parts([[0.0, 0.4, -INF], [0.3, -INF, 0.2], [0.0, 0.1, 0.2]], [(0, 1), (0, 2)], [1.0, 0.6]),
    "mixed": Parts([[0.0, 0.4], [0.0, 0.3, 0.9], [0.5, 0.0], [0.2]], [(0, 2)], [1.2]),
}


@pytest.mark.parametrize("name", TINY)
def test_transition_matrix_has_the_target_fixed(name: str) -> None:
    parts = TINY[name]
    configurations, matrix = transition_matrix(parts)
    target = oracle.joint(parts.model()).reshape(-1)
    possible = target > 0
    np.testing.assert_allclose(matrix[possible].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(target @ matrix, target, atol=1e-14)
    assert (matrix[np.ix_(possible, possible)] > 0).all()  # ergodic in one sweep
    assert len(configurations) == len(target)


# -- statistics -----------------------------------------------------------------------------------------------------


def excess(counts: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Chi-square statistic and degrees of freedom, cells of less than 10 expected counts taken together."""
    assert not counts[expected == 0].any(), "an impossible configuration was drawn"
    rare = expected < 10
    observed, hoped = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    observed, hoped = observed[hoped > 0], hoped[hoped > 0]
    return float(((observed - hoped) ** 2 / hoped).sum()), len(hoped) - 1


def joint_misfit(model: MarkovRandomField, states: np.ndarray) -> float:
    """Chi-square statistic of independent configurations over its limit: above 1, they are not of the model."""
    shape = tuple(model.num_states.tolist())
    codes = np.ravel_multi_index(tuple(states.T), shape)
    p = oracle.joint(model).reshape(-1)
    statistic, freedom = excess(np.bincount(codes, minlength=p.size), len(states) * p)
    return statistic / float(chi2.isf(FALSE_ALARM, freedom)) if freedom else 0.0


@pytest.mark.parametrize("name", TINY)
def test_one_sweep_from_a_given_start(name: str) -> None:
    parts, repeats = TINY[name], 8_000
    configurations, matrix = transition_matrix(parts)
    model = parts.model()
    starts = [x for x, p in zip(configurations, oracle.joint(model).reshape(-1), strict=True) if p > 0]
    engine = ClusterChains(model, num_chains=repeats * len(starts), seed=3)
    engine.set_states(np.repeat(np.array(starts), repeats, axis=0))
    engine.sweep(1, collect=True)
    ends = engine.get_states().reshape(len(starts), repeats, -1)
    sums = engine.take_sums().reshape(-1, len(starts), repeats)
    indicators = np.concatenate([np.equal.outer(np.array(configurations)[:, i], np.arange(L)) for i, L in enumerate(
        model.num_states)], axis=1)  # fmt: skip
    statistic = freedom = 0.0
    for k, x in enumerate(starts):
        row = matrix[configurations.index(x)]
        codes = np.ravel_multi_index(tuple(ends[k].T), tuple(model.num_states.tolist()))
        more = excess(np.bincount(codes, minlength=row.size), repeats * row)
        statistic, freedom = statistic + more[0], freedom + more[1]
        # What is collected has the same mean as the indicators of the states that follow.
        error = sums[:, k].std(axis=1) / math.sqrt(repeats)
        limit = norm.isf(FALSE_ALARM / 2 / sums[:, 0].shape[0] / len(starts))
        assert (
            np.abs(sums[:, k].mean(axis=1) - row @ indicators) <= limit * error + 1e-9
        ).all()  # rounding, where nothing varies
    assert statistic < chi2.isf(FALSE_ALARM, freedom)


@pytest.mark.parametrize("name", NAMED)
def test_exact_draws_stay_exact(name: str) -> None:
    model, num_chains, num_sweeps = NAMED[name].model(), 100_000, 3
    engine = ClusterChains(model, num_chains=num_chains, seed=11)
    engine.set_states(fastmix.draw_exact(model, num_draws=num_chains, seed=12))
    assert joint_misfit(model, engine.get_states()) < 1
    engine.sweep(num_sweeps, collect=True)
    assert joint_misfit(model, engine.get_states()) < 1
    means = engine.take_sums() / num_sweeps
    error = means.std(axis=1) / math.sqrt(num_chains)
    exact = np.concatenate(oracle.node_marginals(model))
    limit = norm.isf(FALSE_ALARM / 2 / len(exact))
    assert (np.abs(means.mean(axis=1) - exact) <= limit * error + 1e-9).all()  # rounding, where nothing varies


def test_start_is_soon_forgotten() -> None:
    # From the start without couplings the joint is wrong, 30 sweeps later it is right.
    model = ISING.model()
    engine = ClusterChains(model, num_chains=50_000, seed=2)
    assert joint_misfit(model, engine.get_states()) > 1
    engine.sweep(30, collect=False)
    assert joint_misfit(model, engine.get_states()) < 1


def test_conformance_models() -> None:
    accepted = set()
    for name, model in conformance_models():
        if not is_swendsen_wang(model):
            with pytest.raises(UnfitMethodError, match="but edge"):
                ClusterChains(model, num_chains=1, seed=0)
            continue
        accepted.add(name)
        engine = ClusterChains(model, num_chains=20_000, seed=4)
        engine.set_states(fastmix.draw_exact(model, num_draws=20_000, seed=5))
        engine.sweep(2, collect=True)
        assert engine.take_sums().shape == (len(model.log_unary), 20_000)
        if model.num_variables:
            assert joint_misfit(model, engine.get_states()) < 1, name
    assert accepted >= {
        "no variables",
        "a constant alone",
        "one variable",
        "one state",
        "no edges",
        "isolated variable",
        "one-state neighbour",
        "large constant",
        "couplings of a thousand",  # of both signs
        "opposed fields of a thousand",
    }


# -- sabotaged twins, which the same test must catch ----------------------------------------------------------------


def sweep_without_fields(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    flat = [[0.0 if u > -INF else u for u in vector] for vector in parts.unary]
    return sweep(Parts(flat, parts.edges, parts.coupling), x, uniform, before)


def sweep_with_fields_of_one(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """Only the first member of a cluster counts."""
    bonds = [
        e
        for e, J in zip(parts.edges, parts.coupling, strict=True)
        if uniform() < -math.expm1(-J) and x[e[0]] == x[e[1]]
    ]
    y = [0] * len(x)
    for cluster in clusters_of(len(x), bonds):
        state = choose(cluster_weights(parts, cluster[:1]), uniform())
        for i in cluster:
            y[i] = state
    return y


def sweep_with_half_bonds(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    return sweep(Parts(parts.unary, parts.edges, [J / 2 for J in parts.coupling]), x, uniform, before)


def sweep_without_an_edge(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    return sweep(Parts(parts.unary, parts.edges[1:], parts.coupling[1:]), x, uniform, before)


def sweep_with_any_bonds(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """Bonds whether or not the ends agree."""
    return sweep(parts, [0] * len(x), uniform, before)


def sweep_from_stale_state(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """The second end of an edge is looked up where it was a sweep ago."""
    bonds = [
        (i, j)
        for (i, j), J in zip(parts.edges, parts.coupling, strict=True)
        if uniform() < -math.expm1(-J) and x[i] == before[j]
    ]
    return draw_clusters(parts, bonds, uniform)


def sweep_with_stale_member(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """The first variable keeps its state when its cluster changes."""
    return [*x[:1], *sweep(parts, x, uniform, before)[1:]]


SABOTAGED: list[Rule] = [
    sweep_without_fields,
    sweep_with_fields_of_one,
    sweep_with_half_bonds,
    sweep_without_an_edge,
    sweep_with_any_bonds,
    sweep_from_stale_state,
    sweep_with_stale_member,
]


def twin_misfit(parts: Parts, rule: Rule) -> float:
    """The test of :func:`test_exact_draws_stay_exact` with another rule for a sweep."""
    num_chains = 2_500
    flips, plain = parts.attractive()
    assert not any(flips)
    rng = random.Random(9)
    states = fastmix.draw_exact(parts.model(), num_draws=num_chains, seed=10).states
    for c, row in enumerate(states.tolist()):
        before, x = row, row
        for _ in range(3):
            before, x = x, rule(plain, x, rng.random, before)
        states[c] = x
    return joint_misfit(parts.model(), states)


SMALL_ISING = Parts(ISING.unary[:4], ISING.edges[:3], ISING.coupling[:3])
SMALL_POTTS = Parts(POTTS.unary[:3], [(0, 1), (0, 2), (1, 2)], [0.8, 1.4, 0.5])


@pytest.mark.parametrize("parts", [SMALL_ISING, SMALL_POTTS], ids=["ising", "potts"])
def test_sabotage_is_caught(parts: Parts) -> None:
    assert twin_misfit(parts, sweep) < 1
    for rule in SABOTAGED:
        assert twin_misfit(parts, rule) > 1, rule.__name__


# -- larger models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        ising_grid(16, 16, coupling_max=0.8, attractive=True, seed=1),
        ising_grid(16, 16, coupling_max=1.0, field_max=0.3, attractive=True, seed=1),
        potts_grid(8, 8, coupling_max=1.0, attractive=True, seed=1),
    ],
    ids=["fields", "couplings", "potts"],
)
def test_marginals_of_grids(model: MarkovRandomField) -> None:
    # Averages over 100 sweeps have a skewness below 2, over 500 chains below 0.1: close enough to a normal law.
    num_chains, num_sweeps = 500, 100
    exact = fastmix.infer(model, method="exact").node_marginals
    engine = ClusterChains(model, num_chains=num_chains, seed=6)
    engine.set_states(fastmix.draw_exact(model, num_draws=num_chains, seed=7))
    engine.sweep(num_sweeps, collect=True)
    means = engine.take_sums() / num_sweeps
    error = means.std(axis=1, ddof=1) / math.sqrt(num_chains)  # chains are independent
    limit = student.isf(FALSE_ALARM / 2 / len(exact), num_chains - 1)
    assert (np.abs(means.mean(axis=1) - exact) < limit * error).all()
    # Were the couplings weaker by a fifth, the same test would see it.
    weak = fastmix.infer(model.replace(log_pairwise=0.8 * model.log_pairwise), method="exact").node_marginals
    assert (np.abs(means.mean(axis=1) - weak) > limit * error).any()


@pytest.mark.parametrize("num_states", [2, 3])
def test_clusters_of_a_large_graph(num_states: int) -> None:
    # Couplings so strong that every cluster is a component: all that is drawn and collected is known.
    n = 20_000
    edges = erdos_renyi_edges(n, 1.1 / n, seed=1)
    fields = np.random.default_rng(2).normal(size=(n, num_states))
    model = MarkovRandomField.potts(edges, 1e3, num_states, fields)
    engine = ClusterChains(model, num_chains=2, seed=3)
    engine.set_states(np.zeros((2, n), dtype=np.int64))
    engine.sweep(3, collect=True)
    count, labels = connected_components(n, edges)
    totals = np.zeros((count, num_states))
    np.add.at(totals, labels, fields)
    weights = np.exp(totals - totals.max(axis=1, keepdims=True))
    expected = (weights / weights.sum(axis=1, keepdims=True))[labels].reshape(-1, 1)
    np.testing.assert_allclose(engine.take_sums(), np.repeat(3 * expected, 2, axis=1), atol=1e-9)
    states = engine.get_states()
    _, first = np.unique(labels, return_index=True)
    assert np.array_equal(states, states[:, first[labels]])
    # The components themselves are drawn from these probabilities: a thousand singletons and more.
    chosen = np.take_along_axis(expected.reshape(n, num_states)[first], states[0, first][:, None], axis=1)
    mean, variance = (
        (expected.reshape(n, -1)[first] ** k).sum(axis=1) for k in (2, 3)
    )  # of the probability of what is drawn
    z = (chosen.sum() - mean.sum()) / math.sqrt((variance - mean**2).sum())
    assert abs(z) < norm.isf(FALSE_ALARM / 2)


# -- what is accepted -----------------------------------------------------------------------------------------------


def with_table(table: Sequence[Sequence[float]]) -> MarkovRandomField:
    """Three variables in a path, a harmless edge before the one with the table."""
    t = np.array(table, dtype=float)
    L = len(t)
    return MarkovRandomField.from_tables(
        [np.zeros(L), np.zeros(L), np.zeros(t.shape[1])], [(0, 1), (1, 2)], [np.eye(L), t]
    )


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (with_table([[1, 0, 0], [0, 1, 0], [0, 0, 2]]), r"edge \(1, 2\) is no Potts table.*off by 0\.[0-9]+"),
        (with_table([[1, 0, 0], [0, 1, 0], [0, 1e-9, 1]]), r"edge \(1, 2\) is no Potts table"),
        (with_table(-0.7 * np.eye(3)), r"edge \(1, 2\) has the negative coupling -0\.7; use Gibbs"),
        (with_table([[1, 0, 0], [0, 1, 0]]), r"edge \(1, 2\) couples variables of 2 and 3 states.*drop_forbidden"),
        (with_table([[1, -INF], [0, 1]]), r"edge \(1, 2\) forbids a pair of states"),
        (
            MarkovRandomField.ising([(0, 1), (1, 2), (0, 2), (3, 4)], [1.0, 1.0, -0.25, -1.0]),
            r"edge \(0, 2\) has the negative coupling -0\.5, which no exchange of states removes.*odd number",
        ),
    ],
)
def test_refusals(model: MarkovRandomField, reason: str) -> None:
    assert not is_swendsen_wang(model)
    with pytest.raises(UnfitMethodError, match=reason):
        check_swendsen_wang(model)
    with pytest.raises(UnfitMethodError, match=reason):
        ClusterChains(model, num_chains=1, seed=0)


def test_accepted_models() -> None:
    rng = np.random.default_rng(0)
    r, s = rng.normal(size=(2, 5)) * 100
    assert is_swendsen_wang(with_table(0.3 * np.eye(5) + r[:, None] + s))
    assert is_swendsen_wang(with_table(r[:3, None] + s))  # no coupling: the state counts may differ
    assert is_swendsen_wang(with_table(np.log(np.exp(0.3 * np.eye(5) + r[:, None] / 50 + s / 50))))
    assert is_swendsen_wang(with_table(0.1 * np.eye(3) + 0.2 * np.eye(3) - 0.3 * np.eye(3)))  # zero to rounding
    assert is_swendsen_wang(ising_grid(5, 5, coupling_max=2.0, attractive=True, seed=0))
    grid = ising_grid(5, 5, coupling_max=2.0, attractive=True, seed=0)
    assert is_swendsen_wang(grid.replace(log_pairwise=-grid.log_pairwise))
    assert not is_swendsen_wang(ising_grid(5, 5, coupling_max=2.0, seed=0))


@given(seed=st.integers(0, 2**32 - 1))
def test_balance_of_signs(seed: int) -> None:
    model = ising_random(7, edge_probability=0.35, coupling_max=1.0, seed=seed)
    J = model.log_pairwise[::4]
    spins = np.array(list(itertools.product([-1, 1], repeat=7)))
    satisfied = spins[:, model.edges[:, 0]] * spins[:, model.edges[:, 1]] * J >= 0
    assert is_swendsen_wang(model) == satisfied.all(axis=1).any()


def test_forbidden_states_and_evidence() -> None:
    model = POTTS.model()
    assert not is_swendsen_wang(reduce_model(model).model)  # 3 and 2 states
    given_one = reduce_model(model, {1: 2}, drop_forbidden=False)
    num_chains = 50_000
    engine = ClusterChains(given_one.model, num_chains=num_chains, seed=1)
    engine.set_states(fastmix.draw_exact(given_one.model, num_draws=num_chains, seed=2))
    engine.sweep(3, collect=True)
    assert joint_misfit(given_one.model, engine.get_states()) < 1
    sums = engine.take_sums()
    assert (sums[given_one.model.log_unary == -INF] == 0).all()


# -- the interface --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_sums_add_up(name: str) -> None:
    model = NAMED[name].model()
    engine = ClusterChains(model, num_chains=7, seed=1)
    assert engine.updates_per_sweep == model.num_variables
    assert engine.take_sums().tolist() == np.zeros((len(model.log_unary), 7)).tolist()
    engine.sweep(4, collect=True)
    engine.sweep(9, collect=False)
    engine.sweep(0, collect=True)
    engine.sweep(6, collect=True)
    sums = engine.take_sums()
    assert sums.shape == (len(model.log_unary), 7)
    assert sums.dtype == np.float64
    assert (sums >= 0).all()
    np.testing.assert_allclose(np.add.reduceat(sums, model.unary_offsets[:-1], axis=0), 10.0, rtol=1e-13)
    assert not engine.take_sums().any()


@pytest.mark.parametrize("name", NAMED)
def test_resuming_is_bit_identical(name: str) -> None:
    model = NAMED[name].model()
    whole = ClusterChains(model, num_chains=5, seed=21)
    whole.sweep(10, collect=True)
    first = whole.take_sums()
    states, random_state = whole.get_states(), whole.get_random_state()
    whole.sweep(15, collect=True)

    parts = ClusterChains(model, num_chains=5, seed=21)
    parts.sweep(4, collect=True)
    parts.sweep(6, collect=True)
    assert np.array_equal(parts.take_sums(), first)
    other = ClusterChains(model, num_chains=5, seed=99)
    other.set_states(states)
    other.set_random_state(random_state)
    other.sweep(15, collect=True)
    assert np.array_equal(other.get_states(), whole.get_states())
    assert np.array_equal(other.get_random_state(), whole.get_random_state())
    assert np.array_equal(other.take_sums(), whole.take_sums())
    # What came out was a copy.
    assert not np.array_equal(random_state, whole.get_random_state())
    assert random_state.dtype == np.uint64
    assert random_state.shape == (5, 4)


@pytest.mark.parametrize("name", ["ising", "potts"])
def test_threads_and_chains_change_no_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swendsen_wang, "_SMALL_WORK", 0)
    model = NAMED[name].model()
    results = []
    for num_chains, num_threads in ((23, 1), (23, 2), (23, 5), (23, None), (30, 3), (23, 100)):
        engine = ClusterChains(model, num_chains=num_chains, seed=8, num_threads=num_threads)
        assert 1 <= engine.num_threads <= num_chains
        engine.sweep(20, collect=True)
        results.append((engine.get_states()[:23], engine.get_random_state()[:23], engine.take_sums()[:, :23]))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.array_equal(a, b)


def test_seeds() -> None:
    model = ISING.model()
    drawn = ClusterChains(model, num_chains=3, seed=None)
    again = ClusterChains(model, num_chains=3, seed=drawn.seed)
    other = ClusterChains(model, num_chains=3, seed=drawn.seed + 1)
    assert np.array_equal(drawn.get_random_state(), again.get_random_state())
    assert not np.array_equal(drawn.get_random_state(), other.get_random_state())


def test_bad_arguments() -> None:
    model = POTTS.model()
    for arguments, message in (
        ({"num_chains": 0, "seed": 1}, "num_chains must be a whole number of at least 1, got 0"),
        ({"num_chains": 1.0, "seed": 1}, "num_chains must be a whole number"),
        ({"num_chains": 1, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"num_chains": 1, "seed": 1, "num_threads": 0}, "num_threads must be"),
    ):
        with pytest.raises(ValueError, match=message):
            ClusterChains(model, **arguments)  # type: ignore[arg-type]
    engine = ClusterChains(model, num_chains=2, seed=1)
    with pytest.raises(ValueError, match="num_sweeps must be"):
        engine.sweep(-1, collect=False)
    states = engine.get_states()
    for bad, message in (
        (np.zeros((3, 4), dtype=int), r"states must have shape \(2, 4\), got \(3, 4\)"),
        (np.zeros((2, 3), dtype=int), "states must have shape"),
        (np.full((2, 4), 3), "from 0 to 2, got 3"),
        (np.array([[0, 0, 0, 0], [0, 0, 0, 2]]), "variable 3 of chain 1 has forbidden state 2"),
    ):
        with pytest.raises(ModelError, match=message):
            engine.set_states(bad)
    assert np.array_equal(engine.get_states(), states)
    with pytest.raises(ValueError, match="could not broadcast"):
        engine.set_random_state(np.ones((2, 3), dtype=np.uint64))


def plain_results() -> list:
    answers = []
    for fields in ([[0.0, 0.5], [0.3, 0.0], [0.0, 0.1]], [[0.0, 0.5, 0.2], [0.3, 0.0, 0.1], [0.0, -np.inf, 0.4]]):
        model = MarkovRandomField.potts([(0, 1), (1, 2)], [0.9, 1.4], len(fields[0]), fields)
        engine = ClusterChains(model, num_chains=3, seed=5)
        engine.sweep(25, collect=True)
        answers.append([engine.get_states().tolist(), engine.get_random_state().tolist(), engine.take_sums().tolist()])
    return answers


def test_sides_of_large_graphs():
    edges = fastmix.graphs.grid_edges(150, 150)
    sides = np.random.default_rng(0).integers(0, 2, 150 * 150)
    couplings = np.where(sides[edges[:, 0]] == sides[edges[:, 1]], 0.5, -0.5)
    flips = swendsen_wang._flips(MarkovRandomField.ising(edges, couplings), couplings)
    assert np.array_equal(flips, sides != sides[0])
    couplings[7] *= -1.0
    assert not is_swendsen_wang(MarkovRandomField.ising(edges, couplings))


@pytest.mark.parametrize("counts", [[2, 2], [3, 3, 3], [5], [1, 1], [2, 3], [4, 1]])
def test_sums_by_state(counts):
    from fastmix.chains.base import sums_by_state

    structure = MarkovRandomField.from_tables([np.zeros(k) for k in counts], [], []).structure
    rng, sweeps = np.random.default_rng(0), 7
    drawn = [rng.integers(0, k, size=(sweeps, 3)) for k in counts]
    expected = np.concatenate([[(x == s).sum(axis=0) for s in range(k)] for x, k in zip(drawn, counts, strict=True)])
    cumulative = [(x <= s).sum(axis=0) for x, k in zip(drawn, counts, strict=True) for s in range(k - 1)]
    totals = np.array(cumulative, dtype=np.float64).reshape(-1, 3) * 2.0**24
    assert np.array_equal(sums_by_state(structure, totals, sweeps), expected)
