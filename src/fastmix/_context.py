"""``Context``: what one call of a public verb has, made once and handed to everything that works for it.

A verb checks its arguments, opens its context, works, and gives its result::

    with open_context("bracket", model, seed=seed, time_limit=time_limit, options=options) as context:
        work = Work(model, context)
        with Ending() as ending:
            work.run()
        return context.finish(work.result(ending))

So what a seed, a time limit, Ctrl-C and a checkpoint do is the same for all verbs (docs/calls.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

import numpy as np

from fastmix._checkpoint import Checkpoint
from fastmix._checks import check_backend, check_threads, choose_seed
from fastmix._clock import Clock, Report, listening
from fastmix.errors import Interrupted, NotConvergedError
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction
from fastmix.results import Status, plain_evidence, provenance

if TYPE_CHECKING:
    from fastmix.executors import Pool

__all__ = ["DEFAULT_LIMITS", "DEFAULT_SECONDS", "Backend", "Context", "open_context", "stream_seed"]

DEFAULT_SECONDS = 60.0  # of a call that was given neither a time limit nor, by its options, the amount of work

# The verbs that have this limit. Methods of inference say so themselves (``Method.default_limit``); other verbs run to
# their end: what they do is known beforehand, or an answer before the end would be none.
DEFAULT_LIMITS: Mapping[str, float] = dict.fromkeys(["bracket", "most probable", "denoise"], DEFAULT_SECONDS)

Backend = Literal["cpu", "cuda", "auto"]

R = TypeVar("R")


@dataclass(frozen=True)
class Context:
    """What a call has beside its arguments; made once, and handed to all that works for the call.

    Attributes
    ----------
    verb : str
        What the call is named in messages and progress bars: a verb, or the method of inference.
    seed : int
        Given by the user, or drawn. Random numbers come from :meth:`rng` and :meth:`seed_of`, never from it directly.
    clock : Clock
        Time since the call began: ``past()`` says when to stop, ``report()`` tells how far the call has come.
    num_threads : int
    backend : {"cpu", "cuda", "auto"}
    model : MarkovRandomField or None
        What the user asked about, before evidence was taken into account; None where the call makes a model.
    evidence : mapping or None
        As given by the user.
    reduction : Reduction or None
        What evidence and forbidden states leave of the model, once that has been found.
    pool : Pool or None
        Workers to share chains with.
    checkpoint : Checkpoint or None
        The file that the call is saved in, and goes on from.
    edge_marginals, log_z : bool or None, bool
        Of inference: whether joint probabilities of neighbors are wanted (None where the user did not say), and log Z.
    certify : bool
        Of inference: whether what is guaranteed is worth the time of a certificate.
    options : mapping
        What the user asked for, as the provenance of the result shows it.
    scope : str
        Which part of a call this is, see :meth:`within`; empty for the whole.
    streams : set of str
        Names of the streams of random numbers that were asked for so far, those of all parts of the call.
    """

    verb: str
    seed: int
    clock: Clock
    num_threads: int = 1
    backend: Backend = "cpu"
    model: MarkovRandomField | None = None
    evidence: Evidence | None = None
    reduction: Reduction | None = None
    pool: Pool | None = None
    checkpoint: Checkpoint | None = None
    edge_marginals: bool | None = None
    log_z: bool = False
    certify: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    streams: set[str] = field(default_factory=set, repr=False, compare=False)
    seed_given: bool = False  #: whether the user gave the seed, or it is kept in a checkpoint

    @property
    def given(self) -> bool:
        """Whether there is evidence, so that messages are about the model given it."""
        return bool(self.evidence)

    def seed_of(self, *name: str | int) -> int:
        """A seed for the chains, or the inner call, of this name: the same in every call with the seed of this one."""
        self.streams.add(f"{self.scope}{name}")
        return stream_seed(self.seed, self.scope, *name)

    def rng(self, *name: str | int) -> np.random.Generator:
        """A generator of random numbers that nothing of another name in this call draws."""
        return np.random.default_rng(self.seed_of(*name))

    def within(self, name: str, clock: Clock | None = None) -> Context:
        """The context of a part of this call: with streams of its own, and by the time of another clock if given."""
        return replace(self, scope=f"{self.scope}{name}/", clock=self.clock if clock is None else clock)

    def deciding_clock(self) -> Clock:
        """The clock that decisions may depend on: without a limit where a checkpoint must lead to the same bits."""
        return self.clock if self.checkpoint is None else Clock()

    def raise_nothing(self, stopped_by: str) -> NoReturn:
        """Raise the error of a call that ended before there was anything to report."""
        if stopped_by == "interrupt":
            raise Interrupted("interrupted before there was anything to report")
        raise NotConvergedError(f"{self.verb} stopped ({stopped_by}) before there was anything to report")

    def complete(self, result: R) -> R:
        """The result with the seconds of the call in its ``stats`` and what repeats it in its ``provenance``.

        What the result already has there stands: ``stopped_by`` and counts; the device, and options that were chosen.
        The seed is noted where it was given or random numbers were drawn.
        """
        found: Any = result
        options = {**self.options, **found.provenance.get("options", {})}
        device = found.provenance.get("device", "cpu")
        about = found.model if self.model is None else self.model
        used = self.seed if self.streams or self.seed_given else None
        origin = provenance(about, seed=used, device=device, **options)
        stats = {"stopped_by": "done", **found.stats, **self.clock.stats(), "time_limit": self.clock.limit}
        completed: R = replace(found, stats=stats, provenance=origin)
        return completed

    def finish(self, result: R) -> R:
        """The complete result of the call; where it was interrupted, an :class:`fastmix.Interrupted` that holds it."""
        finished: Any = self.complete(result)
        if finished.status is Status.INTERRUPTED:
            raise Interrupted(f"{self.verb} was interrupted; the result so far is in this exception", finished)
        answer: R = finished
        return answer


@contextmanager
def open_context(
    verb: str,
    model: MarkovRandomField | None = None,
    *,
    seed: int | None = None,
    time_limit: float | None = None,
    default_limit: float | None = None,
    progress: Report = "auto",
    evidence: Evidence | None = None,
    num_threads: int | None = None,
    backend: str | None = None,
    pool: Pool | None = None,
    checkpoint: tuple[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
    **request: Any,
) -> Iterator[Context]:
    """The context of a public call, around its work.

    Arguments that all verbs have are checked here; ``request`` are further fields of :class:`Context`.
    ``default_limit`` holds where no time limit is given; by default that of the verb. ``checkpoint`` is the name of a
    file and the seconds between two writes; its seed is that of the call where none is given. A KeyboardInterrupt that
    nothing within could make a result of becomes an :class:`fastmix.Interrupted` without one.
    """
    noted = {**(options or {}), "evidence": plain_evidence(evidence)}
    device: Backend = "cpu"
    if backend is not None:
        check_backend(backend)
        device = cast("Backend", backend)
        noted["backend"] = backend
    threads = check_threads(num_threads)
    saved = None if checkpoint is None else Checkpoint(*checkpoint)
    chosen = choose_seed(saved.seed if seed is None and saved is not None else seed)
    with listening(progress, verb) as listener:
        clock = Clock(time_limit, default=default_limit or DEFAULT_LIMITS.get(verb), listener=listener, what=verb)
        noted["time_limit"] = clock.asked
        yield Context(
            verb, chosen, clock, threads, device, model, evidence, pool=pool, checkpoint=saved, options=noted,
            seed_given=seed is not None or saved is not None, **request,
        )  # fmt: skip


def stream_seed(seed: int, *name: str | int) -> int:
    """A seed from 0 to 2^63 - 1 for the part of a call that has a name, made of words and numbers.

    Different names give different seeds, but for collisions of a cryptographic hash, and so do different seeds: a word
    is not taken for a number, nor two words for one.

    Examples
    --------
    >>> stream_seed(1, "starts") == stream_seed(1, "starts")
    True
    >>> len({stream_seed(1, "a", "b"), stream_seed(1, "ab"), stream_seed(1, "a", 1), stream_seed(2, "ab")})
    4
    """
    text = "\x1f".join([str(seed), *(f"{type(part).__name__} {part}" for part in name)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
