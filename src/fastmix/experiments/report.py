"""The report: figures as files, and one page with everything in it that needs nothing else."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template

from fastmix import __version__
from fastmix.experiments.figures import Figure, Table, format_count
from fastmix.experiments.findings import Finding
from fastmix.experiments.journal import Journal, blaming, completed_rows, read_settings
from fastmix.experiments.plan import Experiment, Row, Settings
from fastmix.experiments.plotting import inline_graphics, legend_graphics, page_colors, save_figure
from fastmix.experiments.specs import EXPERIMENTS
from fastmix.io.files import atomic_write

__all__ = ["write_report"]

# Readable on a phone, on paper, in light and in dark; nothing in it is loaded from elsewhere. Without the empty icon a
# browser would ask the network for one.
_PAGE = Path(__file__).with_name("page.html")
_MOST_FAILURES = 10  # shown on the page; all are in the files


@dataclass(frozen=True)
class _Section:
    experiment: Experiment
    settings: Settings
    machine: Mapping[str, str]
    started: str
    rows: Sequence[Row]
    planned: int  # rows, if all are there


def write_report(folder: str | os.PathLike[str]) -> tuple[Path, tuple[Path, ...]]:
    """Write ``report.html`` and the figures (SVG, PNG and for curves CSV) of every experiment that was run in a folder.

    The page and the files of the figures come back. A ValueError if there is nothing to report on, a
    :class:`FormatError` if the folder holds files with the names of ours that are not ours.
    """
    root = Path(folder)
    sections = [
        _Section(experiment, *facts, *completed_rows(root, experiment, facts[0]))
        for experiment in EXPERIMENTS.values()
        if (facts := read_settings(root, experiment)) is not None
    ]
    if not sections:
        raise ValueError(f"output must be the folder of an experiment that has been run, got {os.fspath(folder)!r}")
    files: list[Path] = []
    parts, findings = [], []
    for section in sections:
        experiment, settings, rows = section.experiment, section.settings, section.rows
        # Rows that cannot be shown are not those that this experiment wrote, whatever their keys say.
        with blaming(Journal(root, experiment.name).path, "the rows of this experiment"):
            shown = experiment.draw(experiment, settings, rows) if rows else []
            figures = [one for one in shown if isinstance(one, Figure) and (one.methods or one.has_pictures)]
            tables = [one for one in shown if isinstance(one, Table) and one.rows]
            parts.append(_section_html(section, figures, tables))
            findings += [(experiment, finding) for finding in experiment.findings(rows)] if rows else []
        for figure in figures:
            files += save_figure(figure, root)
    machine: dict[str, str] = {}
    for name in dict.fromkeys(name for section in sections for name in section.machine):
        machine[name] = ", ".join(dict.fromkeys(s.machine[name] for s in sections if name in s.machine))
    links = "".join(f'<li><a href="#{s.experiment.name}">{_text(s.experiment.title)}</a></li>' for s in sections)
    page = root / "report.html"
    with atomic_write(page) as stream:
        stream.write(
            Template(_PAGE.read_text(encoding="utf-8")).substitute(
                light=page_colors(dark=False),
                dark=page_colors(dark=True),
                version=_text(__version__),
                rows=format_count(sum(len(section.rows) for section in sections), "row"),
                when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                links=links,
                findings=_findings_html(findings),
                sections="".join(parts),
                machine=_facts_html(machine),
            )
        )
    return page, tuple(files)


def _findings_html(findings: Sequence[tuple[Experiment, Finding]]) -> str:
    if not findings:
        return ""
    cards = "".join(
        f'<li class="finding {finding.kind.replace(" ", "-")}"><span class="verdict">{_text(finding.label)}</span>'
        f'<p class="claim">{_text(finding.claim)}</p><p>{_text(finding.evidence)} '
        f'<a href="#{experiment.name}">{_text(experiment.title)}</a></p></li>'
        for experiment, finding in findings
    )
    counts = Counter(finding.kind for _, finding in findings)
    hints = counts.pop("hint", 0)
    kinds = [f"{count} {kind}" for kind, count in counts.items()] + [format_count(hints, "hint")] * bool(hints)
    return (
        '<section id="findings"><h2>What the paper found</h2>'
        f'<p class="quiet">{", ".join(kinds)}. Verdicts are computed from the rows by fixed rules; those from few '
        "trials are called hints.</p>"
        f'<ul class="findings">{cards}</ul></section>'
    )


def _section_html(section: _Section, figures: Sequence[Figure], tables: Sequence[Table]) -> str:
    experiment, rows = section.experiment, section.rows
    parts = [f'<section id="{experiment.name}"><h2>{_text(experiment.title)}</h2><p>{_text(experiment.summary)}</p>']
    if len(rows) < section.planned:
        note = f"Not complete: {len(rows):,} of {section.planned:,} rows. Run it again to go on."
        parts.append(f'<p class="note">{note}</p>')
    if failed := [row for row in rows if row["failure"] is not None]:
        lines = (f"{row['method']}, trial {row['trial']}: {row['failure']}" for row in failed[:_MOST_FAILURES])
        items = "".join(f"<li>{_text(line)}</li>" for line in lines)
        message = f"{format_count(len(failed), 'row')} failed, and averages are over the others:"
        parts.append(f'<div class="note"><p>{message}</p><ul>{items}</ul></div>')
    parts += [_figure_html(figure) for figure in figures]
    # Without a figure the table is what the experiment is about.
    parts += [_table_html(table, folded=bool(figures)) for table in tables]
    return "".join(parts) + _settings_html(section) + "</section>"


def _figure_html(figure: Figure) -> str:
    pictures = figure.has_pictures
    cells = []
    for panel, graphic in zip(figure.panels, inline_graphics(figure), strict=True):
        label = f'<span class="label">{_text(panel.title)}</span>' if pictures else ""
        cells.append(f'<div class="panel">{graphic}{label}</div>')
    legend = "".join(f"<li>{drawing}{_text(label)}</li>" for drawing, label in legend_graphics(figure))
    kind = "pictures" if pictures else "single" if len(cells) == 1 else "panels"
    files = ", ".join(f"{figure.name}.{suffix}" for suffix in ("svg", "png", *(["csv"] if figure.methods else [])))
    return (
        f'<figure id="figure-{figure.name}"><h3>{_text(figure.title)}</h3>'
        + (f'<ul class="legend">{legend}</ul>' if legend else "")
        + f'<div class="{kind}">{"".join(cells)}</div><figcaption>{_text(figure.caption)} '
        f'<span class="quiet">Files: {files}.</span></figcaption></figure>'
    )


def _table_html(table: Table, *, folded: bool) -> str:
    head = "".join(f'<th scope="col">{_text(column)}</th>' for column in table.columns)
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    scroll = (
        f'<div class="scroll" tabindex="0"><table><caption>{_text(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    if folded:
        return f"<details><summary>Table: {_text(table.title)}</summary>{scroll}</details>"
    return f"<h3>{_text(table.title)}</h3>{scroll}"


def _settings_html(section: _Section) -> str:
    settings, rows = section.settings, section.rows
    hours = sum(row["seconds"].get("total", 0.0) for row in rows) / 3600.0
    # One truth serves all methods of an instance.
    truths = {(str(row["parameters"]), row["trial"]): row["seconds"].get("truth", 0.0) for row in rows}
    facts: dict[str, object] = {
        "Trials": len({row["trial"] for row in rows}),
        "Quick": "yes" if settings.quick else "no",
        "Seed": settings.seed,
        "Rows": f"{len(rows):,}",
        "Processor time": f"{hours + sum(truths.values()) / 3600.0:.2f} hours",
        "Started": section.started,
    }
    if settings.images is not None:
        facts["Photographs"] = Path(settings.images).name
    calls = {
        call.name: ", ".join(f"{name}={value}" for name, value in call.options.items()) or "defaults"
        for call in section.experiment.calls(settings)
    }
    return (
        f'<details class="settings"><summary>Settings</summary>{_facts_html(facts)}'
        f"<h4>Methods and their options</h4>{_facts_html(calls)}</details>"
    )


def _facts_html(facts: Mapping[str, object]) -> str:
    return f"<dl>{''.join(f'<dt>{_text(name)}</dt><dd>{_text(value)}</dd>' for name, value in facts.items())}</dl>"


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
