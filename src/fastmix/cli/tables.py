"""What the commands show of their results: a table on stdout, and a summary of one or two lines on stderr.

The table is the same in a terminal and in a pipe, with the names of variables and states; a terminal shows the first
variables only. ``--format`` gives the bare numbers of the UAI formats, or csv, in place of the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastmix._clock import plain_console
from fastmix.cli.console import message, tell_guarantee
from fastmix.cli.tuning import MAX_SHOWN_STATES, MAX_SHOWN_VARIABLES, PIPED_TABLE_COLUMNS
from fastmix.errors import printable
from fastmix.io import write_answer
from fastmix.io.answers import missing_answer
from fastmix.io.files import display_name

if TYPE_CHECKING:
    from fastmix.bounds.bracket import BracketResult
    from fastmix.inference.compare import Comparison
    from fastmix.marginals import DrawResult, InferenceResult
    from fastmix.model import MarkovRandomField
    from fastmix.modes.most_probable import MostProbableResult
    from fastmix.sampling.results import SampleResult
    from fastmix.theory.certificate import Certificate

__all__ = [
    "readable",
    "show_batch",
    "show_bracket",
    "show_certificate",
    "show_comparison",
    "show_facts",
    "show_marginals",
    "show_most_probable",
    "show_sampling",
]

# -- tables -----------------------------------------------------------------------------------------------------------


def print_table(
    rows: Iterable[Sequence[str]], headings: Sequence[str] = (), *, title: str = "", num_texts: int, wide: bool = False
) -> None:
    """Print a small table on stdout after its title; the first columns are texts, the others numbers set to the right.

    A ``wide`` table keeps its lines whole where they go to a pipe.
    """
    from rich.table import Table

    console = plain_console()
    if wide and not sys.stdout.isatty():
        console.width = PIPED_TABLE_COLUMNS
    table = Table(show_header=bool(headings), box=None, padding=(0, 2, 0, 0))
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="left" if k < num_texts else "right", no_wrap=wide)
    for row in rows:
        table.add_row(*map(printable, row))
    if title:
        console.print(printable(title), soft_wrap=True)  # a long path stays on one line
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())  # nothing to copy but text


def print_columns(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of texts on stdout, which can have millions of lines; columns are two spaces apart."""
    from rich.cells import cell_len

    lines = [tuple(headings), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """A line with the title and a two-column table on stdout."""
    print_table(facts.items(), title=title, num_texts=2)


def readable(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as texts, those that are known; without names, stats and provenance, which are for JSON.

    Advice is left out, too: where it is needed :func:`fastmix.cli.console.finish` gives it on stderr.
    """
    left_out = ("type", "advice", "variable_names", "state_names", "evidence", "stats", "provenance")
    known = {name: value for name, value in facts.items() if name not in left_out and value is not None}
    return {name.replace("_", " "): _text(value) for name, value in known.items()}


def _text(value: Any) -> str:
    """A value of a fact as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " to ".join(map(_text, sorted(set(value))))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _short(value: float | None, digits: str = ".2g") -> str:
    """A number as short text; a dash where there is none."""
    return "-" if value is None else format(value, digits)


# -- answers about all variables --------------------------------------------------------------------------------------


def show_marginals(result: InferenceResult, form: str = "table") -> None:
    """Marginals on stdout as a table, ``mar`` or ``csv``; the summary goes to stderr."""
    is_zero = result.log_z_kind == "zero"
    if form != "table" and missing_answer(result, f".{form}") is None:
        write_answer(result, "-", f".{form}")
    elif form == "table" and not is_zero:
        _marginal_table(result)

    log_z = "" if result.log_z is None else f", log Z = {result.log_z:.6f}"
    if is_zero:
        log_z = ", Z = 0 (proven): there are no marginals"
    seconds = result.stats.get("seconds")
    message(f"method {result.method}, status {result.status}{log_z}, {seconds:.3g} s")
    if result.stats.get("reason"):
        message(f"reason: {result.stats['reason']}")
    tell_guarantee(result)
    if result.bracket is not None:
        _tell_bracket(result.bracket)


def _marginal_table(result: InferenceResult) -> None:
    """Print a line for each variable: its most probable state, and the probabilities of all states."""
    model = result.model
    states = model.names_of_states()
    num_shown = _num_shown(model)
    max_states = MAX_SHOWN_STATES if sys.stdout.isatty() else None
    rows = []
    for i, vector in enumerate(result.marginals[:num_shown]):
        shown = [f"{p:.6g}" for p in vector[:max_states].tolist()]
        if model.state_names is not None:
            shown = [f"{name} {p}" for name, p in zip(states[i], shown, strict=False)]
        if len(shown) < len(vector):
            shown.append("...")
        rows.append((states[i][int(vector.argmax())], "  ".join(shown)))
    _variable_table(model, ("most probable", "probability of each state"), rows, "-o FILE.MAR")


def show_most_probable(result: MostProbableResult, form: str = "table") -> None:
    """States on stdout as a table, ``mpe`` or ``csv``; the summary goes to stderr."""
    if form == "table":
        _state_table(result)
    else:
        write_answer(result, "-", f".{form}")
    gap = "exact" if result.exact else f"at most {result.gap:.4g} below the best"
    seconds = result.stats["seconds"]
    message(
        f"method {result.method}, status {result.status}, log-weight {result.log_weight:.8g} ({gap}), {seconds:.3g} s"
    )
    if len(result.solutions) > 1:
        gaps = zip(result.log_weights.tolist(), result.gaps.tolist(), strict=True)
        told = ", ".join(f"{weight:.8g}" + (f" (gap {gap:.3g})" if gap else "") for weight, gap in gaps)
        message(f"log-weights of {len(result.solutions)} solutions: {told}")


def _state_table(result: MostProbableResult) -> None:
    """Print a line for each variable that was asked for, with a column for every solution."""
    model = result.model
    names = model.names_of_variables()
    asked = range(model.num_shown) if result.variables is None else result.variables
    shown = list(asked)[: _num_shown(model)]
    states = result.named_solutions
    rows = [(names[v], *[of_one[v] for of_one in states]) for v in shown]
    headings = ["state"] if len(states) == 1 else [f"solution {number}" for number in range(len(states))]
    print_columns(("variable", *headings), rows)
    if len(shown) < len(asked):
        message(f"{len(asked) - len(shown):,} more variables: -o FILE.MPE or --json gives all of them")


def _num_shown(model: MarkovRandomField) -> int:
    """Number of variables that are shown: the first ones in a terminal, all in a pipe."""
    return min(model.num_variables, MAX_SHOWN_VARIABLES) if sys.stdout.isatty() else model.num_variables


def _variable_table(
    model: MarkovRandomField, headings: Sequence[str], rows: Sequence[Sequence[str]], option: str
) -> None:
    """Print a line for each of the first variables, and say which option gives the others."""
    names = model.names_of_variables()
    print_columns(("variable", *headings), [(name, *row) for name, row in zip(names, rows, strict=False)])
    if len(rows) < model.num_variables:
        message(f"{model.num_variables - len(rows):,} more variables: {option} or --json gives all of them")


def show_bracket(result: BracketResult) -> None:
    """Bounds on stdout, a line for every state of every variable; those on log Z and the rest go to stderr."""
    variables = result.model.names_of_variables()
    states = result.model.names_of_states()
    bounds = zip(result.marginals_lower or (), result.marginals_upper or (), strict=True)
    rows = []
    for i, (low, high) in enumerate(bounds):
        for a, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            rows.append((variables[i], states[i][a], f"{least:.6g}", f"{most:.6g}"))
    if rows:
        print_columns(("variable", "state", "lower", "upper"), rows)
    _tell_bracket(result)


def _tell_bracket(result: BracketResult) -> None:
    """Say on stderr what the bounds on log Z are, and how they were found."""
    held = "proven" if result.confidence is None else f"with confidence {result.confidence:g}"
    how = "exact" if result.exact else f"lower by {result.methods['lower']}, upper by {result.methods['upper']}"
    bounds = f"{result.log_z_lower:.8g} <= log Z <= {result.log_z_upper:.8g}"
    if result.log_z_kind == "zero":
        bounds = f"Z = 0: {result.stats['reason']}"
    message(f"bracket: {bounds} ({held}; {how}), {result.stats['seconds']:.3g} s")


# -- other results ----------------------------------------------------------------------------------------------------


def show_certificate(title: str, certificate: Certificate) -> None:
    """Print a certificate as a table."""
    names = (
        "certified criterion dependency norm norm_value width margin accuracy schedule num_sweeps max_bias num_updates"
    )
    facts: dict[str, Any] = {name: getattr(certificate, name) for name in names.split()}
    if not certificate.certified:
        strongest = ", ".join(f"{name} ({total:.3g})" for name, total in certificate.strongest[:5])
        facts |= {"max_bias": None, "strongest variables": strongest, "way out": certificate.advice}
    for other in certificate.others:
        reason = f"{other['num_updates']:,} updates" if other["certified"] else other["reason"]
        facts[f"by {other['criterion']}"] = reason
    show_facts(title, readable(facts))


def show_batch(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row for every file of a batch, as a table on stdout."""
    headings = ["file", "method", "status", "log Z", "seconds"]
    with_evidence = any(row["evidence"] for row in rows)
    if with_evidence:
        headings.append("evidence")
    table = []
    for row in rows:
        cells = [
            display_name(row["file"]),
            row["method"] or "-",
            row["status"],
            _short(row["log_z"], ".6f"),
            _short(row["seconds"], ".2f"),
        ]
        if with_evidence:
            cells.append("-" if row["evidence"] is None else display_name(row["evidence"]))
        table.append(cells)
    print_table(table, headings, num_texts=3, wide=True)


def show_sampling(title: str, result: SampleResult | DrawResult) -> None:
    """Print what a run of chains, or exact draws, gave and cost as a table."""
    from fastmix.marginals import DrawResult

    stats: Mapping[str, Any] = result.stats
    facts: dict[str, Any] = {"status": result.status}
    if isinstance(result, DrawResult):
        facts["samples"] = f"{len(result.states):,}, independent and exact"
        facts["why"] = getattr(result, "reason", stats.get("note"))
    else:
        facts |= {name: stats[name] for name in ("num_chains", "num_sweeps", "burn_in", "note")}
        facts["largest standard error"] = float(result.std_error.max(initial=0.0))
        if result.bias_bound is not None:
            facts["largest bias possible"] = float(result.bias_bound.max(initial=0.0))
        facts["smallest effective sample size"] = float(result.ess.min(initial=float("inf")))
        if stats["num_sweeps"] != 1:  # one sweep cannot be compared with others of its chain
            facts["largest R-hat"] = float(result.r_hat.max(initial=1.0))
        facts["guarantee"] = stats.get("guarantee")
    facts |= {"updates_per_second": float(stats["updates_per_second"]), "seed": str(result.provenance["seed"])}
    show_facts(title, readable(facts))


def show_comparison(title: str, comparison: Comparison) -> None:
    """A row for every method, as a table on stdout."""
    table = []
    for row in comparison.rows:
        errors = map(_short, (row.mean_error, row.max_error, row.std_error))
        table.append((row.method, row.status, *errors, _short(row.log_z, ".4f"), f"{row.seconds:.2f}"))
    headings = ("method", "status", "mean error", "max error", "std error", "log Z", "seconds")
    against = comparison.reference or "nothing (no method can be trusted)"
    print_table(table, headings, title=f"{title}: errors against {against}", num_texts=2)
    for row in comparison.rows:
        if row.status == "refused":
            message(f"{row.method} refused: {row.note}")
        elif row.projected_std_error is not None and row.std_error is None:
            own = f"standard errors of the projected model are up to {_short(row.projected_std_error)}"
            message(f"{row.method}: {own}; {row.note}")
