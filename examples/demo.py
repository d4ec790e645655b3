"""The main job in about ten seconds of work: certify, project, answer, the paper's claim on ten models, a photograph.

``make demo`` sets up what it needs. Everything is compiled before it is timed; the seconds beside a line are those of
that step.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import fastmix
from fastmix.denoising import denoise, write_comparison
from fastmix.experiments import run_experiment
from fastmix.instances import ising_grid

OUTPUT = Path("demo-output")
NORM_BOUND = 0.95  # below 1: what is projected provably mixes fast
ACCURACY = 0.01  # total variation
PAPER = {"kinds": ["attractive"], "strengths": [3.0], "methods": ["loopy-bp", "gibbs", "reversed-kl-default"]}
METHODS = {"loopy-bp": "loopy BP", "gibbs": "Gibbs", "reversed-kl-default": "projected, then Gibbs"}
TRIALS = 10


def main() -> None:
    OUTPUT.mkdir(exist_ok=True)
    show("compile", compile_all, "")
    model = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=7)
    print("\nA model of the paper: a 16x16 grid, fields in [-1, 1], attractive couplings up to 3")
    exact = show("exact", lambda: fastmix.infer(model, method="exact"), "marginals and log Z, to compare with")
    stuck = show("gibbs", lambda: fastmix.infer(model, method="gibbs", num_sweeps=1000, seed=1), "64 chains, plain")
    tell(stuck, exact)
    tempered = show("temper", lambda: fastmix.temper(model, seed=1), "replica exchange, made for strong couplings")
    tell(tempered, exact)

    print("\nThe closest model that provably mixes fast")
    show("certify", lambda: fastmix.certify(model, accuracy=ACCURACY), "the model itself: no certificate")
    projection = show("project", lambda: fastmix.project(model, norm_bound=NORM_BOUND), "in Euclidean distance")
    print(f"  infinity norm of the dependency matrix {projection.norm_before:.2f} -> {projection.norm_after:.2f}")
    proven = fastmix.certify(projection.model, accuracy=ACCURACY)
    print(f"  certified: {proven.num_sweeps} sweeps from any start bring Gibbs sampling within {ACCURACY} of it")

    print(f"\nThe paper's claim, on {TRIALS} such models: 30,000 sweeps of a chain, projected onto norm 2.5 or not")
    for kept in OUTPUT.glob("strength-grid*"):
        kept.unlink()  # an experiment would go on where the last demo ended it, and take no time
    result = show(
        "claim", lambda: run_experiment("strength-grid", OUTPUT, num_trials=TRIALS, **PAPER), "mean errors below"
    )
    for line in (OUTPUT / "strength-grid.csv").read_text("utf-8").splitlines()[1:]:
        _, method, _, mean, error = line.split(",")
        print(f"  {METHODS[method]:22} {float(mean):.3f} ± {float(error):.3f}")

    print("\nA photograph, with noise and without")
    picture, noisy = photograph()
    clean = show("denoise", lambda: denoise(noisy, seed=3), "noise and coupling learnt from the picture itself")
    write_comparison(clean, OUTPUT / "denoised.png", original=picture)
    errors = [float(np.sqrt(np.mean((shown - picture) ** 2))) for shown in (noisy, clean.picture)]
    print(f"  {clean.status}: error of a gray value {errors[0]:.3f} -> {errors[1]:.3f}")

    print(f"\nok. Picture: {OUTPUT / 'denoised.png'}. Report: {result.report.resolve()}")


def show(name, work, text):
    """Do a piece of work, print its seconds, and return what it gives."""
    begin = time.perf_counter()
    result = work()
    print(f"  {name:9} {time.perf_counter() - begin:6.2f} s  {text}", flush=True)
    return result


def compile_all() -> None:
    """Run on small models what is timed later, so that nothing of it is compiled then."""
    tiny = ising_grid(3, 3, coupling_max=0.5, attractive=True, seed=0)
    fastmix.infer(ising_grid(16, 16, coupling_max=0.5, seed=0), method="exact")
    fastmix.infer(tiny, method="loopy-bp")
    fastmix.infer(tiny, method="gibbs", num_sweeps=20, seed=0)
    fastmix.infer(tiny, method="gibbs", num_sweeps=20, num_chains=1, estimator="counts", seed=0)
    fastmix.infer(tiny, method="projected", norm_bound=0.5, num_sweeps=20, num_chains=1, seed=0)
    fastmix.temper(tiny, num_sweeps=20, seed=0)
    fastmix.certify(fastmix.project(tiny, norm_bound=0.5).model)
    denoise(photograph()[1][::2, ::2], seed=3)


def tell(result, exact) -> None:
    """Print the verdict on an answer, and how far it is from the exact one."""
    error = float(np.abs(result.node_marginals - exact.node_marginals).mean())
    log_z = "" if result.log_z is None else f", log Z {result.log_z:.2f} ± {result.log_z_std_error:.2f}"
    print(f"  {result.status}: mean error of a marginal {error:.3f}{log_z} (exact: {exact.log_z:.2f})")


def photograph():
    """A photograph that comes with Matplotlib in gray, and the same with noise."""
    from matplotlib import cbook, pyplot

    picture = pyplot.imread(cbook.get_sample_data("grace_hopper.jpg")).mean(axis=-1)[::3, ::3] / 255.0
    noise = np.random.default_rng(3).normal(scale=0.1, size=picture.shape)
    return picture, np.clip(picture + noise, 0.0, 1.0)


if __name__ == "__main__":
    main()
