"""The eight experiments: one specification for every figure and table of Liu and Domke (2014)."""

from __future__ import annotations

from typing import Any

from fastmix.experiments import findings
from fastmix.experiments.figures import draw_photographs, draw_samples, draw_strengths, draw_timing
from fastmix.experiments.plan import Experiment, MethodCall
from fastmix.experiments.trials import photograph_cases
from fastmix.experiments.tuning import LONG_SWEEPS, NUM_SWEEPS, QUICK_LONG_SWEEPS

__all__ = ["EXPERIMENTS", "projected", "sampled"]

_QUICK_LONG = {"num_sweeps": QUICK_LONG_SWEEPS}
# One step rule for all descents; the largest piece as it is, and one start.
_AS_IN_PAPER: dict[str, dict[str, Any]] = {
    "euclidean": {},
    "kl": {"step": "paper"},
    "piecewise-kl": {"step": "paper", "smoothing": 0.0},
    "reversed-kl": {"step": "paper", "num_starts": 1},
}


def sampled(num_sweeps: int, **options: Any) -> dict[str, Any]:
    """Options of a sampler that counts states: the paper names no estimator, and its figures are of a single chain."""
    return {"num_sweeps": num_sweeps, "estimator": "counts", **options}


def projected(divergence: str, *, norm: str = "inf", paper: bool = True, **options: Any) -> dict[str, Any]:
    """Options of sampling after a projection: with the paper's c, and its descent or that of our defaults."""
    common = {"divergence": divergence, "norm": norm, "norm_bound": 2.5, **sampled(NUM_SWEEPS)}
    return {**common, **(_AS_IN_PAPER[divergence] if paper else {}), **options}


def _three_divergences(pieces: str, suffix: str = "", **options: Any) -> tuple[MethodCall, ...]:
    """Sampling after projection by each of the paper's tractable divergences; their names end in a suffix."""
    return (
        MethodCall(f"euclidean{suffix}", projected("euclidean", **options)),
        MethodCall(f"piecewise{suffix}", projected("piecewise-kl", pieces=pieces, **options)),
        MethodCall(f"reversed-kl{suffix}", projected("reversed-kl", **options)),
    )


def _compared(pieces: str, *, short_run: bool = True) -> tuple[MethodCall, ...]:
    """Methods of the paper's figures, and the projections with our own defaults."""
    return (
        MethodCall("mean-field"),
        MethodCall("loopy-bp"),
        *([MethodCall("gibbs", sampled(NUM_SWEEPS))] if short_run else []),
        MethodCall("gibbs-long", sampled(LONG_SWEEPS), _QUICK_LONG),
        *_three_divergences(pieces),
        MethodCall("piecewise-default", projected("piecewise-kl", paper=False)),
        MethodCall("reversed-kl-default", projected("reversed-kl", paper=False)),
    )


_LINES = "rows-and-columns"
_GRID: dict[str, Any] = {
    "problem": "ising-grid", "shapes": ({"rows": 16, "cols": 16},), "where": "16x16 grids"
}  # fmt: skip
_RANDOM: dict[str, Any] = {
    "problem": "ising-random", "shapes": tuple({"num_variables": 10, "density": p} for p in (0.3, 0.5, 0.7)),
    "where": "random graphs", "quick_trials": 5,
}  # fmt: skip

_SPECIFICATIONS = (
    Experiment(
        name="strength-grid",
        title="Error against interaction strength, grids",
        summary=(
            "Every method answers the same random Ising models on 16x16 grids; the error is the mean over variables of "
            "the difference between its marginal and the exact one (junction tree)."
        ),
        caption=(
            "Ising models on 16x16 grids, fields uniform on [-1, 1], couplings uniform on [0, d] (attractive) or "
            "[-d, d] (mixed) for strength d. Mean over trials, bars of one standard error. Projected: onto the "
            "infinity-norm ball of radius 2.5, then 30,000 sweeps of one chain."
        ),
        methods=_compared(_LINES),
        findings=lambda rows: [
            *findings.projection_is_competitive(rows, "16x16 grids"),
            *findings.our_default_is_best(rows, "16x16 grids"),
        ],
        draw=draw_strengths,
        **_GRID,
    ),  # figure 1 of the paper, top, and appendix
    Experiment(
        name="strength-random",
        title="Error against interaction strength, random graphs",
        summary="As on the grids, for graphs of 10 variables and three densities of edges.",
        caption=(
            "Ising models on random graphs of 10 variables, each edge present with the given probability; fields and "
            "couplings as for the grids. Mean over trials, bars of one standard error."
        ),
        methods=_compared("spanning-trees"),
        findings=lambda rows: findings.projection_is_competitive(rows, "random graphs"),
        draw=draw_strengths,
        **_RANDOM,
    ),  # figure 1, bottom, and appendix
    Experiment(
        name="samples-grid",
        title="Error against the number of samples, grids",
        summary=(
            "The same runs as in the figure of strengths, looked at along the way: one chain, averaged over time from "
            "its first sweep on. A second curve for the original parameters has the time of the reversed KL projection "
            "on top, spent on further sweeps."
        ),
        methods=_compared(_LINES, short_run=False),  # the long run shows all that it would
        draw=draw_samples,
        **_GRID,
    ),  # figure 2, top, and appendix
    Experiment(
        name="samples-random",
        title="Error against the number of samples, random graphs",
        summary="As on the grids, for graphs of 10 variables and three densities of edges.",
        methods=_compared("spanning-trees", short_run=False),
        draw=draw_samples,
        **_RANDOM,
    ),  # figure 2, bottom, and appendix
    Experiment(
        name="norms",
        title="Infinity norm against spectral norm",
        summary="What is lost in accuracy by the norm that is so much easier to project onto.",
        caption=(
            "Projection onto the balls of radius 2.5 in the infinity norm (full lines) and the spectral norm (dotted), "
            "then 30,000 sweeps, on 16x16 Ising grids. The spectral ball is the larger one, so that the model changes "
            "less."
        ),
        methods=_three_divergences(_LINES) + _three_divergences(_LINES, "-spectral", norm="spectral"),
        findings=findings.infinity_norm_is_faster,
        draw=draw_strengths,
        **_GRID,
    ),  # figure 3
    Experiment(
        name="potts",
        title="Potts models",
        summary="Variables of three states, as a test beyond binary models.",
        caption=(
            "Potts models of 3 states on 8x8 grids; log-potentials of the states uniform on [-1, 1], couplings as for "
            "the Ising grids. The error is the mean total variation distance. The true KL needs exact inference, and "
            "is here for reference only."
        ),
        problem="potts-grid",
        shapes=({"rows": 8, "cols": 8, "num_states": 3},),
        methods=(*_compared(_LINES), MethodCall("kl", projected("kl"))),
        findings=findings.best_on_potts,
        draw=draw_strengths,
    ),  # appendix
    Experiment(
        name="timing",
        title="Running times",
        summary=(
            "What a projection costs beside the sampling that it is meant to shorten. Tasks run one at a time on this "
            "machine, whatever the executor."
        ),
        caption=(
            "Processor seconds of one core on attractive 16x16 Ising grids: sampling for the first two rows, the "
            "projection alone for the others, onto the infinity-norm ball unless said otherwise. Ours: median over "
            "trials of the best of three runs, by the fast solver; piecewise and reversed KL with 60 gradient steps as "
            "in the paper, which used one core of an Intel i7 860. The paper's dual: by L-BFGS-B in our code, once."
        ),
        methods=(
            MethodCall("gibbs", sampled(NUM_SWEEPS, repeats=3)),
            MethodCall("gibbs-long", sampled(LONG_SWEEPS)),
            *_three_divergences(_LINES, repeats=3),
            MethodCall("euclidean-dual", projected("euclidean", solver="paper-once")),
            *_three_divergences(_LINES, "-spectral", norm="spectral", repeats=3),
            MethodCall("euclidean-dual-spectral", projected("euclidean", norm="spectral", solver="paper-once")),
        ),
        draw=draw_timing,
        # Seconds for strengths 1.5 and 3.0, on one core of an Intel i7 860.
        paper={
            "gibbs": (0.67, 0.67),
            "gibbs-long": (22.42, 22.42),
            "euclidean": (1.50, 3.26),
            "euclidean-spectral": (25.63, 164.34),
            "piecewise": (12.87, 20.73),
            "piecewise-spectral": (45.26, 211.08),
            "reversed-kl": (13.13, 20.12),
            "reversed-kl-spectral": (66.81, 254.25),
        },
        findings=findings.euclidean_converges_quickly,
        kinds=("attractive",),
        strengths=(1.5, 3.0),
        quick_strengths=(1.5, 3.0),
        trials=10,  # seconds vary little between instances, and the tasks run one after the other
        quick_trials=2,
        alone=True,
        **_GRID,
    ),  # the paper's table
    Experiment(
        name="denoise",
        title="Denoising photographs",
        summary=(
            "Photographs scaled to 120x80 pixels (60x40 in a quick run) and made black and white, with the paper's "
            "noise and model. How fast do samplers find the posterior marginals, and what does the projection before "
            "cost?"
        ),
        caption=(
            "Posterior of noisy black-and-white photographs, coupling 0.7, data weight 0.25. Error of the marginals of "
            "one chain averaged over time, mean over photographs with bars of one standard error. The truth comes from "
            "annealed populations of Swendsen-Wang chains."
        ),
        problem="photograph",
        make_cases=photograph_cases,
        methods=(
            MethodCall("mean-field"),
            MethodCall("loopy-bp"),
            MethodCall("gibbs-long", sampled(LONG_SWEEPS), _QUICK_LONG),
            MethodCall("swendsen-wang", sampled(10_000, method="swendsen-wang"), {"num_sweeps": 2_000}),
            *_three_divergences(_LINES),
            MethodCall("reversed-kl-default", projected("reversed-kl", paper=False)),
        ),
        draw=draw_photographs,
        paper={"euclidean": (1e5,), "reversed-kl": (4.8e5,)},  # Gibbs sweeps that take as long as the projection
        findings=findings.photographs_converge,
    ),  # figure 4
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _SPECIFICATIONS}
"""All experiments by name, in the order of the report."""
