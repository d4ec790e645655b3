"""``draw_exact()``: independent configurations from the junction tree."""

from __future__ import annotations

from fastmix._checks import check_count
from fastmix._clock import OutOfTimeError, Report
from fastmix._context import open_context
from fastmix._memory import check_memory
from fastmix.exact.solver import plan_exact, too_late
from fastmix.exact.tuning import DRAW_BYTES
from fastmix.marginals import DrawResult
from fastmix.model import Evidence, MarkovRandomField, check_model

__all__ = ["draw_exact"]


def draw_exact(
    model: MarkovRandomField,
    *,
    num_draws: int = 100,
    evidence: Evidence | None = None,
    seed: int | None = None,
    memory_limit: float | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> DrawResult:
    """Independent exact configurations, ``states`` (num_draws, n), of all variables also with evidence.

    Parameters
    ----------
    model : MarkovRandomField
    num_draws : int
        Configurations to draw.
    evidence : mapping, optional
        Observed states by variable, numbers or names.
    seed : int, optional
        Makes the draws repeatable; drawn and noted in the provenance when not given.
    memory_limit : float, optional
        Bytes for the tables; half of the memory that is free by default.
    time_limit, progress
        See :func:`fastmix.infer`.

    Returns
    -------
    DrawResult

    Raises
    ------
    ImpossibleEvidenceError, ImpossibleModelError
        If nothing has positive probability.
    ResourceError
        If the tables need more memory, or the draws more time, than there is.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=20.0)
    >>> draws = draw_exact(model, num_draws=5, seed=1)
    >>> bool((draws[:, 0] == draws[:, 1]).all())
    True
    """
    check_model(model)
    num_draws = check_count("num_draws", num_draws, least=0)
    required = float(num_draws) * DRAW_BYTES * max(1, model.num_variables)
    check_memory(required, f"num_draws {num_draws}", "draw fewer at a time, each time with another seed")
    options = {"num_draws": num_draws, "memory_limit": memory_limit}
    with open_context(
        "exact draws", model, evidence=evidence, seed=seed, time_limit=time_limit, progress=progress, options=options
    ) as context:
        clock = context.clock
        rng = context.rng("draws")
        plan = plan_exact(model, evidence=evidence, memory_limit=memory_limit, clock=clock)
        try:
            if plan.seconds > clock.left():
                raise OutOfTimeError
            draws = plan.elimination.draw(num_draws, rng, clock)
        except OutOfTimeError:
            raise too_late(clock, plan.elimination) from None
        if plan.twins is not None:
            draws = plan.twins.expand_draws(draws, rng)
        states = plan.reduction.expand_states(draws)
        stats = {"guarantee": "independent exact draws", "treewidth": plan.elimination.treewidth}
        return context.finish(DrawResult.of(model, states, method="exact", stats=stats))
