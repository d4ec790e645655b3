"""Laws in place of tables: against their definitions, and networks with them against the same ones with tables."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import fastmix
from fastmix import BayesianNetwork, Logical, NoisyMax, NoisyOr, infer, most_probable
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.model.laws import Law
from oracle.networks import given_row, joint_of

YES = ["no", "yes"]


def fan(law: Law, num_parents: int, on: float = 0.1) -> BayesianNetwork:
    """Independent causes of one effect."""
    parents = [[] for _ in range(num_parents)] + [list(range(num_parents))]
    tables = [[1.0 - on, on]] * num_parents + [law]
    return BayesianNetwork([*(f"c{i}" for i in range(num_parents)), "y"], [YES] * (num_parents + 1), parents, tables)


def by_definition(law: Law, x: tuple[int, ...]) -> float:
    """The probability that the variable is on, from the words of the law."""
    if isinstance(law, NoisyOr):
        off = 1.0 - law.leak
        for active, p in zip(x, law.probabilities_of_causes, strict=True):
            off *= 1.0 - p * active
        return 1.0 - off
    assert isinstance(law, Logical)
    holds = {"and": all(x), "or": any(x), "exactly_one": sum(x) == 1, "at_most": sum(x) <= (law.count or 0)}
    return float(holds[law.kind])


def random_law(rng: np.random.Generator, counts: tuple[int, ...], num_states: int) -> Law:
    """A law for parents and a variable of these state counts."""
    k = len(counts)
    if (*counts, num_states) == (2,) * (k + 1) and rng.random() < 0.8:
        kinds = ["and", "or", "exactly_one", "at_most"]
        kind = str(rng.choice(kinds))
        logical = Logical(kind, int(rng.integers(0, 3)) if kind == "at_most" else None)
        return logical if rng.random() < 0.6 else NoisyOr(rng.random(k), leak=float(rng.random() * 0.3))
    contributions = [rng.dirichlet(np.ones(num_states), size=count) for count in counts]
    return NoisyMax(contributions, leak=rng.dirichlet(np.ones(num_states)) if rng.random() < 0.5 else None)


def random_network(rng: np.random.Generator, n: int) -> BayesianNetwork:
    """Tables and laws; parents have smaller numbers."""
    counts = rng.integers(2, 4, n) if rng.random() < 0.5 else np.full(n, 2)
    parents = []
    tables = []
    for i in range(n):
        of_child = rng.permutation(i)[: int(rng.integers(0, min(i, 5) + 1))].tolist()
        shape = tuple(counts[of_child].tolist())
        use_law = len(of_child) >= 2 and rng.random() < 0.7
        law = random_law(rng, shape, int(counts[i])) if use_law else None
        parents.append(of_child)
        tables.append(rng.dirichlet(np.ones(counts[i]), size=shape) if law is None else law)
    return BayesianNetwork([f"v{i}" for i in range(n)], [[f"s{k}" for k in range(c)] for c in counts], parents, tables)


@pytest.mark.parametrize(
    "law",
    [NoisyOr([0.9, 0.2, 0.5, 1.0], leak=0.05), NoisyOr([0.0, 0.2, 0.5, 0.7]), Logical("and"), Logical("or")]
    + [Logical("exactly_one")] + [Logical("at_most", k) for k in range(5)],
)  # fmt: skip
def test_tables_are_as_the_laws_are_defined(law: Law) -> None:
    table = law.table((2,) * 4, 2)
    for x in itertools.product(range(2), repeat=4):
        assert table[x] == pytest.approx([1.0 - by_definition(law, x), by_definition(law, x)])
    rows = np.array(list(itertools.product(range(2), repeat=4)))
    np.testing.assert_allclose(law.probabilities(rows, (2,) * 4, 2), table.reshape(-1, 2))


def test_noisy_max_by_drawing_each_contribution() -> None:
    rng = np.random.default_rng(0)
    contributions = [rng.dirichlet(np.ones(3), size=count) for count in (2, 3)]
    leak = rng.dirichlet(np.ones(3))
    table = NoisyMax(contributions, leak=leak).table((2, 3), 3)
    expected = np.zeros((2, 3, 3))
    for x, y in itertools.product(range(2), range(3)):
        for a, b, c in itertools.product(range(3), repeat=3):
            expected[x, y, max(a, b, c)] += contributions[0][x, a] * contributions[1][y, b] * leak[c]
    np.testing.assert_allclose(table, expected)


def test_random_networks_against_their_tables() -> None:
    """Marginals, the probability of evidence, most probable states, rows: all as without the chains."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        network = random_network(rng, int(rng.integers(3, 7)))
        dense = network.dense()
        joint = joint_of(dense)
        n = network.num_variables
        row = np.full(n, -1)
        v = int(rng.integers(n))
        row[v] = int(network.sample(1, seed=int(rng.integers(1000)))[0, v])
        kept = given_row(joint, row.tolist())
        model = network.to_model()
        result = infer(model, evidence={v: int(row[v])}, method="exact")
        assert result.log_z == pytest.approx(np.log(kept.sum()), abs=1e-9)
        assert len(result.marginals) == n
        for i in range(n):
            others = tuple(u for u in range(n) if u != i)
            np.testing.assert_allclose(result.marginal(i), kept.sum(axis=others) / kept.sum(), atol=1e-9)
        best = most_probable(model, evidence={v: int(row[v])})
        assert joint[tuple(best.states[:n])] == pytest.approx(kept.max())
        assert len(best.named_states) == n
        answers = fastmix.prepare(model).ask([row.tolist()])
        np.testing.assert_allclose(answers.row_log_z, [np.log(kept.sum())], atol=1e-9)


def test_belief_propagation_is_exact_where_causes_are_independent() -> None:
    rng = np.random.default_rng(2)
    for law in (NoisyOr(rng.uniform(0.0, 0.4, 12), leak=0.01), Logical("exactly_one"), Logical("at_most", 2)):
        model = fan(law, 12).to_model()
        exact = infer(model, evidence={"y": "yes"}, method="exact")
        messages = fastmix.loopy_bp(model, evidence={"y": "yes"})
        for mine, true in zip(messages.marginals, exact.marginals, strict=True):
            np.testing.assert_allclose(mine, true, atol=1e-6)
        assert messages.log_z == pytest.approx(exact.log_z, abs=1e-6)


def test_eighty_causes_by_the_closed_formula() -> None:
    p = np.random.default_rng(3).uniform(0.0, 0.3, 80)
    model = fan(NoisyOr(p, leak=0.01), 80).to_model()
    result = infer(model, evidence={"y": "yes"})
    off = 0.99 * np.prod(1.0 - 0.1 * p)
    assert result.method == "exact"
    assert result.log_z == pytest.approx(np.log1p(-off))
    for k in range(80):
        expected = 0.1 * (1.0 - off * (1.0 - p[k]) / (1.0 - 0.1 * p[k])) / (1.0 - off)
        assert result.marginal(k)[1] == pytest.approx(expected)


def test_counts_of_eighty_by_the_binomial_distribution() -> None:
    from scipy.stats import binom

    for law, expected in (
        (Logical("at_most", 4), binom.cdf(4, 80, 0.1)),
        (Logical("exactly_one"), binom.pmf(1, 80, 0.1)),
        (Logical("or"), 1.0 - 0.9**80),
        (Logical("and"), 0.1**80),
    ):
        model = fan(law, 80).to_model()
        assert infer(model).marginal("y")[1] == pytest.approx(expected, rel=1e-9)
        assert infer(model, evidence={"y": "yes"}).marginal(3)[1] <= 1.0


def test_hidden_variables_stay_out_of_answers() -> None:
    network = fan(NoisyOr([0.5] * 5, leak=0.1), 5)
    model = network.to_model()
    result = infer(model)
    assert model.num_hidden == 4
    assert sorted(set(result.columns()["variable"])) == sorted(network.variable_names)
    assert result.to_dict()["variable_names"] == list(network.variable_names)
    assert len(result.to_dict()["marginals"]) == 6
    draws = fastmix.draw_exact(model, num_draws=3, seed=0)
    assert list(draws.columns()) == list(network.variable_names)
    best = most_probable(model)
    assert len(best.columns()["state"]) == len(best.to_dict()["states"]) == 6
    frame = fastmix.prepare(model).ask([{"y": "yes"}], most_probable=True).columns()
    assert not [name for name in frame if name.startswith("hidden")]


def test_samplers_are_refused_by_name() -> None:
    model = fan(Logical("or"), 5).to_model()
    for method in ("tempered", "perfect", "annealed", "projected", "swendsen-wang"):
        with pytest.raises(UnfitMethodError, match="laws"):
            infer(model, method=method)
    noisy = fan(NoisyOr([0.5] * 5, leak=0.1), 5).dense().to_model()
    assert infer(noisy, method="gibbs", num_sweeps=100, seed=0).method == "gibbs"


def test_draws_interventions_and_pickles() -> None:
    network = fan(NoisyOr([0.8] * 40, leak=0.02), 40)
    assert network == pickle.loads(pickle.dumps(network))
    assert network != fan(NoisyOr([0.7] * 40, leak=0.02), 40)
    share = network.sample(20_000, seed=1)[:, -1].mean()
    # Five standard errors.
    assert share == pytest.approx(1.0 - 0.98 * (1.0 - 0.08) ** 40, abs=5 * 0.5 / np.sqrt(20_000))
    assert network.do({"y": "no"}).laws == ()
    done = infer(network.do({"c3": "yes"}).to_model()).marginal("y")[1]
    assert done == pytest.approx(1.0 - 0.98 * 0.2 * (1.0 - 0.08) ** 39)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fan(NoisyOr([0.5]), 2), "2 parents, got 1"),
        (lambda: NoisyOr([1.5]), "^probabilities_of_causes"),
        (lambda: NoisyOr([0.5], leak=-0.1), "^leak"),
        (lambda: Logical("xor"), "^kind"),
        (lambda: Logical("at_most"), "^count"),
        (lambda: Logical("or", 3), "^count"),
        (lambda: NoisyMax([[0.5, 0.5]]), r"^contributions\[0\]"),
        (lambda: NoisyMax([[[0.5, 0.6]]]), "sum to 1"),
        (lambda: fan(NoisyMax([[[0.5, 0.5]]]), 1), r"contributions\[0\]"),
        (lambda: fan(Logical("or"), 40).dense(), "at most 31 parents"),
        (lambda: fastmix.convert(fan(Logical("or"), 40), to="networkx"), "at most 31 parents"),
    ],
)
def test_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert isinstance(caught.value, ModelError) or message.startswith("^")
