"""Samplers with the interface of dimod, for binary quadratic models and binary polynomials (extra ``interop``).

Energies there are minimized; log-potentials here are maximized. So the model of a problem has ``-energy / temperature``
as its log-weight. Each sampler gives a :class:`dimod.SampleSet` with the labels, the kind of values (spins or bits) and
the energies of the problem; ``info`` tells the seed, the verdict and what is proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        labels, model = _quadratic_model(bqm)
        states, info = self._find(model, method=method, tol=tol, time_limit=time_limit, seed=seed)
        return _sample_set(states, labels, bqm, info)

    def sample_poly(
        self,
        polynomial: Any,
        *,
        method: str = "auto",
        tol: float = 0.0,
        time_limit: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """The sample set of one state of a binary polynomial, as :meth:`sample` for problems of any order."""
        labels, model = _polynomial_model(polynomial)
        states, info = self._find(model, method=method, tol=tol, time_limit=time_limit, seed=seed)
        return _polynomial_set(states, labels, polynomial, info)

    def _find(self, model: MarkovRandomField, **options: Any) -> tuple[IntArray, dict[str, Any]]:
        """The best state of a model (1, n), and what is known of it."""
        result = most_probable(model, progress=None, **options)
        info = {
            "seed": result.provenance["seed"],
            "status": str(result.status),
            "exact": result.exact,
            "lower_bound": -float(result.upper_bound),
            "method": result.method,
        }
        return result.states[None], info


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
        bqm : dimod.BinaryQuadraticModel
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
        labels, model = _quadratic_model(bqm)
        with open_context(
            "anneal sampler", model, seed=seed, time_limit=time_limit, default_limit=_SECONDS, progress=None
        ) as context:
            states = _read_states(model, context, num_reads, num_sweeps)
            info = {"seed": context.seed, "num_reads": len(states)}
        return _sample_set(states, labels, bqm, info)

    def sample_poly(
        self,
        polynomial: Any,
        *,
        num_reads: int = 10,
        num_sweeps: int = 1000,
        time_limit: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """The sample set of a binary polynomial, as :meth:`sample`; beyond degree two all reads cool side by side."""
        options: dict[str, Any] = {
            "num_reads": num_reads, "num_sweeps": num_sweeps, "time_limit": time_limit, "seed": seed,
        }  # fmt: skip
        labels, model = _polynomial_model(polynomial)
        if model.num_factors:
            states, info = self._cool(model, **options)
            return _polynomial_set(states, labels, polynomial, info)
        linear: dict[Any, float] = {}
        quadratic: dict[Any, float] = {}
        offset = 0.0
        for term, bias in polynomial.items():
            if len(term) == 2:
                quadratic[tuple(term)] = bias
            elif term:
                linear[next(iter(term))] = bias
            else:
                offset = bias
        return self.sample(_dimod.BinaryQuadraticModel(linear, quadratic, offset, polynomial.vartype), **options)

    def _cool(
        self, model: MarkovRandomField, num_reads: int, num_sweeps: int, **call: Any
    ) -> tuple[IntArray, dict[str, Any]]:
        """The best states (reads, n) of chains of any model that cool down, and how they were found."""
        num_reads = check_count("num_reads", num_reads, least=1)
        num_sweeps = check_count("num_sweeps", num_sweeps, least=1)
        check_memory(16.0 * num_reads * model.num_variables, f"num_reads {num_reads}", "take fewer")
        with open_context("anneal sampler", model, default_limit=_SECONDS, progress=None, **call) as context:
            states = cool_chains(model, num_reads, num_sweeps, context)
            return states, {"seed": context.seed, "num_reads": len(states)}


def _read_states(model: MarkovRandomField, context: Context, num_reads: int, num_sweeps: int) -> IntArray:
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
        bqm : dimod.BinaryQuadraticModel
        num_reads : int
            Draws; they are kept from all ladders in turn, evenly over the sweeps.
        temperature : float
            In units of the energy.
        num_sweeps, time_limit, seed
            As for :func:`fastmix.temper`.
        """
        labels, model = _quadratic_model(bqm, temperature)
        states, info = self._draw(model, num_reads, num_sweeps=num_sweeps, time_limit=time_limit, seed=seed)
        return _sample_set(states, labels, bqm, info)

    def sample_poly(
        self,
        polynomial: Any,
        *,
        num_reads: int = 100,
        temperature: float = 1.0,
        num_sweeps: int | None = None,
        time_limit: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """The sample set of draws of a binary polynomial, as :meth:`sample` for problems of any order."""
        labels, model = _polynomial_model(polynomial, temperature)
        states, info = self._draw(model, num_reads, num_sweeps=num_sweeps, time_limit=time_limit, seed=seed)
        return _polynomial_set(states, labels, polynomial, info)

    def _draw(self, model: MarkovRandomField, num_reads: int, **options: Any) -> tuple[IntArray, dict[str, Any]]:
        """Draws (reads, n) of a model, and the verdict on them."""
        num_reads = check_count("num_reads", num_reads, least=1)
        run = temper(model, num_draws=num_reads, progress=None, **options)
        assert run.draws is not None
        # All ladders at the first sweep that was kept, then all at the next: reads are spread evenly over these.
        ladders, draws, _ = run.draws.shape
        kept = run.draws.swapaxes(0, 1).reshape(ladders * draws, model.num_variables)
        chosen = np.linspace(0, len(kept) - 1, min(num_reads, len(kept))).astype(np.int64)
        return kept[chosen].astype(np.int64), {"seed": run.provenance["seed"], "status": str(run.status)}


# -- problems and models ----------------------------------------------------------------------------------------------


def _quadratic_model(bqm: Any, temperature: float = 1.0) -> tuple[list[Any], MarkovRandomField]:
    """The labels of a binary quadratic model, and its model in their order."""
    if not isinstance(bqm, _dimod.BinaryQuadraticModel):
        raise TypeError(f"bqm must be a binary quadratic model of dimod, got a {type(bqm).__name__}")
    labels = list(bqm.variables)
    numbered = bqm.relabel_variables({label: i for i, label in enumerate(labels)}, inplace=False)
    return labels, read(numbered, temperature=temperature)


def _polynomial_model(polynomial: Any, temperature: float = 1.0) -> tuple[list[Any], MarkovRandomField]:
    """The labels of a binary polynomial, and its model in their order."""
    if not isinstance(polynomial, _dimod.BinaryPolynomial):
        raise TypeError(f"polynomial must be a BinaryPolynomial of dimod, got a {type(polynomial).__name__}")
    scale = -1.0 / check_positive("temperature", temperature, "number")
    labels = list(polynomial.variables)
    number = {label: i for i, label in enumerate(labels)}
    values = np.array(_values(polynomial.vartype), dtype=np.float64)
    factors: list[tuple[Sequence[int], Any]] = []
    for term, bias in polynomial.items():
        table = np.array(scale * float(bias))
        for _ in term:
            table = np.multiply.outer(table, values)
        factors.append(([number[label] for label in term], table))
    return labels, MarkovRandomField.from_factors([2] * len(labels), factors)


def _values(vartype: Any) -> tuple[int, int]:
    """What states 0 and 1 are called: spins -1 and +1, or bits."""
    return (-1, 1) if vartype.name == "SPIN" else (0, 1)


def _samples(states: IntArray, vartype: Any) -> NDArray[np.int8]:
    """States as spins or bits."""
    return np.array(_values(vartype), dtype=np.int8)[states]


def _sample_set(states: IntArray, labels: list[Any], bqm: Any, info: Mapping[str, Any]) -> Any:
    """States (k, n) as a sample set of a binary quadratic model, with their energies."""
    samples = _samples(states, bqm.vartype)
    found = _dimod.SampleSet.from_samples_bqm((samples, labels), bqm)
    found.info.update(info)
    return found


def _polynomial_set(states: IntArray, labels: list[Any], polynomial: Any, info: Mapping[str, Any]) -> Any:
    """States (k, n) as a sample set of a binary polynomial, with their energies."""
    samples = (_samples(states, polynomial.vartype), labels)
    energies = polynomial.energies(samples) if labels else np.full(len(states), polynomial.energy({}))
    return _dimod.SampleSet.from_samples(samples, energy=energies, vartype=polynomial.vartype, info=dict(info))
