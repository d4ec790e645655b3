"""``sensitivity()``: what a posterior depends on: parameters, the evidence there is, and observations to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_float_array
from fastmix._clock import Report
from fastmix._context import open_context
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.queries.conditionals import Conditionals, information, joint_with
from fastmix.results import Result

__all__ = ["SensitivityResult", "sensitivity"]


def sensitivity(
    model: MarkovRandomField,
    query: int | str,
    *,
    evidence: Evidence | None = None,
    utility: ArrayLike | None = None,
    memory_limit: float | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> SensitivityResult:
    """What the posterior of a variable depends on: every parameter, each piece of evidence, each observation to come.

    With the posterior ``p_s = P(query = s | evidence)``, the derivative by the parameter of an entry f is ``p_s (E[f |
    query = s, evidence] - E[f | evidence])``: one pass through the junction tree and back for each state of the query,
    and one for the evidence, give the derivatives by all parameters. The same passes give the mutual information of the
    query with each other variable, what it would be after any observation, and what observations are worth. All of it
    is exact.

    Parameters
    ----------
    model : MarkovRandomField
    query : int or str
        A variable that is not observed.
    evidence : mapping, optional
        Observed states, or likelihoods, by variable.
    utility : float array (decisions, states of the query), optional
        What a decision is worth in each state. By default a decision is a guess of the state, worth 1 where it is
        right: values are probabilities to guess right.
    memory_limit : float, optional
        Bytes for the tables; half of the memory that is free by default.
    num_threads, time_limit, progress
        See :func:`fastmix.infer`. Without a time limit it runs to its end.

    Returns
    -------
    SensitivityResult

    Raises
    ------
    ModelError
        If there is no such variable, it is observed, or the utility does not fit.
    ImpossibleEvidenceError
        If the evidence has probability zero.
    ResourceError
        If exact inference needs more memory, or more time, than there is.

    References
    ----------
    Darwiche, "A differential approach to inference in Bayesian networks" (2003).

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[1.0, 0.3], variable_names=["a", "b", "c"])
    >>> found = sensitivity(model, "a", evidence={"c": 1})
    >>> found.posterior.round(4).tolist()
    [0.3891, 0.6109]
    >>> found.mutual_information.round(4).tolist()[1]  # of a with b
    0.303
    """
    check_model(model)
    number = model.variable_index(query)
    worth = _as_utility(utility, int(model.num_states[number]))
    count = float(model.num_states[number])
    check_memory(32.0 * (count + 2.0) * model.num_parameters, "the derivatives", "ask about a smaller model")
    options = {"query": number, "utility": None if utility is None else "given", "memory_limit": memory_limit}
    with open_context(
        "sensitivity", model, evidence=evidence, time_limit=time_limit, progress=progress, num_threads=num_threads,
        options=options,
    ) as context:  # fmt: skip
        conditionals = Conditionals(model, evidence, memory_limit, context)
        if conditionals.fixed[number] >= 0:
            raise ModelError(f"query must be a variable that is not observed, got {query!r}, which evidence names")
        posterior = conditionals.states_of(number, conditionals.marginals).copy()
        joint, given = joint_with(conditionals, number)
        observed = np.flatnonzero(conditionals.fixed >= 0)
        without = [conditionals.states_of(number, row).copy() for row in conditionals.without(observed.tolist())]
        result = SensitivityResult(
            model=model,
            query=number,
            posterior=posterior,
            log_z=conditionals.log_z,
            derivatives=posterior[:, None] * (given - conditionals.marginals),
            mutual_information=_others(information(joint, model.unary_offsets), number, observed),
            value=_others(_values(joint, model.unary_offsets, worth), number, observed),
            best_value=float((worth @ posterior).max()),
            joint=joint,
            observed=observed,
            posterior_without=np.array(without).reshape(len(observed), len(posterior)),
            stats={"num_rows": 1 + len(posterior) + len(observed)},
        )
        return context.finish(result)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SensitivityResult(Result):
    """What the posterior of a variable depends on.

    Attributes
    ----------
    query : int
        The variable.
    posterior : float array (K,)
        Probabilities of its K states, given the evidence.
    log_z : float
        Log of the mass of the evidence.
    derivatives : float array (K, P)
        Of the posterior, by all parameters in the layout of :attr:`fastmix.MarkovRandomField.parameters`. Where a
        parameter is the log of a probability of a network, this is the derivative by the probability times the
        probability.
    mutual_information : float array (n,)
        Of the query and each variable, given the evidence, in nats: by how much an observation lowers the entropy of
        the query in the mean. 0 for observed variables, NaN for the query.
    value : float array (n,)
        By how much an observation of a variable raises the value of the best decision, in the mean. 0 and NaN as above.
    best_value : float
        The value of the best decision now.
    joint : float array (K, sum of num_states)
        Joint probabilities of the query with the states of each variable, given the evidence.
    observed : int array (observed variables,)
    posterior_without : float array (observed variables, K)
        The posterior without one of the observations; soft evidence counts as none of them.
    """

    query: int
    posterior: FloatArray
    log_z: float
    derivatives: FloatArray
    mutual_information: FloatArray
    value: FloatArray
    best_value: float
    joint: FloatArray
    observed: IntArray
    posterior_without: FloatArray

    def __repr__(self) -> str:
        return f"SensitivityResult({self._name()}, {self.model})"

    def title(self) -> str:
        """The variable that it is about."""
        return f"sensitivity of {self._name()}"

    def facts(self) -> dict[str, str]:
        """The posterior, the value of the best decision, and the observation that is worth most."""
        states = self.model.names_of_states()[self.query]
        found = {
            "posterior": ", ".join(f"{state}: {p:.4g}" for state, p in zip(states, self.posterior, strict=True)),
            "value": f"{self.best_value:.4g}",
        }
        open_values = np.nan_to_num(self.value)
        if len(open_values) > 1:
            best = int(open_values.argmax())
            found["best observation"] = f"{self.model.names_of_variables()[best]} (+{open_values[best]:.4g})"
        return found

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame`: variables that could be observed, by how much they tell of the query."""
        known = {self.query, *self.observed.tolist()}
        others = [v for v in range(self.model.num_variables) if v not in known]
        order = sorted(others, key=lambda v: -self.mutual_information[v])
        names = self.model.names_of_variables()
        return {
            "variable": [names[v] for v in order],
            "mutual_information": self.mutual_information[order],
            "value": self.value[order],
        }

    def findings(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """A frame of single observations to come: their probability, and the posterior after each of them."""
        names = self.model.names_of_variables()
        states = self.model.names_of_states()
        skipped = {self.query, *self.observed.tolist()}
        rows = [(v, k) for v in range(self.model.num_variables) if v not in skipped for k in range(len(states[v]))]
        places = np.array([self.model.unary_offsets[v] + k for v, k in rows], dtype=np.int64)
        together = self.joint[:, places]
        probability = together.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            after = together / probability
        columns: dict[str, Any] = {
            "variable": [names[v] for v, _ in rows],
            "state": [states[v][k] for v, k in rows],
            "probability": probability,
        }
        columns |= {self._label(s): after[s] for s in range(len(self.posterior))}
        return _show.frame(columns, library)

    def impact(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """A frame of the evidence: the posterior without each observation, and how far it is from that with it.

        That is the divergence ``sum_s p_s log(p_s / p_s without)``, in nats.
        """
        names = self.model.names_of_variables()
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.posterior / self.posterior_without)
            terms = np.where(self.posterior > 0.0, self.posterior * logs, 0.0)
        columns: dict[str, Any] = {
            "variable": [names[v] for v in self.observed.tolist()],
            "divergence": terms.sum(axis=1),
        }
        columns |= {f"{self._label(s)} without": self.posterior_without[:, s] for s in range(len(self.posterior))}
        return _show.frame(columns, library)

    def parameters(self, state: int | str, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """A frame of all parameters with the derivative of the probability of a state, those of largest size first.

        ``relative`` is the derivative divided by the probability: that of its logarithm.
        """
        number = self.model.state_index(self.query, state)
        names = self.model.names_of_variables()
        states = self.model.names_of_states()
        variables = []
        entries = []
        for members, table in self.model.terms():
            text = ", ".join(names[v] for v in members)
            for place in np.ndindex(table.shape):
                variables.append(text)
                entries.append(", ".join(states[v][k] for v, k in zip(members, place, strict=True)))
        derivative = self.derivatives[number]
        order = np.argsort(-np.abs(derivative), kind="stable")
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = derivative / self.posterior[number]
        columns = {
            "variables": [variables[k] for k in order],
            "states": [entries[k] for k in order],
            "log_potential": self.model.parameters[order],
            "derivative": derivative[order],
            "relative": relative[order],
        }
        return _show.frame(columns, library)

    def contents(self) -> dict[str, Any]:
        """All numbers but the derivatives, by variable or state."""
        return {
            "query": self.query,
            "posterior": self.posterior,
            "log_z": self.log_z,
            "mutual_information": self.mutual_information,
            "value_of_observation": self.value,
            "best_value": self.best_value,
            "observed": self.observed,
            "posterior_without": self.posterior_without,
            "variable_names": self.model.variable_names,
            "state_names": self.model.state_names,
        }

    def arrays(self) -> dict[str, Any]:
        """Arrays of an ``.npz`` file by name."""
        names = ("posterior", "derivatives", "mutual_information", "value", "joint", "posterior_without")
        return {name: getattr(self, name) for name in names}

    def plot(self, axes: Any = None) -> Any:
        """The variables that tell most of the query, as bars (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        columns = self.columns()
        shown = slice(0, NUM_SHOWN)
        axes.barh(columns["variable"][shown][::-1], columns["mutual_information"][shown][::-1])
        axes.set_xlabel("mutual information, nats")
        return axes

    def _name(self) -> str:
        """The name of the query."""
        return self.model.names_of_variables()[self.query]

    def _label(self, state: int) -> str:
        """The name of a column of probabilities of a state of the query."""
        return f"{self._name()}={self.model.names_of_states()[self.query][state]}"


#: Variables that a picture shows.
NUM_SHOWN = 20


def _as_utility(utility: ArrayLike | None, num_states: int) -> FloatArray:
    """A utility (decisions, states); the identity by default."""
    if utility is None:
        return np.eye(num_states)
    array = as_float_array("utility", utility)
    if array.ndim != 2 or array.shape[1] != num_states or not len(array) or not np.isfinite(array).all():
        raise ModelError(
            f"utility must be finite numbers of shape (decisions, {num_states}), a column for each state of the query, "
            f"got shape {array.shape}"
        )
    if np.abs(array).max() > MAX_UTILITY:
        raise ModelError(f"utility must be at most {MAX_UTILITY:g} in size, got {np.abs(array).max():g}")
    return array


#: Beyond this sums of utilities could overflow.
MAX_UTILITY = 1e100


def _values(joint: FloatArray, offsets: IntArray, utility: FloatArray) -> FloatArray:
    """By how much observing each variable raises the value of the best decision, in the mean, (n,)."""
    if len(offsets) < 2:
        return np.zeros(0)
    best = (utility @ joint).max(axis=0)
    after = np.add.reduceat(best, offsets[:-1])
    now = (utility @ (joint.sum(axis=1) / (len(offsets) - 1))).max()
    return np.asarray(np.maximum(after - now, 0.0))


def _others(values: FloatArray, query: int, observed: IntArray) -> FloatArray:
    """Values by variable, 0 for observed ones and NaN for the query."""
    values[observed] = 0.0
    values[query] = np.nan
    return values
