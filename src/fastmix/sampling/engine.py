"""What every sampler looks like from outside: chains that advance by sweeps and add up what they see."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from fastmix.model import PairwiseMRF

__all__ = ["Engine"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Engine(ABC):
    """A set of independent chains on one model, all at the same sweep.

    The model has no evidence left and no state that its unary forbids. Chains are numbered; chain c depends on the
    seed and on c only, never on the number of threads.

    Attributes
    ----------
    model : PairwiseMRF
    num_chains : int
    updates_per_sweep : int
        Variables touched by one sweep of one chain.
    group_size : int
        Chains that are added up together in the sums, a divisor of their number.
    updates_per_step : float
        Updates, of all chains together, that are worth a call of :meth:`advance`: a fraction of a second of work.
    device : str
        What the chains run on.
    """

    model: PairwiseMRF
    num_chains: int
    group_size: int = 1
    updates_per_step: float = 2e7
    device: str = "cpu"

    @property
    def updates_per_sweep(self) -> int:
        """Variables touched by one sweep of one chain."""
        return self.model.num_variables

    @abstractmethod
    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""

    @abstractmethod
    def set_states(self, states: IntArray) -> None:
        """Start from these configurations (num_chains, n)."""

    @abstractmethod
    def advance(self, num_sweeps: int, *, collect: bool) -> None:
        """Run sweeps; with ``collect`` add what every sweep gives to the sums."""

    @abstractmethod
    def take_sums(self) -> FloatArray:
        """Sums over the sweeps collected since the last call, (entries of log_unary, groups of chains), and start anew.

        An entry is the number of sweeps that ended in the state, or, Rao-Blackwellised, the sum of the conditional
        probabilities of the state at its updates; over all states of a variable they add up to the sweeps collected.
        """

    @abstractmethod
    def get_random_state(self) -> NDArray[np.uint64]:
        """All the randomness still to come, as one array that :meth:`set_random_state` takes back."""

    @abstractmethod
    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue as an engine did that gave this state."""
