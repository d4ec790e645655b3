"""Commands about data: ``learn``, ``fit-network`` and ``score``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import fastmix
from fastmix.cli import console, files, tables
from fastmix.cli.options import AsJson, Model, OptionSpec, takes, variable_list
from fastmix.errors import FormatError
from fastmix.io import atomic_write
from fastmix.io.files import decode_text, display_name, read_bytes

if TYPE_CHECKING:
    from fastmix.learning import Dataset, Mixture

__all__ = ["fit_network", "learn", "score"]

Data = Annotated[str, typer.Argument(metavar="DATA", help="Table of states (CSV), plain, gzip or xz; - is stdin.")]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row has names; by default only if it cannot be data."),
]
Weights = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column with weights of rows, by name or number from 0.")
]
Missing = Annotated[
    str,
    typer.Option(metavar="NUMBER|none", help="What stands for a missing value; -1 by default, beside zeros."),
]
_BACKEND_HELP = "Where chains run: cpu, cuda, or auto for a GPU if any."
_STRUCTURES = ("chow-liu", "tree-augmented")  # values of --structure that are no files
_NETWORK_SUFFIXES = (".bif", ".bif.gz", ".bif.xz")
_GRAPHS = ("auto", "complete", "chow-liu", "l1", "grow")  # values of --edges that are no files
_MAX_DIGITS = 18  # of the number of a column; Python refuses to read thousands of them

# -- values of options ------------------------------------------------------------------------------------------------


def _parse_ball(text: str) -> Any:
    """The set that ``--within`` names, such as ``spectral:2.5``, or ``auto``."""
    from fastmix.learning.result import ball_by_name

    return text if text == "auto" else ball_by_name(text)


def _parse_penalty(text: str) -> float | str:
    """A number, or ``auto``."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"must be a number or auto, got {text!r}") from None


def _parse_hidden(text: str) -> int | Mixture | str:
    """A number of binary variables, a mixture, or ``auto``."""
    from fastmix.learning.mixture import mixture_by_name

    if text == "auto":
        return text
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else mixture_by_name(text)


def _num_hidden(hidden: int | Mixture | str) -> int:
    """Hidden variables that edges may name."""
    return hidden if isinstance(hidden, int) else 0


def _parse_target(text: str) -> int | str:
    """A variable by number or name."""
    (found,) = variable_list(text) if "," not in text else [text]
    return found


def _parse_counts(text: str) -> list[int] | int:
    """A number of states for all columns, or one for each."""
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"must be whole numbers such as 3 or 2,3,2, got {text!r}") from None
    return counts[0] if len(counts) == 1 else counts


def _parse_missing(text: str) -> int | Literal["auto"] | None:
    """The number that stands for a missing value; None for none."""
    if text == "none":
        return None
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--missing must be a whole number or none, got {text!r}") from None


# -- commands ---------------------------------------------------------------------------------------------------------


@takes(
    "learn", "seed time_limit",
    objective="likelihood or pseudo-likelihood.",
    moments="How the moments of the likelihood are found: auto, exact, sampled or tempered.",
    within=OptionSpec(
        "Stay in a set, such as spectral:2.5 or width:0.95; below 1 it provably mixes fast.",
        "NORM:BOUND|auto", _parse_ball,
    ),
    ridge=OptionSpec("Weight of the squares of all parameters.", "NUMBER|auto", _parse_penalty),
    l1=OptionSpec("Weight of the norms of tables: removes edges.", "NUMBER|auto", _parse_penalty),
    edges=OptionSpec("auto, complete, chow-liu, l1, grow, or a file with two columns per line.", "GRAPH"),
    hidden=OptionSpec(
        "Binary variables that are never observed; or one of many states: mixture, mixture:16, classes:4; or auto.",
        "NUMBER|MIXTURE|auto", _parse_hidden,
    ),
    num_states=OptionSpec("Of the columns, such as 3 or 2,3,2; as seen by default.", "COUNTS", _parse_counts),
    num_chains="Persistent chains; 1,024 to 4,096 by default.",
    tol="When to stop; see the docs.",
    max_iter="Iterations or rounds allowed.",
    backend=_BACKEND_HELP,
    checkpoint=OptionSpec("File to save the run in, and to go on from if it exists.", "FILE"),
    checkpoint_seconds="Seconds between two writes of the checkpoint.",
)  # fmt: skip
def learn(
    data: Data,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes; npz keeps all names.")
    ] = None,
    header: Header = None,
    validation: Annotated[
        str | None, typer.Option(metavar="FILE", help="Data on which auto chooses, and that are scored.")
    ] = None,
    weights: Weights = None,
    missing: Missing = "auto",
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """A model fitted to a table of states.

    UAI text on stdout without -o and --json.
    """
    from fastmix.learning import read_table

    if data == validation == "-":
        raise ValueError("DATA and --validation must not both be -: stdin holds one of them")
    for name in ("within", "ridge", "l1"):
        if given.get(name) == "auto" and validation is None:
            raise ValueError(f"--{name} auto is chosen on validation data: give --validation")
    num_states = given.pop("num_states", None)
    checkpoint = given.get("checkpoint")
    inputs = [data, validation] if validation else [data]
    files.check_model_output(inputs, output, as_json, checkpoint)

    reading: dict[str, Any] = {"header": header, "weights": weights, "missing": _parse_missing(missing)}
    table = files.read(read_table, data, num_states=num_states, **reading)
    note = _note_names(table, data, header)
    others = None
    if validation is not None:
        others = files.read(read_table, validation, model=table.blank_model(), **reading)
    if given["edges"] not in _GRAPHS:
        given["edges"] = _read_graph(given["edges"], table.with_hidden(_num_hidden(given["hidden"])))

    result = files.salvage(lambda: fastmix.learn(table, validation=others, **given))
    console.save_model(result.model, output, as_json)

    def show() -> None:
        facts = tables.readable(result.to_dict())
        if output in (None, "-"):
            console.message(", ".join(f"{name} {value}" for name, value in facts.items()))
        else:
            tables.show_facts(str(output), facts)

    console.finish(result, as_json, show, checkpoint=checkpoint, note=note)


def _read_graph(path: str, columns: Dataset) -> Any:
    """The edges in a file; where they are numbers that seem to count from 1, a note says so."""
    from fastmix.learning.files import read_edges
    from fastmix.model.inputs import note_on_numbering

    edges = files.read(read_edges, path, table=columns)
    if columns.variable_names is None:
        note = note_on_numbering(len(columns.num_states), edges)
        if note:
            console.message(f"note: {note}")
    return edges


@takes(
    "fit_network", "seed num_threads memory_limit time_limit",
    structure=OptionSpec(
        "The graph: a file of a network, a JSON file with parents by variable, or chow-liu or tree-augmented, found in "
        "the data.", "GRAPH",
    ),
    target=OptionSpec("The class of a tree-augmented network, or the root of a tree.", "NAME", _parse_target),
    pseudo_count="Added to the count of every entry of a table; 0 for the largest likelihood.",
    equivalent_size="In place of it: rows that are spread evenly over the entries of every table (BDeu).",
    start="data, or network: where expectation maximization begins.",
    tol="The iteration ends when it gains less than this, in nats per row.",
    max_iter="Iterations of expectation maximization allowed.",
)  # fmt: skip
def fit_network(
    data: Data,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.bif the network, or a model in any other format."),
    ] = None,
    header: Header = None,
    weights: Weights = None,
    missing: Missing = "auto",
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """A Bayesian network fitted to a table of states.

    Values that are missing, and variables of the network without a column, are summed out. BIF text on stdout without
    -o and --json.
    """
    from fastmix.learning import read_table
    from fastmix.model.network import BayesianNetwork

    if data == given["structure"] == "-":
        raise ValueError("DATA and --structure must not both be -: stdin holds one of them")
    path = given["structure"]
    sources = [data] if path in _STRUCTURES else [data, path]
    if output is None or output.endswith(_NETWORK_SUFFIXES):
        files.check_outputs(sources, [output], as_json=as_json)
    else:
        files.check_model_output(sources, output, as_json)

    given["structure"] = structure = _read_structure(path)
    reading: dict[str, Any] = {"header": header, "weights": weights, "missing": _parse_missing(missing)}
    note = None
    if isinstance(structure, BayesianNetwork):
        model = structure.dense().to_model()
        if missing == "auto" and model.state_names is not None:
            reading["missing"] = None  # where states have names no number is missing
        if header is None and model.variable_names is not None:
            reading["header"] = True  # columns are found by name, and some may be left out
        table = files.read(read_table, data, model=model, some_columns=reading["header"] is True, **reading)
    else:
        table = files.read(read_table, data, **reading)
        note = _note_names(table, data, header)

    result = files.salvage(lambda: fastmix.fit_network(table, **given))
    is_network = output in (None, "-") or str(output).endswith(_NETWORK_SUFFIXES)
    console.save_model(result.network if is_network else result.model, output, as_json)

    def show() -> None:
        facts = result.facts()
        if output in (None, "-"):
            console.message(", ".join(f"{name} {value}" for name, value in facts.items()))
        else:
            tables.show_facts(str(output), facts)

    console.finish(result, as_json, show, note=note)


def _read_structure(path: str) -> Any:
    """The graph that ``--structure`` names: a word, a network, or the parents of variables."""
    if path in _STRUCTURES:
        return path
    if path.lower().endswith(".json"):
        return files.read(_read_parents, path)
    network = files.load(path).network
    if network is None:
        raise ValueError(
            f"--structure must be a Bayesian network, {' or '.join(_STRUCTURES)}, and {path} is no network"
        )
    return network


def _read_parents(path: str) -> dict[str, list[str]]:
    """The parents of variables, from a JSON file that maps names to lists of names."""
    text = decode_text(read_bytes(path), display_name(path))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{display_name(path)}: {error}") from None
    is_mapping = isinstance(found, dict) and all(isinstance(own, list) for own in found.values())
    if not is_mapping or not all(isinstance(name, str) for own in found.values() for name in own):
        raise FormatError(f"{display_name(path)}: must map names of variables to lists of names, got {text[:40]!r}")
    return found


@takes(
    "score", "seed time_limit",
    target=OptionSpec("Also the probability of these variables given the others.", "NAMES", variable_list),
    method="auto, exact or annealing: how log Z is found.",
    tol="Standard error of log Z to reach.",
    num_chains="Chains used for annealing.",
    backend=_BACKEND_HELP,
)  # fmt: skip
def score(
    model: Model,
    data: Data,
    header: Header = None,
    weights: Weights = None,
    missing: Missing = "auto",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="For the log-likelihood of every row.")
    ] = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """How probable data are under a model.

    That is the mean log-likelihood of a row, with its standard error.
    """
    from fastmix.learning import read_table

    if model == data == "-":
        raise ValueError("MODEL and DATA must not both be -: stdin holds one of them")
    files.check_outputs([model, data], [output], as_json=as_json)
    loaded = files.load(model).model
    reading: dict[str, Any] = {"header": header, "weights": weights, "missing": _parse_missing(missing)}
    table = files.read(read_table, data, model=loaded, **reading)
    note = None if loaded.variable_names else _note_names(table, data, header)  # else names had been found
    result = files.salvage(lambda: fastmix.score(loaded, table, **given))
    if output is not None:
        with atomic_write(output) as file:
            file.writelines(f"{value!r}\n" for value in result.per_row.tolist())

    def show() -> None:
        if output != "-":
            tables.show_facts(data, tables.readable(result.to_dict()))

    console.finish(result, as_json, show, note=note)


def _note_names(table: Dataset, path: str, header: bool | None) -> str | None:
    """A note, also shown on stderr, that the first row of a table of text looks like names; None where it does not.

    It looks so if it has only words that do not occur again below it.
    """
    from fastmix.learning.files import is_data

    first = table.states[0].tolist()
    if header is not None or table.state_names is None or -1 in first or (table.states[1:] == first).any():
        return None
    if any(is_data(names[state]) for names, state in zip(table.state_names, first, strict=True)):
        return None
    note = f"the first row of {path} is taken as data, but looks like names: --header, or --no-header"
    console.message(f"note: {note}")
    return note
