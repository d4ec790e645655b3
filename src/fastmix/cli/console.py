"""What the command line shows: data on stdout, messages on stderr, and the exit codes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from fastmix._clock import plain_console
from fastmix.errors import BadFileError, FastmixError, FormatError, NotConvergedError, printable, shortened
from fastmix.io import write_answer, write_mar, write_model, write_mpe
from fastmix.io.answers import answer_suffix, json_text, missing_answer
from fastmix.io.bif import write_bif
from fastmix.io.files import display_name
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fastmix.bounds import BracketResult
    from fastmix.methods.comparison import Comparison
    from fastmix.methods.most_probable import MostProbableResult
    from fastmix.methods.sample_result import SampleResult
    from fastmix.results import DrawResult, InferenceResult
    from fastmix.theory.certificates import Certificate

__all__ = [
    "abandon", "emit_json", "explain", "explain_status", "finish", "flush_stderr", "message", "readable", "save_model",
    "say",
    "show_batch", "show_bracket", "show_certificate", "show_comparison", "show_facts", "show_marginals",
    "show_most_probable", "show_sampling", "workers",
]  # fmt: skip

_ROWS = 25  # variables shown on a terminal before the rest is only counted


def message(text: str) -> None:
    """One line on stderr, after the data: if those cannot be written, there is nothing else to say."""
    sys.stdout.flush()
    say(f"fastmix: {shortened(printable(text))}")


def say(text: str) -> None:
    """A line on stderr; one that cannot be written (a full disk, a reader that has left) changes nothing else."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        abandon(sys.stderr)


def flush_stderr() -> None:
    """What others have written to stderr, where it can be: Python's last flush must not change the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        abandon(sys.stderr)


def abandon(stream: Any) -> None:
    """What is still to be written to a stream goes nowhere, so that Python's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):  # a stand-in has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print(
    rows: Iterable[Sequence[str]], headings: Sequence[str] = (), *, title: str = "", num_texts: int, wide: bool = False
) -> None:
    """A table on stdout after its title; the first columns are texts and the others numbers, set to the right."""
    from rich.table import Table

    console = plain_console()
    console.width = 10_000 if wide and not sys.stdout.isatty() else console.width
    table = Table(show_header=bool(headings), box=None, padding=(0, 2, 0, 0))
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="left" if k < num_texts else "right", no_wrap=wide)
    for row in rows:
        table.add_row(*map(printable, row))
    if title:
        console.print(printable(title), soft_wrap=True)  # a long path stays on one line
    console.print(table)


def explain(error: BaseException) -> tuple[str, int] | None:
    """What to say about an exception, and the exit code: 1 interrupted or not converged, 2 refused, 3 a bad file.

    None for what no command is known to raise.
    """
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "interrupted", 1
    if isinstance(error, BadFileError | FormatError):
        return str(error), 3
    if isinstance(error, NotConvergedError):
        return str(error), 1
    if isinstance(error, OSError):
        return f"{printable(os.fsdecode(error.filename or 'output'))}: {error.strerror or error}", 2
    if isinstance(error, FastmixError | ValueError | MemoryError | ImportError):
        return str(error) or type(error).__name__, 2
    if hasattr(error, "format_message"):  # a usage error of the parser
        return f"{error.format_message()} (fastmix --help shows how)", 2
    return None


@contextlib.contextmanager
def workers(cluster: str | None, num_workers: int | None, method: str = "gibbs") -> Iterator[Executor | None]:
    """The executor that ``--cluster`` or ``--num-workers`` stands for; None without either."""
    from fastmix import executors
    from fastmix.methods.base import find_method

    if cluster is not None and num_workers is not None:
        raise ValueError(f"--num-workers must not come with --cluster, which has its own, got {num_workers}")
    if not cluster is num_workers is None and not find_method(method).shares:
        name = "--num-workers" if cluster is None else "--cluster"
        raise ValueError(
            f"{name} must come with several models to infer, or a method that has chains (gibbs, swendsen-wang, "
            f"tempered), got one model and {method}"
        )
    if num_workers is not None:
        with executors.processes(num_workers) as executor:
            yield executor
    elif cluster is None:
        yield None
    else:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # Dask logs tracebacks when a scheduler dies: commands say what it means
        try:
            with executors.cluster(cluster) as executor:
                yield executor
        finally:
            logging.disable(before)


def save_model(model: MarkovRandomField | BayesianNetwork, output: str | None, as_json: bool) -> None:
    """Write a model, or a network as BIF, with notes on what its format lost; to stdout unless JSON goes there."""
    if output is None and as_json:
        return
    path = "-" if output is None else output
    for note in write_bif(model, path) if isinstance(model, BayesianNetwork) else write_model(model, path):
        message(f"note: {note}")


def emit_json(
    data: Mapping[str, Any], model: MarkovRandomField | None = None, evidence: Mapping[int, int] | None = None
) -> None:
    """One JSON object on stdout; with the names and evidence of a model that the data are about."""
    if model is not None:
        names, states = model.variable_names, model.state_names
        observed = {str(variable): state for variable, state in (evidence or {}).items()}
        data = {**data, "variable_names": names, "state_names": states, "evidence": observed}
    sys.stdout.write(json_text(data))


def finish(
    result: Any,
    as_json: bool,
    show: Callable[[], object],
    about: Sequence[Any] = (),
    *,
    outputs: Sequence[str] = (),
    plain: str = ".mar",
    checkpoint: str | None = None,
    tell: bool = True,
    notes: Sequence[str] = (),
    **facts: Any,
) -> None:
    """An answer as JSON, or as ``show`` shows it; exit code 1, and why unless ``show`` tells, where it is not trusted.

    JSON has the names of the model and the evidence in ``about``, and further facts. What goes into files, ``plain``
    what that is on stdout, is not shown. The checkpoint of a run that is over goes.
    """
    for path in outputs:
        missing = missing_answer(result, plain if path == "-" else answer_suffix(path, name="-o"))
        if missing is None:
            write_answer(result, path, plain)
        else:
            message(f"{display_name(path)} is not written: {missing}")
    if as_json:
        emit_json({**result.to_dict(), **facts}, *about)
    elif outputs:
        _tell_guarantee(result)
    else:
        show()
    for note in notes:
        message(note)
    if checkpoint is not None and result.stats["stopped_by"] not in ("interrupt", "time_limit"):
        sys.stdout.flush()  # the answer may be there
        with contextlib.suppress(FileNotFoundError):
            os.remove(checkpoint)
    backend = str(getattr(result, "stats", {}).get("backend", ""))
    if "this process went on" in backend:
        message(backend.removeprefix("cpu (").removesuffix(")"))
    if result.status != "ok":
        if tell:
            message(f"status {result.status}: {explain_status(result)}")
        raise typer.Exit(1)


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """A line with the title and a two-column table on stdout."""
    _print(facts.items(), title=title, num_texts=2)


def readable(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as texts, those that are known; without stats and provenance, which are for JSON."""
    known = {name: value for name, value in facts.items() if name not in ("stats", "provenance") and value is not None}
    return {name.replace("_", " "): _text(value) for name, value in known.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " to ".join(map(_text, sorted(set(value))))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def show_certificate(title: str, certificate: Certificate) -> None:
    """What a certificate says, as a table on stdout."""
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


def show_bracket(result: BracketResult) -> None:
    """Bounds on stdout, a line for every state of every variable; those on log Z and the rest go to stderr."""
    bounds = zip(result.marginals_lower or (), result.marginals_upper or (), strict=True)
    for i, (low, high) in enumerate(bounds):
        for a, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            print(f"{i} {a} {least:.6g} {most:.6g}")
    _tell_bracket(result)


def _tell_bracket(result: BracketResult) -> None:
    held = "proven" if result.confidence is None else f"with confidence {result.confidence:g}"
    how = "exact" if result.exact else f"lower by {result.methods['lower']}, upper by {result.methods['upper']}"
    bounds = f"{result.log_z_lower:.8g} <= log Z <= {result.log_z_upper:.8g}"
    if result.log_z_kind == "zero":
        bounds = f"Z = 0: {result.stats['reason']}"
    message(f"bracket: {bounds} ({held}; {how}), {result.stats['seconds']:.3g} s")


def show_marginals(result: InferenceResult) -> None:
    """Marginals on stdout: a table for a terminal, MAR text for a pipe; the summary goes to stderr."""
    if result.log_z_kind == "zero":
        pass
    elif sys.stdout.isatty():
        _marginal_table(result)
    else:
        write_mar(result.marginals, "-")
    log_z = "" if result.log_z is None else f", log Z = {result.log_z:.6f}"
    if result.log_z_kind == "zero":
        log_z = ", Z = 0 (proven): there are no marginals"
    seconds = result.stats.get("seconds")
    message(f"method {result.method}, status {result.status}{log_z}, {seconds:.3g} s")
    if result.stats.get("reason"):
        message(f"reason: {result.stats['reason']}")
    _tell_guarantee(result)
    if result.bracket is not None:
        _tell_bracket(result.bracket)


def _tell_guarantee(result: Any) -> None:
    """What is known about the answer, on stderr, whether it is shown or goes to files."""
    if result.stats.get("guarantee"):
        message(f"guarantee: {result.stats['guarantee']}")


def explain_status(result: Any) -> str:
    """What the status means, and what the diagnostics say beyond it."""
    note = str(getattr(result, "stats", {}).get("note") or "")
    advice = str(getattr(result, "advice", result.status.advice))
    for name in ("tol", "time_limit", "max_iter", "num_chains"):  # as they are typed
        advice = re.sub(rf"\b{name}\b", f"--{name.replace('_', '-')}", advice)
    return f"{advice} {note[:1].upper()}{note[1:]}".strip()


def _marginal_table(result: InferenceResult) -> None:
    states = result.model.names_of_states()
    rows = []
    for i, vector in enumerate(result.marginals[:_ROWS]):
        shown = "  ".join(f"{p:.4f}" for p in vector[:8]) + ("  ..." if len(vector) > 8 else "")
        rows.append((states[i][int(vector.argmax())], shown))
    _variable_table(result.model, ("most probable", "probability of each state"), rows, "-o FILE.MAR")


def _variable_table(
    model: MarkovRandomField, headings: Sequence[str], rows: Sequence[Sequence[str]], option: str
) -> None:
    """A row for each of the first variables, on a terminal; and how many more there are."""
    named = [(name, *row) for name, row in zip(model.names_of_variables(), rows, strict=False)]
    _print(named, ("variable", *headings), num_texts=3)
    if model.num_variables > _ROWS:
        message(f"{model.num_variables - _ROWS:,} more variables: {option} or --json gives all of them")


def show_most_probable(result: MostProbableResult) -> None:
    """States on stdout: a table for a terminal, MPE text for a pipe; the summary goes to stderr."""
    if sys.stdout.isatty():
        rows = [(name,) for name in result.state_names[:_ROWS]]
        _variable_table(result.model, ("state",), rows, "-o FILE.MPE")
    else:
        write_mpe(result.states, "-")
    gap = "exact" if result.exact else f"at most {result.gap:.4g} below the best"
    seconds = result.stats["seconds"]
    message(
        f"method {result.method}, status {result.status}, log-weight {result.log_weight:.8g} ({gap}), {seconds:.3g} s"
    )


def show_batch(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row for every file of a batch, as a table on stdout."""
    table: list[Sequence[str]] = [
        (display_name(row["file"]), row["method"] or "-", row["status"], _short(row["log_z"], ".6f"),
         _short(row["seconds"], ".2f"))
        for row in rows
    ]  # fmt: skip
    headings = ["file", "method", "status", "log Z", "seconds"]
    if any(row["evidence"] for row in rows):
        headings.append("evidence")
        named = ["-" if row["evidence"] is None else display_name(row["evidence"]) for row in rows]
        table = [(*cells, name) for cells, name in zip(table, named, strict=True)]
    _print(table, headings, num_texts=3, wide=True)


def show_sampling(title: str, result: SampleResult | DrawResult) -> None:
    """What a run of chains, or exact draws, gave and cost, as a table on stdout."""
    from fastmix.results import DrawResult

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
        facts["largest R-hat"] = float(result.r_hat.max(initial=1.0))
    facts |= {"updates_per_second": float(stats["updates_per_second"]), "seed": str(result.provenance["seed"])}
    show_facts(title, readable(facts))


def show_comparison(title: str, comparison: Comparison) -> None:
    """A row for every method, as a table on stdout."""
    table = [
        (row.method, row.status, *map(_short, (row.mean_error, row.max_error, row.std_error)),
         _short(row.log_z, ".4f"), f"{row.seconds:.2f}")
        for row in comparison.rows
    ]  # fmt: skip
    headings = ("method", "status", "mean error", "max error", "std error", "log Z", "seconds")
    against = comparison.reference or "nothing (no method can be trusted)"
    _print(table, headings, title=f"{title}: errors against {against}", num_texts=2)
    for row in comparison.rows:
        if row.status == "refused":
            message(f"{row.method} refused: {row.note}")
        elif row.projected_std_error is not None and row.std_error is None:
            own = f"standard errors of the projected model are up to {_short(row.projected_std_error)}"
            message(f"{row.method}: {own}; {row.note}")


def _short(value: float | None, digits: str = ".2g") -> str:
    return "-" if value is None else format(value, digits)
