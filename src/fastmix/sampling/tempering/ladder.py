"""Ladders of replicas along a path of models, from the uniform distribution to the one asked about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import check_threads
from fastmix._clock import NO_LIMIT, Clock
from fastmix._context import stream_seed
from fastmix.chains.base import Chains
from fastmix.chains.cpu import CpuChains, Kernel
from fastmix.chains.layout import Layout
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.factor_forms import center_factors
from fastmix.model.forms import center_pairs
from fastmix.model.shared import SharedTables
from fastmix.sampling.tuning import PAIRS_EVERY, SHARED_LANES

if TYPE_CHECKING:
    from fastmix.chains.cuda.device import Launch
    from fastmix.chains.sharing import Sharing
    from fastmix.executors import Pool

__all__ = ["CudaLadder", "Ladder", "TemperingPath", "make_path"]


@dataclass(frozen=True, eq=False)
class TemperingPath:
    """Models ``p_s(x) ~ exp(s^1.5 U(x) + s V(x))`` for s from 0 to 1, the last one the target.

    U is the sum of the unaries, which grow more slowly at first, and V the sum of all tables. On a path of temperatures
    both grow alike, as ``exp(s U(x) + s V(x))``: s is the temperature of the target over that of the model at s.
    """

    model: MarkovRandomField  # the target, as :func:`make_path` writes it
    of_temperatures: bool = False

    @property
    def forbidden(self) -> bool:
        """Whether there are entries of the tables that are -inf in all models of the path."""
        return self.model.has_forbidden

    @property
    def log_z(self) -> float | None:
        """Log Z of the model at s = 0; None if forbidden pairs leave it unknown."""
        return None if self.forbidden else self.model.log_constant + float(np.log(self.model.num_states).sum())

    def coefficients(self, positions: ArrayLike) -> FloatArray:
        """The factors of U and V at positions (K,) as an array (K, 2)."""
        s = np.asarray(positions, dtype=np.float64)
        return np.stack([s if self.of_temperatures else s**1.5, s], axis=-1)

    @cached_property
    def layout(self) -> Layout:
        """The layout that all chains along the path read, made once."""
        return Layout(self.model.structure)

    @cached_property
    def thetas(self) -> FloatArray:
        """Parameters (2, P) whose mixtures by :meth:`coefficients` are the models of the path.

        Where tables are shared, these are unaries and weights of patterns.
        """
        split = len(self.model.log_unary)
        parameters = self.model.parameters if self.tables is None else self.model.weight_parameters
        thetas = np.zeros((2, len(parameters)))
        thetas[0, :split] = parameters[:split]
        thetas[1, split:] = parameters[split:]
        return thetas

    @property
    def tables(self) -> SharedTables | None:
        """The patterns that edges share, if they do."""
        return self.model.shared_tables


def make_path(model: MarkovRandomField, temperature: float | None = None) -> TemperingPath:
    """The path to a model without states that a unary forbids; with a temperature, that of temperatures down to it.

    It does not depend on how the model happens to be written: what depends on one variable, or on none, is moved from
    the tables to unaries and constant, unless pairs are forbidden.
    """
    of_temperatures = temperature is not None
    if temperature is not None and temperature != 1.0:
        model = model.at_temperature(temperature)
    if model.has_forbidden:  # in tables: no unary forbids anything
        return TemperingPath(model, of_temperatures)
    centered = center_pairs(center_factors(model))
    unary = centered.log_unary.copy()
    constant = centered.log_constant
    if model.num_variables:
        means = np.add.reduceat(unary, model.unary_offsets[:-1]) / model.num_states
        unary -= np.repeat(means, model.num_states)
        constant += float(means.sum())
    return TemperingPath(centered.replace(log_unary=unary, log_constant=constant), of_temperatures)


class Ladder:
    """C ladders of K replicas each along a path of models.

    With ``pairs`` (C must be even), ladders 2 p and 2 p + 1 exchange clusters at every rung every 20 rounds: the
    connected components of the variables in which they differ, each with probability 1/2 (Houdayer, 2001). Tables join
    variables of one component, or a variable of a component to one in which the ladders agree; either way the sum of
    the log-weights of the two stays the same, for any pairwise model. Ladders come ``per_ensemble`` to an independent
    ensemble, by default 2 with ``pairs`` and 1 without.
    """

    device = "cpu"
    step_seconds = 0.1

    def __init__(
        self,
        path: TemperingPath,
        *,
        seed: int,
        pairs: bool = False,
        per_ensemble: int | None = None,
        num_threads: int | None = None,
        pool: Pool | None = None,
        clock: Clock = NO_LIMIT,
        kernel: Kernel | None = None,
    ) -> None:
        self.path = path
        self.seed = seed
        self.pool = pool
        self._clock = clock
        self._kernel = kernel
        self.sharing: Sharing | None = None
        self.pairs = pairs
        self.per_ensemble = per_ensemble or (2 if pairs else 1)
        self.num_ladders = 0
        self.num_threads = check_threads(num_threads)
        self.positions = np.zeros(0)
        self._phase = 0
        self.chains: Chains

    def _make_chains(self, num_rungs: int, num_ladders: int, seed: int) -> Chains:
        """Chains for all replicas, with one parameter set per rung."""
        return CpuChains(
            self.path.model.structure,
            num_chains=num_ladders,
            num_sets=num_rungs,
            seed=seed,
            num_threads=self.num_threads,
            forbidden=self.path.forbidden,
            kernel=self._kernel,
            layout=self.path.layout,
        )

    @property
    def num_rungs(self) -> int:
        """Replicas of a ladder."""
        return len(self.positions)

    def set_rungs(self, positions: ArrayLike, states: NDArray[np.integer[Any]]) -> None:
        """New rungs: positions (K,) from 0 to 1 and configurations (K, C, n). Counts start anew."""
        self.positions = np.asarray(positions, dtype=np.float64)
        num_rungs, self.num_ladders, n = states.shape
        self._phase += 1
        seed = stream_seed(self.seed, "rungs", self._phase)
        self.chains = self._make_chains(num_rungs, self.num_ladders, seed)
        self.chains.load_sets(self.path.thetas, self.path.tables, self.path.coefficients(self.positions))
        self.chains.set_states(states.reshape(num_rungs * self.num_ladders, n))
        self.chains.prepare()
        self.set_shifts(np.zeros(num_rungs - 1))
        self._round = 0
        if self.pool is not None and isinstance(self.chains, CpuChains):
            from fastmix.chains.sharing import Sharing

            lost = "" if self.sharing is None else self.sharing.lost
            make = partial(_twin, self.path, self.positions, self.pairs, self.chains.kernel)
            least = self.per_ensemble * -(-SHARED_LANES // (self.per_ensemble * num_rungs))
            self.sharing = Sharing(self.pool, make, self.num_ladders, least=least, clock=self._clock)
            self.sharing.lost = lost
            self.step_seconds = self.sharing.step_seconds

    @property
    def phase(self) -> int:
        """How often the rungs have been set."""
        return self._phase

    def go_on(self, positions: FloatArray, num_ladders: int, phase: int) -> None:
        """Rungs as they were when :attr:`phase` was this, for :meth:`unpack` to fill in the rest."""
        self._phase = phase - 1
        states = np.zeros((len(positions), num_ladders, self.path.model.num_variables), dtype=np.uint8)
        self.set_rungs(positions, states)

    def pack(self, first: int, last: int) -> tuple[Any, ...]:
        """All that changes about some ladders."""
        assert isinstance(self.chains, CpuChains)
        return self.chains.pack(first, last), self.shifts, self._round

    def unpack(self, first: int, last: int, parts: tuple[Any, ...]) -> None:
        """Let some ladders go on from what others were."""
        assert isinstance(self.chains, CpuChains)
        chains, shifts, self._round = parts
        self.set_shifts(shifts)
        self.chains.unpack(first, last, chains)

    def set_shifts(self, values: FloatArray) -> None:
        """Guesses of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator (K - 1,)."""
        self.shifts = values
        self.chains.set_shifts(values)

    def get_states(self) -> NDArray[np.uint8]:
        """Current configurations (K, num_ladders, n)."""
        return self.chains.get_states().astype(np.uint8).reshape(self.num_rungs, self.num_ladders, -1)

    def advance(self, num_rounds: int, *, collect: bool) -> None:
        """Run rounds; ``collect`` adds up what the sweeps of the highest rung give."""
        if self.sharing is not None and self.sharing.call(self, "advance", num_rounds, collect=collect):
            return
        while num_rounds > 0:
            count = min(num_rounds, PAIRS_EVERY - self._round % PAIRS_EVERY) if self.pairs else num_rounds
            self.chains.exchange_rounds(count, collect=collect)
            self._round += count
            num_rounds -= count
            if isinstance(self.chains, CpuChains) and self.pairs and self._round % PAIRS_EVERY == 0:
                self.chains.on_lanes(self._exchange_clusters)

    def _exchange_clusters(self, block: Any, x: NDArray[Any], streams: NDArray[np.uint32]) -> None:
        """Exchange clusters between paired ladders at every rung, in place (Houdayer's move)."""
        from fastmix.sampling.cluster_kernels import exchange_clusters

        graph = self.path.model.adjacency
        exchange_clusters(x, block.width, graph.indptr, graph.neighbors, streams)


class CudaLadder(Ladder):
    """Ladders on a GPU: the rounds of :class:`Ladder` with other random numbers and without cluster moves.

    ``per_ensemble`` ladders share words on the device: their number must be a multiple of it. ``launch`` is for tests.
    """

    def __init__(self, path: TemperingPath, *, seed: int, launch: Launch | None = None) -> None:
        from fastmix.chains.cuda.device import choose_cuda_kernel, cuda_available, require_cuda

        require_cuda()
        super().__init__(path, seed=seed, num_threads=1)
        kernel = choose_cuda_kernel(path.model.structure, 1 << 10, num_sets=2, forbidden=path.forbidden)
        self.per_ensemble = 32 if kernel.startswith("packed") else 4
        if not path.model.num_edges:
            raise UnfitMethodError("backend must be cpu for tempering a model without edges, got cuda")
        self._launch = launch
        self.device = cuda_available()[1]

    def _make_chains(self, num_rungs: int, num_ladders: int, seed: int) -> Chains:
        """Chains on the GPU for all replicas, with one parameter set per rung."""
        from fastmix.chains.cuda.chains import CudaChains

        return CudaChains(
            self.path.model.structure,
            num_chains=num_ladders,
            num_sets=num_rungs,
            seed=seed,
            group_size=self.per_ensemble,
            forbidden=self.path.forbidden,
            launch=self._launch,
        )


def _twin(path: TemperingPath, positions: FloatArray, pairs: bool, kernel: Kernel, num_ladders: int) -> Ladder:
    """Ladders of a worker that are to go on from some of those of another process."""
    ladder = Ladder(path, seed=0, pairs=pairs, num_threads=1, kernel=kernel)
    ladder.set_rungs(positions, np.zeros((len(positions), num_ladders, path.model.num_variables), dtype=np.uint8))
    return ladder
