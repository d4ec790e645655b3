"""Files of the command line: what is wrong with those it reads, and whether those it writes can be written."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import BadFileError, ImpossibleEvidenceError, Interrupted, ModelError
from fastmix.io import format_of, read_evidence, read_mar, read_model
from fastmix.io.answers import answer_suffix, number_observations, parse_observations, parse_observations_json
from fastmix.io.files import check_folder, check_writable, decode_text, display_name, read_bytes
from fastmix.model import MarkovRandomField

__all__ = [
    "answer", "answering", "blaming_input", "check_answers", "check_model_output", "check_output_folder",
    "check_outputs", "load", "load_marginals", "load_picture", "read", "salvage",
]  # fmt: skip

T = TypeVar("T")


# -- reading ----------------------------------------------------------------------------------------------------------


def answer(
    function: Callable[..., T], path: str, evidence: str | None, **options: Any
) -> tuple[T, MarkovRandomField, dict[int, Any]]:
    """What a function of fastmix says about the model and evidence in files, and these two."""
    model, observed = load(path, evidence)
    with answering(path, evidence):
        return salvage(lambda: function(model, evidence=observed, **options)), model, observed


def salvage(call: Callable[[], T]) -> T:
    """What a call gives, or had when Ctrl-C ended it."""
    try:
        return call()
    except Interrupted as stop:
        if stop.result is None:
            raise
        return cast("T", stop.result)


def load(path: str, evidence: str | None = None) -> tuple[MarkovRandomField, dict[int, Any]]:
    """Model and evidence; anything wrong with files is a :class:`BadFileError` or a :class:`FormatError`.

    Evidence is a UAI or JSON file, or, where there is no such file, pairs such as ``SAO2=LOW,BP=HIGH``. What is neither
    is a :class:`ValueError`, as is a name that the model does not have.
    """
    if path == evidence == "-":
        raise ValueError("MODEL and --evidence must not both be -: stdin holds one of them")
    given = evidence or ""
    typed = not os.path.exists(given) and given != "-" and "=" in given
    if evidence is not None and not (typed or os.path.exists(given) or _names_file(given)):
        raise ValueError(f"--evidence must be a file or pairs such as A=x,B=y, got {given!r}")
    model = read(read_model, path)
    if evidence is None:
        return model, {}
    if typed:
        return model, parse_observations(given, model)
    if _is_json(given):
        content = decode_text(read(read_bytes, given), display_name(given))
        return model, number_observations(parse_observations_json(content, display_name(given)), model)
    return model, read(read_evidence, given, num_states=model.num_states)


def _is_json(path: str) -> bool:
    with contextlib.suppress(ValueError):
        return answer_suffix(path) == ".json"
    return False


def _names_file(text: str) -> bool:
    """Whether a text that names no file can have been meant to: stdin, a folder in it, or the end of a file's name."""
    return text == "-" or "/" in text or os.sep in text or bool(re.search(r"\.[A-Za-z]\w*$", text))


def load_marginals(path: str, model: MarkovRandomField) -> NDArray[np.float64]:
    """Marginals from a MAR file, flat, checked against the model."""
    vectors = read(read_mar, path)
    if [len(v) for v in vectors] != model.num_states.tolist():
        raise BadFileError(f"{path}: must list {model.num_variables} variables with the state counts of the model")
    return np.concatenate(vectors) if vectors else np.zeros(0)


def load_picture(read: Callable[[], T], path: str) -> T:
    """A picture; whatever is wrong with its file is a :class:`BadFileError`."""
    try:
        return read()
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        name = display_name(path)
        raise BadFileError(text.replace(path, name) if path and path in text else f"{name}: {text}") from error


def read(function: Callable[..., T], path: str, **options: Any) -> T:
    """What a function reads from a file; anything wrong with it is a :class:`BadFileError` or :class:`FormatError`."""
    with blaming_input(path):
        try:
            return function(path, **options)
        except OSError as error:
            raise BadFileError(f"{display_name(path) or repr(path)}: {error.strerror or error}") from error


@contextlib.contextmanager
def blaming_input(path: str, evidence: str | None = None) -> Iterator[None]:
    """Errors of a model that come from the content of the input files become a :class:`BadFileError`, which names them.

    Evidence that has probability zero is no fault of a file, and stays an :class:`ImpossibleEvidenceError`.
    """
    files = display_name(path)
    if evidence is not None:
        files += f" with evidence {display_name(evidence)}"
    try:
        yield
    except ImpossibleEvidenceError as error:
        raise ImpossibleEvidenceError(f"{files}: {error}") from error
    except ModelError as error:
        raise BadFileError(f"{files}: {error}") from error


@contextlib.contextmanager
def answering(path: str, evidence: str | None = None) -> Iterator[None]:
    """The same around a run on files that have been read: with evidence, nothing else can be impossible."""
    with blaming_input(path, evidence):
        try:
            yield
        except ModelError as error:
            if evidence is None:
                raise
            raise ImpossibleEvidenceError(str(error)) from error


# -- writing, tried before the work is done ---------------------------------------------------------------------------


def check_outputs(
    sources: Sequence[str], outputs: Sequence[str | None], checkpoint: str | None = None, *, as_json: bool = False
) -> None:
    """Try the places of all outputs; none of them may be an input, and one at most goes to stdout."""
    if "-" in outputs and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if checkpoint == "-":
        raise ValueError("--checkpoint must be a file, got '-'")
    inputs = {os.path.realpath(source) for source in sources}
    for name, path in (*(("-o", output) for output in outputs), ("--checkpoint", checkpoint)):
        if path is not None and path != "-":
            check_writable(path)
            if os.path.realpath(path) in inputs:
                raise ValueError(f"{name} must not be the input, which it would replace, got {path!r}")
    for output in outputs if checkpoint is not None else ():
        if os.path.realpath(output or "") == os.path.realpath(checkpoint or ""):
            raise ValueError(f"-o and --checkpoint must be two files, got {output!r} for both")


def check_answers(outputs: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """The suffix of every output, or "" for stdout; refuse names that do not say what to write."""
    if outputs.count("-") > 1 or len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise ValueError(f"-o must name different files, got {', '.join(map(repr, outputs))}")
    return ["" if path == "-" else answer_suffix(path, allowed) for path in outputs]


def check_model_output(sources: Sequence[str], path: str | None, as_json: bool, checkpoint: str | None = None) -> None:
    """Try the place of a model, and whether its name has a format."""
    check_outputs(sources, [path], checkpoint, as_json=as_json)
    if path is not None:
        format_of(path)


def check_output_folder(path: str) -> None:
    """Try the place of a folder for outputs."""
    if not path:
        raise ValueError("-o must name a folder, got ''")
    check_folder(path)
