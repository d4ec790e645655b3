"""Swendsen-Wang sweeps: whole clusters of attractive Ising and Potts models drawn at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import check_count, check_threads, choose_seed
from fastmix.chains.base import ParameterSets
from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.chains.host import HostChains
from fastmix.chains.layout import Layout
from fastmix.chains.threads import Threads
from fastmix.model import MarkovRandomField
from fastmix.model.attractive import AttractiveForm, attractive_form, flipped_entries
from fastmix.model.shared import SharedTables
from fastmix.sampling.tuning import BLOCKS_PER_THREAD, LONGEST_STAY

__all__ = ["ClusterChains", "lengths_of_stay"]


# What kernels read, made once for every form that is alive.
_ARRAYS: WeakKeyDictionary[AttractiveForm, tuple[NDArray[Any], ...]] = WeakKeyDictionary()


class _CoupledTheta(NamedTuple):
    """The only one of several thetas that has tables: its form at another scale needs no new search."""

    thetas: FloatArray
    place: int  # of the one among the thetas
    form: AttractiveForm


class ClusterChains(HostChains):
    """Chains of Swendsen-Wang sweeps on an attractive Ising or Potts model with any unaries.

    The model must be ``p(x) ~ exp(sum_i u_i(x_i) + sum_ij J_ij [x_i = x_j])`` with all ``J_ij >= 0``, up to functions
    of one variable in the tables, and after relabeling binary variables (:func:`attractive_form`); states go in and
    out with the labels of the model. Unaries may be -inf, tables not; leave forbidden states in.

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
        self.model = model
        self.structure = model.structure
        self.layout = Layout(model.structure)
        self.num_chains = check_count("num_chains", num_chains, least=1)
        self.seed = choose_seed(seed)
        self.threads = Threads(min(check_threads(num_threads), self.num_chains))
        if model.shared_tables is None:
            self.sets = ParameterSets.of(model.parameters)
        else:
            self.sets = self._read_shared(model.weight_parameters, model.shared_tables, None)
        self._form = attractive_form(model)
        self._coupled: _CoupledTheta | None = None
        kind: type[np.unsignedinteger[Any]] = np.uint8 if model.num_states.max(initial=1) <= 256 else np.uint32
        self._states: NDArray[Any] = np.zeros((self.num_chains, model.num_variables), dtype=kind)
        self._random = make_streams(self.seed, 0, self.num_chains).T.copy()
        self._sums = np.zeros((self.num_chains, len(model.log_unary)))
        self._num_collected = 0
        self._run(1, coupled=False)

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Go on with the parameters ``coefficients[0] @ thetas``; see :meth:`fastmix.chains.base.Chains.load`."""
        self._take_sets(self._read_sets(thetas, coefficients))

    def load_shared(self, thetas: ArrayLike, tables: SharedTables, coefficients: ArrayLike | None = None) -> None:
        """Go on with unaries and weights of patterns; see :meth:`fastmix.chains.base.Chains.load_shared`."""
        self._take_sets(self._read_shared(thetas, tables, coefficients))

    def _take_sets(self, sets: ParameterSets) -> None:
        """Go on with one set of parameters, from the configurations as they are."""
        lanes = self._lanes()
        self._form = self._form_of(sets)
        self.sets = sets
        self._put(lanes)

    def _form_of(self, sets: ParameterSets) -> AttractiveForm:
        """The normal form of a set; found once for thetas of which one alone has tables, as its form grows with it."""
        split = self.layout.split
        if self._coupled is None or self._coupled.thetas is not sets.thetas:
            coupled = np.flatnonzero(sets.thetas[:, split:].any(axis=1))
            if len(coupled) != 1:
                return attractive_form(self._model_of(sets.theta(0), sets.tables))
            theta = sets.thetas[coupled[0]]
            model = self.model
            if not self._has_tables(theta[split:], sets.tables):
                model = self._model_of(theta, sets.tables)
            self._coupled = _CoupledTheta(sets.thetas, int(coupled[0]), attractive_form(model))
        form = self._coupled.form
        [weights] = sets.coefficients
        scale = float(weights[self._coupled.place])
        if scale < 0.0:
            return attractive_form(self._model_of(sets.theta(0), sets.tables))
        unary = weights @ sets.thetas[:, :split] + scale * form.moved
        if sets.forbidden is not None:
            unary[sets.forbidden[:split]] = -np.inf
        unary = unary[flipped_entries(self.model, form.flips)]
        if scale == 0.0:
            return replace(form, heads=form.heads[:0], tails=form.tails[:0], couplings=np.zeros(0), log_unary=unary)
        return replace(form, couplings=scale * form.couplings, log_unary=unary)

    def _has_tables(self, values: FloatArray, tables: SharedTables | None) -> bool:
        """Whether tables, or weights of shared ones, are those of the model itself."""
        if tables is None:
            return np.array_equal(values, self.model.log_pairwise)
        split = self.layout.split
        return tables is self.model.shared_tables and np.array_equal(values, self.model.weight_parameters[split:])

    def _model_of(self, theta: FloatArray, tables: SharedTables | None) -> MarkovRandomField:
        """The model on the same graph with these parameters, or with these unaries and weights of shared tables."""
        if tables is None:
            return self.model.with_parameters(theta)
        split = self.layout.split
        return self.model.replace(log_unary=theta[:split], shared_tables=tables.with_weights(theta[split:]))

    def _lanes(self) -> NDArray[Any]:
        """Configurations (n, num_chains) with the labels of the model."""
        return np.ascontiguousarray((self._states ^ self._form.flips).T)

    def _put(self, lanes: NDArray[Any]) -> None:
        """Set configurations (n, num_chains) that have the labels of the model."""
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
        sums = self._sums
        count = self._num_collected
        flips = self._form.flips
        self._sums = np.zeros(sums.shape)
        self._num_collected = 0
        if (self.structure.num_states == 2).all():  # kernels have added those of state 0
            np.subtract(count, sums[:, ::2], out=sums[:, 1::2])
        return (sums[:, flipped_entries(self.model, flips)] if flips.any() else sums).T

    def pack(self, first: int, last: int) -> tuple[Any, ...]:
        """Configurations, generators and sums of some chains, for :meth:`unpack`."""
        arrays = self._states, self._random, self._sums
        return *(array[first:last].copy() for array in arrays), self._num_collected

    def unpack(self, first: int, last: int, parts: tuple[Any, ...]) -> None:
        """Let some chains go on from what others were."""
        self._states[first:last], self._random[first:last], self._sums[first:last], self._num_collected = parts

    def get_random_state(self) -> NDArray[np.uint64]:
        """The streams (num_chains, 4), which :meth:`set_random_state` takes back."""
        return self._random.astype(np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Go on with the random numbers of the chains that gave this state."""
        self._random[...] = state

    def _run(self, num_sweeps: int, *, collect: bool = False, coupled: bool = True) -> None:
        """Run sweeps of all chains, without bonds if they are not to be coupled."""
        from fastmix.sampling.cluster_kernels import sweep_clusters

        arrays = _kernel_arrays(self._form)
        bonds = arrays[:3]
        if not coupled:
            bonds = tuple(array[:0] for array in bonds)
        run: Any = partial(sweep_clusters, *bonds, *arrays[3:], self._states, self._random, self._sums)
        num_updates = self.num_chains * num_sweeps * self.model.num_variables
        few = num_updates < self.threads.min_updates
        blocks = 1 if few else min(self.num_chains, BLOCKS_PER_THREAD * self.threads.count)
        bounds = [self.num_chains * k // blocks for k in range(blocks + 1)]
        self.threads.run([partial(run, *block, num_sweeps, collect) for block in pairwise(bounds)], num_updates)


def _kernel_arrays(form: AttractiveForm) -> tuple[NDArray[Any], ...]:
    """Arrays of a form that kernels read: edges, thresholds for bonds (of probability 1 - exp(-J)), and unaries."""
    if form not in _ARRAYS:
        thresholds = np.minimum(np.round(-np.expm1(-form.couplings) * 2.0**32), MAX_THRESHOLD).astype(np.uint32)
        binary = (np.diff(form.unary_offsets) == 2).all()
        fields = form.log_unary[::2] - form.log_unary[1::2] if binary else np.zeros(0)
        _ARRAYS[form] = form.heads, form.tails, thresholds, form.unary_offsets, form.log_unary, fields
    return _ARRAYS[form]


def lengths_of_stay(model: MarkovRandomField, mean: FloatArray) -> FloatArray:
    """Lower bounds on the mean number of sweeps that a variable stays in a state, (entries of log_unary,).

    While bonds join it to a neighbor in the same state a variable goes where the whole cluster goes, and clusters that
    fields hold stay where they are. It is released by a sweep without such bonds, of probability
    ``prod_j (1 - m_j(s) (1 - exp(-J_ij)))`` for neighbors that have the state with probability m_j(s), if it then
    chooses another state by its own unary. ``mean`` are the marginals; the effort is O(edges times states).
    """
    form = attractive_form(model)
    flipped = flipped_entries(model, form.flips)
    shares = mean[flipped]
    offsets = model.unary_offsets
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
    return np.asarray(np.exp(np.minimum(-held, LONGEST_STAY))[flipped])
