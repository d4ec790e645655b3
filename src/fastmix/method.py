"""``Method``: what every way of inference is, the registry of methods, and how a method is run.

A method is a frozen dataclass whose fields are its options::

    @register_method
    @dataclass(frozen=True)
    class Coin(Method):
        '''Marginals by tossing a coin.

        Parameters
        ----------
        num_tosses : int
            Tosses of the coin.
        '''

        name: ClassVar[str] = "coin"
        num_tosses: int = 100

        def run(self, model, context):
            ...
            return InferenceResult(model=model, method=self.name, node_marginals=node_marginals)

From then on ``infer(model, method="coin", num_tosses=7)``, ``compare``, ``fastmix infer --method coin --num-tosses 7``
and :func:`fastmix.testing.assert_conforms` know it. A package that declares an entry point of the group
``fastmix.methods`` (``coin = "package.module:Coin"``) is found without being imported first.
"""  # noqa: D214, D215 (the section is that of the example)

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fastmix._checks import check_flag, describe
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report
from fastmix._context import DEFAULT_SECONDS, Context, open_context
from fastmix._registry import Registry
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError, ResourceError, UnfitMethodError
from fastmix.marginals import InferenceResult, ZeroResult
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.evidence import check_evidence
from fastmix.model.reduce import Reduction, reduce_model

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fastmix.executors import Pool

__all__ = [
    "ENGINES", "METHODS", "Context", "Method", "answer", "find_method", "make_method", "method_names", "open_method",
    "option", "options_of", "refuse_unknown", "register_method", "run_method", "with_options",
]  # fmt: skip


def option(default: Any, *, parse: Callable[[str], Any] | None = None, cli: bool = True) -> Any:
    """A field of a method that the command line must be told about: how it reads the option, or that it has none.

    Other options are ordinary fields of the dataclass.
    """
    return field(default=default, metadata={"parse": parse, "cli": cli})


@dataclass(frozen=True)
class Method:
    """A way of inference: a frozen dataclass whose fields are its options, each of which it validates.

    The Parameters section of its docstring says what each option is for; the first sentence of an entry is the help of
    the command line.
    """

    name: ClassVar[str]  #: by which users call it
    guarantee: ClassVar[str] = "none"  #: what is known about its answers
    seeded: ClassVar[bool] = True  #: whether answers depend on the seed, which all methods take
    threaded: ClassVar[bool] = True  #: whether it uses num_threads, which all methods take
    on_gpu: ClassVar[bool] = False  #: whether it takes backend="cuda"; others refuse it
    gives_log_z: ClassVar[bool] = False  #: whether it has log Z; others refuse log_z=True
    takes_factors: ClassVar[bool] = False  #: whether models may have factors over three or more variables
    #: Whether answers are right for the chains of hidden variables that laws of a network become, which updates of
    #: single variables cannot move.
    takes_laws: ClassVar[bool] = False
    drops_forbidden: ClassVar[bool] = True  #: whether states that a unary forbids are taken out before run()
    shares: ClassVar[bool] = False  #: whether it has chains that an executor can run
    answers_zero: ClassVar[bool] = False  #: whether Z = 0, once proven, is an answer: not where draws are made
    #: Whether ``ok`` says nothing about its errors: then ``auto``, where it chose the method, looks for support.
    needs_support: ClassVar[bool] = False

    def check(self, model: MarkovRandomField) -> None:
        """Raise an :class:`UnfitMethodError` that says why, where the method cannot answer for this model."""

    def for_laws(self) -> Method:
        """The method for a network with laws, where :attr:`takes_laws` is set: itself, or one that moves them."""
        return self

    def fits_in_time(self, model: MarkovRandomField, clock: Clock) -> str | None:  # noqa: ARG002 (some need it)
        """The reason why the model does not fit, None if it does, within the limit of a clock where that takes long."""
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
        """The reduction of a model by evidence and forbidden states, for :meth:`run`; stops with the clock's limit."""
        return reduce_model(model, evidence, drop_forbidden=self.drops_forbidden, clock=clock)

    def default_limit(self) -> float | None:
        """Seconds that a run without a time limit takes at most; None for as long as it takes."""
        return DEFAULT_SECONDS

    def checkpoint_file(self) -> tuple[str, float] | None:
        """The name of the file that a run is saved in, and the seconds between two writes; None where it is not."""
        return None

    def run(self, model: MarkovRandomField, context: Context) -> InferenceResult:
        """The answer for a model that evidence and forbidden states have been taken out of.

        Stops when ``context.clock.past()``. On KeyboardInterrupt it returns what there is with the status
        ``interrupted``, or lets it through where there is nothing yet (:class:`fastmix.Interrupted` can say why).
        Random numbers come from ``context.rng(name)`` and ``context.seed_of(name)``. ``provenance`` of the result needs
        to hold only what differs from the options, under ``options`` and ``device``.
        """
        raise NotImplementedError


M = TypeVar("M", bound=type[Method])
T = TypeVar("T", bound=Method)

# Where the methods live; they are imported when they are first used.
_HOMES = {
    "auto": "inference.auto:Auto",
    "exact": "inference.exact:Exact",
    "mean-field": "variational.mean_field:MeanField",
    "loopy-bp": "variational.loopy_bp:LoopyBP",
    "gibbs": "sampling.sample:Gibbs",
    "swendsen-wang": "sampling.sample:SwendsenWang",
    "tempered": "sampling.tempering.temper:Tempered",
    "projected": "inference.projected:Projected",
    "annealed": "sampling.anneal:Annealed",
    "multicanonical": "sampling.multicanonical:Multicanonical",
    "perfect": "sampling.perfect_sample:Perfect",
}
# Those that another library works for, which is in an extra.
_HOMES_OF_ENGINES = {"ganak": "inference.ganak:Ganak"}
METHODS = tuple(_HOMES)
ENGINES = tuple(_HOMES_OF_ENGINES)
ADDED: Registry[type[Method]] = Registry("method", "fastmix.methods", reserved=(*METHODS, *ENGINES))


def register_method(method: M) -> M:
    """Add a method to those that can be called by name; usable as a decorator of its class."""
    if not isinstance(method, type) or not issubclass(method, Method):
        raise TypeError(f"register_method needs a subclass of Method with a name, got {describe(method)}")
    ADDED.add(method)
    return method


def method_names() -> tuple[str, ...]:
    """Names of all methods that are known."""
    return (*METHODS, *ENGINES, *ADDED)


def find_method(name: object, argument: str = "method", among: tuple[str, ...] | None = None) -> type[Method]:
    """The class of the method with a name; a ValueError that lists all names where there is none."""
    if isinstance(name, str) and (among is None or name in among):
        home = _HOMES.get(name) or _HOMES_OF_ENGINES.get(name)
        if home is not None:
            module, _, attribute = home.partition(":")
            known: type[Method] = getattr(import_module(f"fastmix.{module}"), attribute)
            return known
        added = ADDED.find(name)
        if added is not None:
            return added
    raise ValueError(f"{argument} must be one of {', '.join(among or method_names())}, got {describe(name)}")


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


def with_options(method: type[T], options: Mapping[str, Any]) -> T:
    """The method of a class with these options; a ValueError for one that it does not have."""
    refuse_unknown(method, options)
    return method(**options)


def run_method(
    method: Method,
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: str = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
    certify: bool = True,
) -> Any:
    """The answer of a method about all variables of a model, see :func:`fastmix.infer`."""
    with open_method(
        method, model, evidence=evidence, edge_marginals=edge_marginals, log_z=log_z, seed=seed,
        num_threads=num_threads, backend=backend, time_limit=time_limit, progress=progress, executor=executor,
        certify=certify,
    ) as context:  # fmt: skip
        return context.finish(answer(method, context))


@contextmanager
def open_method(
    method: Method,
    model: MarkovRandomField,
    *,
    evidence: Evidence | None,
    edge_marginals: bool | None,
    log_z: bool,
    backend: str,
    executor: Executor | None,
    certify: bool,
    **call: Any,
) -> Iterator[Context]:
    """The context of a call of a method, after what it does not offer has been refused."""
    check_model(model)
    if evidence is not None:
        check_evidence(evidence)
    wanted: dict[str, Any] = {"log_z": check_flag("log_z", log_z)}
    if edge_marginals is not None:
        wanted["edge_marginals"] = check_flag("edge_marginals", edge_marginals)
    _refuse_requests(method, backend, wanted["log_z"])
    pool = None if executor is None else _pool_of(method, executor, backend)
    options: dict[str, Any] = {"method": method.name}
    options |= {f.name: _plain(getattr(method, f.name)) for f in fields(method)}
    options |= dict.fromkeys([name for name, asked in wanted.items() if asked], True)
    with open_context(
        method.name, model, evidence=evidence, backend=backend, pool=pool,
        default_limit=method.default_limit(), checkpoint=method.checkpoint_file(), options=options, certify=certify,
        **wanted, **call,
    ) as context:  # fmt: skip
        yield context


def answer(method: Method, context: Context) -> InferenceResult:
    """The answer of a method about the model and the evidence of a context, told of all variables."""
    assert context.model is not None
    try:
        result = _run_reduced(method, context.model, context)
    except ImpossibleModelError as error:
        result = _answer_zero(method, context.model, context.given, error)
    return replace(result, stats={"guarantee": method.guarantee, "backend": "cpu", **result.stats})


def _refuse_requests(method: Method, backend: str, log_z: bool) -> None:
    """An :class:`UnfitMethodError` where a method does not run on a GPU, or gives no log Z, that was asked of it."""
    if isinstance(backend, str) and backend == "cuda" and not method.on_gpu:
        names = _names_of_those(lambda other: other.on_gpu)
        raise UnfitMethodError(
            f"backend must be cpu for the method {method.name}, got 'cuda'; {names} can run on a GPU"
        )
    if log_z and not method.gives_log_z:
        names = _names_of_those(lambda other: other.gives_log_z)
        raise UnfitMethodError(f"the method {method.name} gives no log Z; {names} do")


def _pool_of(method: Method, executor: Executor, backend: str) -> Pool:
    """The workers of an executor, for a method that has chains to share."""
    from fastmix.executors import as_pool

    pool = as_pool(executor)
    if not method.shares:
        names = _names_of_those(lambda other: other.shares)
        raise UnfitMethodError(
            f"executor must not come with the method {method.name}, which has no chains to share; {names} do"
        )
    if backend != "cpu":
        raise ValueError(f"executor must come with the backend cpu, got {backend!r}")
    return pool


def _names_of_those(has: Callable[[type[Method]], bool]) -> str:
    """The names of the methods, but ``auto``, that have something, in a sentence."""
    names = [name for name in method_names() if name != "auto" and has(find_method(name))]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _run_reduced(method: Method, model: MarkovRandomField, context: Context) -> InferenceResult:
    """The answer of a method for what evidence and forbidden states leave of a model, told of all its variables."""
    clock = context.clock
    if model.num_hidden and not method.takes_laws:
        names = _names_of_those(lambda other: other.takes_laws)
        raise UnfitMethodError(
            f"the method {method.name} does not move the hidden variables of laws such as noisy-or; {names} take them, "
            "and every method takes network.dense().to_model(), where tables fit"
        )
    if model.num_hidden:
        method = method.for_laws()
    try:
        reduction = method.reduce(model, context.evidence, clock)
    except OutOfTimeError:
        raise ResourceError(
            f"the time limit of {clock.limit:g} s was over before evidence and forbidden states were taken out "
            "of the model: give it more time"
        ) from None
    if (reason := method.fits_in_time(reduction.model, clock)) is not None:
        raise UnfitMethodError(reason)
    result = method.run(reduction.model, replace(context, reduction=reduction))
    expansion = {} if reduction.model is model else result.expansion(reduction)
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
