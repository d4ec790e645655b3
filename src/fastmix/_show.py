"""How results show themselves: frames, pictures and tables in notebooks, of plain arrays."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_choice, describe, require

__all__ = [
    "bars", "counts", "curve", "frame", "html_table", "labelled_picture", "matrix", "new_axes", "picture", "points",
    "rungs", "scatter", "traces",
]  # fmt: skip

_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")


_DENSE = 1000  # variables up to which a matrix is drawn entry by entry


def frame(columns: Mapping[str, Any], library: str) -> Any:
    """A table of pandas or polars with columns of equal length."""
    check_choice("library", library, ("pandas", "polars"))
    return require(library, extra="interop", purpose="frames").DataFrame(dict(columns))


def html_table(title: str, facts: Iterable[tuple[str, Any]], rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    """A small HTML table with a line of facts above it, for notebooks."""
    line = " · ".join(f"{html.escape(name)} <b>{html.escape(str(value))}</b>" for name, value in facts)
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(str(v))}</td>' for v in row)}</tr>" for row in rows)
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table>" if rows else ""
    return f"<div><b>{html.escape(title)}</b><br>{line}{table}</div>"


def new_axes(axes: Any = None, **size: Any) -> Any:
    """The axes given, or those of a new figure of Matplotlib."""
    if axes is not None:
        if not callable(getattr(axes, "set_title", None)):
            raise TypeError(f"axes must be those of a figure of Matplotlib, got {describe(axes)}")
        return axes
    require("matplotlib", extra="plot", purpose="pictures")
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained", **size)[1]


def picture(axes: Any, values: NDArray[Any], *, label: str, **options: Any) -> Any:
    """A matrix as a picture with a scale of colors."""
    image = axes.imshow(values, interpolation="nearest", **options)
    axes.figure.colorbar(image, ax=axes, label=label, shrink=0.8)
    for axis in (axes.xaxis, axes.yaxis):  # rows and columns are numbered
        axis.get_major_locator().set_params(integer=True)
    return axes


def labelled_picture(axes: Any, labels: NDArray[Any], names: Sequence[str]) -> Any:
    """An array of labels as a picture, each in its own color, with a key."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colors = [_COLORS[k % len(_COLORS)] for k in range(len(names))]
    axes.imshow(labels, cmap=ListedColormap(colors), vmin=-0.5, vmax=len(names) - 0.5, interpolation="nearest")
    keys = [Patch(color=color, label=name) for color, name in zip(colors, names, strict=True)]
    axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
    axes.set_axis_off()
    return axes


def bars(axes: Any, names: Sequence[str], parts: Sequence[NDArray[Any]], errors: Sequence[NDArray[Any]] | None) -> Any:
    """Stacked bars of probabilities, one bar per name, with an error bar at the end of the first part."""
    positions, largest = np.arange(len(names)), max((len(p) for p in parts), default=0)
    bottom = np.zeros(len(names))
    for state in range(largest):
        heights = np.array([p[state] if state < len(p) else 0.0 for p in parts])
        axes.barh(positions, heights, left=bottom, color=_COLORS[state % len(_COLORS)], label=f"state {state}")
        bottom += heights
    if errors is not None:
        ends, spread = [np.array([v[0] for v in values]) for values in (parts, errors)]
        axes.errorbar(ends, positions, xerr=spread, fmt="none", ecolor="black", capsize=2)
    axes.set(yticks=positions, yticklabels=list(names), xlim=(0.0, 1.0), xlabel="probability")
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
    return axes


def scatter(axes: Any, x: NDArray[Any], y: NDArray[Any], *, xlabel: str, ylabel: str) -> Any:
    """Points, and the line on which both coordinates are equal."""
    axes.plot(x, y, ".", color=_COLORS[0], markersize=3, rasterized=len(x) > 5000)
    axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return axes


def points(axes: Any, x: NDArray[Any], y: NDArray[Any], *, xlabel: str, ylabel: str, level: float) -> Any:
    """Points over a scale of powers of ten, and a line at the level that they should be below."""
    axes.plot(x, y, ".", color=_COLORS[0], markersize=4, rasterized=len(x) > 5000)
    axes.axhline(level, color="0.6", linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log")
    return axes


def traces(axes: Any, values: NDArray[Any], *, xlabel: str, ylabel: str) -> Any:
    """A line for every row."""
    for k, row in enumerate(values):
        axes.plot(row, color=_COLORS[k % len(_COLORS)], linewidth=0.8, label=f"chain {k}")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
    return axes


def curve(axes: Any, values: Sequence[float], *, xlabel: str, ylabel: str) -> Any:
    """Positive numbers in order, from 1 on, over a scale of powers of ten."""
    axes.plot(np.arange(1, len(values) + 1), values, ".-", color=_COLORS[0], linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return axes


def counts(axes: Any, values: NDArray[Any], mean: float, *, label: str) -> Any:
    """A histogram of the finite ones of some numbers, with a line at their mean."""
    axes.hist(values[np.isfinite(values)], bins=50, color=_COLORS[0], alpha=0.7)
    if np.isfinite(mean):
        axes.axvline(mean, color="black", linewidth=0.8)
    axes.set(xlabel=label, ylabel="rows")
    return axes


def rungs(axes: Any, positions: NDArray[Any], rejection: NDArray[Any]) -> Any:
    """Shares of rejected exchanges as steps between rungs, which are marked below."""
    axes.stairs(rejection, positions, color=_COLORS[0], fill=True, alpha=0.5)
    axes.plot(positions, np.zeros(len(positions)), "|", color="black", markersize=10, clip_on=False)
    axes.set(xlabel="position on the path", ylabel="rejected exchanges", ylim=(0.0, 1.0))
    return axes


def matrix(axes: Any, entries: Any, *, label: str) -> Any:
    """A sparse matrix as a picture; a large one as the sums of its rows, in order."""
    if entries.shape[0] <= _DENSE:
        axes.set(xlabel="variable j", ylabel="variable i")
        return picture(axes, entries.toarray(), label=label, cmap="magma_r", vmin=0.0)
    sums = np.sort(np.asarray(entries.sum(axis=1)).reshape(-1))[::-1]
    axes.plot(np.arange(1, len(sums) + 1), sums, color=_COLORS[0])
    axes.axhline(1.0, color="0.6", linewidth=0.8)
    axes.set(xlabel="variables, the strongest first", ylabel=f"sum of a row of {label}", xscale="log")
    return axes
