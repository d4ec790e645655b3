"""What a run of independent chains knows about its own error, from sums over batches: standard errors, ESS, R-hat."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import BoolArray, FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._student import student_factor
from fastmix.chains.tuning import SUM_CHUNK_ENTRIES
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import Status
from fastmix.sampling.tuning import (
    CONSTANT_TOLERANCE,
    HARDLY_VISITED,
    MAX_R_HAT,
    MIN_AGREEING_CHAINS,
    MIN_ESS,
    MIN_MEMORIES,
    MIN_PARTS,
    NO_VARIATION,
    UNSEEN,
)

__all__ = [
    "BatchStatistics", "Summary", "assess_mixing", "log_odds_swings", "summarize", "unseen_errors",
]  # fmt: skip

_RESOLUTION = 2.0**-24  # to which conditional probabilities are rounded as the kernels add them up


class BatchStatistics:
    """Sums over a run of C chains, batch by batch: what :func:`summarize` needs, in two (E, C) arrays.

    Kept are the sums of every state entry and chain, and, for every state entry, the squares ``b_k (mean_kc - r)^2`` of
    the means of batches (``squares``) and of parts (``part_squares``) about a fixed reference r, the mean of the first
    batch, weighted by their lengths b_k and added over the chains c. Parts are long: the run of a chain has 2 of them,
    and with fewer than 8 chains so many that there are 16 in all, by the ``expected_sweeps`` of the run. A batch counts
    to the part in which its middle lies. ``num_part_sweeps``, ``part_sums`` and ``part`` are of the last part so far.
    """

    def __init__(self, num_entries: int, num_chains: int, expected_sweeps: int) -> None:
        self.num_chains = num_chains
        self.expected_sweeps = expected_sweeps
        self.num_batches = 0
        self.num_sweeps = 0
        self.num_parts = 0
        self.num_part_sweeps = 0
        self.part = 0
        self.sums, self.part_sums = np.zeros((2, num_entries, num_chains))
        self.reference, self.squares, self.part_squares = np.zeros((3, num_entries))

    def add(self, sums: ArrayLike, num_sweeps: int) -> None:
        """Take in a batch: how often each state was taken by every chain (E, C), or sums of its probabilities."""
        values = np.asarray(sums, dtype=np.float64)
        part = self._part_of(self.num_sweeps, num_sweeps)
        if self.num_part_sweeps and part > self.part:
            for rows in self.chunks():
                self.part_squares[rows] += self._squares(self.part_sums, self.num_part_sweeps, rows)
            self.part_sums[...] = 0.0
            self.num_parts += 1
            self.num_part_sweeps = 0
        self.part = part
        for rows in self.chunks():
            if not self.num_batches:
                self.reference[rows] = values[rows].mean(axis=1) / num_sweeps
            self.squares[rows] += self._squares(values, num_sweeps, rows)
            self.sums[rows] += values[rows]
            self.part_sums[rows] += values[rows]
        self.num_part_sweeps += num_sweeps
        self.num_batches += 1
        self.num_sweeps += num_sweeps

    def chunks(self) -> Iterator[slice]:
        """Ranges of entries whose sums of all chains stay in the cache while they are worked on."""
        chunk = max(1, SUM_CHUNK_ENTRIES // self.num_chains)
        for start in range(0, len(self.squares), chunk):
            yield slice(start, start + chunk)

    def _part_of(self, begin: int, length: int) -> int:
        """Number of the part in which the middle of a batch lies that begins after so many sweeps."""
        num_parts = max(2, -(-MIN_PARTS // self.num_chains))
        twice_middle = (2 * begin + length) * num_parts
        parts_to_middle = -(-twice_middle // max(1, 2 * self.expected_sweeps))  # rounded up, without floats
        return min(num_parts - 1, max(0, parts_to_middle - 1))

    def _squares(self, sums: FloatArray, length: int, rows: slice) -> FloatArray:
        """Squares of the means of some entries about the reference, from sums (E, C) over a length."""
        deviation = sums[rows] / length
        deviation -= self.reference[rows, None]
        return np.asarray(length * np.einsum("ec,ec->e", deviation, deviation))

    def squares_of_parts(self, rows: slice) -> FloatArray:
        """Squares, of some entries, of the means of all parts about the reference, with the one under way."""
        return self.part_squares[rows] + self._squares(self.part_sums, self.num_part_sweeps, rows)

    def squares_of_chains(self, rows: slice) -> FloatArray:
        """Squares, of some entries, of the means of whole chains about the reference."""
        return self._squares(self.sums, self.num_sweeps, rows)

    def chain_variances(self) -> FloatArray:
        """Sample variances (E,) of the chain means over the chains, with the divisor C - 1; needs two chains."""
        variances = np.empty(len(self.sums))
        for rows in self.chunks():
            variances[rows] = self.sums[rows].var(axis=1, ddof=1) / self.num_sweeps**2
        return variances

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that was collected as a dictionary of arrays for a checkpoint; they are copies."""
        return {name: np.array(value) for name, value in vars(self).items()}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on from what :meth:`to_arrays` gave, to the last bit; other keys are left alone."""
        for name, value in vars(self).items():
            if isinstance(value, int):
                setattr(self, name, int(arrays[name]))
            else:
                value[...] = arrays[name]


@dataclass(frozen=True, eq=False)
class Summary:
    """Marginals estimated from chains, and how far they can be trusted."""

    mean: FloatArray  # (E,) node marginals, aligned with ``model.log_unary``; they add up to 1 for every variable
    std_error: FloatArray  # (E,) Monte Carlo standard errors
    ess: FloatArray  # (n,) effective sample size of every variable: independent draws that would give an error as large
    r_hat: FloatArray  # (n,) split R-hat of every variable; close to 1 where the chains agree
    memory: float  # sweeps for which chains remembered where they were started
    num_chains: int  # of what the summary rests on, and sweeps of each chain
    num_sweeps: int


def summarize(
    statistics: BatchStatistics,
    model: MarkovRandomField,
    *,
    swings: FloatArray | None = None,
    memory: float = 1.0,
    stays: Callable[[FloatArray], FloatArray] | None = None,
) -> Summary:
    """A :class:`Summary`: marginals, standard errors, effective sample sizes and R-hat of a run.

    *Standard error.* With C chains, B batches of b_1 .. b_B sweeps, batch means ``m_kc`` and their weighted mean m,
    ``se^2 = sum_kc b_k (m_kc - m)^2 / (C B - 1) / (C sum_k b_k)`` (Argon and Andradóttir 2006, Flegal and Jones 2010);
    or the same for the parts, which are few but long beside any autocorrelation that an answer could be trusted with,
    enlarged by Student's quantile, if that is larger. Where chains disagree (R-hat above 1.01) it is at least that of
    the chains, ``se^2 = sum_c (m_c - m)^2 / (C (C - 1))``. To its square that of ``1.5 s / (N' + 1.5)`` is added: a
    neighborhood that N' independent looks would have met 1.5 times may never have been met, and could have moved the
    probability by s. Here N' is the smallest effective sample size of the variable and its neighbors, at most N over
    the memory of the chains (and over the longest that a chain stays in a state of the variable that it has hardly
    visited, by ``stays(mean)``, sweeps for every state: chains that never went there show no autocorrelation), s the
    width of the range of probabilities whose log-odds are within the swing of those of m (:func:`log_odds_swings`, for
    sums of conditional probabilities; without swings s is 1).

    *Effective sample size.* The smallest over the states of ``m (1 - m) / se^2``, before anything is added to the
    square, cut at ``N log10 N`` with ``N = C sum_k b_k``; it is N where all batches have the same mean.

    *R-hat.* The largest over the states of the split R-hat of the indicator of the state (Vehtari, Gelman, Simpson,
    Carpenter and Bürkner 2021; rank-normalized and folded it is the same, as these maps are affine on two values). With
    G parts of ``n_g`` sweeps and means ``m_g``, n the average length, ``V = sum_g n_g (m_g - m)^2 / (G - 1)`` and
    ``W = sum_g n_g m_g (1 - m_g) / sum_g (n_g - 1)`` it is ``r_hat^2 = (n - 1) / n + V / (n W)``.

    Nothing is NaN. What the unary decides has standard error 0; no other is below 2^-24, to which conditional
    probabilities are rounded, and all are infinite after one batch. R-hat is 1 where all parts are constant and equal,
    infinite where they differ or there is nothing to compare.
    """
    certain = certain_entries(model)
    mean, std_error, constant, r_hat = _estimates(statistics)
    if model.num_variables:
        mean /= np.repeat(np.add.reduceat(mean, model.unary_offsets[:-1]), model.num_states)
    total = float(statistics.num_chains * statistics.num_sweeps)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        entry_ess = (np.sqrt(mean * np.maximum(1.0 - mean, 0.0)) / std_error) ** 2
    # Nothing varied, or nothing could: worth all sweeps.
    entry_ess = np.where((constant & np.isfinite(std_error)) | certain, total, entry_ess)
    np.minimum(entry_ess, total * max(1.0, math.log10(max(total, 1.0))), out=entry_ess)
    r_hat = np.where(certain, 1.0, r_hat)
    if model.num_variables:
        starts = model.unary_offsets[:-1]
        entry_ess = np.minimum.reduceat(entry_ess, starts)
        r_hat = np.maximum.reduceat(r_hat, starts)
    looks = np.minimum(entry_ess, total / max(1.0, memory))
    if stays is not None and model.num_variables:
        lengths = stays(mean)
        hardly_visited = (total * mean < HARDLY_VISITED * lengths) & ~certain
        longest = np.maximum.reduceat(np.where(hardly_visited, lengths, 1.0), model.unary_offsets[:-1])
        looks = np.minimum(looks, total / longest)
    unseen = unseen_errors(model, mean, looks, swings)
    std_error = np.maximum(np.hypot(std_error, unseen), _RESOLUTION)
    std_error[certain] = 0.0
    for array in (mean, std_error, entry_ess, r_hat):
        array.setflags(write=False)
    return Summary(mean, std_error, entry_ess, r_hat, memory, statistics.num_chains, statistics.num_sweeps)


def unseen_errors(
    model: MarkovRandomField, mean: FloatArray, looks: FloatArray, swings: FloatArray | None
) -> FloatArray:
    """Errors of all probabilities (E,) by neighborhoods that were never met, see :func:`summarize`.

    ``looks`` (n,) are the independent looks at each variable; those at it and at its neighbors count, the fewest.
    """
    i, j = model.edges.T
    least = looks.copy()
    np.minimum.at(least, i, looks[j])
    np.minimum.at(least, j, looks[i])
    looks = np.repeat(least, model.num_states)
    return np.asarray(_spans(model, mean, swings) * UNSEEN / (looks + UNSEEN))


def assess_mixing(
    summary: Summary, *, certified: bool = False, names: Sequence[str] | None = None
) -> tuple[Status, str]:
    """Whether the chains agree, ``Status.OK`` or ``Status.NOT_MIXED``, and a sentence that says why.

    Beside the limits of Vehtari and others, chains must have had the time to come back 100 times to where some of them
    were started, and one or two cannot vouch for each other unless a certificate covers the burn-in (``certified``). A
    pass is no proof: chains that are all stuck in the same place agree.
    """
    n = len(summary.r_hat)
    if not n:
        return Status.OK, "There are no variables to mix."
    worst = int(summary.r_hat.argmax())
    least = int(summary.ess.argmin())
    worst_name = str(worst) if names is None else names[worst]
    least_name = str(least) if names is None else names[least]
    above = int((summary.r_hat > MAX_R_HAT).sum())
    below = int((summary.ess < MIN_ESS).sum())
    memories = summary.num_chains * summary.num_sweeps / max(1.0, summary.memory)
    if above:
        found = f"R-hat is {summary.r_hat[worst]:.4g} for variable {worst_name}"
        what = f"{found}, above {MAX_R_HAT:g} ({above} of {n} variables)"
    elif below:
        what = (
            f"the effective sample size is {summary.ess[least]:.4g} for variable {least_name}, below {MIN_ESS:g} "
            f"({below} of {n} variables), though R-hat is at most {MAX_R_HAT:g}"
        )
    elif memories < MIN_MEMORIES:
        what = (
            f"chains started at configurations of large weight remembered them for {summary.memory:.3g} sweeps, of "
            f"which all chains together made {memories:.3g} times as many, fewer than {MIN_MEMORIES:g}"
        )
    elif summary.num_chains < MIN_AGREEING_CHAINS and not certified:
        what = "one or two chains cannot show that others agree, and there is no certificate; run at least 3"
    else:
        return Status.OK, (
            f"The chains agree: R-hat is at most {summary.r_hat[worst]:.4g} (variable {worst_name}), the effective "
            f"sample size at least {summary.ess[least]:.4g} (variable {least_name})."
        )
    return Status.NOT_MIXED, f"Not mixed: {what}."


def _estimates(statistics: BatchStatistics) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """Per entry (E,): the mean, its standard error, whether no batch differed from another, and R-hat."""
    num_entries = len(statistics.squares)
    mean, std_error, r_hat = np.empty((3, num_entries))
    constant = np.empty(num_entries, dtype=bool)
    for rows in statistics.chunks():
        mean[rows], std_error[rows], constant[rows], r_hat[rows] = _estimates_of(statistics, rows)
    return mean, std_error, constant, r_hat


def _estimates_of(statistics: BatchStatistics, rows: slice) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """What :func:`_estimates` tells, of some entries."""
    num_chains = statistics.num_chains
    total = float(num_chains * statistics.num_sweeps)
    mean = statistics.sums[rows].sum(axis=1) / total

    # Squares of the means of batches, parts and chains: about the mean, from those about the reference.
    about_mean = total * (mean - statistics.reference[rows]) ** 2
    of_batches = np.maximum(statistics.squares[rows] - about_mean, 0.0)
    of_parts = np.maximum(statistics.squares_of_parts(rows) - about_mean, 0.0)

    num_batches = num_chains * statistics.num_batches
    num_parts = num_chains * (statistics.num_parts + 1)
    r_hat = _split_r_hat(mean, of_parts, total, num_parts)
    constant = of_batches <= total * NO_VARIATION**2
    if num_batches < 2:
        return mean, np.full_like(mean, np.inf), constant, r_hat
    variance = of_batches / (num_batches - 1) / total
    if num_parts > 1:
        freedom = num_parts - 1
        variance = np.maximum(variance, student_factor(freedom) ** 2 * of_parts / freedom / total)
        if num_chains > 1:
            of_chains = np.maximum(statistics.squares_of_chains(rows) - about_mean, 0.0)
            between = np.maximum(variance, of_chains / (num_chains - 1) / total)
            variance = np.where(r_hat > MAX_R_HAT, between, variance)
    return mean, np.where(constant, 0.0, np.sqrt(variance)), constant, r_hat


def _split_r_hat(mean: FloatArray, spread: FloatArray, total: float, num_parts: int) -> FloatArray:
    """R-hat of indicators from the squares of the means of parts about their mean."""
    num_left = total - num_parts  # degrees of freedom within the parts
    if num_parts < 2 or num_left < 1:
        return np.full(len(mean), np.inf)
    p = np.clip(mean, 0.0, 1.0)
    everything = total * p * (1.0 - p)
    within = (everything - spread) / num_left
    between = spread / (num_parts - 1)
    average = total / num_parts
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        r_hat = np.sqrt((average - 1.0) / average + between / (average * within))
    constant = everything - spread <= CONSTANT_TOLERANCE * everything
    r_hat[constant] = np.where(between[constant] > NO_VARIATION**2, np.inf, 1.0)
    return np.asarray(r_hat)


def log_odds_swings(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> FloatArray:
    """Largest change of the log-odds between states of each variable that its neighbors can make, (n,).

    The sum over the neighbors j of ``max_ab range(T_ij[:, a] - T_ij[:, b])``, factors included; infinite where pairs
    are forbidden. Larger where the clock leaves no time for tables and factors.
    """
    from fastmix.theory.dependency import edge_dependencies

    changes = 4.0 * edge_dependencies(model, dependency="range", clock=clock)
    ends = zip(model.edges.T, changes.T, strict=True)
    return np.sum([np.bincount(i, change, minlength=model.num_variables) for i, change in ends], axis=0)


def _spans(model: MarkovRandomField, mean: FloatArray, swings: FloatArray | None) -> FloatArray:
    """Width of the range of probabilities whose log-odds are within the swings of those of the means, (E,)."""
    if swings is None:
        return np.ones(len(mean))
    factors = np.repeat(np.exp(-swings), model.num_states)
    spans = np.empty(len(mean))
    for start in range(0, len(mean), SUM_CHUNK_ENTRIES):
        rows = slice(start, start + SUM_CHUNK_ENTRIES)
        p = mean[rows]
        factor = factors[rows]
        other = 1.0 - p
        inner = (p > 0.0) & (other > 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            width = p / (p + other * factor) - p * factor / (p * factor + other)
        spans[rows] = np.where(inner, width, (factor < 1.0).astype(float))  # a mean of 0 or 1 may be a rounded one
    return spans
