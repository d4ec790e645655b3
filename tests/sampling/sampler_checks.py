"""Models and comparisons for the tests of sample()."""

from __future__ import annotations

import itertools

import numpy as np

import oracle
from fastmix import (
    MarkovRandomField,
)
from fastmix._clock import Clock
from fastmix.chains.cpu import CpuChains
from fastmix.inference.auto import Auto
from fastmix.inference.choice import Choice, choose
from fastmix.instances import ising_grid
from fastmix.method import DEFAULT_SECONDS
from fastmix.sampling import run_chains as chain_sampling
from fastmix.sampling.sample import SampleResult

# Errors are compared with 6 standard errors: a false alarm of 2e-9 an entry, 1e-6 for the 500 entries of these files.
# Sums of conditional probabilities are cut to 24 bits, which moves a probability by at most 2^-23.
SIGMAS, CUT = 6.0, 2.0**-23

WEAK = ising_grid(3, 3, coupling_max=0.5, seed=0)
EDGES = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]


def choose_method(
    model: MarkovRandomField,
    *,
    memory_limit: float | None = None,
    time_limit: float | None = None,
    log_z: bool = False,
) -> Choice:
    """What ``infer(method="auto")`` would run."""
    clock = Clock(time_limit, default=DEFAULT_SECONDS)
    small = Auto(memory_limit=memory_limit).reduce(model, None, clock).model
    return choose(small, memory_limit, clock, log_z)


def chains_of(model: MarkovRandomField, *, num_chains: int, seed: int) -> CpuChains:
    chains = CpuChains(model.structure, num_chains=num_chains, seed=seed, forbidden=model.has_forbidden)
    chains.load(model.parameters)
    return chains


def lopsided(seed: int = 3) -> MarkovRandomField:
    """Names, mixed state counts, a state forbidden by its unary, a forbidden pair."""
    rng = np.random.default_rng(seed)
    counts = [2, 3, 4, 2, 2]
    unary = [rng.normal(size=k) for k in counts]
    unary[2][1] = -np.inf
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in EDGES]
    tables[0][1, 2] = -np.inf
    return MarkovRandomField.from_tables(
        unary, EDGES, tables, variable_names=list("abcde"), state_names=[[f"s{k}" for k in range(n)] for n in counts]
    )


def given_exact(model: MarkovRandomField, evidence: dict[int | str, int | str]) -> np.ndarray:
    """Flat marginals given evidence, from all configurations that agree with it."""
    observed = {model.variable_index(i): model.state_index(i, state) for i, state in evidence.items()}
    joint = oracle.joint(model)
    for i, state in observed.items():
        joint = joint * (np.arange(model.num_states[i]) == state).reshape([-1] + [1] * (joint.ndim - i - 1))
    axes = range(joint.ndim)
    marginals = [joint.sum(axis=tuple(a for a in axes if a != i)) for i in axes]
    return np.concatenate(marginals) / joint.sum()


def assert_close_to_exact(result: SampleResult, exact: np.ndarray) -> None:
    error = np.abs(result.node_marginals - exact)
    assert (error <= SIGMAS * result.std_error + CUT).all(), f"off by {(error / (result.std_error + CUT)).max():.1f}"


def assert_same(a: SampleResult, b: SampleResult) -> None:
    """Bit by bit the same answer."""
    for name in ("node_marginals", "std_error", "states", "ess", "r_hat"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("edge_marginals", "draws"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None)
        if x is not None:
            assert (type(x), x.dtype) == (type(y), y.dtype), name
            np.testing.assert_array_equal(x, y, err_msg=name)
    for one, other in zip(a.history, b.history, strict=True):
        assert one["sweep"] == other["sweep"]
        np.testing.assert_array_equal(one["marginals"], other["marginals"])
    assert a.status == b.status
    assert a.stats["num_sweeps"] == b.stats["num_sweeps"]


# -- stopping early ---------------------------------------------------------------------------------------------------


def stop_after(monkeypatch, calls: int, *, torn: bool = False) -> None:
    """Ctrl-C in one of the calls of ``sweep``; if torn, after half of its sweeps."""
    original, number = CpuChains.sweep, itertools.count(1)
    monkeypatch.setattr(chain_sampling, "SCOUT_CHAINS", 0)  # whose calls would count

    def sweep(self, num_sweeps, *, collect):
        if next(number) == calls:
            if torn:
                original(self, (num_sweeps + 1) // 2, collect=collect)
            raise KeyboardInterrupt
        original(self, num_sweeps, collect=collect)

    monkeypatch.setattr(CpuChains, "sweep", sweep)
