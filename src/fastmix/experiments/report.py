"""The report: figures as files, and one page with everything in it that needs nothing else."""

from __future__ import annotations

import contextlib
import html
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template

from fastmix import __version__
from fastmix.errors import FormatError
from fastmix.experiments.figures import Figure, Table, format_count
from fastmix.experiments.findings import Finding
from fastmix.experiments.journal import Journal, completed_rows, read_settings
from fastmix.experiments.plan import Experiment, Row, Settings
from fastmix.experiments.plotting import inline_graphics, legend_graphics, page_colours, save_figure
from fastmix.experiments.specs import EXPERIMENTS
from fastmix.io.files import atomic_write, display_name

__all__ = ["write_report"]

_MOST_FAILURES = 10  # shown on the page; all are in the files

# Readable on a phone, on paper, in light and in dark; nothing in it is loaded from elsewhere. Without the empty icon a
# browser would ask the network for one.
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Projecting for fast mixing: the experiments</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --page: #ffffff; --ink: #1f2933; --quiet: #5b6673; --line: #d5dae1; --card: #f5f7f9;
  --link: #0b5cad; --good: #0a6b4b; --bad: #a8340c; --open: #6b5900; $light }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e6eaee; --quiet: #a3aebb; --line: #38424d;
  --card: #1d232a; --link: #7db8f5; --good: #4ed3a4; --bad: #ff9a6b; --open: #e0c84a; $dark } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem .9rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3, h4 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p, figcaption { margin: .5rem 0; max-width: 46rem; }
a, summary { color: var(--link); }
.quiet, .label, figcaption, caption, dt { color: var(--quiet); font-size: .9rem; }
nav ul, .legend, .findings { list-style: none; margin: .75rem 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: .4rem .8rem; font-size: .9rem; }
nav a, .finding, .note { padding: .4rem .8rem; border: 1px solid var(--line); border-radius: .5rem;
  background: var(--card); text-decoration: none; }
.findings, .panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.panels, .pictures { gap: .75rem; }
nav a { display: block; }
.finding, .note { border-left: .3rem solid var(--tone, var(--open)); }
.finding.reproduced { --tone: var(--good); } .finding.not-reproduced { --tone: var(--bad); }
.verdict { color: var(--tone, var(--open)); font-weight: 650; }
.claim { font-weight: 550; }
figure { margin: 1.25rem 0 1.5rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.swatch { width: 2.1rem; flex: none; }
.single { max-width: 42rem; } .panels .panel { max-width: 36rem; }
.panel svg, .panel img { display: block; width: 100%; height: auto; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(46%, 9.5rem), 1fr)); }
.pictures img { image-rendering: pixelated; border: 1px solid var(--line); }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th[scope="row"], thead th:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .25rem 1rem; font-size: .9rem; }
dd { margin: 0; min-width: 0; }
@media (max-width: 40rem) { tbody th[scope="row"] { white-space: normal; min-width: 7.5rem; max-width: 9rem; } }
@media print { nav, summary { display: none; } details { display: block; } .panel, .finding { break-inside: avoid; } }
</style>
</head>
<body>
<header>
<h1>Projecting for fast mixing: the experiments</h1>
<p>Every figure and table of Liu and Domke, <cite>Projecting Markov Random Field Parameters for Fast Mixing</cite>
(NIPS 2014), run again with fastmix $version. Errors are mean differences of marginal probabilities, so smaller is
better; bars are one standard error over trials.</p>
<p class="quiet">$rows, page written $when.</p>
<nav aria-label="Experiments"><ul>$links</ul></nav>
</header>
$findings
$sections
<section id="machine"><h2>Machine</h2>$machine</section>
</body>
</html>
""")


@dataclass(frozen=True)
class _Section:
    experiment: Experiment
    settings: Settings
    machine: Mapping[str, str]
    started: str
    rows: Sequence[Row]


def write_report(folder: str | os.PathLike[str]) -> tuple[Path, tuple[Path, ...]]:
    """Write ``report.html`` and the figures (SVG, PNG and for curves CSV) of every experiment that was run in a folder.

    The page and the files of the figures come back. A ValueError if there is nothing to report on, a
    :class:`FormatError` if the folder holds files with the names of ours that are not ours.
    """
    root = Path(folder)
    sections = [
        _Section(experiment, *facts, completed_rows(root, experiment, facts[0]))
        for experiment in EXPERIMENTS.values()
        if (facts := read_settings(root, experiment)) is not None
    ]
    if not sections:
        raise ValueError(f"output must be the folder of an experiment that has been run, got {os.fspath(folder)!r}")
    files: list[Path] = []
    parts, findings = [], []
    for section in sections:
        experiment, settings, rows = section.experiment, section.settings, section.rows
        with _blaming_rows(root, experiment):
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
            _PAGE.substitute(
                light=page_colours(dark=False),
                dark=page_colours(dark=True),
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


@contextlib.contextmanager
def _blaming_rows(root: Path, experiment: Experiment) -> Iterator[None]:
    """Rows that cannot be shown are not those that this experiment wrote, whatever their keys say."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        path, reason = Journal(root, experiment.name).path, f"{type(error).__name__}: {error}"
        raise FormatError(f"{display_name(path)}: not the rows of this experiment ({reason})") from error


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
    with contextlib.suppress(OSError, ImportError, ValueError):  # the photographs may be gone
        planned = sum(len(case.calls) for case in experiment.cases(section.settings))
        if len(rows) < planned:
            note = f"Not complete: {len(rows):,} of {planned:,} rows. Run it again to go on."
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
