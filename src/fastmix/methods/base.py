"""``Method``: what every way of inference is; ``Context``: what a run is given; and the registry of methods.

A method is a frozen dataclass whose fields are its options::

    @register
    @dataclass(frozen=True)
    class Coin(Method):
        name: ClassVar[str] = "coin"
        num_tosses: int = option(100, help="Tosses of the coin.")

        def run(self, model, context):
            ...
            return InferenceResult(model, self.name, Status.OK, node_marginals, None, None)

From then on ``infer(model, method="coin", num_tosses=7)``, ``compare``, ``fastmix infer --method coin --num-tosses 7``
and :func:`fastmix.testing.assert_conforms` know it. A package that declares an entry point of the group
``fastmix.methods`` (``coin = "package.module:Coin"``) is found without being imported first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fastmix._checks import check_backend, check_flag, check_threads, choose_seed, describe
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report, listening
from fastmix.errors import (
    ImpossibleEvidenceError,
    ImpossibleModelError,
    Interrupted,
    ResourceError,
    UnfitMethodError,
)
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, check_evidence, reduce_model
from fastmix.results import InferenceResult, Status, ZeroResult, plain_evidence, provenance

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fastmix.executors import Pool

__all__ = [
    "DEFAULT_SECONDS", "METHODS", "Context", "Method", "find_method", "make_method", "method_names",
    "option", "options_of", "refuse_unknown", "register", "run_method",
]  # fmt: skip

DEFAULT_SECONDS = 60.0  # of runs that were given neither a time limit nor the amount of work


def option(
    default: Any = None,
    *,
    help: str = "",  # noqa: A002  # as parsers call it
    parse: Callable[[str], Any] | None = None,
    cli: bool = True,
) -> Any:
    """A field of a method: its default, a line of help, and how (and whether) the command line reads it."""
    return field(default=default, metadata={"help": help, "parse": parse, "cli": cli})


@dataclass(frozen=True)
class Context:
    """What a run is given beside the model and its own options; made once per call."""

    seed: int
    clock: Clock  #: since the call began: ``past()`` says when to stop, ``report()`` tells how far the run has come
    num_threads: int = 1
    backend: str = "cpu"  #: or cuda or auto
    edge_marginals: bool | None = None  #: whether they are wanted; None where the user did not say
    log_z: bool = False  #: whether it is wanted
    given: bool = False  #: whether the model is one given evidence, for messages
    reduction: Reduction | None = None  #: how the model of the run came from that of the user
    certify: bool = True  #: whether what is guaranteed is worth the time of a certificate
    pool: Pool | None = None  #: workers to share chains with


@dataclass(frozen=True)
class Method:
    """A way of inference: a frozen dataclass whose fields are its options, each of which it validates."""

    name: ClassVar[str]  #: by which users call it
    guarantee: ClassVar[str] = "none"  #: what is known about its answers
    #: Whether seed, num_threads, backend="cuda" and log_z=True mean something to it; the first two are for all methods.
    seeded: ClassVar[bool] = True
    threaded: ClassVar[bool] = True
    on_gpu: ClassVar[bool] = False
    gives_log_z: ClassVar[bool] = False
    takes_factors: ClassVar[bool] = False  #: whether models may have factors over three or more variables
    drops_forbidden: ClassVar[bool] = True  #: whether states that a unary forbids are taken out before run()
    shares: ClassVar[bool] = False  #: whether it has chains that an executor can run
    answers_zero: ClassVar[bool] = False  #: whether Z = 0, once proven, is an answer: not where draws are made
    #: Whether ``ok`` says nothing about its errors: then ``auto``, where it chose the method, looks for support.
    needs_support: ClassVar[bool] = False

    def check(self, model: MarkovRandomField) -> None:
        """Raise an :class:`UnfitMethodError` that says why, where the method cannot answer for this model."""

    def fits_in_time(self, model: MarkovRandomField, clock: Clock) -> str | None:  # noqa: ARG002 (some need it)
        """As :meth:`fits`, within the limit of a clock where finding out takes long."""
        return self.fits(model)

    def fits(self, model: MarkovRandomField) -> str | None:
        """None, or in a sentence why the method cannot answer for this model."""
        if model.num_factors and not self.takes_factors:
            return f"{self.name} takes no factors over three or more variables; the model has {model.num_factors}"
        try:
            self.check(model)
        except UnfitMethodError as error:
            return str(error)
        return None

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """What evidence and forbidden states leave of a model for :meth:`run`; stops with the clock's limit."""
        return reduce_model(model, evidence, drop_forbidden=self.drops_forbidden, clock=clock)

    def budget(self) -> float | None:
        """Seconds that a run without a time limit takes at most; None for as long as it takes."""
        return DEFAULT_SECONDS

    def saved_seed(self) -> int | None:
        """The seed of a run that is to go on, where there is one."""
        return None

    def run(self, model: MarkovRandomField, context: Context) -> InferenceResult:
        """The answer for a model that evidence and forbidden states have been taken out of.

        Stops when ``context.clock.past()``. On KeyboardInterrupt it returns what there is with the status
        ``interrupted``, or lets it through where there is nothing yet (:class:`fastmix.Interrupted` can say why).
        ``provenance`` of the result needs to hold only what differs from the options, under ``options`` and ``device``.
        """
        raise NotImplementedError


M = TypeVar("M", bound=type[Method])

# Where the methods live; they are imported when they are first used.
_HOMES = {
    "auto": "auto:Auto",
    "exact": "auto:Exact",
    "mean-field": "mean_field:MeanField",
    "loopy-bp": "loopy_bp:LoopyBP",
    "gibbs": "sampler:Gibbs",
    "swendsen-wang": "sampler:SwendsenWang",
    "tempered": "tempering.api:Tempered",
    "projected": "projected:Projected",
    "annealed": "annealed:Annealed",
    "perfect": "perfect:Perfect",
}
METHODS = tuple(_HOMES)
_ADDED: dict[str, type[Method]] = {}


def register(method: M) -> M:
    """Add a method to those that can be called by name; usable as a decorator of its class."""
    name = getattr(method, "name", None)
    if not isinstance(method, type) or not issubclass(method, Method) or not isinstance(name, str) or not name:
        raise TypeError(f"register needs a subclass of Method with a name, got {describe(method)}")
    if name in _HOMES or (name in _ADDED and _ADDED[name].__qualname__ != method.__qualname__):
        raise ValueError(f"name must be one that no other method has, got {name!r}")
    _ADDED[name] = method
    return method


def method_names() -> tuple[str, ...]:
    """Names of all methods that are known."""
    return (*METHODS, *_ADDED)


def find_method(name: object, argument: str = "method", among: tuple[str, ...] | None = None) -> type[Method]:
    """The class of the method with a name; an :class:`UnfitMethodError` that lists all names where there is none."""
    if isinstance(name, str) and (among is None or name in among):
        if name in _HOMES:
            module, _, attribute = _HOMES[name].partition(":")
            found: type[Method] = getattr(import_module(f"fastmix.methods.{module}"), attribute)
            return found
        if name not in _ADDED:
            from importlib.metadata import entry_points

            for entry in entry_points(group="fastmix.methods", name=name):
                register(entry.load())
        if name in _ADDED:
            return _ADDED[name]
    raise UnfitMethodError(f"{argument} must be one of {', '.join(among or method_names())}, got {describe(name)}")


def options_of(method: type[Method]) -> dict[str, dataclasses.Field[Any]]:
    """The options of a method by name."""
    return {f.name: f for f in fields(method)}


def refuse_unknown(method: type[Method], given: Mapping[str, Any]) -> None:
    """A ValueError for an option that a method does not have, which says whose it is."""
    for name in given:
        if name not in options_of(method):
            takers = [other for other in method_names() if other != "auto" and name in options_of(find_method(other))]
            if takers:
                raise ValueError(f"{name} must not be given with method {method.name!r}: it is for {', '.join(takers)}")
            raise ValueError(f"{name} is an option of no method; {method.name!r} takes {', '.join(options_of(method))}")


def make_method(method: str | Method, options: Mapping[str, Any], argument: str = "method") -> Method:
    """The method itself, or the one with a name and the options beside it that are not None."""
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(method, Method):
        if given:
            raise ValueError(f"{next(iter(given))} must be given to {type(method).__name__}(), not beside it")
        return method
    found = find_method(method, argument)
    refuse_unknown(found, given)
    return found(**given)


def run_method(
    method: Method,
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: str | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
    certify: bool = True,
) -> Any:
    """The answer of a method about all variables of a model, see :func:`fastmix.infer`."""
    check_model(model)
    backend = "cpu" if backend is None else backend
    check_backend(backend)
    if evidence is not None:
        check_evidence(evidence)
    edge_marginals = None if edge_marginals is None else check_flag("edge_marginals", edge_marginals)
    log_z = check_flag("log_z", log_z)
    if backend == "cuda" and not method.on_gpu:
        raise UnfitMethodError(
            f"backend must be cpu for the method {method.name}, got 'cuda'; gibbs and tempered can run on a GPU"
        )
    pool = None
    if executor is not None:
        from fastmix.executors import as_pool

        pool = as_pool(executor)
        if not method.shares:
            raise UnfitMethodError(
                f"executor must not come with the method {method.name}, which has no chains to share; gibbs, "
                "swendsen-wang and tempered do"
            )
        if backend != "cpu":
            raise ValueError(f"executor must come with the backend cpu, got {backend!r}")
    if log_z and not method.gives_log_z:
        raise UnfitMethodError(f"the method {method.name} gives no log Z; exact, tempered, annealed and loopy-bp do")
    saved = method.saved_seed() if seed is None else None
    chosen_seed, threads = choose_seed(seed if saved is None else saved), check_threads(num_threads)
    with listening(progress, method.name) as listener:
        clock = Clock(time_limit, default=method.budget(), listener=listener, what=method.name)
        context = Context(
            chosen_seed, clock, threads, backend, edge_marginals, log_z, bool(evidence), None, certify, pool
        )
        try:
            result = _run_reduced(method, model, evidence, context)
        except ImpossibleModelError as error:
            result = _answer_zero(method, model, bool(evidence), error)
    options: dict[str, Any] = {"method": method.name}
    options |= {f.name: _plain(getattr(method, f.name)) for f in fields(method)}
    options |= result.provenance.get("options", {})
    options |= {"evidence": plain_evidence(evidence), "time_limit": clock.asked, "backend": backend}
    options |= {name: True for name, asked in (("edge_marginals", edge_marginals), ("log_z", log_z)) if asked}
    origin = provenance(model, seed=chosen_seed, device=result.provenance.get("device", "cpu"), **options)
    stats = {"guarantee": method.guarantee, "stopped_by": "done", "backend": "cpu", **result.stats, **clock.stats()}
    stats["time_limit"] = clock.limit
    result = replace(result, stats=stats, provenance=origin)
    if result.status == Status.INTERRUPTED:
        raise Interrupted(f"{method.name} was interrupted; the result so far is in this exception", result)
    return result


def _run_reduced(
    method: Method, model: MarkovRandomField, evidence: Evidence | None, context: Context
) -> InferenceResult:
    """The answer of a method for what evidence and forbidden states leave of a model, told of all its variables."""
    clock = context.clock
    try:
        reduction = method.reduce(model, evidence, clock)
    except OutOfTimeError:
        raise ResourceError(
            f"the time limit of {clock.limit:g} s was over before evidence and forbidden states were taken out "
            "of the model: give it more time"
        ) from None
    if (reason := method.fits_in_time(reduction.model, clock)) is not None:
        raise UnfitMethodError(reason)
    result = method.run(reduction.model, replace(context, reduction=reduction))
    expansion = {} if reduction.model is model else result._expansion(reduction)
    return replace(result, **expansion)


def _answer_zero(method: Method, model: MarkovRandomField, given: bool, error: ImpossibleModelError) -> ZeroResult:
    """The answer that Z = 0; an error where that is due to evidence, and from methods that make draws."""
    if given:
        message = f"evidence must have positive probability, but it is impossible: {error}"
        raise ImpossibleEvidenceError(message) from None
    if not method.answers_zero:
        raise UnfitMethodError(f"the method {method.name} has nothing to draw, Z = 0: {error}") from None
    return ZeroResult.of(model, method.name, str(error))


def _plain(value: Any) -> Any:
    """An option as it is noted in the provenance."""
    plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
    return value if plain else repr(value) if dataclasses.is_dataclass(value) else f"a {type(value).__name__}"
