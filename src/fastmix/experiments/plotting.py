"""Figures drawn with Matplotlib."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from fastmix._checks import require
from fastmix.experiments.figures import STYLES, Figure, Panel, Picture
from fastmix.io.files import atomic_write

__all__ = ["require_matplotlib", "save_figure"]

_LEAST_ERROR = 1e-4  # shown on a logarithmic axis
_SHORT_AXIS = 50.0  # times from end to end, below which powers of ten are too few marks
_RC = {
    "font.size": 9.0, "axes.titlesize": 9.5, "legend.fontsize": 8.0, "legend.frameon": False, "lines.linewidth": 1.4,
    "lines.markersize": 4.5, "axes.spines.right": False, "axes.spines.top": False, "axes.grid": True,
    "grid.color": "#d5dae1", "svg.fonttype": "none",  # text stays text: it can be read out and searched
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


def _compose(figure: Figure) -> Any:
    """All panels on one sheet, with a legend below."""
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows, legend_columns = math.ceil(len(figure.panels) / columns), 2 * columns
    width, height = 4.3, 3.1  # of a panel, in inches
    if shapes := [panel.pixels.shape for panel in figure.panels if isinstance(panel, Picture)]:
        width, height = 1.9, 1.8 * max(high / wide for high, wide in shapes) + 0.25  # with room for a title
    size = width * columns, height * rows + 0.19 * math.ceil(len(figure.methods) / legend_columns)
    canvas = Canvas(figsize=size, layout="constrained")
    handles: dict[str, Any] = {}
    for k, panel in enumerate(figure.panels, start=1):
        ax = canvas.add_subplot(rows, columns, k)
        if isinstance(panel, Picture):
            ax.imshow(panel.pixels, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            ax.set_axis_off()
            ax.set_title(panel.title, fontsize=7.0, pad=3.0)
        else:
            handles |= _draw(ax, panel)
    if handles:
        labels = [STYLES[method].label for method in handles]
        canvas.legend(handles.values(), labels, loc="outside lower center", ncols=legend_columns)
    return canvas


def _draw(ax: Any, panel: Panel) -> dict[str, Any]:
    """Curves with error bars on one pair of axes; their handles by method."""
    from matplotlib.ticker import LogLocator, NullLocator

    handles = {}
    for method, points in panel.curves.items():
        x, y, error = np.array(points, dtype=np.float64).T
        every = max(1, len(x) // 9)  # about nine markers on a curve
        # On a logarithmic axis a bar that reaches zero would leave the page.
        bars = [np.minimum(error, 0.9 * y) if panel.log else error, error]
        style = STYLES[method]
        handles[method] = ax.errorbar(
            x, y, yerr=bars, markevery=every, errorevery=every, elinewidth=0.9, color=style.color, marker=style.marker,
            markerfacecolor="none" if style.hollow else style.color, linestyle=(0, style.dash) if style.dash else "-",
        )  # fmt: skip
        for bar in handles[method].lines[2]:
            bar.set_linestyle("-")
    if panel.log:
        ax.set_xscale("log")
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        # A method that is exact would squeeze all others into a corner.
        ax.set_ylim(bottom=max(low, min(_LEAST_ERROR, high / 10.0)))
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            axis.set_major_locator(
                LogLocator(subs=(1.0, 2.0, 5.0) if high < _SHORT_AXIS * low else (1.0,), numticks=12)
            )
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")  # typeset powers would take most of the time of a figure
    else:
        ax.set_ylim(bottom=0.0)
    ax.set(title=panel.title, xlabel=panel.x_label, ylabel="mean error of the marginals")
    return handles
