"""Arguments of every public function, one rule for each kind of them; and sizes beyond any memory."""

from __future__ import annotations

import datetime
import inspect
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import (
    MarkovRandomField,
    ModelError,
    ResourceError,
    ReversedKL,
    denoising,
    exact,
    experiments,
    graphs,
    instances,
    io,
)
from fastmix._checks import (
    as_float_array,
    as_index,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    check_share,
    choose_seed,
)
from fastmix.describe import describe_model
from fastmix.executors import Pool
from fastmix.model.network import BayesianNetwork
from fastmix.model.reduce import reduce_model
from fastmix.theory import certify as mixing
from fastmix.theory import dependency, intervals
from fastmix.theory.comparison import comparison_bounds

MODEL = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3, field=[0.1, 0.0, -0.2])
ATTRACTIVE = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3)
PICTURE = np.eye(4)

# Every function that takes a model, a seed, a time limit or threads, with the other arguments that it needs.
ON_MODELS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (fastmix.certify, {"accuracy": 0.1}),
    (fastmix.bracket, {}),
    (fastmix.compare, {"methods": ["mean-field"]}),
    (fastmix.dependency_matrix, {}),
    (fastmix.draw_exact, {"num_draws": 1}),
    (fastmix.impute, {"rows": np.full((1, 3), -1)}),
    (fastmix.infer, {}),
    (fastmix.loopy_bp, {}),
    (fastmix.mean_field, {}),
    (fastmix.mutual_information, {}),
    (fastmix.most_probable, {}),
    (fastmix.perfect_sample, {}),
    (fastmix.predict, {"rows": np.full((1, 3), -1)}),
    (fastmix.prepare, {}),
    (fastmix.project, {"norm_bound": 1.0}),
    (fastmix.sample, {"num_sweeps": 10}),
    (fastmix.sensitivity, {"query": 0}),
    (fastmix.score, {"data": np.zeros((2, MODEL.num_variables), dtype=int)}),
    (fastmix.temper, {"num_sweeps": 10}),
    (denoising.anneal, {}),
    (dependency.edge_dependencies, {}),
    (describe_model, {}),
    (exact.enumerate_model, {}),
    (exact.infer_exact, {}),
    (exact.plan_model_elimination, {"memory_limit": 1e9}),
    (exact.plan_exact, {}),
    (intervals.rigorous_intervals, {"mean": 0.5, "num_chains": 2, "bias": 0.0}),
    (comparison_bounds, {"original": MODEL}),
    (reduce_model, {}),
    (io.write_model, {"path": "/dev/null.npz"}),
    (io.write_model, {"path": "-"}),
]
COIN = BayesianNetwork(["coin"], [["heads", "tails"]], [[]], [[0.5, 0.5]])
OTHERS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (fastmix.ancestral_sample, (COIN,), {"num_draws": 1}),
    (instances.ising_grid, (2, 2), {"coupling_max": 1.0}),
    (instances.potts_grid, (2, 2), {"coupling_max": 1.0}),
    (instances.ising_random, (2,), {"edge_probability": 0.5, "coupling_max": 1.0}),
    (instances.ising_bipartite, (2, 2), {"coupling_max": 1.0}),
    (instances.ising_regular, (4, 3), {"coupling_max": 1.0}),
    (instances.ising_tree, (3,), {"coupling_max": 1.0}),
    (instances.random_tables, ([(0, 1)], 2), {"scale": 1.0}),
    (graphs.erdos_renyi_edges, (3, 0.5), {}),
    (graphs.random_regular_edges, (4, 3), {}),
    (graphs.random_tree_edges, (3,), {}),
    (graphs.covering_spanning_trees, (3, [(0, 1), (1, 2)]), {}),
    (denoising.denoise, (PICTURE,), {}),
    (fastmix.learn, (np.random.default_rng(0).integers(0, 2, size=(40, 3)),), {}),
    (fastmix.log_z, (MODEL,), {}),
    (fastmix.fit_network, (np.random.default_rng(0).integers(0, 2, size=(40, 3)),), {}),
    (denoising.add_noise, (PICTURE,), {}),
    (experiments.run_experiment, ("potts", "/dev/null/folder"), {}),
]
BAD: dict[str, list[Any]] = {
    "seed": [1.5, -1, "1", True, np.timedelta64(1, "s"), np.float64(2.0), [1]],
    "time_limit": [0, -1, np.nan, np.inf, "3", True, datetime.timedelta(seconds=3), np.timedelta64(3, "s")],
    "num_threads": [0, -1, 1.5, "2", True, 10**12],
}


def calls() -> Iterator[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    for function, options in ON_MODELS:
        yield function, (ATTRACTIVE if function is denoising.anneal else MODEL,), options
    yield from OTHERS


def name_of(value: Any) -> str:
    return value.__name__ if callable(value) else ""


def test_the_table_has_every_public_function() -> None:
    listed = {function for function, _, _ in calls()}
    for module in (fastmix, denoising, exact, experiments, graphs, instances):
        for name in module.__all__:
            function = getattr(module, name)
            if inspect.isfunction(function) and function not in listed:
                names = set(inspect.signature(function).parameters)
                assert not names & {"model", *BAD}, f"{function.__name__} is missing"


@pytest.mark.parametrize("argument", BAD)
def test_seeds_limits_and_threads(argument: str) -> None:
    tried = 0
    for function, positional, options in calls():
        if argument not in inspect.signature(function).parameters:
            continue
        for value in BAD[argument]:
            with pytest.raises(ValueError, match=f"{argument} must be a") as caught:
                function(*positional, **(options | {argument: value}))
            assert "got" in str(caught.value), (function, value)
            tried += 1
    assert tried >= 6 * len(BAD[argument])


@pytest.mark.parametrize(("function", "options"), ON_MODELS, ids=name_of)
def test_what_is_no_model(function: Callable[..., Any], options: dict[str, Any]) -> None:
    for value in (None, "grid.uai", [1, 2], np.zeros(3), MarkovRandomField):
        with pytest.raises(TypeError, match=r"^(model|projected) .*MarkovRandomField"):
            function(value, **options)


def test_fresh_seeds_differ_and_fit() -> None:
    seeds = {choose_seed(None) for _ in range(50)}
    assert len(seeds) == 50  # a repetition among 50 of 2^63: 1e-16
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert choose_seed(np.uint64(2**63)) == 2**63


def test_positive_numbers() -> None:
    assert check_positive("tol", np.float32(0.5)) == 0.5
    assert check_positive("tol", 0, or_zero=True) == 0.0
    with pytest.raises(ValueError, match=r"^tol .*-1$"):
        check_positive("tol", -1, or_zero=True)


class Rude:
    """An object none of whose methods answers: what comes of it must be a clear error all the same."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("not for you")

    __repr__ = __str__ = __len__ = __iter__ = __index__ = __float__ = __array__ = __eq__ = __bool__ = _refuse
    __hash__ = None


@pytest.mark.parametrize("value", [10**400, -(10**400), Rude(), np.array([1, 2]), "x" * 10_000, np.complex128(1), b"1"])
def test_numbers_that_are_none(value: Any) -> None:
    for check in (
        lambda: check_positive("tol", value),
        lambda: check_share("confidence", value),
        lambda: check_count("num_draws", value, least=1),
        lambda: check_choice("norm", value, ("inf", "1")),
        lambda: check_flag("torus", value),
        lambda: as_float_array("field", [[value], [[value]]]),
        lambda: MODEL.variable_index(value),
        lambda: MODEL.state_index(0, value),
    ):
        with pytest.raises(ValueError, match=r"must") as caught:
            check()
        assert len(str(caught.value)) < 500


def test_counts_are_python_numbers() -> None:
    for number in (np.uint64(2**62), np.int8(100), np.uint8(200)):
        count = check_count("num_draws", number, least=1)
        assert type(count) is int
        assert count == int(number)
    with pytest.raises(ValueError, match=r"^num_draws .*\b9223372036854775808\)?$"):
        check_count("num_draws", np.uint64(2**63), least=1)


def test_flags() -> None:
    assert check_flag("torus", np.False_) is False
    for value in ("no", 0, 1, 2, None, [], np.array([True])):
        with pytest.raises(ValueError, match=r"^torus .*True .*False"):
            check_flag("torus", value)


# -- arrays that are no numbers ---------------------------------------------------------------------------------------

MASKED = np.ma.masked_array([0.0, 1.0], mask=[False, True])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (MASKED, "masked"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"), "these are dates"),
        ([np.datetime64("2020-01-01"), np.datetime64("2020-01-02")], "these are dates"),
        ([datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)], "array of numbers"),
        (np.array([1, 2], dtype="timedelta64[s]"), "these are durations"),
        (["1", "2"], "these are text"),
        (np.array([1j, 2j]), "complex"),
        ([1j, 2j], "complex"),
        ([[1.0], [1.0, 2.0]], "array of numbers"),
        ([10**400, 1], "array of numbers"),
    ],
)
def test_arrays_that_are_no_numbers(values: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=f"^field .*{reason}"):
        as_float_array("field", values)
    with pytest.raises(ModelError, match=f"^log_unary .*{reason}"):
        MarkovRandomField([2], values, [], [])


def test_masks_and_dates_elsewhere() -> None:
    mask = np.ma.masked_array([[0, 1]], mask=[[True, False]])
    dates = np.array([[0, 1]], dtype="datetime64[D]")
    for values in (mask, dates):
        with pytest.raises(ModelError, match="edges must"):
            MarkovRandomField.ising(values, coupling=0.3)
        with pytest.raises(ModelError, match="num_states must"):
            MarkovRandomField(values[0], [0.0], [], [])
        with pytest.raises(ModelError, match="states must"):
            MarkovRandomField.ising([(0, 1)], 0.3).log_weight(values)
    with pytest.raises(ModelError, match=r"^field .*masked"):
        MarkovRandomField.ising([(0, 1)], 0.3, field=MASKED)
    with pytest.raises(ModelError, match=r"^reference .*dates"):
        fastmix.compare(MODEL, methods=["mean-field"], reference=np.zeros(6, dtype="datetime64[D]"))
    filled = np.ma.masked_array([0.5, 1.0], mask=[False, False])
    assert MarkovRandomField.ising([(0, 1)], 0.3, field=filled) == MarkovRandomField.ising(
        [(0, 1)], 0.3, field=[0.5, 1.0]
    )


# -- numbers that sums of would overflow ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e308, -1e308, 1.0001e100, -1e300])
def test_potentials_that_would_overflow(value: float) -> None:
    table = [[0.0, value], [0.0, 0.0]]
    for build in (
        lambda: MarkovRandomField([2], [0.0, value], [], []),
        lambda: MarkovRandomField([2], [0.0, 0.0], [], [], value),
        lambda: MarkovRandomField.from_tables([[0, 0]] * 2, [(0, 1), (1, 0)], [table, np.transpose(table)]),
        lambda: MarkovRandomField.from_factors([2], [((0,), [value, 0.0]), ((0,), [value, 0.0])]),
        lambda: MarkovRandomField.ising([(0, 1)], value),
        lambda: MarkovRandomField.ising([(0, 1)], 0.1, field=value),
        lambda: MarkovRandomField.potts([(0, 1)], value, 3),
        lambda: MODEL.replace(log_unary=np.full(6, value)),
        lambda: MODEL.with_parameters(np.full(MODEL.num_parameters, value)),
    ):
        with pytest.raises(ModelError, match=r"-1e\+100 .*1e\+100 "):
            build()


def test_large_potentials_are_answered() -> None:
    """At the limit nothing overflows, here or on the way: warnings are errors."""
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=[1e99, -2e99, 1e99], field=[1e99, 0.0, 5e98])
    for method in ("exact", "gibbs", "mean-field", "loopy-bp"):
        options = {"num_sweeps": 50} if method == "gibbs" else {}
        result: Any = fastmix.infer(model, method=method, **options)
        assert np.isfinite(result.node_marginals).all()
    result = fastmix.project(model, norm_bound=1.0)
    assert result.norm_after <= 1.0


# -- sizes beyond any memory ------------------------------------------------------------------------------------------

HUGE = 10**12
TREE = MarkovRandomField.ising([(0, 1)], coupling=0.3)
TOO_LARGE: dict[str, Callable[[], object]] = {
    "states that wrap": lambda: MarkovRandomField([2**62] * 4, [], [], []),
    "states that wrap unsigned": lambda: MarkovRandomField(np.full(4, 2**62, np.uint64), [], [], []),
    "states in all": lambda: MarkovRandomField(np.full(2, 2**31 - 1), [], [], []),
    "tables that wrap": lambda: MarkovRandomField([2**31 - 1] * 9, [], [(i, i + 1) for i in range(8)], []),
    "factors": lambda: MarkovRandomField.from_factors([2**31 - 1] * 100, []),
    "factors that wrap": lambda: MarkovRandomField.from_factors([2**30] * 64, [(range(64), [])]),
    "tables": lambda: MarkovRandomField.from_tables([[0.0, 0.0]], [(0, HUGE)], [[[0.0]]]),
    "ising": lambda: MarkovRandomField.ising([[0, 10**9]], coupling=0.1),
    "ising, unsigned": lambda: MarkovRandomField.ising(np.array([[0, 2**64 - 1]], np.uint64), coupling=0.1),
    "ising, variables": lambda: MarkovRandomField.ising([(0, 1)], coupling=0.1, num_variables=HUGE),
    "potts": lambda: MarkovRandomField.potts([(0, 1)], coupling=0.1, num_states=10**9),
    "potts, variables": lambda: MarkovRandomField.potts([(0, 1)], coupling=0.1, num_states=2, num_variables=HUGE),
    "chains": lambda: fastmix.sample(TREE, num_chains=HUGE),
    "chains of clusters": lambda: fastmix.sample(TREE, num_chains=HUGE, method="swendsen-wang"),
    "chains of infer": lambda: fastmix.infer(TREE, method="gibbs", num_chains=HUGE),
    "draws": lambda: fastmix.sample(TREE, num_sweeps=HUGE, num_draws=HUGE),
    "accuracy": lambda: fastmix.sample(TREE, accuracy=1e-9),
    "ensembles": lambda: fastmix.temper(TREE, num_ensembles=HUGE),
    "replicas": lambda: fastmix.temper(TREE, num_replicas=HUGE),
    "perfect samples": lambda: fastmix.perfect_sample(TREE, num_draws=HUGE),
    "exact draws": lambda: fastmix.draw_exact(TREE, num_draws=HUGE),
    "enumeration": lambda: exact.enumerate_model(
        instances.ising_tree(40, coupling_max=1.0, seed=0), max_configurations=2**60
    ),
    "starts": lambda: fastmix.mean_field(TREE, num_starts=HUGE),
    "populations": lambda: denoising.anneal(TREE, num_populations=HUGE),
    "chains of populations": lambda: denoising.anneal(TREE, num_chains=HUGE),
    "pool": lambda: fastmix.project(
        MarkovRandomField.ising([(0, 1)], coupling=3.0), norm_bound=0.5, divergence=ReversedKL(pool_size=HUGE)
    ),
    "grid": lambda: instances.ising_grid(10**6, 10**6, coupling_max=1.0, seed=0),
    "grid below the limit of the graph": lambda: graphs.grid_edges(2**15, 2**15 - 1),
    "grid of many states": lambda: instances.potts_grid(10, 10, num_states=10**6, coupling_max=1.0, seed=0),
    "complete": lambda: graphs.complete_edges(10**6),
    "bipartite": lambda: instances.ising_bipartite(10**6, 10**6, coupling_max=1.0, seed=0),
    "random": lambda: instances.ising_random(10**6, edge_probability=0.5, coupling_max=1.0, seed=0),
    "regular": lambda: instances.ising_regular(10**6, 10**5, coupling_max=1.0, seed=0),
    "tree": lambda: instances.ising_tree(2**30 - 1, coupling_max=1.0, seed=0),
    "adjacency": lambda: graphs.adjacency(2**30 - 1, []),
    "num_trials": lambda: experiments.run_experiment("potts", "/dev/null/folder", num_trials=HUGE),
    "workers": lambda: Pool(HUGE),
    "random tables": lambda: instances.random_tables([(0, 10**9)], 2, scale=1.0, seed=0),
    "random tables of many states": lambda: instances.random_tables([(0, 1)], [2**31 - 1] * 2, scale=1.0, seed=0),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_are_refused_before_anything_is_allocated(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((ModelError, ResourceError, ValueError)) as caught:
            TOO_LARGE[name]()
        assert tracemalloc.get_traced_memory()[1] < 5e7
    finally:
        tracemalloc.stop()
    if isinstance(caught.value, ResourceError):
        assert "over the limit of" in str(caught.value)
        assert caught.value.required_bytes > caught.value.limit_bytes > 0


def test_statistics_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastmix._memory.available_memory", lambda: 2**25)
    model = instances.ising_grid(20, 20, coupling_max=1.0, seed=0)
    assert model.sufficient_statistics(np.zeros((300, 400), dtype=int)).shape == (300, 3840)
    with pytest.raises(ResourceError, match=r"^.*statistics of 2000 "):
        model.sufficient_statistics(np.zeros((2000, 400), dtype=int))


@pytest.mark.parametrize("digits", [100, 401, 5000])
def test_messages_tell_the_length_of_a_number(digits: int) -> None:
    for value in (5 * 10 ** (digits - 1), -5 * 10 ** (digits - 1)):
        with pytest.raises(ValueError, match=f"state .*{digits:,} digits"):
            fastmix.infer(fastmix.MarkovRandomField.ising([(0, 1)], 0.1), evidence={0: value})


def test_no_size_crashes_the_kernels(tmp_path: Path) -> None:
    """Four counts of 2^62 sum to 0 modulo 2^64: such a model was accepted, and mean_field ended the process."""
    header = np.frombuffer(b'{"format": "fastmix pairwise mrf", "version": 1}', np.uint8)
    for counts in ([2**62] * 4, [2**63 - 1, 1], [-(2**62)] * 4, [2**31] * 2):
        path = tmp_path / "model.npz"
        empty: dict[str, Any] = {"log_unary": np.zeros(0), "log_pairwise": np.zeros(0), "log_constant": np.array(0.0)}
        edges = np.zeros((0, 2), dtype=np.int64)
        np.savez(path, header=header, num_states=np.array(counts, dtype=np.int64), edges=edges, **empty)
        with pytest.raises(fastmix.FormatError, match="num_states must"):
            mixing.certify(io.read_model(path), accuracy=0.1)


def test_names_are_listed_where_none_is_near():
    names = {"dry": 0, "wet": 1}
    with pytest.raises(ModelError, match="nearest is 'wet'"):
        as_index("state", "west", names, 2)
    with pytest.raises(ModelError, match="the names are 'dry', 'wet'"):
        as_index("state", "soaked", names, 2)
    with pytest.raises(ModelError, match=r"got 'soaked'$"):
        as_index("state", "soaked", {"y" * 50: 0, "z" * 51: 1}, 2)
