"""Ladders of replicas: states, moves and counts, in blocks of ladders that run on threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_threads
from fastmix.chains.engine import sums_by_state
from fastmix.chains.generator import make_streams
from fastmix.methods.tempering.path import Energies, TemperingPath
from fastmix.methods.tempering.sweeps import Sweeps, make_sweeps
from fastmix.methods.tempering.swendsen_wang_moves import SwendsenWangMoves

__all__ = ["Counts", "Ladder", "derive_seed"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PAIRS_EVERY = 20  # rounds between two exchanges of clusters between ladders
CLUSTERS_EVERY = 100  # rounds between two Swendsen-Wang sweeps
_MOST_COLLECTED = 255  # sweeps whose full units fit into 32 bits
_PERCOLATING = 0.9  # share of the largest cluster beyond which exchanging clusters only exchanges the ladders


@dataclass(frozen=True, eq=False)
class Counts:
    """What exchanges have added up; see :func:`fastmix.methods.tempering.kernels.exchange`.

    Attributes
    ----------
    sums : float array (6, K - 1, C)
    trips : int array (C,)
        Round trips of each ladder: replicas that came back to the lowest rung from the highest one.
    """

    sums: FloatArray
    trips: IntArray

    @property
    def rejection(self) -> FloatArray:
        """Rate at which the exchange between each rung and the next is rejected, (K - 1,)."""
        proposed, rejected = self.sums[:2].sum(axis=2)
        return np.asarray(rejected / np.maximum(proposed, 1.0))


@dataclass(eq=False)
class _Block:
    """The ladders from ``first`` to ``first + width - 1``; lane ``k * width + c`` is rung k of ladder ``first + c``."""

    first: int
    width: int
    x: NDArray[np.uint8]
    streams: NDArray[np.uint32]
    rung: NDArray[np.uint32]
    sums: NDArray[np.uint32]
    exchanges: FloatArray
    carrier: IntArray
    heading: NDArray[np.uint8]
    trips: IntArray
    clusters: IntArray
    swendsen_wang: SwendsenWangMoves | None


class Ladder:
    """C ladders of K replicas each along a path of models.

    A round is one Gibbs sweep of every replica, and then the proposal to exchange the configurations of rungs 0 and 1,
    2 and 3, .. or of 1 and 2, 3 and 4, .., in turn. Every ladder depends on the seed and its own number only.

    Parameters
    ----------
    path : TemperingPath
    seed : int
    pairs : bool
        Every 20 rounds, ladders 2 p and 2 p + 1 exchange clusters at every rung: the connected components of the
        variables in which they differ, each with probability 1/2 (Houdayer, 2001). Tables join variables of one
        component, or a variable of a component to one in which the ladders agree; either way the sum of the
        log-weights of the two stays the same, for any pairwise model. C must be even.
    clusters : bool
        Every 100 rounds, a Swendsen-Wang sweep of every replica; the path must be one for it.
    num_threads : int, optional
        All cores by default; the numbers drawn do not depend on it.

    Attributes
    ----------
    num_ladders : int
        C, the number of ladders that the configurations of the latest :meth:`set_rungs` were for.
    positions : float array (K,)
        Of the rungs on the path.
    sweeps, energies : Sweeps, Energies
        Of the path.
    device : str
        Where the rounds run: ``cpu`` or ``cuda``.
    """

    device = "cpu"
    shifts: FloatArray

    def __init__(
        self,
        path: TemperingPath,
        *,
        seed: int,
        pairs: bool = False,
        clusters: bool = False,
        num_threads: int | None = None,
    ) -> None:
        self.path, self.seed = path, seed
        self.pairs, self.clusters = pairs, clusters
        self.num_ladders = 0
        self.num_threads = check_threads(num_threads)
        self.sweeps: Sweeps = make_sweeps(path)
        self.energies = Energies(path)
        self.positions = np.zeros(0)
        self._phase = 0
        self._first_pair_rung = 0
        self._blocks: list[_Block] = []
        self._pool: ThreadPoolExecutor | None = None
        self._num_cuts = int((path.model.num_states - 1).sum())

    @property
    def num_rungs(self) -> int:
        """Replicas of a ladder."""
        return len(self.positions)

    @property
    def bytes_per_rung(self) -> float:
        """Memory that the tables of a rung take."""
        return self.sweeps.bytes_per_rung

    @property
    def bytes_per_lane(self) -> float:
        """Memory that a replica takes: its configuration twice, while rungs change, and its generator."""
        return 2.0 * (self.path.model.num_variables + 20.0)

    @property
    def updates_per_round(self) -> int:
        """Variables touched by one round."""
        return self.num_rungs * self.num_ladders * self.path.model.num_variables

    def set_rungs(self, positions: ArrayLike, states: NDArray[np.integer[Any]]) -> None:
        """New rungs: positions (K,) from 0 to 1 and configurations (K, C, n). Counts start anew."""
        from fastmix.methods.swendsen_wang_kernels import start_generators

        self.positions = np.asarray(positions, dtype=np.float64)
        num_rungs, num_ladders, n = states.shape
        self.num_ladders = num_ladders
        self._phase += 1
        seed = derive_seed(self.seed, self._phase)
        coefficients = self.path.coefficients(self.positions)
        self._gaps = np.diff(coefficients, axis=0)
        self._arguments = self.sweeps.arguments(coefficients)
        self.shifts = np.zeros(num_rungs - 1)
        self._round = self._swept = self._collected = 0
        self._first_pair_rung = 0
        self._totals = np.zeros((self._num_cuts, num_ladders))
        streams = make_streams(seed, 0, num_ladders * num_rungs).reshape(4, num_ladders, num_rungs)
        random = start_generators(seed, num_ladders * num_rungs if self.clusters else 0)
        random = random.reshape(-1, num_rungs, 4)
        self._blocks = []
        for first, width in self._shares():
            part = slice(first, first + width)
            lanes = num_rungs * width
            moves = None
            if self.clusters:
                own = np.ascontiguousarray(random[part].transpose(1, 0, 2))
                moves = SwendsenWangMoves(self.path, self.positions, own)
            block = _Block(
                first, width,
                x=np.ascontiguousarray(states[:, part].transpose(2, 0, 1).astype(np.uint8)).reshape(n, lanes),
                streams=np.ascontiguousarray(streams[:, part].transpose(0, 2, 1)).reshape(4, lanes),
                rung=np.repeat(np.arange(num_rungs, dtype=np.uint32), width),
                sums=np.zeros((self._num_cuts, width), dtype=np.uint32),
                exchanges=np.zeros((6, num_rungs - 1, width)),
                carrier=np.repeat(np.arange(num_rungs), width),
                heading=np.zeros(lanes, dtype=np.uint8),
                trips=np.zeros(width, dtype=np.int64),
                clusters=np.zeros((num_rungs, 3), dtype=np.int64),
                swendsen_wang=moves,
            )  # fmt: skip
            self._blocks.append(block)

    def _shares(self) -> list[tuple[int, int]]:
        """First ladder and number of ladders of every block: one block a thread, pairs of ladders kept together."""
        unit = 2 if self.pairs else 1
        units = self.num_ladders // unit
        shares = min(self.num_threads, units)
        bounds = [unit * (units * k // shares) for k in range(shares + 1)]
        return [(a, b - a) for a, b in pairwise(bounds)]

    def get_states(self) -> NDArray[np.uint8]:
        """Current configurations (K, num_ladders, n)."""
        n, num_rungs = self.path.model.num_variables, self.num_rungs
        return np.concatenate([b.x.reshape(n, num_rungs, b.width).transpose(1, 2, 0) for b in self._blocks], axis=1)

    def get_top_states(self) -> NDArray[np.uint8]:
        """Current configurations (num_ladders, n) at the highest rung, those of the target."""
        return np.concatenate([b.x[:, -b.width :].T for b in self._blocks])

    def advance(self, num_rounds: int, *, collect: bool) -> None:
        """Run rounds; ``collect`` adds up what the sweeps of the highest rung give."""
        while num_rounds > 0:
            count = num_rounds
            for every, active in ((PAIRS_EVERY, self.pairs), (CLUSTERS_EVERY, self.clusters)):
                if active:
                    count = min(count, every - self._round % every)
            if collect:
                if self._collected == _MOST_COLLECTED:
                    self._empty_sums()
                count = min(count, _MOST_COLLECTED - self._collected)
            self._parallel([partial(self._run, block, count, collect) for block in self._blocks])
            self._round += count
            self._collected += count if collect else 0
            num_rounds -= count

    def _run(self, block: _Block, count: int, collect: bool) -> None:
        from fastmix.methods.tempering.kernels import exchange

        sums = block.sums if collect else block.sums[:, :0]
        for r in range(self._round, self._round + count):
            self.sweeps.sweep(block.x, block.rung, self._arguments, block.streams, sums)
            exchange(
                block.x, r % 2, self._gaps, self.energies(block.x), block.streams, self.shifts, block.exchanges,
                block.carrier, block.heading, block.trips,
            )  # fmt: skip
        last = self._round + count
        if self.pairs and last % PAIRS_EVERY == 0:
            from fastmix.methods.tempering.houdayer_kernels import exchange_clusters

            graph = self.path.model.adjacency
            exchange_clusters(
                block.x, block.width, self._first_pair_rung, graph.indptr, graph.neighbors, block.streams,
                block.clusters,
            )  # fmt: skip
        if block.swendsen_wang is not None and last % CLUSTERS_EVERY == 0:
            block.swendsen_wang(block.x)

    # -- what was counted -------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """What exchanges have added up since the rungs were set, or since :meth:`clear`."""
        sums = np.concatenate([b.exchanges for b in self._blocks], axis=2)
        return Counts(sums, np.concatenate([b.trips for b in self._blocks]))

    def clear(self) -> None:
        """Forget counts and sums."""
        for block in self._blocks:
            for array in (block.exchanges, block.trips, block.sums, block.clusters):
                array[...] = 0
        self._totals[...] = 0.0
        self._swept = self._collected = 0

    def limit_pairs(self) -> int:
        """Leave out the rungs at which ladders differ in one cluster only; how many are left of those that exchange.

        Where the variables in which two ladders differ form a single cluster, exchanging it only gives the ladders
        each other's names. That is so at the lowest rungs of densely connected models, if anywhere.
        """
        counts = np.sum([block.clusters for block in self._blocks], axis=0)
        useful = np.flatnonzero(counts[:, 2] < _PERCOLATING * counts[:, 1])
        self._first_pair_rung = int(useful[0]) if useful.size else self.num_rungs
        return self.num_rungs - self._first_pair_rung

    def take_sums(self) -> FloatArray:
        """Sums over the states at the highest rung since the last call, (entries of log_unary, num_ladders).

        An entry is the sum of the conditional probabilities of the state at its updates; over all states of a variable
        they add up to the rounds collected.
        """
        self._empty_sums()
        sweeps, self._swept = self._swept, 0
        result = sums_by_state(self.path.model, self._totals, sweeps)
        self._totals[...] = 0.0
        return result

    def _empty_sums(self) -> None:
        for block in self._blocks:
            self._totals[:, block.first : block.first + block.width] += block.sums
            block.sums[...] = 0
        self._swept += self._collected
        self._collected = 0

    def _parallel(self, tasks: Sequence[Callable[[], object]]) -> None:
        if len(tasks) == 1:
            tasks[0]()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.num_threads)
        futures = [self._pool.submit(task) for task in tasks]
        try:
            for done in futures:
                done.result()
        finally:
            wait(futures)  # also after Ctrl-C: states must not be read while threads write them


def derive_seed(seed: int, *purpose: int) -> int:
    """A seed for one purpose, unrelated to those for others."""
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0])
