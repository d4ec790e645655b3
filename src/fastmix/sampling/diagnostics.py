"""What a run of independent chains knows about its own error: standard errors, effective sample sizes, R-hat.

The sampler hands over sums after every batch of sweeps, :class:`BatchStatistics` keeps what is needed of them, and
:func:`summarise` turns that into estimates. No draw is stored.
"""

from __future__ import annotations

import importlib
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix.errors import ModelError
from fastmix.model import PairwiseMRF
from fastmix.results import Status
from fastmix.validation import check_count

__all__ = ["BatchStatistics", "Summary", "assess_mixing", "certain_entries", "summarise", "to_arviz"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_CHUNK_ENTRIES = 1 << 18  # numbers worked on at once: 2 MiB a temporary, which stays in the cache
_LOOSE = 1e-3  # sums may miss what they must add up to by this fraction: conditional probabilities are rounded
_NO_VARIATION = 1e-12  # batch means that differ by less than this differ by rounding
_DISAGREEMENT_LEVEL = 0.01  # false alarms among all states, for chains that disagree more than their batches tell
_MANY_FREEDOMS = 200

_STATE = ("num_chains", "expected_sweeps", "num_batches", "num_sweeps", "num_first_sweeps")
_ARRAYS = ("first_sums", "second_sums", "reference", "squares")


class BatchStatistics:
    """Sums over a run of C chains, batch by batch: what :func:`summarise` needs, in two (E, C) arrays.

    Kept are the sums of the first and of the second half of the run for every state entry and chain, and, for every
    state entry, the squares of the batch means about a fixed reference (the mean of the first batch), weighted
    by the lengths of the batches and added over the chains.

    Parameters
    ----------
    num_entries : int
        Number E of state entries, ``len(model.log_unary)``.
    num_chains : int
        Number C of independent chains, at least 1.
    expected_sweeps : int
        Sweeps that the whole run is going to collect; this decides where its second half begins.

    Attributes
    ----------
    num_entries, num_chains, expected_sweeps : int
        As given.
    num_batches, num_sweeps : int
        Batches and sweeps added so far.
    num_first_sweeps : int
        Those of the sweeps that count as the first half.
    first_sums, second_sums : float array (E, C)
        Sums over the two halves.
    reference, squares : float array (E,)
        The reference r, and the sum over batches k and chains c of ``b_k (mean_kc - r)^2`` with the length b_k.

    Notes
    -----
    A batch counts, as a whole, to the half of the run in which its middle lies (to the first if that is the very
    middle of the run); the first batch counts to the first half. The halves are those of the run as announced: of a run
    that ended early the second half is shorter, or empty, and what runs over counts to the second.

    Memory: 16 E C bytes. A batch costs one pass over its sums.

    Examples
    --------
    >>> statistics = BatchStatistics(num_entries=2, num_chains=3, expected_sweeps=20)
    >>> statistics.add([[3, 4, 5], [7, 6, 5]], num_sweeps=10)
    >>> statistics.add([[5, 4, 6], [5, 6, 4]], num_sweeps=10)
    >>> statistics.num_batches, statistics.num_sweeps, statistics.chain_means()[0].tolist()
    (2, 20, [0.4, 0.4, 0.55])
    """

    num_chains: int
    expected_sweeps: int
    num_batches: int
    num_sweeps: int
    num_first_sweeps: int
    first_sums: FloatArray
    second_sums: FloatArray
    reference: FloatArray
    squares: FloatArray

    def __init__(self, num_entries: int, num_chains: int, expected_sweeps: int) -> None:
        size = check_count("num_entries", num_entries, least=0)
        self.num_chains = check_count("num_chains", num_chains, least=1)
        self.expected_sweeps = check_count("expected_sweeps", expected_sweeps, least=0)
        self.num_batches = self.num_sweeps = self.num_first_sweeps = 0
        self.first_sums, self.second_sums = np.zeros((size, self.num_chains)), np.zeros((size, self.num_chains))
        self.reference, self.squares = np.zeros(size), np.zeros(size)

    @property
    def num_entries(self) -> int:
        """Number E of state entries."""
        return len(self.reference)

    def add(self, sums: ArrayLike, num_sweeps: int) -> None:
        """Take in one batch.

        Parameters
        ----------
        sums : float array (E, C)
            For every state entry and chain the number of sweeps of the batch that ended in the state, or the sum of
            its conditional probabilities.
        num_sweeps : int
            Length of the batch, at least 1.

        Raises
        ------
        ValueError
            If the sums have another shape, or are not between 0 and the length of the batch.
        """
        length = check_count("num_sweeps", num_sweeps, least=1)
        values = np.asarray(sums, dtype=np.float64)
        if values.shape != self.first_sums.shape:
            raise ValueError(f"sums must have shape {self.first_sums.shape}, got {values.shape}")
        if values.size:
            least, largest = float(values.min()), float(values.max())
            if not (least >= 0.0 and largest <= length * (1.0 + _LOOSE)):
                raise ValueError(f"sums of {length} sweeps must be from 0 to {length}, got {least:g} to {largest:g}")
        if not self.num_batches:
            for rows in self._chunks():
                self.reference[rows] = values[rows].mean(axis=1) / length
        for rows in self._chunks():
            deviation = values[rows] / length
            deviation -= self.reference[rows, None]
            self.squares[rows] += length * np.einsum("ec,ec->e", deviation, deviation)
        if 2 * self.num_sweeps + length <= self.expected_sweeps or not self.num_batches:
            self.first_sums += values
            self.num_first_sweeps += length
        else:
            self.second_sums += values
        self.num_batches += 1
        self.num_sweeps += length

    def chain_means(self) -> FloatArray:
        """Average over the run of every chain (E, C): one value of each chain, independent of the others'."""
        self._check_begun()
        return (self.first_sums + self.second_sums) / self.num_sweeps

    def chain_variances(self) -> FloatArray:
        """Sample variances (E,) of the chain means over the chains, with the divisor C - 1; needs two chains."""
        self._check_begun()
        if self.num_chains < 2:
            raise ValueError("chain_variances needs at least 2 chains, got 1")
        result = np.empty(self.num_entries)
        for rows in self._chunks():
            means = (self.first_sums[rows] + self.second_sums[rows]) / self.num_sweeps
            result[rows] = means.var(axis=1, ddof=1)
        return result

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that was collected as a dictionary of arrays for a checkpoint; they are copies."""
        result: dict[str, NDArray[Any]] = {name: np.array(getattr(self, name), dtype=np.int64) for name in _STATE}
        return result | {name: getattr(self, name).copy() for name in _ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> BatchStatistics:
        """The statistics that :meth:`to_arrays` was called on, to the last bit; other keys are left alone.

        Raises
        ------
        ValueError
            If a key is missing, or the arrays do not fit together.
        """
        if missing := [name for name in (*_STATE, *_ARRAYS) if name not in arrays]:
            raise ValueError(f"arrays must hold {', '.join((*_STATE, *_ARRAYS))}; {missing[0]} is missing")
        for name in _STATE:
            value = np.asarray(arrays[name])
            if value.ndim or value.dtype.kind not in "iu" or value < 0:
                raise ValueError(f"{name} must be a whole number of at least 0, got {arrays[name]!r}")
        reference = np.asarray(arrays["reference"])
        result = cls(reference.size, int(arrays["num_chains"]), int(arrays["expected_sweeps"]))
        for name in _STATE[2:]:
            setattr(result, name, int(arrays[name]))
        for name in _ARRAYS:
            value = np.array(arrays[name], dtype=np.float64)
            if value.shape != getattr(result, name).shape:
                raise ValueError(f"{name} must have shape {getattr(result, name).shape}, got {value.shape}")
            setattr(result, name, value)
        return result

    def _chunks(self) -> Iterator[slice]:
        rows = max(1, _CHUNK_ENTRIES // self.num_chains)
        return (slice(start, start + rows) for start in range(0, self.num_entries, rows))

    def _check_begun(self) -> None:
        if not self.num_batches:
            raise ValueError("the statistics hold no batch yet: call add first")


@dataclass(frozen=True, eq=False)
class Summary:
    """Marginals estimated from chains, and how far they can be trusted.

    Attributes
    ----------
    mean : float array (E,)
        Node marginals, aligned with ``model.log_unary``; they add up to 1 for every variable.
    std_error : float array (E,)
        Monte Carlo standard errors.
    ess : float array (n,)
        Effective sample size of every variable: independent draws that would give an error as large.
    r_hat : float array (n,)
        Split R-hat of every variable; close to 1 where the chains agree.
    num_chains, num_sweeps, num_batches : int
        Of what the summary rests on; sweeps and batches of each chain.
    """

    mean: FloatArray
    std_error: FloatArray
    ess: FloatArray
    r_hat: FloatArray
    num_chains: int
    num_sweeps: int
    num_batches: int

    @property
    def min_ess(self) -> float:
        """The smallest effective sample size, infinite without variables."""
        return float(self.ess.min(initial=math.inf))

    @property
    def max_r_hat(self) -> float:
        """The largest R-hat, 1 without variables."""
        return float(self.r_hat.max()) if self.r_hat.size else 1.0


def summarise(statistics: BatchStatistics, model: PairwiseMRF, *, min_batches: int = 2) -> Summary:
    """A :class:`Summary`: marginals, standard errors, effective sample sizes and R-hat of a run.

    *Standard error.* With C chains, B batches of b_1 .. b_B sweeps, batch means ``m_kc`` and their weighted mean m,
    ``se^2 = sum_kc b_k (m_kc - m)^2 / (C B - 1) / (C sum_k b_k)``: batch means pooled over the chains about the grand
    mean ([2]_, [3]_), so that chains that disagree make the error larger. Where the chain means scatter more than
    their batches explain (an F test at level 0.01 over all states), the error is theirs alone,
    ``se^2 = sum_c (m_c - m)^2 / (C (C - 1))``, which holds however strongly successive batches depend on each other.

    *Effective sample size.* The smallest over the states of ``m (1 - m) / se^2``, cut at ``N log10 N`` with
    ``N = C sum_k b_k`` as in [1]_; averages of conditional probabilities can exceed N.

    *R-hat.* The largest over the states of the split R-hat [1]_ of the indicator of the state. Every chain counts as
    two, its halves; with G halves of ``n_g`` sweeps and means ``m_g``, n the average length,
    ``W = sum_g n_g m_g (1 - m_g) / sum_g (n_g - 1)``, ``V = sum_g n_g (m_g - m)^2 / (G - 1)`` and
    ``r_hat^2 = (n - 1) / n + V / (n W)``. For halves of equal length this is the usual formula. The rank-normalised
    version of [1]_ is the same number: it replaces the values by normal scores of their ranks, which maps the
    two values of an indicator to two other values, and folding about the median maps them to two
    values again (or, when the median lies between them, to one); both maps are affine on two points, and R-hat
    does not change under affine maps.

    Parameters
    ----------
    statistics : BatchStatistics
        Of sums that add up to the sweeps over the states of every variable.
    model : PairwiseMRF
        Its ``log_unary`` is aligned with the entries.
    min_batches : int
        Batches of all chains together, C B, below which no standard error is given; at least 2.

    Returns
    -------
    Summary
        Free of NaN, by these rules.

        - Too few batches: the standard errors are infinite, the effective sample sizes 0. Without any batch the mean is
          uniform over the allowed states, and R-hat infinite.
        - All batches of all chains have the same mean, as for a state that was never or always taken: this says
          nothing about the error, and 0 would be a lie. The standard error is that of N independent draws with one
          pseudo-count on each side, ``sqrt(q (1 - q) / N)`` with ``q = (N m + 1) / (N + 2)``, about 1/N for m = 0 or
          1, and the state counts with an effective sample size of N (as in ArviZ). That takes the sweeps as
          independent: chains that all sit in the same place cannot be told from chains that belong there.
        - A state that the unary forbids, or the only one it allows, is known: standard error 0.
        - R-hat is 1 where all halves are constant and equal, infinite where they are constant and differ, and infinite
          where there is nothing to compare: one chain with one half, or halves of a single sweep.

    Raises
    ------
    ValueError
        If the statistics do not fit the model, or do not add up.

    Notes
    -----
    Batches should be long beside the autocorrelation time of the chain and many: about as long as they are many for a
    single chain [2]_. For sums of conditional probabilities W is still the variance of the indicator.
    Time O(E C), memory O(E) beyond the statistics.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Bürkner, "Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16, 2021.
    .. [2] J. M. Flegal and G. L. Jones, "Batch means and spectral variance estimators in Markov chain Monte Carlo",
       Annals of Statistics 38, 2010.
    .. [3] N. T. Argon and S. Andradóttir, "Replicated batch means for steady-state simulations", Naval Research
       Logistics 53, 2006.

    Examples
    --------
    >>> model = PairwiseMRF.from_tables([[0.0, 1.0]], [], [])
    >>> rng = np.random.default_rng(1)
    >>> statistics = BatchStatistics(2, num_chains=4, expected_sweeps=5000)
    >>> for _ in range(50):
    ...     ones = rng.binomial(100, 0.731, size=4)
    ...     statistics.add([100 - ones, ones], num_sweeps=100)
    >>> summary = summarise(statistics, model)
    >>> summary.mean.round(2).tolist(), summary.std_error.round(3).tolist()
    ([0.27, 0.73], [0.003, 0.003])
    >>> bool(summary.ess[0] > 15_000), bool(abs(summary.r_hat[0] - 1) < 0.001)
    (True, True)
    """
    least = check_count("min_batches", min_batches, least=2)
    if statistics.num_entries != len(model.log_unary):
        raise ValueError(f"statistics must have {len(model.log_unary)} entries, got {statistics.num_entries}")
    certain = certain_entries(model)
    moments = _moments(statistics) if statistics.num_batches else _no_moments(model)
    mean = _normalise(moments.mean, model)
    total = float(statistics.num_chains * statistics.num_sweeps)
    std_error, constant = _standard_errors(statistics, moments, mean, least)
    std_error[certain] = 0.0

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        entry_ess = (np.sqrt(mean * np.maximum(1.0 - mean, 0.0)) / std_error) ** 2
    # Nothing varied, or nothing could: worth all sweeps.
    entry_ess = np.where((constant & np.isfinite(std_error)) | certain, total, entry_ess)
    np.minimum(entry_ess, total * max(1.0, math.log10(max(total, 1.0))), out=entry_ess)
    r_hat = np.where(certain, 1.0, moments.r_hat)
    if model.num_variables:
        starts = model.unary_offsets[:-1]
        entry_ess, r_hat = np.minimum.reduceat(entry_ess, starts), np.maximum.reduceat(r_hat, starts)
    for array in (mean, std_error, entry_ess, r_hat):
        array.setflags(write=False)
    return Summary(
        mean=mean,
        std_error=std_error,
        ess=entry_ess,
        r_hat=r_hat,
        num_chains=statistics.num_chains,
        num_sweeps=statistics.num_sweeps,
        num_batches=statistics.num_batches,
    )


def assess_mixing(summary: Summary, *, max_r_hat: float = 1.01, min_ess: float = 400.0) -> tuple[Status, str]:
    """Whether the chains agree, ``Status.OK`` or ``Status.NOT_MIXED``, and a sentence that says why.

    Parameters
    ----------
    summary : Summary
    max_r_hat : float
        Largest R-hat of a variable that passes.
    min_ess : float
        Smallest effective sample size of a variable, over all chains, that passes.

    Returns
    -------
    status : Status
    sentence : str

    Notes
    -----
    The defaults are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), "Rank-normalization, folding,
    and localization". A pass is no proof: chains that are all stuck in the same place agree. For a proof see
    :func:`fastmix.certify`.

    Examples
    --------
    >>> model = PairwiseMRF.from_tables([[0.0, 1.0]], [], [])
    >>> stuck = BatchStatistics(2, num_chains=2, expected_sweeps=200)
    >>> for _ in range(10):
    ...     stuck.add([[20, 0], [0, 20]], num_sweeps=20)
    >>> status, sentence = assess_mixing(summarise(stuck, model))
    >>> str(status)
    'not_mixed'
    >>> sentence
    'Not mixed: R-hat is inf for variable 0, above 1.01 (1 of 1 variable is).'
    """
    for name, value in (("max_r_hat", max_r_hat), ("min_ess", min_ess)):
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value >= 0.0:
            raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    n = len(summary.r_hat)
    if not n:
        return Status.OK, "There are no variables to mix."
    worst, least = int(summary.r_hat.argmax()), int(summary.ess.argmin())
    above, below = int((summary.r_hat > max_r_hat).sum()), int((summary.ess < min_ess).sum())
    if above:
        what = f"R-hat is {summary.r_hat[worst]:.4g} for variable {worst}, above {max_r_hat:g} ({_number(above, n)})"
        return Status.NOT_MIXED, f"Not mixed: {what}."
    if below:
        what = (
            f"the effective sample size is {summary.ess[least]:.4g} for variable {least}, below {min_ess:g} "
            f"({_number(below, n)}), though R-hat is at most {max_r_hat:g}"
        )
        return Status.NOT_MIXED, f"Not mixed: {what}."
    return Status.OK, (
        f"The chains agree: R-hat is at most {summary.r_hat[worst]:.4g} (variable {worst}), the effective sample size "
        f"at least {summary.ess[least]:.4g} (variable {least})."
    )


def to_arviz(draws: ArrayLike, model: PairwiseMRF) -> Any:
    """Draws as the data object of ArviZ, with the variable ``x`` in the group ``posterior``.

    Parameters
    ----------
    draws : int array (C, S, n)
        States of every variable after S sweeps of C chains.
    model : PairwiseMRF
        Its variable names, or numbers, become the coordinate ``variable``.

    Returns
    -------
    arviz.InferenceData, or xarray.DataTree
        The latter from ArviZ 1.0 on.

    Raises
    ------
    ModelError
        If the draws are not states of the model, or not of three dimensions.
    ImportError
        If ArviZ is not installed.

    Examples
    --------
    >>> model = PairwiseMRF.ising([(0, 1)], coupling=0.5)
    >>> data = to_arviz(np.zeros((4, 100, 2), dtype=int), model)  # doctest: +SKIP
    >>> data.posterior["x"].sizes["draw"]  # doctest: +SKIP
    100
    """
    flat, shape = model._as_states(draws)
    if len(shape) != 2:
        expected = f"(chains, sweeps, {model.num_variables})"
        raise ModelError(f"draws must have shape {expected}, got shape {(*shape, model.num_variables)}")
    values = flat.reshape(*shape, model.num_variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # versions before 1.0 announce it at every import
        try:
            arviz = importlib.import_module("arviz")
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ, which pip install 'fastmix[interop]' brings") from error
    names = list(model.variable_names or range(model.num_variables))
    labels: dict[str, Any] = {"coords": {"variable": names}, "dims": {"x": ["variable"]}}
    if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before 1.0
        return arviz.from_dict(posterior={"x": values}, **labels)
    return arviz.from_dict({"posterior": {"x": values}}, **labels)


def certain_entries(model: PairwiseMRF) -> BoolArray:
    """Which entries of ``log_unary`` have a probability of 0 or 1 by the unaries alone, (E,).

    States that the unary forbids, and the one state of a variable that it allows.

    Examples
    --------
    >>> certain_entries(PairwiseMRF.from_tables([[0.0, 1.0], [0.0, -np.inf]], [], [])).tolist()
    [False, False, True, True]
    """
    allowed = model.log_unary > -np.inf
    return ~allowed | (_num_allowed(model) == 1)


def _num_allowed(model: PairwiseMRF) -> NDArray[np.int64]:
    """For every entry (E,) the number of states that the unary allows its variable."""
    if not model.num_variables:
        return np.zeros(0, dtype=np.int64)
    allowed = (model.log_unary > -np.inf).astype(np.int64)
    return np.repeat(np.add.reduceat(allowed, model.unary_offsets[:-1]), model.num_states)


# -- the numbers behind a summary -----------------------------------------------------------------------------------


@dataclass
class _Moments:
    """Per entry (E,): the mean, the spread ``sum_c (m_c - m)^2`` of the chain means, and R-hat of the indicator."""

    mean: FloatArray
    spread: FloatArray
    r_hat: FloatArray


def _moments(statistics: BatchStatistics) -> _Moments:
    """One pass over the sums of the halves."""
    s = statistics
    lengths = (s.num_first_sweeps, s.num_sweeps - s.num_first_sweeps)
    halves = [(n, x) for n, x in zip(lengths, (s.first_sums, s.second_sums), strict=True) if n]
    num_groups = s.num_chains * len(halves)
    num_left = s.num_chains * s.num_sweeps - num_groups  # degrees of freedom within the halves
    average = s.num_chains * s.num_sweeps / num_groups
    result = _Moments(*(np.empty(s.num_entries) for _ in range(3)))
    for rows in s._chunks():
        chain_means = (s.first_sums[rows] + s.second_sums[rows]) / s.num_sweeps
        mean = result.mean[rows] = chain_means.mean(axis=1)
        chain_means -= mean[:, None]
        result.spread[rows] = np.einsum("ec,ec->e", chain_means, chain_means)
        if num_groups < 2 or num_left < 1:
            result.r_hat[rows] = np.inf
            continue
        within, between = np.zeros(len(mean)), np.zeros(len(mean))
        for n, sums in halves:
            p = np.minimum(sums[rows] / n, 1.0)
            within += n * np.einsum("ec,ec->e", p, 1.0 - p)
            p -= mean[:, None]
            between += n * np.einsum("ec,ec->e", p, p)
        between /= num_groups - 1
        within /= num_left
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            r_hat = np.sqrt((average - 1.0) / average + between / (average * within))
        constant = within <= 0.0
        r_hat[constant] = np.where(between[constant] > _NO_VARIATION**2, np.inf, 1.0)
        result.r_hat[rows] = r_hat
    return result


def _no_moments(model: PairwiseMRF) -> _Moments:
    """What is known before the first batch: which states are allowed."""
    size = len(model.log_unary)
    return _Moments((model.log_unary > -np.inf) / _num_allowed(model), np.zeros(size), np.full(size, np.inf))


def _normalise(mean: FloatArray, model: PairwiseMRF) -> FloatArray:
    if not model.num_variables:
        return mean.copy()
    sums = np.add.reduceat(mean, model.unary_offsets[:-1])
    if (wrong := np.flatnonzero(~(np.abs(sums - 1.0) <= _LOOSE))).size:
        i = int(wrong[0])
        raise ValueError(f"sums must add up to the sweeps; those of variable {i} add up to {sums[i]:.6g} times that")
    return mean / np.repeat(sums, model.num_states)


def _standard_errors(
    statistics: BatchStatistics, moments: _Moments, mean: FloatArray, min_batches: int
) -> tuple[FloatArray, BoolArray]:
    """Standard errors (E,), and whether no batch differed from another."""
    s, num_chains, num_batches = statistics, statistics.num_chains, statistics.num_batches
    total = float(num_chains * s.num_sweeps)
    # About the grand mean, from squares about the reference.
    squares = np.maximum(s.squares - total * (moments.mean - s.reference) ** 2, 0.0)
    constant = squares <= total * _NO_VARIATION**2
    if num_chains * num_batches < min_batches:
        return np.full(len(mean), np.inf), constant
    variance = squares / (num_chains * num_batches - 1) / total
    if num_chains > 1 and num_batches > 1 and len(mean):
        inner = num_chains * (num_batches - 1)
        within = np.maximum(squares - s.num_sweeps * moments.spread, 0.0) / inner / total
        between = moments.spread / (num_chains * (num_chains - 1))
        limit = _variance_ratio(num_chains - 1, inner, _DISAGREEMENT_LEVEL / len(mean))
        variance = np.where(between > limit * within, np.maximum(between, variance), variance)
    smoothed = (total * mean + 1.0) / (total + 2.0)
    return np.sqrt(np.where(constant, smoothed * (1.0 - smoothed) / total, variance)), constant


def _variance_ratio(above: int, below: int, level: float) -> float:
    """What a ratio of variances (Snedecor's F) with these degrees of freedom exceeds with a small probability.

    From 200 degrees of freedom on by the normal approximation of its cube root (E. Paulson, 1942), which is off by less
    than one in a hundred and does without loading SciPy.

    Examples
    --------
    >>> round(_variance_ratio(999, 24000, 1e-6), 2)
    1.23
    """
    if min(above, below) < _MANY_FREEDOMS:
        from scipy.special import fdtri

        return float(fdtri(above, below, 1.0 - level))
    z = NormalDist().inv_cdf(1.0 - level)
    a, b = 2.0 / (9.0 * above), 2.0 / (9.0 * below)
    square, linear, constant = (1.0 - b) ** 2 - z * z * b, (1.0 - a) * (1.0 - b), (1.0 - a) ** 2 - z * z * a
    return ((linear + math.sqrt(linear * linear - square * constant)) / square) ** 3


def _number(count: int, n: int) -> str:
    return f"{count} of {n} {'variable' if n == 1 else 'variables'} {'is' if count == 1 else 'are'}"
