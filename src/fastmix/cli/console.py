"""What the command line shows: data on stdout, messages on stderr, and the exit codes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import (
    BadFileError,
    FormatError,
    ImpossibleEvidenceError,
    Interrupted,
    ModelError,
    printable,
)  # fmt: skip
from fastmix.io import (
    format_of,
    read_evidence,
    read_mar,
    read_model,
    read_model_or_network,
    write_mar,
    write_model,
    write_mpe,
)  # fmt: skip
from fastmix.io.answers import answer_suffix, json_text
from fastmix.io.bif import write_bif
from fastmix.io.files import atomic_write, check_folder, check_writable, decode_text, display_name, read_bytes
from fastmix.methods.perfect import PerfectSamples
from fastmix.methods.sample_result import SampleResult
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork
from fastmix.results import DrawResult, InferenceResult, Status
from fastmix.theory.certificates import Certificate

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rich.console import Console

    from fastmix.bounds import BracketResult
    from fastmix.learning import Dataset, LearnResult
    from fastmix.methods.comparison import Comparison
    from fastmix.methods.most_probable import MostProbableResult

__all__ = [
    "answering",
    "blaming_checkpoint",
    "blaming_input",
    "check_answers",
    "check_model_output",
    "check_output_folder",
    "check_outputs",
    "check_picture_name",
    "emit_json",
    "explain_status",
    "forget_checkpoint",
    "load",
    "load_edges",
    "load_marginals",
    "load_picture",
    "load_table",
    "load_whole_network",
    "message",
    "rows_told",
    "salvage",
    "save_model",
    "save_rows",
    "show_batch",
    "show_bracket",
    "show_certificate",
    "show_comparison",
    "show_facts",
    "show_marginals",
    "show_most_probable",
    "show_path",
    "show_sampling",
    "tell_lost",
    "workers",
]

T = TypeVar("T")

_ROWS = 25  # variables shown on a terminal before the rest is only counted
_LEAST_COLUMNS = 80  # of a table: with fewer, or none (COLUMNS=0), rich would cut numbers; terminals break lines


def message(text: str) -> None:
    """One line on stderr, after the data: if those cannot be written, there is nothing else to say."""
    sys.stdout.flush()
    print(f"fastmix: {printable(text)}", file=sys.stderr)


def _console(*, stderr: bool = False) -> Console:
    """A console that shows text as it is: brackets and colons in names mean nothing."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _LEAST_COLUMNS)
    return console


def salvage(call: Callable[[], T]) -> T:
    """What a call gives, or had when Ctrl-C ended it."""
    try:
        return call()
    except Interrupted as stop:
        if stop.result is None:
            raise
        return cast("T", stop.result)


@contextlib.contextmanager
def workers(cluster: str | None, num_workers: int | None) -> Iterator[Executor | None]:
    """The executor that ``--cluster`` or ``--num-workers`` stands for; None without either."""
    from fastmix import executors

    if cluster is not None and num_workers is not None:
        raise ValueError(f"--num-workers must not come with --cluster, which has its own, got {num_workers}")
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


def tell_lost(result: Any) -> None:
    """Say that workers were lost on the way to a result."""
    backend = str(getattr(result, "stats", {}).get("backend", ""))
    if "this process went on" in backend:
        message(backend.removeprefix("cpu (").removesuffix(")"))


def load(path: str, evidence_path: str | None = None) -> tuple[MarkovRandomField, dict[int, Any]]:
    """Model and evidence; anything wrong with files is a :class:`BadFileError`.

    Evidence is a UAI or JSON file, or, where there is no such file, pairs such as ``SAO2=LOW,BP=HIGH``. What is neither
    is a :class:`ValueError`, as is a name that the model does not have.
    """
    if path == evidence_path == "-":
        raise ValueError("MODEL and --evidence must not both be -: stdin holds one of them")
    given = evidence_path or ""
    typed = not os.path.exists(given) and given != "-" and "=" in given
    if evidence_path is not None and not (typed or os.path.exists(given) or _names_file(given)):
        raise ValueError(f"--evidence must be a file or pairs such as A=x,B=y, got {given!r}")
    if typed or _is_json(given):
        from fastmix.io.observations import number_observations, parse_observations, parse_observations_json

        with blaming_input(path):
            model = _reading(read_model, path)
        if typed:
            return model, parse_observations(given, model)
        with blaming_input(given):
            content = decode_text(_reading(read_bytes, given), display_name(given))
            pairs = parse_observations_json(content, display_name(given))
        return model, number_observations(pairs, model)
    with blaming_input(path, evidence_path):
        evidence = {} if evidence_path is None else _reading(read_evidence, evidence_path)
        model = _reading(partial(read_model, evidence=evidence or None), path)
        for variable, state in evidence.items():
            model.state_index(variable, state)
    return model, evidence


def _is_json(path: str) -> bool:
    with contextlib.suppress(ValueError):
        return answer_suffix(path) == ".json"
    return False


def _names_file(text: str) -> bool:
    """Whether a text that names no file can have been meant to: stdin, a folder in it, or the end of a file's name."""
    return text == "-" or "/" in text or os.sep in text or bool(re.search(r"\.[A-Za-z]\w*$", text))


def load_network(path: str) -> MarkovRandomField | BayesianNetwork:
    """The Bayesian network in a file, or the model of one that holds none."""
    with blaming_input(path):
        return _reading(read_model_or_network, path)


def load_whole_network(path: str) -> BayesianNetwork:
    """The Bayesian network in a file; a :class:`ValueError` if it holds none."""
    found = load_network(path)
    if not isinstance(found, BayesianNetwork):
        raise ValueError(f"a BIF file holds a Bayesian network, and {display_name(path)} is none; write .uai or .npz")
    return found


def _reading(read: Callable[[str], T], path: str) -> T:
    try:
        return read(path)
    except OSError as error:
        raise BadFileError(f"{display_name(path) or repr(path)}: {error.strerror or error}") from error


@contextlib.contextmanager
def blaming_input(path: str, evidence_path: str | None = None) -> Iterator[None]:
    """Errors that come from the content of the input files become a :class:`BadFileError`, which names them.

    Evidence that has probability zero is no fault of a file, and stays an :class:`ImpossibleEvidenceError`.
    """
    files = display_name(path)
    if evidence_path is not None:
        files += f" with evidence {display_name(evidence_path)}"
    try:
        yield
    except FormatError as error:
        raise BadFileError(str(error)) from error
    except ImpossibleEvidenceError as error:
        raise ImpossibleEvidenceError(f"{files}: {error}") from error
    except ModelError as error:
        raise BadFileError(f"{files}: {error}") from error


@contextlib.contextmanager
def answering(path: str, evidence_path: str | None = None) -> Iterator[None]:
    """The same around a run on files that have been read: with evidence, nothing else can be impossible."""
    with blaming_input(path, evidence_path):
        try:
            yield
        except ModelError as error:
            if evidence_path is None:
                raise
            raise ImpossibleEvidenceError(str(error)) from error


@contextlib.contextmanager
def blaming_checkpoint() -> Iterator[None]:
    """A checkpoint that cannot be used is a bad file; whatever else is wrong is not."""
    try:
        yield
    except FormatError as error:
        raise BadFileError(str(error)) from error


def load_table(path: str, **options: Any) -> Dataset:
    """A table of states; whatever is wrong with its file is a :class:`BadFileError`."""
    from fastmix.learning import read_table

    with blaming_input(path):
        table = _reading(partial(read_table, **options), path)
    if options.get("header") is None and options.get("model") is None and _begins_with_names(table):
        message(f"note: the first row of {path} is taken as data, but looks like names: --header, or --no-header")
    return table


def _begins_with_names(table: Dataset) -> bool:
    """Whether no cell of the first row of a table of text occurs again below it."""
    first = table.states[0]
    return table.state_names is not None and len(table.states) > 2 and not (table.states[1:] == first).any()


def load_edges(path: str, table: Dataset) -> NDArray[np.int64]:
    """Pairs of columns, by name or number, from a file with a pair per line."""
    from fastmix.learning.files import read_edges

    with blaming_input(path):
        return _reading(partial(read_edges, table=table), path)


def check_outputs(source: str, outputs: Sequence[str], checkpoint: str | None = None) -> None:
    """Try the places of all outputs before the work is done; none of them may be the input."""
    if checkpoint == "-":
        raise ValueError("--checkpoint must be a file, got '-'")
    for name, path in (*(("-o", output) for output in outputs), ("--checkpoint", checkpoint)):
        if path is not None and path != "-":
            check_writable(path)
            if os.path.realpath(path) == os.path.realpath(source):
                raise ValueError(f"{name} must not be the input, which it would replace, got {path!r}")
    for output in outputs:
        if checkpoint is not None and os.path.realpath(output) == os.path.realpath(checkpoint):
            raise ValueError(f"-o and --checkpoint must be two files, got {output!r} for both")


def check_model_output(path: str | None) -> None:
    """Try the place of a model before the work is done, and whether its name has a format."""
    if path is not None:
        format_of(path)
        check_writable(path)


def check_output_folder(path: str) -> None:
    """Try the place of a folder for outputs before the work is done."""
    if not path:
        raise ValueError("-o must name a folder, got ''")
    check_folder(path)


def forget_checkpoint(path: str | None, result: InferenceResult | LearnResult) -> None:
    """Remove the checkpoint of a run that is over, now that its answer is written."""
    if path is None or result.stats["stopped_by"] in ("interrupt", "time_limit"):
        return
    sys.stdout.flush()  # the answer may be there
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def save_model(model: MarkovRandomField | BayesianNetwork, path: str) -> None:
    """Write a model, or a network as BIF, passing on what its format could not hold."""
    for note in write_bif(model, path) if isinstance(model, BayesianNetwork) else write_model(model, path):
        message(f"note: {note}")


def save_rows(values: NDArray[np.float64], path: str) -> None:
    """A number per line, with all its digits."""
    with atomic_write(path) as file:
        file.writelines(f"{value!r}\n" for value in values.tolist())


def check_answers(outputs: Sequence[str], as_json: bool, allowed: Sequence[str]) -> list[str]:
    """The suffix of every output, or "" for stdout; refuse names that do not say what to write, before the work."""
    if "-" in outputs and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if outputs.count("-") > 1 or len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise ValueError(f"-o must name different files, got {', '.join(map(repr, outputs))}")
    return ["" if path == "-" else answer_suffix(path, allowed) for path in outputs]


def load_marginals(path: str, model: MarkovRandomField) -> NDArray[np.float64]:
    """Marginals from a MAR file, flat, checked against the model."""
    with blaming_input(path):
        vectors = _reading(read_mar, path)
        if [len(v) for v in vectors] != model.num_states.tolist():
            raise BadFileError(f"{path}: must list {model.num_variables} variables with the state counts of the model")
    return np.concatenate(vectors) if vectors else np.zeros(0)


def emit_json(
    data: Mapping[str, Any], model: MarkovRandomField | None = None, evidence: Mapping[int, int] | None = None
) -> None:
    """One JSON object on stdout; with the names and evidence of a model that the data are about."""
    if model is not None:
        names, states = model.variable_names, model.state_names
        observed = {str(variable): state for variable, state in (evidence or {}).items()}
        data = {**data, "variable_names": names, "state_names": states, "evidence": observed}
    sys.stdout.write(json_text(data))


def show_path(path: str | os.PathLike[str]) -> None:
    """A path on stdout: escaped for a terminal, as it is for another program."""
    out = getattr(sys.stdout, "buffer", None)
    if out is None or sys.stdout.isatty():
        print(printable(os.fspath(path)))
        return
    sys.stdout.flush()
    out.write(os.fsencode(path) + b"\n")


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """A line with the title and a two-column table on stdout."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(name, printable(value))
    console = _console()
    console.print(printable(title), soft_wrap=True)  # a long path stays on one line
    console.print(table)


def show_certificate(title: str, certificate: Certificate) -> None:
    """What a certificate says, as a table on stdout."""
    facts = {
        "certified": f"yes, by {certificate.criterion}" if certificate.certified else "no",
    }
    if certificate.norm is not None:
        norm = f"{certificate.norm_value:.6g} ({certificate.norm}, bound {certificate.dependency})"
        facts["dependency norm"] = norm
    if certificate.width is not None:
        facts["width"] = f"{certificate.width:.6g}"
    if certificate.margin is not None:
        facts["margin"] = f"all couplings could grow {certificate.margin:.4g} times"
    if certificate.num_sweeps is not None:
        facts["sweeps"] = f"{certificate.num_sweeps:,} ({certificate.schedule}) for accuracy {certificate.accuracy:g}"
        facts["largest bias of a variable"] = f"{certificate.max_bias:.3g}"
    if certificate.num_updates is not None and certificate.criterion != "dobrushin":
        facts["random updates"] = f"{certificate.num_updates:,} for accuracy {certificate.accuracy:g}"
    elif certificate.num_updates is not None:
        facts["updates by the theorem"] = f"{certificate.num_updates:,} (random order)"
    if not certificate.certified:
        facts["strongest variables"] = ", ".join(f"{i} ({total:.3g})" for i, total in certificate.offending[:5])
        facts["way out"] = certificate.advice
    for other in certificate.others:
        facts[f"by {other['criterion']}"] = (
            f"{other['num_updates']:,} updates" if other["certified"] else other["reason"]
        )
    show_facts(title, facts)


def show_bracket(result: BracketResult) -> None:
    """Bounds on stdout, a line for every state of every variable; those on log Z and the rest go to stderr."""
    for i, (low, high) in enumerate(zip(result.marginals_lower, result.marginals_upper, strict=True)):
        for a, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            print(f"{i} {a} {least:.6g} {most:.6g}")
    _tell_bracket(result)


def _tell_bracket(result: BracketResult) -> None:
    held = "proven" if result.confidence is None else f"with confidence {result.confidence:g}"
    how = "exact" if result.exact else f"lower by {result.methods['lower']}, upper by {result.methods['upper']}"
    bounds = f"{result.log_z_lower:.8g} <= log Z <= {result.log_z_upper:.8g}"
    message(f"bracket: {bounds} ({held}; {how}), {result.stats['seconds']:.3g} s")


def show_marginals(result: InferenceResult) -> None:
    """Marginals on stdout: a table for a terminal, MAR text for a pipe; the summary goes to stderr."""
    if sys.stdout.isatty():
        _marginal_table(result)
    else:
        write_mar(result.marginals, "-")
    log_z = "" if result.log_z is None else f", log Z = {result.log_z:.6f}"
    seconds = result.stats.get("seconds")
    message(f"method {result.method}, status {result.status}{log_z}, {seconds:.3g} s")
    for name in ("reason", "guarantee"):
        if result.stats.get(name):
            message(f"{name}: {result.stats[name]}")
    if result.bracket is not None:
        _tell_bracket(result.bracket)
    if result.status != Status.OK:
        message(explain_status(result))


def explain_status(result: Any) -> str:
    """What the status means, and what the diagnostics say beyond it."""
    note = str(result.stats.get("note") or "")
    return f"{result.status.advice} {note[:1].upper()}{note[1:]}".strip()


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
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("variable", *headings):
        table.add_column(heading, justify="left")
    for name, row in zip(model.names_of_variables(), rows, strict=False):
        table.add_row(printable(name), *map(printable, row))
    _console().print(table)
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
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading, side in (("file", "left"), ("method", "left"), ("status", "left"), ("log Z", "right")):
        table.add_column(heading, justify=cast("Any", side), no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        log_z = "-" if row["log_z"] is None else f"{row['log_z']:.6f}"
        seconds = "-" if row["seconds"] is None else f"{row['seconds']:.2f}"
        table.add_row(printable(display_name(row["file"])), row["method"] or "-", row["status"], log_z, seconds)
    console = _console()
    console.width = 10_000 if not sys.stdout.isatty() else console.width
    console.print(table)


def _draw_facts(samples: DrawResult) -> dict[str, str]:
    facts = {"samples": f"{len(samples.states):,}, independent and exact"}
    if not isinstance(samples, PerfectSamples):
        return facts | {"why": str(samples.stats["note"])}
    past = samples.num_sweeps
    average = f"{past.mean() if len(past) else 0:.1f} on average, at most {past.max(initial=0):,}"
    return facts | {"why": samples.reason, "sweeps into the past": average}


def _chain_facts(result: SampleResult) -> dict[str, str]:
    stats = result.stats
    return {
        "chains": f"{stats['num_chains']:,}",
        "sweeps": f"{stats['num_sweeps']:,} after {stats['burn_in']:,} of burn-in",
        "largest standard error": f"{result.std_error.max(initial=0.0):.3g}",
        "smallest effective sample size": f"{result.ess.min(initial=float('inf')):,.0f}",
        "largest R-hat": f"{result.r_hat.max(initial=1.0):.4f}",
        "note": str(stats["note"]),
    }


def show_sampling(title: str, result: SampleResult | DrawResult) -> None:
    """What a run of chains, or exact draws, gave and cost, as a table on stdout."""
    facts = {"status": str(result.status)}
    facts |= _draw_facts(result) if isinstance(result, DrawResult) else _chain_facts(result)
    facts |= {"updates per second": f"{result.stats['updates_per_second']:.3g}"}
    show_facts(title, {**facts, "seed": str(result.provenance["seed"])})


def show_comparison(title: str, comparison: Comparison) -> None:
    """A row for every method, as a table on stdout."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("method", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for heading in ("mean error", "max error", "std error", "log Z", "seconds"):
        table.add_column(heading, justify="right")
    for row in comparison.rows:
        numbers = [_short(v) for v in (row.mean_error, row.max_error, row.std_error)]
        log_z = "-" if row.log_z is None else f"{row.log_z:.4f}"
        table.add_row(row.method, row.status, *numbers, log_z, f"{row.seconds:.2f}")
    console = _console()
    against = comparison.reference or "nothing (no method can be trusted)"
    console.print(printable(f"{title}: errors against {against}"), soft_wrap=True)
    console.print(table)
    for row in comparison.rows:
        if row.status == "refused":
            message(f"{row.method} refused: {row.note}")
        elif row.projected_std_error is not None and row.std_error is None:
            own = f"standard errors of the projected model are up to {_short(row.projected_std_error)}"
            message(f"{row.method}: {own}; {row.note}")


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def check_picture_name(path: str) -> None:
    """Refuse a name that no picture format goes by, before the work is done."""
    if not path.lower().endswith((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")):
        raise ValueError(f"-o must name a picture such as out.png, got {path!r}")


def load_picture(read: Callable[[], T], path: str) -> T:
    """A picture; whatever is wrong with its file is a :class:`BadFileError`."""
    try:
        return read()
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        name = display_name(path)
        raise BadFileError(text.replace(path, name) if path and path in text else f"{name}: {text}") from error


def rows_told(tell: Callable[[str], None] = message) -> Callable[[Any], None]:
    """A line per minute about the rows of an experiment, for where no bar is shown."""
    last = time.monotonic()

    def seldom(report: Any) -> None:
        nonlocal last
        if time.monotonic() - last > 60.0:
            last = time.monotonic()
            tell(str(report))

    return seldom
