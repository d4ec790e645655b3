"""Persistent chains: they go on while the parameters of the model change, alone or as ladders of replica exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.chains.base import Chains
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.independent import independent_parameters
from fastmix.learning.tuning import CORRELATED, FIRST_RUNGS, LAGS, MIN_LADDERS, NOT_MIXED, PILOT_ROUNDS
from fastmix.model import MarkovRandomField
from fastmix.sampling.tempering.rungs import respace

__all__ = ["MakeChains", "PersistentChains", "autocorrelations", "correlation", "start_chains"]

#: Chains on the structure of the model, by their number and that of the parameter sets.
MakeChains = Callable[[int, int], Chains]


class PersistentChains:
    """Chains whose target moves: one chain each, or, after :meth:`temper`, a ladder of replica exchange.

    A ladder goes from the independent model of the data to the present model, which is the last of its rungs.

    Attributes
    ----------
    chains : Chains
    positions : list of float
        Where the rungs are between the two models, 0 to 1; empty without ladders.
    num_sweeps : int
        Sweeps made so far.
    """

    def __init__(
        self, template: MarkovRandomField, data: Dataset, make: MakeChains, num_chains: int, clock: Clock
    ) -> None:
        self.template = template
        self.data = data
        self.make = make
        self.clock = clock
        self.chains = make(num_chains, 1)
        self.positions: list[float] = []
        self.num_sweeps = 0
        self._weights_of_the_last: FloatArray | None = None

    @property
    def num_chains(self) -> int:
        """Chains at the present model."""
        return self.chains.num_chains

    @property
    def is_tempered(self) -> bool:
        """Whether every chain is a ladder."""
        return bool(self.positions)

    # -- going on later -----------------------------------------------------------------------------------------------

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs: arrays and plain data."""
        arrays: dict[str, NDArray[Any]] = {
            "states": self.chains.get_states(),
            "streams": self.chains.get_random_state(),
        }
        facts = {"positions": self.positions, "num_sweeps": self.num_sweeps, "num_chains": self.num_chains}
        return arrays, facts

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from what :meth:`pack` gave."""
        self.positions = facts["positions"]
        self.num_sweeps = facts["num_sweeps"]
        if self.positions:
            self.chains = self.make(facts["num_chains"], len(self.positions))
        self.chains.set_states(arrays["states"])
        self.chains.set_random_state(arrays["streams"])

    # -- replica exchange ---------------------------------------------------------------------------------------------

    def temper(self, theta: FloatArray) -> None:
        """Go on with ladders to the model with parameters theta, from where the chains are."""
        count = max(MIN_LADDERS, self.chains.num_chains // FIRST_RUNGS)
        states = np.resize(self.chains.get_states(), (count, self.template.num_variables))
        self.chains = self.make(count, FIRST_RUNGS)
        self.positions = np.linspace(0.0, 1.0, FIRST_RUNGS).tolist()
        self.chains.set_states(np.tile(states, (FIRST_RUNGS, 1)))
        self.load(theta)
        for _ in range(2):
            self.sweep(PILOT_ROUNDS)
            self.respace()

    def respace(self) -> None:
        """Have as many rungs as are needed, where exchanges are rejected equally often."""
        rejection = self.chains.exchanges().rejection
        positions, source = respace(np.array(self.positions), rejection, None)
        if len(positions) != len(self.positions):
            count = self.chains.num_chains
            n = self.template.num_variables
            states = self.chains.get_states().reshape(len(self.positions), count, n)[source]
            self.chains = self.make(count, len(positions))
            self.chains.set_states(states.reshape(-1, n))
        self.positions = positions.tolist()
        self.load(self._theta)

    # -- moving -------------------------------------------------------------------------------------------------------

    def load(self, theta: FloatArray) -> None:
        """Let theta be the parameters of the present model."""
        self._theta = theta
        self._weights_of_the_last = None
        self.chains.clock = self.clock
        if not self.positions:
            self.chains.load(theta)
            return
        self.chains.clear()
        shares = np.array(self.positions)
        base = independent_parameters(self.template, self.data)
        self.chains.load(np.stack([base, theta]), np.stack([1.0 - shares, shares], axis=1))
        self._weights_of_the_last = np.zeros(len(shares) * self.num_chains)
        self._weights_of_the_last[-self.num_chains :] = len(shares)

    def sweep(self, count: int) -> None:
        """Make sweeps; with ladders rounds of exchanges, one more where their number is odd."""
        if self.positions:
            # Pairs of rungs take turns: after an even number of rounds the next turn is known.
            self.chains.exchange_rounds(count + count % 2)
        else:
            self.chains.sweep(count)
        self.num_sweeps += count

    # -- reading ------------------------------------------------------------------------------------------------------

    def energies(self, theta: FloatArray | None = None) -> FloatArray:
        """Log-weights (C,) of the chains at the present model under theta, by default its own parameters."""
        return np.asarray(self.chains.energies(theta)[-1, -self.num_chains :])

    def moments(self) -> FloatArray:
        """Moments (P,) over the chains at the present model."""
        return self.chains.moments(self._weights_of_the_last)

    def moments_of_halves(self) -> list[FloatArray]:
        """Moments (P,) over either half of the chains at the present model."""
        count = self.num_chains
        num_sets = self.chains.num_sets
        weights = np.zeros((2, num_sets, count))
        weights[0, -1, : count // 2] = num_sets * count / (count // 2)
        weights[1, -1, count // 2 :] = num_sets * count / (count - count // 2)
        return [self.chains.moments(half) for half in weights.reshape(2, -1)]


def start_chains(chains: Chains, data: Dataset, num_states: IntArray, rng: np.random.Generator) -> None:
    """Put chains at rows of the data; what is missing there is drawn evenly."""
    chosen = rng.choice(len(data.states), size=chains.num_chains, p=data.weights)
    states = data.states[chosen].astype(np.int64)
    chains.set_states(np.where(states == MISSING, rng.integers(num_states, size=states.shape), states))


def autocorrelations(
    sweep: Callable[[int], None], energies: Callable[[], FloatArray], check: Callable[[], None]
) -> tuple[dict[int, float], bool]:
    """Correlations of the energies of chains with what they were some sweeps before, and whether they become small.

    Sweeps are made until a correlation is below 0.2, and 128 at most.
    """
    first = energies()
    done = 0
    found = {}
    for lag in LAGS:
        sweep(lag - done)
        done = lag
        check()
        found[lag] = correlation(first, energies())
        if found[lag] < CORRELATED:
            break
    return found, found[done] < NOT_MIXED


def correlation(a: FloatArray, b: FloatArray) -> float:
    """The correlation of two lists of numbers; 0 where one of them does not vary."""
    spread = float(a.std() * b.std())
    return 0.0 if spread == 0.0 else float(np.mean((a - a.mean()) * (b - b.mean()))) / spread
