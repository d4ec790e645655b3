"""The interface of all chains: many configurations side by side on one structure, on the CPU or on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_backend
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.patches import Patch
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.model.structure import Structure

__all__ = ["Chains", "Exchanges", "ParameterSets", "make_chains", "sums_by_state"]

_FULL = float(1 << 24)  # the unit of the kernels' sums: one sweep


@dataclass(frozen=True, eq=False)
class ParameterSets:
    """Set k of parameters is ``coefficients[k] @ thetas``, and -inf where some theta is, whatever its coefficient."""

    thetas: FloatArray  # (D, P), finite: 0 where ``forbidden``
    coefficients: FloatArray  # (K, D)
    forbidden: NDArray[np.bool_] | None  # (P,)
    source: object = None  # what the thetas were made from: given again, they need not be looked at again

    @classmethod
    def of(cls, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> ParameterSets:
        """From the arguments of :meth:`fastmix.chains.base.Chains.load`.

        Examples
        --------
        >>> sets = ParameterSets.of([[1.0, -np.inf], [2.0, 3.0]], [[1.0, 0.0], [0.5, 2.0]])
        >>> sets.theta(0).tolist(), sets.theta(1).tolist()
        ([1.0, -inf], [4.5, -inf])
        """
        bases, forbidden = np.atleast_2d(np.asarray(thetas, dtype=np.float64)), None
        if bases.size and bases.min() == -np.inf:
            forbidden = (bases == -np.inf).any(axis=0)
            bases = np.where(forbidden, 0.0, bases)
        return cls(bases, np.eye(len(bases)), forbidden, thetas).scaled(coefficients)

    def scaled(self, coefficients: ArrayLike | None) -> ParameterSets:
        """Sets with the same thetas and other coefficients (K, D), by default the identity."""
        size = len(self.thetas)
        weights = np.eye(size) if coefficients is None else np.asarray(coefficients, dtype=np.float64)
        if weights.ndim != 2 or weights.shape[1] != size:
            raise ValueError(f"coefficients must have shape (sets, {size}), got {weights.shape}")
        return replace(self, coefficients=weights)

    @property
    def num_sets(self) -> int:
        """Number of sets K."""
        return len(self.coefficients)

    def theta(self, k: int) -> FloatArray:
        """The parameters (P,) of set k."""
        weights = self.coefficients[k]
        if len(weights) == 1 and weights[0] == 1.0 and self.forbidden is None:
            return self.thetas[0]
        theta = weights @ self.thetas
        if self.forbidden is not None:
            theta[self.forbidden] = -np.inf
        return np.asarray(theta)

    def linear(self) -> tuple[FloatArray, FloatArray]:
        """Thetas (D', P) and coefficients (K, D') that give the sets by plain sums, forbidden entries included."""
        if self.num_sets == 1:
            return self.theta(0)[None], np.ones((1, 1))
        if self.forbidden is None:
            return self.thetas, self.coefficients
        hard = np.where(self.forbidden, -np.inf, 0.0)
        return np.vstack([self.thetas, hard]), np.hstack([self.coefficients, np.ones((self.num_sets, 1))])


@dataclass(frozen=True, eq=False)
class Exchanges:
    """What replica exchange has added up since it was set up, or since the sums were cleared.

    Attributes
    ----------
    sums : float array (6, K - 1, C)
        For each pair of neighboring sets and each chain, with ``D = w_{k+1} - w_k``, the difference of the log-weights:
        proposals, probabilities of rejection, D at the lower and at the upper set, ``f(D - s_k)`` at the lower and
        ``f(s_k - D)`` at the upper set, where ``f(z) = 1 / (1 + exp(-z))`` and s_k is a guess of
        ``log Z_{k+1} / Z_k``.
    trips : int array (C,)
        Round trips of the replicas of each chain: from the lowest set to the highest and back.
    """

    sums: FloatArray
    trips: IntArray

    @property
    def rejection(self) -> FloatArray:
        """Rate at which the exchange between each set and the next is rejected, (K - 1,)."""
        proposed, rejected = self.sums[:2].sum(axis=2)
        return np.asarray(rejected / np.maximum(proposed, 1.0))


class Chains(ABC):
    """C chains at each of K parameter sets, all on one structure and at the same sweep.

    Sampling and pools have one set (K = 1). A ladder of replica exchange has K: configuration ``k * C + c`` is chain
    (ladder) c at set (rung) k. It depends on the seed, c, k and K only, never on the number of chains or threads.
    """

    structure: Structure
    num_chains: int  # C
    num_sets: int = 1  # K
    group_size: int = 1  # chains that are added up together in the sums, a divisor of their number
    updates_per_step: float = 2e7  # of all configurations together, that are worth a call of :meth:`sweep`
    step_seconds: float = 0.1  # that a call should take
    device: str = "cpu"  # or the name of a GPU
    clock: Clock = NO_LIMIT  # after its limit whatever takes long ends with an ``OutOfTimeError``
    sets = ParameterSets.of(np.zeros((1, 0)))  # until some are loaded
    _mode = 0  # of kernels that collect: 1 for conditional probabilities, 2 for counts
    _most_collected = 255  # sweeps whose full units fit into 32 bits: 256 of them would be 2^32, that is 0
    _collected = _swept = 0  # sweeps in the sums as kernels add to them, and in what was moved from there

    @property
    def num_parameters(self) -> int:
        """Entries P of all variables, edges and factors."""
        structure = self.structure
        return int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1] + structure.factor_offsets[-1])

    # -- parameters -------------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Set k becomes ``coefficients[k] @ thetas``; states, random numbers and sums stay as they are.

        Parameters
        ----------
        thetas : float array (P,) or (D, P)
            Each as ``model.parameters``: unaries, then tables. An entry of -inf in one of them is forbidden in all
            sets, whatever the coefficients.
        coefficients : float array (K, D), optional
            The identity by default: D = K, one theta for each set.

        Loading again the same array object with other coefficients (the next step of annealing) is cheaper than
        loading another.
        """

    def _read_sets(self, thetas: ArrayLike, coefficients: ArrayLike | None) -> ParameterSets:
        """The arguments of :meth:`load`, checked."""
        same = self.sets.source is thetas
        sets = self.sets.scaled(coefficients) if same else ParameterSets.of(thetas, coefficients)
        if sets.num_sets != self.num_sets or sets.thetas.shape[1] != self.num_parameters:
            raise ValueError(
                f"thetas must have {self.num_parameters} parameters and make {self.num_sets} sets, got "
                f"{sets.thetas.shape[1]} and {sets.num_sets}"
            )
        return sets

    # -- configurations ---------------------------------------------------------------------------------------------

    @abstractmethod
    def get_states(self) -> IntArray:
        """Current configurations (K * C, n)."""

    @abstractmethod
    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (K * C, n)."""

    @abstractmethod
    def take(self, chosen: IntArray) -> None:
        """Let configuration i be that of ``chosen[i]`` (K * C,): resampling. Random numbers stay where they are."""

    def get_top_states(self) -> IntArray:
        """Configurations (C, n) at the last set, that of the target."""
        return self.get_states()[-self.num_chains :]

    def save(self) -> Any:
        """A copy of the configurations for :meth:`restore`, in a form and a place of the chains' own."""
        return self.get_states()

    def restore(self, saved: Any) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self.set_states(saved)

    @abstractmethod
    def get_random_state(self) -> NDArray[np.uint64]:
        """All the randomness still to come, as one array that :meth:`set_random_state` takes back."""

    @abstractmethod
    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue as chains did that gave this state."""

    # -- moving -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps; with ``collect`` add what every sweep of the chains at the last set gives to the sums."""

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; zeros at first."""
        raise NotImplementedError(f"{type(self).__name__} has one set of parameters")

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Rounds of replica exchange: a sweep, then the exchange of configurations between neighboring sets.

        Rounds propose to exchange sets 0 and 1, 2 and 3, .. and sets 1 and 2, 3 and 4, .. in turn. With the log-weights
        w_k of the sets and ``D_k = w_{k+1} - w_k``, the exchange of y at set k and z at set k + 1 is accepted with
        probability ``min(1, exp(D_k(y) - D_k(z)))``.
        """
        raise NotImplementedError(f"{type(self).__name__} has one set of parameters")

    def exchanges(self) -> Exchanges:
        """What exchanges have added up."""
        raise NotImplementedError(f"{type(self).__name__} has one set of parameters")

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        self.take_sums()

    def _pieces(self, num_sweeps: int, collect: bool) -> Iterator[tuple[int, int]]:
        """Sweeps that can be made at once, and their mode: sums of 32 bits are emptied before they can overflow."""
        while num_sweeps > 0:
            if collect and self._collected == self._most_collected:
                self._empty_sums()
            count = min(num_sweeps, self._most_collected - self._collected) if collect else num_sweeps
            self._collected += count if collect else 0
            yield count, self._mode if collect else 0
            num_sweeps -= count

    def _empty_sums(self) -> None:
        """Move the sums of kernels to where there is more room."""
        self._swept += self._collected
        self._collected = 0

    # -- reading ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def take_sums(self) -> FloatArray:
        """Sums over the sweeps collected since the last call, (entries of log_unary, C / group_size), and start anew.

        An entry is the number of sweeps that ended in the state, or, Rao-Blackwellised, the sum of the conditional
        probabilities of the state at its updates; over all states of a variable they add up to the sweeps collected.
        """

    @abstractmethod
    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C), with the indicators f of all states and pairs.

        The thetas (D, P) or (P,) are those that are loaded by default; finite entries only (those of -inf that are
        loaded count as 0: no configuration holds them).
        """

    @abstractmethod
    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Mean over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,)."""

    @abstractmethod
    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariance over the configurations of every indicator with ``theta @ f(x)``, (P,).

        For the indicators in the core of a patch the energy is that of the patch only.
        """

    @abstractmethod
    def add_pairs(self, out: FloatArray, *, average: bool, clock: Clock = NO_LIMIT) -> None:
        """Add what the chains at the last set say about the pairs of states on every edge to ``out``, as log_pairwise.

        Edge marginals mean the same on every device: with ``average`` the conditional probabilities of either end of
        an edge, given all other variables, beside the present state of the other end, half a unit from each; else the
        present pairs are counted. Either way every chain adds one unit to each edge; some chains do nothing where the
        clock leaves no time for all.
        """


def make_chains(backend: str, make_cpu: Callable[[], Any], make_cuda: Callable[[], Any]) -> tuple[Any, str]:
    """Chains, or ladders, on the backend that was asked for, ``cpu``, ``cuda`` or ``auto``, and what they run on."""
    check_backend(backend)
    if backend == "cpu":
        return make_cpu(), "cpu"
    try:
        chains = make_cuda()
    except (UnfitMethodError, ResourceError, ValueError) as error:
        if backend == "cuda":
            raise
        return make_cpu(), f"cpu ({error})"
    return chains, f"cuda ({chains.device})"


def device_of(place: str) -> str:
    """The device, from what :func:`make_chains` says about where chains run.

    Examples
    --------
    >>> device_of("cuda (NVIDIA H200)"), device_of("cpu (no CUDA device can be used)")
    ('NVIDIA H200', 'cpu')
    """
    return "cpu" if place.startswith("cpu") else place.removeprefix("cuda (").removesuffix(")")


def sums_by_state(structure: Structure, totals: FloatArray, sweeps: int) -> FloatArray:
    """Sums of every state (entries of log_unary, columns) from those of the kernels.

    These have a row for every state of a variable but the last, are cumulative over the states, and count 2^24 per
    sweep.
    """
    result = np.empty((int(structure.unary_offsets[-1]), totals.shape[1]))
    states = int(structure.num_states.max(initial=1))
    if states > 1 and (structure.num_states == states).all():  # the same with slices, which take a third of the time
        by_variable = result.reshape(-1, states, totals.shape[1])
        np.multiply(totals.reshape(-1, states - 1, totals.shape[1]), 1.0 / _FULL, out=by_variable[:, :-1])
        np.subtract(float(sweeps), by_variable[:, -2], out=by_variable[:, -1])
        for state in range(states - 2, 0, -1):
            by_variable[:, state] -= by_variable[:, state - 1]
        return result
    inner = np.ones(len(result), dtype=bool)
    inner[structure.unary_offsets[1:] - 1] = False
    result[inner] = totals / _FULL
    result[~inner] = sweeps
    later = np.ones(len(result), dtype=bool)
    later[structure.unary_offsets[:-1]] = False
    result[later] -= result[np.flatnonzero(later) - 1].copy()
    return result
