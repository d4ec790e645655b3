"""``sample()``: Gibbs and Swendsen-Wang sampling, planned, run and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numpy.typing import ArrayLike

from fastmix._checks import (
    as_list,
    as_path,
    check_accuracy,
    check_choice,
    check_count,
    check_positive,
    describe,
)
from fastmix._clock import Report
from fastmix._context import DEFAULT_SECONDS, Context
from fastmix._signatures import takes_options
from fastmix.chains.conditionals import check_conditionals
from fastmix.method import Method, find_method, make_method, option, run_method
from fastmix.model import Evidence, MarkovRandomField
from fastmix.results import Status
from fastmix.sampling.perfect_sample import Perfect
from fastmix.sampling.plans import SCHEDULES, Schedule, promise
from fastmix.sampling.results import CONFIDENCE, SampleResult
from fastmix.sampling.run_chains import START_RULE, run_chains
from fastmix.sampling.starts import check_starts

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["SAMPLERS", "ChainSampler", "Gibbs", "SampleResult", "SwendsenWang", "sample"]

SAMPLERS = ("gibbs", "swendsen-wang", "perfect")


@dataclass(frozen=True, kw_only=True)
class ChainSampler(Method):
    """Sampling by independent chains: the options that Gibbs and Swendsen-Wang sampling share.

    Parameters
    ----------
    num_chains : int, optional
        Independent chains; 64 by default, fewer in very large models. In models of more than 16,384 variables, or with
        as many states, at least 4.
    num_sweeps : int, optional
        Sweeps averaged in every chain; 10,000 by default. With a ``time_limit`` as many as it leaves room for.
    burn_in : int, optional
        Sweeps that every chain makes before, a tenth of ``num_sweeps`` by default. Where the time decides, a tenth of
        the time, and a quarter of it where the sweeps that are planned do not fit.
    num_draws : int
        Configurations kept of every chain, evenly spaced.
    history_at : sequence of int
        Numbers of sweeps after which the running marginals are noted in ``history``.
    start : {"dispersed", "random"}, int array (num_chains, n) or SampleResult
        Where chains start: dispersed or random. ``dispersed`` starts half of the chains, 16 at most, from
        configurations of large weight, far from each other (:func:`fastmix.modes.descents.find_modes`), and the others
        at random. A result continues where its chains ended, with fresh random numbers also under its own seed.
    checkpoint : str, optional
        File in which the run is saved, and from which it continues if it exists. It continues with its own seed when
        none is given; the answer is the same, bit by bit, as that of an uninterrupted run. A finished run stays in the
        file: remove it when what comes back is safe.
    checkpoint_seconds : float
        Seconds between two writes of the checkpoint.
    estimator : {"rao-blackwell", "counts"}
        What is averaged: conditional probabilities (``rao-blackwell``) or states (``counts``). Swendsen-Wang sampling
        counts the states of edges only: nodes always have the probabilities that clusters draw from.
    """

    shares: ClassVar[bool] = True
    moves_clusters: ClassVar[bool] = False  #: whether an update draws whole clusters, and not single variables

    num_chains: int | None = None
    num_sweeps: int | None = None
    burn_in: int | None = None
    num_draws: int = 0
    history_at: Sequence[int] = option((), cli=False)
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult = "dispersed"
    checkpoint: str | None = None
    checkpoint_seconds: float = 30.0
    estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell"

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 1), ("num_sweeps", 1), ("burn_in", 0), ("num_draws", 0)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_count(name, value, least=least))
        asked = as_list("history_at", self.history_at, "a list of numbers of sweeps")
        noted = {check_count("history_at", sweeps, least=0) for sweeps in asked}
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", as_path("checkpoint", self.checkpoint))
        object.__setattr__(self, "history_at", tuple(sorted(noted)))
        seconds = check_positive("checkpoint_seconds", self.checkpoint_seconds, "number of seconds", or_zero=True)
        object.__setattr__(self, "checkpoint_seconds", seconds)
        check_choice("estimator", self.estimator, ("rao-blackwell", "counts"))
        if isinstance(self.start, str) and self.start not in ("dispersed", "random"):
            raise ValueError(f"start must {START_RULE}, got {describe(self.start)}")

    @property
    def asked_accuracy(self) -> float | None:
        """The accuracy that decides how long chains run; None where the number of sweeps or the time does."""
        return None

    @property
    def asked_schedule(self) -> Schedule | None:
        """The order of updates that the user asked for; None where it is left to the sampler."""
        return None

    def default_limit(self) -> float | None:
        """A minute, unless the amount of work is known or the run can continue later."""
        amount_is_known = self.num_sweeps is not None or self.asked_accuracy is not None
        return None if amount_is_known or self.checkpoint is not None else DEFAULT_SECONDS

    def checkpoint_file(self) -> tuple[str, float] | None:
        """The name of the file that the run is saved in, and the seconds between two writes."""
        return None if self.checkpoint is None else (self.checkpoint, self.checkpoint_seconds)

    def run(self, model: MarkovRandomField, context: Context) -> SampleResult:
        """Marginals by averages over chains."""
        return run_chains(self, model, context)


@dataclass(frozen=True, kw_only=True)
class Gibbs(ChainSampler):
    """Gibbs sampling: updates of single variables, for any model (:func:`fastmix.sample`).

    Parameters
    ----------
    accuracy : float, optional
        Error to reach with 95 % confidence, instead of sweeps, for certified models. Every probability is to be within
        this (half the width of an interval, unlike the total variation distance of :func:`fastmix.certify`); refused
        for models without a certificate, which sets the burn-in. Half of it is for the bias that the burn-in leaves:
        what the certificate proves of that stands in ``bias_bound`` of the result, beside ``std_error``, which is of
        chance alone.
    schedule : {"systematic", "random", "random-burn-in"}, optional
        Order of updates: systematic (default), random, or random-burn-in (random, then systematic). A systematic sweep
        updates every variable once, color by color, and a random one n variables chosen at random.
        ``random-burn-in`` is the default with an ``accuracy`` that no other order is certified for.
    """

    name: ClassVar[str] = "gibbs"
    guarantee: ClassVar[str] = "exact in the limit of many sweeps; the standard errors are estimates"
    on_gpu: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    takes_laws: ClassVar[bool] = True

    accuracy: float | None = None
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule is not None:
            check_choice("schedule", self.schedule, SCHEDULES)
        if self.accuracy is not None:
            object.__setattr__(self, "accuracy", check_accuracy(self.accuracy))
            if any(number is not None for number in (self.num_chains, self.num_sweeps, self.burn_in)):
                raise ValueError("accuracy must come without num_chains, num_sweeps and burn_in, which it sets")

    @property
    def asked_accuracy(self) -> float | None:
        """The accuracy that decides how long chains run; None where the number of sweeps or the time does."""
        return self.accuracy

    @property
    def asked_schedule(self) -> Schedule | None:
        """The order of updates that the user asked for; None where it is left to the sampler."""
        return self.schedule

    def run(self, model: MarkovRandomField, context: Context) -> SampleResult:
        """Marginals by averages over chains, with what a certificate promises about them where that was asked for."""
        result = run_chains(self, model, context)
        if self.accuracy is not None and result.stats["stopped_by"] == "accuracy":
            proven = f"every probability is within {self.accuracy:g} with {CONFIDENCE:.0%} confidence, which is proven"
            return replace(result, stats={**result.stats, "guarantee": proven})
        if not context.certify or result.status != Status.OK:
            return result
        schedule = result.provenance["options"]["schedule"]
        guarantee = promise(model, int(result.stats["burn_in"]), schedule, context.clock)
        if guarantee is None:
            return result
        return replace(result, stats={**result.stats, "guarantee": guarantee})

    def for_laws(self) -> Method:
        """Gibbs sampling by blocks: updates of single variables cannot move the hidden variables of laws."""
        from fastmix.sampling.block_gibbs import BlockGibbs

        return BlockGibbs(self)

    def check(self, model: MarkovRandomField) -> None:
        """Refuse a model with an undefined conditional distribution, or without a start for chains."""
        check_conditionals(model)
        check_starts(model)


@dataclass(frozen=True, kw_only=True)
class SwendsenWang(ChainSampler):
    """Swendsen-Wang sampling: updates of clusters, for attractive Ising and Potts models (:func:`fastmix.sample`)."""

    name: ClassVar[str] = "swendsen-wang"
    guarantee: ClassVar[str] = "exact in the limit of many sweeps; the standard errors are estimates"
    drops_forbidden: ClassVar[bool] = False  # clusters need equal state counts at both ends of an edge
    moves_clusters: ClassVar[bool] = True

    def check(self, model: MarkovRandomField) -> None:
        """Refuse a model that is not attractive, with an edge that shows it."""
        from fastmix.model.attractive import attractive_form

        attractive_form(model)


@takes_options(Gibbs, SwendsenWang, Perfect)
def sample(
    model: MarkovRandomField,
    *,
    method: str | Method = "gibbs",
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
    **options: Any,
) -> SampleResult:
    """Marginals by Markov chain Monte Carlo, with standard errors and a verdict on mixing (see docs/sampling.md).

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts. Forbidden pairs are fine as long as every conditional distribution is defined.
    method : {"gibbs", "swendsen-wang", "perfect"} or Method
        Updates of single variables, or of clusters (attractive Ising and Potts models only), or exact draws by coupling
        from the past, which take ``num_draws`` and ``max_sweeps`` (see :func:`fastmix.perfect_sample`). Options of
        another method are refused. A :class:`fastmix.Gibbs`, :class:`fastmix.SwendsenWang` or :class:`fastmix.Perfect`
        brings its options along: they are not given beside it.
    **options
        Those of the method, by name.
    edge_marginals : bool
        Whether to estimate the joint probabilities of the two ends of every edge: conditional probabilities of either
        end beside the state of the other, or with the estimator ``counts`` pairs of states, averaged over about 1,000
        configurations of every chain.
    backend : {"cpu", "cuda", "auto"}
        Where Gibbs sweeps run. ``cuda`` needs an NVIDIA GPU and the extra ``gpu``; ``auto`` takes the GPU where
        there is one that fits the run, and says in ``stats["backend"]`` what it took and why.
    evidence, seed, num_threads, progress
        See :func:`fastmix.infer`. The same seed gives the same bits whatever the number of threads; CPU and GPU draw
        different numbers.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned; burning in takes half of
        them at most (but not with a checkpoint). Without it, and without ``num_sweeps``, ``accuracy`` or
        ``checkpoint``, 60 seconds.
    executor : concurrent.futures.Executor, optional
        Shares the chains out among its workers, with the same bits: see :mod:`fastmix.executors`.

    Returns
    -------
    SampleResult
        Status ``not_mixed`` when R-hat or the effective sample size says that the chains have not met.
        ``stats["stopped_by"]`` is ``done``, ``accuracy`` or ``time_limit``. :class:`fastmix.PerfectResult` from the
        method ``perfect``.

    Raises
    ------
    UnfitMethodError
        If the method cannot handle the model.
    NotConvergedError
        If the time was over before there was anything to report.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what was collected, None before the first batch.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> result = sample(ising_grid(3, 3, coupling_max=0.5, seed=0), num_sweeps=2000, seed=1)
    >>> str(result.status), bool(result.std_error.max() < 0.01)
    ('ok', True)
    """
    find_method(method.name if isinstance(method, Method) else method, among=SAMPLERS)
    result: SampleResult = run_method(
        make_method(method, options),
        model,
        evidence=evidence,
        edge_marginals=edge_marginals,
        seed=seed,
        num_threads=num_threads,
        backend=backend,
        time_limit=time_limit,
        progress=progress,
        executor=executor,
        certify=False,
    )
    return result
