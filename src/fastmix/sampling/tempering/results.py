"""What replica exchange returns: marginals and log Z of the coldest model, draws and answers at every rung."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_index
from fastmix.marginals import ChainResult
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction
from fastmix.results import Status
from fastmix.sampling.diagnostics import BatchStatistics, summarize
from fastmix.sampling.results import arviz_data
from fastmix.sampling.tempering.observables import Observables
from fastmix.sampling.tempering.rung_draws import RungDraws
from fastmix.sampling.tuning import MAX_LADDER_R_HAT, NUM_BATCHES

__all__ = ["TemperedResult"]

_NOT_TRAVELED = (
    "The replicas have not traveled the ladder often enough, or the ensembles disagree: run longer, or with more "
    "replicas."
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TemperedResult(ChainResult):
    """Marginals and log Z from replica exchange, with their error bars.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Standard error of every probability: the spread of the independent ensembles, or that of batches of sweeps if it
        is larger, and one over the number of round trips, because that is how much probability can be overlooked.
    ess, r_hat : float array (n,)
        Effective sample size and split R-hat of every variable over the ensembles; observed ones have the best values.
    log_z : float or None
        None where replicas have not mixed, and not every ensemble made a round trip: they can agree on any number.
    log_z_lower : float or None
        What log Z is at least, with the probability ``log_z_confidence`` (1 for bounds that do not rest on draws).
    log_z_std_error : float or None
        By the jackknife over the ensembles, enlarged for their small number so that three standard errors cover
        99.73 %, with one over the number of round trips as for ``std_error``.
    states : int array (ladders, n)
        Where the replicas at the highest rung ended.
    draws : int array (ladders, draws, n), or None
        Configurations at the highest rung that were kept (``num_draws``).
    rung_draws : RungDraws, or None
        Configurations at all rungs that were asked for (``temperatures``, ``rungs``); the result is about the model at
        the lowest temperature, whose draws are ``draws``. See :meth:`at` and :meth:`observables`.
    """

    #: ``log_z_lower <= log Z`` with at least this probability, however badly anything mixed
    log_z_confidence: float | None = None
    positions: FloatArray  #: (K,), the ladder: where the rungs are on the path
    rejection: FloatArray  #: (K - 1,), how often the exchange between each rung and the next is rejected
    round_trips: IntArray  #: (num_ensembles,)
    rung_draws: RungDraws | None = None

    advice_by_status: ClassVar[Mapping[Status, str]] = {Status.NOT_MIXED: _NOT_TRAVELED}

    def to_arviz(self) -> Any:
        """The draws as ArviZ's data object (extra ``interop``), a chain for every ladder, where some were kept."""
        return arviz_data(self)

    @property
    def temperatures(self) -> FloatArray | None:
        """The temperatures (R,) at which draws were kept; None where no others than the model's were asked for."""
        return None if self.rung_draws is None else self.rung_draws.temperatures

    def at(self, rung: int) -> TemperedResult:
        """The answer about the model at the temperature of a rung, by the draws that were kept there.

        Parameters
        ----------
        rung : int
            Its place in ``temperatures``.
        """
        kept = self._kept_rungs()
        rung = as_index("rung", rung, {}, len(kept.temperatures))
        draws = kept.chains(rung)
        temperature = float(kept.temperatures[rung])
        model = self.model.at_temperature(temperature / float(kept.temperatures[kept.coldest]))
        summary = summarize(_counted(model, draws), model)
        status = self.status
        if status is Status.OK and summary.r_hat.max(initial=1.0) > MAX_LADDER_R_HAT:
            status = Status.NOT_MIXED
        log_z = self.observables().log_z[rung]
        known = math.isfinite(float(log_z))
        found = replace(
            self,
            model=model,
            status=status,
            node_marginals=summary.mean,
            edge_marginals=None,
            std_error=np.where(summary.std_error > 0.0, np.hypot(summary.std_error, self._overlooked()), 0.0),
            ess=summary.ess,
            r_hat=summary.r_hat,
            log_z=float(log_z) if known else None,
            log_z_std_error=float(log_z.std_error) if known else None,
            log_z_kind="estimate" if known else "unknown",
            log_z_lower=None,
            log_z_confidence=None,
            states=kept.states[rung, :, -1].astype(np.int64),
            draws=kept.states[rung],
            rung_draws=None,
            history=(),
        )
        found.__dict__["_run_name"] = self._run_name  # estimates from all rungs vary together
        return found

    def observables(self, temperatures: ArrayLike | None = None) -> Observables:
        """Curves over the temperatures of the rungs: energy, magnetization, overlaps and others, with standard errors.

        Parameters
        ----------
        temperatures : float array, optional
            Between the lowest and the highest of the rungs: draws are then reweighted by multistate acceptance ratios.

        Raises
        ------
        ValueError
            If no draws at rungs were kept, or if temperatures are not between rungs whose draws overlap.

        Examples
        --------
        >>> from fastmix import MarkovRandomField, temper
        >>> from fastmix.graphs import grid_edges
        >>> torus = MarkovRandomField.ising(grid_edges(3, 3, torus=True), coupling=1.0)
        >>> run = temper(torus, temperatures=[2.0, 2.5, 3.0], num_sweeps=1000, num_ensembles=8, seed=0)
        >>> curves = run.observables()
        >>> curves.energy.shape, bool(curves.energy[0] < curves.energy[2])
        ((3,), True)
        >>> fine = run.observables(temperatures=[2.0, 2.1, 2.2])
        >>> bool(abs(fine.energy[0] - curves.energy[0]).std_error < 0.05)
        True
        """
        if temperatures is None:
            return self._curves
        return Observables(self.model, self._kept_rungs(), self._run_name, temperatures)

    @cached_property
    def _curves(self) -> Observables:
        """The observables at the rungs themselves."""
        return Observables(self.model, self._kept_rungs(), self._run_name)

    def _kept_rungs(self) -> RungDraws:
        """The draws at rungs; a ValueError where none were kept."""
        if self.rung_draws is None:
            raise ValueError("there are no draws at rungs: run temper() with temperatures, or with rungs='all'")
        return self.rung_draws

    def _overlooked(self) -> float:
        """How much probability may have been overlooked: one over the number of round trips."""
        return 1.0 / (float(self.round_trips.sum()) + 1.0)

    def _configurations(self) -> NDArray[Any]:
        """The draws in order of time, a chain for every ensemble: ladders of one may exchange clusters."""
        draws = super()._configurations()
        ladders, num, n = draws.shape
        ensembles = max(1, len(self.round_trips))
        if ladders % ensembles:
            return draws
        parts = draws.reshape(ensembles, ladders // ensembles, num, n)
        return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(ensembles, -1, n)

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields for the original model, at the lowest temperature where there are several."""
        values = super().expansion(reduction)
        if self.rung_draws is not None:
            coldest = float(self.rung_draws.temperatures.min())
            values["model"] = reduction.original.at_temperature(coldest)
            values["rung_draws"] = self.rung_draws.expanded(reduction)
        return values

    def drawings(self) -> dict[str, Callable[[Any], Any]]:
        """The drawings of every result of chains, with ``ladder``: how often exchanges between rungs are rejected."""
        found = super().drawings()
        if len(self.positions) > 1:
            found["ladder"] = lambda axes: _show.rungs(axes, self.positions, self.rejection)
        return found

    def contents(self) -> dict[str, Any]:
        """The contents of every result of chains, with the confidence of the bound on log Z, the ladder, and curves."""
        own = ("log_z_confidence", "positions", "rejection", "round_trips")
        found = {**super().contents(), **{name: getattr(self, name) for name in own}}
        found["curves"] = None if self.rung_draws is None else self.observables().columns()
        return found


def _counted(model: MarkovRandomField, draws: NDArray[Any]) -> BatchStatistics:
    """Statistics of draws (chains, draws, n) as those of a run in which every draw is a sweep."""
    chains, num, _ = draws.shape
    statistics = BatchStatistics(len(model.log_unary), chains, num)
    bounds = np.linspace(0, num, min(num, NUM_BATCHES) + 1).astype(np.int64)
    for first, last in pairwise(bounds.tolist()):
        sums = np.empty((len(model.log_unary), chains))
        for chain in range(chains):
            entries = draws[chain, first:last] + model.unary_offsets[:-1]
            sums[:, chain] = np.bincount(entries.reshape(-1), minlength=len(sums))
        statistics.add(sums, last - first)
    return statistics
