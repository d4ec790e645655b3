"""Figures drawn with Matplotlib: files for papers, and graphics for the report that follow the page's colours."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastmix.experiments.environment import require
from fastmix.experiments.figures import Figure, Panel, Picture
from fastmix.experiments.styles import GRID, INK, STYLES, style
from fastmix.io.files import atomic_write

__all__ = [
    "format_power",
    "inline_graphics",
    "legend_entries",
    "page_colour_rules",
    "require_matplotlib",
    "save_figure",
]

_PANEL = 4.3, 3.1  # inches
_LEAST_ERROR = 1e-4  # shown on a logarithmic axis
_SHORT_AXIS = 50.0  # times from end to end, below which powers of ten are too few marks
_MARGINS = 0.62, 0.5, 0.12, 0.32  # left, bottom, right, top, in inches
_RC = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "errorbar.capsize": 0.0,
    "svg.fonttype": "none",  # text stays text: it can be read out, searched and coloured by the page
}


def require_matplotlib() -> Any:
    """Matplotlib, or a one-line :class:`ImportError` that names the extra."""
    return require("matplotlib", extra="plot", purpose="figures")


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as ``NAME.svg`` and ``NAME.png``, on white, with its legend; the paths come back.

    The numbers behind its curves go to ``NAME.csv``.
    """
    matplotlib = require_matplotlib()
    with matplotlib.rc_context({**_RC, "svg.hashsalt": figure.name}):
        canvas = _compose(figure)
        paths = []
        for kind in ("svg", "png"):
            path = folder / f"{figure.name}.{kind}"
            with atomic_write(path, binary=True) as stream:
                # Without the date the same rows give the same file.
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                canvas.savefig(stream, format=kind, dpi=160, facecolor="white", metadata=metadata)
            paths.append(path)
    if figure.methods:
        paths.append(folder / f"{figure.name}.csv")
        with atomic_write(paths[-1]) as stream:
            stream.write(_numbers(figure))
    return paths


def _numbers(figure: Figure) -> str:
    """The points of all curves as comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["panel", "method", "x", "mean", "std_error"])
    for panel in figure.panels:
        for line in panel.lines if isinstance(panel, Panel) else ():
            errors = line.error if len(line.error) else [math.nan] * len(line.x)
            for x, y, error in zip(line.x, line.y, errors, strict=True):
                writer.writerow([panel.title, line.method, f"{x:g}", f"{y:.6g}", f"{error:.3g}"])
    return text.getvalue()


def inline_graphics(figure: Figure) -> list[str]:
    """HTML of every panel: SVG in the colours of the page, or an image within the text."""
    matplotlib = require_matplotlib()
    graphics = []
    for k, panel in enumerate(figure.panels):
        if isinstance(panel, Picture):
            graphics.append(_image(panel))
            continue
        with matplotlib.rc_context({**_RC, "svg.hashsalt": f"{figure.name}-{k}"}):
            canvas = _compose(Figure(figure.name, figure.title, "", [panel], columns=1, legend=False))
            stream = io.StringIO()
            canvas.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
        graphics.append(_adapt(stream.getvalue(), f"{figure.title}: {panel.title}"))
    return graphics


def legend_entries(methods: Iterable[str]) -> list[tuple[str, str]]:
    """A small drawing of the curve and the name, for every method."""
    return [(_swatch(method), style(method).label) for method in methods]


def _new_canvas(width: float, height: float) -> Any:
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(width, height))


def _compose(figure: Figure) -> Any:
    """All panels on one sheet, with a legend below; places are fixed in inches, which is quick and always the same."""
    columns = min(figure.columns, max(1, len(figure.panels)))
    rows = math.ceil(len(figure.panels) / columns)
    pictures = any(isinstance(panel, Picture) for panel in figure.panels)
    methods = figure.methods if figure.legend else []
    legend_columns = min(len(methods), max(2, columns * 2)) or 1
    legend = 0.19 * math.ceil(len(methods) / legend_columns) + (0.15 if methods else 0.0)
    cell_width, cell_height = _picture_cell(figure) if pictures else _PANEL
    width, height = cell_width * columns, cell_height * rows + legend
    canvas = _new_canvas(width, height)
    handles: dict[str, Any] = {}
    for k, panel in enumerate(figure.panels):
        corner = (k % columns) * cell_width, legend + (rows - 1 - k // columns) * cell_height
        left, bottom, right, top = (0.05, 0.03, 0.05, 0.22) if pictures else _MARGINS
        place = corner[0] + left, corner[1] + bottom, cell_width - left - right, cell_height - bottom - top
        ax = canvas.add_axes((place[0] / width, place[1] / height, place[2] / width, place[3] / height))
        if isinstance(panel, Picture):
            ax.imshow(panel.pixels, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            ax.set_axis_off()
            ax.set_title(panel.title, fontsize=7.0, pad=3.0)
        else:
            handles |= _draw(ax, panel)
    if methods:
        labels = [style(method).label for method in methods]
        canvas.legend([handles[m] for m in methods], labels, loc="lower center", ncols=legend_columns)
    return canvas


def _picture_cell(figure: Figure) -> tuple[float, float]:
    """Inches for a picture of the proportions of the first, with room for its title."""
    shapes = [panel.pixels.shape for panel in figure.panels if isinstance(panel, Picture)]
    ratio = max(rows / cols for rows, cols in shapes)
    return 1.9, 1.8 * ratio + 0.25


def _draw(ax: Any, panel: Panel) -> dict[str, Any]:
    """Curves with error bars on one pair of axes; their handles by method."""
    handles = {}
    for line in panel.lines:
        look = style(line.method)
        x, y, error = (np.asarray(values, dtype=np.float64) for values in (line.x, line.y, line.error))
        handles[line.method] = ax.errorbar(
            x,
            y,
            yerr=_bars(y, error, panel.y_log),
            color=look.light,
            marker=look.marker or None,
            markevery=_marked(len(x)),
            markerfacecolor="none" if look.hollow else look.light,
            linestyle=(0, look.dash) if look.dash else "-",
            errorevery=_marked(len(x)),
            elinewidth=0.9,
        )
        for bars in handles[line.method].lines[2]:
            bars.set_linestyle("-")
    if panel.x_log:
        ax.set_xscale("log")
        _label_powers(ax.xaxis, *ax.get_xlim())
    if panel.y_log:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        # A method that is exact would squeeze all others into a corner.
        ax.set_ylim(bottom=max(low, min(_LEAST_ERROR, high / 10.0)))
        _label_powers(ax.yaxis, *ax.get_ylim())
    else:
        ax.set_ylim(bottom=0.0)
    ax.set_title(panel.title)
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    return handles


def _label_powers(axis: Any, low: float, high: float) -> None:
    """Powers of ten as plain text: typeset formulas take most of the time of a figure; more marks on a short axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    between = (1.0, 2.0, 5.0) if high < _SHORT_AXIS * low else (1.0,)
    axis.set_major_locator(LogLocator(base=10.0, subs=between, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_power(value)))


def format_power(value: float) -> str:
    """A mark of a logarithmic axis: as a number while that is short, else as a power of ten.

    Examples
    --------
    >>> format_power(0.01), format_power(1000.0), format_power(1e6), format_power(1e-5)
    ('0.01', '1,000', '10⁶', '10⁻⁵')
    """
    if not value > 0:
        return ""
    exponent = math.floor(math.log10(value) + 1e-9)
    if -4 < exponent < 4:
        return f"{value:,.0f}" if exponent >= 0 else f"{value:g}"
    factor = round(value / 10.0**exponent)
    return (
        ("" if factor == 1 else f"{factor}·")
        + "10"
        + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    )


def _bars(y: Any, error: Any, log: bool) -> Any:
    if not len(error):
        return None
    # On a logarithmic axis a bar that reaches zero would leave the page.
    return [np.minimum(error, 0.9 * y) if log else error, error]


def _marked(count: int) -> int:
    """Every how many points a marker is drawn: about nine on a curve."""
    return max(1, count // 9)


def _image(picture: Picture) -> str:
    from matplotlib.image import imsave

    stream = io.BytesIO()
    imsave(stream, np.asarray(picture.pixels), cmap="gray", vmin=0.0, vmax=1.0, format="png")
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img alt="{_escape(picture.title)}" src="data:image/png;base64,{data}">'


def _adapt(svg: str, description: str) -> str:
    """A drawing made part of a page: as wide as its place, its colours those of the page, light or dark."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, _, body = svg.partition(">")
    head = re.sub(r'\s(?:width|height)="[^"]*"', "", head)
    head += f' role="img" aria-label="{_escape(description)}"'
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", body)
    # Parts that nothing refers to need no name; the same names in every drawing would clash on the page.
    used = set(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", body)
    for colour, name in _page_colours().items():
        body = body.replace(colour, f"var(--{name}, {colour})")
    return f"{head}>{body}".replace(INK, "currentColor").strip()


def _page_colours() -> dict[str, str]:
    """Names that the page gives to the colours of the drawings."""
    colours = {look.light: f"c{look.light[1:]}" for look in STYLES.values()}
    return {**colours, GRID: "grid"}


def page_colour_rules(dark: bool) -> str:
    """CSS that sets the colours of the drawings for a light or a dark page."""
    rules = {f"--c{look.light[1:]}": look.dark if dark else look.light for look in STYLES.values()}
    rules["--grid"] = "#3a4450" if dark else GRID
    return " ".join(f"{name}: {value};" for name, value in rules.items())


_SHAPES = {
    "o": "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "s": "M-3,-3h6v6h-6z",
    "^": "M0,-3.6L3.4,3H-3.4z",
    "v": "M0,3.6L3.4,-3H-3.4z",
    "D": "M0,-3.8L3.8,0L0,3.8L-3.8,0z",
    "P": "M-1.2,-3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "X": "M-3.4,-2L-2,-3.4L0,-1.4L2,-3.4L3.4,-2L1.4,0L3.4,2L2,3.4L0,1.4L-2,3.4L-3.4,2L-1.4,0z",
    "*": "M0,-4.2L1.1,-1.3L4,-1.3L1.7,0.6L2.5,3.5L0,1.8L-2.5,3.5L-1.7,0.6L-4,-1.3L-1.1,-1.3z",
}


def _swatch(method: str) -> str:
    look = style(method)
    colour = f"var(--c{look.light[1:]}, {look.light})"
    dash = f' stroke-dasharray="{_dashes(look.dash)}"' if look.dash else ""
    fill = "var(--page)" if look.hollow else colour
    marker = f'<path d="{_SHAPES[look.marker]}" fill="{fill}"/>' if look.marker in _SHAPES else ""
    return (
        f'<svg class="swatch" viewBox="-17 -6 34 12" aria-hidden="true" style="stroke: {colour}">'
        f'<path d="M-16,0H16" fill="none" stroke-width="1.8"{dash}/>{marker}</svg>'
    )


def _dashes(pattern: Sequence[float]) -> str:
    return " ".join(f"{1.8 * part:g}" for part in pattern)


def _escape(text: str) -> str:
    return html.escape(text, quote=True)
