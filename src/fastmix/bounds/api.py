"""``bracket()``: proven lower and upper bounds on log Z and on every marginal."""

from __future__ import annotations

from typing import Any

from fastmix._checks import check_count, check_positive, choose_seed
from fastmix._clock import Clock, OutOfTimeError, Report, listening
from fastmix._memory import available_memory
from fastmix.bounds.result import BracketResult
from fastmix.bounds.terms import find_terms
from fastmix.bounds.work import Work
from fastmix.errors import Interrupted
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.results import plain_evidence, provenance

__all__ = ["bracket"]

_DEFAULT_SECONDS = 60.0


def bracket(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
    time_limit: float | None = None,
    confidence: float | None = None,
    num_draws: int = 20_000,
    seed: int | None = None,
    progress: Report = "auto",
) -> BracketResult:
    """Proven bounds on log Z and on every marginal, without any assumption on mixing.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, factors of any size, forbidden states.
    evidence : mapping, optional
        Observed states by variable, numbers or names.
    memory_limit : float, optional
        Bytes of tables; half of the memory that is free by default, a MiB beside the model at least. More memory means
        larger tables and tighter bounds.
    time_limit : float, optional
        Seconds, without those of compiling; 60 by default. It ends earlier where nothing more can be gained.
    confidence : float, optional
        Between 0 and 1: tighten by draws; all bounds then hold together with this probability.
    num_draws : int
        Draws at most, with ``confidence``.
    seed : int, optional
        Of covers and draws; drawn and returned when not given.
    progress : "auto", None or callable
        See :func:`fastmix.infer`.

    Returns
    -------
    BracketResult

    Raises
    ------
    ModelError
        If the evidence, or the model itself, has probability zero as far as that is found.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the bracket so far.

    Notes
    -----
    Where exact inference fits memory and time it gives both bounds. Otherwise the upper bound splits the model into
    covers of bounded treewidth (:mod:`fastmix.bounds.upper`), the lower bound is that of a product over clusters of
    bounded treewidth (:mod:`fastmix.bounds.lower`) or of configurations found, and bounds on the weight of every state
    come with both. Every sum has an allowance for rounding (:func:`fastmix.bounds.terms.rounding`) on the safe side.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(6, 6, coupling_max=0.5, seed=0)
    >>> exact = bracket(model, seed=0)
    >>> rough = bracket(model, memory_limit=1500, time_limit=1, seed=0)
    >>> exact.exact, rough.exact, rough.log_z_lower < exact.log_z_lower < rough.log_z_upper < rough.log_z_lower + 4.0
    (True, False, True)
    """
    check_model(model)
    if confidence is not None and not 0.0 < (confidence := check_positive("confidence", confidence)) < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    num_draws = check_count("num_draws", num_draws, least=2)
    limit = available_memory() / 2
    if memory_limit is not None:
        limit = check_positive("memory_limit", memory_limit, "number of bytes")
    seed = choose_seed(seed)
    options: dict[str, Any] = {
        "evidence": plain_evidence(evidence), "memory_limit": memory_limit, "time_limit": time_limit,
        "confidence": confidence, "num_draws": num_draws,
    }  # fmt: skip
    with listening(progress, "bracket") as listener:
        clock = Clock(time_limit, default=_DEFAULT_SECONDS, listener=listener, what="bracket")
        work = Work(model, evidence, limit, clock, seed)
        stopped_by = "done"
        try:
            work.run(confidence, num_draws)
        except OutOfTimeError:
            stopped_by = "time_limit"
        except KeyboardInterrupt:
            stopped_by = "interrupt"
        if work.terms is None and not work.exact:
            if stopped_by == "interrupt":
                raise KeyboardInterrupt
            work.terms = find_terms(model, evidence)
            work.take_crude()
        result = work.result(stopped_by, provenance(model, seed=seed, **options))
    if stopped_by == "interrupt":
        raise Interrupted("bracket was interrupted; the bounds so far are in this exception", result)
    return result
