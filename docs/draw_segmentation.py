"""Draws docs/figures/segmentation.png: a picture of 21 labels, its model, and what the projection makes of the model.

    python docs/draw_segmentation.py [--seed 0]

The shares of wrong labels and the mean entropies in it stand in docs/howto/segmentation.md, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import fastmix
from fastmix import MarkovRandomField
from fastmix.marginals import InferenceResult

TARGET = Path(__file__).parent / "figures" / "segmentation.png"
ROWS = 96
COLUMNS = 128
LABELS = 21
REGIONS = 40
COUPLING = 2.0
NORM_BOUNDS = (2.5, 0.95)


def noisy_scores(rng: np.random.Generator) -> tuple[Any, Any]:
    """Labels of regions around random points, and noisy scores of all labels, (rows, columns) and one axis more."""
    centers = rng.uniform(size=(REGIONS, 2)) * [ROWS, COLUMNS]
    row, column = np.indices((ROWS, COLUMNS))
    distance = (row[..., None] - centers[:, 0]) ** 2 + (column[..., None] - centers[:, 1]) ** 2
    truth = rng.integers(0, LABELS, REGIONS)[distance.argmin(axis=-1)]
    return truth, rng.normal(size=(ROWS, COLUMNS, LABELS)) + 1.5 * np.eye(LABELS)[truth]


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    truth, scores = noisy_scores(np.random.default_rng(parser.parse_args().seed))
    model = MarkovRandomField.image(scores, COUPLING)
    panels: dict[str, InferenceResult] = {
        "scores alone": fastmix.infer(MarkovRandomField.image(scores, 0.0)),
        "model": fastmix.loopy_bp(model),
    }
    for norm_bound in NORM_BOUNDS:
        found = fastmix.project(model, norm_bound=norm_bound)
        panels[f"norm {found.norm_before:.2g} to {norm_bound}"] = fastmix.loopy_bp(found.model)
    draw(truth, panels)


def draw(truth: Any, panels: dict[str, InferenceResult]) -> None:
    """Draw labels above entropies."""
    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1 + len(panels), figsize=(11.0, 4.1), layout="constrained")
    shown = {"cmap": "turbo", "vmin": 0, "vmax": LABELS - 1, "interpolation": "nearest"}
    axes[0, 0].imshow(truth, **shown)
    axes[0, 0].set_title("truth", fontsize=10)
    for column, (name, result) in enumerate(panels.items(), start=1):
        axes[0, column].imshow(result.labels(), **shown)
        wrong = float((result.labels() != truth).mean())
        axes[0, column].set_title(f"{name}\n{wrong:.1%} wrong", fontsize=10)
        image = axes[1, column].imshow(
            result.entropy(), cmap="magma", vmin=0.0, vmax=np.log(LABELS), interpolation="nearest"
        )
        axes[1, column].set_title(f"mean entropy {result.entropy().mean():.2f}", fontsize=10)
    figure.colorbar(image, ax=axes[1, 1:], label="entropy (nats)", shrink=0.9)
    for one in axes.flat:
        one.set_axis_off()
    figure.savefig(TARGET, dpi=80)


if __name__ == "__main__":
    main()
