from __future__ import annotations

import numpy as np
import pytest
from test_ladder import (
    FALSE_ALARM,
    MODELS,
    POSITIONS,
    RUNGS,
    exact_start,
    make,
    mixed,
    p_values,
    random_states,
    small,
    small_attractive,
)

from fastmix import MarkovRandomField, UnfitMethodError, infer
from fastmix.graphs import complete_edges, connected_components, grid_edges, random_regular_edges
from fastmix.instances import ising_grid
from fastmix.tempering import ladder as ladder_module
from fastmix.tempering import temper
from fastmix.tempering.ladder import Ladder
from fastmix.tempering.path import make_path
from fastmix.tempering.trees import Forest, TreeMoves, check_tree_moves, induced_forests
from naive_ladder import NaiveLadder

# -- forests ----------------------------------------------------------------------------------------------------------


def has_cycle(num_variables: int, edges: np.ndarray, inside: np.ndarray) -> bool:
    """Whether the edges among some variables are more than a forest of as many components has."""
    among = edges[inside[edges].all(axis=1)] if len(edges) else edges
    count, _ = connected_components(num_variables, among)
    return len(among) > num_variables - count


GRAPHS = {
    "grid": (30, grid_edges(5, 6)),
    "complete": (9, complete_edges(9)),
    "regular": (40, random_regular_edges(40, 3, seed=1)),
    "tree": (6, np.array([(0, 1), (0, 2), (2, 3), (4, 5)])),
    "no edges": (4, np.zeros((0, 2), dtype=np.int64)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_forests_are_induced_maximal_and_cover_everything(name):
    n, edges = GRAPHS[name]
    model = MarkovRandomField.ising(edges, 0.1, np.zeros(n))
    for seed in range(5):
        forests = induced_forests(model, seed=seed)
        assert np.any([forest.inside for forest in forests], axis=0).all()
        for forest in forests:
            assert not has_cycle(n, model.edges, forest.inside)
            for i in np.flatnonzero(~forest.inside).tolist():
                larger = forest.inside.copy()
                larger[i] = True
                assert has_cycle(n, model.edges, larger)
            check_order(model, forest)
        if name in ("tree", "no edges"):
            assert len(forests) == 1
    if name == "grid":  # drawn at random
        other = induced_forests(model, seed=5)
        assert not np.array_equal([f.inside for f in forests], [f.inside for f in other][: len(forests)])


def check_order(model: MarkovRandomField, forest: Forest) -> None:
    """Parents first, children together, and every edge within the forest between a parent and its child."""
    graph = model.adjacency
    order = forest.order.tolist()
    assert sorted(order) == np.flatnonzero(forest.inside).tolist()
    owner = np.repeat(np.arange(model.num_variables), graph.degree)
    joined = set()
    for place, (i, up) in enumerate(zip(order, forest.up.tolist(), strict=True)):
        if up >= 0:
            parent = int(graph.neighbors[up])
            assert owner[up] == i
            at = order.index(parent)
            assert at < place
            assert forest.first[at] <= place < forest.first[at] + forest.count[at]
            joined.add((min(i, parent), max(i, parent)))
    assert forest.count.sum() == len(joined)
    among = {(i, j) for i, j in model.edges.tolist() if forest.inside[i] and forest.inside[j]}
    assert joined == among


def test_no_variables_have_no_forest():
    assert induced_forests(MarkovRandomField.from_factors([], [((), 1.0)]), seed=0) == []


# -- draw by draw -----------------------------------------------------------------------------------------------------


def tree() -> MarkovRandomField:
    """The whole graph is one forest, of two trees, with three states at a root."""
    rng = np.random.default_rng(11)
    counts, pairs = [3, 2, 2, 3, 2], [(0, 1), (0, 2), (2, 3)]
    tables = [1.5 * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


@pytest.mark.parametrize(
    ("name", "norm_bound"), [(name, None) for name in (*MODELS, "tree")] + [("mixed", 0.0), ("binary", 0.4)]
)
def test_draws_match_the_naive_ladder(name, norm_bound, monkeypatch):
    monkeypatch.setattr(ladder_module, "TREES_EVERY", 2)
    path = make_path((MODELS | {"tree": tree})[name](), norm_bound=norm_bound)
    states = random_states(path.model, len(POSITIONS), 3)
    fast = make(path, POSITIONS, states, trees=True)
    slow = NaiveLadder(path, POSITIONS, states, seed=1)
    forests = fast.trees.forests
    for number in range(12):
        fast.advance(1, collect=True)
        slow.round(number)
        if number % 2 == 1:
            slow.draw_forest(forests[(number + 1) // 2 % len(forests)].order.tolist())
        assert np.array_equal(fast.get_states(), slow.states()), f"round {number}"


@pytest.mark.parametrize("trees", [False, True])
def test_the_same_bits_for_any_number_of_threads(trees):
    path = make_path(small_attractive())
    states = random_states(path.model, 4, 6)
    results = []
    for num_threads in (1, 2, 3, 16):
        run = make(path, RUNGS, states, pairs=True, clusters=True, trees=trees, num_threads=num_threads)
        run.advance(110, collect=True)
        results.append((run.get_states(), run.take_sums(), run.counts().sums, run.counts().trips))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.array_equal(a, b)


# -- the distribution -------------------------------------------------------------------------------------------------


def test_the_whole_of_a_tree_is_drawn_independently_of_where_it_was():
    """One draw from a fixed state gives the exact distribution at every rung, and a Gibbs sweep does not."""
    path = make_path(tree())
    states = np.zeros((len(RUNGS), 40_000, path.model.num_variables), dtype=np.uint8)
    run = make(path, RUNGS, states, trees=True)
    block = run._blocks[0]
    run.trees(0, block.x, run._tree_arguments, block.streams)
    assert min(p_values(run)) > FALSE_ALARM
    swept = make(path, RUNGS, states)
    block = swept._blocks[0]
    swept.sweeps.sweep(block.x, block.rung, swept._arguments, block.streams, block.sums[:, :0])
    assert min(p_values(swept)) < FALSE_ALARM


def square() -> MarkovRandomField:
    """A cycle with a chord, one variable of three states, asymmetric tables."""
    rng = np.random.default_rng(12)
    counts, pairs = [2, 3, 2, 2], [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    tables = [1.3 * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


def draws_only(run: Ladder, num_rounds: int) -> None:
    """Draws of forests and nothing else, so that nothing can mend what they do."""
    for number in range(num_rounds):
        for block in run._blocks:
            run.trees(number, block.x, run._tree_arguments, block.streams)


def test_exact_draws_stay_exact_at_every_rung():
    path = make_path(square())
    states = exact_start(path, RUNGS, 40_000, seed=1)
    run = make(path, RUNGS, states, trees=True)
    draws_only(run, 6)
    assert min(p_values(run)) > FALSE_ALARM
    assert not np.array_equal(run.get_states(), states)


@pytest.mark.parametrize("moves", ["trees", "all"])
def test_exact_draws_stay_exact_with_sweeps_and_exchanges(moves, monkeypatch):
    for name in ("PAIRS_EVERY", "CLUSTERS_EVERY", "TREES_EVERY"):
        monkeypatch.setattr(ladder_module, name, 1)
    path = make_path(small_attractive() if moves == "all" else small())
    states = exact_start(path, RUNGS, 40_000, seed=1)
    run = make(path, RUNGS, states, trees=True, pairs=moves == "all", clusters=moves == "all")
    run.advance(4, collect=False)
    assert min(p_values(run)) > FALSE_ALARM


def wrong_rung(run: Ladder) -> None:
    source = np.maximum(np.arange(run.num_rungs) - 1, 0)
    bases, tables = run._tree_arguments
    run._tree_arguments = [base[:, source] for base in bases], tables[:, source]


def deaf_to_the_outside(run: Ladder) -> None:
    """Count the variables outside as if they were in state 0."""
    draw = run.trees.__class__.__call__

    def call(self, number, x, arguments, streams):
        forest = self.forests[number % len(self.forests)]
        kept = x[~forest.inside].copy()
        x[~forest.inside] = 0
        draw(self, number, x, arguments, streams)
        x[~forest.inside] = kept

    run.trees.__class__ = type("Deaf", (TreeMoves,), {"__call__": call})


def children_forgotten(run: Ladder) -> None:
    for forest in run.trees.forests:
        forest.count[:] = 0


def weights_upside_down(run: Ladder) -> None:
    bases, tables = run._tree_arguments
    run._tree_arguments = bases, 1.0 / tables


@pytest.mark.parametrize("sabotage", [wrong_rung, deaf_to_the_outside, children_forgotten, weights_upside_down])
def test_sabotage_is_noticed(sabotage):
    path = make_path(square())
    run = make(path, RUNGS, exact_start(path, RUNGS, 40_000, seed=1), trees=True)
    sabotage(run)
    draws_only(run, 6)
    assert min(p_values(run)) < FALSE_ALARM


def test_answers_are_right():
    model = ising_grid(3, 4, coupling_max=2.0, seed=2)
    exact = infer(model, method="exact")
    answer = temper(model, num_sweeps=2000, seed=3, moves=["tree-block"], num_threads=1)
    assert answer.provenance["options"]["moves"] == ["tree-block"]
    assert (np.abs(answer.node_marginals - exact.node_marginals) <= 5 * answer.std_error).all()
    assert abs(answer.log_z - exact.log_z) < 5 * answer.log_z_std_error


# -- refusals and limits ----------------------------------------------------------------------------------------------


def test_refusals_come_with_a_reason():
    with pytest.raises(UnfitMethodError, match="forbidden pairs"):
        check_tree_moves(make_path(mixed(forbidden=True)))
    with pytest.raises(UnfitMethodError, match="variable 1 allow for 300"):
        temper(MarkovRandomField.ising([(0, 1), (1, 2)], [50.0, 100.0]), moves=["tree-block"])
    check_tree_moves(make_path(MarkovRandomField.ising([(0, 1), (1, 2)], [49.0, 50.0])))
    check_tree_moves(make_path(MarkovRandomField.from_factors([], [((), 1.0)])))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_ratios_stay_finite_up_to_the_limit(sign):
    # Pulled both ways by all that is allowed, with answers that are not certain; the forest is the whole graph.
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [sign * 49.0, -sign * 49.0], [50.0, 1.5, 50.0])
    path = make_path(model)
    check_tree_moves(path)
    run = make(path, np.array([0.0, 1.0]), random_states(model, 2, 20_000), trees=True)
    draws_only(run, 1)
    assert len(np.unique(run.get_top_states(), axis=0)) > 2
    assert min(p_values(run)) > FALSE_ALARM


# -- without the compiler ---------------------------------------------------------------------------------------------


def plain_results() -> list:
    results = []
    for model in (mixed(), square()):
        path = make_path(model)
        run = make(path, POSITIONS, random_states(model, 5, 2), trees=True)
        run.advance(17, collect=False)
        results.append(run.get_states().tolist())
    return results
