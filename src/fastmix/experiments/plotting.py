"""Figures drawn with Matplotlib."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from fastmix._checks import require
from fastmix.experiments.figures import GRID, INK, STYLES, Figure, Panel, Picture
from fastmix.io.files import atomic_write

__all__ = ["require_matplotlib", "save_figure"]

_PANEL = 4.3, 3.1  # inches
_MARGINS = 0.62, 0.5, 0.12, 0.32  # left, bottom, right, top, in inches
_LEAST_ERROR = 1e-4  # shown on a logarithmic axis
_SHORT_AXIS = 50.0  # times from end to end, below which powers of ten are too few marks
_RC = {
    "font.family": "sans-serif", "font.size": 9.0, "text.color": INK, "lines.linewidth": 1.4, "lines.markersize": 4.5,
    "axes.titlesize": 9.5, "axes.labelsize": 9.0, "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "axes.linewidth": 0.8, "axes.spines.right": False, "axes.spines.top": False, "axes.grid": True,
    "grid.color": GRID, "grid.linewidth": 0.6, "xtick.color": INK, "ytick.color": INK, "errorbar.capsize": 0.0,
    "legend.frameon": False, "legend.fontsize": 8.0,
    "svg.fonttype": "none",  # text stays text: it can be read out and searched
}  # fmt: skip


def require_matplotlib() -> Any:
    """Matplotlib, or a one-line :class:`ImportError` that names the extra."""
    return require("matplotlib", extra="plot", purpose="figures")


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as ``NAME.svg`` and ``NAME.png``, on white, with its legend; the paths come back.

    The numbers behind its curves go to ``NAME.csv``.
    """
    paths = []
    with require_matplotlib().rc_context({**_RC, "svg.hashsalt": figure.name}):
        canvas = _compose(figure)
        for kind in ("svg", "png"):
            paths.append(folder / f"{figure.name}.{kind}")
            # Without the date the same rows give the same file.
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            with atomic_write(paths[-1], binary=True) as stream:
                canvas.savefig(stream, format=kind, dpi=160, facecolor="white", metadata=metadata)
    if figure.methods:
        paths.append(folder / f"{figure.name}.csv")
        with atomic_write(paths[-1]) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["panel", "method", "x", "mean", "std_error"])
            for panel in figure.panels:
                for method, points in panel.curves.items() if isinstance(panel, Panel) else ():
                    for x, y, error in points:
                        writer.writerow([panel.title, method, f"{x:g}", f"{y:.6g}", f"{error:.3g}"])
    return paths


def _look(method: str) -> dict[str, Any]:
    look = STYLES[method]
    return {
        "color": look.color,
        "marker": look.marker or None,
        "markerfacecolor": "none" if look.hollow else look.color,
        "linestyle": (0, look.dash) if look.dash else "-",
    }


def _compose(figure: Figure) -> Any:
    """All panels on one sheet, with a legend below; places are fixed in inches, which is quick and always the same."""
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, max(1, len(figure.panels)))
    rows = math.ceil(len(figure.panels) / columns)
    methods = figure.methods
    legend_columns = min(len(methods), max(2, columns * 2)) or 1
    below = 0.19 * math.ceil(len(methods) / legend_columns) + (0.15 if methods else 0.0)  # inches of the legend
    (cell_width, cell_height), (left, bottom, right, top) = _PANEL, _MARGINS
    shapes = [panel.pixels.shape for panel in figure.panels if isinstance(panel, Picture)]
    if shapes:  # in their proportions, with room for a title
        left, bottom, right, top = 0.05, 0.03, 0.05, 0.22
        cell_width, cell_height = 1.9, 1.8 * max(height / width for height, width in shapes) + 0.25
    width, height = cell_width * columns, cell_height * rows + below
    canvas = Canvas(figsize=(width, height))
    handles: dict[str, Any] = {}
    for k, panel in enumerate(figure.panels):
        x, y = (k % columns) * cell_width + left, below + (rows - 1 - k // columns) * cell_height + bottom
        inner = cell_width - left - right, cell_height - bottom - top
        ax = canvas.add_axes((x / width, y / height, inner[0] / width, inner[1] / height))
        if isinstance(panel, Picture):
            ax.imshow(panel.pixels, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            ax.set_axis_off()
            ax.set_title(panel.title, fontsize=7.0, pad=3.0)
        else:
            handles |= _draw(ax, panel)
    if methods:
        labels = [STYLES[method].label for method in methods]
        canvas.legend([handles[m] for m in methods], labels, loc="lower center", ncols=legend_columns)
    return canvas


def _draw(ax: Any, panel: Panel) -> dict[str, Any]:
    """Curves with error bars on one pair of axes; their handles by method."""
    handles = {}
    for method, points in panel.curves.items():
        x, y, error = np.array(points, dtype=np.float64).T
        every = max(1, len(x) // 9)  # about nine markers on a curve
        # On a logarithmic axis a bar that reaches zero would leave the page.
        bars = [np.minimum(error, 0.9 * y) if panel.log else error, error]
        handles[method] = ax.errorbar(
            x, y, yerr=bars, markevery=every, errorevery=every, elinewidth=0.9, **_look(method)
        )
        for bar in handles[method].lines[2]:
            bar.set_linestyle("-")
    if panel.log:
        ax.set_xscale("log")
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        # A method that is exact would squeeze all others into a corner.
        ax.set_ylim(bottom=max(low, min(_LEAST_ERROR, high / 10.0)))
        _label_powers(ax.xaxis, *ax.get_xlim())
        _label_powers(ax.yaxis, *ax.get_ylim())
    else:
        ax.set_ylim(bottom=0.0)
    ax.set(title=panel.title, xlabel=panel.x_label, ylabel="mean error of the marginals")
    return handles


def _label_powers(axis: Any, low: float, high: float) -> None:
    """Powers of ten as plain text: typeset formulas take most of the time of a figure; more marks on a short axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    between = (1.0, 2.0, 5.0) if high < _SHORT_AXIS * low else (1.0,)
    axis.set_major_locator(LogLocator(base=10.0, subs=between, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
