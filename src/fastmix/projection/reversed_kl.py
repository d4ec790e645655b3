"""The reversed KL-divergence, from the projection to the model, estimated over a pool of chains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_backend, check_count, keep_checked
from fastmix._clock import Clock
from fastmix._context import stream_seed
from fastmix._memory import check_memory
from fastmix.chains.annealing import Annealing, make_pool
from fastmix.chains.base import Chains
from fastmix.chains.patches import Patch, make_patches, whole_patch
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.flat import table_positions
from fastmix.projection.descent import DecreasingStep, FixedStep, StepRule, Trace
from fastmix.projection.divergence import Divergence, Objective, register_divergence
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.tuning import (
    LEAST_MARGINAL,
    MAX_WHOLE_PATCH,
    PATCH_REACH,
    POOL_UPDATES_PER_SECOND,
    TRIAL_STEP_SIZE,
)

__all__ = ["PoolObjective", "ReversedKL", "anneal", "anneal_population", "match_marginals"]

# The largest log-potential: tables of chains hold numbers of single precision, up to 3.4e38.
_LARGEST_ENTRY = 1e30


@register_divergence
@dataclass(frozen=True)
class ReversedKL(Divergence):
    """``KL(theta || psi) = sum_x p(x; theta) log(p(x; theta) / p(x; psi))``, by sampling from theta, which mixes fast.

    The gradient is ``Cov_theta(f(x), (theta - psi) . f(x))`` with the indicators f, estimated over a pool of chains
    that make a few Gibbs sweeps on every new theta (Liu and Domke, 2014, section 6.2.3). The divergence is not convex,
    and a descent keeps to the valley it finds itself in. Several starts are therefore tried for a few steps, and the
    descent goes on from the one with the lowest estimate of the divergence: the Euclidean projection, and models whose
    marginals are those of a population of chains annealed toward psi.

    Parameters
    ----------
    pool_size : int
        Number of chains, at least 2.
    sweeps_per_step : int
        Gibbs sweeps of every chain between two gradients.
    num_starts : int
        Number of starts that are compared; 1 takes the Euclidean projection without any trial, as the paper does.
    start_steps : int
        Number of trial steps from every start.
    annealing_sweeps : int
        Number of sweeps that bring fresh chains to a model, for every estimate of log Z.
    population_sweeps : int
        Number of sweeps that bring a population to psi.
    patch_size : int, optional
        Number of variables per patch. In models of more than 400 variables the covariances are local: the graph is cut
        into patches, and the energy that an indicator of a patch is correlated with is summed up to 4 edges beyond the
        patch. Otherwise the noise of every covariance would grow with the square root of the number of variables. None
        correlates with the energy of the whole model, without that bias.
    backend : {"cpu", "cuda", "auto"}
        Device that holds the chains: the processor, or an NVIDIA GPU, which is for many chains and for large models.
        ``auto`` takes a GPU if there is one with enough memory; results for a seed differ between the two.

    Raises
    ------
    UnfitMethodError
        From :meth:`start`: the backend is ``cuda`` without a usable device, or entries of the model are too large.

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
    >>> result.norm_after <= 2.0, result.history[-1]["value"] < 1.0
    (True, True)
    """

    name: ClassVar[str] = "reversed-kl"
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
        """The divergence from one model, estimated over chains of its own."""
        largest = float(np.abs(model.parameters).max(initial=0.0))
        if largest > _LARGEST_ENTRY:
            raise UnfitMethodError(
                f"the divergence {self} takes log-potentials up to {_LARGEST_ENTRY:g}, and the model has "
                f"{largest:.3g}; the Euclidean divergence takes all"
            )
        required = 4.0 * self.pool_size * (1 + model.num_variables)
        check_memory(required, f"pool_size {self.pool_size}", "take a smaller pool")
        return PoolObjective(model, self, seed)

    def least_seconds(self, model: MarkovRandomField) -> float:
        """The seconds that the sweeps of a first estimate take."""
        updates_per_sweep = float(model.num_variables + model.num_edges)
        return self.annealing_sweeps * self.pool_size * updates_per_sweep / POOL_UPDATES_PER_SECOND

    @property
    def default_step(self) -> StepRule:
        """Decreasing steps with averaging, scaled by the variances that the pool sees."""
        return DecreasingStep(coordinates="fisher")


class PoolObjective(Objective):
    """Free energy and its gradient, estimated over chains that follow theta."""

    exact = False

    def __init__(self, model: MarkovRandomField, settings: ReversedKL, seed: int) -> None:
        self.settings = settings
        self._rng = np.random.default_rng(stream_seed(seed, "resampling"))
        self.pool, self.place = make_pool(
            model, settings.backend, num_chains=settings.pool_size, seed=stream_seed(seed, "pool"), num_threads=1
        )
        self.model = model
        self.psi = model.parameters
        self.psi_constant = model.log_constant
        self.constant = -math.inf
        self._log_z = math.nan
        self._theta: FloatArray | None = None  # parameters that the chains have followed; None for fresh chains
        self._free_energy = math.nan

    def watch(self, clock: Clock) -> None:
        """Take the clock of the call, which is read while the graph is cut into patches and while the chains move."""
        self.pool.clock = clock

    @cached_property
    def patches(self) -> list[Patch]:
        """The parts of the graph within which covariances are taken."""
        size = self.settings.patch_size
        if size is None or self.model.num_variables <= MAX_WHOLE_PATCH:
            return [whole_patch(self.model)]
        return make_patches(self.model, core_size=size, reach=PATCH_REACH, clock=self.pool.clock)

    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """Estimates of the free energy and of the gradient, after the pool has moved to theta."""
        parameters = theta.parameters
        fresh = self._theta is None or self.moments is None
        if self._theta is None or self.moments is None:
            self._log_z = anneal(self.pool, parameters, self.settings.annealing_sweeps)
            self.moments = self.pool.moments()
        else:
            self._follow(self._theta, parameters, self.moments)
        self._theta = parameters

        [energies] = self.pool.energies(parameters - self.psi)
        gradient = self.pool.covariances(parameters - self.psi, self.patches)
        if fresh:
            # An estimate of log Z of psi by importance sampling. Only from fresh chains: the largest of a hundred
            # estimates would be an outlier.
            psi_log_z = self._log_z + float(np.logaddexp.reduce(-energies)) - math.log(len(energies))
            self.constant = max(self.constant, psi_log_z)
        self._free_energy = float(energies.mean()) - self._log_z
        return self._free_energy, gradient

    def _follow(self, old: FloatArray, new: FloatArray, old_moments: FloatArray) -> None:
        """Move the chains from old parameters to new ones, and log Z with them."""
        self.pool.load(new)
        for _ in range(self.settings.sweeps_per_step):
            self.pool.clock.check()
            self.pool.sweep(1)
        new_moments = self.pool.moments()
        # d log Z = mu . d theta, by the trapezium rule.
        self._log_z += 0.5 * float((new - old) @ (new_moments + old_moments))
        self.moments = new_moments

    def value(self, theta: MarkovRandomField) -> float:
        """The free energy, estimated over fresh chains."""
        self._theta = None
        return self.evaluate(theta)[0]

    def facts(self) -> dict[str, Any]:
        """The lower bound on log Z of the model, at the theta evaluated last, and the device of the pool."""
        return {"log_z_bound": self.psi_constant - self._free_energy, "backend": self.place}

    def starts(self, theta: MarkovRandomField) -> Iterator[MarkovRandomField]:
        """The Euclidean projection, and models with the marginals of populations annealed toward psi."""
        yield theta
        for _ in range(self.settings.num_starts - 1):
            log_z = anneal_population(self.pool, self.psi, self.settings.population_sweeps, self._rng)
            self.constant = max(self.constant, log_z)
            self.moments = self.pool.moments()
            candidate = match_marginals(theta, self.moments)
            # The chains go on from here; log Z is not known and does not matter to the steps of a trial.
            self._theta = candidate.parameters
            self._log_z = 0.0
            yield candidate

    def begin(self, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace) -> MarkovRandomField:
        """The start that has the lowest value after a few steps, with the chains as they were there."""
        if self.settings.num_starts == 1:
            return theta
        trial = FixedStep(TRIAL_STEP_SIZE, self.settings.start_steps, "fisher")
        best: _Start | None = None
        for start in self.starts(theta):
            candidate = trial.descend(self, start, feasible, Trace(trace.clock.part(1.0, quiet=True)))
            if trace.out_of_time():
                if best is None:
                    return candidate  # the only one so far: nothing to compare it with
                break
            value = self.value(candidate)
            if value < (math.inf if best is None else best.value):
                best = _Start(candidate, value, self.pool.save(), self._theta, self._log_z, self.moments)
        assert best is not None
        self.pool.restore(best.chains)
        self._theta = best.parameters
        self._log_z = best.log_z
        self.moments = best.moments
        return best.theta


class _Start(NamedTuple):
    """A model to begin a descent with, its value, and the state of the objective there."""

    theta: MarkovRandomField
    value: float
    chains: Any
    parameters: FloatArray | None
    log_z: float
    moments: FloatArray | None


def anneal(pool: Chains, parameters: FloatArray, num_sweeps: int) -> float:
    """An estimate of log Z of a model, to which fresh chains are brought, its tables growing with every sweep.

    Annealed importance sampling: from exact draws of the model without tables, whose log Z is a sum over variables,
    through ``num_sweeps`` models on the way. The estimate of Z is unbiased, so that of log Z is too small in the mean,
    by about half the variance of the log-weights over the number of chains. The constant of the model is left out.
    """
    unary_offsets = pool.structure.unary_offsets
    num_unary = int(unary_offsets[-1])
    unaries_and_tables = np.zeros((2, len(parameters)))
    unaries_and_tables[0, :num_unary] = parameters[:num_unary]
    unaries_and_tables[1, num_unary:] = parameters[num_unary:]
    annealing = Annealing(pool, unaries_and_tables, [1.0, 0.0])
    pool.sweep(1)  # without tables, every update is a draw from the unary alone
    for k in range(1, num_sweeps + 1):
        annealing.move([1.0, k / num_sweeps])
    starts = unary_offsets[:-1]
    log_z_of_unaries = np.logaddexp.reduceat(parameters[:num_unary], starts).sum() if len(starts) else 0.0
    return float(log_z_of_unaries + np.logaddexp.reduce(annealing.log_weights)) - math.log(pool.num_chains)


def anneal_population(pool: Chains, parameters: FloatArray, num_sweeps: int, rng: np.random.Generator) -> float:
    """An estimate of log Z of a model that may mix slowly, toward which fresh chains are brought.

    Population annealing: all parameters grow from 0 with every sweep, and the chains are resampled by the weights of
    the change, so that those in unlikely valleys die out. As for :func:`anneal` the estimate of Z is unbiased.
    """
    annealing = Annealing(pool, parameters[None], [0.0])
    pool.sweep(1)
    for k in range(1, num_sweeps + 1):
        annealing.move([k / num_sweeps], rng=rng)
    return float(np.log(pool.structure.num_states).sum() + annealing.log_ratio[0])


def match_marginals(theta: MarkovRandomField, moments: FloatArray) -> MarkovRandomField:
    """The model with the unaries that give it some marginals in mean-field theory; its tables stay.

    ``u_i(a) = log p_i(a) - sum over neighbors j of sum_b T_ij(a, b) p_j(b)``.
    """
    num_unary = len(theta.log_unary)
    marginals = np.maximum(moments[:num_unary], LEAST_MARGINAL)
    table, row, col = table_positions(theta.num_states, theta.edges)
    first = theta.unary_offsets[theta.edges[table, 0]] + row
    second = theta.unary_offsets[theta.edges[table, 1]] + col
    fields = np.bincount(first, theta.log_pairwise * moments[second], num_unary)
    fields += np.bincount(second, theta.log_pairwise * moments[first], num_unary)
    return theta.replace(log_unary=np.log(marginals) - fields)
