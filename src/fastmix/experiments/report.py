"""The report: figures as files, and one page with everything in it that needs nothing else."""

from __future__ import annotations

import base64
import csv
import html
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fastmix import __version__
from fastmix._checks import require
from fastmix.experiments.figures import STYLES, Figure, Panel, Picture, Table, format_count
from fastmix.experiments.findings import Finding
from fastmix.experiments.journal import Journal, blaming, completed_rows, read_settings
from fastmix.experiments.plan import Experiment, Row, Settings
from fastmix.experiments.specs import EXPERIMENTS
from fastmix.experiments.tuning import LEAST_SHOWN_ERROR, SHORT_AXIS, SHOWN_FAILURES
from fastmix.io.files import atomic_write

__all__ = ["MATPLOTLIB", "save_figure", "write_report"]

# Readable on a phone, on paper, in light and in dark; nothing in it is loaded from elsewhere. Without the empty icon a
# browser would ask the network for one.
_PAGE = Path(__file__).with_name("page.html")
MATPLOTLIB = {"extra": "plot", "purpose": "figures"}
_RC = {
    "font.size": 9.0, "axes.titlesize": 9.5, "legend.fontsize": 8.0, "legend.frameon": False, "lines.linewidth": 1.4,
    "lines.markersize": 4.5, "axes.spines.right": False, "axes.spines.top": False, "axes.grid": True,
    "grid.color": "#d5dae1", "svg.fonttype": "none",  # text stays text: it can be read out and searched
}  # fmt: skip


def write_report(folder: str | os.PathLike[str]) -> tuple[Path, tuple[Path, ...]]:
    """Write ``report.html`` and the figures (SVG, PNG and for curves CSV) of every experiment that was run in a folder.

    The page and the files of the figures come back. A ValueError if there is nothing to report on, a
    :class:`FormatError` if the folder holds files with the names of ours that are not ours.
    """
    root = Path(folder)
    num_rows = 0
    files: list[Path] = []
    sections: dict[str, str] = {}  # by experiment
    findings: list[tuple[Experiment, Finding]] = []
    for experiment in EXPERIMENTS.values():
        if (facts := read_settings(root, experiment)) is None:
            continue
        settings, machine, started = facts
        rows, num_planned = completed_rows(root, experiment, settings)
        # Rows that cannot be shown are not those that this experiment wrote, whatever their keys say.
        with blaming(Journal(root, experiment.name).path, "the rows of this experiment"):
            shown = experiment.draw(experiment, settings, rows) if rows else []
            about = _settings_html(experiment, settings, rows, machine, started)
            findings += [(experiment, finding) for finding in experiment.findings(rows)] if rows else []
        figures = {one: save_figure(one, root) for one in shown if isinstance(one, Figure) and one.has_content}
        tables = [one for one in shown if isinstance(one, Table) and one.rows]
        drawings = [
            _figure_html(figure, files, is_titled=figure.title != experiment.title) for figure, files in figures.items()
        ]
        parts = [_rows_html(rows, num_planned), *drawings]
        # Without a figure the table is what the experiment is about.
        parts += [_table_html(table, folded=bool(figures)) for table in tables]
        title = f"<h2>{_text(experiment.title)}</h2><p>{_text(experiment.summary)}</p>"
        sections[experiment.name] = f'<section id="{experiment.name}">{title}{"".join(parts)}{about}</section>'
        files += [path for paths in figures.values() for path in paths]
        num_rows += len(rows)
    if not sections:
        raise ValueError(f"output must be the folder of an experiment that has been run, got {os.fspath(folder)!r}")
    page = root / "report.html"
    with atomic_write(page) as stream:
        stream.write(
            Template(_PAGE.read_text(encoding="utf-8")).substitute(
                version=_text(__version__),
                rows=format_count(num_rows, "row"),
                when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                links="".join(f'<li><a href="#{n}">{_text(EXPERIMENTS[n].title)}</a></li>' for n in sections),
                findings=_findings_html(findings),
                sections="".join(sections.values()),
            )
        )
    return page, tuple(files)


def _findings_html(findings: Sequence[tuple[Experiment, Finding]]) -> str:
    """The section of what the paper found, with a card for every finding; empty without any."""
    if not findings:
        return ""
    # Results first, then hints; what nothing was run for is told only where nothing else is.
    order = ("reproduced", "not reproduced", "hint", "undecided")
    findings = sorted(findings, key=lambda pair: order.index(pair[1].kind))
    findings = [pair for pair in findings if pair[1].num_trials] or findings
    cards = "".join(
        f'<li class="finding {finding.kind.replace(" ", "-")}"><span class="verdict">{_text(finding.label)}</span>'
        f'<p class="claim">{_text(finding.claim)}</p><p>{_text(finding.evidence)} '
        f'<a href="#{experiment.name}">{_text(experiment.title)}</a></p></li>'
        for experiment, finding in findings
    )
    return (
        '<section id="findings"><h2>What was found</h2><p class="quiet">Verdicts are computed from the rows by '
        f'fixed rules; those from few trials are called hints.</p><ul class="findings">{cards}</ul></section>'
    )


def _rows_html(rows: Sequence[Row], num_planned: int) -> str:
    """Notes on rows that are missing or tell of a failure; empty where there are none."""
    notes = ""
    if len(rows) < num_planned:
        notes += f'<p class="note">Not complete: {len(rows):,} of {num_planned:,} rows. Run it again to go on.</p>'
    if failed := [row for row in rows if row["failure"] is not None]:
        lines = (f"{row['method']}, trial {row['trial']}: {row['failure']}" for row in failed[:SHOWN_FAILURES])
        items = "".join(f"<li>{_text(line)}</li>" for line in lines)
        message = f"{format_count(len(failed), 'row')} failed, and averages are over the others:"
        notes += f'<div class="note"><p>{message}</p><ul>{items}</ul></div>'
    return notes


def _figure_html(figure: Figure, files: Sequence[Path], *, is_titled: bool) -> str:
    """A figure with its drawing in the page itself, its caption and the names of its files; a title where asked for."""
    drawing = base64.b64encode(files[0].read_bytes()).decode()
    image = f'<img alt="{_text(figure.title)}" src="data:image/svg+xml;base64,{drawing}">'
    title = f"<h3>{_text(figure.title)}</h3>" if is_titled else ""
    kind = ' class="single"' if len(figure.panels) == 1 else ""
    return (
        f'<figure id="figure-{figure.name}"{kind}>{title}'
        f'<div class="scroll" tabindex="0">{image}</div><figcaption>{_text(figure.caption)} '
        f'<span class="quiet">Files: {", ".join(path.name for path in files)}.</span></figcaption></figure>'
    )


def _table_html(table: Table, *, folded: bool) -> str:
    """A table under a line that opens it, closed at first where ``folded``."""
    head = "".join(f'<th scope="col">{_text(column)}</th>' for column in table.columns)
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    return (
        f"<details{'' if folded else ' open'}><summary>Table: {_text(table.title)}</summary>"
        f'<div class="scroll" tabindex="0"><table><caption>{_text(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _settings_html(
    experiment: Experiment, settings: Settings, rows: Sequence[Row], machine: Mapping[str, str], started: str
) -> str:
    """A section on a run: its settings, its machine, and the methods with their options."""
    # One truth serves all methods of an instance.
    truths = {(str(row["parameters"]), row["trial"]): row["seconds"].get("truth", 0.0) for row in rows}
    seconds = sum(row["seconds"].get("total", 0.0) for row in rows) + sum(truths.values())
    facts: dict[str, object] = {
        "Trials": len({row["trial"] for row in rows}),
        "Quick": "yes" if settings.quick else "no",
        "Seed": settings.seed,
        "Rows": f"{len(rows):,}",
        "Processor time": f"{seconds / 3600.0:.2f} hours",
        "Started": started,
        **machine,
    }
    if settings.images is not None:
        facts["Photographs"] = Path(settings.images).name
    calls = {
        call.name: ", ".join(f"{name}={value}" for name, value in call.options.items()) or "defaults"
        for call in experiment.calls(settings)
    }
    return (
        f'<details class="settings"><summary>Settings and machine</summary>{_facts_html(facts)}'
        f"<h4>Methods and their options</h4>{_facts_html(calls)}</details>"
    )


def _facts_html(facts: Mapping[str, object]) -> str:
    """Facts as a list of names and values."""
    items = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items())
    return f"<dl>{items}</dl>"


def _text(value: object) -> str:
    """A value as text that a page shows as it is."""
    return html.escape(str(value), quote=True)


# -- figures, drawn with Matplotlib ---------------------------------------------------------------------------------


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as ``NAME.svg`` and ``NAME.png``, on white, with its legend; the paths come back.

    The numbers behind its curves go to ``NAME.csv``.
    """
    matplotlib = require("matplotlib", **MATPLOTLIB)
    paths = []
    with matplotlib.rc_context({**_RC, "svg.hashsalt": figure.name}):
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
    """A sheet of Matplotlib with all panels, and a legend below."""
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    legend_columns = 2 * columns
    width = 4.3  # of a panel, in inches
    height = 3.1
    shapes = [panel.pixels.shape for panel in figure.panels if isinstance(panel, Picture)]
    if shapes:
        width = 1.9
        height = 1.8 * max(high / wide for high, wide in shapes) + 0.25  # with room for a title
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
    """Handles by method of the curves with error bars that are drawn on one pair of axes."""
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
        ax.set_ylim(bottom=max(low, min(LEAST_SHOWN_ERROR, high / 10.0)))
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < SHORT_AXIS * low else (1.0,), numticks=12))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")  # typeset powers would take most of the time of a figure
    else:
        ax.set_ylim(bottom=0.0)
        places = {point[0] for points in panel.curves.values() for point in points}
        if len(places) == 1:  # Matplotlib would make up an axis of hundredths around it
            ax.set_xticks(list(places))
    ax.set(title=panel.title, xlabel=panel.x_label, ylabel="mean error of the marginals")
    return handles
