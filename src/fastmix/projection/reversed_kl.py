"""The reversed KL-divergence, from the projection to the model, estimated over a pool of chains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_backend, check_count, keep_checked
from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.chains.annealing import Annealing, make_pool
from fastmix.chains.base import Chains
from fastmix.chains.patches import Patch, make_patches, whole_patch
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.build import table_positions
from fastmix.projection.descent import DecreasingStep, Divergence, FixedStep, Objective, StepRule, Trace
from fastmix.projection.feasible import FeasibleSet

__all__ = ["PoolObjective", "ReversedKL", "anneal", "anneal_population", "match_marginals"]

_LARGEST = 1e30  # of log-potentials: tables of chains hold numbers of single precision
_START_SIZE = 0.1
_PER_SECOND = 2e8  # variables and edges of a chain that are gone through
_WHOLE = 400  # variables up to which a model is one patch
_REACH = 4
_LEAST_MARGINAL = 0.01  # of a population: a state that no chain is in is rare, not impossible


@dataclass(frozen=True)
class ReversedKL(Divergence, name="reversed-kl"):
    """``KL(theta || psi) = sum_x p(x; theta) log(p(x; theta) / p(x; psi))``, by sampling from theta, which mixes fast.

    The gradient is ``Cov_theta(f(x), (theta - psi) . f(x))`` with the indicators f, estimated over a pool of chains
    that make a few Gibbs sweeps on every new theta (Liu and Domke, 2014, section 6.2.3). The divergence is not convex,
    and a descent keeps to the valley it finds itself in. Several starts are therefore tried for a few steps, and the
    descent goes on from the one with the lowest estimate of the divergence: the Euclidean projection, and models whose
    marginals are those of a population of chains annealed towards psi.

    Parameters
    ----------
    pool_size : int
        Chains of the pool, at least 2.
    sweeps_per_step : int
        Gibbs sweeps of every chain between two gradients.
    num_starts : int
        Starts that are compared; 1 takes the Euclidean projection without any trial, as the paper does.
    start_steps : int
        Steps of every trial.
    annealing_sweeps : int
        Sweeps that bring fresh chains to a model, for every estimate of log Z.
    population_sweeps : int
        Sweeps that bring a population to psi.
    patch_size : int, optional
        In models of more than 400 variables the covariances are local: the graph is cut into patches of about this
        many variables, and the energy that an indicator of a patch is correlated with is summed up to 4 edges beyond
        the patch: the noise of every covariance would grow with the square root of the number of variables. None
        correlates with the energy of the whole model, without that bias.
    backend : {"cpu", "cuda", "auto"}
        Where the pool is: in the memory of the host, or on an NVIDIA GPU, which is for many chains and for large
        models. ``auto`` takes a GPU if there is one with enough memory; results for a seed differ between the two.

    Raises
    ------
    UnfitMethodError
        By :meth:`start`, for the backend ``cuda`` without a usable device.

    Notes
    -----
    Values are estimates of ``F(theta) + log Z(psi)`` with the free energy ``F = E_theta[(theta - psi) . f] - log Z``.
    Log Z(theta) comes from annealed importance sampling at the start and follows theta by ``d log Z = mu . d theta``;
    log Z(psi) is the largest of the estimates that populations and fresh pools give, each of them too small in the
    mean, so that values of strong models tend to be too small too. ``stats["log_z_bound"]`` of the result is -F: an
    estimate of a lower bound on log Z(psi). More steps from one start do not help; other starts do.

    A step takes about 2 ms on a 16x16 grid of binary variables with 500 chains. Time and memory are linear in the
    number of chains times the number of edges.

    Examples
    --------
    >>> import fastmix
    >>> model = fastmix.instances.ising_grid(4, 4, coupling_max=2.0, seed=0)
    >>> result = fastmix.project(model, norm_bound=2.0, divergence=ReversedKL(), seed=1)
    >>> result.norm_after <= 2.0, result.history[-1][1] < 1.0
    (True, True)
    """

    pool_size: int = 500
    sweeps_per_step: int = 1
    num_starts: int = 4
    start_steps: int = 20
    annealing_sweeps: int = 40
    population_sweeps: int = 80
    patch_size: int | None = 64
    backend: Literal["cpu", "cuda", "auto"] = "cpu"

    def __post_init__(self) -> None:
        check_backend(self.backend)
        if self.patch_size is not None:
            keep_checked(self, patch_size=check_count("patch_size", self.patch_size, least=1))
        keep_checked(self, pool_size=check_count("pool_size", self.pool_size, least=2))
        for name in ("sweeps_per_step", "num_starts", "start_steps", "annealing_sweeps", "population_sweeps"):
            keep_checked(self, **{name: check_count(name, getattr(self, name), least=1)})

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """Estimates for one model, with chains of their own."""
        if (largest := float(np.abs(model.parameters).max(initial=0.0))) > _LARGEST:
            raise UnfitMethodError(
                f"the divergence {self} takes log-potentials up to {_LARGEST:g}, and the model has {largest:.3g}; "
                "the Euclidean divergence takes all"
            )
        required = 4.0 * self.pool_size * (1 + model.num_variables)
        check_memory(required, f"pool_size {self.pool_size}", "take a smaller pool")
        return PoolObjective(model, self, seed)

    def least_seconds(self, model: MarkovRandomField) -> float:
        """What the sweeps of a first estimate take."""
        return self.annealing_sweeps * self.pool_size * float(model.num_variables + model.num_edges) / _PER_SECOND

    @property
    def default_step(self) -> StepRule:
        """Decreasing steps with averaging, scaled by the variances that the pool sees."""
        return DecreasingStep(coordinates="fisher")


class PoolObjective(Objective):
    """Free energy and gradient over chains that follow theta."""

    exact = False

    def __init__(self, model: MarkovRandomField, settings: ReversedKL, seed: int) -> None:
        self.settings, self._rng = settings, np.random.default_rng([seed, 1])
        size = settings.pool_size
        self.pool, self.place = make_pool(model, settings.backend, num_chains=size, seed=seed, num_threads=1)
        self.model = model
        self.psi = model.parameters
        self.psi_constant = model.log_constant
        self.constant = -math.inf
        self._log_z = math.nan
        self._theta: FloatArray | None = None  # what the pool has followed so far; None for fresh chains
        self._free_energy = math.nan

    def watch(self, clock: Clock) -> None:
        """Look at a clock while the graph is cut into patches and while the chains move."""
        self.pool.clock = clock

    @cached_property
    def patches(self) -> list[Patch]:
        """Where covariances are taken."""
        size = self.settings.patch_size
        if size is None or self.model.num_variables <= _WHOLE:
            return [whole_patch(self.model)]
        return make_patches(self.model, core_size=size, reach=_REACH, clock=self.pool.clock)

    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """Estimates of the free energy and of the gradient, after the pool has moved to theta."""
        parameters = theta.parameters
        fresh = self._theta is None or self.moments is None
        if self._theta is None or self.moments is None:
            self._log_z = anneal(self.pool, parameters, self.settings.annealing_sweeps)
            self.moments = self.pool.moments()
        else:
            before = self.moments
            self.pool.load(parameters)
            for _ in range(self.settings.sweeps_per_step):
                self.pool.clock.check()
                self.pool.sweep(1)
            self.moments = self.pool.moments()
            # d log Z = mu . d theta, by the trapezium rule.
            self._log_z += 0.5 * float((parameters - self._theta) @ (self.moments + before))
        self._theta = parameters
        [energies] = self.pool.energies(parameters - self.psi)
        gradient = self.pool.covariances(parameters - self.psi, self.patches)
        if fresh:
            # By importance sampling. Only from fresh chains: the largest of a hundred estimates would be an outlier.
            psi_log_z = self._log_z + float(np.logaddexp.reduce(-energies)) - math.log(len(energies))
            self.constant = max(self.constant, psi_log_z)
        self._free_energy = float(energies.mean()) - self._log_z
        return self._free_energy, gradient

    def value(self, theta: MarkovRandomField) -> float:
        """The free energy over fresh chains."""
        self._theta = None
        return self.evaluate(theta)[0]

    def facts(self) -> dict[str, Any]:
        """The lower bound on log Z of the model, at the theta evaluated last, and where the pool is."""
        return {"log_z_bound": self.psi_constant - self._free_energy, "backend": self.place}

    def starts(self, theta: MarkovRandomField) -> Iterator[MarkovRandomField]:
        """The Euclidean projection, and models with the marginals of populations annealed towards psi."""
        yield theta
        for _ in range(self.settings.num_starts - 1):
            log_z = anneal_population(self.pool, self.psi, self.settings.population_sweeps, self._rng)
            self.constant = max(self.constant, log_z)
            self.moments = self.pool.moments()
            candidate = match_marginals(theta, self.moments)
            # The chains go on from here; log Z is not known and does not matter to the steps of a trial.
            self._theta, self._log_z = candidate.parameters, 0.0
            yield candidate

    def begin(self, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace) -> MarkovRandomField:
        """The start that has the lowest value after a few steps, with the chains as they were there."""
        if self.settings.num_starts == 1:
            return theta
        trial = FixedStep(_START_SIZE, self.settings.start_steps, "fisher")
        best, lowest, kept = theta, math.inf, None
        for candidate in self.starts(theta):
            candidate = trial.descend(self, candidate, feasible, Trace(trace.clock.part(1.0, quiet=True)))
            if trace.out_of_time():
                if kept is None:
                    return candidate  # the only one so far: nothing to compare it with
                break
            value = self.value(candidate)
            if value < lowest:
                best, lowest, kept = candidate, value, (self.pool.save(), self._theta, self._log_z, self.moments)
        assert kept is not None
        chains, self._theta, self._log_z, self.moments = kept
        self.pool.restore(chains)
        return best


def anneal(pool: Chains, parameters: FloatArray, num_sweeps: int) -> float:
    """Bring fresh chains to a model, its tables growing with every sweep; an estimate of its log Z.

    Annealed importance sampling: from exact draws of the model without tables, whose log Z is a sum over variables,
    through ``num_sweeps`` models on the way. The estimate of Z is unbiased, so that of log Z is too small in the mean,
    by about half the variance of the log-weights over the number of chains. The constant of the model is left out.
    """
    split, starts = int(pool.structure.unary_offsets[-1]), pool.structure.unary_offsets[:-1]
    thetas = np.zeros((2, len(parameters)))
    thetas[0, :split], thetas[1, split:] = parameters[:split], parameters[split:]
    annealing = Annealing(pool, thetas, [1.0, 0.0])
    pool.sweep(1)  # without tables, every update is a draw from the unary alone
    for k in range(1, num_sweeps + 1):
        annealing.move([1.0, k / num_sweeps])
    alone = np.logaddexp.reduceat(parameters[:split], starts).sum() if len(starts) else 0.0
    return float(alone + np.logaddexp.reduce(annealing.log_weights)) - math.log(pool.num_chains)


def anneal_population(pool: Chains, parameters: FloatArray, num_sweeps: int, rng: np.random.Generator) -> float:
    """Bring fresh chains to a model that may mix slowly, as far as that goes; an estimate of its log Z.

    Population annealing: all parameters grow from 0 with every sweep, and the chains are resampled by the weights of
    the change, so that those in unlikely valleys die out. As for :func:`anneal` the estimate of Z is unbiased.
    """
    annealing = Annealing(pool, parameters[None], [0.0])
    pool.sweep(1)
    for k in range(1, num_sweeps + 1):
        annealing.move([k / num_sweeps], rng=rng)
    return float(np.log(pool.structure.num_states).sum() + annealing.log_ratio[0])


def match_marginals(theta: MarkovRandomField, moments: FloatArray) -> MarkovRandomField:
    """The model with other unaries, those that have the given marginals in mean-field theory.

    ``u_i(a) = log p_i(a) - sum over neighbors j of sum_b T_ij(a, b) p_j(b)``.
    """
    split = len(theta.log_unary)
    marginals = np.maximum(moments[:split], _LEAST_MARGINAL)
    table, row, col = table_positions(theta.num_states, theta.edges)
    first = theta.unary_offsets[theta.edges[table, 0]] + row
    second = theta.unary_offsets[theta.edges[table, 1]] + col
    fields = np.bincount(first, theta.log_pairwise * moments[second], split)
    fields += np.bincount(second, theta.log_pairwise * moments[first], split)
    return theta.replace(log_unary=np.log(marginals) - fields)
