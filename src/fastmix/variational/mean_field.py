"""Naive mean field: the best product distribution by coordinate ascent, and its lower bound on log Z."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_count, check_positive, keep_checked
from fastmix._clock import NO_LIMIT, Clock, Report
from fastmix._memory import check_memory
from fastmix._signatures import takes_options
from fastmix.marginals import InferenceResult
from fastmix.method import Context, Method, run_method, with_options
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction
from fastmix.model.rounding import log_size, rounding
from fastmix.modes.allowed import reduce_to_supported
from fastmix.results import Status
from fastmix.variational.ascent import ProductAscent, pair_products

__all__ = ["MeanField", "MeanFieldResult", "mean_field"]

_NO_PRODUCT = "no start led to an allowed configuration: the marginals break forbidden pairs, and the bound is void"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MeanFieldResult(InferenceResult):
    """The best product distribution found; ``log_z`` is None, because what is known is a lower bound on it.

    Attributes
    ----------
    log_z_lower : float
        ``E_q[log-weight] + entropy(q)``, at most log Z; -inf where every start ended with forbidden pairs.
    start_bounds : float array (number of starts made,)
        The bound that each start reached.
    """

    start_bounds: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __repr__(self) -> str:
        bound = "unknown" if self.log_z_lower is None else f"{self.log_z_lower:.6g}"
        return f"{super().__repr__()[:-1]}, log_z_lower={bound})"

    def contents(self) -> dict[str, Any]:
        """Adds ``start_bounds``."""
        return {**super().contents(), "start_bounds": self.start_bounds}


@dataclass(frozen=True, kw_only=True)
class MeanField(Method):
    """Naive mean field: the best product distribution, with a lower bound on log Z.

    Parameters
    ----------
    num_starts : int
        Starts, of which the best bound is kept. The first is uniform, the others are drawn uniformly from all product
        distributions.
    max_iter : int
        Sweeps of every start at most. With forbidden pairs as many again are made under a penalty.
    tol : float
        Largest change of a probability at the end. A start has converged when a sweep changes none by more.
    """

    name: ClassVar[str] = "mean-field"
    guarantee: ClassVar[str] = "none about the marginals; the bound on log Z is proven"
    threaded: ClassVar[bool] = False
    takes_factors: ClassVar[bool] = True
    takes_laws: ClassVar[bool] = True
    answers_zero: ClassVar[bool] = True
    needs_support: ClassVar[bool] = True

    num_starts: int = 10
    max_iter: int = 1000
    tol: float = 1e-8

    def __post_init__(self) -> None:
        keep_checked(self, num_starts=check_count("num_starts", self.num_starts, least=1))
        keep_checked(self, max_iter=check_count("max_iter", self.max_iter, least=1))
        keep_checked(self, tol=check_positive("tol", self.tol))

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """Without states that no allowed pair has room for."""
        return reduce_to_supported(model, evidence, clock)

    def run(self, model: MarkovRandomField, context: Context) -> MeanFieldResult:
        """The product distribution of the best start."""
        check_memory(self.num_starts * 1000.0, f"num_starts {self.num_starts}", "make fewer starts")
        ascent = ProductAscent(model, self.max_iter, self.tol, context.clock, context.given)
        stopped_by, starts = ascent.run(self.num_starts, context.rng("starts"))
        number = max(range(len(starts)), key=lambda k: starts[k].rank)
        best = starts[number]
        has_bound = best.bound > -math.inf
        status = Status.OK if best.has_converged and has_bound else Status.NOT_CONVERGED
        if stopped_by == "interrupt":
            status = Status.INTERRUPTED
        num_sweeps = sum(start.num_sweeps for start in starts)
        return MeanFieldResult(
            model=model,
            method=self.name,
            status=status,
            node_marginals=best.q,
            edge_marginals=pair_products(model, best.q) if context.edge_marginals else None,
            log_z_kind="bound" if has_bound else "unknown",
            stats={
                "num_starts": len(starts),
                "best_start": number,
                "num_iterations": num_sweeps,
                "num_updates": num_sweeps * model.num_variables,
                "num_converged_starts": sum(start.has_converged for start in starts),
                "largest_change": best.largest_change,
                "note": "" if has_bound else _NO_PRODUCT,
                "stopped_by": stopped_by,
            },
            history=[
                {"start": k, "iteration": iteration, "log_z_lower": bound}
                for k, start in enumerate(starts)
                for iteration, bound in enumerate(start.bounds, start=1)
            ],
            log_z_lower=_rounded_down(model, best.bound),
            start_bounds=np.array([start.bound for start in starts]),
        )


def _rounded_down(model: MarkovRandomField, bound: float) -> float:
    """A lower bound on log Z less what rounding can have made of it, the rounding of a large constant included."""
    if bound == -math.inf:
        return bound
    terms = rounding(3.0 * model.num_parameters, log_size(model.replace(log_constant=0.0)))
    error = terms + 4.0 * math.ulp(max(abs(bound), abs(model.log_constant)))
    return math.nextafter(bound - error, -math.inf)


@takes_options(MeanField)
def mean_field(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    seed: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    **options: Any,
) -> MeanFieldResult:
    """Marginals by naive mean field, with a lower bound on log Z.

    Maximizes ``E_q[log-weight] + entropy(q) = log Z - KL(q || p)`` over products ``q(x) = prod_i q_i(x_i)``. A sweep
    sets each variable in turn to the best given the others, ``q_i(a) ~ exp(u_i(a) + sum_j sum_b q_j(b) T_ij(a, b))``
    and the same with the means of factors over three or more variables; the bound never falls.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, any strength, factors of any size.
    **options
        Those of :class:`fastmix.MeanField`.
    seed : int, optional
        Drawn and returned when not given. More starts with the same seed begin with the same ones.
    evidence, edge_marginals, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default the best so far is returned. What edges get are the
        products of the marginals.

    Returns
    -------
    MeanFieldResult
        ``status`` is ``not_converged`` when the best start still moved after ``max_iter`` sweeps. ``stats`` holds the
        sweeps of all starts, the number of the best one, the history of the bound of every start, and the seconds.

    Raises
    ------
    ImpossibleEvidenceError
        If the evidence is impossible, as far as a search can show. Where that shows that the model itself has no
        configuration, a :class:`fastmix.marginals.ZeroResult` comes back.

    Notes
    -----
    A sweep costs ``O(sum over edges of L_i L_j)`` time, and for every factor its entries times its variables; with
    Potts and truncated linear tables that edges share, ``O(L_i)`` for an edge.

    With forbidden pairs a product distribution has a finite bound only if its states are all allowed beside each other.
    Each start first ascends with a large finite penalty in place of minus infinity; a search finds an allowed
    configuration that prefers its probable states, from where the start ascends in the model itself. When the search
    gives up at every start the status is ``not_converged``, the bound -inf, and ``stats["note"]`` says so.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3, field=[0.3, 0.0, 0.0])
    >>> result = mean_field(model, seed=0)
    >>> str(result.status), round(result.log_z_lower, 4), result.marginal(2).round(4).tolist()
    ('ok', 2.1284, [0.4843, 0.5157])
    """
    result: MeanFieldResult = run_method(
        with_options(MeanField, options),
        model,
        evidence=evidence,
        edge_marginals=edge_marginals,
        seed=seed,
        time_limit=time_limit,
        progress=progress,
    )
    return result
