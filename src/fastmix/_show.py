"""Data frames, pictures and tables in notebooks that results show of themselves, all made from plain arrays."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_choice, describe, require

__all__ = [
    "bars", "counts", "curve", "frame", "html_table", "intervals", "labeled_picture", "matrix", "new_axes", "picture",
    "points", "profile", "rungs", "scatter", "traces",
]  # fmt: skip

# Colors of Okabe and Ito, which stay apart for color-blind readers.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
_LEGEND_BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}

#: Variables up to which a matrix is drawn entry by entry (not measured: a pixel for each entry).
MAX_DRAWN_VARIABLES = 1000
#: Points beyond which they are drawn as pixels, since a vector file would be too large (not measured).
MAX_VECTOR_POINTS = 5000
#: Variables up to which a picture names every one (not measured: they must not overlap).
MAX_NAMED_ROWS = 60
#: Points of the smallest text of a name (not measured).
SMALLEST_LABEL = 4.0
MAX_NAMES_IN_LEGEND = 3  # of one state that is called differently by several variables


def frame(columns: Mapping[str, Any], library: str) -> Any:
    """A pandas or polars DataFrame with the given columns, which have equal length."""
    check_choice("library", library, ("pandas", "polars"))
    return require(library, extra="interop", purpose="frames").DataFrame(dict(columns))


def html_table(title: str, facts: Iterable[tuple[str, Any]], rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    """HTML of a title, a line of facts and a small table, for notebooks."""
    facts_line = " · ".join(f"{html.escape(name)} <b>{html.escape(str(value))}</b>" for name, value in facts)
    table = ""
    if rows:
        head_cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        body_rows = []
        for row in rows:
            cells = "".join(f"<td>{html.escape(str(value))}</td>" for value in row)
            body_rows.append(f"<tr>{cells}</tr>")
        table = f"<table><thead><tr>{head_cells}</tr></thead><tbody>{''.join(body_rows)}</tbody></table>"
    return f"<div><b>{html.escape(title)}</b><br>{facts_line}{table}</div>"


def new_axes(axes: Any = None, **size: Any) -> Any:
    """The Matplotlib axes that were given, or the axes of a new figure."""
    if axes is not None:
        if not callable(getattr(axes, "set_title", None)):
            raise TypeError(f"axes must be the axes of a Matplotlib figure, got {describe(axes)}")
        return axes
    require("matplotlib", extra="plot", purpose="pictures")
    from matplotlib import pyplot

    _, fresh = pyplot.subplots(layout="constrained", **size)
    return fresh


def picture(axes: Any, values: NDArray[Any], *, label: str, **options: Any) -> Any:
    """Draw a matrix as a picture with a color bar."""
    image = axes.imshow(values, interpolation="nearest", **options)
    axes.figure.colorbar(image, ax=axes, label=label, shrink=0.8)
    for axis in (axes.xaxis, axes.yaxis):  # rows and columns are numbered
        axis.get_major_locator().set_params(integer=True)
    return axes


def labeled_picture(axes: Any, labels: NDArray[Any], names: Sequence[str]) -> Any:
    """Draw an array of labels as a picture, each label in its own color, with a key; many have a scale of colors."""
    if len(names) > len(_COLORS):
        return picture(axes, labels, label="label", cmap="turbo", vmin=0, vmax=len(names) - 1)
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colors = [_COLORS[k % len(_COLORS)] for k in range(len(names))]
    axes.imshow(labels, cmap=ListedColormap(colors), vmin=-0.5, vmax=len(names) - 0.5, interpolation="nearest")
    keys = [Patch(color=color, label=name) for color, name in zip(colors, names, strict=True)]
    axes.legend(handles=keys, **_LEGEND_BESIDE)
    axes.set_axis_off()
    return axes


def states(axes: Any, numbers: NDArray[Any]) -> Any:
    """Draw the state of every variable as a point."""
    axes.plot(numbers, ".", color=_COLORS[0], markersize=4, rasterized=len(numbers) > MAX_VECTOR_POINTS)
    axes.set(xlabel="variable", ylabel="state")
    axes.yaxis.get_major_locator().set_params(integer=True)
    return axes


def legend_of_states(state_names: Sequence[Sequence[str]] | None, state: int) -> str:
    """The name of a state in all variables that have it; up to three names where they differ, and else its number."""
    named = [] if state_names is None else [names[state] for names in state_names if state < len(names)]
    different = list(dict.fromkeys(named))
    return ", ".join(different) if 1 <= len(different) <= MAX_NAMES_IN_LEGEND else f"state {state}"


def bars(
    axes: Any,
    names: Sequence[str],
    parts: Sequence[NDArray[Any]],
    errors: Sequence[NDArray[Any]] | None,
    state_names: Sequence[Sequence[str]] | None = None,
) -> Any:
    """Draw stacked bars of probabilities, one bar per name, with an error bar at the end of the first part."""
    positions = np.arange(len(names))
    most_states = max((len(vector) for vector in parts), default=0)
    bottom = np.zeros(len(names))
    for state in range(most_states):
        heights = np.array([vector[state] if state < len(vector) else 0.0 for vector in parts])
        label = legend_of_states(state_names, state)
        axes.barh(positions, heights, left=bottom, color=_COLORS[state % len(_COLORS)], label=label)
        bottom += heights
    if errors is not None:
        ends = np.array([vector[0] for vector in parts])
        spread = np.array([vector[0] for vector in errors])
        axes.errorbar(ends, positions, xerr=spread, fmt="none", ecolor="black", capsize=2)
    axes.set(yticks=positions, yticklabels=list(names), xlim=(0.0, 1.0), xlabel="probability")
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)  # the first on top
    room = 72.0 * axes.figure.get_figheight() * axes.get_position().height / max(1, len(names))  # points for a bar
    axes.tick_params(axis="y", labelsize=min(10.0, max(SMALLEST_LABEL, room)))
    axes.legend(**_LEGEND_BESIDE)
    return axes


def scatter(axes: Any, x: NDArray[Any], y: NDArray[Any], *, xlabel: str, ylabel: str) -> Any:
    """Draw points, and the line on which both coordinates are equal."""
    axes.plot(x, y, ".", color=_COLORS[0], markersize=3, rasterized=len(x) > MAX_VECTOR_POINTS)
    axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return axes


def points(axes: Any, x: NDArray[Any], y: NDArray[Any], *, xlabel: str, ylabel: str, level: float) -> Any:
    """Draw points over a logarithmic x axis, and a line at the level that they should stay below."""
    axes.plot(x, y, ".", color=_COLORS[0], markersize=4, rasterized=len(x) > MAX_VECTOR_POINTS)
    axes.axhline(level, color="0.6", linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log")
    return axes


def traces(axes: Any, values: NDArray[Any], *, xlabel: str, ylabel: str) -> Any:
    """Draw one line per chain, a row of the values."""
    for k, row in enumerate(values):
        axes.plot(row, color=_COLORS[k % len(_COLORS)], linewidth=0.8, label=f"chain {k}")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.legend(**_LEGEND_BESIDE)
    return axes


def intervals(axes: Any, lower: NDArray[Any], upper: NDArray[Any]) -> Any:
    """Draw bounds on one probability of every variable, in the order of their lower ends."""
    order = np.argsort(lower, kind="stable")
    axes.vlines(np.arange(len(order)), lower[order], upper[order], color=_COLORS[0], linewidth=1.0)
    axes.set(xlabel="variables, by their lower bound", ylabel="probability of the last state", ylim=(0.0, 1.0))
    return axes


def curve(axes: Any, values: Sequence[float], *, xlabel: str, ylabel: str) -> Any:
    """Draw positive numbers in order, numbered from 1, over a logarithmic y axis."""
    axes.plot(np.arange(1, len(values) + 1), values, ".-", color=_COLORS[0], linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return axes


def profile(axes: Any, x: NDArray[Any], y: NDArray[Any], *, xlabel: str, ylabel: str) -> Any:
    """Draw one line through points."""
    axes.plot(x, y, "-", color=_COLORS[0], linewidth=0.9)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return axes


def counts(axes: Any, values: NDArray[Any], mean: float, *, label: str) -> Any:
    """Draw a histogram of the finite values, with a line at their mean."""
    axes.hist(values[np.isfinite(values)], bins=50, color=_COLORS[0], alpha=0.7)
    if np.isfinite(mean):
        axes.axvline(mean, color="black", linewidth=0.8)
    axes.set(xlabel=label, ylabel="rows")
    return axes


def rungs(axes: Any, positions: NDArray[Any], rejection: NDArray[Any]) -> Any:
    """Draw the share of rejected exchanges between neighboring rungs of a ladder, and mark the rungs."""
    axes.stairs(rejection, positions, color=_COLORS[0], fill=True, alpha=0.5)
    axes.plot(positions, np.zeros(len(positions)), "|", color="black", markersize=10, clip_on=False)
    axes.set(xlabel="position on the path", ylabel="rejected exchanges", ylim=(0.0, 1.0))
    return axes


def matrix(axes: Any, entries: Any, *, label: str) -> Any:
    """Draw a sparse matrix as a picture; of a large one the sorted sums of its rows."""
    if entries.shape[0] <= MAX_DRAWN_VARIABLES:
        axes.set(xlabel="variable j", ylabel="variable i")
        return picture(axes, entries.toarray(), label=label, cmap="magma_r", vmin=0.0)
    row_sums = np.asarray(entries.sum(axis=1)).reshape(-1)
    falling = np.sort(row_sums)[::-1]
    axes.plot(np.arange(1, len(falling) + 1), falling, color=_COLORS[0])
    axes.axhline(1.0, color="0.6", linewidth=0.8)
    axes.set(xlabel="variables, the strongest first", ylabel=f"sum of a row of {label}", xscale="log")
    return axes


def named(axes: Any, names: Sequence[str] | None) -> Any:
    """Name rows and columns of a matrix by variables, where these have names and are few."""
    if names is None or not 0 < len(names) <= MAX_NAMED_ROWS:
        return axes
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="", ylabel="")
    return axes


def circle(
    axes: Any, names: Sequence[str], edges: NDArray[Any], sizes: NDArray[Any], signs: NDArray[Any],
    shares: NDArray[Any] | None,
) -> Any:  # fmt: skip
    """Draw a graph in a circle: widths by the sizes of the edges, colors by their signs, pale ones by their shares."""
    angles = np.pi / 2 - 2 * np.pi * (np.arange(len(names)) + 0.5) / max(1, len(names))
    x = np.cos(angles)
    y = np.sin(angles)
    largest = float(np.max(sizes, initial=0.0)) or 1.0
    for e in np.argsort(sizes, kind="stable"):  # the strongest on top
        ends = edges[e]
        strength = float(sizes[e]) / largest
        alpha = 0.3 + 0.7 * (strength if shares is None else float(shares[e]))
        color = _COLORS[0] if signs[e] >= 0 else _COLORS[4]
        axes.plot(x[ends], y[ends], color=color, linewidth=0.3 + 5.0 * strength, alpha=alpha, zorder=1)
    axes.scatter(x, y, s=40, color="0.3", zorder=2)
    if len(names) <= MAX_NAMED_ROWS:
        for i, name in enumerate(names):
            axes.text(1.1 * x[i], 1.1 * y[i], name, ha="left" if x[i] > 0 else "right", va="center")
    axes.set(xlim=(-1.6, 1.6), ylim=(-1.3, 1.3), aspect="equal")
    axes.axis("off")
    return axes
