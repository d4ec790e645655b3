"""What pools of chains have in common wherever they run: moments, resampling and estimates of log Z."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.patches import Patch
from fastmix.model import MarkovRandomField

__all__ = ["ChainPool"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ChainPool(ABC):
    """Chains side by side on models that share a graph; the model can change between sweeps.

    Where the configurations are is up to the derived class: :class:`fastmix.chains.pool.Pool` has them in the
    memory of the host, :class:`fastmix.chains.cuda.pool.CudaPool` on an NVIDIA GPU.

    Parameters
    ----------
    model : MarkovRandomField
        Gives the graph and the state counts. Finite entries only.
    num_chains, seed : int

    Attributes
    ----------
    clock : Clock
        After its limit whatever takes long ends with an :class:`fastmix._clock.OutOfTimeError`.
    """

    clock: Clock = NO_LIMIT

    def __init__(self, model: MarkovRandomField, *, num_chains: int, seed: int) -> None:
        self.graph = model
        self.num_chains = num_chains
        self._rng = np.random.default_rng([seed, 1])

    # -- configurations ---------------------------------------------------------------------------------------------

    @abstractmethod
    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""

    @abstractmethod
    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (num_chains, n)."""

    @abstractmethod
    def save(self) -> Any:
        """A copy of the configurations for :meth:`restore`, in a form and a place of the pool's own."""

    @abstractmethod
    def restore(self, saved: Any) -> None:
        """Go back to the configurations that :meth:`save` returned."""

    @abstractmethod
    def _take(self, chosen: IntArray) -> None:
        """Let chain k have the configuration of chain ``chosen[k]``."""

    # -- moving -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, parameters: FloatArray) -> None:
        """Forget the states and draw every variable of every chain from its unary alone."""

    @abstractmethod
    def sweep(self, parameters: FloatArray, num_sweeps: int = 1) -> None:
        """Gibbs sweeps of all chains on the model with these parameters."""

    def _resample(self, log_weights: FloatArray) -> float:
        """Replace the chains by copies of themselves in proportion to weights; the log of the mean weight.

        Systematic resampling: the number of copies is the expected number, rounded up or down.
        """
        top = float(log_weights.max())
        weights = np.exp(log_weights - top)
        total = float(weights.sum())
        cumulative = np.cumsum(weights / total)
        places = (self._rng.random() + np.arange(self.num_chains)) / self.num_chains
        chosen = np.minimum(np.searchsorted(cumulative, places, side="right"), self.num_chains - 1)
        self._take(chosen)
        return top + math.log(total / self.num_chains)

    # -- reading ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def energies(self, parameters: FloatArray, patch: Patch | None = None) -> FloatArray:
        """``parameters . f(x)`` of every chain, where f are the indicators of all states and pairs of states.

        With a patch, only the terms of its variables and edges are added up.
        """

    @abstractmethod
    def _sums(self, weights: FloatArray) -> FloatArray:
        """Sum over the chains of ``weight * f(x)``, aligned with ``model.parameters``."""

    @abstractmethod
    def _products(self, parameters: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Sum over the chains of ``f(x)`` times the energy of the patch that f is in the core of, less its mean."""

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Mean over the chains of ``weight * f(x)``, aligned with ``model.parameters``; plain means without weights."""
        result = self._sums(np.ones(self.num_chains) if weights is None else weights)
        result /= self.num_chains
        return result

    def covariances(self, parameters: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariance over the chains of every indicator with ``parameters . f(x)``.

        For the indicators in the core of a patch the energy is that of the patch only.
        """
        result = self._products(parameters, patches)
        result /= self.num_chains - 1  # unbiased: the mean is estimated too
        return result

    # -- log Z ------------------------------------------------------------------------------------------------------

    def anneal(self, parameters: FloatArray, num_sweeps: int) -> float:
        """Bring fresh chains to a model, its tables growing with every sweep; an estimate of its log Z.

        Annealed importance sampling: from exact draws of the model without tables, whose log Z is a sum over
        variables, through ``num_sweeps`` models on the way. The estimate of Z is unbiased, so that of log Z is too
        small in the mean, by about half the variance of the log-weights over the number of chains. The constant of the
        model is left out.

        References
        ----------
        R. M. Neal, "Annealed importance sampling", Statistics and Computing 11, 2001.
        """
        self.start(parameters)
        split, starts = len(self.graph.log_unary), self.graph.unary_offsets[:-1]
        tables, partial = parameters.copy(), parameters.copy()
        tables[:split] = 0.0
        log_weights = np.zeros(self.num_chains)
        for k in range(1, num_sweeps + 1):
            self.clock.check()
            log_weights += self.energies(tables) / num_sweeps
            partial[split:] = parameters[split:] * (k / num_sweeps)
            self.sweep(partial)
        alone = np.logaddexp.reduceat(parameters[:split], starts).sum() if len(starts) else 0.0
        return float(alone + np.logaddexp.reduce(log_weights)) - math.log(self.num_chains)

    def anneal_population(self, parameters: FloatArray, num_sweeps: int) -> float:
        """Bring fresh chains to a model that may mix slowly, as far as that goes; an estimate of its log Z.

        Population annealing: all parameters grow from 0 with every sweep, and the chains are resampled by the weights
        of the change, so that those in unlikely valleys die out. As for :meth:`anneal` the estimate of Z is unbiased.

        References
        ----------
        K. Hukushima and Y. Iba, "Population annealing and its application to a spin glass", AIP Conference
        Proceedings 690, 2003.
        """
        self.start(np.zeros(len(parameters)))
        log_z = float(np.log(self.graph.num_states).sum())
        for k in range(1, num_sweeps + 1):
            self.clock.check()
            log_z += self._resample(self.energies(parameters) / num_sweeps)
            self.sweep(parameters * (k / num_sweeps))
        return log_z
