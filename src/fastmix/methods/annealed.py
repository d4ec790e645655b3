"""Swendsen-Wang sweeps on a population of chains whose couplings grow from nothing to those of the model.

Fields that pull a strongly coupled picture both ways freeze its regions, for cluster moves as for single updates:
chains from different starts never meet. Annealing takes every chain through the models in which the regions still
move, and resampling keeps as many chains in each valley as it deserves.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, check_flag
from fastmix._clock import Clock, Report
from fastmix._memory import check_memory
from fastmix.chains.annealing import Annealing
from fastmix.chains.layout import rows_of
from fastmix.methods.base import Context, Method, option, run_method
from fastmix.methods.diagnostics import UNSEEN, student_factor, unseen_errors
from fastmix.methods.starts import find_modes
from fastmix.methods.swendsen_wang import ClusterChains, normal_form
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import DrawResult, InferenceResult, Status

__all__ = ["Annealed", "AnnealedResult", "anneal"]

_MOST_STEPS = 10_000  # whatever the energies are: chains that all begin alike would ask for steps of no length
_INFORMATIVE = 1.0  # standard deviation of the logarithm of the weights up to which resampling keeps several chains
_ANNEALING_SHARE, _COLLECTING_SHARE = 0.7, 0.9  # of a time limit, at the end of each
_LAST_SWEEPS = 12  # as many seconds as these take are left for the averages, which go through all states and sums, too
_LARGEST_STEP = 0.1  # of the couplings at once, where their energy hardly varies
_MOST_FLIPS = 2e6  # states of either end of all edges up to which modes are looked at with every variable changed
_LOOKS, _LOOK_SHARE = 8, 0.1  # at the energies, that the length of a step follows from, and of a time limit
_BATCH_UPDATES = 1e7  # between two looks at the clock: a fraction of a second
_MODES_SHARE = 0.05  # of a time limit, for configurations of large weight to compare with
_SIGMAS = 5.0  # standard errors of the mean log-weight of the chains, for them to have missed something
_DISAGREE = "The populations disagree, or miss what is known: take more chains, more steps or more sweeps per step."
_ROUNDING = 1e-9  # of sums of millions of terms, relative to their size
_AGREEMENT = 0.02  # mean standard error of a probability over populations, above which they disagree


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnnealedResult(InferenceResult):
    """Marginals from annealed populations."""

    #: Of every probability (as ``model.log_unary``), from the differences between populations, with what as many sweeps
    #: may never have met.
    std_error: FloatArray
    #: (num_populations,), how much each population counts, as the logarithm of its estimate of Z over that of
    #: independent variables; zeros where all count alike.
    log_weights: FloatArray
    states: IntArray  #: (num_populations * num_chains, n), where the chains ended

    @property
    def advice(self) -> str:
        """What the status means, in one sentence."""
        return _DISAGREE if self.status == Status.NOT_MIXED else self.status.advice


@dataclass(frozen=True)
class Annealed(Method):
    """Population annealing with Swendsen-Wang sweeps, for attractive models whose fields freeze their regions.

    The options are those of :func:`fastmix.denoising.anneal`.
    """

    name: ClassVar[str] = "annealed"
    guarantee: ClassVar[str] = "exact in the limit of many chains and small steps; the standard errors are estimates"
    drops_forbidden: ClassVar[bool] = False  # clusters need equal state counts at both ends of an edge
    gives_log_z: ClassVar[bool] = True

    num_populations: int = option(4, help="Independent populations of chains.")
    num_chains: int = option(8, help="Chains of every population.")
    num_steps: int = option(150, help="About how many steps annealing takes.")
    sweeps_per_step: int = option(8, help="Sweeps after every step.")
    resample: bool | None = option(help="Whether chains are resampled; where that helps by default.")
    num_sweeps: int | None = option(help="Sweeps averaged at the end; half of those on the way by default.")

    def __post_init__(self) -> None:
        for name, least in (("num_populations", 2), ("num_chains", 2), ("num_steps", 1), ("sweeps_per_step", 1)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least=least))
        if self.resample is not None:
            object.__setattr__(self, "resample", check_flag("resample", self.resample))
        if self.num_sweeps is not None:
            object.__setattr__(self, "num_sweeps", check_count("num_sweeps", self.num_sweeps, least=1))

    def check(self, model: MarkovRandomField) -> None:
        """The model must be attractive; the message names an edge that is in the way."""
        normal_form(model)

    def run(self, model: MarkovRandomField, context: Context) -> AnnealedResult:
        """Marginals of the populations."""
        clock, chains = context.clock, self.num_populations * self.num_chains
        required = 48.0 * chains * max(1, model.num_variables)
        check_memory(required, f"num_populations times num_chains, {chains},", "run fewer or smaller populations")
        modes = find_modes(model, seed=context.seed, clock=clock.part(_MODES_SHARE))
        run = _Populations(model, self.num_populations, self.num_chains, context.seed, context.num_threads, clock)
        step = math.sqrt(run.variance) / self.num_steps
        resampled = (step <= _INFORMATIVE or context.log_z) if self.resample is None else bool(self.resample)
        late, planned = False, math.ceil(1.5 * self.num_steps * self.sweeps_per_step)
        while run.scale < 1.0:
            late |= run.strengthen(step, self.sweeps_per_step, resample=resampled)
            done = run.sweeps
            clock.report(done, max(done, planned), "sweeps", per_second=done * run.updates / max(clock.used(), 1e-9))
        wanted = self.num_sweeps or max(1, run.sweeps // 2)
        sums, done, stopped_by = run.collect(wanted)
        shape = len(sums), self.num_populations, self.num_chains
        sums /= done  # in place: they are the largest array of all
        mean, error = _combine(sums.reshape(shape), run.annealing.log_ratio)
        log_z, log_z_error = run.log_z() if resampled else (None, None)
        bound = run.log_weights().mean() + _entropy(mean) if log_z is None else log_z
        if error.size and not clock.past():
            short = np.maximum.reduceat(np.maximum(0.0, _known(model, modes, bound) - mean), model.unary_offsets[:-1])
            error = np.hypot(error, np.repeat(short, model.num_states))
        note = "populations agree"
        disagreement = float(error.mean()) if error.size else 0.0
        error = _with_unseen(model, mean, error, chains, done)
        if disagreement > _AGREEMENT:
            note = "populations disagree: more chains, smaller steps"
        elif (missed := _missed(model, modes, mean, run.log_weights())) > 0.0:
            note = (
                f"all chains miss configurations that outweigh theirs by a factor of exp({missed:.3g}): smaller steps"
            )
        status = Status.OK if note == "populations agree" else Status.NOT_MIXED
        lower = _proven_bound(model, modes)
        if status != Status.OK:  # populations that have not met can agree on any number
            log_z = None
            log_z_error = None
        if stopped_by == "interrupt":
            status = Status.INTERRUPTED
        states = run.engine.get_states()
        return AnnealedResult(
            model=model,
            method=self.name,
            status=status,
            node_marginals=mean,
            edge_marginals=DrawResult.pair_frequencies(model, states) if context.edge_marginals else None,
            log_z=log_z,
            log_z_kind="estimate" if log_z is not None else "unknown" if lower is None else "bound",
            log_z_std_error=log_z_error,
            log_z_lower=lower,
            stats={
                "num_steps": run.steps, "num_sweeps": run.sweeps, "updates": run.sweeps * run.updates,
                "mean_std_error": float(error.mean()) if error.size else 0.0,
                "stopped_by": "time_limit" if late and stopped_by == "done" else stopped_by,
                "note": note,
            },
            provenance={"options": {"resample": resampled}},
            std_error=error,
            log_weights=run.annealing.log_ratio,
            states=states,
        )  # fmt: skip


def anneal(
    model: MarkovRandomField,
    *,
    num_populations: int = 4,
    num_chains: int = 8,
    num_steps: int = 150,
    sweeps_per_step: int = 8,
    resample: bool | None = None,
    num_sweeps: int | None = None,
    evidence: Evidence | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> AnnealedResult:
    """Marginals of an attractive model by population annealing with Swendsen-Wang sweeps.

    The models ``p_s(x) ~ exp(sum_i u_i(x_i) + s sum_ij T_ij(x_i, x_j))`` lead from independent variables (s = 0) to the
    model (s = 1). At every step to s' the chains of a population are resampled in proportion to
    ``exp((s' - s) sum_ij T_ij)`` and then swept. At s = 1 marginals are averaged over sweeps, and populations count in
    proportion to the product of their mean weights, which is an unbiased estimate of Z over the known normaliser at
    s = 0: ``log_z`` is the logarithm of the mean. More chains or smaller steps make less error.

    Parameters
    ----------
    model : MarkovRandomField
        Attractive Ising or Potts, see :class:`fastmix.methods.swendsen_wang.ClusterChains`.
    num_populations : int
        Independent runs, from whose differences the error is told; at least 2.
    num_chains : int
        Chains in each population, at least 2.
    num_steps : int
        About how many steps to take; they are shorter where the energy of the couplings varies more.
    sweeps_per_step : int
    resample : bool, optional
        By default where a step changes the logarithms of the weights by a standard deviation of 1 at most: beyond, as
        in pictures of a hundred thousand pixels, a few chains would all descend from one. Without resampling this is
        plain annealing from independent starts, and has no ``log_z``.
    num_sweeps : int, optional
        Sweeps at s = 1 that are averaged; half as many as were made on the way by default.
    evidence, seed, num_threads, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default averaging stops. Where the time does not suffice,
        annealing makes fewer sweeps per step, and then larger steps.

    Returns
    -------
    AnnealedResult
        Status ``not_mixed`` when the populations disagree, or when known configurations outweigh all that they visit;
        there is no ``log_z`` then, and ``log_z_lower`` is what known configurations prove.
        Costs ``1.5 num_steps sweeps_per_step`` sweeps of every chain.

    Raises
    ------
    UnfitMethodError
        If the model is not of the class.

    References
    ----------
    Hukushima and Iba, "Population annealing and its application to a spin glass", AIP Conf. Proc. 690 (2003).
    Machta, "Population annealing with weighted averages", Phys. Rev. E 82 (2010).

    Examples
    --------
    >>> from fastmix import infer
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=2.0, attractive=True, seed=0)
    >>> result = anneal(model, num_chains=50, seed=1)
    >>> exact = infer(model, method="exact")
    >>> bool(abs(result.log_z - exact.log_z) < 4 * result.log_z_std_error)
    True
    >>> bool(abs(result.node_marginals - exact.node_marginals).max() < 0.05)
    True
    """
    method = Annealed(num_populations, num_chains, num_steps, sweeps_per_step, resample, num_sweeps)
    return run_method(
        method, model, evidence=evidence, seed=seed, num_threads=num_threads, time_limit=time_limit, progress=progress
    )


class _Populations:
    """Chains on the way from independent variables (a ``scale`` of 0) to the couplings of the model (1)."""

    def __init__(
        self,
        model: MarkovRandomField,
        num_populations: int,
        num_chains: int,
        seed: int,
        num_threads: int | None,
        clock: Clock,
    ) -> None:
        self.model, self.shape, self.clock = model, (num_populations, num_chains), clock
        first, second = np.random.SeedSequence(seed).spawn(2)
        self.rng = np.random.default_rng(first)
        self.scale, self.steps, self.sweeps = 0.0 if model.num_edges else 1.0, 0, 0
        own_seed = int(second.generate_state(1, np.uint64)[0])
        chains = num_populations * num_chains
        self.updates = chains * model.num_variables  # of a sweep of all chains
        self.engine = ClusterChains(model, num_chains=chains, seed=own_seed, num_threads=num_threads)
        split = len(model.log_unary)
        thetas = np.zeros((2, model.num_parameters))  # unaries, which stay as they are, and couplings
        thetas[0, :split], thetas[1, split:] = model.log_unary, model.log_pairwise
        self.annealing = Annealing(self.engine, thetas, [1.0, self.scale], populations=num_populations)
        self.paces: deque[float] = deque(maxlen=5)  # seconds per sweep, lately
        # Variables without couplings: independent draws. Steps follow from what was seen before the configurations that
        # they weigh, or those that weigh more would have shorter steps, and count less.
        self.variance, looks = 0.0, 0  # of the energy of the couplings, in the configurations before the present ones
        while model.num_edges and looks < _LOOKS and not (looks and clock.past(_LOOK_SHARE)):
            self._timed(lambda: self.engine.sweep(1))
            looks += 1
            self.variance += (self._energy_variance() - self.variance) / looks
        self._timed(lambda: self.engine.sweep(1))

    def _timed(self, sweep: Callable[[], None], num_sweeps: int = 1) -> None:
        begin = self.clock.used()
        sweep()
        self.paces.append((self.clock.used() - begin) / num_sweeps)

    def pace(self) -> float:
        """Seconds per sweep: the lower median, as a moment in which the machine stood still changes no answer."""
        return sorted(self.paces)[(len(self.paces) - 1) // 2]

    def log_z(self) -> tuple[float, float]:
        """That of the model, and its standard error from the differences between the populations."""
        ratio, count = self.annealing.log_ratio, self.shape[0]
        variance = float(self.annealing.log_variance.mean())
        error = max(variance / count, student_factor(count - 1) ** 2 * float(ratio.var(ddof=1)) / count)
        error += (0.5 * variance) ** 2  # by which logarithms of means of few chains fall short
        if self.model.num_edges:  # what all chains together may have missed: each is one look at the model
            error += (UNSEEN / (count * self.shape[1] + UNSEEN)) ** 2
        mean = float(np.logaddexp.reduce(ratio)) - math.log(count)
        unary = np.logaddexp.reduceat(self.model.log_unary, self.model.unary_offsets[:-1])
        return self.model.log_constant + float(unary.sum()) + mean, math.sqrt(error)

    def _energy_variance(self) -> float:
        return float(self.engine.energies()[1].reshape(self.shape).var(axis=1, ddof=1).mean())

    def log_weights(self) -> FloatArray:
        """Of all chains, at the model itself."""
        return np.asarray(self.engine.energies().sum(axis=0) + self.model.log_constant)

    def strengthen(self, step: float, num_sweeps: int, *, resample: bool) -> bool:
        """Move to stronger couplings, resample the chains of every population by their weights, and sweep.

        Returns whether the time asked for fewer sweeps or a larger step: averages need chains at the model itself.
        """
        spread = math.sqrt(self.variance)
        move = min(_LARGEST_STEP, 1.0 - self.scale, max(step / spread, 1.0 / _MOST_STEPS) if spread > 0 else math.inf)
        limit, steps, late = self.clock.limit, (1.0 - self.scale) / move, False
        if limit is not None:
            end = min(_ANNEALING_SHARE * limit, limit - _LAST_SWEEPS * self.pace())
            affordable = max(0.0, end - self.clock.used()) / max(self.pace(), 1e-9)
            late = affordable < steps * num_sweeps
            if late:
                num_sweeps = max(1, int(affordable / steps))
                move = min(1.0 - self.scale, max(move, (1.0 - self.scale) / max(1.0, affordable)))
        self.scale = 1.0 if 1.0 - self.scale - move < 1e-9 else self.scale + move
        self.steps += 1
        self.variance += (self._energy_variance() - self.variance) / _LOOKS
        rng = self.rng if resample else None
        self._timed(lambda: self.annealing.move([1.0, self.scale], num_sweeps, rng=rng), num_sweeps)
        self.sweeps += num_sweeps
        return late

    def collect(self, num_sweeps: int) -> tuple[FloatArray, int, str]:
        """Sums of the probabilities over sweeps at the model itself, how many there were, and what ended them."""
        batch = max(1, min(num_sweeps // 20, int(_BATCH_UPDATES / max(1, self.updates))))
        sums, done, total = np.zeros(0), 0, self.sweeps + num_sweeps
        try:
            while done < num_sweeps:
                count = min(batch, num_sweeps - done)
                self.engine.sweep(count, collect=True)
                latest = self.engine.take_sums()
                sums, done, self.sweeps = latest + sums if done else latest, done + count, self.sweeps + count
                speed = self.sweeps * self.updates / max(self.clock.used(), 1e-9)
                self.clock.report(self.sweeps, total, "sweeps", per_second=speed)
                if self.clock.past(_COLLECTING_SHARE) or self.clock.left() < _LAST_SWEEPS * self.pace():
                    break
        except KeyboardInterrupt:
            if not done:
                raise
            return sums, done, "interrupt"
        return sums, done, "done" if done == num_sweeps else "time_limit"


def _missed(model: MarkovRandomField, modes: IntArray, mean: FloatArray, log_weights: FloatArray) -> float:
    """By how much modes outweigh all that chains visit, as a logarithm, beyond chance; 0 if they do not.

    For draws of the model itself, ``log Z = E[log w] + H`` with an entropy H of at most the sum of those of the
    marginals, and log Z is at least that of some configurations alone.
    """
    if not len(modes):
        return 0.0
    least = np.logaddexp.reduce(np.atleast_1d(model.log_weight(modes)))
    chance = 1.0 + _SIGMAS * float(log_weights.std(ddof=1)) / math.sqrt(len(log_weights))
    return max(0.0, float(least - log_weights.mean() - _entropy(mean) - chance))


def _proven_bound(model: MarkovRandomField, modes: IntArray) -> float | None:
    """What log Z is at least by the weights of different configurations, less their rounding; None without any."""
    if not len(modes):
        return None
    bound = float(np.logaddexp.reduce(np.atleast_1d(model.log_weight(modes))))
    return bound - _ROUNDING * (1.0 + abs(bound) + abs(model.log_constant))


def _entropy(mean: FloatArray) -> float:
    """The sum of the entropies of the marginals, at least that of the model."""
    return -float(np.sum(mean * np.log(np.maximum(mean, 1e-300))))


def _with_unseen(
    model: MarkovRandomField, mean: FloatArray, error: FloatArray, num_chains: int, num_sweeps: int
) -> FloatArray:
    """Standard errors with what all chains together may never have met in so many sweeps of each.

    Chains that agree to the last bit have an error of zero among themselves, and may all have missed what is rare. As
    for other chains (:func:`fastmix.methods.diagnostics.summarise`), 1.5 visits may have been missed of as many
    independent looks as the error is worth: one of every chain at least, one of every sweep at most.
    """
    if not model.num_variables:
        return error
    with np.errstate(divide="ignore", invalid="ignore"):
        looks = mean * np.maximum(1.0 - mean, 0.0) / error**2
    most = float(num_chains * num_sweeps)
    looks = np.clip(np.where(error > 0.0, looks, most), float(num_chains), most)
    looks = np.minimum.reduceat(looks, model.unary_offsets[:-1])
    result = np.hypot(error, unseen_errors(model, mean, looks, None))
    result[certain_entries(model)] = 0.0
    return np.asarray(result)


def _known(model: MarkovRandomField, modes: IntArray, log_z: float) -> FloatArray:
    """The probability of a configuration that is known of, for every state: chains that never met it fall short of it.

    These are the modes with one variable changed to the state; in the largest models they are not looked at.
    """
    logs, first = np.full(len(model.log_unary), -np.inf), model.unary_offsets[:-1]
    # What the tables of every edge add to the states of either end.
    owner, starts, own_steps, other_steps = model.structure.directed
    begins, entries = rows_of(model.unary_offsets, owner)
    if len(entries) > _MOST_FLIPS:
        return np.zeros(len(logs))
    ends = np.repeat(np.arange(len(owner)), np.diff(begins))
    own = starts[ends] + own_steps[ends] * (entries - first[owner[ends]])
    for mode, weight in zip(modes, np.atleast_1d(model.log_weight(modes)), strict=True):
        beside = model.log_pairwise[own + other_steps[ends] * mode[model.adjacency.neighbors[ends]]]
        local = model.log_unary + np.bincount(entries, beside, len(logs))
        logs = np.maximum(logs, weight + local - np.repeat(local[first + mode], model.num_states))
    return np.exp(np.minimum(0.0, logs - log_z))


def _combine(chains: FloatArray, log_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean over populations of chains (entries, P, C), weighted by their normalisers, and its standard error."""
    weights = np.exp(log_ratio - log_ratio.max())
    weights /= weights.sum()
    populations, count, size = chains.mean(axis=2), len(weights), chains.shape[1] * chains.shape[2]
    mean = populations @ weights
    # Of a ratio estimator: residuals weighted as the values are, with the usual correction for the few there are.
    residual = ((populations - mean[:, None]) ** 2) @ (weights**2)
    # With one population in charge the residuals say nothing: the plain spread is then the honest figure.
    plain = populations.var(axis=1, ddof=1) / count
    # Few populations can agree by chance; chains, of which there are more, are as if independent at best.
    between = student_factor(count - 1) ** 2 * np.maximum(residual * count / (count - 1), plain)
    within = np.einsum("epc,epc->e", chains, chains) / size - populations.mean(axis=1) ** 2
    return mean, np.sqrt(np.maximum(between, within / (size - 1)))
