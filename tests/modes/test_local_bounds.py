"""Terms that a pass of messages leaves, and bounds by parts that are solved exactly, beside enumeration."""

from __future__ import annotations

import numpy as np
import pytest

import strategies
from fastmix import MarkovRandomField, most_probable
from fastmix._clock import NO_LIMIT
from fastmix.modes import search_route
from fastmix.modes.dual_messages import DualMessages
from fastmix.modes.local_bounds import PassTerms


def configurations(model: MarkovRandomField) -> np.ndarray:
    return np.array(list(np.ndindex(*model.num_states.tolist())))


def terms_of(model: MarkovRandomField, num_passes: int) -> PassTerms:
    messages = DualMessages(model)
    for number in range(num_passes):
        messages.make_pass(forward=number % 2 == 0)
    return PassTerms(messages, model)


@pytest.mark.parametrize("seed", strategies.seeds(40, quick=12))
def test_terms_are_the_log_weight_and_never_positive(seed: int) -> None:
    model = strategies.picture_twins(seed, scale=[0.3, 1.0, 5.0][seed % 3]).shared
    terms = terms_of(model, seed % 6)
    for states in configurations(model)[:: max(1, seed)]:
        of_variables, of_edges = terms.values(states)
        assert max(of_variables.max(), of_edges.max(initial=-1.0)) <= 1e-12
        total = terms.bound + of_variables.sum() + of_edges.sum()
        assert total == pytest.approx(model.log_weight(states), rel=1e-10, abs=1e-9)


@pytest.mark.parametrize("seed", strategies.seeds(40, quick=12))
def test_parts_lower_the_bound_and_never_too_far(seed: int) -> None:
    """Disjoint parts give a bound, all variables together the largest log-weight itself."""
    model = strategies.picture_twins(seed, scale=1.0).shared
    terms = terms_of(model, 2)
    everything = configurations(model)
    truth = float(np.max(model.log_weight(everything)))
    rng = np.random.default_rng(seed)
    given = everything[rng.integers(len(everything))]
    order = np.sort(rng.permutation(model.num_variables)[:3])
    some = terms.solve(order, given, NO_LIMIT)
    rest = terms.solve(np.setdiff1d(np.arange(model.num_variables), order), given, NO_LIMIT)
    assert some is not None
    assert rest is not None
    assert terms.bound + some[0] + rest[0] >= truth - 1e-9
    largest, states = terms.solve(np.arange(model.num_variables), given, NO_LIMIT) or (0.0, given)
    assert terms.bound + largest == pytest.approx(truth, rel=1e-10, abs=1e-9)
    assert model.log_weight(states) == pytest.approx(truth, rel=1e-10, abs=1e-9)


def noisy_blocks(seed: int) -> MarkovRandomField:
    """A picture of 20 labels in strong noise, whose relaxation is not tight at a few places."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 20, (2, 2)).repeat(12, axis=0).repeat(12, axis=1)
    return MarkovRandomField.image(np.eye(20)[truth] + rng.normal(0.0, 2.0, (24, 24, 20)), 1.0)


def test_parts_close_gaps_that_messages_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [noisy_blocks(seed) for seed in range(6)]
    with_parts = [most_probable(model, method="search", time_limit=20.0, seed=0, tol=1e-9) for model in models]
    assert all(result.exact for result in with_parts)
    assert any("parts" in result.stats["moves"] for result in with_parts)
    monkeypatch.setattr(search_route, "tighten_parts", lambda run: None)
    without = [most_probable(model, method="messages", time_limit=20.0, seed=0) for model in models]
    assert not all(result.exact for result in without)
    for one, other in zip(with_parts, without, strict=True):
        assert one.log_weight >= other.log_weight - 1e-9
        assert one.upper_bound <= other.upper_bound + 1e-9


def test_models_that_parts_do_not_fit_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    mixed = MarkovRandomField.from_tables(
        [rng.normal(size=2), rng.normal(size=3), rng.normal(size=2)],
        [(0, 1), (1, 2), (0, 2)],
        [rng.normal(size=(2, 3)), rng.normal(size=(3, 2)), rng.normal(size=(2, 2))],
    )
    result = most_probable(mixed, method="search", time_limit=1.0, seed=0)
    assert "parts" not in result.stats["moves"]
