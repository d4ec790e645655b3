from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import oracle
import strategies
from fastmix import FastmixError, Interrupted, MarkovRandomField, NotConvergedError, UnfitMethodError, perfect_sample
from fastmix.chains.generator import make_streams
from fastmix.instances import ising_grid, potts_grid
from fastmix.model.reduce import reduce_model
from fastmix.sampling import perfect_sample as perfect

FALSE_ALARM = 1e-7  # of each chi-square test of this file, of which there are fewer than ten

ATTRACTIVE = ising_grid(2, 3, coupling_max=1.2, attractive=True, seed=2)
MIXED = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2), (2, 3)], [0.35, -0.3, 0.3, -0.4], field=[0.6, -0.4, 0.1, 0.9])
LOPSIDED = MarkovRandomField.from_tables(
    [np.array([0.3, 0.0, -0.5]), np.array([0.2, -0.1]), np.array([0.0, 0.4, 0.1, -0.2])],
    [(0, 1), (1, 2)],
    [np.array([[0.2, -0.3], [0.1, 0.0], [-0.2, 0.3]]), np.array([[0.3, 0.0, -0.3, 0.1], [-0.2, 0.2, 0.2, 0.0]])],
)
HARD_CORE = MarkovRandomField.from_tables(
    [np.array([0.0, -1.8])] * 4, [(0, 1), (1, 2), (2, 3)], [np.array([[0.0, 0.0], [0.0, -np.inf]])] * 3
)
MODELS = {"attractive": ATTRACTIVE, "mixed": MIXED, "lopsided": LOPSIDED, "hard core": HARD_CORE}


class Numbers:
    """The uniforms of a stream, in plain Python."""

    def __init__(self, state: np.ndarray) -> None:
        self.words = [int(w) for w in state]

    def word(self) -> int:
        a, b, d, e = self.words
        total = (a + e) & 0xFFFFFFFF
        value = ((((total << 7) | (total >> 25)) & 0xFFFFFFFF) + a) & 0xFFFFFFFF
        t = (b << 9) & 0xFFFFFFFF
        d ^= a
        e ^= b
        b ^= d
        a ^= e
        d ^= t
        e = ((e << 11) | (e >> 21)) & 0xFFFFFFFF
        self.words = [a, b, d, e]
        return value - (value >> 31)

    def uniform(self) -> float:
        high, low = self.word(), self.word()
        return (((high << 21) | (low >> 11)) + 0.5) / 2.0**53


def naive_update(model: MarkovRandomField, sets: list[set[int]], i: int, numbers: Numbers) -> set[int]:
    """States that some allowed choice from the neighbors' sets selects, by trying all choices."""
    count = int(model.num_states[i])
    binary = bool((model.num_states == 2).all())
    uniforms = [numbers.uniform() for _ in range(1 if binary else count)]
    around = model.adjacency.neighbors[model.adjacency.indptr[i] : model.adjacency.indptr[i + 1]].tolist()
    selected = set()
    for choice in itertools.product(*(sorted(sets[j]) for j in around)):
        weights = model.unary(i).copy()
        for j, x in zip(around, choice, strict=True):
            weights = weights + model.table(i, j)[:, x]
        if not (weights > -np.inf).any():
            continue
        if binary:
            level = np.log(uniforms[0]) - np.log1p(-uniforms[0])
            selected.add(int(weights[1] - weights[0] > level))
        else:
            selected.add(int(np.argmax(weights - np.log(-np.log(uniforms)))))
    return selected


@given(model=strategies.models(min_variables=1, max_variables=4, max_states=3), seed=st.integers(0, 99))
def test_sets_hold_whatever_the_past_selects(model, seed):
    try:
        small = reduce_model(model).model
        perfect.check_conditionals(small)
    except FastmixError:
        return
    past = perfect._Past(small, seed, 4)
    kernels = pytest.importorskip("fastmix.sampling.perfect_kernels")
    run = kernels.bound_binary if past.binary else kernels.bound_general
    stream = make_streams(seed, 0, 1)[:, 0].copy()
    numbers = Numbers(stream)
    sets = past.full.copy()
    for _ in range(3):
        before = [{s for s in range(64) if int(w) >> s & 1} for w in sets]
        run(sets, past.order, *past.arrays, stream, 1)
        for i in past.order.tolist():
            before[i] = naive_update(small, before, i, numbers)
            # The kernel looks at pairs of states one by one, which may keep more, and never fewer; for binary
            # variables, and once the neighbors are known, exactly these.
            kept = {s for s in range(64) if int(sets[i]) >> s & 1}
            assert before[i] <= kept
            if past.binary and not small.has_forbidden:
                assert before[i] == kept
            before[i] = kept
    assert numbers.words == stream.tolist()


def joint_p_value(model: MarkovRandomField, states: np.ndarray) -> float:
    """Chi-square of joint counts; configurations expected less than 5 times are put together."""
    probability = oracle.joint(model).ravel()
    index = np.ravel_multi_index(states.T, model.num_states)
    counts = np.bincount(index, minlength=len(probability))
    expected = probability * len(states)
    assert counts[probability == 0].sum() == 0
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if expected[-1] < 5:
            counts[-2] += counts[-1]
            expected[-2] += expected[-1]
            counts, expected = counts[:-1], expected[:-1]
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


@pytest.mark.parametrize("name", MODELS)
def test_joint_distribution(name):
    samples = perfect_sample(MODELS[name], num_draws=5000, seed=5)
    assert joint_p_value(MODELS[name], samples.states) > FALSE_ALARM
    assert samples.status == "ok"


def sabotaged(model: MarkovRandomField, how: str, num_samples: int) -> np.ndarray:
    """Samples of two famous mistakes."""
    past = perfect._Past(model, 5, 1 << 20)
    kernels = pytest.importorskip("fastmix.sampling.perfect_kernels")
    run = kernels.bound_binary if past.binary else kernels.bound_general
    result = np.empty((num_samples, model.num_variables), dtype=np.int64)
    streams = make_streams(5, 0, 20 * num_samples).T.copy()
    for r in range(num_samples):
        if how == "forward":  # stop at the moment of meeting instead of at a fixed present
            stream = streams[r]
            sets = past.full.copy()
            while not past._met(sets):
                for i in past.order:
                    run(sets, np.array([i]), *past.arrays, stream, 1)
                    if past._met(sets):
                        break
        else:  # fresh numbers at every restart
            for epoch in range(20):
                sets = past.full.copy()
                run(sets, past.order, *past.arrays, streams[20 * r + epoch], 1 << epoch)
                if past._met(sets):
                    break
        result[r] = perfect._members(sets)
    return result


def test_sabotage_is_caught():
    strong = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.9, field=[0.2, -0.5, 0.1])
    assert joint_p_value(strong, perfect_sample(strong, num_draws=5000, seed=5).states) > FALSE_ALARM
    for how in ("forward", "fresh"):
        assert joint_p_value(strong, sabotaged(strong, how, 5000)) < FALSE_ALARM


def test_wrong_model_is_caught():
    other = MarkovRandomField.ising(
        [(0, 1), (1, 2), (0, 2), (2, 3)], [0.35, 0.3, 0.3, -0.4], field=[0.6, -0.4, 0.1, 0.9]
    )
    assert joint_p_value(other, perfect_sample(MIXED, num_draws=5000, seed=5).states) < FALSE_ALARM


def test_seed_fixes_the_samples_whatever_the_threads():
    for model in (ATTRACTIVE, LOPSIDED):
        first = perfect_sample(model, num_draws=50, seed=3, num_threads=1)
        again = perfect_sample(model, num_draws=50, seed=3, num_threads=4)
        fewer = perfect_sample(model, num_draws=20, seed=3)
        assert np.array_equal(first.states, again.states)
        assert np.array_equal(first.states[:20], fewer.states)
        assert np.array_equal(first.num_sweeps, again.num_sweeps)
        assert not np.array_equal(first.states, perfect_sample(model, num_draws=50, seed=4).states)


def test_evidence_forbidden_states_and_no_variables():
    unary = [np.array([0.0, -np.inf, 0.3]), np.array([0.1, 0.2]), np.array([0.0, 0.5])]
    model = MarkovRandomField.from_tables(unary, [(0, 1), (1, 2)], [0.1 * np.arange(6).reshape(3, 2), 0.2 * np.eye(2)])
    samples = perfect_sample(model, num_draws=30, evidence={2: 1}, seed=1)
    assert set(samples.states[:, 0]) == {0, 2}
    assert (samples.states[:, 2] == 1).all()
    none = perfect_sample(MarkovRandomField.from_tables([], [], []), num_draws=3, seed=1)
    assert none.states.shape == (3, 0)
    assert none.to_dict()["num_draws"] == 3
    assert perfect_sample(model, num_draws=0, seed=1).states.shape == (0, 3)


def test_exchanged_states_and_strong_couplings():
    balanced = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3), (0, 3)], [1.5, -1.5, -1.5, 1.5], field=[0.3, 0, 0, 0])
    samples = perfect_sample(balanced, num_draws=3000, seed=2)
    assert "attractive" in samples.reason
    assert joint_p_value(balanced, samples.states) > FALSE_ALARM
    pair = MarkovRandomField.ising([(0, 1)], coupling=1e3, field=[0.2, 0.0])  # no single update leaves an extreme one
    with pytest.raises(NotConvergedError, match="raise max_sweeps"):
        perfect_sample(pair, num_draws=2, max_sweeps=64, seed=1)


def test_refusals():
    with pytest.raises(UnfitMethodError, match=r"dependency norm .*\b1, .*\d"):
        perfect_sample(potts_grid(3, 3, num_states=3, coupling_max=4.0, seed=0))
    with pytest.raises(UnfitMethodError, match="at most 64 states"):
        perfect_sample(MarkovRandomField.from_tables([np.zeros(65)], [], []))
    with pytest.raises(ValueError, match=r"^num_draws .*-1$"):
        perfect_sample(MIXED, num_draws=-1)
    with pytest.raises(NotConvergedError, match=r"\b2\b"):
        perfect_sample(ising_grid(6, 6, coupling_max=3.0, attractive=True, seed=0), num_draws=4, max_sweeps=2, seed=0)


def test_a_draw_that_takes_long_ends_with_the_limit_and_with_an_interrupt(monkeypatch):
    stuck = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], 20.0)  # two states for e^40 updates
    with pytest.raises(NotConvergedError, match=r"2 perfect draws .*0\.2 s"):
        perfect_sample(stuck, num_draws=2, max_sweeps=1 << 40, seed=0, time_limit=0.2)

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", stop)  # Ctrl-C, while threads draw
    with pytest.raises(Interrupted):
        perfect_sample(stuck, num_draws=2, max_sweeps=1 << 40, seed=0)


def test_long_draws_in_pieces_are_the_same(monkeypatch):
    model = ising_grid(5, 5, coupling_max=0.8, attractive=True, seed=0)
    whole = perfect_sample(model, num_draws=5, seed=1).states
    monkeypatch.setattr(perfect, "UPDATES_BETWEEN_CHECKS", 30)
    assert np.array_equal(whole, perfect_sample(model, num_draws=5, seed=1).states)


def test_progress_and_statistics():
    calls = []
    samples = perfect_sample(MIXED, num_draws=40, seed=1, progress=calls.append)
    assert (calls[-1].done, calls[-1].total, calls[-1].unit) == (40, 40, "draws")
    assert samples.stats["num_updates"] == int((2 * samples.num_sweeps - 1).sum()) * 4
    assert samples.node_marginals.reshape(-1, 2).sum(axis=1) == pytest.approx(np.ones(4))


def plain_results() -> list:
    return [perfect_sample(model, num_draws=4, seed=9).states.tolist() for model in MODELS.values()]


def test_an_undefined_chain_is_refused():
    model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [[[0.0, 0.0], [-np.inf, -np.inf]]])
    with pytest.raises(UnfitMethodError, match=r"variable 1\b"):
        perfect_sample(model, seed=0)


def test_a_state_that_was_never_drawn_has_an_error():
    model = MarkovRandomField.from_tables([[0.0, 4.0], [1.0]], [], [])
    missed = 0
    for seed in range(20):
        result = perfect_sample(model, num_draws=100, seed=seed)
        missed += result.node_marginals[0] == 0.0
        assert abs(result.node_marginals[0] - 1.0 / (1.0 + np.exp(4.0))) < 4.0 * result.std_error[0]
        assert result.std_error[2] == 0.0
    assert missed  # so that it is about something
