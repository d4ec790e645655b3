"""Files of the command line: what is wrong with those it reads, and whether those it writes can be written."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import (
    BadFileError,
    ImpossibleEvidenceError,
    ImpossibleModelError,
    Interrupted,
    ModelError,
    ResourceError,
)
from fastmix.io import format_of, read_evidence, read_mar, read_model_or_network
from fastmix.io.answers import answer_suffix
from fastmix.io.files import check_folder, check_writable, decode_text, display_name, read_bytes
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from fastmix.results import InferenceResult

__all__ = [
    "Beside", "Input", "blaming_input", "check_model_output", "check_output_folder", "check_outputs",
    "choose_evidence", "load", "load_marginals", "read", "salvage",
]  # fmt: skip

T = TypeVar("T")

# Options of ``infer`` beside which draws along the order of a network are an answer.
_PLAIN_OPTIONS = frozenset(["method", "seed", "time_limit", "memory_limit", "num_threads", "log_z", "progress"])
_EXACT_SHARE = 0.5  # of the time that exact inference may be estimated to take
_MOST_DRAWS, _LEAST_DRAWS = 100_000, 100  # standard errors of 0.002 and 0.05 at most
_MOST_DRAWN = 20_000_000  # states in all: a second or two


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """A model and what is observed of it, with the files, or pairs, that these came from."""

    path: str
    evidence: str | None
    model: MarkovRandomField
    observed: dict[int, Any]
    network: BayesianNetwork | None  # where the file holds one
    notes: tuple[str, ...] = ()  # for stderr, once there is an answer

    @property
    def about(self) -> tuple[MarkovRandomField, dict[int, Any]]:
        """The model and what is observed, for JSON."""
        return self.model, self.observed

    def answer(self, function: Callable[..., T], **options: Any) -> T:
        """What a function of fastmix says about them; with evidence, nothing else can be impossible."""
        with blaming_input(self.path, self.evidence):
            try:
                return salvage(lambda: function(self.model, evidence=self.observed, **options))
            except ModelError as error:
                if self.evidence is None:
                    raise
                raise ImpossibleEvidenceError(str(error)) from error

    def infer(self, **options: Any) -> InferenceResult:
        """Marginals and log Z.

        Where ``auto`` has no exact inference for a network of which nothing is observed, draws along its order do
        better than any method that does not know the order: they are exact, and log Z is 0.
        """
        import fastmix

        plain = {name for name, value in options.items() if value not in (None, False)} <= _PLAIN_OPTIONS
        if self.network is None or self.observed:
            return self.answer(fastmix.infer, **options)
        limit, memory = options.get("time_limit"), options.get("memory_limit")
        if not plain or options.get("method") != "auto" or _fits_exactly(self.model, memory, limit):
            result = self.answer(fastmix.infer, **options)
            # Rows of a network add up to 1: what exact inference has beside 0 is rounding.
            return replace(result, log_z=0.0) if result.log_z_kind == "exact" else result
        count = min(_MOST_DRAWS, max(_LEAST_DRAWS, _MOST_DRAWN // max(1, self.network.num_variables)))
        return fastmix.ancestral_sample(self.network, num_draws=count, seed=options.get("seed"))


def _fits_exactly(model: MarkovRandomField, memory_limit: float | None, time_limit: float | None) -> bool:
    """Whether exact inference fits the memory and, by its estimate, the time."""
    from fastmix._clock import Clock
    from fastmix.exact import plan_exact
    from fastmix.methods.base import DEFAULT_SECONDS

    clock = Clock(time_limit, default=DEFAULT_SECONDS)
    try:
        plan = plan_exact(model, memory_limit=memory_limit, clock=clock.part(0.3))
    except ResourceError:
        return False
    return plan.seconds <= _EXACT_SHARE * clock.left()


def salvage(call: Callable[[], T]) -> T:
    """What a call gives, or had when Ctrl-C ended it."""
    try:
        return call()
    except Interrupted as stop:
        if stop.result is None:
            raise
        return cast("T", stop.result)


class Beside(str):
    """The name of an evidence file that was found beside its model, and not asked for."""

    __slots__ = ()


def choose_evidence(path: str, given: str | None, none: bool) -> str | None:
    """The evidence of a model: what was given, or the file beside it with ``.evid`` added, unless ``none`` is wanted.

    That of ``X.uai.gz`` may be ``X.uai.gz.evid``, ``X.uai.evid`` or ``X.uai.evid.gz``.
    """
    if given is not None and none:
        raise ValueError("--evidence and --no-evidence must not both be given")
    if given is not None or none or path == "-":
        return given
    stem, packed = os.path.splitext(path)
    names = [f"{path}.evid"]
    if packed.lower() in (".gz", ".xz", ".bz2"):
        names += [f"{stem}.evid", f"{stem}.evid{packed}"]
    return next((Beside(name) for name in names if os.path.isfile(name)), None)


def load(path: str, evidence: str | None = None, *, patience: float | None = None) -> Input:
    """Model and evidence; anything wrong with files is a :class:`BadFileError` or a :class:`FormatError`.

    Evidence is a UAI or JSON file, or, where there is no such file, pairs such as ``SAO2=LOW,BP=HIGH``. What is neither
    is a :class:`ValueError`, as is a name that the model does not have. A named pipe that nobody writes to for so many
    seconds as ``patience`` says is a bad file; without a number that may take as long as it likes.
    """
    if path == evidence == "-":
        raise ValueError("MODEL and --evidence must not both be -: stdin holds one of them")
    given = evidence or ""
    typed = not os.path.exists(given) and given != "-" and "=" in given
    if evidence is not None and not (typed or os.path.exists(given) or _names_file(given)):
        raise ValueError(f"--evidence must be a file or pairs such as A=x,B=y, got {given!r}")
    model, network = read(_read_both, path, patience=patience)
    observed: dict[int, Any] = {}
    if evidence is not None:
        from fastmix.io.answers import number_observations, parse_observations, parse_observations_json

        if typed:
            observed = parse_observations(given, model)
        elif re.search(r"\.json(\.gz|\.xz|\.bz2)?$", given, re.IGNORECASE):
            content = decode_text(read(read_bytes, given), display_name(given))
            observed = number_observations(parse_observations_json(content, display_name(given)), model)
        else:
            observed = read(read_evidence, given, num_states=model.num_states)
    notes: tuple[str, ...] = ()
    if isinstance(evidence, Beside):
        notes = (f"with the evidence of {display_name(evidence)}: --no-evidence leaves it out",)
    return Input(path, evidence, model, observed, network, notes)


def _read_both(path: str, patience: float | None) -> tuple[MarkovRandomField, BayesianNetwork | None]:
    found = read_model_or_network(path, patience=patience)
    return (found.to_model(), found) if isinstance(found, BayesianNetwork) else (found, None)


def _names_file(text: str) -> bool:
    """Whether a text that names no file can have been meant to: stdin, a folder in it, or the end of a file's name."""
    return text == "-" or "/" in text or os.sep in text or bool(re.search(r"\.[A-Za-z]\w*$", text))


def load_marginals(path: str, model: MarkovRandomField) -> NDArray[np.float64]:
    """Marginals from a MAR file, flat, checked against the model."""
    vectors = read(read_mar, path)
    if [len(v) for v in vectors] != model.num_states.tolist():
        raise BadFileError(f"{path}: must list {model.num_variables} variables with the state counts of the model")
    return np.concatenate(vectors) if vectors else np.zeros(0)


def read(function: Callable[..., T], path: str, **options: Any) -> T:
    """What a function reads from a file; anything wrong with it is a :class:`BadFileError` or :class:`FormatError`."""
    with blaming_input(path):
        try:
            return function(path, **options)
        except OSError as error:
            reason = error.strerror or str(error).removeprefix(f"{path}: ")
            raise BadFileError(f"{display_name(path) or repr(path)}: {reason}") from error


@contextlib.contextmanager
def blaming_input(path: str, evidence: str | None = None) -> Iterator[None]:
    """Errors of a model that come from the content of the input files become a :class:`BadFileError`, which names them.

    A model or evidence that has probability zero is no fault of a file: their errors stay what they are.
    """
    files = display_name(path)
    if evidence is not None:
        files += f" with evidence {display_name(evidence)}"
    try:
        yield
    except (ImpossibleEvidenceError, ImpossibleModelError) as error:
        raise type(error)(f"{files}: {error}") from error
    except ModelError as error:
        raise BadFileError(f"{files}: {error}") from error


# -- writing, tried before the work is done ---------------------------------------------------------------------------


def check_outputs(
    sources: Sequence[str],
    outputs: Sequence[str | None],
    checkpoint: str | None = None,
    *,
    allowed: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Try the places of all outputs: different files, no inputs, one at most to stdout, with suffixes that are allowed.

    Without any allowed, names need no suffix.
    """
    places = [path for path in outputs if path is not None]
    if len({os.path.realpath(path) for path in places}) < len(places):
        raise ValueError(f"-o must name different files, got {', '.join(map(repr, places))}")
    for name, path in (*(("-o", place) for place in places), ("--checkpoint", checkpoint)):
        if path == "":
            raise ValueError(f"{name} must name a file, got ''")
    if "-" in places and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if checkpoint == "-":
        raise ValueError("--checkpoint must be a file, got '-'")
    inputs = {os.path.realpath(source) for source in sources}
    for name, path in (*(("-o", place) for place in places if place != "-"), ("--checkpoint", checkpoint)):
        if path is not None:
            if allowed and name == "-o":
                answer_suffix(path, allowed, name="-o")
            check_writable(path)
            if os.path.realpath(path) in inputs:
                raise ValueError(f"{name} must not be the input, which it would replace, got {path!r}")
    if checkpoint is not None and os.path.realpath(checkpoint) in map(os.path.realpath, places):
        raise ValueError(f"-o and --checkpoint must be two files, got {checkpoint!r} for both")


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
