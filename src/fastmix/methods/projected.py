"""Project, then sample: marginals of a model that mixes too slowly from the closest one that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import choose_seed
from fastmix._clock import Clock
from fastmix.methods.checkpoint import Checkpoint
from fastmix.methods.sampler import SampleResult, default_chains, sample
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.projection import Divergence, ProjectionResult, ReversedKL, project
from fastmix.results import jsonable
from fastmix.theory.certificates import Certificate, certify
from fastmix.theory.norms import Norm

__all__ = ["ProjectedResult", "infer_projected"]

FloatArray = NDArray[np.float64]

_NORM_BOUND = 2.5  # the paper's practical choice
_MANY_VARIABLES = 100_000  # beyond which other norms than the cheapest take seconds
_NUM_WEIGHTS = 1024  # draws of the projected model that are weighed by the original one
_MOST_STATES = 1 << 21  # of those draws together
_FEW_WEIGHTS = 0.1  # share of the weights, below which draws of the projected model are hardly ones of the original


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedResult(SampleResult):
    """Marginals of the projected model as an answer for the original one.

    The verdict on mixing, ``ess`` and ``r_hat`` are about the chains of the projected model; how far its marginals are
    from those of the original model they do not say.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``, or None
        None: the error for the model asked about is not known. Where that model met the bound and was not changed,
        ``projected_std_error``.
    projected_std_error : float array, aligned with ``model.log_unary``
        Monte Carlo standard error of every probability of the projected model.
    projection : ProjectionResult
        Of what evidence and forbidden states leave of the model.
    sampled : SampleResult
        The run on the projected model, with all variables; ``sampled.intervals(original=model)`` gives intervals for
        the original model where the Dobrushin comparison bound is not vacuous.
    certificate : Certificate
        Of the projected model.
    stats : mapping
        Beside what sampling gives: ``num_weights`` draws x of the projected model q were weighed by the model p asked
        about, w = p(x) / q(x), and ``effective_weights`` is (sum w)^2 / sum w^2. A small number says that they are
        hardly draws of p (in large models also where the marginals are close); a large one says nothing about parts of
        p that q never visits, and reversed KL prefers one valley of p to several.
    """

    std_error: FloatArray | None = None  # type: ignore[assignment]  # unlike that of a run on the model itself
    projected_std_error: FloatArray = field(default_factory=lambda: np.zeros(0))
    projection: ProjectionResult | None = None
    sampled: SampleResult | None = None
    certificate: Certificate | None = None

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, with the facts of the projection; an error that is not known is None."""
        facts = {} if self.projection is None else self.projection.to_dict()
        own = self._by_variable(self.projected_std_error)
        return {**super().to_dict(), "projected_std_error": own, "projection": jsonable(facts)}


def infer_projected(
    model: MarkovRandomField,
    *,
    divergence: Divergence | None = None,
    norm: Norm = "inf",
    norm_bound: float = _NORM_BOUND,
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> ProjectedResult:
    """Marginals of the closest model that mixes fast (Liu and Domke, 2014).

    Parameters
    ----------
    model : MarkovRandomField
        Without forbidden pairs; states forbidden by a unary are fine.
    divergence : Divergence, optional
        What "closest" means; :class:`fastmix.ReversedKL` by default, the most accurate by measurement.
    norm : {"inf", "spectral", "1", "frobenius"}
    norm_bound : float
        2.5 by default, as in the paper. Below 1 the projected model provably mixes.
    num_chains, num_sweeps, burn_in, edge_marginals, seed, num_threads, checkpoint, progress
        As for :func:`fastmix.sample`.
    time_limit : float, optional
        Seconds for both parts, without those of compiling; at most half of them go to the projection.

    Returns
    -------
    ProjectedResult

    Raises
    ------
    UnfitMethodError
        If a table forbids a pair of states: no such model can be projected.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=2.0, seed=0)
    >>> result = infer_projected(model, num_chains=16, num_sweeps=2000, seed=1)
    >>> result.method, result.projection.norm_after <= 2.5
    ('projected', True)
    """
    clock = Clock(time_limit)
    check_model(model)
    chosen = ReversedKL() if divergence is None else divergence
    if seed is None and checkpoint is not None:
        seed = Checkpoint(checkpoint, 0.0).seed
    seed = choose_seed(seed)
    reduction = reduce_model(model, evidence)
    projection = project(
        reduction.model,
        norm_bound=norm_bound,
        norm=norm,
        divergence=chosen,
        seed=seed,
        time_limit=clock.rest(0.5),
    )
    projected = _with_changes(reduction, projection.model)
    cheapest: Norm | None = "inf" if model.num_variables > _MANY_VARIABLES else None
    order = projection.model.structure.visit_order[0]
    certificate = certify(projection.model, accuracy=0.01, criterion="dobrushin", order=order, norm=cheapest)
    run = sample(
        projected,
        num_chains=num_chains,
        num_sweeps=num_sweeps,
        burn_in=burn_in,
        evidence=evidence,
        edge_marginals=edge_marginals,
        seed=seed,
        num_threads=num_threads,
        time_limit=clock.rest(),
        checkpoint=checkpoint,
        num_draws=_draws_to_weigh(reduction.model, num_chains, num_sweeps),
        progress=progress,
    )
    weights = _weigh(model, projected, run)
    run = replace(run, draws=None)
    unchanged = projection.norm_before <= projection.norm_bound
    values = {f.name: getattr(run, f.name) for f in fields(run)}
    values |= {"model": model, "method": "projected", "projected_std_error": run.std_error}
    values["std_error"] = run.std_error if unchanged else None
    values["stats"] = {
        **run.stats,
        **clock.stats(),
        "stopped_by": projection.stats["stopped_by"] if run.stats["stopped_by"] == "done" else run.stats["stopped_by"],
        "projection_seconds": projection.stats["seconds"],
        "norm_before": projection.norm_before,
        "norm_after": projection.norm_after,
        "divergence": repr(chosen),
        "certified": certificate.certified,
        **weights,
        "guarantee": _guarantee(projection, certificate, weights),
    }
    options = {**run.provenance["options"], "norm": norm, "norm_bound": norm_bound, "divergence": repr(chosen)}
    values["provenance"] = {**run.provenance, "options": options, "model_hash": model.content_hash}
    if (place := projection.provenance["device"]) != run.provenance["device"]:
        values["provenance"]["device"] = f"{place} (projection), {run.provenance['device']} (sampling)"
    return ProjectedResult(**values, projection=projection, sampled=run, certificate=certificate)


def _with_changes(reduction: Reduction, projected: MarkovRandomField) -> MarkovRandomField:
    """The original model with what the projection changed in the reduced one.

    Differences are carried over, because evidence has been added into the unaries of the reduced model; given the same
    evidence, the result reduces to the projected model.
    """
    original, small = reduction.original, reduction.model
    unary, pairwise = original.log_unary.copy(), original.log_pairwise.copy()
    unary[reduction.unary_positions] += projected.log_unary - small.log_unary
    pairwise[reduction.pairwise_positions] = projected.log_pairwise
    return original.replace(log_unary=unary, log_pairwise=pairwise)


def _draws_to_weigh(model: MarkovRandomField, num_chains: int | None, num_sweeps: int | None) -> int:
    """Draws of every chain, none for models so large that the states at the end must do."""
    chains = num_chains or default_chains(model)
    most = _MOST_STATES // (chains * max(1, model.num_variables))
    return min(-(-_NUM_WEIGHTS // chains), most, num_sweeps or _NUM_WEIGHTS)


def _weigh(model: MarkovRandomField, projected: MarkovRandomField, run: SampleResult) -> dict[str, Any]:
    """What the weights p / q of draws of q say about its distance from p, see :class:`ProjectedResult`."""
    states = run.states if run.draws is None else run.draws
    log_weights = np.ravel(model.log_weight(states) - projected.log_weight(states))
    weights = np.exp(log_weights - log_weights.max())
    effective = float(weights.sum() ** 2 / (weights @ weights))
    return {"num_weights": len(weights), "effective_weights": effective}


def _guarantee(projection: ProjectionResult, certificate: Certificate, weights: dict[str, Any]) -> str:
    if projection.norm_before <= projection.norm_bound:
        distance = "the model met the bound already and was not changed"
    else:
        count, effective = weights["num_weights"], weights["effective_weights"]
        few = effective < _FEW_WEIGHTS * count
        meaning = "they are hardly draws of it" if few else "but what they never visit has no weight"
        distance = (
            "nothing is proven about the distance to the original model, and its errors are not known: weighed by it, "
            f"{count:,} draws are worth {effective:.3g}, {meaning}"
        )
    if certificate.certified:
        return f"sampling of the projected model provably mixes ({certificate.num_sweeps} sweeps); {distance}"
    return f"the projected model has a dependency norm of {projection.norm_after:.3g}, not below 1: {distance}"
