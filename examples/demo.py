"""The main job in about a minute: certify, project, sample, compare, denoise, and a report to look at."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import fastmix
from fastmix.denoising import denoise, write_comparison
from fastmix.experiments import run_experiment
from fastmix.instances import ising_grid

OUTPUT = Path("demo-output")


def main() -> None:
    begin = time.perf_counter()
    OUTPUT.mkdir(exist_ok=True)
    model = ising_grid(16, 16, coupling_max=2.0, attractive=True, seed=7)
    print(f"model      {model}, attractive couplings up to 2")
    exact = fastmix.infer(model, method="exact")
    print(f"exact      log Z = {exact.log_z:.4f}, treewidth {exact.stats['treewidth']}: the truth to compare with")

    before = fastmix.certify(model, accuracy=0.01)
    print(f"certify    dependency norm {before.norm_value:.2f}: Gibbs sampling is not certified to mix fast")
    projected = fastmix.project(model, norm_bound=0.95)
    after = fastmix.certify(projected.model, accuracy=0.01)
    print(
        f"project    norm {projected.norm_before:.2f} -> {projected.norm_after:.2f}: provably within 0.01 after "
        f"{after.num_sweeps} sweeps, {1e3 * projected.stats['seconds']:.1f} ms"
    )
    run = fastmix.sample(projected.model, num_chains=1000, num_sweeps=200, burn_in=after.num_sweeps, seed=1)
    truth = fastmix.infer(projected.model, method="exact").node_marginals
    proven = run.intervals(confidence=0.95, simultaneous=True)
    inside = bool(((proven.lower <= truth) & (truth <= proven.upper)).all())
    print(
        f"sample     {run.stats['updates_per_second']:.2g} updates per second, largest error "
        f"{np.abs(run.node_marginals - truth).max():.4f}, proven intervals hold: {'yes' if inside else 'NO'}"
    )

    print("compare    all methods on the original model:")
    comparison = fastmix.compare(model, seed=1)
    for row in comparison.rows:
        error = "-" if row.mean_error is None else f"{row.mean_error:.4f}"
        print(f"             {row.method:14} mean error {error:>7}  {row.status:13} {row.seconds:6.2f} s")
    comparison.save(OUTPUT)

    from skimage import data  # photographs that come with scikit-image

    picture = data.camera()[::3, ::3].astype(float) / 255.0
    noisy = np.clip(picture + np.random.default_rng(3).normal(scale=0.1, size=picture.shape), 0.0, 1.0)
    result = denoise(noisy, seed=3, time_limit=15.0)
    write_comparison(result, OUTPUT / "denoised.png", original=picture)
    errors = [float(np.sqrt(np.mean((shown - picture) ** 2))) for shown in (noisy, result.picture)]
    print(f"denoise    {result}, error of a grey value {errors[0]:.3f} -> {errors[1]:.3f}")

    report = run_experiment("strength-random", OUTPUT, quick=True, trials=2)
    print(f"\n{time.perf_counter() - begin:.0f} s. Pictures: {OUTPUT}/comparison.png, {OUTPUT}/denoised.png")
    print(f"Report: {report.report.resolve()}")


if __name__ == "__main__":
    main()
