"""Project, then sample: marginals of a model that mixes too slowly from the closest one that does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import check_positive
from fastmix._clock import Ending
from fastmix._context import open_context
from fastmix.errors import UnfitMethodError
from fastmix.inference.tuning import (
    CERTIFICATE_SHARE,
    CERTIFIED_ACCURACY,
    DENSE_SHARE,
    FEW_WEIGHTS,
    MAX_NORM_VARIABLES,
    MAX_WEIGHED_STATES,
    MAX_WIDE_VARIABLES,
    NORM_BOUND,
    NUM_WEIGHTS,
    PLAIN_PROJECTION_SHARE,
    PROJECTION_SHARE,
    WIDE_PROJECTION_SHARE,
    WIDTH_BOUND,
)
from fastmix.marginals import InferenceResult
from fastmix.method import Context, Method, option
from fastmix.model import MarkovRandomField
from fastmix.model.forms import move_constants
from fastmix.model.reduce import Reduction
from fastmix.sampling.plans import certified_sweeps, default_chains
from fastmix.sampling.results import SampleResult
from fastmix.sampling.run_chains import run_chains
from fastmix.sampling.sample import Gibbs
from fastmix.sampling.tuning import NUM_SWEEPS
from fastmix.theory.certificate import Certificate, CertificateRequest
from fastmix.theory.certify import certify_reduced
from fastmix.theory.norms import Norm

if TYPE_CHECKING:
    from fastmix.projection import Divergence, ProjectionResult

__all__ = ["Projected", "ProjectedResult"]


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
    def ess(self) -> FloatArray:
        """Effective sample size of every variable (n,)."""
        return self.sampled.ess

    @property
    def r_hat(self) -> FloatArray:
        """Rank-normalized split R-hat of every variable (n,)."""
        return self.sampled.r_hat

    @property
    def states(self) -> NDArray[np.int64]:
        """Where the chains ended (num_chains, n)."""
        return self.sampled.states

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields for the original model, projected as the reduced one was."""
        projected = self.sampled.model
        own = replace(reduction, original=_with_changes(reduction, projected), model=projected)
        sampled = self.sampled.expanded(own)
        return {
            "model": reduction.original,
            "sampled": sampled,
            "node_marginals": sampled.node_marginals,
            "edge_marginals": sampled.edge_marginals,
            "std_error": None if self.std_error is None else sampled.std_error,
        }

    def facts(self) -> dict[str, str]:
        """Adds what is known of the chains of the projected model, and the norms before and after the projection."""
        norms = f"{self.projection.norm_before:.4g} before, {self.projection.norm_after:.4g} after"
        return {**self.sampled.facts(), **super().facts(), f"norm ({self.projection.norm})": norms}

    def contents(self) -> dict[str, Any]:
        """Adds what chains say, the error for the projected model, and the projection."""
        return {
            **self.sampled.contents(),
            **super().contents(),
            "projected_std_error": self.by_variable(self.projected_std_error),
            "projection": self.projection.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class Projected(Method):
    """Marginals of the closest model that mixes fast (Liu and Domke, 2014): project, then sample.

    Parameters
    ----------
    divergence : Divergence, or its name ``euclidean``, ``kl``, ``piecewise-kl`` or ``reversed-kl``, optional
        What "closest" means: euclidean, kl, piecewise-kl or reversed-kl (default; with factors or the width
        euclidean). :class:`fastmix.ReversedKL` is the most accurate by measurement; models with factors over three or
        more variables and the width take no other than :class:`fastmix.Euclidean`.
    norm : {"inf", "spectral", "1", "frobenius", "width"}, optional
        Norm of the projection: inf (default), spectral, 1, frobenius or width (default of some dense models). See
        :func:`fastmix.project`. Dense models of mixed signs are changed less by a bound on the width: where neither
        norm, bound nor divergence is given, and a tenth of all pairs or more are edges, it is ``width`` if the tables
        move less than to the default bound on inf.
    norm_bound : float, optional
        Largest norm of the projected model; 2.5 by default, or 0.95 for the width. 2.5 is the choice of the paper;
        below 1 the projected model provably mixes.
    num_chains : int, optional
        Independent chains; 64 by default, fewer in very large models.
    num_sweeps : int, optional
        Sweeps averaged in every chain; 10,000 by default. At most half of a time limit goes to the projection.
    burn_in : int, optional
        Sweeps that every chain makes before, a tenth of ``num_sweeps`` by default.
    checkpoint : str, optional
        File in which the run is saved, and from which it continues if it exists.
    checkpoint_seconds : float
        Seconds between two writes of the checkpoint.

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

    divergence: Divergence | str | None = option(None, parse=lambda name: _divergence(name))
    norm: Norm | Literal["width"] | None = None
    norm_bound: float | None = None
    num_chains: int | None = None
    num_sweeps: int | None = None
    burn_in: int | None = None
    checkpoint: str | None = None
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.norm_bound is not None:
            object.__setattr__(self, "norm_bound", check_positive("norm_bound", self.norm_bound))
        if self.divergence is not None:
            object.__setattr__(self, "divergence", _divergence(self.divergence))
        gibbs = self._gibbs(0)  # checks what is for it
        for name in ("num_chains", "num_sweeps", "burn_in"):
            object.__setattr__(self, name, getattr(gibbs, name))

    def _gibbs(self, num_draws: int, certified: int | None = None) -> Gibbs:
        """The sampler of the projected model; it burns in for at least the certified number of random sweeps."""
        gibbs = Gibbs(
            num_chains=self.num_chains,
            num_sweeps=self.num_sweeps,
            burn_in=self.burn_in,
            num_draws=num_draws,
            checkpoint=self.checkpoint,
            checkpoint_seconds=self.checkpoint_seconds,
        )
        if certified is None:
            return gibbs
        usual = self.burn_in
        if usual is None:
            usual = (self.num_sweeps or NUM_SWEEPS) // 10
        return replace(gibbs, burn_in=max(usual, certified), schedule="random-burn-in")

    def _find_projection(self, model: MarkovRandomField, context: Context) -> ProjectionResult:
        """The projection that is sampled, with the norm, the bound and the divergence that were asked for.

        Where none of these was given and the model is dense, it is the projection onto a width if that moves the tables
        less than the Euclidean projection onto the default norm. No projection is made twice: a model that meets the
        bound is its own projection in every divergence, and the descent on the reversed KL divergence begins at the
        multipliers of the Euclidean projection that the width was compared with.
        """
        norm = self.norm or "inf"
        is_wide = norm == "width"
        bound = self.norm_bound or (WIDTH_BOUND if is_wide else NORM_BOUND)
        usual = "euclidean" if model.num_factors or is_wide else "reversed-kl"
        divergence = _divergence(usual if self.divergence is None else self.divergence)

        multipliers: FloatArray | None = None
        if self._compares_with_width(model):
            plain = _project(model, context, norm, bound, "euclidean", PLAIN_PROJECTION_SHARE)
            if plain.norm_before <= plain.norm_bound:
                return replace(plain, divergence=divergence)
            wide = _project(model, context, "width", WIDTH_BOUND, "euclidean", WIDE_PROJECTION_SHARE)
            if wide.squared_distance < plain.squared_distance:
                return wide
            multipliers = plain.multipliers
        return _project(model, context, norm, bound, divergence, PROJECTION_SHARE, multipliers)

    def _compares_with_width(self, model: MarkovRandomField) -> bool:
        """Whether the user left the projection open, and a bound on the width can be better and is fast."""
        if self.norm is not None or self.norm_bound is not None or self.divergence is not None:
            return False
        if model.num_factors or not model.num_edges or model.num_variables > MAX_WIDE_VARIABLES:
            return False
        num_pairs = 0.5 * model.num_variables * (model.num_variables - 1)
        return model.num_edges >= DENSE_SHARE * num_pairs

    def _certify(self, model: MarkovRandomField, is_wide: bool, context: Context) -> Certificate:
        """The certificate of a projected model: for random updates after a bound on the width, else for its sweeps."""
        n = model.num_variables
        criterion = "auto"
        if is_wide:
            max_updates = float(self.num_sweeps or NUM_SWEEPS) * max(1, n)
            request = CertificateRequest(CERTIFIED_ACCURACY, schedule="random", max_updates=max_updates)
        else:
            criterion = "dobrushin"
            cheapest: Norm | None = "inf" if n > MAX_NORM_VARIABLES else None
            request = CertificateRequest(CERTIFIED_ACCURACY, order=model.structure.visit_order[0], norm=cheapest)
        with open_context("certify", model, time_limit=context.clock.rest(CERTIFICATE_SHARE)) as part:
            return certify_reduced(Reduction.none(model), criterion, request, part)

    def check(self, model: MarkovRandomField) -> None:
        """Refuse forbidden pairs of states, and another divergence than the Euclidean one for models with factors."""
        from fastmix.projection import Euclidean
        from fastmix.projection.edges import check_finite

        check_finite(model)
        if model.num_factors and not isinstance(self.divergence, Euclidean | None):
            raise UnfitMethodError(
                f"divergence must be euclidean for models with factors over three or more variables, got "
                f"{self.divergence}"
            )

    def default_limit(self) -> float | None:
        """A minute, unless the amount of work is known or the run can continue later."""
        return self._gibbs(0).default_limit()

    def checkpoint_file(self) -> tuple[str, float] | None:
        """The name of the file that the run is saved in, and the seconds between two writes."""
        return self._gibbs(0).checkpoint_file()

    def run(self, model: MarkovRandomField, context: Context) -> ProjectedResult:
        """Marginals of the projected model.

        1. Project the model.
        2. Certify the projected model.
        3. Sample it, with a certified burn-in where only random updates are certified.
        4. Weigh its draws by the original model.
        """
        # 1. and 2.
        projection = self._find_projection(model, context)
        is_wide = projection.norm == "width"
        certificate = self._certify(projection.model, is_wide, context)

        # 3.
        burn_in = certified_sweeps(certificate) if is_wide and certificate.certified else None
        gibbs = self._gibbs(_draws_to_weigh(model, self.num_chains, self.num_sweeps), burn_in)
        run = run_chains(gibbs, projection.model, replace(context, clock=context.clock.part(1.0)))

        # 4.
        weights = _weigh(model, projection.model, run)
        ended = run.stats["stopped_by"]
        stats = {
            **run.stats,
            "stopped_by": projection.stats["stopped_by"] if ended == "done" else ended,
            "projection_seconds": projection.stats["seconds"],
            "norm": projection.norm,
            "norm_before": projection.norm_before,
            "norm_after": projection.norm_after,
            "divergence": repr(projection.divergence),
            "certified": certificate.certified,
            "num_weights": weights.count,
            "effective_weights": weights.effective,
            "guarantee": _guarantee(projection, certificate, weights),
        }
        origin = dict(run.provenance)
        place = projection.provenance["device"]
        if place != origin["device"]:
            origin["device"] = f"{place} (projection), {origin['device']} (sampling)"
        return ProjectedResult(
            model=model,
            method=self.name,
            status=run.status,
            node_marginals=run.node_marginals,
            edge_marginals=run.edge_marginals,
            # Of the model asked about the error is known only if the projection left it as it was.
            std_error=run.std_error if projection.norm_before <= projection.norm_bound else None,
            stats=stats,
            provenance=origin,
            projection=projection,
            sampled=replace(run, draws=None),
            certificate=certificate,
        )


@dataclass(frozen=True)
class _Weights:
    """What the weights p / q of draws of q say about its distance from p, see :class:`ProjectedResult`."""

    count: int
    effective: float


def _divergence(divergence: str | Divergence) -> Divergence:
    """A divergence, given itself or by name."""
    from fastmix.projection import divergence_by_name

    return divergence_by_name(divergence) if isinstance(divergence, str) else divergence


def _project(
    model: MarkovRandomField,
    context: Context,
    norm: Norm | Literal["width"],
    bound: float,
    divergence: Divergence | str,
    share: float,
    multipliers: FloatArray | None = None,
) -> ProjectionResult:
    """A projection in a share of the time; multipliers of the same Euclidean projection are where it begins."""
    from fastmix.projection.project import project_reduced
    from fastmix.projection.projector import ProjectionSettings, WarmStart

    settings = ProjectionSettings.checked(norm_bound=bound, norm=norm, divergence=divergence)
    start = WarmStart.checked(multipliers)
    found: ProjectionResult | None = None
    with (
        Ending() as ending,
        open_context(
            "projection",
            model,
            seed=context.seed_of("projection", norm, str(divergence)),
            time_limit=context.clock.rest(share),
            progress=context.clock.listener,
            options={**settings.options(), "warm_start": None if multipliers is None else "given"},
        ) as part,
    ):
        found = project_reduced(Reduction.none(model), settings, start, part)
    if found is None:  # an interrupted projection has a result, but no marginals follow from it
        context.raise_nothing(ending.by)
    return found


def _with_changes(reduction: Reduction, projected: MarkovRandomField) -> MarkovRandomField:
    """The original model with what the projection changed in the reduced one.

    Differences are carried over, because evidence has been added into the unaries of the reduced model; given the same
    evidence, the result reduces to the projected model.
    """
    original = move_constants(reduction.original)
    small = reduction.model
    unary = original.log_unary.copy()
    unary[reduction.unary_positions] += projected.log_unary - small.log_unary
    shared = None if projected.shared_tables is None else reduction.expand_tables(projected.shared_tables)
    if shared is not None:
        return original.replace(log_unary=unary, shared_tables=shared)
    pairwise = original.log_pairwise.copy()
    if not small.num_factors:
        pairwise[reduction.pairwise_positions] = projected.log_pairwise
        return original.replace(log_unary=unary, log_pairwise=pairwise)
    pairwise[reduction.pairwise_positions] += projected.log_pairwise - small.log_pairwise
    factors = _changed_factors(reduction, original, projected)
    return original.replace(log_unary=unary, log_pairwise=pairwise, log_factors=factors)


def _changed_factors(reduction: Reduction, original: MarkovRandomField, projected: MarkovRandomField) -> FloatArray:
    """Flat tables of the factors of the original model with what the projection changed in those of the reduced one."""
    log_factors = original.log_factors.copy()
    fixed = reduction.fixed
    is_kept = np.zeros(len(original.log_unary), dtype=bool)
    is_kept[reduction.unary_positions] = True
    # Factors by their variables without evidence. Evidence can leave several of them with the same ones, and the
    # reduced model then has one factor for all: its change may go to any of them.
    number_of = {
        tuple(scope[fixed[scope] < 0].tolist()): number for number, scope in enumerate(original.structure.scopes)
    }
    for (scope, after), (_, before) in zip(projected.factors, reduction.model.factors, strict=True):
        number = number_of[tuple(reduction.variables[scope].tolist())]
        whole_scope = original.structure.scopes[number]
        states = []  # of every variable of the original factor that are left, or the one that evidence fixes
        for variable in whole_scope:
            first = original.unary_offsets[variable]
            last = original.unary_offsets[variable + 1]
            states.append(fixed[[variable]] if fixed[variable] >= 0 else np.flatnonzero(is_kept[first:last]))
        entries = np.ravel_multi_index(np.ix_(*states), original.num_states[whole_scope])
        log_factors[original.factor_offsets[number] + entries.ravel()] += (after - before).ravel()
    return log_factors


def _draws_to_weigh(model: MarkovRandomField, num_chains: int | None, num_sweeps: int | None) -> int:
    """Number of draws of every chain; 0 for models so large that the states at the end must suffice."""
    chains = num_chains or default_chains(model)
    wanted = -(-NUM_WEIGHTS // chains)  # rounded up
    affordable = MAX_WEIGHED_STATES // (chains * max(1, model.num_variables, model.num_edges // 4))
    return min(wanted, affordable, num_sweeps or NUM_WEIGHTS)


def _weigh(model: MarkovRandomField, projected: MarkovRandomField, run: SampleResult) -> _Weights:
    """The number of draws that were weighed by the original model, and how many equal ones they are worth."""
    states = run.draws
    if states is None:
        affordable = max(2, MAX_WEIGHED_STATES // max(1, model.num_variables, model.num_edges // 4))
        states = run.states[:affordable]
    if model.shared_tables is None:
        difference = model.with_parameters(model.parameters - projected.parameters)  # log-weights are linear in them
        log_weights = np.ravel(difference.log_weight(states))
    else:
        log_weights = np.ravel(model.log_weight(states)) - np.ravel(projected.log_weight(states))
    weights = np.exp(log_weights - log_weights.max())
    return _Weights(len(weights), float(weights.sum() ** 2 / (weights @ weights)))


def _guarantee(projection: ProjectionResult, certificate: Certificate, weights: _Weights) -> str:
    """Sentence that says what is proven about the sampling of the projected model, and about its distance."""
    if projection.norm_before <= projection.norm_bound:
        distance = "the model met the bound already and was not changed"
    else:
        few = weights.effective < FEW_WEIGHTS * weights.count
        meaning = "they are hardly draws of it" if few else "but what they never visit has no weight"
        distance = (
            "nothing is proven about the distance to the original model, and its errors are not known: weighed by it, "
            f"{weights.count:,} draws are worth {weights.effective:.3g}, {meaning}"
        )
    if certificate.certified:
        return f"sampling of the projected model provably mixes ({certified_sweeps(certificate)} sweeps); {distance}"
    what = "width" if projection.norm == "width" else "dependency norm"
    return f"the projected model has a {what} of {projection.norm_after:.3g}, not below 1: {distance}"
