"""``SampledPartition``: derivatives of log Z from Gibbs chains that go on while the parameters change."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, choose_seed
from fastmix._clock import NO_LIMIT, Clock
from fastmix._context import stream_seed
from fastmix.chains.base import Chains
from fastmix.errors import ModelError
from fastmix.gradients.log_z import plain_model
from fastmix.gradients.partition import Partition, Slopes, structure_of
from fastmix.gradients.tuning import BURN_IN, NUM_CHAINS, SWEEPS_PER_CALL

__all__ = ["SampledPartition"]


@dataclass(frozen=True, eq=False)
class SampledPartition(Partition):
    """Derivatives of log Z from persistent chains, for graphs on which nothing else fits.

    It takes the place of a structure in :mod:`fastmix.torch` and :mod:`fastmix.jax`. Chains are kept for every row of a
    batch by its place, so that rows should stay where they are, or be a single one. Each call of :meth:`gradients`
    makes some sweeps at the new parameters; products with the Hessian are covariances over the chains as they are then.

    Parameters
    ----------
    structure : Structure or MarkovRandomField
    num_chains : int
        Independent chains of every row.
    burn_in, num_sweeps : int
        Sweeps before the first gradient, and for each.
    seed : int, optional

    Attributes
    ----------
    std_error : float array (.., P)
        Standard errors of the last gradient: those of independent chains. What chains that have not mixed are off by is
        not in it; :func:`fastmix.certify` says how many sweeps suffice.

    Notes
    -----
    Chains do not know log Z: the value is ``theta . mean``, which has the right gradient and nothing else.

    Examples
    --------
    >>> import fastmix
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=0.3, seed=0)
    >>> sampled = SampledPartition(model.structure, num_chains=400, seed=0)
    >>> error = sampled.gradients(model.parameters).gradient - fastmix.log_z(model).gradient()
    >>> bool((np.abs(error) < 5 * sampled.std_error + 1e-9).all())
    True
    """

    num_chains: int = NUM_CHAINS
    burn_in: int = BURN_IN
    num_sweeps: int = SWEEPS_PER_CALL
    seed: int | None = None
    chains: list[Chains] = field(default_factory=list, init=False, repr=False)
    found: dict[str, FloatArray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "structure", structure_of(self.structure))
        object.__setattr__(self, "num_chains", check_count("num_chains", self.num_chains, least=2))
        object.__setattr__(self, "burn_in", check_count("burn_in", self.burn_in, least=0))
        object.__setattr__(self, "num_sweeps", check_count("num_sweeps", self.num_sweeps, least=1))
        object.__setattr__(self, "seed", choose_seed(self.seed))

    @property
    def std_error(self) -> FloatArray:
        """Standard errors of the last gradient, in its shape."""
        if "std_error" not in self.found:
            raise ModelError("std_error must be read after a gradient has been computed")
        return self.found["std_error"]

    def values(self, theta: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> FloatArray:
        """What has the gradient of log Z: ``theta . mean`` (..)."""
        return self.gradients(theta, num_threads=num_threads, clock=clock).log_z

    def gradients(self, theta: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> Slopes:
        """The same, and the frequencies (.., P) of all entries over the chains, after some sweeps at the parameters."""
        rows = self._flat(theta)
        if not np.isfinite(rows).all():
            raise ModelError("parameters must be finite for chains that follow them")
        means = np.empty(rows.shape)
        for place, row in enumerate(rows):
            clock.check()
            self._move(place, row, num_threads)
            entries = self._entries(place)
            means[place] = np.bincount(entries.reshape(-1), minlength=rows.shape[1]) / self.num_chains
        # Indicators: the variance of each follows from its mean.
        errors = np.sqrt(means * (1.0 - means) / (self.num_chains - 1))
        self.found["std_error"] = errors.reshape(theta.shape)
        values = (rows * means).sum(axis=1)
        return Slopes(values.reshape(theta.shape[:-1]), means.reshape(theta.shape))

    def hessian_products(
        self, theta: FloatArray, directions: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT
    ) -> Slopes:
        """Covariances over the chains, times directions (.., P); the chains stay where the last gradient left them."""
        rows = self._flat(theta)
        if len(self.chains) < len(rows):
            self.gradients(theta, num_threads=num_threads, clock=clock)
        wanted = self._flat(np.broadcast_to(directions, theta.shape))
        means = np.empty(rows.shape)
        products = np.empty(rows.shape)
        for place, direction in enumerate(wanted):
            entries = self._entries(place)
            scores = direction[entries].sum(axis=1)
            scores -= scores.mean()
            shares = np.repeat(scores / (self.num_chains - 1), entries.shape[1])
            products[place] = np.bincount(entries.reshape(-1), shares, minlength=rows.shape[1])
            means[place] = np.bincount(entries.reshape(-1), minlength=rows.shape[1]) / self.num_chains
        values = (rows * means).sum(axis=1).reshape(theta.shape[:-1])
        return Slopes(values, means.reshape(theta.shape), products.reshape(theta.shape))

    def _move(self, place: int, theta: FloatArray, num_threads: int) -> None:
        """Make sweeps of the chains of one row at its parameters."""
        from fastmix.chains.cpu import CpuChains

        num_sweeps = self.num_sweeps
        if place == len(self.chains):
            assert self.seed is not None
            seed = stream_seed(self.seed, "row", place)
            made = CpuChains(
                self.structure, num_chains=self.num_chains, seed=seed, num_threads=num_threads, steady=False
            )
            self.chains.append(made)
            num_sweeps += self.burn_in
        self.chains[place].load(theta)
        self.chains[place].sweep(num_sweeps)

    def _entries(self, place: int) -> IntArray:
        """The entries (C, terms) that the configurations of the chains of one row select."""
        structure = self.structure
        states = self.chains[place].get_states().astype(np.int64)
        positions = plain_model(structure).entry_positions(states)
        first = int(structure.unary_offsets[-1])
        second = first + int(structure.pairwise_offsets[-1])
        shifted = [part + start for part, start in zip(positions, (0, first, second), strict=True)]
        return np.concatenate(shifted, axis=1)
