"""Swendsen-Wang sweeps: whole clusters of attractive Ising and Potts models drawn at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import check_count, check_threads, choose_seed
from fastmix.chains.base import ParameterSets
from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.chains.host import HostChains
from fastmix.chains.layout import Layout
from fastmix.chains.threads import Threads
from fastmix.errors import UnfitMethodError
from fastmix.graphs.basics import two_sides
from fastmix.model import MarkovRandomField, check_pairwise

__all__ = ["ClusterChains", "NormalForm", "centred_tables", "is_swendsen_wang", "lengths_of_stay", "normal_form"]


# What a table may miss its form by, relative to its largest entry or to 1: sums of a few rounded terms, and logarithms
# of numbers written with 17 digits, stay far below, and no sampler could show the difference.
_ROUNDING = 1e-12
_LONGEST = 700.0  # logarithm of a number of sweeps, so that it is finite
_CHUNK_ENTRIES = 1 << 20  # table entries looked at at once: 8 MiB a temporary
_BLOCKS_PER_THREAD = 4  # more blocks of chains than threads, so that a slow one is not waited for
_FORMS: WeakKeyDictionary[MarkovRandomField, NormalForm] = WeakKeyDictionary()  # half a second for 2.5 million edges


class ClusterChains(HostChains):
    """Chains of Swendsen-Wang sweeps on an attractive Ising or Potts model with any unaries.

    The model must be ``p(x) ~ exp(sum_i u_i(x_i) + sum_ij J_ij [x_i = x_j])`` with all ``J_ij >= 0``, up to functions
    of one variable in the tables, and after relabelling binary variables (:func:`normal_form`); states go in and out
    with the labels of the model. Unaries may be -inf, tables not; leave forbidden states in.

    One sweep: every edge whose ends agree becomes a bond with probability ``1 - exp(-J)``; every cluster of variables
    joined by bonds draws one new state s for all its members i with probability proportional to
    ``exp(sum_i u_i(s))``. Every chain starts at a draw from the model without couplings.

    The target is left invariant (Edwards and Sokal, Phys. Rev. D 38, 1988): a sweep draws bonds given states, then
    states given bonds, which are two Gibbs steps for a distribution of both whose sum over the bonds is the model.
    Sums have, for each variable, the distribution that its cluster draws from, which lowers the variance of averages
    (Liu, Wong and Kong, Biometrika 81, 1994). Probabilities of bonds are met to 1.5 * 2**-32.
    """

    def __init__(
        self, model: MarkovRandomField, *, num_chains: int, seed: int | None, num_threads: int | None = None
    ) -> None:
        self.model, self.structure, self.layout = model, model.structure, Layout(model.structure)
        self.num_chains, self.seed = check_count("num_chains", num_chains, least=1), choose_seed(seed)
        self.threads = Threads(min(check_threads(num_threads), self.num_chains))
        self.sets = ParameterSets.of(model.parameters)
        self._form = normal_form(model)
        kind: type[np.unsignedinteger[Any]] = np.uint8 if model.num_states.max(initial=1) <= 256 else np.uint32
        self._states: NDArray[Any] = np.zeros((self.num_chains, model.num_variables), dtype=kind)
        self._random = make_streams(self.seed, 0, self.num_chains).T.copy()
        self._sums, self._num_collected = np.zeros((self.num_chains, len(model.log_unary))), 0
        self._run(1, coupled=False)

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Go on with the parameters ``coefficients[0] @ thetas``; see :meth:`fastmix.chains.base.Chains.load`."""
        sets = self._read_sets(thetas, coefficients)
        model, lanes = self.model.with_parameters(sets.theta(0)), self._lanes()
        self._form = normal_form(model)
        self.model, self.sets = model, sets
        self._put(lanes)

    def _lanes(self) -> NDArray[Any]:
        return np.ascontiguousarray((self._states ^ self._form.flips).T)

    def _put(self, lanes: NDArray[Any]) -> None:
        self._states[...] = lanes.T ^ self._form.flips

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps; with ``collect`` add to the sums, at each, the distributions that states are drawn from."""
        count = check_count("num_sweeps", num_sweeps, least=0)
        if self.sharing is not None and self.sharing.call(self, "sweep", count, collect=collect):
            return
        self._num_collected += count if collect else 0
        self._run(count, collect=collect)

    def take_sums(self) -> FloatArray:
        """Sums (entries of log_unary, num_chains) over sweeps of probabilities of states given bonds; start anew."""
        sums, count, flips = self._sums, self._num_collected, self._form.flips
        self._sums, self._num_collected = np.zeros(sums.shape), 0
        if (self.structure.num_states == 2).all():  # kernels have added those of state 0
            np.subtract(count, sums[:, ::2], out=sums[:, 1::2])
        return (sums[:, _flipped_entries(self.model, flips)] if flips.any() else sums).T

    def pack(self, first: int, last: int) -> tuple[Any, ...]:
        """Configurations, generators and sums of some chains."""
        arrays = self._states, self._random, self._sums
        return *(array[first:last].copy() for array in arrays), self._num_collected

    def unpack(self, first: int, last: int, parts: tuple[Any, ...]) -> None:
        """Let some chains go on from what others were."""
        self._states[first:last], self._random[first:last], self._sums[first:last], self._num_collected = parts

    def get_random_state(self) -> NDArray[np.uint64]:
        """The streams (num_chains, 4), which :meth:`set_random_state` takes back."""
        return self._random.astype(np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue as an engine did that gave this state."""
        self._random[...] = state

    def _run(self, num_sweeps: int, *, collect: bool = False, coupled: bool = True) -> None:
        """Sweeps of all chains."""
        from fastmix.methods.swendsen_wang_kernels import sweep_clusters

        edges, unaries = self._form.arrays[:3], self._form.arrays[3:]
        if not coupled:
            edges = tuple(array[:0] for array in edges)
        run: Any = partial(sweep_clusters, *edges, *unaries, self._states, self._random, self._sums)
        num_updates = self.num_chains * num_sweeps * self.model.num_variables
        few = num_updates < self.threads.few
        blocks = 1 if few else min(self.num_chains, _BLOCKS_PER_THREAD * self.threads.count)
        bounds = [self.num_chains * k // blocks for k in range(blocks + 1)]
        self.threads.run([partial(run, *block, num_sweeps, collect) for block in pairwise(bounds)], num_updates)


def lengths_of_stay(model: MarkovRandomField, mean: FloatArray) -> FloatArray:
    """Sweeps for which a variable stays in a state once it is there, on average and at least, (entries of log_unary,).

    While bonds join it to a neighbor in the same state a variable goes where the whole cluster goes, and clusters that
    fields hold stay where they are. It is released by a sweep without such bonds, of probability
    ``prod_j (1 - m_j(s) (1 - exp(-J_ij)))`` for neighbors that have the state with probability m_j(s), if it then
    chooses another state by its own unary. ``mean`` are the marginals; the effort is O(edges times states).
    """
    form = normal_form(model)
    flipped = _flipped_entries(model, form.flips)
    shares, offsets = mean[flipped], model.unary_offsets
    held = np.zeros(len(mean))  # logarithms of the probabilities of no bond
    bonds = -np.expm1(-form.couplings)
    most = int(model.num_states.max(initial=0))
    for state in range(most):
        inner = (model.num_states[form.heads] > state) & (model.num_states[form.tails] > state)
        heads = offsets[:-1][form.heads[inner]] + state
        tails = offsets[:-1][form.tails[inner]] + state
        with np.errstate(divide="ignore"):
            held += np.bincount(heads, np.log1p(-np.minimum(1.0, shares[tails] * bonds[inner])), len(held))
            held += np.bincount(tails, np.log1p(-np.minimum(1.0, shares[heads] * bonds[inner])), len(held))
    unary = form.log_unary
    if model.num_variables:
        top = np.repeat(np.maximum.reduceat(unary, offsets[:-1]), model.num_states)
        weights = np.exp(unary - top)
        own = weights / np.repeat(np.add.reduceat(weights, offsets[:-1]), model.num_states)
        with np.errstate(divide="ignore"):
            held += np.log1p(-np.minimum(1.0, own))
    return np.asarray(np.exp(np.minimum(-held, _LONGEST))[flipped])


def is_swendsen_wang(model: MarkovRandomField) -> bool:
    """Whether :class:`ClusterChains` can sample from the model."""
    try:
        normal_form(model)
    except UnfitMethodError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class NormalForm:
    """The model as ``sum_i u_i(y_i) + sum_ij J_ij [y_i = y_j]`` with J > 0, for y = x after the flips."""

    heads: NDArray[np.uint32]
    tails: NDArray[np.uint32]
    couplings: FloatArray
    log_unary: FloatArray
    unary_offsets: IntArray
    flips: BoolArray  # binary variables whose states are exchanged, (n,)

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Edges, thresholds for the probabilities 1 - exp(-J) of bonds, unaries, and differences of binary ones."""
        thresholds = np.minimum(np.round(-np.expm1(-self.couplings) * 2.0**32), MAX_THRESHOLD).astype(np.uint32)
        binary = (np.diff(self.unary_offsets) == 2).all()
        fields = self.log_unary[::2] - self.log_unary[1::2] if binary else np.zeros(0)
        return self.heads, self.tails, thresholds, self.unary_offsets, self.log_unary, fields


def normal_form(model: MarkovRandomField, what: str = "Swendsen-Wang", *, unit: float = 1.0) -> NormalForm:
    """The normal form of a model, or an :class:`UnfitMethodError` that says why there is none, and ``what`` needs it.

    Every table must be ``T(a, b) = J [a = b] + r(a) + s(b)`` to rounding (1e-12 of the largest entry or the unit), with
    J >= 0, and equal state counts at both ends unless J = 0. Tables of two binary variables always have this form, and
    may have J < 0 as long as no cycle has an odd number of such edges, because variables can then be relabelled.

    The form for Swendsen-Wang is found once and kept as long as the model.
    """
    if what != "Swendsen-Wang" or unit != 1.0:
        return _find_normal_form(model, what, unit)
    form = _FORMS.get(model)
    if form is None:
        form = _find_normal_form(model, what, unit)
        _FORMS[model] = form
    return form


def _find_normal_form(model: MarkovRandomField, what: str, unit: float) -> NormalForm:
    """What :func:`normal_form` gives."""
    check_pairwise(model, "cluster moves" if what == "Swendsen-Wang" else what)

    def unfit(edge: int, reason: str) -> UnfitMethodError:
        i, j = model.edges[edge].tolist()
        rule = f"{what} needs attractive Ising or Potts couplings"
        return UnfitMethodError(f"{rule}, but edge ({i}, {j}) {reason}; use another method")

    couplings, log_unary = np.zeros(model.num_edges), model.log_unary.copy()
    if model.num_edges:
        lowest = np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1])
        if lowest.min() == -np.inf:
            raise unfit(int(lowest.argmin()), "forbids a pair of states (-inf in its table)")
        largest = np.maximum(np.maximum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]), -lowest)
    for edges, tables, _ in centred_tables(model, log_unary):
        rows, cols, strength = *tables.shape[:2], np.zeros(len(edges))
        tolerance = _ROUNDING * np.maximum(unit, largest[edges])
        with np.errstate(over="ignore", invalid="ignore"):  # entries near the largest number fail the test
            if rows == cols and rows > 1:  # of J [a = b] is left J ([a = b] - 1 / L)
                strength = np.trace(tables) / (rows - 1)
                tables -= (np.eye(rows) - 1.0 / rows)[:, :, None] * strength
            excess = np.abs(tables).max(axis=(0, 1))
        k = int((excess <= tolerance).argmin())
        if not excess[k] <= tolerance[k]:
            reason = (
                f"is no Potts table, J on the diagonal plus a function of each variable: it is off by {excess[k]:.3g}"
            )
            if rows != cols:
                reason = f"couples variables of {rows} and {cols} states; if forbidden states were dropped, give the "
                reason += "model with them (reduce_model(..., drop_forbidden=False))"
            raise unfit(int(edges[k]), reason)
        couplings[edges] = np.where(np.abs(strength) <= tolerance, 0.0, strength)
    kept = np.flatnonzero(couplings)
    ends, negative = model.edges[kept], couplings[kept] < 0.0
    sides = two_sides(model.num_variables, ends, negative) if negative.any() else np.zeros(model.num_variables)
    broken = negative & ((model.num_states[ends[:, 0]] > 2) | (sides[ends[:, 0]] > 1))
    if broken.any():
        edge = int(kept[broken.argmax()])
        reason = f"has the negative coupling {couplings[edge]:.6g}"
        if model.num_states[model.edges[edge, 0]] == 2:
            reason += ", which no exchange of states removes: a cycle connected to it has an odd number of such edges"
        raise unfit(edge, reason)
    heads, tails = np.ascontiguousarray(ends.astype(np.uint32).T)
    flips = sides == 1
    log_unary = log_unary[_flipped_entries(model, flips)]
    return NormalForm(heads, tails, np.abs(couplings[kept]), log_unary, model.unary_offsets, flips)


def centred_tables(model: MarkovRandomField, unary: FloatArray) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """Edges (k,), their tables (rows, columns, k) with rows and columns that sum to zero, and the means taken out (k,).

    Part by part, until all edges were there. What is taken out that depends on one variable is added to ``unary``.
    """
    for rows, cols, members in model.structure.table_shapes:
        step = max(1, _CHUNK_ENTRIES // (rows * cols))
        for edges in (members[start : start + step] for start in range(0, len(members), step)):
            # The axis of the edges comes last, where NumPy is fast.
            places = np.arange(rows * cols)[:, None] + model.pairwise_offsets[edges]
            tables = model.log_pairwise[places].reshape(rows, cols, -1)
            with np.errstate(over="ignore", invalid="ignore"):
                by_row, by_col = tables.mean(axis=1), tables.mean(axis=0)
                overall = by_row.mean(axis=0)
                by_row -= overall
                by_col -= overall
                tables -= by_row[:, None] + by_col + overall
            for end, part in ((0, by_row), (1, by_col)):
                if part.any():  # often there is nothing to move
                    starts = model.unary_offsets[model.edges[edges, end]]
                    np.add.at(unary, np.arange(len(part))[:, None] + starts, part)
            yield edges, tables, overall


def _flipped_entries(model: MarkovRandomField, flips: BoolArray) -> IntArray:
    """Position in log_unary of the entry that takes the place of each."""
    positions = np.arange(len(model.log_unary))
    first = model.unary_offsets[:-1][flips]
    positions[first] += 1
    positions[first + 1] -= 1
    return positions
