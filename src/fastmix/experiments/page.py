"""The frame of the report: style sheet and document, readable on a phone, on paper, in light and in dark."""

from __future__ import annotations

import html

from fastmix.experiments.plotting import page_colour_rules

__all__ = ["document"]

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1f2933; --quiet: #5b6673; --line: #d5dae1; --card: #f5f7f9;
  --link: #0b5cad; --good: #0a6b4b; --bad: #a8340c; --open: #6b5900; LIGHT }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e6eaee; --quiet: #a3aebb; --line: #38424d;
  --card: #1d232a; --link: #7db8f5; --good: #4ed3a4; --bad: #ff9a6b; --open: #e0c84a; DARK } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0 auto; max-width: 72rem; padding: 1.25rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 1rem; text-wrap: balance; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.75rem 0 .5rem; }
h4 { font-size: .92rem; margin: 1rem 0 .25rem; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--link); }
.quiet, figcaption, caption { color: var(--quiet); font-size: .9rem; }
nav ul, .legend, .findings { list-style: none; margin: .75rem 0; padding: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .4rem .5rem; }
nav a { display: block; padding: .35rem .7rem; border: 1px solid var(--line); border-radius: .5rem;
  background: var(--card); text-decoration: none; font-size: .9rem; }
.findings { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
.finding { padding: .8rem 1rem; border: 1px solid var(--line); border-left: .3rem solid var(--tone);
  border-radius: .5rem; background: var(--card); font-size: .92rem; }
.finding.reproduced { --tone: var(--good); } .finding.not-reproduced { --tone: var(--bad); }
.finding.undecided { --tone: var(--open); }
.verdict { color: var(--tone); font-weight: 650; }
.claim { font-weight: 550; }
figure { margin: 1.25rem 0 1.5rem; }
figcaption { max-width: 46rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .88rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.swatch { width: 2.1rem; height: .75rem; flex: none; }
.panels { display: grid; gap: .5rem 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.single { max-width: 42rem; }
.panel svg { display: block; width: 100%; height: auto; }
.panels .panel { max-width: 36rem; }
.pictures { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(min(46%, 9.5rem), 1fr)); }
.pictures img { display: block; width: 100%; height: auto; image-rendering: pixelated; border: 1px solid var(--line); }
.label { display: block; font-size: .8rem; color: var(--quiet); margin-top: .2rem; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; caption-side: top; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th[scope="row"], thead th:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
thead th { font-weight: 600; color: var(--quiet); }
tbody th { font-weight: 500; }
details { margin: .5rem 0; }
summary { cursor: pointer; padding: .25rem 0; color: var(--link); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .25rem 1rem;
  font-size: .9rem; margin: .5rem 0; }
dt { color: var(--quiet); } dd { margin: 0; min-width: 0; }
code { font: .85em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.note { border-left: .3rem solid var(--open); background: var(--card); padding: .5rem 1rem; border-radius: .4rem;
  font-size: .92rem; }
@media (max-width: 40rem) { body { padding: .75rem .8rem 3rem; } h1 { font-size: 1.4rem; }
  tbody th[scope="row"] { white-space: normal; min-width: 7.5rem; max-width: 9rem; } }
@media print { nav, summary { display: none; } details { display: block; } .panel, .finding { break-inside: avoid; } }
"""


def document(title: str, body: str) -> str:
    """A whole page: nothing in it is loaded from elsewhere.

    Examples
    --------
    >>> document("Title", "<p>Text</p>").startswith("<!doctype html>")
    True
    """
    style = _STYLE.replace("LIGHT", page_colour_rules(dark=False)).replace("DARK", page_colour_rules(dark=True))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        '<link rel="icon" href="data:,">\n'  # no icon: a browser would ask the network for one
        f"<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
