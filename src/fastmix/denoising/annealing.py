"""Swendsen-Wang sweeps on a population of chains whose couplings grow from nothing to those of the model.

Fields that pull a strongly coupled picture both ways freeze its regions, for cluster moves as for single updates:
chains from different starts never meet. Annealing takes every chain through the models in which the regions still
move, and resampling keeps as many chains in each valley as it deserves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_count, check_threads, choose_seed
from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.methods.swendsen_wang import SwendsenWang, check_swendsen_wang
from fastmix.model import MarkovRandomField, check_model
from fastmix.results import InferenceResult, Status, provenance
from fastmix.theory.dependency import edge_dependencies

__all__ = ["AnnealedResult", "anneal"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_EASY_SWEEPS = 30
_MOST_STEPS = 10_000  # whatever the energies are: chains that all begin alike would ask for steps of no length
_INFORMATIVE = 1.0  # standard deviation of the logarithm of the weights up to which resampling keeps several chains
_ANNEALING_SHARE = 0.7  # of a time limit
_LARGEST_STEP = 0.1  # of the couplings at once, where their energy hardly varies
_BATCH_UPDATES = 1e7  # between two looks at the clock: a fraction of a second
_AGREEMENT = 0.02  # mean standard error of a probability over populations, above which they disagree


@dataclass(frozen=True, eq=False, repr=False)
class AnnealedResult(InferenceResult):
    """Marginals from annealed populations.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Standard error of every probability, from the differences between the populations.
    log_weights : float array (num_populations,)
        How much each population counts, as the logarithm of its estimate of the ratio of the normalisers at the end and
        at the start of the annealing; zeros where all count alike.
    states : int array (num_populations * num_chains, n)
        Where the chains ended.
    """

    std_error: FloatArray = field(default_factory=lambda: np.zeros(0))
    log_weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    states: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))


def anneal(
    model: MarkovRandomField,
    *,
    num_populations: int = 4,
    num_chains: int = 8,
    num_steps: int = 150,
    sweeps_per_step: int = 8,
    resample: bool | None = None,
    num_sweeps: int | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> AnnealedResult:
    """Marginals of an attractive model by population annealing with Swendsen-Wang sweeps.

    The models ``p_s(x) ~ exp(sum_i u_i(x_i) + s sum_ij T_ij(x_i, x_j))`` lead from one in which chains forget their
    start at once (Dobrushin's condition sets its s) to the model (s = 1). At every step to s' the chains of a
    population are resampled in proportion to ``exp((s' - s) sum_ij T_ij)`` and then swept. At s = 1 marginals are
    averaged over sweeps, and populations count in proportion to the product of their mean weights, which estimates the
    ratio of the normalisers; more chains or smaller steps make less error.

    Parameters
    ----------
    model : MarkovRandomField
        Attractive Ising or Potts, see :class:`fastmix.methods.swendsen_wang.SwendsenWang`.
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
        plain annealing from independent starts.
    num_sweeps : int, optional
        Sweeps at s = 1 that are averaged; half as many as were made on the way by default.
    seed : int, optional
        Drawn and returned when not given. The same seed gives the same bits whatever the number of threads.
    num_threads : int, optional
        All cores by default.
    time_limit : float, optional
        Seconds after which averaging stops; annealing itself is not cut short.
    progress : callable, optional
        Called with the share of the work that is done.

    Returns
    -------
    AnnealedResult
        Status ``not_mixed`` when the populations disagree.

    Raises
    ------
    UnfitMethodError
        If the model is not of the class.

    Notes
    -----
    Costs ``1.5 num_steps sweeps_per_step`` sweeps of every chain.

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
    >>> bool(abs(result.node_marginals - exact.node_marginals).max() < 0.05)
    True
    """
    clock = Clock(time_limit)
    for name, value, least in (
        ("num_populations", num_populations, 2),
        ("num_chains", num_chains, 2),
        ("num_steps", num_steps, 1),
        ("sweeps_per_step", sweeps_per_step, 1),
        ("num_sweeps", 1 if num_sweeps is None else num_sweeps, 1),
    ):
        check_count(name, value, least=least)
    check_model(model)
    seed, num_threads = choose_seed(seed), check_threads(num_threads)
    check_swendsen_wang(model)
    chains = num_populations * num_chains
    required = 48.0 * chains * max(1, model.num_variables)
    check_memory(required, f"num_populations times num_chains, {chains},", "run fewer or smaller populations")
    run = _Populations(model, num_populations, num_chains, seed, num_threads)
    step = (1.0 - run.scale) * run.spread() / num_steps
    resampled = step <= _INFORMATIVE if resample is None else bool(resample)
    late = False
    while run.scale < 1.0:
        # Late, the largest steps there are: averages need chains at the model itself.
        late = clock.past(_ANNEALING_SHARE)
        run.strengthen(math.inf if late else step, resampled)
        run.engine.advance(sweeps_per_step, collect=False)
        if progress is not None:
            progress(0.7 * run.scale)
    wanted = num_sweeps or max(1, run.steps * sweeps_per_step // 2)
    sums, done = run.collect(wanted, clock, progress)
    populations = sums.reshape(len(sums), num_populations, num_chains).mean(axis=2) / done
    mean, error = _combine(populations, run.log_ratio)
    status = Status.NOT_MIXED if error.mean() > _AGREEMENT else Status.OK
    sweeps = run.steps * sweeps_per_step + done
    options: dict[str, Any] = {
        "num_populations": num_populations, "num_chains": num_chains, "num_steps": num_steps,
        "sweeps_per_step": sweeps_per_step, "resample": resampled, "num_sweeps": num_sweeps,
    }  # fmt: skip
    return AnnealedResult(
        model=model,
        method="annealed",
        status=status,
        node_marginals=mean,
        edge_marginals=None,
        log_z=None,
        stats={
            "num_steps": run.steps, "num_sweeps": sweeps, "updates": sweeps * chains * model.num_variables,
            "mean_std_error": float(error.mean()),
            "stopped_by": "time_limit" if late or done < wanted else "done", **clock.stats(),
            "note": "populations agree" if status == Status.OK else "populations disagree: more chains, smaller steps",
        },
        provenance=provenance(model, seed=seed, **options),
        std_error=error,
        log_weights=run.log_ratio,
        states=run.engine.get_states(),
    )  # fmt: skip


class _Populations:
    """Chains on the way from weak couplings (a small ``scale``) to those of the model (1)."""

    def __init__(
        self, model: MarkovRandomField, num_populations: int, num_chains: int, seed: int, num_threads: int | None
    ) -> None:
        self.model, self.shape, self.num_threads = model, (num_populations, num_chains), num_threads
        # Without unaries and constant: the energy of the couplings alone.
        self.couplings = model.replace(log_unary=np.zeros_like(model.log_unary), log_constant=0.0)
        self.seeds = np.random.SeedSequence(seed)
        self.rng = np.random.default_rng(self.seeds.spawn(1)[0])
        self.scale, self.steps = _easy_scale(model), 0
        self.least_step = (1.0 - self.scale) / _MOST_STEPS
        self.log_ratio = np.zeros(num_populations)
        self.engine = self._engine()
        self.engine.advance(_EASY_SWEEPS, collect=False)

    def _engine(self) -> SwendsenWang:
        tables = self.scale * self.model.log_pairwise
        seed = int(self.seeds.spawn(1)[0].generate_state(1, np.uint64)[0])
        chains = self.shape[0] * self.shape[1]
        return SwendsenWang(
            self.model.replace(log_pairwise=tables), num_chains=chains, seed=seed, num_threads=self.num_threads
        )

    def spread(self) -> float:
        """Standard deviation of the energy of the couplings."""
        energy = self.energy(self.engine.get_states())
        return float(np.sqrt(energy.var(axis=1, ddof=1).mean()))

    def energy(self, states: IntArray) -> FloatArray:
        """``sum_ij T_ij`` of every chain (num_populations, num_chains)."""
        return np.asarray(self.couplings.log_weight(states), dtype=np.float64).reshape(self.shape)

    def strengthen(self, step: float, resample: bool) -> None:
        """Move to stronger couplings, and resample the chains of every population by their weights."""
        states = self.engine.get_states()
        energy = self.energy(states)
        spread = float(np.sqrt(energy.var(axis=1, ddof=1).mean()))
        move = min(_LARGEST_STEP, 1.0 - self.scale, max(step / spread, self.least_step) if spread > 0 else math.inf)
        if 1.0 - self.scale - move < 1e-9:
            move = 1.0 - self.scale
        if resample:
            states = states[self._resampled(move * energy).reshape(-1)]
        self.scale = 1.0 if move == 1.0 - self.scale else self.scale + move
        self.steps += 1
        self.engine = self._engine()
        self.engine.set_states(states)

    def _resampled(self, log_weights: FloatArray) -> IntArray:
        """Numbers of the chains that go on; the mean weight of every population is noted."""
        top = log_weights.max(axis=1, keepdims=True)
        weights = np.exp(log_weights - top)
        self.log_ratio += top[:, 0] + np.log(weights.mean(axis=1))
        return _resample(weights / weights.sum(axis=1, keepdims=True), self.rng)

    def collect(
        self, num_sweeps: int, clock: Clock, progress: Callable[[float], None] | None
    ) -> tuple[FloatArray, int]:
        """Sums of the probabilities over sweeps at the model itself, and how many there were."""
        work = self.shape[0] * self.shape[1] * max(1, self.model.num_variables)
        done, batch = 0, max(1, min(num_sweeps // 20, int(_BATCH_UPDATES / work)))
        while done < num_sweeps:
            count = min(batch, num_sweeps - done)
            self.engine.advance(count, collect=True)
            done += count
            if progress is not None:
                progress(0.7 + 0.3 * done / num_sweeps)
            if clock.past():
                break
        return self.engine.take_sums(), done


def _easy_scale(model: MarkovRandomField) -> float:
    """The strongest couplings, as a share of those of the model, at which Dobrushin's condition holds: chains forget
    their start within a few sweeps.
    """
    dependency = edge_dependencies(model, dependency="range").max(axis=1, initial=0.0)
    # range is linear in the scale, and no smaller than the bound that the condition needs
    total = np.bincount(model.edges.reshape(-1), np.repeat(dependency, 2), minlength=max(1, model.num_variables))
    return float(min(1.0, 1.0 / total.max())) if total.max() > 0 else 1.0


def _resample(weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Numbers of the chains that go on: every population keeps its size, each chain its share of it on average.

    Systematic resampling: one uniform number a population, so that a chain of weight w is taken floor or ceil of w C
    times.
    """
    populations, chains = weights.shape
    chosen = np.empty((populations, chains), dtype=np.int64)
    for p in range(populations):
        points = (rng.random() + np.arange(chains)) / chains
        chosen[p] = p * chains + np.minimum(np.searchsorted(np.cumsum(weights[p]), points), chains - 1)
    return chosen


def _combine(populations: FloatArray, log_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean over populations (entries, P) weighted by their normalisers, and its standard error."""
    weights = np.exp(log_ratio - log_ratio.max())
    weights /= weights.sum()
    mean = populations @ weights
    # Of a ratio estimator: residuals weighted as the values are, with the usual correction for the few there are.
    count = len(weights)
    residual = ((populations - mean[:, None]) ** 2) @ (weights**2)
    # With one population in charge the residuals say nothing: the plain spread is then the honest figure.
    plain = populations.var(axis=1, ddof=1) / count
    return mean, np.sqrt(np.maximum(residual * count / (count - 1), plain))
