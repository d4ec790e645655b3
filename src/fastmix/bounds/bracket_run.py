"""The run of a bracket: the model, the clock and the memory of a call, and the best bounds found so far."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._context import Context
from fastmix.bounds.marginal_bounds import combine, outwards, tighten
from fastmix.bounds.reduced_tables import ReducedTables, folding_error, reduce_to_tables
from fastmix.model import MarkovRandomField
from fastmix.model.evidence import observed_unary
from fastmix.model.forms import move_constants
from fastmix.model.rounding import log_size, rounding

__all__ = ["DEFAULT_DRAWS", "BracketRun"]

#: Draws at most, where bounds may hold with a probability.
DEFAULT_DRAWS = 20_000


class BracketRun:
    """The best bounds so far on one model, and what methods have to find better ones.

    A method calls :meth:`reduce` first, then :meth:`offer` and :meth:`offer_marginals` whenever it has found something,
    or :meth:`settle` for an exact answer. Bounds are on the reduced model: the one given the evidence, without states
    that nothing supports, and without the constants of its tables, whose rounding enters once, in :meth:`finish`.

    Attributes
    ----------
    model : MarkovRandomField
        The model asked about, with the constants moved out of its tables.
    tables : ReducedTables or None
        The tables of the reduced model, once it is known.
    context : Context
        Random numbers come from ``context.rng(name)``; inner calls get ``context.within(name, clock)``.
    clock : Clock
        A method stops when ``clock.past()``, or lets an :class:`fastmix._clock.OutOfTimeError` through.
    memory_limit : float
        Bytes of tables.
    confidence : float or None
        Whether bounds may hold with a probability, and with which.
    num_draws : int
        Draws at most for such bounds.
    log_z : (float, float)
        The best bounds so far on log Z of the reduced model.
    log_weights : (float array, float array)
        The best bounds so far on the log-weights of the states of the reduced model, (num_unary,) each.
    node_bounds : (float array, float array) or None
        Bounds on marginals: of the reduced model for an exact answer; after :meth:`finish` of the user's model.
    marginals : list of (float array, float array)
        Bounds on marginals of the reduced model that were found in other ways than by weights.
    exact : bool
        Whether only rounding is between the bounds.
    held_confidence : float or None
        The confidence that the bounds hold with, where draws made any of them tighter.
    methods : dict
        What gave the bounds: ``lower``, ``upper`` and ``marginals``.
    stats : dict
        Counts for the result.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        context: Context,
        *,
        memory_limit: float,
        confidence: float | None = None,
        num_draws: int = DEFAULT_DRAWS,
    ) -> None:
        moved = move_constants(model, unseen=0.0, of_spread=2.0)
        self._constant = moved.log_constant
        self._constant_error = 0.0 if moved is model else math.ulp(moved.log_constant)
        self._folding_error = 0.0
        self.model = moved.replace(log_constant=0.0)
        self.tables: ReducedTables | None = None
        self.context = context
        self.clock = context.clock
        self.memory_limit = memory_limit
        self.confidence = confidence
        self.num_draws = num_draws
        self.log_z = (-math.inf, math.inf)
        self.log_weights = (np.zeros(0), np.zeros(0))
        self.node_bounds: tuple[FloatArray, FloatArray] | None = None
        self.marginals: list[tuple[FloatArray, FloatArray]] = []
        self.exact = False
        self.held_confidence: float | None = None
        self.methods = {"lower": "none", "upper": "none", "marginals": "weights of states"}
        self.stats: dict[str, Any] = {}
        self._offered = False

    @property
    def has_bounds(self) -> bool:
        """Whether there is anything to report."""
        return self.exact or self._offered

    @property
    def reduced_model(self) -> MarkovRandomField:
        """The reduced model; its log Z is what bounds are offered on."""
        return self.reduce().reduction.model

    def reduce(self) -> ReducedTables:
        """The tables of the reduced model, found at the first call.

        Raises
        ------
        ImpossibleModelError
            If that shows that no configuration has positive probability.
        OutOfTimeError
            If the clock runs out before.
        """
        if self.tables is None:
            evidence = self.context.evidence
            tables = reduce_to_tables(self.model, evidence, self.clock)
            self._folding_error = folding_error(self.model, evidence, tables.reduction)
            self.log_weights = (np.full(tables.num_unary, -np.inf), np.full(tables.num_unary, np.inf))
            self.tables = tables
        return self.tables

    # -- what methods have found --------------------------------------------------------------------------------------

    def offer(
        self,
        name: str,
        *,
        lower: float = -math.inf,
        upper: float = math.inf,
        log_weights_lower: FloatArray | float = -math.inf,
        log_weights_upper: FloatArray | float = math.inf,
    ) -> bool:
        """Keep what is tighter of bounds on log Z and on the log-weights of all states; whether anything was.

        Parameters
        ----------
        name : str
            What found them, for ``methods`` of the result.
        lower, upper : float
            Proven bounds on log Z of the reduced model, with an allowance for rounding on the safe side
            (:func:`fastmix.model.rounding.rounding`).
        log_weights_lower, log_weights_upper : float arrays (num_unary,) or float
            Bounds on the log-weight of every state: log Z of the reduced model with one variable fixed to that state.
        """
        self._offered = True
        least, largest = self.log_z
        states_lower, states_upper = self.log_weights
        tightened = (np.maximum(states_lower, log_weights_lower), np.minimum(states_upper, log_weights_upper))
        changed = not all(map(np.array_equal, tightened, self.log_weights))
        self.log_weights = tightened
        self.log_z = (max(least, lower), min(largest, upper))
        if lower > least:
            self.methods["lower"] = name
        if upper < largest:
            self.methods["upper"] = name
        return changed or lower > least or upper < largest

    def offer_marginals(self, lower: FloatArray, upper: FloatArray) -> None:
        """Keep bounds on the marginals of the reduced model (num_unary,), found in other ways than by weights."""
        self._offered = True
        self.marginals.append((lower, upper))

    def settle(self, name: str, log_z: tuple[float, float], lower: FloatArray, upper: FloatArray) -> None:
        """Keep an answer with only rounding between its bounds on log Z and on the marginals of the reduced model."""
        self.log_z = log_z
        self.node_bounds = (lower, upper)
        self.methods = {"lower": name, "upper": name, "marginals": name}
        self.exact = True

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Turn bounds on the weights of states into bounds on log Z and on the marginals of the user's model."""
        if self.tables is None:
            self._set_widest()
        else:
            if self.node_bounds is None:
                self.log_z, lower, upper = tighten(self.log_z, *self.log_weights, self.tables)
                self.node_bounds = combine([(lower, upper), *self.marginals], self.tables)
            lower, upper = outwards(*self.node_bounds, 2.0 * self._folding_error)
            expand = self.tables.reduction.expand_node_marginals
            self.node_bounds = (expand(lower), expand(upper))
        self.log_z = self._with_constant(self.log_z)

    def finish_zero(self, reason: str) -> None:
        """Record that Z = 0 is proven, so that there are no marginals."""
        self.log_z = (-math.inf, -math.inf)
        self.node_bounds = None
        self.stats["reason"] = reason
        self.methods = dict.fromkeys(self.methods, "no configuration")
        self.held_confidence = None
        self.exact = True

    def _set_widest(self) -> None:
        """Set the bounds of the largest entries, where there was no time to take out evidence and forbidden states."""
        model = self.model
        offsets = model.unary_offsets
        unary, fixed = observed_unary(model, self.context.evidence)
        upper = float(np.logaddexp.reduceat(unary, offsets[:-1]).sum()) if model.num_variables else 0.0
        factors = ((model.log_pairwise, model.pairwise_offsets), (model.log_factors, model.factor_offsets))
        for values, starts in factors:
            if values.size:
                upper += float(np.maximum.reduceat(values, starts[:-1]).sum())
        self.log_z = (-math.inf, upper + rounding(model.num_parameters, log_size(model)))
        self.methods["upper"] = "largest entries"
        lower = np.zeros(len(unary))
        observed = np.flatnonzero(fixed >= 0)
        lower[offsets[observed] + fixed[observed]] = 1.0
        self.node_bounds = (lower, (unary > -np.inf).astype(float))

    def _with_constant(self, log_z: tuple[float, float]) -> tuple[float, float]:
        """Bounds on log Z with the constant of the model, apart by the rounding of folding and of both sums."""
        error = self._folding_error + self._constant_error
        if not self._constant and not error:
            return log_z
        # Rounded to the next float where the sum of three is not one.
        low = math.nextafter(math.fsum([self._constant, log_z[0], -error]), -math.inf)
        high = math.nextafter(math.fsum([self._constant, log_z[1], error]), math.inf)
        return low, high
