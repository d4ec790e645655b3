"""Files of the command line: models and evidence that it reads, and the places of its outputs, tried beforehand."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastmix.cli.console import message
from fastmix.cli.tuning import (
    MAX_DRAWN_STATES,
    MAX_NETWORK_DRAWS,
    MIN_NETWORK_DRAWS,
    PIPE_NOTICE_SECONDS,
    PLANNING_TIME_SHARE,
    USABLE_TIME_SHARE,
)
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
    from fastmix.marginals import InferenceResult

__all__ = [
    "EvidenceBeside",
    "Input",
    "blaming_input",
    "check_model_output",
    "check_output_folder",
    "check_outputs",
    "choose_evidence",
    "load",
    "load_marginals",
    "read",
    "salvage",
]

T = TypeVar("T")

# Options of ``infer`` beside which draws along the order of a network are an answer.
_PLAIN_OPTIONS = frozenset(["method", "seed", "time_limit", "memory_limit", "num_threads", "log_z", "progress"])


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """A model and the evidence about it, as the command line has read them."""

    path: str
    evidence: str | None  # the file, or pairs such as A=x,B=y
    model: MarkovRandomField
    observed: dict[int, Any]  # state by variable
    network: BayesianNetwork | None  # where the file holds one
    notes: tuple[str, ...] = ()  # for stderr, once there is an answer

    @property
    def about(self) -> tuple[MarkovRandomField, dict[int, Any]]:
        """The model and its evidence, whose names and states JSON has."""
        return self.model, self.observed

    def answer(self, function: Callable[..., T], **options: Any) -> T:
        """The result of a function of fastmix for the model and its evidence, complete or interrupted."""
        with blaming_input(self.path, self.evidence):
            try:
                return salvage(lambda: function(self.model, evidence=self.observed, **options))
            except ModelError as error:  # the model was read without one: only evidence can be to blame
                if self.evidence is None:
                    raise
                raise ImpossibleEvidenceError(str(error)) from error

    def infer(self, **options: Any) -> InferenceResult:
        """Marginals and log Z, from :func:`fastmix.infer` or from draws along the order of a network.

        Where exact inference does not fit a network of which nothing is observed, draws along its order are better than
        any method that does not know the order: they are exact, and log Z is 0.
        """
        import fastmix

        if self.network is None or self.observed:
            return self.answer(fastmix.infer, **options)
        if self._draws_may_answer(options):
            num_variables = max(1, self.network.num_variables)
            num_draws = min(MAX_NETWORK_DRAWS, max(MIN_NETWORK_DRAWS, MAX_DRAWN_STATES // num_variables))
            return fastmix.ancestral_sample(self.network, num_draws=num_draws, seed=options.get("seed"))
        result = self.answer(fastmix.infer, **options)
        # Rows of a network add up to 1: what exact inference has beside 0 is rounding.
        return replace(result, log_z=0.0) if result.log_z_kind == "exact" else result

    def _draws_may_answer(self, options: dict[str, Any]) -> bool:
        """Whether the choice of the method is free and exact inference does not fit."""
        given = {name for name, value in options.items() if value not in (None, False)}
        if options.get("backend") == "cpu":
            given.discard("backend")
        if options.get("method") != "auto" or not given <= _PLAIN_OPTIONS:
            return False
        return not _fits_exactly(self.model, options.get("memory_limit"), options.get("time_limit"))


def _fits_exactly(model: MarkovRandomField, memory_limit: float | None, time_limit: float | None) -> bool:
    """Whether exact inference fits the memory and, by its estimate, the time."""
    from fastmix._clock import Clock
    from fastmix._context import DEFAULT_SECONDS
    from fastmix.exact import plan_exact

    clock = Clock(time_limit, default=DEFAULT_SECONDS)
    try:
        plan = plan_exact(model, memory_limit=memory_limit, clock=clock.part(PLANNING_TIME_SHARE))
    except ResourceError:
        return False
    return plan.seconds <= USABLE_TIME_SHARE * clock.left()


def salvage(call: Callable[[], T]) -> T:
    """The result of a call, also the one so far of a call that Ctrl-C ended."""
    try:
        return call()
    except Interrupted as stop:
        if stop.result is None:
            raise
        return cast("T", stop.result)


class EvidenceBeside(str):
    """The name of an evidence file that was found beside its model, and not asked for."""

    __slots__ = ()


def choose_evidence(path: str, given: str | None, none: bool) -> str | None:
    """The evidence to use for a model: the one given, or the file ``.evid`` beside the model, unless ``none`` is true.

    For ``X.uai.gz`` the file beside it may be ``X.uai.gz.evid``, ``X.uai.evid`` or ``X.uai.evid.gz``.
    """
    if given is not None and none:
        raise ValueError("--evidence and --no-evidence must not both be given")
    if given is not None or none or path == "-":
        return given
    stem, packed = os.path.splitext(path)
    names = [f"{path}.evid"]
    if packed.lower() in (".gz", ".xz", ".bz2"):
        names += [f"{stem}.evid", f"{stem}.evid{packed}"]
    return next((EvidenceBeside(name) for name in names if os.path.isfile(name)), None)


def load(path: str, evidence: str | None = None, *, patience: float | None = None) -> Input:
    """Model and evidence, read from their files.

    Parameters
    ----------
    path : str
        The file of the model; ``-`` is stdin.
    evidence : str, optional
        A UAI or JSON file, or, where there is no such file, pairs such as ``SAO2=LOW,BP=HIGH``.
    patience : float, optional
        Seconds for somebody to write to a named pipe; without a number that may take as long as it likes.

    Raises
    ------
    BadFileError, FormatError
        If a file cannot be read, or does not follow its format.
    ValueError
        If evidence is neither a file nor pairs, or names what the model does not have.
    """
    if path == evidence == "-":
        raise ValueError("MODEL and --evidence must not both be -: stdin holds one of them")
    if evidence is not None and not (_is_pairs(evidence) or os.path.exists(evidence) or _names_file(evidence)):
        raise ValueError(f"--evidence must be a file or pairs such as A=x,B=y, got {evidence!r}")
    model, network = read(_read_both, path, patience=patience)
    observed: dict[int, Any] = {} if evidence is None else _read_observed(evidence, model)
    notes: tuple[str, ...] = ()
    if isinstance(evidence, EvidenceBeside):
        notes = (f"with the evidence of {display_name(evidence)}: --no-evidence leaves it out",)
    return Input(path, evidence, model, observed, network, notes)


def _is_pairs(evidence: str) -> bool:
    """Whether evidence is given as pairs such as ``A=x``, and not as a file."""
    return not os.path.exists(evidence) and evidence != "-" and "=" in evidence


def _read_observed(evidence: str, model: MarkovRandomField) -> dict[int, Any]:
    """The observed state of each variable in evidence, by numbers of the model."""
    from fastmix.io.evidence import number_observations, parse_observations, parse_observations_json

    if _is_pairs(evidence):
        return parse_observations(evidence, model)
    if re.search(r"\.json(\.gz|\.xz|\.bz2)?$", evidence, re.IGNORECASE):
        content = decode_text(read(read_bytes, evidence), display_name(evidence))
        return number_observations(parse_observations_json(content, display_name(evidence)), model)
    return read(read_evidence, evidence, num_states=model.num_states)


def _read_both(path: str, patience: float | None) -> tuple[MarkovRandomField, BayesianNetwork | None]:
    """A model from a file, and the network that it stands for where the file holds one."""
    found = read_model_or_network(path, patience=patience)
    return (found.to_model(), found) if isinstance(found, BayesianNetwork) else (found, None)


def _names_file(text: str) -> bool:
    """Whether a text that names no file was meant to: it is ``-``, has a folder, or ends as names of files do."""
    return text == "-" or "/" in text or os.sep in text or bool(re.search(r"\.[A-Za-z]\w*$", text))


def load_marginals(path: str, model: MarkovRandomField) -> NDArray[np.float64]:
    """Marginals from a MAR file, flat, checked against the model."""
    vectors = read(read_mar, path)
    if [len(v) for v in vectors] != model.num_states.tolist():
        raise BadFileError(f"{path}: must list {model.num_variables} variables with the state counts of the model")
    return np.concatenate(vectors) if vectors else np.zeros(0)


def read(function: Callable[..., T], path: str, **options: Any) -> T:
    """The result of a function that reads a file; its errors become :class:`BadFileError` or :class:`FormatError`.

    A named pipe that is waited for without end is named on stderr after a while.
    """
    unending = options.get("patience") is None
    with blaming_input(path), _telling_of_pipe(path) if unending else contextlib.nullcontext():
        try:
            return function(path, **options)
        except OSError as error:
            reason = error.strerror or str(error).removeprefix(f"{path}: ")
            raise BadFileError(f"{display_name(path) or repr(path)}: {reason}") from error


@contextlib.contextmanager
def _telling_of_pipe(path: str) -> Iterator[None]:
    """Say on stderr what is waited for, if reading a named pipe lasts: its writer may be slow, or forgotten."""
    if not _is_pipe(path):
        yield
        return
    text = f"note: waiting for what is written to the pipe {display_name(path)} (Ctrl-C ends this)"
    timer = threading.Timer(PIPE_NOTICE_SECONDS, message, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_pipe(path: str) -> bool:
    """Whether a path is that of a named pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def blaming_input(path: str, evidence: str | None = None) -> Iterator[None]:
    """Turn errors of a model that was read from a file into a :class:`BadFileError` that names the file.

    A model or evidence that has probability zero is no fault of a file: the error keeps its kind and gets the name.
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
    """Refuse outputs that cannot be written, that replace an input or each other, or that share stdout.

    Names of outputs need a suffix that is ``allowed``; without any, none.
    """
    places = [path for path in outputs if path is not None]
    _check_streams(places, checkpoint, as_json)
    inputs = {os.path.realpath(source) for source in sources}
    for path in places:
        if path != "-":
            if allowed:
                answer_suffix(path, allowed, name="-o")
            _check_place("-o", path, inputs)
    if checkpoint is not None:
        _check_place("--checkpoint", checkpoint, inputs)
        if os.path.realpath(checkpoint) in map(os.path.realpath, places):
            raise ValueError(f"-o and --checkpoint must be two files, got {checkpoint!r} for both")


def _check_streams(places: Sequence[str], checkpoint: str | None, as_json: bool) -> None:
    """Refuse outputs that are the same file, have no name, or share stdout with JSON."""
    if len({os.path.realpath(path) for path in places}) < len(places):
        raise ValueError(f"-o must name different files, got {', '.join(map(repr, places))}")
    if "" in places:
        raise ValueError("-o must name a file, got ''")
    if checkpoint == "":
        raise ValueError("--checkpoint must name a file, got ''")
    if "-" in places and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if checkpoint == "-":
        raise ValueError("--checkpoint must be a file, got '-'")


def _check_place(option: str, path: str, inputs: set[str]) -> None:
    """Refuse the place of a file that cannot be written, or that is one of the inputs."""
    check_writable(path)
    if os.path.realpath(path) in inputs:
        raise ValueError(f"{option} must not be the input, which it would replace, got {path!r}")


def check_model_output(sources: Sequence[str], path: str | None, as_json: bool, checkpoint: str | None = None) -> None:
    """Refuse the place of a model that cannot be written, or whose name has no format."""
    check_outputs(sources, [path], checkpoint, as_json=as_json)
    if path is not None:
        format_of(path)


def check_output_folder(path: str) -> None:
    """Refuse a folder for outputs that cannot be made or written to."""
    if not path:
        raise ValueError("-o must name a folder, got ''")
    check_folder(path)
