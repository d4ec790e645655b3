"""The Euclidean projection of Liu and Domke (2014): a smoothed dual, climbed by L-BFGS-B.

The tables of a model psi move as little as possible until a norm of the dependency bound R is at most c. A symmetric
matrix Z of upper bounds on R, zero outside the edges, is drawn to a given matrix Y, which makes the dual smooth:

    minimise    ||theta - psi||^2 + alpha ||Z - Y||_F^2
    subject to  Z_ij >= R_ij(theta),  Z_ji >= R_ji(theta),  Z_ij = Z_ji,  ||Z|| <= c.

For ``linf`` every R is the largest of finitely many contrasts ``|theta_p - theta_q| / 2``, where p and q are two
entries in one row (R_ij, i < j) or in one column (R_ji) of the table of an edge. Each unordered contrast k of slot s(k)
(the matrix entry ij or ji) has a multiplier sigma_k >= 0 for the plus sign and phi_k >= 0 for the minus sign, Gamma_e
ties Z_ij to Z_ji, and Delta holds the entries outside the edges at zero. With

    w      = 1/2 sum_k (sigma_k - phi_k)(e_p - e_q)
    Lambda = sums of sigma + phi by slot, + Gamma_e at ij, - Gamma_e at ji, Delta outside the edges

the dual function splits into

    min_theta  ||theta - psi||^2 + <w, theta>                  at theta = psi - w / 2
    min_Z      -<Lambda, Z> + alpha ||Z - Y||^2, ||Z|| <= c    at Z = point of the ball next to Y + Lambda / (2 alpha)

and its gradient is ``(theta_p - theta_q)/2 - Z_s`` for sigma, ``-(theta_p - theta_q)/2 - Z_s`` for phi,
``Z_ji - Z_ij`` for Gamma and ``-Z`` for Delta. The infinity norm needs no Delta, because its ball keeps zeros; the
spectral norm needs no Gamma, because the dual function is largest where Lambda is symmetric, and Z is symmetric then.

Repeating with Y <- Z is the proximal-point iteration, which ends at the projection without the smoothing term.

References
----------
X. Liu and J. Domke, "Projecting Markov random field parameters for fast mixing", NIPS 2014, section 5 and appendix.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_count, check_positive
from fastmix._memory import available_memory, format_bytes
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.projection.paper_problem import Dual, Norm, Problem

__all__ = ["PaperDual", "PaperDualSolution", "project_paper"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LOGGER = logging.getLogger(__name__)
_MEMORY = 20  # pairs of vectors that L-BFGS-B keeps
_MAX_RESTARTS = 10  # of one smoothed step, each with the values measured from a nearer point


@dataclass(frozen=True)
class PaperDual:
    """How to run the projection of Liu and Domke.

    Parameters
    ----------
    alpha : float
        Weight of ``||Z - Y||_F^2``, positive. It does not depend on the scale of the model: multiplying tables and
        norm bound by a number multiplies both terms of the objective alike. A smaller alpha takes fewer, harder
        steps; see Notes.
    exact : bool
        True repeats the smoothed step with ``Y <- Z`` until the projection without the smoothing term is reached;
        False takes one smoothed step, the operator that the paper uses within projected gradient descent.
    both_directions : bool
        True bounds R_ij and R_ji, as a claim about the norm of R needs. False bounds R_ij for i < j only, the formula
        as printed, to reproduce the paper; the norm of R may then exceed the norm bound.
    inner_tol : float
        With ``exact``: accuracy of the first smoothed step, as the largest violation of ``Z >= R`` relative to the
        norm bound. Later steps are solved more accurately as the iteration closes in.
    max_inner, max_outer : int
        Most L-BFGS-B iterations in one smoothed step, and most smoothed steps.

    Notes
    -----
    On an edge of an Ising model the two terms are ``4 (|J| - z)^2`` and ``2 alpha (z - y)^2``: of equal weight at
    alpha = 2, where a step halves the distance to the projection. No other value does clearly better over different
    models. Evaluations of the dual to a relative gap of 1e-10 in the infinity norm, c = 2.5 (and 0.95):

    ==========================================  =============  =============  ===========  ===========
    model                                       alpha = 0.3    1              2            5
    ==========================================  =============  =============  ===========  ===========
    Ising, 16 by 16, couplings in [0, 3]        255 (486)      216 (377)      218 (396)    364 (622)
    Potts, 8 by 8, 3 states, in [-3, 3]         255 (567)      181 (331)      174 (354)    196 (361)
    normal tables, 6 by 6, 4 states             2298 (2060)    1292 (1218)    920 (1002)   1024 (792)
    normal tables, 6-regular, 2 to 5 states     1768 (1378)    1423 (612)     954 (535)    715 (557)
    ==========================================  =============  =============  ===========  ===========

    To 1e-6 in the spectral norm the first row is 610 (3189), 487 (2462), 355 (1563) and 388 (1345) for
    alpha = 0.5, 1, 2, 4.

    Examples
    --------
    >>> PaperDual(exact=False).alpha
    2.0
    """

    alpha: float = 2.0
    exact: bool = True
    both_directions: bool = True
    inner_tol: float = 1e-2
    max_inner: int = 1000
    max_outer: int = 200

    def __post_init__(self) -> None:
        for name in ("alpha", "inner_tol"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        for name in ("exact", "both_directions"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("max_inner", "max_outer"):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least=1))


@dataclass(frozen=True)
class PaperDualSolution:
    """A projected model and how it was found.

    Attributes
    ----------
    log_pairwise : float array, aligned with ``model.log_pairwise``
        The new tables; the norm of their dependency bound is at most the norm bound.
    z : float array (m,)
        Z of every edge at the last smoothed step: the Y of the next one.
    y : float array (m,)
        Y of the last smoothed step.
    multipliers : float array
        sigma, phi, then Gamma (infinity norm) or Delta (spectral norm), to start from again.
    objective : float
        Squared distance ``||theta - psi||^2`` of the answer.
    lower_bound : float
        No model that meets the norm bound has a smaller objective than this; it comes from the multipliers.
    iterations, inner_iterations, evaluations : int
        Smoothed steps; iterations of L-BFGS-B and evaluations of the dual function, over all steps.
    history : tuple of (float, float)
        After every smoothed step the best objective so far and, with ``exact``, its gap to the best lower bound;
        without ``exact``, the largest entry of the projected gradient.
    converged : bool
        Whether ``tol`` was met.
    """

    log_pairwise: FloatArray
    z: FloatArray
    y: FloatArray
    multipliers: FloatArray
    objective: float
    lower_bound: float
    iterations: int
    inner_iterations: int
    evaluations: int
    history: tuple[tuple[float, float], ...]
    converged: bool

    @property
    def gap(self) -> float:
        """Most that the objective can exceed the smallest possible one."""
        return max(self.objective - self.lower_bound, 0.0)


def project_paper(
    model: MarkovRandomField,
    *,
    norm_bound: float,
    norm: Norm = "inf",
    dependency: Literal["range", "linf"] = "linf",
    settings: PaperDual | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: PaperDualSolution | None = None,
) -> PaperDualSolution:
    """The tables nearest to those of a model whose dependency bound has a norm of at most ``norm_bound``.

    Parameters
    ----------
    model : MarkovRandomField
        Every table entry must be finite. Unaries play no part.
    norm_bound : float
        The largest norm c allowed, positive.
    norm : {"inf", "spectral"}
        Largest row sum or largest eigenvalue of the symmetric matrix of ``max(R_ij, R_ji)``.
    dependency : {"linf", "range"}
        The bound on R. ``range`` needs edges whose tables are 2 by 2 or have a single row or column: there it is the
        ``linf`` bound of the table without its row and column effects, which are set aside and added back.
    settings : PaperDual, optional
        Smoothing, and limits of the steps.
    tol : float
        With ``settings.exact``, stop when ``gap <= tol * (1 + objective)``; otherwise, when every constraint
        ``Z >= R`` holds to ``tol * norm_bound``.
    max_iter : int
        Most smoothed steps; ``settings.max_outer`` counts too, and the smaller of the two holds.
    start : PaperDualSolution, optional
        Y and the multipliers are taken from its ``z`` and ``multipliers``: an earlier answer for the same graph, state
        counts, norm and directions. Otherwise the multipliers start at zero and Y at R of the model, scaled into the
        ball.

    Returns
    -------
    PaperDualSolution
        Always with tables that meet the bound (what the iteration leaves over is taken off by shrinking tables
        towards their means), converged or not. A model that meets the bound comes back unchanged; the one exception
        is a single smoothed step (``exact`` false) from a given ``start``, whose Y may pull the tables further in.

    Raises
    ------
    UnfitMethodError
        If a table holds -inf, or ``bound`` is ``range`` and an edge has more states.
    ResourceError
        If the multipliers do not fit into memory.
    ValueError
        If an argument is not valid.

    Notes
    -----
    With L states an edge has L^2 (L - 1) contrasts, each with two multipliers; an evaluation costs O(m L^3), plus, for
    the infinity norm, sorting the rows of Z, O(m log d), and for the spectral norm, which has another n (n + 1) / 2 - m
    multipliers, an eigenvalue decomposition, O(n^3).

    *Lower bound.* Let u_e >= 0 be prices and K a number such that ``sum_e u_e z_e <= K`` for every Z >= 0 with
    ||Z|| <= c. If the multipliers of each edge e add up to at most u_e, then by the first part of the dual
    ``sum_e (<w_e, psi_e> - ||w_e||^2 / 4) - K`` bounds the objective of every feasible model from below. The prices are
    read off the step from ``A = Y + Lambda / (2 alpha)`` into the ball, ``N = 2 alpha (A - Z)``, whose inner product
    with any Z of the ball is at most c times its dual norm: for the infinity norm ``u_e = v_i + v_j``, with v_i the
    threshold that row i was shrunk by times 2 alpha, and ``K = c sum_i v_i``; for the spectral norm
    ``u_e = 2 max(N_ij, 0)`` and K is c times the nuclear norm of N so corrected. Lastly the multipliers of each edge
    are multiplied by the number, within its price, that gives the largest bound.

    References
    ----------
    X. Liu and J. Domke, "Projecting Markov random field parameters for fast mixing", NIPS 2014, Theorem 7.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[2.0, 1.0])
    >>> answer = project_paper(model, norm_bound=1.0, tol=1e-9)
    >>> (answer.log_pairwise.round(3) + 0.0).tolist()
    [1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    >>> round(answer.objective, 6), answer.gap < 1e-7
    (8.0, True)
    """
    settings = PaperDual() if settings is None else settings
    if not isinstance(settings, PaperDual):
        raise ValueError(f"settings must be a PaperDual, got {settings!r}")
    limit, tolerance = check_positive("norm_bound", norm_bound), check_positive("tol", tol)
    max_steps = min(settings.max_outer, check_count("max_iter", max_iter, least=1))
    if norm not in ("inf", "spectral"):
        raise ValueError(f"norm must be 'inf' or 'spectral', got {norm!r}")
    _check_fits(model, dependency)
    size = _check_memory(model, norm, settings.both_directions, multipliers=False)
    if model.num_edges == 0:
        nothing = np.zeros(0)
        return PaperDualSolution(nothing, nothing, nothing, np.zeros(size), 0.0, 0.0, 0, 0, 0, (), True)
    problem = Problem.of(model, limit, norm, dependency, settings.both_directions)
    r = problem.dependency(model.log_pairwise)
    if problem.norm_of(r) <= limit and (settings.exact or start is None):
        return PaperDualSolution(model.log_pairwise.copy(), r, r, np.zeros(size), 0.0, 0.0, 0, 0, 0, (), True)
    _check_memory(model, norm, settings.both_directions)
    if start is None:
        y, x = problem.scaled(r), np.zeros(size)
    else:
        y, x = _checked_start(start, size, model.num_edges)
    dual = Dual(problem, settings.alpha)
    if settings.exact:
        return _proximal_point(dual, x, y, settings, tolerance, max_steps)
    return _smoothed_step(dual, x, y, settings, tolerance)


# -- iterations -------------------------------------------------------------------------------------------------------


def _proximal_point(
    dual: Dual, x: FloatArray, y: FloatArray, settings: PaperDual, tol: float, max_steps: int
) -> PaperDualSolution:
    """Smoothed steps with Y <- Z until the gap is closed."""
    problem = dual.problem
    best, objective = problem.repaired(problem.psi)
    lower = 0.0
    accuracy = settings.inner_tol * problem.limit
    history: list[tuple[float, float]] = []
    inner, stalled = 0, 0
    z = y
    converged = objective <= tol * (1.0 + objective)
    while not converged and len(history) < max_steps and stalled < 3:
        y = z
        x, used = _maximise(dual, x, y, accuracy, settings.max_inner)
        inner += used
        point = dual.evaluate(x, y)
        tables, value = problem.repaired(point.theta)
        previous = objective - lower
        if value < objective:
            best, objective = tables, value
        lower = max(lower, dual.lower_bound(point))
        gap = max(objective - lower, 0.0)
        history.append((objective, gap))
        converged = gap <= tol * (1.0 + objective)
        z = 0.5 * (point.z[0::2] + point.z[1::2])
        # An inner error well below the size of the step keeps the rate of the exact iteration.
        accuracy = min(accuracy, 0.1 * float(np.abs(z - y).max()))
        stalled = stalled + 1 if used == 0 and gap >= previous else 0
        _LOGGER.debug("step %d: %d iterations, objective %.12g, gap %.3g", len(history), used, objective, gap)
    counts = len(history), inner, dual.evaluations
    return PaperDualSolution(best, z, y, x, objective, lower, *counts, tuple(history), converged)


def _smoothed_step(dual: Dual, x: FloatArray, y: FloatArray, settings: PaperDual, tol: float) -> PaperDualSolution:
    """One smoothed projection; L-BFGS-B is restarted where the rounding of the dual function stops it early."""
    problem = dual.problem
    accuracy = tol * problem.limit
    inner = 0
    for _ in range(_MAX_RESTARTS):
        x, used = _maximise(dual, x, y, accuracy, settings.max_inner - inner)
        inner += used
        point = dual.evaluate(x, y)
        residual = float(np.abs(np.maximum(point.gradient, dual.lowest - x)).max())
        if residual <= accuracy or used == 0 or inner >= settings.max_inner:
            break
    tables, objective = problem.repaired(point.theta)
    z = 0.5 * (point.z[0::2] + point.z[1::2])
    lower = max(0.0, dual.lower_bound(point))
    history, counts = ((objective, residual),), (1, inner, dual.evaluations)
    return PaperDualSolution(tables, z, y, x, objective, lower, *counts, history, residual <= accuracy)


def _maximise(dual: Dual, x: FloatArray, y: FloatArray, accuracy: float, max_iterations: int) -> tuple[FloatArray, int]:
    """Multipliers that maximise the smoothed dual for one Y, and the iterations of L-BFGS-B."""
    from scipy.optimize import Bounds, minimize

    base = dual.evaluate(x, y)

    def loss(candidate: FloatArray) -> tuple[float, FloatArray]:
        if np.array_equal(candidate, base.x):
            return 0.0, -base.gradient
        point = dual.evaluate(candidate, y)
        return -dual.change(point, base), -point.gradient

    options = {
        "maxcor": _MEMORY,
        "maxiter": max_iterations,
        "maxfun": 20 * max_iterations + 20,
        "maxls": 40,
        "ftol": 0.0,
        "gtol": accuracy,
    }
    bounds = Bounds(dual.lowest, np.full(dual.size, np.inf))
    answer = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.maximum(answer.x, dual.lowest), int(answer.nit)


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_fits(model: MarkovRandomField, dependency: str) -> None:
    if dependency not in ("range", "linf"):
        raise ValueError(f"dependency must be 'linf' or 'range', got {dependency!r}")
    if model.log_pairwise.size and model.log_pairwise.min() == -np.inf:
        position = int(np.flatnonzero(model.log_pairwise == -np.inf)[0])
        e = int(np.searchsorted(model.pairwise_offsets, position, side="right")) - 1
        i, j = model.edges[e].tolist()
        raise UnfitMethodError(
            f"the table of edge ({i}, {j}) holds -inf, so that its dependency bound is infinite and no finite change "
            "of the model makes it fast mixing; soften the forbidden pair"
        )
    counts = model.num_states[model.edges]
    if dependency == "range" and (unfit := (counts.min(axis=1) > 1) & (counts.max(axis=1) > 2)).any():
        i, j = model.edges[int(np.flatnonzero(unfit)[0])].tolist()
        raise UnfitMethodError(
            "the dual of Liu and Domke is written for the bound 'linf', which is the bound 'range' for two states "
            f"only; edge ({i}, {j}) joins {model.num_states[i]} and {model.num_states[j]} states: "
            "use dependency='linf' or another method"
        )


def _check_memory(model: MarkovRandomField, norm: str, both_directions: bool, *, multipliers: bool = True) -> int:
    """The number of multipliers; an error if they, or just the matrices of the spectral norm, do not fit."""
    n, m = model.num_variables, model.num_edges
    rows, cols = model.num_states[model.edges].T
    contrasts = np.maximum(rows * cols * (cols - 1) // 2, 1)
    if both_directions:
        contrasts = contrasts + np.maximum(rows * cols * (rows - 1) // 2, 1)
    num_contrasts = int(contrasts.sum())
    size = 2 * num_contrasts + (m if norm == "inf" else n * (n + 1) // 2 - m)
    # A few matrices for decompositions; 2 _MEMORY + 5 vectors in L-BFGS-B and ten around it; contrasts in sparse form.
    required = 80 * n * n if norm == "spectral" else 0
    if multipliers:
        required += 8 * ((2 * _MEMORY + 15) * size + 12 * num_contrasts)
    if required > (limit := available_memory()):
        raise ResourceError(
            f"the dual of Liu and Domke needs about {format_bytes(required)} ({size:.3g} multipliers), "
            f"{format_bytes(limit)} are free; use the exact projection by edges, which has no multiplier per contrast",
            required_bytes=required,
            limit_bytes=limit,
        )
    return size


def _checked_start(start: PaperDualSolution, size: int, num_edges: int) -> tuple[FloatArray, FloatArray]:
    if not isinstance(start, PaperDualSolution):
        raise ValueError(f"start must be a PaperDualSolution, got {type(start).__name__}")
    if start.z.shape != (num_edges,) or start.multipliers.shape != (size,):
        raise ValueError(
            f"start must come from the same graph, state counts, norm and directions: z of shape ({num_edges},) and "
            f"{size} multipliers, got {start.z.shape} and {start.multipliers.size}"
        )
    return start.z, start.multipliers
