"""``project()``: the closest model whose Gibbs sampler mixes fast, in the divergence of choice."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import choose_seed
from fastmix._clock import Clock
from fastmix.model import MarkovRandomField, check_model
from fastmix.projection.descent import project_divergence
from fastmix.projection.divergence import Divergence, Euclidean
from fastmix.projection.euclidean import check_arguments, project_euclidean
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.result import ProjectionResult
from fastmix.projection.steps import StepRule
from fastmix.theory.norms import Norm

__all__ = ["project"]

FloatArray = NDArray[np.float64]


def project(
    model: MarkovRandomField,
    *,
    norm_bound: float,
    norm: Norm = "inf",
    divergence: Divergence = Euclidean(),  # noqa: B008 (frozen)
    dependency: Literal["range", "linf"] = "range",
    solver: Literal["fast"] | PaperDual = "fast",
    step: StepRule | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    warm_start: ProjectionResult | FloatArray | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
) -> ProjectionResult:
    """The closest model whose dependency matrix has a norm of at most ``norm_bound``.

    Minimises a divergence subject to ``||R(T)|| <= norm_bound``, where R is the bound on the dependency in both
    directions of every edge. With the Euclidean divergence, ``sum over edges ||T_e - psi_e||_F^2``, that is a convex
    problem with a proven gap (Liu and Domke, 2014, section 5; the corrections are in docs/theory.md). Other divergences
    are minimised by gradient steps, each followed by the Euclidean projection (Algorithm 1 there); the unaries are free
    then. Below 1 the projected model provably mixes fast, see :func:`fastmix.certify`; the paper's practical choice is
    2.5, which keeps more of the model and proves nothing.

    Parameters
    ----------
    model : MarkovRandomField
        States forbidden by a unary are left alone; -inf in a table is refused.
    norm_bound : float
        Positive.
    norm : {"inf", "spectral", "1", "frobenius"}
        inf is the fastest; spectral changes the model least for the same guarantee. 1 equals inf here, because both
        directions share one bound.
    divergence : Divergence
        :class:`~fastmix.projection.Euclidean`, :class:`~fastmix.projection.KL`,
        :class:`~fastmix.projection.PiecewiseKL`, :class:`~fastmix.projection.ReversedKL`, or one of your own.
    dependency : {"range", "linf"}
        ``range`` is the tighter bound and ignores terms of one variable; ``linf`` is the paper's.
    solver : "fast" or PaperDual
        The exact route that eliminates the tables, or the paper's dual with L-BFGS-B (docs/theory.md). In a descent
        ``PaperDual(exact=False)`` is the smoothed operator with Z carried along, as the paper prints it.
    step : StepRule, optional
        How the descent steps; what the divergence finds best by default. Not for the Euclidean divergence.
    tol : float
        Relative duality gap of every Euclidean projection: gap / (1 + squared distance).
    max_iter : int
        Of every Euclidean projection: passes (inf), steps (spectral, frobenius) or outer iterations (the paper's dual).
    warm_start : ProjectionResult or its multipliers, optional
        An earlier result on the same graph: its multipliers start the first projection, and a descent begins at its
        model.
    seed : int, optional
        Of descents with random parts; drawn and returned when not given.
    time_limit : float, optional
        Seconds after which the model that was reached is returned with the status ``time_limit``: within the bound, if
        not the closest. Tables that there was no time for are scaled.

    Returns
    -------
    ProjectionResult
        A model that already meets the bound comes back unchanged.

    Raises
    ------
    NotConvergedError
        If the Euclidean projection does not reach ``tol`` in ``max_iter``, or on an interrupt (Ctrl-C); its ``result``
        is the best point, which is within the bound.
    UnfitMethodError
        If a table has -inf entries, the solver cannot handle the bound, or the divergence cannot handle the graph.
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
    clock = Clock(time_limit)
    check_model(model)
    check_arguments(norm_bound, norm, dependency, solver, tol, max_iter)
    if not isinstance(divergence, Divergence):
        raise ValueError(f"divergence must be a Divergence such as ReversedKL(), got {divergence!r}")
    if step is not None and not isinstance(step, StepRule):
        raise ValueError(f"step must be a StepRule such as FixedStep(), got {step!r}")
    seed = choose_seed(seed)
    if isinstance(divergence, Euclidean):
        if step is not None:
            raise ValueError("step must be left out for the Euclidean divergence, which is solved without a descent")
        return project_euclidean(
            model, norm_bound=norm_bound, norm=norm, dependency=dependency, solver=solver, tol=tol, max_iter=max_iter,
            warm_start=warm_start, clock=clock,
        )  # fmt: skip
    if isinstance(solver, PaperDual) and not solver.both_directions:
        raise ValueError("solver must bound both directions in a descent, got PaperDual(both_directions=False)")
    return project_divergence(
        model, divergence=divergence, step=divergence.default_step if step is None else step, norm_bound=norm_bound,
        norm=norm, dependency=dependency, solver=solver, tol=tol, max_iter=max_iter, warm_start=warm_start,
        seed=seed, clock=clock,
    )  # fmt: skip
