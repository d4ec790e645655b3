"""What the paper found, held against our rows: reproduced or not, with the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.experiments.figures import STYLES, format_count, mean_and_error, median_seconds, select, values_of
from fastmix.experiments.plan import Row

__all__ = [
    "Finding", "best_on_potts", "euclidean_converges_quickly", "infinity_norm_is_faster", "photographs_converge",
    "projection_is_competitive",
]  # fmt: skip

_TRACTABLE = ("euclidean", "piecewise", "reversed-kl")
_BASELINES = ("mean-field", "loopy-bp", "gibbs")
_NOT_RUN = "The methods were not run."
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
_CLOSE = 0.02  # mean error of a chain that has reached the truth


@dataclass(frozen=True)
class Finding:
    """A statement of the paper, in our words, and what our rows say about it."""

    claim: str
    holds: bool | None = None  # None where the rows do not decide it
    evidence: str = _NOT_RUN  # the numbers behind the verdict
    num_trials: int = 0  # random instances, or photographs, that the verdict rests on

    @property
    def verdict(self) -> str:
        """One of ``reproduced``, ``not reproduced`` and ``undecided``."""
        return "undecided" if self.holds is None else "reproduced" if self.holds else "not reproduced"

    @property
    def kind(self) -> str:
        """The verdict, or ``hint`` where few trials are behind it."""
        return self.verdict if self.holds is None or self.num_trials >= _FEW_TRIALS else "hint"

    @property
    def label(self) -> str:
        """The verdict in words, with the number of trials."""
        trials = format_count(self.num_trials, "trial")
        if self.kind == "hint":
            return f"a hint: {self.verdict} in {trials}"
        return f"{self.verdict}, from {trials}" if self.num_trials else self.verdict


def projection_is_competitive(rows: Sequence[Row], where: str) -> list[Finding]:
    """Conclusion of the paper, for each kind of interaction."""
    found = []
    for kind in ("attractive", "mixed"):
        claim = (
            f"On {where} with {kind} interactions, sampling after projection is competitive with simple variational "
            "methods and with Gibbs sampling for as many sweeps."
        )
        means, evidence, trials = _compare(rows, kind, _TRACTABLE, _BASELINES)
        best, rival = (min((means[m].mean() for m in g if m in means), default=0.0) for g in (_TRACTABLE, _BASELINES))
        found.append(Finding(claim, best <= _COMPETITIVE * rival if means else None, evidence, trials))
    return found


def best_on_potts(rows: Sequence[Row]) -> list[Finding]:
    """Caption of the Potts figure, for attractive and for mixed interactions."""
    claim = "On Potts models with attractive interactions the piecewise divergence is the best tractable method."
    piecewise = _all_better(claim, rows, "attractive", ("piecewise",), (*_BASELINES, "euclidean", "reversed-kl"))
    claim = "On Potts models with mixed interactions loopy BP and sampling with the original parameters do very well."
    return [piecewise, _all_better(claim, rows, "mixed", ("loopy-bp", "gibbs"), (*_TRACTABLE, "mean-field"))]


def _all_better(claim: str, rows: Sequence[Row], kind: str, ours: Sequence[str], others: Sequence[str]) -> Finding:
    """Whether the worst of some methods has smaller errors than the best of others, trial by trial."""
    means, evidence, trials = _compare(rows, kind, *([name] for name in ours), others)
    if not means:
        return Finding(claim, None, evidence)
    worst = max(ours, key=lambda name: means[name].mean())
    runner = min((name for name in others if name in means), key=lambda name: means[name].mean())
    mean, error = mean_and_error(means[worst] - means[runner])
    return Finding(claim, None if abs(mean) <= _CLEAR * error else mean < 0, evidence, trials)


def _compare(rows: Sequence[Row], kind: str, *groups: Sequence[str]) -> tuple[dict[str, FloatArray], str, int]:
    """By method the errors averaged over strengths, one number a trial; their means in words; and how many trials.

    Trials are independent, strengths are not. Only instances that all methods have answered count: one that fails where
    it is hard must not look good. There are no errors if too little was run: some of every group is needed.
    """
    strong = [row for row in select(rows, kind=kind) if row["parameters"]["strength"] >= _STRONG]
    answers = {name: found for group in groups for name in group if (found := _by_case(select(strong, name)))}
    if not all(any(name in answers for name in group) for group in groups):
        return {}, _NOT_RUN, 0
    common = sorted(set.intersection(*map(set, answers.values())))
    trials = sorted({trial for _, trial in common})
    if len(trials) < _LEAST_TRIALS:
        return {}, "Too few trials.", 0
    means = {
        name: np.array([np.mean([found[case]["error"] for case in common if case[1] == trial]) for trial in trials])
        for name, found in answers.items()
    }
    ordered = sorted((float(values.mean()), _short(name)) for name, values in means.items())
    listing = ", ".join(f"{name} {error:.3f}" for error, name in ordered)
    return means, f"Mean error over strengths from {_STRONG:g}: {listing}.", len(trials)


def euclidean_converges_quickly(rows: Sequence[Row]) -> list[Finding]:
    """Caption of the paper's table."""
    claim = "Euclidean projection converges in few (around 5) iterations of L-BFGS-B."
    counts = values_of(select(rows, "euclidean-dual"), "facts", "inner_iterations")
    if not len(counts):
        return [Finding(claim)]
    median = float(np.median(counts))
    spread = f"{counts.min():.0f} to {counts.max():.0f}"
    evidence = f"The paper's smoothed dual, once, to its tolerance: {median:.0f} iterations (median; {spread})."
    return [Finding(claim, median <= _FEW_ITERATIONS, evidence, _trials(rows, "euclidean-dual"))]


def infinity_norm_is_faster(rows: Sequence[Row]) -> list[Finding]:
    """Section on the norms: much faster, at a small loss of accuracy."""
    claim = "The infinity norm is much faster to project onto than the spectral norm, at a small loss of accuracy."
    ratios, losses = {}, {}
    for name in _TRACTABLE:
        inf, spectral = (_by_case(select(rows, method)) for method in (name, f"{name}-spectral"))
        fast, slow = (median_seconds(found.values()) for found in (inf, spectral))
        if fast is not None and slow is not None:
            ratios[name] = slow / max(fast, 1e-9)
        if both := [case for case in inf if case in spectral]:
            losses[name] = float(np.mean([inf[case]["error"] - spectral[case]["error"] for case in both]))
    if not ratios or not losses:
        return [Finding(claim)]
    faster = ratios.get("euclidean", min(ratios.values())) >= _MUCH_FASTER
    speed = ", ".join(f"{_short(name)} {ratio:.1f} times" for name, ratio in ratios.items())
    loss = ", ".join(f"{_short(name)} {loss:+.3f}" for name, loss in losses.items())
    evidence = f"Seconds, spectral over infinity: {speed}. Error, infinity less spectral: {loss}."
    trials = min(_trials(rows, name + norm) for name in losses for norm in ("", "-spectral"))
    return [Finding(claim, faster and max(losses.values()) <= _SMALL_LOSS, evidence, trials)]


def photographs_converge(rows: Sequence[Row]) -> list[Finding]:
    """Section on denoising: projected sampling and Swendsen-Wang are done before 10,000 sweeps, plain Gibbs is not."""
    found = []
    claim = "On photographs, sampling after projection has converged before 10,000 sweeps."
    if moves := {name: _early_and_late(chosen) for name in _TRACTABLE if (chosen := select(rows, name))}:
        settled = all(abs(early - late) <= _CONVERGED * late for early, late in moves.values())
        texts = "; ".join(f"{_short(name)} {early:.4f}, at the end {late:.4f}" for name, (early, late) in moves.items())
        found.append(Finding(claim, settled, f"Error at 10,000 sweeps: {texts}.", _trials(rows, *moves)))
    claim = "On photographs, Gibbs sampling with the original parameters converges very slowly."
    if chosen := select(rows, "gibbs-long"):
        early, late = _early_and_late(chosen)
        # Slow: a large error, that goes on falling or does not even do that.
        still = late > _CLOSE or early > (1 + _CONVERGED) * late
        sweeps = values_of(chosen, "facts", "num_sweeps").max()
        evidence = f"Error {early:.4f} at 10,000 sweeps and {late:.4f} at {sweeps:,.0f}."
        found.append(Finding(claim, still, evidence, _trials(rows, "gibbs-long")))
    claim = "On the posterior of a photograph Swendsen-Wang mixes rapidly, so that its samples can stand for the truth."
    if chosen := select(rows, "swendsen-wang"):
        mean, error = mean_and_error(values_of(chosen, "error"))
        doubt = float(values_of(chosen, "facts", "truth_error").mean())
        sweeps = values_of(chosen, "facts", "num_sweeps").max()
        evidence = (
            f"One chain of {sweeps:,.0f} sweeps is off by {mean:.3f} ± {error:.3f} on average (our truth, from "
            f"annealed populations, is sure to {doubt:.3f})."
        )
        close = mean <= max(_CLOSE, 2.0 * doubt)
        found.append(Finding(claim, close, evidence, _trials(rows, "swendsen-wang")))
    return found


def _early_and_late(rows: Sequence[Row]) -> tuple[float, float]:
    """Mean errors at the last point of the traces up to 10,000 sweeps, and at their end."""
    early = [[error for sweeps, error in row["trace"] if sweeps <= 10_000][-1] for row in rows]
    return float(np.mean(early)), float(np.mean([row["trace"][-1][1] for row in rows]))


def _trials(rows: Sequence[Row], *methods: str) -> int:
    """Trials that have some of the methods."""
    return len({row["trial"] for name in methods for row in select(rows, name)})


def _by_case(rows: Iterable[Row]) -> dict[tuple[str, int], Row]:
    return {(str(sorted(row["parameters"].items())), row["trial"]): row for row in rows}


def _short(method: str) -> str:
    label = STYLES[method].label.removeprefix("Projected, ")
    return label if label.startswith(("Gibbs", "Euclid")) else label[0].lower() + label[1:]
