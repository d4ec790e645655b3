"""What the paper found, held against our rows: reproduced or not, with the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.experiments.figures import STYLES, format_count, mean_and_error, median_seconds, select, values_of
from fastmix.experiments.plan import KINDS, Row
from fastmix.experiments.tuning import (
    CLEAR_DIFFERENCE,
    CLOSE_ERROR,
    COMPETITIVE_FACTOR,
    CONVERGED_SHARE,
    FEW_ITERATIONS,
    FEW_TRIALS,
    MIN_TRIALS,
    MUCH_FASTER,
    SMALL_LOSS,
    STRONG_COUPLINGS,
)

__all__ = [
    "Finding", "best_on_potts", "euclidean_converges_quickly", "infinity_norm_is_faster", "our_default_is_best",
    "photographs_converge", "projection_is_competitive",
]  # fmt: skip

_TRACTABLE = ("euclidean", "piecewise", "reversed-kl")
_OUR_DEFAULT = "reversed-kl-default"
_BASELINES = ("mean-field", "loopy-bp", "gibbs")
_NOT_RUN = "The methods were not run."


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
        return self.verdict if self.holds is None or self.num_trials >= FEW_TRIALS else "hint"

    @property
    def label(self) -> str:
        """The verdict in words, with the number of trials."""
        trials = format_count(self.num_trials, "trial")
        if self.kind == "hint":
            return f"a hint: {self.verdict} in {trials}"
        return f"{self.verdict}, from {trials}" if self.num_trials else self.verdict


def projection_is_competitive(rows: Sequence[Row], where: str) -> list[Finding]:
    """Findings on the conclusion of the paper, one for each kind of interaction."""
    found = []
    drawn = {row["parameters"]["kind"] for row in rows}
    for kind in [kind for kind in KINDS if kind in drawn] or KINDS:
        claim = (
            f"On {where} with {kind} interactions, sampling after projection is competitive with simple variational "
            "methods and with Gibbs sampling for as many sweeps."
        )
        means, evidence, trials = _compare(rows, kind, _TRACTABLE, _BASELINES)
        best = _least_mean(means, _TRACTABLE)
        rival = _least_mean(means, _BASELINES)
        found.append(Finding(claim, best <= COMPETITIVE_FACTOR * rival if means else None, evidence, trials))
    return found


def our_default_is_best(rows: Sequence[Row], where: str) -> list[Finding]:
    """Findings on our own default of the projection in reversed KL, for each kind that it was run on."""
    found = []
    for kind in KINDS:
        if not select(rows, _OUR_DEFAULT, kind=kind):
            continue
        claim = (
            f"On {where} with {kind} interactions, sampling after our default projection (reversed KL) has smaller "
            "errors than Gibbs sampling for as many sweeps and than loopy BP."
        )
        found.append(_all_better(claim, rows, kind, (_OUR_DEFAULT,), ("gibbs", "loopy-bp")))
    return found


def _least_mean(means: Mapping[str, FloatArray], methods: Sequence[str]) -> float:
    """The least mean error of some methods; 0 if none of them has been run."""
    return float(min((means[name].mean() for name in methods if name in means), default=0.0))


def best_on_potts(rows: Sequence[Row]) -> list[Finding]:
    """Findings on the caption of the Potts figure, for attractive and for mixed interactions."""
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
    return Finding(claim, None if abs(mean) <= CLEAR_DIFFERENCE * error else mean < 0, evidence, trials)


def _compare(rows: Sequence[Row], kind: str, *groups: Sequence[str]) -> tuple[dict[str, FloatArray], str, int]:
    """Errors averaged over strengths by method, one number per trial; their means in words; and the number of trials.

    Trials are independent, strengths are not. Only instances that all methods have answered count: one that fails where
    it is hard must not look good. There are no errors if too little was run: some of every group is needed.
    """
    strong = [row for row in select(rows, kind=kind) if row["parameters"]["strength"] >= STRONG_COUPLINGS]
    answers = {name: found for group in groups for name in group if (found := _by_case(select(strong, name)))}
    if not all(any(name in answers for name in group) for group in groups):
        return {}, _NOT_RUN, 0
    common = sorted(set.intersection(*map(set, answers.values())))
    trials = sorted({trial for _, trial in common})
    if len(trials) < MIN_TRIALS:
        return {}, "Too few trials.", 0
    means = {
        name: np.array([np.mean([found[case]["error"] for case in common if case[1] == trial]) for trial in trials])
        for name, found in answers.items()
    }
    ordered = sorted((float(values.mean()), _short(name)) for name, values in means.items())
    listing = ", ".join(f"{name} {error:.3f}" for error, name in ordered)
    used = sorted({row["parameters"]["strength"] for row in strong})
    where = f"at strength {used[0]:g}" if len(used) == 1 else f"over strengths from {used[0]:g} to {used[-1]:g}"
    return means, f"Mean error {where}: {listing}.", len(trials)


def euclidean_converges_quickly(rows: Sequence[Row]) -> list[Finding]:
    """The finding on the caption of the paper's table."""
    claim = "Euclidean projection converges in few (around 5) iterations of L-BFGS-B."
    counts = values_of(select(rows, "euclidean-dual"), "facts", "inner_iterations")
    if not len(counts):
        return [Finding(claim)]
    median = float(np.median(counts))
    spread = f"{counts.min():.0f} to {counts.max():.0f}"
    evidence = f"The paper's smoothed dual, once, to its tolerance: {median:.0f} iterations (median; {spread})."
    return [Finding(claim, median <= FEW_ITERATIONS, evidence, _trials(rows, "euclidean-dual"))]


def infinity_norm_is_faster(rows: Sequence[Row]) -> list[Finding]:
    """The finding on the section about norms: the infinity norm is much faster, at a small loss of accuracy."""
    claim = "The infinity norm is much faster to project onto than the spectral norm, at a small loss of accuracy."
    ratios: dict[str, float] = {}
    losses: dict[str, float] = {}
    for name in _TRACTABLE:
        infinity = _by_case(select(rows, name))
        spectral = _by_case(select(rows, f"{name}-spectral"))
        fast = median_seconds(infinity.values())
        slow = median_seconds(spectral.values())
        if fast is not None and slow is not None:
            ratios[name] = slow / max(fast, 1e-9)
        both = [case for case in infinity if case in spectral]
        if both:
            losses[name] = float(np.mean([infinity[case]["error"] - spectral[case]["error"] for case in both]))
    if not ratios or not losses:
        return [Finding(claim)]
    faster = ratios.get("euclidean", min(ratios.values())) >= MUCH_FASTER
    speed = ", ".join(f"{_short(name)} {ratio:.1f} times" for name, ratio in ratios.items())
    loss = ", ".join(f"{_short(name)} {loss:+.3f}" for name, loss in losses.items())
    evidence = f"Seconds, spectral over infinity: {speed}. Error, infinity less spectral: {loss}."
    trials = min(_trials(rows, name + norm) for name in losses for norm in ("", "-spectral"))
    return [Finding(claim, faster and max(losses.values()) <= SMALL_LOSS, evidence, trials)]


def photographs_converge(rows: Sequence[Row]) -> list[Finding]:
    """Findings on the section about denoising: what has converged on photographs within 10,000 sweeps.

    The paper says that projected sampling and Swendsen-Wang have, and that plain Gibbs sampling has not.
    """
    found = []
    claim = "On photographs, sampling after projection has converged before 10,000 sweeps."
    errors = {name: _early_and_late(chosen) for name in _TRACTABLE if (chosen := select(rows, name))}
    if errors:
        settled = all(abs(early - late) <= CONVERGED_SHARE * late for early, late in errors.values())
        texts = "; ".join(
            f"{_short(name)} {early:.4f}, at the end {late:.4f}" for name, (early, late) in errors.items()
        )
        found.append(Finding(claim, settled, f"Error at 10,000 sweeps: {texts}.", _trials(rows, *errors)))
    claim = "On photographs, Gibbs sampling with the original parameters converges very slowly."
    chosen = select(rows, "gibbs-long")
    if chosen:
        early, late = _early_and_late(chosen)
        # Slow: a large error, that goes on falling or does not even do that.
        still = late > CLOSE_ERROR or early > (1 + CONVERGED_SHARE) * late
        sweeps = values_of(chosen, "facts", "num_sweeps").max()
        evidence = f"Error {early:.4f} at 10,000 sweeps and {late:.4f} at {sweeps:,.0f}."
        found.append(Finding(claim, still, evidence, _trials(rows, "gibbs-long")))
    claim = "On the posterior of a photograph Swendsen-Wang mixes rapidly, so that its samples can stand for the truth."
    chosen = select(rows, "swendsen-wang")
    if chosen:
        mean, error = mean_and_error(values_of(chosen, "error"))
        doubt = float(values_of(chosen, "facts", "truth_error").mean())
        sweeps = values_of(chosen, "facts", "num_sweeps").max()
        evidence = (
            f"One chain of {sweeps:,.0f} sweeps is off by {mean:.3f} ± {error:.3f} on average (our truth, from "
            f"annealed populations, is sure to {doubt:.3f})."
        )
        close = mean <= max(CLOSE_ERROR, 2.0 * doubt)
        found.append(Finding(claim, close, evidence, _trials(rows, "swendsen-wang")))
    return found


def _early_and_late(rows: Sequence[Row]) -> tuple[float, float]:
    """Mean errors at the last point of the traces up to 10,000 sweeps, and at their end."""
    early = [[error for sweeps, error in row["trace"] if sweeps <= 10_000][-1] for row in rows]
    return float(np.mean(early)), float(np.mean([row["trace"][-1][1] for row in rows]))


def _trials(rows: Sequence[Row], *methods: str) -> int:
    """How many trials have some of the methods."""
    return len({row["trial"] for name in methods for row in select(rows, name)})


def _by_case(rows: Iterable[Row]) -> dict[tuple[str, int], Row]:
    """Rows by the parameters and the trial of their instances."""
    return {(str(sorted(row["parameters"].items())), row["trial"]): row for row in rows}


def _short(method: str) -> str:
    """The label of a method as it stands within a sentence."""
    label = STYLES[method].label.removeprefix("Projected, ")
    return label if label.startswith(("Gibbs", "Euclid")) else label[0].lower() + label[1:]
