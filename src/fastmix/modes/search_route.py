"""A search for any model: messages, exact parts, descents, chains that cool down, and moves of blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.chains.cpu import CpuChains
from fastmix.model import MarkovRandomField
from fastmix.model.forms import ising_form
from fastmix.modes.allowed import find_allowed, penalty
from fastmix.modes.blocks import BlockSearch
from fastmix.modes.bucket_bounds import tighten_by_buckets
from fastmix.modes.cooling import cool_spins
from fastmix.modes.descents import find_modes
from fastmix.modes.local_bounds import tighten_parts
from fastmix.modes.message_route import tighten
from fastmix.modes.mode_run import ModeRun, term_ranges
from fastmix.modes.pattern_arrays import pattern_tables, variables_of
from fastmix.modes.tuning import (
    COLDEST,
    ENTRIES_PER_SECOND,
    HOTTEST,
    MAX_STATES_OF_CHAINS,
    NUM_CHAINS,
    NUM_TEMPERATURES,
    SHARE_OF_MESSAGES,
    SWEEPS_PER_TEMPERATURE,
    UPDATES_PER_CALL,
)
from fastmix.theory.dependency import largest_entries

__all__ = ["SearchRoute"]


class SearchRoute:
    """Whatever finds better configurations and bounds, until the gap is closed or the time over."""

    name = "search"
    is_final = True

    def find(self, run: ModeRun) -> None:
        """Offer what messages, descents and annealing lead to."""
        tighten(run, share=1.0 if run.is_alone else SHARE_OF_MESSAGES)
        if not run.is_over:
            tighten_parts(run)
        tighten_by_buckets(run)
        if run.is_over and run.states is not None:
            return
        if not run.clock.past():
            modes = find_modes(run.model, rng=run.context.rng("modes"), clock=run.clock)
            run.count("descents", len(modes))
            for states in modes:
                run.offer(states)
        if run.states is None:
            allowed = find_allowed(run.model, run.model.log_unary, run.context.given, run.clock)
            if allowed is not None:
                run.offer(allowed)
        if not run.is_over:
            self.anneal(run)

    def anneal(self, run: ModeRun) -> None:
        """Cool configurations down, again and again: spins with the gains of their flips, others as chains.

        Chains that have no time to get cold are of no use, and take the memory of several pictures: messages have that
        time instead, where there are any.
        """
        form = ising_form(run.model)
        if form is not None:
            cool_spins(run, form)
            return
        entries = _num_chains(run.model) * len(run.model.log_unary)  # of one sweep
        seconds = entries * NUM_TEMPERATURES * SWEEPS_PER_TEMPERATURE / ENTRIES_PER_SECOND
        if run.states is not None and not run.model.num_factors and seconds > run.clock.left():
            tighten(run, to_the_end=True)
            tighten_parts(run, share=1.0)
        else:
            self._cool_chains(run)

    def _cool_chains(self, run: ModeRun) -> None:
        """Cool chains down, each time for longer, descend from where they end, and move blocks from the best end.

        What is forbidden has a penalty: chains could not get around it otherwise.
        """
        model = run.model
        clock = run.clock
        num_chains = _num_chains(model)
        seed = run.context.seed_of("chains")
        chains = CpuChains(model.structure, num_chains=num_chains, seed=seed, num_threads=1, steady=False)
        load = _loader(model, chains)
        starts = run.context.rng("starts")
        scales = _inverse_temperatures(model)
        num_sweeps = SWEEPS_PER_TEMPERATURE
        num_rounds = 0
        blocks = None if model.shared_tables is not None else BlockSearch(run)
        while not run.is_over:
            num_rounds += 1
            clock.report(num_rounds, None, "rounds")
            chains.set_states(starts.integers(0, model.num_states, size=(num_chains, model.num_variables)))
            for scale in scales:
                load(scale)
                self._sweep(run, chains, num_sweeps)
                if clock.past():
                    break
            ends = np.ascontiguousarray(chains.get_states(), dtype=np.int64)
            for states in ends:
                run.cross(run.descend(states))
                if clock.past():
                    break
            run.count("rounds of annealing")
            if blocks is not None and not run.is_over:
                blocks.go_on(max(ends, key=blocks.moves.value))
            if clock.used() < 0.1 * (clock.limit or np.inf):
                num_sweeps *= 4
        run.stats["num_annealing_sweeps"] = num_sweeps * NUM_TEMPERATURES

    def _sweep(self, run: ModeRun, chains: CpuChains, num_sweeps: int) -> None:
        """Make sweeps of chains, until the time is over."""
        updates_per_sweep = max(1, chains.num_chains * run.model.num_variables)
        sweeps_per_call = max(1, min(num_sweeps, UPDATES_PER_CALL // updates_per_sweep))
        for start in range(0, num_sweeps, sweeps_per_call):
            chains.sweep(min(sweeps_per_call, num_sweeps - start))
            if run.clock.past():
                break


def _num_chains(model: MarkovRandomField) -> int:
    """How many chains cool down side by side."""
    return max(1, min(NUM_CHAINS, MAX_STATES_OF_CHAINS // model.num_variables))


def _loader(model: MarkovRandomField, chains: CpuChains) -> Callable[[float], None]:
    """A function that lets chains go on at an inverse temperature, with a penalty on what is forbidden."""
    if model.shared_tables is None:
        thetas = np.maximum(model.parameters, -penalty(model))
        return lambda scale: chains.load(thetas, [[scale]])
    tables = pattern_tables(model)[1]
    following = [] if tables.next_weights is None else [tables.next_weights]
    weights = np.concatenate([variables_of(model).unary, tables.weights, *following])
    return lambda scale: chains.load_shared(weights, tables, [[scale]])


def _inverse_temperatures(model: MarkovRandomField) -> FloatArray:
    """Scales of the log-potentials, from where the strongest terms hardly matter to where weak ones decide."""
    _, spans = term_ranges(model)
    usual = float(np.median(spans[spans > 0.0])) if spans.any() else 1.0
    largest = float(largest_entries(model).max()) or 1.0
    hottest = HOTTEST / largest
    return np.geomspace(hottest, max(COLDEST / usual, 2.0 * hottest), NUM_TEMPERATURES)
