"""What the paper found, held against our rows: reproduced or not, with the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.experiments.figures import (
    STYLES,
    format_count,
    mean_and_error,
    mean_error_of,
    median_seconds,
    select,
    values_of,
)
from fastmix.experiments.plan import Row

__all__ = [
    "Finding", "euclidean_converges_quickly", "gibbs_and_loopy_bp_excel", "infinity_norm_is_faster",
    "photographs_converge", "piecewise_wins_on_potts", "projection_is_competitive",
]  # fmt: skip

Verdict = Literal["reproduced", "not reproduced", "undecided"]

_TRACTABLE = ("euclidean", "piecewise", "reversed-kl")
_BASELINES = ("mean-field", "loopy-bp", "gibbs")
_LEAST_TRIALS = 2
_FEW_TRIALS = 10  # below which a verdict is called a hint
_CLEAR = 2.0  # standard errors that a difference must exceed to decide anything
# What the paper's words are taken to mean.
_FEW_ITERATIONS = 10  # it says "around 5"
_MUCH_FASTER = 5.0  # times; its own table has 8 to 50
_SMALL_LOSS = 0.03  # of mean error
_COMPETITIVE = 1.25  # times the error of the best baseline
_CONVERGED = 0.1  # share of the error that may still go away
_STRONG = 1.0  # strengths from which the methods differ at all


@dataclass(frozen=True)
class Finding:
    """A statement of the paper, in our words, and what our rows say about it: a verdict, and the numbers behind it.

    Attributes
    ----------
    claim, verdict, evidence : str
    num_trials : int
        Random instances, or photographs, that the verdict rests on.
    """

    claim: str
    verdict: Verdict
    evidence: str
    num_trials: int = 0

    @property
    def kind(self) -> str:
        """The verdict, or ``hint`` where few trials are behind it."""
        return self.verdict if self.verdict == "undecided" or self.num_trials >= _FEW_TRIALS else "hint"

    @property
    def label(self) -> str:
        """The verdict in words, with the number of trials."""
        trials = format_count(self.num_trials, "trial")
        if self.kind == "hint":
            return f"a hint: {self.verdict} in {trials}"
        return f"{self.verdict}, from {trials}" if self.num_trials else self.verdict


def _finding(claim: str, holds: bool, evidence: str, num_trials: int) -> Finding:
    return Finding(claim, "reproduced" if holds else "not reproduced", evidence, num_trials)


def _trials(rows: Sequence[Row], *methods: str) -> int:
    """Trials that have some of the methods."""
    cases = {(str(row["parameters"].get("image")), row["trial"]) for name in methods for row in select(rows, name)}
    return len(cases)


def _undecided(claim: str, reason: str = "The methods were not run.") -> Finding:
    return Finding(claim, "undecided", reason)


def projection_is_competitive(rows: Sequence[Row], where: str) -> list[Finding]:
    """Conclusion of the paper, for each kind of interaction."""
    found = []
    for kind in ("attractive", "mixed"):
        claim = (
            f"On {where} with {kind} interactions, sampling after projection is competitive with simple variational "
            "methods and with Gibbs sampling for as many sweeps."
        )
        means = _trial_means(rows, (*_TRACTABLE, *_BASELINES), kind)
        missing = _missing(means, _TRACTABLE, _BASELINES)
        if missing:
            found.append(_undecided(claim, missing))
            continue
        averages = {name: float(values.mean()) for name, values in means.items()}
        best, rival = (min(averages[n] for n in names if n in averages) for names in (_TRACTABLE, _BASELINES))
        evidence = f"Mean error over strengths from {_STRONG:g}: {_listing(averages)}."
        trials = min(len(values) for values in means.values())
        found.append(_finding(claim, best <= _COMPETITIVE * rival, evidence, trials))
    return found


def euclidean_converges_quickly(rows: Sequence[Row]) -> list[Finding]:
    """Caption of the paper's table."""
    claim = "Euclidean projection converges in few (around 5) iterations of L-BFGS-B."
    counts = values_of(select(rows, "euclidean-dual"), lambda row: row["facts"].get("inner_iterations"))
    if not len(counts):
        return [_undecided(claim)]
    median = float(np.median(counts))
    fast = values_of(select(rows, "euclidean"), lambda row: row["facts"].get("iterations"))
    ours = f" Our own solver takes {np.median(fast):.0f} passes over the variables." if len(fast) else ""
    evidence = (
        f"The paper's smoothed dual, once, to its tolerance: {median:.0f} iterations (median; {counts.min():.0f} to "
        f"{counts.max():.0f}).{ours}"
    )
    return [_finding(claim, median <= _FEW_ITERATIONS, evidence, _trials(rows, "euclidean-dual"))]


def infinity_norm_is_faster(rows: Sequence[Row]) -> list[Finding]:
    """Section on the norms: much faster, at a small loss of accuracy."""
    claim = "The infinity norm is much faster to project onto than the spectral norm, at a small loss of accuracy."
    ratios, losses = {}, {}
    for name in _TRACTABLE:
        fast, slow = (median_seconds(select(rows, method)) for method in (name, f"{name}-spectral"))
        if fast is not None and slow is not None:
            ratios[name] = slow / max(fast, 1e-9)
        inf, spectral = (_by_case(select(rows, method)) for method in (name, f"{name}-spectral"))
        if both := [case for case in inf if case in spectral]:
            losses[name] = float(np.mean([inf[case]["error"] - spectral[case]["error"] for case in both]))
    if not ratios or not losses:
        return [_undecided(claim)]
    faster = ratios.get("euclidean", min(ratios.values())) >= _MUCH_FASTER
    speed = ", ".join(f"{_short(name)} {ratio:.1f} times" for name, ratio in ratios.items())
    loss = ", ".join(f"{_short(name)} {loss:+.3f}" for name, loss in losses.items())
    evidence = f"Seconds, spectral over infinity: {speed}. Error, infinity less spectral: {loss}."
    trials = min(min(_trials(rows, name), _trials(rows, f"{name}-spectral")) for name in losses)
    return [_finding(claim, faster and max(losses.values()) <= _SMALL_LOSS, evidence, trials)]


def piecewise_wins_on_potts(rows: Sequence[Row]) -> list[Finding]:
    """Caption of the Potts figure, attractive interactions."""
    claim = "On Potts models with attractive interactions the piecewise divergence is the best tractable method."
    return [_all_better(claim, rows, "attractive", ("piecewise",), (*_BASELINES, "euclidean", "reversed-kl"))]


def gibbs_and_loopy_bp_excel(rows: Sequence[Row]) -> list[Finding]:
    """Caption of the Potts figure, mixed interactions."""
    claim = "On Potts models with mixed interactions loopy BP and sampling with the original parameters do very well."
    return [_all_better(claim, rows, "mixed", ("loopy-bp", "gibbs"), (*_TRACTABLE, "mean-field"))]


def _all_better(claim: str, rows: Sequence[Row], kind: str, ours: Sequence[str], others: Sequence[str]) -> Finding:
    """Whether the worst of some methods has smaller errors than the best of others, trial by trial."""
    means = _trial_means(rows, (*ours, *others), kind)
    missing = _missing(means, *([name] for name in ours), others)
    if missing:
        return _undecided(claim, missing)
    averages = {name: float(values.mean()) for name, values in means.items()}
    worst, runner = max(ours, key=averages.__getitem__), min(set(others) & set(averages), key=averages.__getitem__)
    mean, error = mean_and_error(means[worst] - means[runner])
    evidence, trials = f"Mean error: {_listing(averages)}.", len(means[worst])
    if abs(mean) <= _CLEAR * error:
        return Finding(claim, "undecided", evidence, trials)
    return _finding(claim, mean < 0, evidence, trials)


def photographs_converge(rows: Sequence[Row]) -> list[Finding]:
    """Section on denoising: projected sampling and Swendsen-Wang are done before 10,000 sweeps, plain Gibbs is not."""
    claim = "On photographs, sampling after projection has converged before 10,000 sweeps."
    moves = {name: moved for name in _TRACTABLE if (moved := _early_and_late(rows, name)) is not None}
    found = [_undecided(claim)]
    if moves:
        settled = all(abs(early - late) <= _CONVERGED * late for early, late in moves.values())
        texts = [f"{_short(name)} {early:.4f}, at the end {late:.4f}" for name, (early, late) in moves.items()]
        found = [_finding(claim, settled, f"Error at 10,000 sweeps: {'; '.join(texts)}.", _trials(rows, *moves))]
    claim = "On photographs, Gibbs sampling with the original parameters converges very slowly."
    plain = "gibbs-long" if select(rows, "gibbs-long") else "gibbs"
    moved = _early_and_late(rows, plain)
    if moved is None:
        found.append(_undecided(claim))
    else:
        early, late = moved
        sweeps = max(point[0] for row in select(rows, plain) for point in row["trace"])
        # Slow: a large error, that goes on falling or does not even do that.
        still = late > 0.02 or early > (1 + _CONVERGED) * late
        evidence = f"Error {early:.4f} at 10,000 sweeps and {late:.4f} at {sweeps:,}."
        found.append(_finding(claim, still, evidence, _trials(rows, plain)))
    claim = "On the posterior of a photograph Swendsen-Wang mixes rapidly, so that its samples can stand for the truth."
    chosen = select(rows, "swendsen-wang")
    mean, error = mean_error_of(chosen)
    if math.isnan(mean):
        return [*found, _undecided(claim)]
    doubt = values_of(chosen, lambda row: row["facts"].get("truth_error"))
    sweeps = max(row["facts"]["num_sweeps"] for row in chosen)
    sure = f" (our truth, from annealed populations, is sure to {doubt.mean():.3f})" if len(doubt) else ""
    evidence = f"One chain of {sweeps:,} sweeps is off by {mean:.3f} ± {error:.3f} on average{sure}."
    limit = max(0.02, 2.0 * float(doubt.mean()) if len(doubt) else 0.0)
    return [*found, _finding(claim, mean <= limit, evidence, _trials(rows, "swendsen-wang"))]


def _early_and_late(rows: Sequence[Row], method: str) -> tuple[float, float] | None:
    """Mean errors at the last point of the traces up to 10,000 sweeps, and at their end."""
    traces = [row["trace"] for row in select(rows, method) if row["trace"] and row["trace"][0][0] <= 10_000]
    if not traces:
        return None
    early = [[error for sweeps, error in trace if sweeps <= 10_000][-1] for trace in traces]
    return float(np.mean(early)), float(np.mean([trace[-1][1] for trace in traces]))


def _trial_means(rows: Sequence[Row], methods: Sequence[str], kind: str) -> dict[str, FloatArray]:
    """Errors averaged over strengths, one number a trial, of the methods that were run.

    Trials are independent, strengths are not. Only instances that every one of the methods has answered count: one that
    fails where it is hard must not look good.
    """
    answers = {name: _by_case(select(rows, name, kind=kind)) for name in methods}
    answers = {name: found for name, found in answers.items() if found}
    common = set.intersection(*(set(found) for found in answers.values())) if answers else set()
    means = {}
    for name, found in answers.items():
        by_trial: dict[int, list[float]] = {}
        for case in sorted(common):
            row = found[case]
            if row["parameters"]["strength"] >= _STRONG:
                by_trial.setdefault(row["trial"], []).append(row["error"])
        means[name] = np.array([np.mean(errors) for _, errors in sorted(by_trial.items())])
    return means


def _missing(means: Mapping[str, FloatArray], *groups: Sequence[str]) -> str:
    """Why nothing can be decided, if so: no method of a group was run, or too few trials have all methods."""
    if not any(len(values) for values in means.values()) or not all(set(group) & set(means) for group in groups):
        return "The methods were not run."
    return "Too few trials." if min(len(values) for values in means.values()) < _LEAST_TRIALS else ""


def _by_case(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    return {(str(sorted(row["parameters"].items())), row["trial"]): row for row in rows}


def _listing(errors: Mapping[str, float]) -> str:
    ordered = sorted(errors.items(), key=lambda item: item[1])
    return ", ".join(f"{_short(name)} {error:.3f}" for name, error in ordered)


def _short(method: str) -> str:
    label = STYLES[method].label.removeprefix("Projected, ")
    return label if label.isupper() or label.startswith(("Gibbs", "Euclid")) else label[0].lower() + label[1:]
