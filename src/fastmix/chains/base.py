"""The interface of all chains: many configurations side by side on one structure, on the CPU or on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.chains.patches import Patch
from fastmix.chains.tuning import HOST_STEP_SECONDS, HOST_UPDATES_PER_STEP, SUM_CHUNK_ENTRIES
from fastmix.model import MarkovRandomField
from fastmix.model.shared import SharedTables
from fastmix.model.structure import Structure

__all__ = ["Chains", "Exchanges", "ParameterSets", "sums_by_state"]

SWEEP_UNIT = float(1 << 24)  # one sweep in the sums of the kernels


@dataclass(frozen=True, eq=False)
class ParameterSets:
    """Set k of parameters is ``coefficients[k] @ thetas``, and -inf where some theta is, whatever its coefficient."""

    thetas: FloatArray  # (D, P), finite: 0 where ``forbidden``
    coefficients: FloatArray  # (K, D)
    forbidden: NDArray[np.bool_] | None  # (P,)
    source: object = None  # what the thetas were made from: given again, they need not be looked at again
    tables: SharedTables | None = None  # the patterns that the weights in the thetas multiply, if tables are shared

    @classmethod
    def of(
        cls, thetas: ArrayLike, coefficients: ArrayLike | None = None, tables: SharedTables | None = None
    ) -> ParameterSets:
        """Parameter sets from the arguments of :meth:`fastmix.chains.base.Chains.load`.

        Examples
        --------
        >>> sets = ParameterSets.of([[1.0, -np.inf], [2.0, 3.0]], [[1.0, 0.0], [0.5, 2.0]])
        >>> sets.theta(0).tolist(), sets.theta(1).tolist()
        ([1.0, -inf], [4.5, -inf])
        """
        bases = np.atleast_2d(np.asarray(thetas, dtype=np.float64))
        forbidden = None
        if bases.size and bases.min() == -np.inf:
            forbidden = (bases == -np.inf).any(axis=0)
            bases = np.where(forbidden, 0.0, bases)
        return cls(bases, np.eye(len(bases)), forbidden, thetas, tables).scaled(coefficients)

    def scaled(self, coefficients: ArrayLike | None) -> ParameterSets:
        """Parameter sets with the same thetas and other coefficients (K, D), by default the identity."""
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
            only: FloatArray = self.thetas[0]
            return only
        theta: FloatArray = weights @ self.thetas
        if self.forbidden is not None:
            theta[self.forbidden] = -np.inf
        return theta

    def weights(self, split: int) -> FloatArray:
        """The weights (K, m), or (K, 2, m) with those of following patterns, of the shared tables of all sets."""
        assert self.tables is not None
        weights: FloatArray = self.coefficients @ self.thetas[:, split:]
        if self.tables.next_weights is None:
            return weights
        return weights.reshape(self.num_sets, 2, -1)

    def full_thetas(self, structure: Structure) -> FloatArray:
        """The thetas (D, P) with shared tables in full, as :meth:`fastmix.chains.base.Chains.load` takes them."""
        assert self.tables is not None
        thetas = self.thetas if self.forbidden is None else np.where(self.forbidden, -np.inf, self.thetas)
        split = int(structure.unary_offsets[-1])
        num_parameters = split + int(structure.pairwise_offsets[-1])
        required = 16.0 * len(thetas) * num_parameters
        check_memory(required, "laying out shared tables in full", "sample on the CPU with few chains")
        full = np.empty((len(thetas), num_parameters))
        for theta, out in zip(thetas, full, strict=True):
            out[:split] = theta[:split]
            tables = self.tables.with_weights(theta[split:])
            out[split:] = tables.flat(structure.pairwise_offsets, structure.table_shapes)
        return full

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
    """Sums over the proposals of replica exchange since it was set up, or since the sums were cleared.

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
    updates_per_step: float = HOST_UPDATES_PER_STEP  # updates of all configurations that are worth a call of `sweep`
    step_seconds: float = HOST_STEP_SECONDS  # seconds that a call should take
    device: str = "cpu"  # or the name of a GPU
    clock: Clock = NO_LIMIT  # after its limit whatever takes long ends with an ``OutOfTimeError``
    sets = ParameterSets.of(np.zeros((1, 0)))  # until some are loaded
    _mode = 0  # what kernels collect: 1 for conditional probabilities, 2 for counts
    _most_collected = 255  # sweeps whose full units fit into 32 bits: 256 of them would be 2^32, that is 0
    _collected = 0  # sweeps in the sums that kernels add to
    _swept = 0  # sweeps in the sums that were moved from there

    @property
    def num_parameters(self) -> int:
        """Entries P of all variables, edges and factors."""
        structure = self.structure
        return int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1] + structure.factor_offsets[-1])

    # -- parameters -------------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Let set k be ``coefficients[k] @ thetas``; states, random numbers and sums stay as they are.

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

    def load_shared(self, thetas: ArrayLike, tables: SharedTables, coefficients: ArrayLike | None = None) -> None:
        """Let set k be ``coefficients[k] @ thetas``, where thetas are unaries and weights of patterns that edges share.

        Each theta is as ``model.weight_parameters``, and ``tables`` has the patterns. Log-weights are linear in the
        weights, so that sets mix as those of :meth:`load` do. Chains that read no shared tables take them in full.
        """
        self.load(self._read_shared(thetas, tables, coefficients).full_thetas(self.structure), coefficients)

    def load_model(self, model: MarkovRandomField) -> None:
        """Load the parameters of a model on the structure of the chains: shared tables as they are."""
        if model.shared_tables is None:
            self.load(model.parameters)
        else:
            self.load_shared(model.weight_parameters, model.shared_tables)

    def load_sets(self, thetas: ArrayLike, tables: SharedTables | None, coefficients: ArrayLike | None = None) -> None:
        """Load mixtures of parameters: with shared ``tables`` by :meth:`load_shared`, otherwise by :meth:`load`."""
        if tables is None:
            self.load(thetas, coefficients)
        else:
            self.load_shared(thetas, tables, coefficients)

    def _read_sets(self, thetas: ArrayLike, coefficients: ArrayLike | None) -> ParameterSets:
        """Parameter sets from the arguments of :meth:`load`, whose shapes are checked."""
        if self.sets.source is thetas:
            return self._checked_sets(self.sets.scaled(coefficients), self.sets.thetas.shape[1])
        return self._checked_sets(ParameterSets.of(thetas, coefficients), self.num_parameters)

    def _read_shared(self, thetas: ArrayLike, tables: SharedTables, coefficients: ArrayLike | None) -> ParameterSets:
        """Parameter sets from the arguments of :meth:`load_shared`, whose shapes are checked."""
        num_weights = tables.use.num_edges * (1 if tables.next_weights is None else 2)
        if self.sets.source is thetas and self.sets.tables is tables:
            return self._checked_sets(self.sets.scaled(coefficients), self.sets.thetas.shape[1])
        sets = ParameterSets.of(thetas, coefficients, tables)
        return self._checked_sets(sets, int(self.structure.unary_offsets[-1]) + num_weights)

    def _checked_sets(self, sets: ParameterSets, num_parameters: int) -> ParameterSets:
        """The sets; a ValueError if they have another number, or thetas of another length."""
        if sets.num_sets != self.num_sets or sets.thetas.shape[1] != num_parameters:
            raise ValueError(
                f"thetas must have {num_parameters} parameters and make {self.num_sets} sets, got "
                f"{sets.thetas.shape[1]} and {sets.num_sets}"
            )
        return sets

    def prepare(self) -> None:  # noqa: B027 (most have nothing left to do)
        """Make the tables that sweeps read from the loaded parameters; without this, the first sweep makes them."""

    # -- configurations ---------------------------------------------------------------------------------------------

    @abstractmethod
    def get_states(self) -> IntArray:
        """The current configurations (K * C, n)."""

    @abstractmethod
    def set_states(self, states: NDArray[Any]) -> None:
        """Continue from these configurations (K * C, n)."""

    @abstractmethod
    def take(self, chosen: IntArray) -> None:
        """Replace configuration i by configuration ``chosen[i]`` (K * C,): resampling. Random streams stay in place."""

    def get_top_states(self) -> IntArray:
        """The configurations (C, n) at the last set, that of the target."""
        return self.get_states()[-self.num_chains :]

    def get_states_of(self, sets: IntArray) -> NDArray[Any]:
        """The current configurations (len(sets), C, n) at some of the sets."""
        if len(sets) == 1 and sets[0] == self.num_sets - 1:
            return self.get_top_states()[None]
        return self.get_states().reshape(self.num_sets, self.num_chains, -1)[sets]

    def save(self) -> Any:
        """A copy of the configurations for :meth:`restore`, in a format and memory that each kind of chains chooses."""
        return self.get_states()

    def restore(self, saved: Any) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self.set_states(saved)

    @abstractmethod
    def get_random_state(self) -> NDArray[np.uint64]:
        """The state of the random numbers, as one array that :meth:`set_random_state` takes."""

    @abstractmethod
    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with the random numbers that follow a state from :meth:`get_random_state`."""

    # -- moving -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps; with ``collect`` every sweep of the chains at the last set adds to the sums."""

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Set guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; they are zeros at first."""
        raise NotImplementedError(f"{type(self).__name__} has one set of parameters")

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Run rounds of replica exchange: a sweep, then exchanges of configurations between neighboring sets.

        Rounds propose to exchange sets 0 and 1, 2 and 3, .. and sets 1 and 2, 3 and 4, .. in turn. With the log-weights
        w_k of the sets and ``D_k = w_{k+1} - w_k``, the exchange of y at set k and z at set k + 1 is accepted with
        probability ``min(1, exp(D_k(y) - D_k(z)))``.
        """
        raise NotImplementedError(f"{type(self).__name__} has one set of parameters")

    def exchanges(self) -> Exchanges:
        """Sums over the proposals of exchanges since the chains were made, or since :meth:`clear`."""
        raise NotImplementedError(f"{type(self).__name__} has one set of parameters")

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        self.take_sums()

    def _pieces(self, num_sweeps: int, collect: bool) -> Iterator[tuple[int, int]]:
        """Numbers of sweeps that can be made at once, with their mode: 32-bit sums are emptied before they overflow."""
        if not collect:
            if num_sweeps > 0:
                yield num_sweeps, 0
            return
        while num_sweeps > 0:
            if self._collected == self._most_collected:
                self._empty_sums()
            count = min(num_sweeps, self._most_collected - self._collected)
            self._collected += count
            yield count, self._mode
            num_sweeps -= count

    def _empty_sums(self) -> None:
        """Move the 32-bit sums of the kernels to sums with more room."""
        self._swept += self._collected
        self._collected = 0

    # -- reading ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def take_sums(self) -> FloatArray:
        """Sums over the sweeps collected since the last call, (entries of log_unary, C / group_size); they start anew.

        An entry is the number of sweeps that ended in the state, or, Rao-Blackwellised, the sum of the conditional
        probabilities of the state at its updates; over all states of a variable they add up to the sweeps collected.
        """

    @abstractmethod
    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C), with the indicators f of all states and pairs.

        The thetas (D, P) or (P,) are the loaded ones by default. Given ones must be finite; where loaded ones are -inf
        they count as 0, because no configuration is in such a state.
        """

    @abstractmethod
    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Means over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,).

        Where shared tables are loaded, f are the derivatives of the log-weight by the loaded parameters: indicators of
        states, and for the weight of every edge the entry of its pattern.
        """

    def pattern_moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Derivatives of the mean log-weight by the entries of all shared patterns, flat, one after another.

        An entry is the mean over the configurations, times ``weights`` if given, of the weights of all edges that are
        in its pair of states.
        """
        raise NotImplementedError(f"{type(self).__name__} has no shared tables")

    @abstractmethod
    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariances over the configurations of every indicator with ``theta @ f(x)``, (P,).

        For the indicators in the core of a patch the energy is that of the patch only.
        """

    @abstractmethod
    def add_pairs(self, out: FloatArray, *, average: bool, clock: Clock = NO_LIMIT) -> None:
        """Add the edge marginals that the chains at the last set give to ``out``, laid out as log_pairwise.

        Every chain adds one unit to the table of each edge. With ``average`` the unit is made of conditional
        probabilities: half of it from either end, spread over the states of that end, given all other variables,
        beside the present state of the other end. Without, the unit goes to the present pair of states. Where the clock
        leaves no time for all chains, some add nothing.
        """


def sums_by_state(structure: Structure, totals: FloatArray, sweeps: int) -> FloatArray:
    """Sums of every state (entries of log_unary, columns) from the sums of the kernels, in sweeps.

    The sums of the kernels have a row for every state of a variable but the last, are cumulative over the states, and
    count 2^24 per sweep.
    """
    result = np.empty((int(structure.unary_offsets[-1]), totals.shape[1]))
    states = int(structure.num_states.max(initial=1))

    # Where all variables have as many states, slices do the work in a third of the time, some variables at a time.
    if states > 1 and (structure.num_states == states).all():
        by_variable = result.reshape(-1, states, totals.shape[1])
        given = totals.reshape(-1, states - 1, totals.shape[1])
        chunk = max(1, SUM_CHUNK_ENTRIES // (states * max(1, totals.shape[1])))
        for start in range(0, len(by_variable), chunk):
            sums = by_variable[start : start + chunk]
            np.multiply(given[start : start + chunk], 1.0 / SWEEP_UNIT, out=sums[:, :-1])
            np.subtract(float(sweeps), sums[:, -2], out=sums[:, -1])
            for state in range(states - 2, 0, -1):
                sums[:, state] -= sums[:, state - 1]
        return result

    # The last states get the number of sweeps; then every state but the first loses what the state before it has.
    inner = np.ones(len(result), dtype=bool)
    inner[structure.unary_offsets[1:] - 1] = False
    result[inner] = totals / SWEEP_UNIT
    result[~inner] = sweeps
    later = np.ones(len(result), dtype=bool)
    later[structure.unary_offsets[:-1]] = False
    result[later] -= result[np.flatnonzero(later) - 1].copy()
    return result
