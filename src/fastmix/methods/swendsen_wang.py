"""Swendsen-Wang sweeps: whole clusters of attractive Ising and Potts models drawn at once."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import check_count, check_threads, choose_seed
from fastmix.chains.base import ParameterSets
from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.chains.host import HostChains
from fastmix.chains.layout import Layout
from fastmix.chains.threads import Threads
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.graphs.basics import two_sides
from fastmix.model import MarkovRandomField, check_pairwise

__all__ = ["ClusterChains", "check_swendsen_wang", "is_swendsen_wang"]


# What a table may miss its form by, relative to its largest entry or to 1: sums of a few rounded terms, and logarithms
# of numbers written with 17 digits, stay far below, and no sampler could show the difference.
_ROUNDING = 1e-12
_CHUNK_ENTRIES = 1 << 20  # table entries looked at at once: 8 MiB a temporary
_BLOCKS_PER_THREAD = 4  # more blocks of chains than threads, so that a slow one is not waited for
_FEW_EDGES = 1 << 14


class ClusterChains(HostChains):
    """Chains of Swendsen-Wang sweeps on an attractive Ising or Potts model with any unaries.

    The model must be, up to functions of one variable in the tables,
    ``p(x) ~ exp(sum_i u_i(x_i) + sum_ij J_ij [x_i = x_j])`` with all ``J_ij >= 0``. These functions are found and
    moved into the unaries. Binary variables are relabelled where that makes negative couplings positive, so that for
    instance an antiferromagnet on a grid will do; states go in and out with the labels of the model.

    One sweep: every edge whose ends agree becomes a bond with probability ``1 - exp(-J)``; every cluster of variables
    joined by bonds draws one new state s for all its members i with probability proportional to
    ``exp(sum_i u_i(s))``.

    Unaries may be -inf, tables not; the state counts at the ends of a coupling must be equal, so leave forbidden states
    in. The number of threads changes no bit of the results.

    Notes
    -----
    *Why the target is left invariant* (Edwards and Sokal 1988). Give every edge a bond variable b in {0, 1}, and with
    q = exp(-J) consider

        p(x, b) ~ prod_i exp(u_i(x_i)) prod_ij ( q_ij [b_ij = 0] + (1 - q_ij) [b_ij = 1] [x_i = x_j] ).

    Summed over b, an edge contributes 1 if its ends agree and exp(-J) if not, so that x has the distribution of the
    model. Given x, bonds are independent: 1 with probability 1 - q where the ends agree, otherwise 0. Given b, all
    that is left of the edges is that the states of each cluster are equal, so clusters are independent, each with
    state s in proportion to the product of exp(u_i(s)) over its members. A sweep draws b given x, then x given b:
    two Gibbs steps on p(x, b), and each leaves it invariant. Unaries enter the second step exactly. A ghost spin,
    bound to the others by the fields, would instead freeze the clusters bound to it and leave the others to a fair
    coin; drawing from the summed unaries is what remains of that when the ghost's bonds are summed out. Without any
    bond, of positive probability, every variable is drawn on its own, so every allowed configuration can follow every
    other in one sweep: the chain is ergodic. Unaries of -inf do no harm: the state that a cluster has now is allowed
    for all its members.

    *Sums* are Rao-Blackwellised: a sweep adds, for each variable, the distribution that its cluster draws from: the
    mean, given the bonds, of the indicators of its states. For a chain that alternates two blocks of variables, here
    x and b, this lowers the variance of averages over sweeps, too (Liu, Wong and Kong 1994).

    *Start.* Every chain starts at a draw from the model without couplings, the first numbers of its stream.

    Probabilities of bonds are met to 1.5 * 2**-32. Time: O(n + m) per sweep, practically. Memory: 12 bytes an edge, 8
    bytes a unary entry, a byte a variable and chain (four from 257 states on), 12 bytes a variable and thread if all
    variables are binary, otherwise 4 and 8 a unary entry, and while there are sums, 8 bytes a chain for each variable
    if all are binary, otherwise for each unary entry.

    References
    ----------
    Swendsen and Wang, "Nonuniversal critical dynamics in Monte Carlo simulations", Phys. Rev. Lett. 58 (1987).
    Edwards and Sokal, "Generalization of the Fortuin-Kasteleyn-Swendsen-Wang representation and Monte Carlo
    algorithm", Phys. Rev. D 38 (1988).
    Liu, Wong and Kong, "Covariance structure of the Gibbs sampler", Biometrika 81 (1994).
    """

    def __init__(
        self, model: MarkovRandomField, *, num_chains: int, seed: int | None, num_threads: int | None = None
    ) -> None:
        self.model, self.structure, self.layout = model, model.structure, Layout(model.structure)
        self.num_chains, self.seed = check_count("num_chains", num_chains, least=1), choose_seed(seed)
        self.threads = Threads(min(check_threads(num_threads), self.num_chains))
        self._binary = bool((model.num_states == 2).all())
        self.sets = ParameterSets.of(model.parameters)
        self._set_form(model)
        kind: type[np.unsignedinteger[Any]] = np.uint8 if model.num_states.max(initial=1) <= 256 else np.uint32
        self._states: NDArray[Any] = np.zeros((self.num_chains, model.num_variables), dtype=kind)
        self._random = make_streams(self.seed, 0, self.num_chains).T.copy()
        self._sums: FloatArray | None = None
        self._num_collected = 0
        self._run(1, collect=False, num_edges=0)

    def _set_form(self, model: MarkovRandomField) -> None:
        form = _normal_form(model)
        self._heads, self._tails, self._flips = form.heads, form.tails, form.flips
        self._thresholds, self._log_unary = form.for_kernels(self._binary)

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Go on with the parameters ``coefficients[0] @ thetas``; see :meth:`fastmix.chains.base.Chains.load`."""
        sets = self._read_sets(thetas, coefficients)
        model, lanes = self.model.with_parameters(sets.theta(0)), self._lanes()
        self._set_form(model)
        self.model, self.sets = model, sets
        self._put(lanes)

    def _lanes(self) -> NDArray[Any]:
        return np.ascontiguousarray((self._states ^ self._flips).T)

    def _put(self, lanes: NDArray[Any]) -> None:
        self._states[...] = lanes.T ^ self._flips

    def set_states(self, states: IntArray) -> None:
        """Start from these configurations (num_chains, n), all allowed."""
        x, shape = self.model._as_states(states)
        if shape != (self.num_chains,):
            expected = (self.num_chains, self.model.num_variables)
            raise ModelError(f"states must have shape {expected}, got {(*shape, self.model.num_variables)}")
        forbidden = self.model.log_unary == -np.inf
        if forbidden.any() and (chosen := forbidden[self.model.unary_offsets[:-1] + x]).any():
            c, i = np.argwhere(chosen)[0].tolist()
            raise ModelError(f"states must be allowed, but variable {i} of chain {c} has forbidden state {x[c, i]}")
        self._put(x.T)

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps; with ``collect`` add to the sums, at each, the distributions that states are drawn from."""
        count = check_count("num_sweeps", num_sweeps, least=0)
        if self.sharing is not None and self.sharing.call(self, "sweep", count, collect=collect):
            return
        if collect:
            if self._sums is None:
                self._sums = np.zeros((self.num_chains, len(self.model.log_unary)))
            self._num_collected += count
        self._run(count, collect=collect)

    def take_sums(self) -> FloatArray:
        """Sums over the sweeps collected since the last call, (entries of log_unary, num_chains), and start anew.

        An entry is the sum over sweeps of the probability of the state given the bonds of the sweep.
        """
        sums, count = self._sums, self._num_collected
        self._sums, self._num_collected = None, 0
        if sums is None:
            return np.zeros((len(self.model.log_unary), self.num_chains))
        if self._binary:
            np.subtract(count, sums[:, ::2], out=sums[:, 1::2])
        return (sums[:, _flipped_entries(self.model, self._flips)] if self._flips.any() else sums).T

    def pack(self, first: int, last: int) -> tuple[Any, ...]:
        """Configurations, generators and sums of some chains."""
        sums = None if self._sums is None else self._sums[first:last].copy()
        return self._states[first:last].copy(), self._random[first:last].copy(), sums, self._num_collected

    def unpack(self, first: int, last: int, parts: tuple[Any, ...]) -> None:
        """Let some chains go on from what others were."""
        self._states[first:last], self._random[first:last], sums, self._num_collected = parts
        if sums is None:
            self._sums = None
            return
        if self._sums is None:
            self._sums = np.zeros((self.num_chains, len(self.model.log_unary)))
        self._sums[first:last] = sums

    def get_random_state(self) -> NDArray[np.uint64]:
        """The streams (num_chains, 4), which :meth:`set_random_state` takes back."""
        return self._random.astype(np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue as an engine did that gave this state."""
        self._random[...] = state

    def _run(self, num_sweeps: int, *, collect: bool, num_edges: int | None = None) -> None:
        """Sweeps of all chains, with the first edges only if their number is given."""
        from fastmix.methods import swendsen_wang_kernels as kernels

        run: Any = kernels.run_binary if self._binary else kernels.run_general
        edges = (self._heads[:num_edges], self._tails[:num_edges], self._thresholds[:num_edges])
        unary = (self._log_unary,) if self._binary else (self.model.unary_offsets, self._log_unary)
        sums = self._sums if collect and self._sums is not None else np.zeros((1, 0))

        def run_block(block: tuple[int, int]) -> None:
            # Random numbers wrap around; NumPy would warn of it when Numba's compiler is switched off.
            with np.errstate(over="ignore"):
                run(*edges, *unary, self._states, self._random, sums, *block, num_sweeps, collect)

        num_updates = self.num_chains * num_sweeps * self.model.num_variables
        shared = self.threads.count > 1 and num_updates >= self.threads.few
        num_blocks = min(self.num_chains, _BLOCKS_PER_THREAD * self.threads.count) if shared else 1
        bounds = [self.num_chains * k // num_blocks for k in range(num_blocks + 1)]
        self.threads.run([partial(run_block, block) for block in pairwise(bounds)], num_updates)


def check_swendsen_wang(model: MarkovRandomField) -> None:
    """Raise unless :class:`ClusterChains` can sample from the model.

    Every table must be ``T(a, b) = J [a = b] + r(a) + s(b)`` to rounding (1e-12 of its largest entry, or of 1), with
    J >= 0, and equal state counts at both ends unless J = 0. Tables of two binary variables always have this form, and
    may have J < 0 as long as no cycle has an odd number of such edges, because variables can then be relabelled.
    """
    _normal_form(model)


def is_swendsen_wang(model: MarkovRandomField) -> bool:
    """Whether :func:`check_swendsen_wang` accepts the model."""
    try:
        check_swendsen_wang(model)
    except UnfitMethodError:
        return False
    return True


# -- the form that sweeps work on -----------------------------------------------------------------------------------


class _NormalForm(NamedTuple):
    """The model as ``sum_i u_i(y_i) + sum_ij J_ij [y_i = y_j]`` with J > 0, for y = x after the flips."""

    heads: NDArray[np.uint32]
    tails: NDArray[np.uint32]
    couplings: FloatArray
    log_unary: FloatArray
    flips: BoolArray  # binary variables whose states are exchanged, (n,)

    def for_kernels(self, binary: bool) -> tuple[NDArray[np.uint32], FloatArray]:
        """Thresholds of the bonds, for the probabilities 1 - exp(-J), and the unaries, binary ones as differences."""
        thresholds = np.minimum(np.round(-np.expm1(-self.couplings) * 2.0**32), MAX_THRESHOLD).astype(np.uint32)
        return thresholds, self.log_unary[::2] - self.log_unary[1::2] if binary else self.log_unary


def _normal_form(model: MarkovRandomField) -> _NormalForm:
    """The normal form of a model, or an :class:`UnfitMethodError` that says why there is none."""
    check_pairwise(model, "cluster moves")
    if model.log_pairwise.size and model.log_pairwise.min() == -np.inf:
        position = int(model.log_pairwise.argmin())
        edge = int(np.searchsorted(model.pairwise_offsets, position, side="right")) - 1
        raise _unfit(model, edge, "forbids a pair of states (-inf in its table)")
    couplings, log_unary = _split_tables(model)
    negative = couplings < 0.0
    larger = negative & (model.num_states[model.edges[:, 0]] > 2)
    if larger.any():
        edge = int(larger.argmax())
        raise _unfit(model, edge, f"has the negative coupling {couplings[edge]:.6g}")
    flips = _flips(model, couplings) if negative.any() else np.zeros(model.num_variables, dtype=np.bool_)
    kept = couplings != 0.0
    heads, tails = np.ascontiguousarray(model.edges[kept].astype(np.uint32).T)
    return _NormalForm(heads, tails, np.abs(couplings[kept]), log_unary[_flipped_entries(model, flips)], flips)


def _split_tables(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """J of every edge, zero if it is zero to rounding, and the unaries with the rest of the tables added."""
    couplings, log_unary = np.zeros(model.num_edges), model.log_unary.copy()
    for rows, cols, members in model.structure.table_shapes:
        step = max(1, _CHUNK_ENTRIES // (rows * cols))
        for start in range(0, len(members), step):
            _split_chunk(model, members[start : start + step], rows, cols, couplings, log_unary)
    return couplings, log_unary


def _split_chunk(
    model: MarkovRandomField, edges: IntArray, rows: int, cols: int, couplings: FloatArray, log_unary: FloatArray
) -> None:
    """The same for some edges of one shape: sets their couplings, adds to the unaries."""
    # The axis of the edges comes last, where NumPy is fast.
    tables = model.log_pairwise[np.arange(rows * cols)[:, None] + model.pairwise_offsets[edges]]
    tables = tables.reshape(rows, cols, -1)
    tolerance = _ROUNDING * np.maximum(1.0, np.abs(tables).max(axis=(0, 1)))
    with np.errstate(over="ignore", invalid="ignore"):  # entries near the largest number fail the test below
        # Row and column means take up r, s and the means of the rest: J [a = b] leaves J ([a = b] - 1 / L).
        by_row, by_col = tables.mean(axis=1), tables.mean(axis=0)
        overall = by_row.mean(axis=0)
        by_row -= overall
        by_col -= overall
        centred = tables - by_row[:, None] - by_col - overall
        strength = np.zeros(len(edges))
        if rows == cols and rows > 1:
            strength = np.trace(centred) / (rows - 1)
            centred -= (np.eye(rows) - 1.0 / rows)[:, :, None] * strength
        excess = np.abs(centred).max(axis=(0, 1))
    fits = excess <= tolerance
    if not fits.all():
        k = int(fits.argmin())
        if rows != cols:
            reason = (
                f"couples variables of {rows} and {cols} states; if forbidden states were dropped, give the model with "
                "them (reduce_model(..., drop_forbidden=False))"
            )
        else:
            reason = (
                f"is no Potts table, J on the diagonal plus a function of each variable: it is off by {excess[k]:.3g}"
            )
        raise _unfit(model, int(edges[k]), reason)
    couplings[edges] = np.where(np.abs(strength) <= tolerance, 0.0, strength)
    for end, part, count in ((0, by_row, rows), (1, by_col, cols)):
        if part.any():  # often there is nothing to move
            np.add.at(log_unary, np.arange(count)[:, None] + model.unary_offsets[model.edges[edges, end]], part)


def _flips(model: MarkovRandomField, couplings: FloatArray) -> BoolArray:
    """Binary variables to exchange the states of, so that no coupling is negative."""
    coupled = np.flatnonzero(couplings)
    # Where it cannot be done, a few edges show that as a rule.
    for some in (coupled[:_FEW_EDGES], coupled) if len(coupled) > _FEW_EDGES else (coupled,):
        edges, negative = model.edges[some], couplings[some] < 0.0
        sides = two_sides(int(edges.max(initial=-1)) + 1, edges, negative)
        broken = some[(sides[edges[:, 0]] > 1) & negative]
        if not len(broken):
            continue
        edge = int(broken[0])
        raise _unfit(
            model,
            edge,
            f"has the negative coupling {couplings[edge]:.6g}, which no exchange of states removes: a cycle connected "
            "to it has an odd number of negative couplings",
        )
    flips = np.zeros(model.num_variables, dtype=bool)
    flips[: len(sides)] = sides == 1
    return flips


def _flipped_entries(model: MarkovRandomField, flips: BoolArray) -> IntArray:
    """Position in log_unary of the entry that takes the place of each."""
    positions = np.arange(len(model.log_unary))
    first = model.unary_offsets[:-1][flips]
    positions[first] += 1
    positions[first + 1] -= 1
    return positions


def _unfit(model: MarkovRandomField, edge: int, reason: str) -> UnfitMethodError:
    i, j = model.edges[edge].tolist()
    return UnfitMethodError(
        f"Swendsen-Wang needs attractive Ising or Potts couplings, but edge ({i}, {j}) {reason}; "
        "use Gibbs sampling instead"
    )
