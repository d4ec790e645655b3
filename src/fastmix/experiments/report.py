"""The report: figures as files, and one page with everything in it that needs nothing else."""

from __future__ import annotations

import contextlib
import html
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastmix import __version__
from fastmix.errors import FormatError
from fastmix.experiments.figures import Figure, Picture, Table
from fastmix.experiments.findings import Finding
from fastmix.experiments.journal import Journal
from fastmix.experiments.page import document
from fastmix.experiments.plan import Experiment, Row, Settings
from fastmix.experiments.plotting import inline_graphics, legend_entries, save_figure
from fastmix.experiments.registry import EXPERIMENTS
from fastmix.experiments.tables import format_count
from fastmix.io.files import atomic_write, display_name

__all__ = ["write_report"]

_MOST_FAILURES = 10  # shown on the page; all are in the files


@dataclass(frozen=True)
class _Section:
    experiment: Experiment
    settings: Settings
    machine: Mapping[str, str]
    started: str
    rows: Sequence[Row]

    @property
    def planned(self) -> int | None:
        try:
            return sum(len(task.calls) for task in self.experiment.tasks(self.settings))
        except (OSError, ImportError, ValueError):
            return None


def write_report(folder: str | os.PathLike[str]) -> tuple[Path, tuple[Path, ...]]:
    """Write ``report.html`` and the figures of every experiment that has been run into a folder.

    Parameters
    ----------
    folder : path
        That of :func:`fastmix.experiments.run_experiment`.

    Returns
    -------
    (Path, tuple of Path)
        The page, and the files of the figures: an SVG and a PNG each.

    Raises
    ------
    ValueError
        If there is nothing to report on.
    FormatError
        If the folder holds files with the names of ours that are not ours.
    """
    root = Path(folder)
    sections = _sections(root)
    if not sections:
        raise ValueError(f"output must be the folder of an experiment that has been run, got {os.fspath(folder)!r}")
    files: list[Path] = []
    parts = []
    findings = []
    for section in sections:
        with _blaming_rows(root, section.experiment):
            figures = section.experiment.figures(section.settings, section.rows) if section.rows else []
            figures = [figure for figure in figures if _has_content(figure)]
            parts.append(_section_html(section, figures))
            if section.rows:
                found = section.experiment.findings(section.settings, section.rows)
                findings += [(section.experiment, finding) for finding in found]
        for figure in figures:
            files += save_figure(figure, root)
    body = _head_html(sections) + _findings_html(findings) + "".join(parts) + _machine_html(sections)
    page = root / "report.html"
    with atomic_write(page) as stream:
        stream.write(document("Projecting for fast mixing: the experiments", body))
    return page, tuple(files)


def _sections(root: Path) -> list[_Section]:
    from fastmix.experiments.runner import completed_rows, read_settings

    found = []
    for experiment in EXPERIMENTS.values():
        facts = read_settings(root, experiment)
        if facts is not None:
            settings, machine, started = facts
            rows = completed_rows(root, experiment, settings)
            found.append(_Section(experiment, settings, machine, started, rows))
    return found


@contextlib.contextmanager
def _blaming_rows(root: Path, experiment: Experiment) -> Iterator[None]:
    """Rows that cannot be shown are not those that this experiment wrote, whatever their keys say."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        path, reason = Journal(root, experiment.name).path, f"{type(error).__name__}: {error}"
        raise FormatError(f"{display_name(path)}: not the rows of this experiment ({reason})") from error


def _has_content(figure: Figure) -> bool:
    return any(isinstance(panel, Picture) or panel.lines for panel in figure.panels)


def _head_html(sections: Sequence[_Section]) -> str:
    links = "".join(
        f'<li><a href="#{section.experiment.name}">{_text(section.experiment.title)}</a></li>' for section in sections
    )
    total = sum(len(section.rows) for section in sections)
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<header><h1>Projecting for fast mixing: the experiments</h1>"
        "<p>Every figure and table of Liu and Domke, <cite>Projecting Markov Random Field Parameters for Fast Mixing"
        f"</cite> (NIPS 2014), run again with fastmix {_text(__version__)}. Errors are mean differences of marginal "
        "probabilities, so smaller is better; bars are one standard error over trials.</p>"
        f'<p class="quiet">{format_count(total, "row")}, page written {when}.</p>'
        f"<nav aria-label='Experiments'><ul>{links}</ul></nav></header>"
    )


def _findings_html(findings: Sequence[tuple[Experiment, Finding]]) -> str:
    if not findings:
        return ""
    cards = []
    for experiment, finding in findings:
        kind = finding.verdict.replace(" ", "-")
        cards.append(
            f'<li class="finding {kind}"><span class="verdict">{_text(finding.verdict)}</span>'
            f'<p class="claim">{_text(finding.claim)}</p><p>{_text(finding.evidence)} '
            f'<a href="#{experiment.name}">{_text(experiment.title)}</a></p></li>'
        )
    counts = Counter(finding.verdict for _, finding in findings)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return (
        '<section id="findings"><h2>What the paper found</h2>'
        f'<p class="quiet">{summary}. Verdicts are computed from the rows by fixed rules.</p>'
        f'<ul class="findings">{"".join(cards)}</ul></section>'
    )


def _section_html(section: _Section, figures: Sequence[Figure]) -> str:
    experiment = section.experiment
    parts = [f'<section id="{experiment.name}"><h2>{_text(experiment.title)}</h2><p>{_text(experiment.summary)}</p>']
    planned = section.planned
    if planned is not None and len(section.rows) < planned:
        parts.append(
            f'<p class="note">Not complete: {len(section.rows):,} of {planned:,} rows. Run it again to go on.</p>'
        )
    parts.append(_failures_html(section.rows))
    parts += [_figure_html(figure) for figure in figures]
    if section.rows:
        tables = experiment.tables(section.settings, section.rows)
        # Without a figure the table is what the experiment is about.
        parts += [_table_html(table, folded=bool(figures)) for table in tables if table.rows]
    parts.append(_settings_html(section))
    return "".join(parts) + "</section>"


def _figure_html(figure: Figure) -> str:
    pictures = all(isinstance(panel, Picture) for panel in figure.panels)
    cells = []
    for panel, graphic in zip(figure.panels, inline_graphics(figure), strict=True):
        label = f'<span class="label">{_text(panel.title)}</span>' if pictures else ""
        cells.append(f'<div class="panel">{graphic}{label}</div>')
    legend = "".join(f"<li>{drawing}{_text(label)}</li>" for drawing, label in legend_entries(figure.methods))
    kind = "pictures" if pictures else "single" if len(cells) == 1 else "panels"
    return (
        f'<figure id="figure-{figure.name}"><h3>{_text(figure.title)}</h3>'
        + (f'<ul class="legend">{legend}</ul>' if legend else "")
        + f'<div class="{kind}">{"".join(cells)}</div><figcaption>{_text(figure.caption)} '
        f'<span class="quiet">Files: {", ".join(_files_of(figure))}.</span></figcaption></figure>'
    )


def _files_of(figure: Figure) -> list[str]:
    return [f"{figure.name}.{kind}" for kind in ("svg", "png", *(["csv"] if figure.methods else []))]


def _table_html(table: Table, *, folded: bool) -> str:
    head = "".join(f'<th scope="col">{_text(column)}</th>' for column in table.columns)
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    caption = f"<caption>{_text(table.caption)}</caption>"
    table_html = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    scroll = f'<div class="scroll" tabindex="0">{table_html}</div>'
    if folded:
        return f"<details><summary>Table: {_text(table.title)}</summary>{scroll}</details>"
    return f"<h3>{_text(table.title)}</h3>{scroll}"


def _failures_html(rows: Iterable[Row]) -> str:
    failed = [row for row in rows if row["failure"] is not None]
    if not failed:
        return ""
    lines = "".join(
        f"<li>{_text(row['method'])}, trial {_text(row['trial'])}: {_text(row['failure'])}</li>"
        for row in failed[:_MOST_FAILURES]
    )
    message = f"{format_count(len(failed), 'row')} failed, and averages are over the others:"
    return f'<div class="note"><p>{message}</p><ul>{lines}</ul></div>'


def _settings_html(section: _Section) -> str:
    settings = section.settings
    trials = len({row["trial"] for row in section.rows})
    facts: dict[str, Any] = {
        "Trials": trials,
        "Quick": "yes" if settings.quick else "no",
        "Seed": settings.seed,
        "Rows": f"{len(section.rows):,}",
        "Processor time": f"{_processor_hours(section.rows):.2f} hours",
        "Started": section.started,
    }
    if settings.images is not None:
        facts["Photographs"] = Path(settings.images).name
    facts_html = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items())
    calls = settings.chosen(section.experiment.calls(settings))
    options = "".join(
        f"<dt>{_text(call.name)}</dt><dd><code>{_text(_options(call.options))}</code></dd>" for call in calls
    )
    return (
        f'<details class="settings"><summary>Settings</summary><dl>{facts_html}</dl>'
        f"<h4>Methods and their options</h4><dl>{options}</dl></details>"
    )


def _machine_html(sections: Sequence[_Section]) -> str:
    facts: dict[str, list[str]] = {}
    for section in sections:
        for name, value in section.machine.items():
            facts.setdefault(name, [])
            if value not in facts[name]:
                facts[name].append(value)
    lines = "".join(f"<dt>{_text(name)}</dt><dd>{_text(', '.join(values))}</dd>" for name, values in facts.items())
    return f'<section id="machine"><h2>Machine</h2><dl>{lines}</dl></section>'


def _processor_hours(rows: Iterable[Row]) -> float:
    total = 0.0
    truths: dict[tuple[str, int], float] = {}
    for row in rows:
        total += row["seconds"].get("total", 0.0)
        truths[str(sorted(row["parameters"].items())), row["trial"]] = row["seconds"].get("truth", 0.0)
    return (total + sum(truths.values())) / 3600.0


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "defaults"


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
