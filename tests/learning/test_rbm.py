"""Restricted Boltzmann machines by persistent chains."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import Interrupted, MarkovRandomField, learn, score
from fastmix.chains.cuda.device import cuda_available
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import read_data
from fastmix.learning.rbm import Machine, is_machine
from oracle.learning import NaiveMachine, sigmoid


def rows_of(visible: int, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = 1.5 * rng.standard_normal((visible, 3))
    hidden = rng.random((rows, 3)) < 0.5
    return (rng.random((rows, visible)) < 1.0 / (1.0 + np.exp(-(hidden - 0.5) @ weights.T))).astype(np.int8)


def test_which_graphs_are_machines() -> None:
    model = MarkovRandomField.rbm(np.ones((5, 3)))
    assert is_machine(model.structure, 3)
    assert not is_machine(model.structure, 2)  # edges between visible variables
    assert not is_machine(model.structure, 0)


def machine_of(kind: type[Machine], data: np.ndarray, hidden: int, num_chains: int, ridge: float) -> Machine:
    """A machine with random parameters, a few of its edges missing, and weighted rows."""
    rng = np.random.default_rng(hidden)
    visible = data.shape[1]
    model = MarkovRandomField.rbm(
        0.5 * rng.standard_normal((visible, hidden)), rng.standard_normal(visible), rng.standard_normal(hidden)
    )
    edges = np.delete(model.edges, 1, axis=0)
    table = read_data(data, weights=rng.random(len(data))).with_hidden(hidden)
    coordinates = Coordinates(table.blank_model(edges).structure)
    v = rng.standard_normal(coordinates.size)
    machine = kind(table, coordinates, v, hidden, ridge, num_chains, 7)
    np.testing.assert_allclose(machine.v(), v, atol=1e-5)
    machine.start(data[rng.integers(0, len(data), num_chains)])
    return machine


def machines() -> list[type[Machine]]:
    if not cuda_available()[0]:
        return [Machine]
    from fastmix.learning.cuda import rbm

    return [Machine, rbm.Machine]


SIMULATED = "simulator" in cuda_available()[1]
SIZES = [(9, 2, 9, 14)] if SIMULATED else [(9, 2, 9, 14), (9, 112, 64, 50), (9, 130, 6, 3), (75, 5, 70, 90)]


@pytest.mark.parametrize("kind", machines())
@pytest.mark.parametrize(("visible", "hidden", "num_chains", "rows"), SIZES)
def test_steps(kind: type[Machine], visible: int, hidden: int, num_chains: int, rows: int) -> None:
    """Parameters after three steps, from the chains before each, against a plain version in double precision."""
    data = rows_of(visible, rows, 0)
    machine = machine_of(kind, data, hidden, num_chains, 0.3)
    naive = NaiveMachine(machine)
    for step in range(3):
        chosen = np.random.default_rng(step).permutation(rows)[: machine.batch - (step == 2)]
        naive.step(chosen, machine.states()[:, :visible], 0.02)
        machine.advance(chosen, np.array([0.02]))
    machine.fetch()
    kept = machine.mask[:, :hidden] == 1.0
    assert not kept.all()
    assert not machine.W[:, :hidden][~kept].any()
    np.testing.assert_allclose(machine.W[:, :hidden], naive.W, atol=2e-4)
    np.testing.assert_allclose(machine.beta, naive.beta, atol=2e-4)
    np.testing.assert_allclose(machine.gamma[:hidden], naive.gamma, atol=2e-4)
    for found, expected in zip(machine.sums, naive.sums, strict=True):
        np.testing.assert_allclose(found[..., :hidden] if found.shape != (visible,) else found, expected, atol=2e-4)


@pytest.mark.parametrize("kind", machines()[: 1 if SIMULATED else None])
def test_draws(kind: type[Machine]) -> None:
    """Hidden bits by their probabilities given the chains before, visible ones by theirs given the hidden ones.

    A sum over 20,000 draws is off by 6 standard errors with probability 2e-9; there are 55.
    """
    data, num_chains, steps = rows_of(5, 8, 0), 4000, 5
    machine = machine_of(kind, data, 2, num_chains, 0.0)
    naive = NaiveMachine(machine)
    total, variance = np.zeros((8, 7)), np.zeros((8, 7))
    for _ in range(steps):
        before = machine.states()[:, :5].astype(float)
        machine.advance(np.arange(2), np.array([0.0]))
        after = machine.states().astype(float)
        p_visible = sigmoid(naive.beta + (after[:, 5:] - 0.5) @ naive.W.T)
        p = np.hstack([p_visible, sigmoid(naive.gamma + (before - naive.mu) @ naive.W)])
        given = np.hstack([after[:, 5:], before, np.ones((num_chains, 1))])
        total += given.T @ (after - p)
        variance += given.T @ (p * (1.0 - p))
    total[:2, 5:] = 0.0  # hidden bits given themselves
    spread = np.sqrt(variance)
    assert (np.abs(total) <= 6.0 * spread).all()
    assert (np.abs(total + 0.1 * variance) > 6.0 * spread).any()  # log-odds that are off by a tenth are noticed


@pytest.mark.parametrize("kind", machines())
def test_going_on_gives_the_same_bits(kind: type[Machine]) -> None:
    data = rows_of(6, 12, 1)
    whole, first, second = (machine_of(kind, data, 3, 5, 1e-3) for _ in range(3))
    rows = np.arange(12)[:10]
    whole.advance(rows, np.array([0.02, 0.02]))
    first.advance(rows[:5], np.array([0.02]))
    first.fetch()
    second.restore(first.pack())
    second.advance(rows[5:], np.array([0.02]))
    for machine in (whole, second):
        machine.fetch()
    np.testing.assert_array_equal(whole.W, second.W)
    np.testing.assert_array_equal(whole.states(), second.states())


def test_learning_beats_the_independent_model() -> None:
    data = rows_of(10, 2000, 3)
    result = learn(data, hidden=3, moments="sampled", ridge=1e-3, max_iter=15, seed=0)
    assert result.model.num_edges == 30
    assert result.moments == "sampled"
    assert len(result.history) == 15
    padded = np.hstack([data, np.full((len(data), 3), -1)])
    found = score(result.model, padded).log_likelihood
    p = data.mean(axis=0)
    independent = float(np.mean(data * np.log(p) + (1 - data) * np.log(1 - p)) * 10)
    exact = learn(data, hidden=3, moments="exact", ridge=1e-3, seed=0)
    best = score(exact.model, padded).log_likelihood
    assert found > independent + 0.7 * (best - independent)
    again = learn(data, hidden=3, moments="sampled", ridge=1e-3, max_iter=15, seed=0)
    np.testing.assert_array_equal(again.model.parameters, result.model.parameters)


def test_a_time_limit_and_ctrl_c_keep_the_model() -> None:
    data = rows_of(12, 2000, 3)
    limited = learn(data, hidden=4, moments="sampled", max_iter=10_000, time_limit=0.5, seed=0)
    assert str(limited.status) == "not_converged"
    assert limited.stats["stopped_by"] == "time_limit"

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        learn(data, hidden=4, moments="sampled", seed=0, progress=stop)
    assert str(stopped.value.result.status) == "interrupted"
    assert np.isfinite(stopped.value.result.model.parameters).all()


def plain_results() -> list:
    """Weights and configurations after two steps, for the comparison with the compiler."""
    machine = machine_of(Machine, rows_of(5, 8, 0), 2, 6, 0.1)
    machine.advance(np.arange(8), np.array([0.02, 0.02]))
    return [machine.W.tolist(), machine.states().tolist()]
