"""``project()``: the closest model whose Gibbs sampler mixes fast, in the divergence of choice."""

from __future__ import annotations

from typing import Literal

from fastmix._arrays import FloatArray
from fastmix._clock import Report
from fastmix._context import Context, open_context
from fastmix.errors import NotConvergedError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.projection.descent import StepRule
from fastmix.projection.divergence import Divergence, Euclidean
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.projector import ProjectionSettings, Projector, WarmStart
from fastmix.projection.result import ProjectionResult
from fastmix.results import Status
from fastmix.theory.norms import Norm

__all__ = ["project", "project_reduced"]


def project(
    model: MarkovRandomField,
    *,
    norm_bound: float,
    norm: Norm | Literal["width"] = "inf",
    divergence: Divergence | str = Euclidean(),  # noqa: B008 (frozen)
    dependency: Literal["range", "linf"] = "range",
    solver: Literal["fast"] | PaperDual = "fast",
    step: StepRule | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    evidence: Evidence | None = None,
    warm_start: ProjectionResult | FloatArray | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> ProjectionResult:
    """The closest model whose dependency matrix has a norm of at most ``norm_bound``.

    Minimizes a divergence subject to ``||R(T)|| <= norm_bound``, where R is the bound on the dependency in both
    directions of every edge. With the Euclidean divergence, ``sum over edges ||T_e - psi_e||_F^2``, that is a convex
    problem with a proven gap (Liu and Domke, 2014, Eq. 3). Other divergences (Eq. 7) are minimized by gradient steps,
    each followed by the Euclidean projection (Algorithm 1 there); the unaries are free then. Below 1 the projected
    model provably mixes fast; the paper's practical choice is 2.5, which proves nothing (see docs/theory.md).

    Parameters
    ----------
    model : MarkovRandomField
        States forbidden by a unary are left alone; -inf in a table or factor is refused. Factors over three or more
        variables take the Euclidean divergence: what depends on one or two of their variables is moved into unaries and
        tables, and the rest of every factor is multiplied by the best scale from 0 to 1 (``factor_scales``).
    norm_bound : float
        The largest norm that the dependency matrix may have; positive.
    norm : {"inf", "spectral", "1", "frobenius", "width"}
        The norm that is bounded. Norm inf is the fastest; spectral changes the model least. Norm 1 equals inf here,
        because both directions share one bound. ``width`` bounds the width of the couplings instead (criterion
        ``width`` of :func:`fastmix.certify`, for updates in random order): a larger set for dense models and mixed
        signs. The width takes the Euclidean divergence, the fast solver, and no factors; its relative gap is at least
        1e-3 where fewer than a tenth of all pairs are edges, and about 1e-2 beyond 3,000 coordinates (states of all
        variables but one of each).
    divergence : Divergence or str
        :class:`~fastmix.projection.Euclidean`, :class:`~fastmix.projection.KL`,
        :class:`~fastmix.projection.PiecewiseKL`, :class:`~fastmix.projection.ReversedKL`, or one of your own; or its
        name (``euclidean``, ``kl``, ``piecewise-kl``, ``reversed-kl``) for the default settings.
    dependency : {"range", "linf"}
        Bound on R, see :func:`fastmix.theory.dependency.edge_dependencies`: ``range`` is the tighter one and ignores
        terms of one variable; ``linf`` is the paper's. Where entries of tables are over a million times the bound, what
        depends on one variable of a table is moved into the unaries under ``range``, so that rounding does not break
        the bound.
    solver : "fast" or PaperDual
        The exact route that eliminates the tables, or the paper's dual (docs/theory.md).
    step : StepRule, optional
        The rule of the descent; each divergence has its default. Not for the Euclidean divergence.
    tol : float
        Relative duality gap of every Euclidean projection: gap / (1 + squared distance).
    max_iter : int
        Largest number of iterations of every Euclidean projection: passes (inf), steps (spectral, frobenius), outer
        iterations (the paper's dual), eigendecompositions (width, dense graphs) or blocks of 20 steps (width, sparse
        graphs).
    evidence : mapping, optional
        Observed state by variable: the model of the other variables given these is projected and returned.
    warm_start : ProjectionResult or its multipliers, optional
        An earlier result for the same norm on the same graph (any other counts as none), or its multipliers. The first
        projection begins with the multipliers, and a descent with the model of the result.
    seed : int, optional
        Seed of descents with random parts; drawn and returned when not given.
    time_limit : float, optional
        Seconds after which the model that was reached is returned with the status ``time_limit``: within the bound, if
        not the closest. Where there is no time for tables of many states, all tables are multiplied by one number.
    progress : "auto", None or callable
        See :func:`fastmix.infer`; a callable is called after every step of a descent, or block of iterations.

    Returns
    -------
    ProjectionResult
        A model that already meets the bound comes back unchanged.

    Raises
    ------
    NotConvergedError
        If the Euclidean projection does not reach ``tol`` in ``max_iter``; its ``result`` is the best point, which is
        within the bound.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the best point so far, within the bound; None before there is
        one.
    UnfitMethodError
        If a table or factor has -inf entries, the solver cannot handle the bound, or the divergence or solver cannot
        handle the graph or factors.
    ResourceError
        If a divergence needs exact inference beyond the memory.

    Notes
    -----
    Euclidean: about a millisecond for a 16x16 Ising grid (inf), seconds for a million variables; spectral takes tens of
    milliseconds, and about a second for 10,000 variables. Descents: tenths of a second for a 16x16 grid.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> from fastmix.projection import ReversedKL
    >>> model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    >>> result = project(model, norm_bound=0.9)
    >>> result.norm_after <= 0.9, result.certified, result.duality_gap < 1e-4
    (True, True, True)
    >>> result = project(model, norm_bound=2.5, divergence=ReversedKL(), seed=1)
    >>> result.norm_after <= 2.5, result.certified
    (True, False)
    """
    check_model(model)
    settings = ProjectionSettings.checked(
        norm_bound=norm_bound,
        norm=norm,
        dependency=dependency,
        solver=solver,
        divergence=divergence,
        step=step,
        tol=tol,
        max_iter=max_iter,
    )
    start = WarmStart.checked(warm_start)
    options = {**settings.options(), "warm_start": None if warm_start is None else "given"}
    with open_context(
        "projection", model, evidence=evidence, seed=seed, time_limit=time_limit, progress=progress, options=options
    ) as context:
        given = model if evidence is None else model.condition(evidence)
        return project_reduced(reduce_model(given), settings, start, context)


def project_reduced(
    reduction: Reduction, settings: ProjectionSettings, start: WarmStart, context: Context
) -> ProjectionResult:
    """The projection of the original model of a reduction, complete but for checks of the arguments.

    A :class:`NotConvergedError` where the Euclidean projection has not reached its tolerance.
    """
    projector = Projector(reduction, settings, context)
    projector.find_nearest(start)
    if projector.can_descend:
        return context.finish(projector.descend(start.earlier))
    result = context.finish(projector.euclidean_result())
    if result.status is Status.NOT_CONVERGED:
        raise NotConvergedError(_advice(result, settings.tol), result)
    return result


def _advice(result: ProjectionResult, tol: float) -> str:
    """The message for a Euclidean projection that did not reach its tolerance."""
    return (
        f"the projection did not converge in {result.stats['num_iterations']} iterations: relative gap "
        f"{result.relative_gap:.3g}, tol {tol:.3g}; the best point is in the result of this exception and is "
        "within the bound; raise max_iter or tol"
    )
