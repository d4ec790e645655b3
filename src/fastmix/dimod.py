"""Samplers with the interface of dimod, for binary quadratic models and binary polynomials (extra ``interop``).

Energies there are minimized; log-potentials here are maximized. So the model of a problem has ``-energy / temperature``
as its log-weight. Each sampler gives a :class:`dimod.SampleSet` with the labels, the kind of values (spins or bits) and
the energies of the problem; ``info`` tells the seed, the verdict and what is proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastmix._arrays import IntArray
from fastmix._checks import check_count, check_positive, require
from fastmix._clock import Ending
from fastmix._context import Context, open_context
from fastmix._memory import check_memory
from fastmix.interop.dimod import read
from fastmix.model import MarkovRandomField
from fastmix.model.forms import ising_form
from fastmix.modes.cooling import SpinCooling, cool_chains
from fastmix.modes.most_probable import most_probable
from fastmix.sampling.tempering.temper import temper

_dimod = require("dimod", extra="interop", purpose="samplers with its interface")

__all__ = ["AnnealSampler", "MostProbableSampler", "TemperSampler"]

#: Seconds that annealing takes at most where none are given, as for :func:`fastmix.most_probable`.
_SECONDS = 60.0


class _PolynomialSampler(_dimod.Sampler, _dimod.PolySampler):  # type: ignore[misc, name-defined]
    """What samplers of fastmix have in common: properties, and the way from a problem to a model."""

    @property
    def properties(self) -> dict[str, Any]:
        """What the sampler can do: no limit on the number of variables, one on nothing else."""
        return {"category": "software", "vartypes": ["SPIN", "BINARY"]}

    def sample_poly(self, polynomial: Any, **options: Any) -> Any:
        """The sample set of a binary polynomial, with the options of ``sample``, which takes both kinds of problems."""
        _check_polynomial(polynomial)
        return self.sample(polynomial, **options)


class MostProbableSampler(_PolynomialSampler):
    """The state of least energy, by :func:`fastmix.most_probable`: exact where feasible, else with a proven gap.

    ``info`` has ``exact``, ``lower_bound`` (no state has less energy) and ``method``.

    Examples
    --------
    >>> sampler = MostProbableSampler()
    >>> found = sampler.sample_qubo({("a", "a"): -3, ("b", "b"): -1, ("a", "b"): 2})
    >>> {label: int(bit) for label, bit in found.first.sample.items()}, found.info["exact"]
    ({'a': 1, 'b': 0}, True)
    >>> found = sampler.sample_hubo({("a", "b", "c"): -1.0, ("a",): 0.5})
    >>> float(found.first.energy)
    -0.5
    """

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Names of the options of :meth:`sample`."""
        return {name: [] for name in ("method", "tol", "time_limit", "seed")}

    def sample(
        self,
        bqm: Any,
        *,
        method: str = "auto",
        tol: float = 0.0,
        time_limit: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """The sample set of one state, the best that was found; options as for :func:`fastmix.most_probable`."""
        problem = _Problem(bqm)
        result = most_probable(problem.model, method=method, tol=tol, time_limit=time_limit, seed=seed, progress=None)
        info = {
            "seed": result.provenance["seed"],
            "status": str(result.status),
            "exact": result.exact,
            "lower_bound": -float(result.upper_bound),
            "method": result.method,
        }
        return problem.sample_set(result.states[None], info)


class AnnealSampler(_PolynomialSampler):
    """States of low energy by simulated annealing: many reads, each from random spins.

    Examples
    --------
    >>> ring = {(i, (i + 1) % 20): 1.0 for i in range(20)}
    >>> found = AnnealSampler().sample_ising({}, ring, num_reads=10, seed=1)
    >>> float(found.first.energy)
    -20.0
    """

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Names of the options of :meth:`sample`."""
        return {name: [] for name in ("num_reads", "num_sweeps", "time_limit", "seed")}

    def sample(
        self,
        bqm: Any,
        *,
        num_reads: int = 10,
        num_sweeps: int = 1000,
        time_limit: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """The sample set of the best states of the reads.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel or dimod.BinaryPolynomial
            Beyond degree two all reads cool side by side.
        num_reads : int
            How often to cool down, from random spins each time.
        num_sweeps : int
            Sweeps of a read, from a temperature at which no field matters to one at which flips are rare.
        time_limit : float, optional
            Seconds, 60 by default: there are fewer reads where they are over before, but at least one.
        seed : int, optional
        """
        num_reads = check_count("num_reads", num_reads, least=1)
        num_sweeps = check_count("num_sweeps", num_sweeps, least=1)
        problem = _Problem(_quadratic_where_possible(bqm))
        model = problem.model
        if model.num_factors:
            check_memory(16.0 * num_reads * model.num_variables, f"num_reads {num_reads}", "take fewer")
        with open_context(
            "anneal sampler", model, seed=seed, time_limit=time_limit, default_limit=_SECONDS, progress=None
        ) as context:
            read = cool_chains if model.num_factors else _read_states
            states = read(model, num_reads, num_sweeps, context)
            info = {"seed": context.seed, "num_reads": len(states)}
        return problem.sample_set(states, info)


def _read_states(model: MarkovRandomField, num_reads: int, num_sweeps: int, context: Context) -> IntArray:
    """The best states (reads, n) of annealing reads, fewer than asked for where the time is over."""
    form = ising_form(model)
    assert form is not None  # of pairs, and nothing is forbidden
    cooling = SpinCooling(model, form, context.seed_of("spins"))
    starts = context.rng("starts")
    found: list[IntArray] = []
    with Ending() as ending:
        while len(found) < num_reads and not (found and context.clock.past()):
            cooling.start(2 * starts.integers(0, 2, size=model.num_variables) - 1)
            for scales in cooling.parts(num_sweeps):
                cooling.sweep(scales)
                if context.clock.past():
                    break
            found.append(cooling.best_states())
    if ending.interrupted and not found:
        context.raise_nothing(ending.by)
    return np.array(found).reshape(len(found), model.num_variables)


class TemperSampler(_PolynomialSampler):
    """Draws from the distribution ``exp(-energy / temperature)``, by replica exchange (:func:`fastmix.temper`).

    ``info`` has the verdict ``status`` on whether the replicas have mixed.

    Examples
    --------
    >>> pair = TemperSampler().sample_ising({}, {("a", "b"): -1.0}, num_reads=2000, temperature=2.0, seed=1)
    >>> alike = [record.num_occurrences for record in pair.data() if record.sample["a"] == record.sample["b"]]
    >>> bool(abs(sum(alike) / 2000 - 1 / (1 + np.exp(-1.0))) < 0.1)
    True
    """

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Names of the options of :meth:`sample`."""
        return {name: [] for name in ("num_reads", "temperature", "num_sweeps", "time_limit", "seed")}

    def sample(
        self,
        bqm: Any,
        *,
        num_reads: int = 100,
        temperature: float = 1.0,
        num_sweeps: int | None = None,
        time_limit: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """The sample set of draws.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel or dimod.BinaryPolynomial
        num_reads : int
            Draws; they are kept from all ladders in turn, evenly over the sweeps.
        temperature : float
            In units of the energy.
        num_sweeps, time_limit, seed
            As for :func:`fastmix.temper`.
        """
        num_reads = check_count("num_reads", num_reads, least=1)
        problem = _Problem(bqm, temperature)
        run = temper(
            problem.model, num_draws=num_reads, num_sweeps=num_sweeps, time_limit=time_limit, seed=seed, progress=None
        )
        assert run.draws is not None
        # All ladders at the first sweep that was kept, then all at the next: reads are spread evenly over these.
        ladders, draws, num_variables = run.draws.shape
        kept = run.draws.swapaxes(0, 1).reshape(ladders * draws, num_variables)
        chosen = np.linspace(0, len(kept) - 1, min(num_reads, len(kept))).astype(np.int64)
        info = {"seed": run.provenance["seed"], "status": str(run.status)}
        return problem.sample_set(kept[chosen].astype(np.int64), info)


# -- problems and models ----------------------------------------------------------------------------------------------


class _Problem:
    """A binary quadratic model or a binary polynomial, and its model at a temperature, variables in one order."""

    def __init__(self, source: Any, temperature: float = 1.0) -> None:
        self.source = source
        self.is_polynomial = isinstance(source, _dimod.BinaryPolynomial)
        if not self.is_polynomial and not isinstance(source, _dimod.BinaryQuadraticModel):
            raise TypeError(f"bqm must be a binary quadratic model of dimod, got a {type(source).__name__}")
        self.labels = list(source.variables)
        number = {label: i for i, label in enumerate(self.labels)}
        if self.is_polynomial:
            self.model = _model_of_polynomial(source, number, temperature)
        else:
            self.model = read(source.relabel_variables(number, inplace=False), temperature=temperature)

    def sample_set(self, states: IntArray, info: Mapping[str, Any]) -> Any:
        """States (k, n) as a sample set of the problem, with their energies."""
        samples = (np.array(_values(self.source.vartype), dtype=np.int8)[states], self.labels)
        if not self.is_polynomial:
            found = _dimod.SampleSet.from_samples_bqm(samples, self.source)
            found.info.update(info)
            return found
        energies = self.source.energies(samples) if self.labels else np.full(len(states), self.source.energy({}))
        return _dimod.SampleSet.from_samples(samples, energy=energies, vartype=self.source.vartype, info=dict(info))


def _check_polynomial(polynomial: Any) -> None:
    """Refuse what is no binary polynomial."""
    if not isinstance(polynomial, _dimod.BinaryPolynomial):
        raise TypeError(f"polynomial must be a BinaryPolynomial of dimod, got a {type(polynomial).__name__}")


def _quadratic_where_possible(problem: Any) -> Any:
    """The binary quadratic model that a polynomial of degree two at most is; any other problem as it is."""
    if not isinstance(problem, _dimod.BinaryPolynomial) or any(len(term) > 2 for term in problem):
        return problem
    linear: dict[Any, float] = {}
    quadratic: dict[Any, float] = {}
    offset = 0.0
    for term, bias in problem.items():
        if len(term) == 2:
            quadratic[tuple(term)] = bias
        elif term:
            linear[next(iter(term))] = bias
        else:
            offset = bias
    return _dimod.BinaryQuadraticModel(linear, quadratic, offset, problem.vartype)


def _model_of_polynomial(polynomial: Any, number: Mapping[Any, int], temperature: float) -> MarkovRandomField:
    """The model of a binary polynomial at a temperature, whose variables have these numbers."""
    scale = -1.0 / check_positive("temperature", temperature, "number")
    values = np.array(_values(polynomial.vartype), dtype=np.float64)
    factors: list[tuple[Sequence[int], Any]] = []
    for term, bias in polynomial.items():
        table = np.array(scale * float(bias))
        for _ in term:
            table = np.multiply.outer(table, values)
        factors.append(([number[label] for label in term], table))
    return MarkovRandomField.from_factors([2] * len(number), factors)


def _values(vartype: Any) -> tuple[int, int]:
    """What states 0 and 1 are called: spins -1 and +1, or bits."""
    return (-1, 1) if vartype.name == "SPIN" else (0, 1)
