from __future__ import annotations

import inspect
import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from fastmix import graphs, instances
from fastmix.model import MarkovRandomField

NAN, INF = math.nan, math.inf

BUILDERS: dict[str, Callable[..., MarkovRandomField]] = {
    "ising_grid": lambda **k: instances.ising_grid(4, 5, **k),
    "ising_grid torus": lambda **k: instances.ising_grid(4, 5, torus=True, **k),
    "potts_grid": lambda **k: instances.potts_grid(3, 4, **k),
    "potts_grid torus": lambda **k: instances.potts_grid(4, 3, num_states=4, torus=True, **k),
    "ising_random": lambda **k: instances.ising_random(12, edge_probability=0.5, **k),
    "ising_bipartite": lambda **k: instances.ising_bipartite(3, 5, **k),
    "ising_regular": lambda **k: instances.ising_regular(12, 3, **k),
    "ising_tree": lambda **k: instances.ising_tree(15, **k),
}

every_builder = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS.keys())


def couplings_of(model: MarkovRandomField) -> np.ndarray:
    """The first entry of every table: J of an Ising and of a Potts model."""
    return model.log_pairwise[model.pairwise_offsets[:-1]]


@every_builder
class TestEveryBuilder:
    def test_same_seed_same_model(self, build: Callable[..., MarkovRandomField]) -> None:
        model = build(coupling_max=1.5, seed=3)
        assert build(coupling_max=1.5, seed=np.int64(3)) == model
        assert build(coupling_max=1.5, seed=4) != model

    def test_ranges(self, build: Callable[..., MarkovRandomField]) -> None:
        fields, mixed, attractive = [], [], []
        for seed in range(40):
            model = build(coupling_max=1.5, field_max=0.5, seed=seed)
            fields.append(model.log_unary)
            mixed.append(couplings_of(model))
            attractive.append(couplings_of(build(coupling_max=1.5, attractive=True, seed=seed)))
        for values, low, high in ((fields, -0.5, 0.5), (mixed, -1.5, 1.5), (attractive, 0.0, 1.5)):
            flat = np.concatenate(values)
            assert low <= flat.min() < low + 0.05 * (high - low)
            assert high - 0.05 * (high - low) < flat.max() <= high
            # 320 draws at least: a false alarm needs 6 standard errors, a probability of 2e-9.
            spread = (high - low) / math.sqrt(12 * min(len(flat), 40 * 8))
            assert abs(flat.mean() - (low + high) / 2) < 6 * spread

    def test_coupling_max_changes_the_strength_alone(self, build: Callable[..., MarkovRandomField]) -> None:
        one, four = build(coupling_max=1.0, seed=7), build(coupling_max=4.0, seed=7)
        assert np.array_equal(one.edges, four.edges)
        assert np.array_equal(one.log_unary, four.log_unary)
        assert np.array_equal(4.0 * one.log_pairwise, four.log_pairwise)

    def test_no_coupling_and_no_field(self, build: Callable[..., MarkovRandomField]) -> None:
        model = build(coupling_max=0.0, field_max=0, seed=0)
        assert not model.parameters.any()
        assert build(coupling_max=0.0, field_max=0, attractive=True, seed=0) == model

    def test_huge_maxima(self, build: Callable[..., MarkovRandomField]) -> None:
        assert np.isfinite(build(coupling_max=1e99, field_max=1e99, seed=0).parameters).all()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("coupling_max", -0.5),
            ("coupling_max", NAN),
            ("coupling_max", INF),
            ("field_max", -1),
            ("field_max", NAN),
        ],
    )
    def test_bad_maximum(self, build: Callable[..., MarkovRandomField], name: str, value: float) -> None:
        arguments = {"coupling_max": 1.0, "seed": 0} | {name: value}
        with pytest.raises(ValueError, match=f"^{name} .*got {value}$"):
            build(**arguments)

    @pytest.mark.parametrize("seed", [-1, 0.5, None, "1", True])
    def test_bad_seed(self, build: Callable[..., MarkovRandomField], seed: object) -> None:
        with pytest.raises(ValueError, match=f"^seed .*got {seed!r}$"):
            build(coupling_max=1.0, seed=seed)

    def test_maximum_that_is_no_number(self, build: Callable[..., MarkovRandomField]) -> None:
        with pytest.raises(ValueError, match=r"^coupling_max .*got 'x'$"):
            build(coupling_max="x", seed=0)


class TestGraphs:
    @pytest.mark.parametrize(("rows", "cols", "torus"), [(1, 1, False), (1, 6, False), (4, 5, False), (4, 5, True)])
    def test_grids(self, rows: int, cols: int, torus: bool) -> None:
        ising = instances.ising_grid(rows, cols, coupling_max=1.0, torus=torus, seed=0)
        potts = instances.potts_grid(rows, cols, coupling_max=1.0, torus=torus, seed=0)
        edges = graphs.grid_edges(rows, cols, torus=torus)
        assert ising.edges.tolist() == potts.edges.tolist() == edges.tolist()
        assert ising.num_states.tolist() == [2] * (rows * cols)
        assert potts.num_states.tolist() == [3] * (rows * cols)

    def test_tables_are_ising_and_potts(self) -> None:
        ising = instances.ising_grid(3, 3, coupling_max=1.0, seed=0)
        rebuilt = MarkovRandomField.ising(ising.edges, couplings_of(ising), ising.log_unary[1::2])
        assert rebuilt == ising
        potts = instances.potts_grid(3, 3, num_states=4, coupling_max=1.0, seed=0)
        fields = potts.log_unary.reshape(9, 4)
        assert MarkovRandomField.potts(potts.edges, couplings_of(potts), 4, fields) == potts
        assert len(np.unique(fields)) == 36

    def test_bipartite_regular_and_tree(self) -> None:
        bipartite = instances.ising_bipartite(3, 5, coupling_max=1.0, seed=0)
        assert bipartite.edges.tolist() == [[i, j] for i in range(3) for j in range(3, 8)]
        regular = instances.ising_regular(12, 3, coupling_max=1.0, seed=0)
        assert np.bincount(regular.edges.reshape(-1)).tolist() == [3] * 12
        tree = instances.ising_tree(15, coupling_max=1.0, seed=0)
        assert tree.num_edges == 14
        assert graphs.connected_components(15, tree.edges)[0] == 1

    def test_small_sizes(self) -> None:
        assert instances.ising_tree(1, coupling_max=1.0, seed=0).num_variables == 1
        assert instances.ising_random(1, edge_probability=1.0, coupling_max=1.0, seed=0).num_edges == 0
        assert instances.ising_regular(4, 0, coupling_max=1.0, seed=0).num_variables == 4
        assert instances.potts_grid(2, 2, num_states=1, coupling_max=1.0, seed=0).num_states.tolist() == [1] * 4

    def test_edge_probability(self) -> None:
        def count(probability: float) -> int:
            models = (
                instances.ising_random(10, edge_probability=probability, coupling_max=1.0, seed=seed)
                for seed in range(200)
            )
            return sum(model.num_edges for model in models)

        assert count(0.0) == 0
        assert count(1.0) == 200 * 45
        for probability in (0.3, 0.5, 0.7):
            # Binomial with 9,000 trials: 6 standard errors are a probability of 2e-9.
            error = math.sqrt(9000 * probability * (1 - probability))
            assert abs(count(probability) - 9000 * probability) < 6 * error

    def test_graph_and_fields_do_not_share_random_numbers(self) -> None:
        """With one stream for both, a variable's field would tell which of its edges are there."""
        field, edge = [], []
        for seed in range(400):
            model = instances.ising_random(3, edge_probability=0.5, coupling_max=1.0, seed=seed)
            present = {tuple(pair) for pair in model.edges.tolist()}
            field.append(model.log_unary[1::2])
            edge.append([pair in present for pair in ((0, 1), (0, 2), (1, 2))])
        correlation = np.corrcoef(np.array(field).T, np.array(edge, dtype=float).T)[:3, 3:]
        assert np.abs(correlation).max() < 6 / math.sqrt(400)

    def test_pinned_model(self) -> None:
        """A new value here means that the seeds of published results no longer reproduce."""
        model = instances.ising_grid(4, 4, coupling_max=1.5, seed=0)
        assert model.content_hash == PINNED


PINNED = "981b41922ffac9e1a6fdebfef0584787e7c5953567327ff7e9fb669e5549f1a6"


class TestRandomTables:
    def test_shapes_and_spread(self) -> None:
        edges = graphs.complete_edges(30)
        model = instances.random_tables(edges, [2, 3, 4] * 10, scale=2.0, seed=0)
        assert model.num_states.tolist() == [2, 3, 4] * 10
        assert model.edges.tolist() == edges.tolist()
        values = model.parameters
        # 6 standard errors of the mean and of the deviation of that many normal numbers.
        assert abs(values.mean()) < 6 * 2.0 / math.sqrt(len(values))
        assert abs(values.std() - 2.0) < 6 * 2.0 / math.sqrt(2 * len(values))
        assert len(np.unique(values)) == len(values)

    def test_same_seed_same_model(self) -> None:
        one = instances.random_tables([(0, 1), (1, 2)], 3, scale=1.0, seed=5)
        assert instances.random_tables([(2, 1), (1, 0), (0, 1)], [3, 3, 3], scale=1.0, seed=5) == one
        assert instances.random_tables([(0, 1), (1, 2)], 3, scale=1.0, seed=6) != one
        assert np.array_equal(
            instances.random_tables([(0, 1), (1, 2)], 3, scale=2.0, seed=5).parameters, 2 * one.parameters
        )

    def test_no_edges(self) -> None:
        assert instances.random_tables([], 3, scale=1.0, seed=0).num_variables == 0
        assert instances.random_tables([], [3, 1], scale=0.0, seed=0).log_unary.tolist() == [0.0] * 4

    @pytest.mark.parametrize(
        ("edges", "num_states", "scale", "seed", "message"),
        [
            ([(0, 1)], 0, 1.0, 0, r"^num_states .*got 0"),
            ([(0, 1)], 2.5, 1.0, 0, r"^num_states .*got 2\.5"),
            ([(0, 1)], [2, 0], 1.0, 0, r"^num_states .*got 0 for variable 1"),
            ([(0, 1)], [2], 1.0, 0, r"^edges .*edge 0 .*\(0, 1\)"),
            ([(0, 0)], 2, 1.0, 0, r"^edges .*edge 0 .*\(0, 0\)"),
            ([0, 1], 2, 1.0, 0, r"^edges .*got shape \(2,\)"),
            ([(0, 1)], 2, -1.0, 0, r"^scale .*got -1\.0"),
            ([(0, 1)], 2, NAN, 0, r"^scale .*got nan"),
            ([(0, 1)], 2, 1.0, -1, r"^seed .*got -1"),
        ],
    )
    def test_refusals(self, edges: object, num_states: object, scale: float, seed: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            instances.random_tables(edges, num_states, scale=scale, seed=seed)


class TestRefusals:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda k: instances.ising_grid(0, 3, **k), r"^rows .*got 0"),
            (lambda k: instances.ising_grid(3, -1, **k), r"^cols .*got -1"),
            (lambda k: instances.ising_grid(2.5, 3, **k), r"^rows .*got 2\.5"),
            (lambda k: instances.potts_grid(3, 0, **k), r"^cols .*got 0"),
            (
                lambda k: instances.potts_grid(3, 3, num_states=0, **k),
                r"^num_states .*whole number",
            ),
            (
                lambda k: instances.ising_random(0, edge_probability=0.5, **k),
                r"^num_variables .*got 0",
            ),
            (
                lambda k: instances.ising_random(3, edge_probability=1.5, **k),
                r"^edge_probability .*got 1\.5",
            ),
            (
                lambda k: instances.ising_random(3, edge_probability=NAN, **k),
                r"^edge_probability .*got nan",
            ),
            (lambda k: instances.ising_bipartite(0, 3, **k), r"^left .*got 0"),
            (lambda k: instances.ising_bipartite(3, 0, **k), r"^right .*got 0"),
            (lambda k: instances.ising_tree(0, **k), r"^num_variables .*got 0"),
            (lambda k: instances.ising_regular(5, 3, **k), r"^num_variables \* degree .*got 5 \* 3"),
            (lambda k: instances.ising_regular(4, 4, **k), r"^degree .*got 4"),
            (lambda k: instances.ising_regular(4, -1, **k), r"^degree .*got -1"),
        ],
    )
    def test_sizes(self, call: Callable[[dict[str, object]], object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            call({"coupling_max": 1.0, "seed": 0})

    def test_options_are_keyword_only(self) -> None:
        for name in instances.__all__:
            parameters = inspect.signature(getattr(instances, name)).parameters
            assert parameters["seed"].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters["seed"].default is inspect.Parameter.empty


def test_a_million_variables_would_stay_under_a_gibibyte() -> None:  # and ising_grid in test_ceilings.py
    tracemalloc.start()
    try:
        model = instances.potts_grid(300, 300, coupling_max=1.0, seed=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (model.num_variables, model.num_edges) == (90_000, 179_400)
    assert peak < 0.09 * 2**30, f"peak of {peak / 2**20:.0f} MiB"
