"""Project, then sample: marginals of a model that mixes too slowly from the closest one that does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import check_positive
from fastmix.errors import Interrupted, UnfitMethodError
from fastmix.methods.base import Context, Method, option
from fastmix.methods.sample_result import SampleResult
from fastmix.methods.sampler import Gibbs, run_chains
from fastmix.methods.sampling_run import NUM_SWEEPS, certified_sweeps, default_chains
from fastmix.model import MarkovRandomField
from fastmix.model.centre import move_constants
from fastmix.model.reduce import Reduction
from fastmix.results import InferenceResult, jsonable
from fastmix.theory.certificates import Certificate, certify
from fastmix.theory.norms import Norm

if TYPE_CHECKING:
    from fastmix.projection import Divergence, ProjectionResult

__all__ = ["Projected", "ProjectedResult"]

_NORM_BOUND, _WIDTH_BOUND = 2.5, 0.95  # the paper's practical choice; certified
_MOST_WIDE, _LEAST_DENSITY = 1000, 0.1  # variables, and edges among pairs, where a bound on the width is fast
_MANY_VARIABLES = 100_000  # beyond which other norms than the cheapest take seconds
_NUM_WEIGHTS = 1024  # draws of the projected model that are weighed by the original one
_MOST_STATES = 1 << 21  # of those draws together
_FEW_WEIGHTS = 0.1  # share of the weights, below which draws of the projected model are hardly ones of the original


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProjectedResult(InferenceResult):
    """Marginals of the projected model as an answer for the original one.

    The verdict on mixing, ``ess`` and ``r_hat`` are about the chains of the projected model; how far its marginals are
    from those of the original model they do not say. ``stats`` has, beside what sampling gives, ``num_weights`` draws x
    of the projected model q that were weighed by the model p asked about, w = p(x) / q(x), and ``effective_weights``,
    which is (sum w)^2 / sum w^2. A small number says that they are hardly draws of p (in large models also where the
    marginals are close); a large one says nothing about parts of p that q never visits, and reversed KL prefers one
    valley of p to several.
    """

    projection: ProjectionResult  #: of what evidence and forbidden states leave of the model
    #: The run on the projected model, with all variables; ``sampled.intervals(original=model)`` gives intervals for the
    #: original model where the Dobrushin comparison bound is not vacuous.
    sampled: SampleResult
    certificate: Certificate  #: of the projected model

    @property
    def projected_std_error(self) -> FloatArray:
        """Monte Carlo standard error of every probability of the projected model."""
        return self.sampled.std_error

    @property
    def std_error(self) -> FloatArray | None:
        """That of the model asked about, known only if the projection left it as it was."""
        unchanged = self.projection.norm_before <= self.projection.norm_bound
        return self.projected_std_error if unchanged else None

    @property
    def ess(self) -> FloatArray:
        """Effective sample size of every variable (n,)."""
        return self.sampled.ess

    @property
    def r_hat(self) -> FloatArray:
        """Rank-normalised split R-hat of every variable (n,)."""
        return self.sampled.r_hat

    @property
    def states(self) -> NDArray[np.int64]:
        """Where the chains ended (num_chains, n)."""
        return self.sampled.states

    def _expansion(self, reduction: Reduction) -> dict[str, Any]:
        projected = self.sampled.model
        own = replace(reduction, original=_with_changes(reduction, projected), model=projected)
        sampled = self.sampled.expanded(own)
        marginals = {name: getattr(sampled, name) for name in ("node_marginals", "edge_marginals")}
        return {"model": reduction.original, "sampled": sampled, **marginals}

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, with the facts of the projection; an error that is not known is None."""
        return {
            **self.sampled.to_dict(),
            **super().to_dict(),
            "std_error": self._by_variable(self.std_error),
            "projected_std_error": self._by_variable(self.projected_std_error),
            "projection": jsonable(self.projection.to_dict()),
        }


@dataclass(frozen=True)
class Projected(Method):
    """Marginals of the closest model that mixes fast (Liu and Domke, 2014): project, then sample.

    Parameters
    ----------
    divergence : Divergence, or its name ``euclidean``, ``kl``, ``piecewise-kl`` or ``reversed-kl``, optional
        What "closest" means; by default :class:`fastmix.ReversedKL`, the most accurate by measurement, and
        :class:`fastmix.Euclidean` for models with factors over three or more variables and for the width, which take no
        other.
    norm : {"inf", "spectral", "1", "frobenius", "width"}, optional
        See :func:`fastmix.project`; inf by default. Dense models of mixed signs are changed less by a bound on the
        width: where neither norm, bound nor divergence is given, and a tenth of all pairs or more are edges, it is
        ``width`` if the tables move less than to the default bound on inf.
    norm_bound : float, optional
        2.5 by default, as in the paper, and 0.95 for the width. Below 1 the projected model provably mixes.
    num_chains, num_sweeps, burn_in, checkpoint, checkpoint_seconds
        As for :func:`fastmix.sample`. At most half of a time limit goes to the projection.

    Examples
    --------
    >>> from fastmix import infer
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=2.0, seed=0)
    >>> result = infer(model, method="projected", num_chains=16, num_sweeps=2000, seed=1)
    >>> result.method, result.projection.norm_after <= 2.5
    ('projected', True)
    """

    name: ClassVar[str] = "projected"
    takes_factors: ClassVar[bool] = True

    divergence: Any = option(
        None,
        help="euclidean, kl, piecewise-kl or reversed-kl (default; with factors or the width euclidean).",
        parse=lambda name: _divergence(name),
    )
    norm: Norm | Literal["width"] | None = option(
        None,
        help="Norm of the projection: inf (default), spectral, 1, frobenius or width (default of some dense models).",
    )
    norm_bound: float | None = option(None, help="Largest norm of the projected model; 2.5, or 0.95 for the width.")
    num_chains: int | None = option(help="Independent chains; 64 by default, fewer for very large models.")
    num_sweeps: int | None = option(help="Sweeps averaged in every chain; 10,000 by default.")
    burn_in: int | None = option(help="Sweeps before; a tenth of --num-sweeps by default.")
    checkpoint: str | None = option(help="File to save the run in, and to go on from if it exists.")
    checkpoint_seconds: float = option(30.0, help="Seconds between two writes of the checkpoint.")

    def __post_init__(self) -> None:
        if self.norm_bound is not None:
            object.__setattr__(self, "norm_bound", check_positive("norm_bound", self.norm_bound))
        if self.divergence is not None:
            object.__setattr__(self, "divergence", _divergence(self.divergence))
        gibbs = self._gibbs(0)  # checks what is for it
        for name in ("num_chains", "num_sweeps", "burn_in"):
            object.__setattr__(self, name, getattr(gibbs, name))

    def _gibbs(self, num_draws: int, certified: int | None = None) -> Gibbs:
        """The sampler; with a number of certified random sweeps, these at least burn in."""
        gibbs = Gibbs(self.num_chains, self.num_sweeps, self.burn_in, num_draws)
        gibbs = replace(gibbs, checkpoint=self.checkpoint, checkpoint_seconds=self.checkpoint_seconds)
        if certified is None:
            return gibbs
        default = (self.num_sweeps or NUM_SWEEPS) // 10 if self.burn_in is None else self.burn_in
        return replace(gibbs, burn_in=max(default, certified), schedule="random-burn-in")

    def _wide(self, model: MarkovRandomField, context: Context) -> ProjectionResult | None:
        """The projection onto a width, if nothing else was asked for and it moves the tables less."""
        n = model.num_variables
        asked = not self.norm is self.norm_bound is self.divergence is None
        sparse = model.num_edges < _LEAST_DENSITY * 0.5 * n * (n - 1)
        if asked or model.num_factors or n > _MOST_WIDE or not model.num_edges or sparse:
            return None
        plain = self._project(model, context, "inf", _NORM_BOUND, "euclidean", 0.1)
        if plain.squared_distance == 0.0:
            return None
        wide = self._project(model, context, "width", _WIDTH_BOUND, "euclidean", 0.3)
        return wide if wide.squared_distance < plain.squared_distance else None

    def _project(
        self, model: MarkovRandomField, context: Context, norm: Any, bound: float, divergence: Any, share: float
    ) -> ProjectionResult:
        from fastmix.projection import project

        try:
            return project(
                model, norm_bound=bound, norm=norm, divergence=divergence, seed=context.seed,
                time_limit=context.clock.rest(share), progress=context.clock.listener,
            )  # fmt: skip
        except Interrupted:
            raise Interrupted("interrupted while projecting, before there was anything to report") from None

    def check(self, model: MarkovRandomField) -> None:
        """No table may forbid states together, and factors take the Euclidean divergence."""
        from fastmix.projection import Euclidean
        from fastmix.projection.edges import check_finite

        check_finite(model)
        if model.num_factors and not isinstance(self.divergence, Euclidean | None):
            raise UnfitMethodError(
                f"divergence must be euclidean for models with factors over three or more variables, got "
                f"{self.divergence}"
            )

    def budget(self) -> float | None:
        """As for sampling."""
        return self._gibbs(0).budget()

    def saved_seed(self) -> int | None:
        """That of the checkpoint."""
        return self._gibbs(0).saved_seed()

    def run(self, model: MarkovRandomField, context: Context) -> ProjectedResult:
        """Marginals of the projected model."""
        clock, wide, n = context.clock, self.norm == "width", model.num_variables
        default = "euclidean" if model.num_factors or wide else "reversed-kl"
        divergence = _divergence(default if self.divergence is None else self.divergence)
        projection = self._wide(model, context)
        if projection is None:
            bound = self.norm_bound or (_WIDTH_BOUND if wide else _NORM_BOUND)
            projection = self._project(model, context, self.norm or "inf", bound, divergence, 0.5)
        else:
            wide, divergence = projection.norm == "width", projection.divergence
        # In the order of the sweeps, or for random updates after a bound on the width.
        random = {"schedule": "random", "max_updates": float(self.num_sweeps or NUM_SWEEPS) * max(1, n)}
        cheapest = "inf" if n > _MANY_VARIABLES else None
        ordered = {"criterion": "dobrushin", "order": model.structure.visit_order[0], "norm": cheapest}
        certified: dict[str, Any] = random if wide else ordered
        certificate = certify(projection.model, accuracy=0.01, time_limit=clock.rest(0.1), **certified)
        by_random = certified_sweeps(certificate) if wide and certificate.certified else None
        gibbs = self._gibbs(_draws_to_weigh(model, self.num_chains, self.num_sweeps), by_random)
        run = run_chains(gibbs, projection.model, replace(context, clock=clock.part(1.0)))
        weights = _weigh(model, projection.model, run)
        ended = run.stats["stopped_by"]
        stats = {
            **run.stats,
            "stopped_by": projection.stats["stopped_by"] if ended == "done" else ended,
            "projection_seconds": projection.stats["seconds"],
            "norm": projection.norm,
            "norm_before": projection.norm_before,
            "norm_after": projection.norm_after,
            "divergence": repr(divergence),
            "certified": certificate.certified,
            **weights,
            "guarantee": _guarantee(projection, certificate, weights),
        }
        origin = dict(run.provenance)
        if (place := projection.provenance["device"]) != origin["device"]:
            origin["device"] = f"{place} (projection), {origin['device']} (sampling)"
        return ProjectedResult(
            model=model,
            method=self.name,
            status=run.status,
            node_marginals=run.node_marginals,
            edge_marginals=run.edge_marginals,
            log_z=None,
            stats=stats,
            provenance=origin,
            projection=projection,
            sampled=replace(run, draws=None),
            certificate=certificate,
        )


def _divergence(divergence: str | Divergence) -> Divergence:
    """A divergence, or the one with this name."""
    from fastmix.projection import divergence_by_name

    return divergence_by_name(divergence) if isinstance(divergence, str) else divergence


def _with_changes(reduction: Reduction, projected: MarkovRandomField) -> MarkovRandomField:
    """The original model with what the projection changed in the reduced one.

    Differences are carried over, because evidence has been added into the unaries of the reduced model; given the same
    evidence, the result reduces to the projected model.
    """
    original = move_constants(reduction.original)
    small = reduction.model
    unary, pairwise = original.log_unary.copy(), original.log_pairwise.copy()
    unary[reduction.unary_positions] += projected.log_unary - small.log_unary
    if not small.num_factors:
        pairwise[reduction.pairwise_positions] = projected.log_pairwise
        return original.replace(log_unary=unary, log_pairwise=pairwise)
    pairwise[reduction.pairwise_positions] += projected.log_pairwise - small.log_pairwise
    factors, fixed, starts = original.log_factors.copy(), reduction.fixed, original.unary_offsets
    kept = np.zeros(len(unary), dtype=bool)
    kept[reduction.unary_positions] = True
    numbers = {tuple(scope[fixed[scope] < 0].tolist()): a for a, scope in enumerate(original.structure.scopes)}
    for (scope, after), (_, before) in zip(projected.factors, small.factors, strict=True):
        # Among the factors that evidence has made one, any does.
        a = numbers[tuple(reduction.variables[scope].tolist())]
        whole = original.structure.scopes[a]
        states = [fixed[[v]] if fixed[v] >= 0 else np.flatnonzero(kept[starts[v] : starts[v + 1]]) for v in whole]
        entries = np.ravel_multi_index(np.ix_(*states), original.num_states[whole])
        factors[original.factor_offsets[a] + entries.ravel()] += (after - before).ravel()
    return original.replace(log_unary=unary, log_pairwise=pairwise, log_factors=factors)


def _draws_to_weigh(model: MarkovRandomField, num_chains: int | None, num_sweeps: int | None) -> int:
    """Draws of every chain, none for models so large that the states at the end must do."""
    chains = num_chains or default_chains(model)
    most = _MOST_STATES // (chains * max(1, model.num_variables, model.num_edges // 4))
    return min(-(-_NUM_WEIGHTS // chains), most, num_sweeps or _NUM_WEIGHTS)


def _weigh(model: MarkovRandomField, projected: MarkovRandomField, run: SampleResult) -> dict[str, Any]:
    """What the weights p / q of draws of q say about its distance from p, see :class:`ProjectedResult`."""
    most = max(2, _MOST_STATES // max(1, model.num_variables, model.num_edges // 4))
    states = run.states[:most] if run.draws is None else run.draws
    difference = model.with_parameters(model.parameters - projected.parameters)  # log-weights are linear in them
    log_weights = np.ravel(difference.log_weight(states))
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
        return f"sampling of the projected model provably mixes ({certified_sweeps(certificate)} sweeps); {distance}"
    what = "width" if projection.norm == "width" else "dependency norm"
    return f"the projected model has a {what} of {projection.norm_after:.3g}, not below 1: {distance}"
