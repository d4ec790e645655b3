"""The picture of README.md and of the first page of the documentation: ``python examples/overview.py [FOLDER]``.

One model, its certificate, its projection, and error bars against the truth; for light and dark pages, and side by side
or two by two for narrow screens.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection

import fastmix

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
SIDE = 10
NORM_BOUND = 0.95
INK = {"light": "#1f2933", "dark": "#e6eaee"}
GOOD = {"light": "#1f77b4", "dark": "#5eb0ef"}  # bright enough on its page
BAD = {"light": "#c62828", "dark": "#ff8a80"}
LAYOUTS = {"": (1, 4, (12.0, 3.0)), "-narrow": (2, 2, (6.4, 6.2))}  # rows, columns, inches


def main(folder: Path) -> None:
    mpl.use("svg")
    import matplotlib.pyplot as plt

    model = fastmix.instances.ising_grid(SIDE, SIDE, coupling_max=2.0, attractive=True, seed=2)
    projected = fastmix.project(model, norm_bound=NORM_BOUND)
    exact = fastmix.infer(model, method="exact")
    answers = [
        fastmix.infer(model, method="gibbs", seed=1),
        fastmix.infer(model, method="tempered", seed=1),
    ]
    assert [str(answer.status) for answer in answers] == ["not_mixed", "ok"]
    for shade, ink in INK.items():
        style = {
            "svg.hashsalt": "fastmix", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
            "axes.titlesize": 10.5, "legend.frameon": False,
            "axes.spines.right": False, "axes.spines.top": False, "text.color": ink, "axes.labelcolor": ink,
            "axes.edgecolor": ink, "xtick.color": ink, "ytick.color": ink, "legend.fontsize": 9,
            "axes.prop_cycle": mpl.cycler(color=[GOOD[shade], BAD[shade]]),  # C0 and C1
        }  # fmt: skip
        for layout, (rows, columns, size) in LAYOUTS.items():
            with mpl.rc_context(style):
                figure, places = plt.subplots(rows, columns, figsize=size, layout="constrained")
                first, second, third, fourth = places.ravel()
                draw_model(first, model, exact)
                draw_certificates(second, model, projected.model)
                draw_couplings(third, model, projected.model)
                draw_errors(fourth, exact, answers)
                name = f"overview{layout}-{shade}.svg"
                figure.savefig(folder / name, transparent=True, metadata={"Date": None})
                plt.close(figure)


def draw_model(axes: Any, model: Any, exact: Any) -> None:
    """Couplings as the widths of lines, and exact marginals as colors."""
    rows, columns = np.divmod(np.arange(model.num_variables), SIDE)
    places = np.stack([columns, rows], axis=1)
    widths = 0.4 + 1.6 * couplings_of(model)
    axes.add_collection(LineCollection(places[model.edges], linewidths=widths, colors="#8896a5", zorder=1))
    axes.scatter(columns, rows, c=exact.node_marginals[1::2], cmap="RdYlBu", vmin=0, vmax=1, s=34, zorder=2,
                 edgecolors="#5b6673", linewidths=0.5)  # fmt: skip
    axes.set_title("a strongly coupled model")
    axes.set_aspect("equal")
    axes.axis("off")


def draw_certificates(axes: Any, model: Any, projection: Any) -> None:
    """Sweeps until every accuracy is proven to be reached."""
    accuracies = np.geomspace(1e-4, 1.0, 25)[:-1]
    proven = [fastmix.certify(projection, accuracy=float(accuracy)) for accuracy in accuracies]
    assert not fastmix.certify(model).certified
    axes.semilogy([certificate.num_sweeps for certificate in proven], accuracies, color="C0", label="its projection")
    axes.axhline(1.0, color="C1", ls="--", label="the model: none")
    at = fastmix.certify(projection, accuracy=0.01)
    axes.plot(at.num_sweeps, 0.01, "o", color="C0")
    axes.annotate(f"0.01 after\n{at.num_sweeps} sweeps", (at.num_sweeps, 0.01), (-8, -6), textcoords="offset points",
                  ha="right", va="top")  # fmt: skip
    axes.set(
        title="certificates of fast mixing", xlabel="sweeps", ylabel="total variation at most", xlim=0, ylim=(1e-4, 9)
    )
    axes.legend(loc="upper right", borderaxespad=0)


def draw_couplings(axes: Any, model: Any, projection: Any) -> None:
    """Every coupling after the projection against what it was."""
    before = couplings_of(model)
    axes.plot([0, before.max()], [0, before.max()], color="#8896a5", lw=1, label="no change")
    axes.plot(before, couplings_of(projection), ".", color="C0", ms=5, label="every coupling")
    axes.set(title=f"its projection: norm {NORM_BOUND}", xlabel="coupling of the model", ylabel="of its projection")
    axes.legend(loc="upper left", borderaxespad=0)


def draw_errors(axes: Any, exact: Any, answers: list[Any]) -> None:
    """Answers for the model with two standard errors and their verdicts, in order of the exact marginals."""
    order = np.argsort(exact.node_marginals[1::2])[::2]
    place = np.arange(len(order))
    for answer, color in zip(answers, ("C1", "C0"), strict=True):
        values = answer.node_marginals[1::2][order]
        bars = 2 * answer.std_error[1::2][order]
        label = f"{answer.method}: {answer.status}"
        axes.errorbar(place, values, bars, fmt=".", ms=4, lw=1.2, color=color, label=label)
    ink = mpl.rcParams["text.color"]
    axes.plot(place, exact.node_marginals[1::2][order], color=ink, lw=1.2, label="exact", zorder=3)
    axes.set(title="estimates, error bars, verdicts", xlabel="variables, sorted", ylabel="probability of +1", xticks=[])
    axes.set_ylim(0, 1.0)
    axes.legend(loc="upper left", borderaxespad=0)


def couplings_of(model: Any) -> np.ndarray:
    """The coupling J of every edge of an Ising model."""
    tables = (model.table(int(i), int(j)) for i, j in model.edges)
    return np.array([(t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]) / 4 for t in tables])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
