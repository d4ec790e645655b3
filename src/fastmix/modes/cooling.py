"""Simulated annealing: of spins, read after read, recombined with the best so far; of any model, by chains."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._context import Context
from fastmix.chains.cpu import CpuChains
from fastmix.chains.generator import make_streams
from fastmix.model import MarkovRandomField
from fastmix.model.forms import IsingForm
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import (
    COLDEST_SPINS,
    FIRST_SWEEPS_OF_SPINS,
    HOTTEST_SPINS,
    LOOKS_PER_CALL,
    MAX_SHARE_OF_READ,
    READS_PER_LENGTH,
    REHEATED,
)

__all__ = ["SpinCooling", "cool_chains", "cool_spins", "spin_scales"]


def cool_spins(run: ModeRun, form: IsingForm) -> None:
    """Offer what annealing from random spins leads to, until the gap is closed or the time is over.

    A read cools down once. Every other one begins with random spins, the rest with the best configuration so far and
    at a lower temperature, which keeps some of it. The best configuration of a read goes through a descent, and then is
    taken over piece by piece where that is better than the best one so far (:meth:`ModeRun.cross`). After a few reads
    of one length the next ones are twice as long, as long as a read remains a small share of the time.
    """
    clock = run.clock
    cooling = SpinCooling(run.model, form, run.context.seed_of("spins"))
    starts = run.context.rng("starts")
    num_sweeps = FIRST_SWEEPS_OF_SPINS
    num_reads = 0
    while not run.is_over:
        begun = clock.used()
        for _ in range(READS_PER_LENGTH):
            states = run.states if num_reads % 2 == 1 else None
            begin = 0.0 if states is None else REHEATED
            if states is None:
                states = starts.integers(0, 2, size=run.model.num_variables)
            cooling.start(2 * states - 1)
            num_reads += 1
            clock.report(num_reads, None, "reads")
            for part in cooling.parts(num_sweeps, begin):
                cooling.sweep(part)
                if clock.past():
                    break
            run.cross(run.descend(cooling.best_states()))
            if run.is_over:
                break
        seconds = (clock.used() - begun) / READS_PER_LENGTH
        if clock.limit is None or 2.0 * seconds < MAX_SHARE_OF_READ * clock.limit:
            num_sweeps *= 2
    run.count("reads of annealing", num_reads)
    run.stats["num_annealing_sweeps"] = num_sweeps


def spin_scales(form: IsingForm, degrees: IntArray, owner: IntArray, couplings: FloatArray) -> tuple[float, float]:
    """Inverse temperatures at the start, where no field matters much, and at the end, where the usual one decides.

    The field that neighbors with random spins make at a spin has the variance ``sum_j J_ij^2 + h_i^2``. Annealing
    begins where the largest of these deviations hardly matters, and ends where flips against the usual one, or against
    the usual coupling, have become rare, whichever comes first.
    """
    variance = np.bincount(owner, couplings**2, minlength=len(degrees)) + form.field**2
    return _scales(variance, couplings)


def _scales(variance: FloatArray, couplings: FloatArray) -> tuple[float, float]:
    """Inverse temperatures at the start and at the end by the variances of fields at variables, and the couplings."""
    spread = np.sqrt(variance[variance > 0.0])
    if not len(spread):
        return 1.0, 1.0
    usual_spread = float(np.median(spread))
    sizes = np.abs(couplings[couplings != 0.0])
    usual_coupling = float(np.median(sizes)) if len(sizes) else usual_spread
    coldest = min(COLDEST_SPINS[0] / usual_spread, COLDEST_SPINS[1] / usual_coupling)
    hottest = min(HOTTEST_SPINS / usual_spread, 2.0 * HOTTEST_SPINS / float(spread.max()))
    return hottest, max(coldest, 2.0 * hottest)


def cool_chains(model: MarkovRandomField, num_reads: int, num_sweeps: int, context: Context) -> IntArray:
    """The best configurations (num_reads, n) of chains of any model that cool down side by side.

    A table counts as a coupling of the standard deviation of its entries. Nothing may be forbidden.
    """
    if not model.num_variables:
        return np.zeros((num_reads, 0), dtype=np.int64)
    chains = CpuChains(
        model.structure,
        num_chains=num_reads,
        seed=context.seed_of("chains"),
        num_threads=context.num_threads,
        steady=False,
    )
    thetas = model.parameters[None]
    chains.load(thetas, [[0.0]])
    chains.sweep(1)
    variance = np.zeros(model.num_variables)
    couplings = []
    for variables, table in model.terms():
        variance[variables] += table.var()
        if len(variables) > 1:
            couplings.append(float(table.std()))
    hottest, coldest = _scales(variance, np.array(couplings))
    best = chains.get_states()
    values = np.full(num_reads, -np.inf)
    for scale in np.linspace(hottest, coldest, num_sweeps):
        chains.load(thetas, [[scale]])
        chains.sweep(1)
        energies = chains.energies()[0]
        better = energies > values
        if better.any():
            values[better] = energies[better]
            best[better] = chains.get_states()[better]
        if context.clock.past():
            break
    return best


class SpinCooling:
    """Spins that cool down, with the gain of every flip and the best configuration since they were started.

    Parameters
    ----------
    model : MarkovRandomField
        Binary variables and pairs, nothing forbidden.
    form : IsingForm
        The same in spins.
    seed : int
    """

    def __init__(self, model: MarkovRandomField, form: IsingForm, seed: int) -> None:
        graph = model.adjacency
        owner = np.repeat(np.arange(model.num_variables), graph.degree)
        self.fields = form.field
        self.couplings = np.ascontiguousarray(form.coupling[graph.edge_ids])
        self.indptr = graph.indptr
        self.neighbors = graph.neighbors.astype(np.int32)
        self.hottest, self.coldest = spin_scales(form, graph.degree, owner, self.couplings)
        self.stream = np.ascontiguousarray(make_streams(seed, 0, 1)[:, 0])
        self.spins = np.ones(model.num_variables, dtype=np.int8)
        self.gains = np.zeros(model.num_variables)
        self.best = self.spins.copy()
        self.value = 0.0
        self.best_value = -math.inf

    def start(self, spins: IntArray) -> None:
        """Go on from other spins, -1 or +1, and forget the best configuration."""
        from fastmix.modes.cooling_kernels import fill_gains

        self.spins[...] = spins
        fill_gains(self.spins, self.fields, self.indptr, self.neighbors, self.couplings, self.gains)
        self.best[...] = self.spins
        self.value = 0.0  # relative to the start
        self.best_value = 0.0

    def parts(self, num_sweeps: int, begin: float = 0.0) -> list[FloatArray]:
        """Inverse temperatures of a read, in parts between which the clock is read.

        ``begin`` is where they begin on the way from the hottest (0) to the coldest (1).
        """
        hottest = self.hottest + begin * (self.coldest - self.hottest)
        scales = np.linspace(hottest, self.coldest, num_sweeps)
        num_parts = min(num_sweeps, 1 + num_sweeps * len(self.spins) // LOOKS_PER_CALL)
        return np.array_split(scales, num_parts)

    def sweep(self, scales: FloatArray) -> None:
        """Make a sweep at each of some inverse temperatures."""
        from fastmix.modes.cooling_kernels import sweep_gains

        self.value, self.best_value = sweep_gains(
            self.spins,
            self.gains,
            scales,
            self.indptr,
            self.neighbors,
            self.couplings,
            self.stream,
            self.best,
            self.value,
            self.best_value,
        )

    def best_states(self) -> IntArray:
        """The best configuration since the start, as states 0 and 1."""
        return (self.best > 0).astype(np.int64)
