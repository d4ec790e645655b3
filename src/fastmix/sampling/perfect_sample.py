"""``perfect_sample()`` and the method ``perfect``: draws that follow the model exactly, by coupling from the past."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import IntArray
from fastmix._checks import check_count
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report
from fastmix._context import Context
from fastmix._memory import check_memory
from fastmix._signatures import takes_options
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.generator import make_streams
from fastmix.chains.layout import directed_arrays
from fastmix.errors import NotConvergedError, ResourceError, UnfitMethodError
from fastmix.marginals import DrawResult
from fastmix.method import Method, run_method, with_options
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.attractive import is_attractive
from fastmix.sampling.starts import starts_matter
from fastmix.sampling.tuning import MAX_PAST_EPOCHS, UPDATES_BETWEEN_CHECKS
from fastmix.theory.bias import safe_matrix
from fastmix.theory.dependency import Dependency
from fastmix.theory.norms import smallest_norm

__all__ = ["Perfect", "PerfectResult", "perfect_sample"]

_MAX_STATES = 64  # of a variable: bits of a set


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PerfectResult(DrawResult):
    """Independent exact configurations, and what they cost."""

    num_sweeps: IntArray  #: (num_draws,), how far into the past each draw had to go
    reason: str  #: why coupling from the past works on this model

    def contents(self) -> dict[str, Any]:
        """The contents of every result, with the number of draws, their sweeps, and the reason; without the draws."""
        return {
            **super().contents(),
            "num_draws": len(self.states),
            "num_sweeps_max": int(self.num_sweeps.max(initial=0)),
            "num_sweeps_mean": float(self.num_sweeps.mean()) if len(self.num_sweeps) else 0.0,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class Perfect(Method):
    """Exact draws by coupling from the past.

    Parameters
    ----------
    num_draws : int
        Exact draws; 100 by default.
    max_sweeps : int
        Sweeps into the past at most, 2^20 by default. Draws that take longer raise an error and are never dropped:
        leaving them out would bias the rest.
    """

    name: ClassVar[str] = "perfect"
    guarantee: ClassVar[str] = "independent exact draws; the standard errors are those of frequencies"
    takes_factors: ClassVar[bool] = True

    num_draws: int = 100
    max_sweeps: int = 1 << 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_draws", check_count("num_draws", self.num_draws, least=0))
        object.__setattr__(self, "max_sweeps", check_count("max_sweeps", self.max_sweeps, least=1))

    def default_limit(self) -> None:
        """None: leaving out draws that take long would bias the others."""

    def check(self, model: MarkovRandomField) -> None:
        """Refuse a model for which there is no reason why chains forget the past."""
        certified_reason(model, NO_LIMIT)

    def fits_in_time(self, model: MarkovRandomField, clock: Clock) -> str | None:
        """Why the model is unfit, None if it is fit; a :class:`NotConvergedError` where the time is over before."""
        try:
            certified_reason(model, clock)
        except UnfitMethodError as error:
            return str(error)
        return None

    def run(self, model: MarkovRandomField, context: Context) -> PerfectResult:
        """The draws; a time limit that ends before all of them are there is an error."""
        num_draws = self.num_draws
        clock = context.clock
        required = 24.0 * num_draws * max(1, model.num_variables)
        check_memory(required, f"num_draws {num_draws}", "draw fewer at a time, each time with another seed")
        reason = certified_reason(model, clock)
        past = _Past(model, context.seed_of("past"), self.max_sweeps)
        states, sweeps = _draw_all(past, num_draws, clock, context.num_threads)
        updates = past.updates(sweeps)
        return PerfectResult.of(
            model,
            states,
            method=self.name,
            edge_marginals=DrawResult.pair_frequencies(model, states) if context.edge_marginals else None,
            stats={"num_updates": updates, "updates_per_second": updates / max(clock.used(), 1e-9)},
            num_sweeps=sweeps,
            reason=reason,
        )


def _draw_all(past: _Past, num_draws: int, clock: Clock, num_threads: int) -> tuple[IntArray, IntArray]:
    """Exact draws (num_draws, n) by several threads, and how many sweeps ago each of them began, (num_draws,)."""
    states = np.empty((num_draws, past.model.num_variables), dtype=np.int64)
    sweeps = np.zeros(num_draws, dtype=np.int64)
    draws_at_once = max(1, min(256, -(-num_draws // (8 * num_threads))))
    ended = Event()

    def check() -> None:
        """End the draw under way once the call has ended, or its time is over."""
        if ended.is_set():
            raise OutOfTimeError
        if clock.past():
            raise NotConvergedError(
                f"{num_draws} perfect draws take longer than {clock.limit:g} s, and the fastest of them would "
                "be biased: raise time_limit, or ask for fewer"
            )

    def work(first: int) -> int:
        """Make some of the draws; returns how many."""
        numbers = range(first, min(num_draws, first + draws_at_once))
        for number, streams in zip(numbers, past.streams(numbers), strict=True):
            states[number], sweeps[number] = past.sample(number, streams, check)
        return len(numbers)

    done = 0
    with ThreadPoolExecutor(num_threads) as pool:
        futures = [pool.submit(work, first) for first in range(0, num_draws, draws_at_once)]
        try:
            for future in futures:
                done += future.result()
                clock.report(done, num_draws, "draws", per_second=past.updates(sweeps) / max(clock.used(), 1e-9))
        finally:
            ended.set()
            for future in futures:
                future.cancel()
    return states, sweeps


@takes_options(Perfect)
def perfect_sample(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    **options: Any,
) -> PerfectResult:
    """Independent samples that follow the model exactly, up to the rounding of floating-point numbers.

    Coupling from the past (Propp and Wilson, 1996): Gibbs sweeps are run from all configurations at once, from further
    and further in the past and always with the same random numbers for the same moment, until all of them have met at
    the present. "All at once" is a set of possible states for every variable (a bounding chain: Huber, 2004;
    Haeggstroem and Nelander, 1999). For attractive binary models this is the monotone coupling from the two extreme
    configurations.

    Parameters
    ----------
    model : MarkovRandomField
        Attractive and binary (also after exchanging the states of some variables), or certified with a dependency norm
        below 1 (see :func:`fastmix.certify`); at most 64 states per variable.
    **options
        Those of :class:`fastmix.Perfect`.
    evidence, seed, num_threads, time_limit, progress
        As for :func:`fastmix.infer`; there is no time limit by default, and one that is over is an error.

    Raises
    ------
    UnfitMethodError
        If the model is neither attractive and binary nor certified.
    NotConvergedError
        If some sample has not met its past after ``max_sweeps``, or not all are there within the ``time_limit``.

    Notes
    -----
    For a certified binary model the expected number of variables not yet known falls at least by the norm in every n
    random updates, so samples come within O(log n) sweeps; more states need a norm far below 1 for that, because two
    conditional distributions at distance d may select different states with probability 2 d / (1 + d). Attractive
    models take about as long as the chain needs to mix, which strong couplings make exponential.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.4, field=[0.5, 0.0, -0.2])
    >>> samples = perfect_sample(model, num_draws=1000, seed=1)
    >>> samples.states.shape, str(samples.status)
    ((1000, 3), 'ok')
    """
    result: PerfectResult = run_method(
        with_options(Perfect, options),
        model,
        evidence=evidence,
        seed=seed,
        num_threads=num_threads,
        time_limit=time_limit,
        progress=progress,
    )
    return result


def certified_reason(model: MarkovRandomField, clock: Clock) -> str:
    """The reason why chains forget the past, or an error that says why they might not."""
    if model.num_variables and model.num_states.max() > _MAX_STATES:
        raise UnfitMethodError(
            f"perfect samples need at most {_MAX_STATES} states per variable, got {model.num_states.max()}; use "
            "Gibbs sampling, or exact draws"
        )
    binary = bool((model.num_states <= 2).all())
    if binary and not model.has_forbidden and is_attractive(model):
        return "attractive binary model: the two extreme configurations bound all others"
    check_conditionals(model)
    if starts_matter(model):
        raise UnfitMethodError(
            "perfect samples need factors over three or more variables that forbid nothing; use exact draws"
        )
    dependencies: tuple[Dependency, ...] = ("sigmoid", "exact")
    for dependency in dependencies:
        # The exact dependencies are finer, above all with forbidden pairs, but not always feasible.
        with contextlib.suppress(ResourceError):
            norm, value = smallest_norm(safe_matrix(model, dependency, clock), clock=clock)
            if value < 1.0:
                return f"certified: dependency norm {value:.3g} ({norm})"
    if clock.past():
        raise NotConvergedError(
            f"{clock.limit:g} s were over before it was known whether perfect samples can be drawn (dependency norm at "
            f"most {value:.3g}, and it has to be below 1): raise time_limit"
        )
    raise UnfitMethodError(
        "perfect samples need an attractive binary model or a dependency norm below 1, and this model has "
        f"{value:.3g} ({norm}); project it first, or use exact draws or Gibbs sampling"
    )


class _Past:
    """Coupling from the past for one model."""

    def __init__(self, model: MarkovRandomField, seed: int, max_sweeps: int) -> None:
        self.model = model
        self.seed = seed
        self.max_sweeps = max_sweeps
        self.order = model.structure.visit_order[0].astype(np.int64)
        self.binary = bool((model.num_states == 2).all()) and not model.num_factors
        if self.binary:
            self.arrays: tuple[Any, ...] = _odds(model)
            self.full: NDArray[Any] = np.full(model.num_variables, 3, dtype=np.uint8)
        else:
            self.arrays = (*directed_arrays(model), model.structure.incident)
            self.full = np.array([(1 << int(k)) - 1 for k in model.num_states], dtype=np.uint64)

    def streams(self, numbers: range) -> NDArray[np.uint32]:
        """The streams (numbers, epochs, 4) of consecutive samples: together, as one of them would take as long."""
        count = len(numbers) * MAX_PAST_EPOCHS
        return make_streams(self.seed, numbers.start * MAX_PAST_EPOCHS, count).T.reshape(-1, MAX_PAST_EPOCHS, 4)

    def sample(self, number: int, streams: NDArray[np.uint32], check: Callable[[], None]) -> tuple[IntArray, int]:
        """The configuration of a sample at the present, and how many sweeps ago chains began; ``check`` may end it."""
        from fastmix.sampling.perfect_kernels import bound_binary, bound_general

        run: Any = bound_binary if self.binary else bound_general
        n = self.model.num_variables
        if n == 0:
            return np.zeros(0, dtype=np.int64), 0
        # Epoch 0 is the last sweep, epoch k > 0 the 2^(k - 1) sweeps before all later ones: the past doubles.
        for epoch in range(MAX_PAST_EPOCHS):
            total = 1 << epoch
            if total > self.max_sweeps:
                break
            sets = self.full.copy()
            for k in range(epoch, -1, -1):
                stream = streams[k].copy()
                left = 1 << max(0, k - 1)
                while left:
                    check()
                    count = min(left, max(1, UPDATES_BETWEEN_CHECKS // n))
                    run(sets, self.order, *self.arrays, stream, count)
                    left -= count
            if self._met(sets):
                return _members(sets), total
        raise NotConvergedError(
            f"sample {number} has not met its past after {total // 2} sweeps: raise max_sweeps, or project the model "
            "onto a smaller norm_bound"
        )

    def updates(self, sweeps: IntArray) -> int:
        """Updates of single variables behind samples that began so many sweeps ago: 1 + 2 + 4 + .. sweeps each."""
        return int((2 * sweeps[sweeps > 0] - 1).sum()) * self.model.num_variables

    def _met(self, sets: NDArray[Any]) -> bool:
        """Whether every set has one member alone, so that all chains have met."""
        return not (sets & (sets - sets.dtype.type(1))).any()


def _members(sets: NDArray[Any]) -> IntArray:
    """The only member of every set."""
    return np.asarray(np.frexp(sets.astype(np.float64))[1] - 1, dtype=np.int64)


def _odds(model: MarkovRandomField) -> tuple[Any, ...]:
    """Neighbors, what they add to the log-odds of state 1 by their state, and the unary log-odds of binary models."""
    directed = model.structure.directed
    tables = model.log_pairwise
    zero = directed.starts[:, None] + directed.other_steps[:, None] * np.arange(2)
    with np.errstate(invalid="ignore"):
        odds = tables[zero + directed.own_steps[:, None]] - tables[zero]
        unary = model.log_unary[1::2] - model.log_unary[::2]
    # A neighbor's state that forbids both own states is never in its set together with an allowed configuration.
    odds = np.where(np.isnan(odds), 0.0, odds)
    return model.adjacency.indptr, model.adjacency.neighbors, np.ascontiguousarray(odds), unary
