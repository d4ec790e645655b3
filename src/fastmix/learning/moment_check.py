"""What a model of 0 and 1 was not fitted to: third moments, and how many variables are 1 at once, beside the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, choose_seed
from fastmix._clock import Report
from fastmix.errors import ModelError, ResourceError
from fastmix.exact import draw_exact
from fastmix.learning.data import read_data
from fastmix.learning.dataset import num_hidden
from fastmix.learning.tuning import CHECKED_CHAINS, CHECKED_SWEEPS
from fastmix.model import MarkovRandomField, check_model
from fastmix.results import Status
from fastmix.sampling.sample import sample

__all__ = ["MomentComparison", "compare_moments"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MomentComparison:
    """Moments of data beside those of draws of a model.

    Attributes
    ----------
    triples : int array (t, 3)
        Variables whose third moments are compared.
    data_third, model_third : float array (t,)
        Means of ``(x_i - m_i)(x_j - m_j)(x_k - m_k)``, m the means of the same rows.
    third_errors : float array (t,)
        Standard errors of their differences.
    data_counts, model_counts : float array (n + 1,)
        P(K), the probability that K variables are 1 at once.
    count_errors : float array (n + 1,)
        Standard errors of their differences.
    status : Status
        ``ok`` where draws are exact, or their chains have mixed; ``not_mixed`` else.
    """

    triples: IntArray
    data_third: FloatArray
    model_third: FloatArray
    third_errors: FloatArray
    data_counts: FloatArray
    model_counts: FloatArray
    count_errors: FloatArray
    status: Status

    def __repr__(self) -> str:
        return f"MomentComparison({len(self.triples):,} triples, r={self.correlation:.3g}, status={str(self.status)!r})"

    @property
    def correlation(self) -> float:
        """The correlation of the third moments of model and data; NaN where they do not vary."""
        if len(self.triples) < 2 or not np.ptp(self.data_third) or not np.ptp(self.model_third):
            return float("nan")
        return float(np.corrcoef(self.data_third, self.model_third)[0, 1])

    def plot(self, axes: Any = None) -> Any:
        """Third moments, and P(K) as an inset, as one picture (Matplotlib, extra ``plot``); the axes come back."""
        axes = _show.new_axes(axes)
        axes.plot(self.data_third, self.model_third, ".", markersize=3, alpha=0.5)
        ends = [float(min(self.data_third.min(initial=0), self.model_third.min(initial=0)))]
        ends.append(float(max(self.data_third.max(initial=0), self.model_third.max(initial=0))))
        axes.plot(ends, ends, color="0.6", linewidth=0.8)
        axes.set(xlabel="third moments of the data", ylabel="third moments of the model")
        axes.set_title(f"{len(self.triples):,} triples, r = {self.correlation:.3g} ({self.status})")
        inset = axes.inset_axes((0.62, 0.1, 0.36, 0.36))
        counts = np.arange(len(self.data_counts))
        for values, style, label in ((self.data_counts, "o", "data"), (self.model_counts, "-", "model")):
            shown = values > 0
            inset.plot(counts[shown], values[shown], style, markersize=3, label=label)
        inset.set(xlabel="K", ylabel="P(K)", yscale="log")
        inset.legend(frameon=False, fontsize="small")
        return axes


def compare_moments(
    model: MarkovRandomField,
    data: Any,
    *,
    num_triples: int = 2000,
    num_draws: int = 20_000,
    seed: int | None = None,
    progress: Report = None,
) -> MomentComparison:
    """Third moments, and how many variables are 1 at once, of data and of draws of a model of 0 and 1.

    A pairwise model is fitted to first and second moments; whether the third ones follow is a test of it [1]_. Draws
    are exact where exact inference fits, else from chains.

    Parameters
    ----------
    model : MarkovRandomField
        Of binary variables; hidden ones are left out.
    data
        As for :func:`fastmix.score`, without missing values.
    num_triples : int
        All triples of variables, or so many of them at random.
    num_draws : int
        Of the model.
    seed : int, optional
    progress : "auto", None or callable
        Of the chains.

    Raises
    ------
    ModelError
        If a variable has other than two states, or values are missing.

    References
    ----------
    .. [1] G. Tkacik et al., "Searching for collective behavior in a large network of sensory neurons", PLoS
       Computational Biology 10, 2014.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.4, field=-0.5)
    >>> rows = draw_exact(model, num_draws=5000, seed=1).states
    >>> found = compare_moments(model, rows, seed=0)
    >>> found.triples.tolist(), bool(abs(found.data_third - found.model_third)[0] < 0.02)
    ([[0, 1, 2]], True)
    """
    check_model(model)
    num_triples = check_count("num_triples", num_triples, least=1)
    num_draws = check_count("num_draws", num_draws, least=2)
    table = read_data(data, model=model)
    n = model.num_variables - num_hidden(model)
    rows = table.states[:, :n]
    if (model.num_states[:n] != 2).any() or (rows.size and int(rows.min()) < 0):
        raise ModelError("data must be 0 and 1 in every column, without missing values, to compare moments")
    seed = choose_seed(seed)
    triples = _triples(n, num_triples, np.random.default_rng(seed))
    draws, effective, status = _draws(model, num_draws, seed, progress)
    first, first_variances = _third(rows, table.weights, triples)
    second, second_variances = _third(draws[:, :n], np.full(len(draws), 1.0 / len(draws)), triples)
    num_rows = 1.0 / float(table.weights @ table.weights)
    seen = _counts(rows, table.weights)
    drawn = _counts(draws[:, :n], np.full(len(draws), 1.0 / len(draws)))
    spread = seen * (1.0 - seen) / num_rows + drawn * (1.0 - drawn) / effective
    return MomentComparison(
        triples=triples,
        data_third=first,
        model_third=second,
        third_errors=np.sqrt(first_variances / num_rows + second_variances / effective),
        data_counts=seen,
        model_counts=drawn,
        count_errors=np.sqrt(spread),
        status=status,
    )


def _triples(n: int, most: int, rng: np.random.Generator) -> IntArray:
    """All triples (t, 3) of variables, in order, or so many different ones at random."""
    total = n * (n - 1) * (n - 2) // 6
    if total <= most:
        listed = [(i, j, k) for k in range(n) for j in range(k) for i in range(j)]
        return np.array(listed, dtype=np.int64).reshape(-1, 3)
    found: set[tuple[int, ...]] = set()
    while len(found) < most:
        found.add(tuple(sorted(rng.choice(n, 3, replace=False).tolist())))
    return np.array(sorted(found), dtype=np.int64)


def _draws(
    model: MarkovRandomField, num_draws: int, seed: int, progress: Report
) -> tuple[NDArray[Any], float, Status]:  # fmt: skip
    """Configurations (num_draws, n), as how many independent ones they count, and whether they can be trusted."""
    try:
        states = np.asarray(draw_exact(model, num_draws=num_draws, seed=seed))
    except ResourceError:
        each = -(-num_draws // CHECKED_CHAINS)
        run = sample(
            model, num_chains=CHECKED_CHAINS, num_sweeps=max(CHECKED_SWEEPS, 4 * each), num_draws=each, seed=seed,
            progress=progress,
        )  # fmt: skip
        assert run.draws is not None
        states = run.draws.reshape(-1, model.num_variables)[:num_draws]
        return states, len(states) / 2.0, run.status
    return states, float(len(states)), Status.OK


def _third(rows: NDArray[Any], weights: FloatArray, triples: IntArray) -> tuple[FloatArray, FloatArray]:
    """Third central moments (t,) of rows of 0 and 1, and the variances of the products that they are means of."""
    centered = rows - weights @ rows
    moments = np.empty(len(triples))
    variances = np.empty(len(triples))
    for t, (i, j, k) in enumerate(triples):
        products = centered[:, i] * centered[:, j] * centered[:, k]
        moments[t] = weights @ products
        variances[t] = weights @ (products - moments[t]) ** 2
    return moments, variances


def _counts(rows: NDArray[Any], weights: FloatArray) -> FloatArray:
    """P(K) (n + 1,) of rows of 0 and 1."""
    found = np.bincount(rows.sum(axis=1, dtype=np.int64), weights, rows.shape[1] + 1)
    return np.asarray(found, dtype=np.float64)
