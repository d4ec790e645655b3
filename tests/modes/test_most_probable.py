"""The most probable configuration by every route, against enumeration."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

import fastmix
import strategies
from contexts import context_of
from fastmix import MarkovRandomField, graphs, most_probable
from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError, ModelError, ResourceError, UnfitMethodError
from fastmix.instances import ising_grid, ising_random, potts_grid, random_tables
from fastmix.marginals import best_states
from fastmix.modes import exact_route, message_route
from fastmix.modes.cuts import minimum_cut
from fastmix.modes.dual_messages import DualMessages
from fastmix.modes.label_moves import check_expansion
from fastmix.modes.mode_run import ModeRun, term_ranges
from fastmix.modes.search_route import SearchRoute
from fastmix.results import Status


def largest(model: MarkovRandomField, evidence: dict[int, int] | None = None) -> float:
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    for variable, state in (evidence or {}).items():
        states = states[states[:, variable] == state]
    return float(model.log_weight(states).max())


def some_models(seed: int) -> list[MarkovRandomField]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, 6).tolist()
    scopes = [rng.permutation(6)[: rng.integers(1, 4)].tolist() for _ in range(6)]
    factors = [(scope, rng.normal(size=[counts[v] for v in scope])) for scope in scopes]
    return [
        ising_grid(3, 3, coupling_max=2.0, seed=seed),
        potts_grid(2, 3, coupling_max=2.0, attractive=True, seed=seed),
        ising_random(8, edge_probability=0.5, coupling_max=1.0, seed=seed),
        random_tables(graphs.cycle_edges(5), [2, 3, 1, 4, 2], scale=1.5, seed=seed),
        MarkovRandomField.from_factors(counts, factors),
    ]


@pytest.mark.parametrize("seed", strategies.seeds(4, quick=2))
@pytest.mark.parametrize("method", ["auto", "exact", "search"])
def test_against_enumeration(seed: int, method: str) -> None:
    limit = 0.2 if method == "search" else 1.0  # the search takes what it is given where it proves nothing
    for model in some_models(seed):
        for evidence in (None, {1: 0}):
            result = most_probable(model, evidence=evidence, method=method, seed=seed, time_limit=limit)
            truth = largest(model, evidence)
            assert result.log_weight <= truth + 1e-9
            assert result.upper_bound >= truth - 1e-9
            assert result.log_weight == pytest.approx(model.log_weight(result.states))
            assert result.log_weight == pytest.approx(truth)  # tiny: every route finds it
            assert result.exact == (result.gap == 0.0)
            assert (result.status == "ok") == result.exact
            if evidence:
                assert result.states[1] == 0
            if method != "search":
                assert result.exact


@pytest.mark.parametrize("seed", range(20))
def test_cuts_are_exact_under_any_gauge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = ising_random(9, edge_probability=0.4, coupling_max=2.0, attractive=True, seed=seed)
    flip = rng.integers(0, 2, 9)
    i, j = model.edges.T
    tables = model.log_pairwise.reshape(-1, 2, 2) * (1 - 2 * (flip[i] ^ flip[j]))[:, None, None]
    tables = tables + rng.normal(size=(len(i), 2, 1)) + rng.normal(size=(len(i), 1, 2))  # unary parts in tables
    unary = rng.normal(size=18)
    if seed % 3 == 0:
        unary[3] = -np.inf
    model = model.replace(log_unary=unary, log_pairwise=tables.reshape(-1))
    result = most_probable(model, method="cut")
    assert result.exact
    assert result.method == "cut"
    assert result.log_weight == pytest.approx(largest(model))


def test_cuts_refuse_what_they_cannot_do() -> None:
    frustrated = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=-1.0)
    with pytest.raises(UnfitMethodError):
        most_probable(frustrated, method="cut")
    with pytest.raises(UnfitMethodError):
        most_probable(potts_grid(2, 2, coupling_max=1.0, seed=0), method="cut")
    with pytest.raises(UnfitMethodError):
        most_probable(potts_grid(3, 3, coupling_max=1.0, seed=0), method="expansion")
    assert most_probable(frustrated).exact


def test_couplings_of_any_size_decide() -> None:
    tiny = MarkovRandomField.ising([(0, 1), (1, 2)], 1e-13, [1e-13, -1.5e-13, 1e-13])
    assert most_probable(tiny, method="cut", tol=0.0).states.tolist() == [1, 1, 1]


def test_a_cut_that_ignored_couplings_would_be_noticed() -> None:
    gain, edges = np.array([1.0, -0.5]), np.array([[0, 1]])
    alone, _ = minimum_cut(gain, edges, np.zeros(1))
    together, _ = minimum_cut(gain, edges, np.array([3.0]))
    assert alone.tolist() == [1, 0]
    assert together.tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(4))
def test_expansion_moves(seed: int) -> None:
    model = potts_grid(3, 3, coupling_max=1.0, attractive=True, seed=seed)
    check_expansion(model)
    result = most_probable(model, method="expansion")
    assert result.upper_bound >= largest(model) - 1e-9 >= result.log_weight - 2e-9
    assert result.log_weight >= largest(model) - 0.5


@pytest.mark.parametrize("seed", range(30))
def test_every_pass_of_messages_bounds_the_largest_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = graphs.erdos_renyi_edges(6, 0.6, seed=seed)
    model = random_tables(edges, rng.integers(1, 4, 6).tolist(), scale=2.0, seed=seed)
    if seed % 3 == 0 and model.num_edges:
        values = model.log_pairwise.copy()
        values[rng.integers(len(values))] = -np.inf
        model = model.replace(log_pairwise=values)
    truth, messages, bounds = largest(model), DualMessages(model), []
    for _ in range(8):
        messages.make_pass(forward=True)
        assert model.log_weight(messages.states) <= truth + 1e-9
        bounds.append(messages.make_pass(forward=False))
    assert min(bounds) >= truth - 1e-9
    assert (np.diff(bounds) <= 1e-9).all()
    assert bounds[-1] <= model.log_constant + term_ranges(model)[0].sum() + 1e-9


def test_large_attractive_pictures_and_mixed_grids() -> None:
    rng = np.random.default_rng(0)
    picture = MarkovRandomField.image(rng.normal(size=(60, 60, 2)), 1.0)
    cut = most_probable(picture)
    assert (cut.method, cut.exact, cut.labels().shape) == ("cut", True, (60, 60))
    mixed = ising_grid(12, 12, coupling_max=1.0, seed=1)
    truth = most_probable(mixed)
    assert (truth.method, truth.exact) == ("exact", True)
    found = most_probable(mixed, method="search", seed=0, time_limit=1.0)
    assert found.upper_bound >= truth.log_weight - 1e-9
    assert found.log_weight >= truth.log_weight - 1e-9
    limited = most_probable(ising_grid(8, 8, coupling_max=1.0, seed=1), memory_limit=1e3, seed=0, tol=5.0)
    assert limited.method == "search"
    assert limited.status == "ok"
    with pytest.raises(ResourceError):
        most_probable(mixed, method="exact", memory_limit=1e4)


def test_soft_evidence_and_impossible_evidence() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=0.1)
    result = most_probable(model, evidence={0: [0.9, 0.1]})
    assert result.states.tolist() == [0, 0]
    assert result.log_weight == result.upper_bound == pytest.approx(0.1 + np.log(0.9))
    # What is most probable without the evidence is not a larger weight than the upper bound.
    biased = MarkovRandomField.ising([(0, 1)], coupling=0.1, field=0.5)
    against = most_probable(biased, evidence={0: [0.99, 0.01]})
    weights = {x: biased.log_weight(x) + np.log([0.99, 0.01][x[0]]) for x in np.ndindex(2, 2)}
    assert tuple(against.states.tolist()) == max(weights, key=weights.get)
    assert against.upper_bound == pytest.approx(max(weights.values()))
    hard = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0, -np.inf], [-np.inf, 0]]])
    with pytest.raises(ModelError):
        most_probable(hard, evidence={0: 0, 1: 1})


def test_what_it_says() -> None:
    names = {"variable_names": ["a", "b"], "state_names": [["no", "yes"], ["x", "y"]]}
    model = MarkovRandomField.from_tables([[0, 1], [0, 0]], [(0, 1)], [np.eye(2)], **names)
    result = most_probable(model, seed=3)
    data = result.to_dict()
    assert data["states"] == [1, 1]
    assert data["named_states"] == ["yes", "y"]
    assert (data["log_weight"], data["upper_bound"], data["gap"], data["exact"]) == (2.0, 2.0, 0.0, True)
    assert (data["status"], data["provenance"]["seed"]) == ("ok", 3)
    assert result.advice == result.status.advice
    assert "allow a longer time_limit, or a larger tol" in replace(result, status=Status.NOT_CONVERGED).summary()
    with pytest.raises(ValueError, match="method"):
        most_probable(model, method="magic")
    assert most_probable(MarkovRandomField.from_factors([], [])).states.tolist() == []
    assert fastmix.infer(model).labels().tolist() == [1, 1]


def test_interrupts_keep_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    model = ising_random(60, edge_probability=1.0, coupling_max=1.0, seed=0)  # messages leave a gap, and parts too
    monkeypatch.setattr(SearchRoute, "anneal", stop)
    with pytest.raises(fastmix.Interrupted) as caught:
        most_probable(model, method="search", seed=0)
    found = caught.value.result
    assert (found.status, found.stats["stopped_by"]) == ("interrupted", "interrupt")
    assert found.log_weight == pytest.approx(model.log_weight(found.states))
    monkeypatch.setattr(ModeRun, "begin", stop)
    with pytest.raises(fastmix.Interrupted) as nothing:
        most_probable(model, method="search", seed=0)
    assert nothing.value.result is None


def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is left from the first question on."""
    monkeypatch.setattr(Clock, "past", lambda *_: True)
    monkeypatch.setattr(Clock, "left", lambda *_: 0.0)


@pytest.mark.parametrize("method", ["auto", "cut", "expansion", "search"])
def test_without_any_time_there_is_an_answer(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timeless(monkeypatch)
    models = [m for seed in range(6) for m in some_models(seed)]
    models += [MarkovRandomField.image(np.random.default_rng(s).normal(size=(4, 5, 7)), 1.0) for s in range(3)]
    for model in models:
        with contextlib.suppress(UnfitMethodError):
            result = most_probable(model, method=method, seed=0, time_limit=1.0)
            assert result.log_weight == pytest.approx(model.log_weight(result.states))
            assert result.upper_bound >= largest(model) - 1e-9 if model.num_variables < 10 else result.gap >= 0.0
    with pytest.raises(ResourceError, match="time_limit"):
        most_probable(MarkovRandomField.from_tables([[0, 0]] * 2, [(0, 1)], [[[-np.inf, 0], [0, -np.inf]]]))


def test_a_descent_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a descent from the best states of the unaries finds is there when a preparation takes all the time."""
    clocks: list[bool] = []

    def slow(run: ModeRun, *, share: float) -> None:
        clocks.append(run.clock.limit is not None)
        assert 0.0 < share < 1.0
        monkeypatch.setattr(Clock, "past", lambda *_: True)
        raise OutOfTimeError

    monkeypatch.setattr(message_route, "tighten", slow)
    rng = np.random.default_rng(0)
    for k in (3, 21):
        model = MarkovRandomField.image(rng.normal(size=(12, 12, k)), 0.7)
        with monkeypatch.context() as patch:
            patch.setattr(exact_route, "plan_elimination", refuse_exact)
            result = most_probable(model, seed=0)
        assert result.stats["moves"] == {"descents": 1}
        changes = np.repeat(result.states[None], model.num_variables * k, axis=0)
        changes[np.arange(len(changes)), np.arange(len(changes)) // k] = np.arange(len(changes)) % k
        assert model.log_weight(changes).max() <= result.log_weight + 1e-9  # no single change is a gain
        assert result.log_weight > model.log_weight(best_states(model, model.log_unary))
        monkeypatch.undo()
        monkeypatch.setattr(message_route, "tighten", slow)
    assert clocks == [True, True]


def refuse_exact(*_: object, **__: object) -> None:
    raise ResourceError("too large")


def proven_family(seed: int, size: int) -> MarkovRandomField:
    """Models whose bound by messages is tight: trees, and grids with strong fields; of small and large numbers."""
    rng = np.random.default_rng([seed, 17])
    scale = 10.0 ** rng.integers(-3, 7)
    if seed % 2:
        edges = np.column_stack([np.arange(1, size), (np.arange(1, size) * rng.random(size - 1)).astype(int)])
        counts = rng.integers(2, 5, size)
        tables = [scale * rng.normal(size=(counts[i], counts[j])) for i, j in edges]
        unary = [scale * rng.normal(size=c) for c in counts]
        return MarkovRandomField.from_tables(unary, edges, tables)
    side = max(2, round(size**0.5))
    edges = graphs.grid_edges(side, side)
    couplings = 0.2 * scale * rng.uniform(-1.0, 1.0, len(edges))
    return MarkovRandomField.ising(edges, couplings, scale * rng.choice([-1.0, 1.0], side * side))


@pytest.mark.parametrize("size", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_what_is_proven_up_to_rounding_is_exact(size: int, tell) -> None:
    count = 12 if size < 100 else 500
    for seed in range(count):
        model = proven_family(seed, size)
        result = most_probable(model, method="search", seed=0, time_limit=20.0)
        assert (result.exact, result.status) == (True, "ok"), seed
        assert result.gap == 0.0
        if seed % 2:
            assert result.log_weight == pytest.approx(most_probable(model, method="exact").log_weight, rel=1e-11)
    if count == 500:
        tell("most probable", "proven up to rounding, called exact", f"{count} of {count}")


def impossible_family(seed: int) -> MarkovRandomField:
    """Colorings with fewer colors than some clique needs."""
    colors = 2 + seed % 2
    rng = np.random.default_rng(seed)
    n = colors + 3
    edges = [pair for pair in itertools.combinations(range(n), 2) if max(pair) <= colors or rng.random() < 0.3]
    table = np.where(np.eye(colors), -np.inf, 0.0)
    return MarkovRandomField.from_tables(rng.normal(size=(n, colors)), edges, [table] * len(edges))


@pytest.mark.parametrize("method", ["auto", "exact", "search"])
def test_where_nothing_is_possible_there_is_no_answer(method: str) -> None:
    for seed in range(6):
        model = impossible_family(seed)
        with pytest.raises(ImpossibleModelError):
            most_probable(model, method=method, time_limit=5.0)
        free = model.replace(log_pairwise=np.maximum(model.log_pairwise, -50.0))
        assert most_probable(free, method=method, time_limit=0.2, seed=0).log_weight < -40.0
    two = MarkovRandomField.from_tables([[0, 0]] * 3, [(0, 1), (1, 2)], [[[-np.inf, 0], [0, -np.inf]]] * 2)
    with pytest.raises(ImpossibleEvidenceError):
        most_probable(two, evidence={0: 0, 2: 1}, method=method)


@pytest.mark.parametrize("limit", [-1, 0, "4GiB", np.nan, np.inf, True, [1]])
@pytest.mark.parametrize("method", ["auto", "exact", "search"])
def test_memory_limits_are_checked(limit: object, method: str) -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=1.0)
    with pytest.raises(ValueError, match="memory_limit"):
        most_probable(model, memory_limit=limit, method=method)


@pytest.mark.parametrize("seed", range(10))
def test_crossing_takes_the_better_of_every_piece(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = some_models(seed)[4] if seed % 2 else ising_grid(4, 5, coupling_max=1.0, seed=seed)
    one, two = (rng.integers(0, model.num_states) for _ in range(2))
    two = np.where(rng.random(model.num_variables) < 0.4, two, one)
    run = ModeRun(model, context_of(seed))
    run.offer(one)
    run.cross(two)
    # By brute force: every connected piece of the difference, or not.
    differs = np.flatnonzero(one != two)
    inside = [edge for edge in model.edges.tolist() if set(edge) <= set(differs.tolist())]
    _, label = graphs.connected_components(model.num_variables, np.array(inside, dtype=int).reshape(-1, 2))
    pieces = [differs[label[differs] == k] for k in np.unique(label[differs])]
    best = -np.inf
    for chosen in np.ndindex(*[2] * len(pieces)):
        mixed = one.copy()
        for piece, take in zip(pieces, chosen, strict=True):
            mixed[piece] = two[piece] if take else one[piece]
        best = max(best, model.log_weight(mixed))
    assert run.log_weight == pytest.approx(best)
