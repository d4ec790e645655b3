"""``fit_network``: the tables of a Bayesian network, and its graph if that is not given, from rows of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_choice, check_count, check_positive, describe
from fastmix._clock import Ending, Report
from fastmix._context import Context, open_context
from fastmix._memory import available_memory
from fastmix.errors import ModelError
from fastmix.learning.data import read_data
from fastmix.learning.dataset import Dataset
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork
from fastmix.queries.expected_counts import ExpectedCounts, Family, families_of, tables_of
from fastmix.queries.rows import read_rows
from fastmix.queries.structures import augmented_tree, chow_liu_tree
from fastmix.results import Result, Status

__all__ = ["NetworkFit", "fit_network"]

#: Structures that are found in the data.
FOUND = ("chow-liu", "tree-augmented")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkFit(Result):
    """A Bayesian network fitted to data.

    Attributes
    ----------
    network : BayesianNetwork
    model : MarkovRandomField
        The same as a model, for all that verbs can tell of it.
    log_likelihood : float
        Mean log-probability of what the rows hold, in nats per row.
    num_rows : int
    num_missing : int
        Values that are missing.
    history : sequence of mappings
        Of expectation maximization: ``iteration``, ``log_likelihood``, and ``objective``, that with the prior's part.
    status : Status
        ``not_converged`` where ``max_iter`` or the time ended the iteration.
    """

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_CONVERGED: "The likelihood was still rising: allow more max_iter or time_limit, or a larger tol."
    }

    network: BayesianNetwork
    log_likelihood: float
    num_rows: int
    num_missing: int

    def __repr__(self) -> str:
        return f"NetworkFit(log_likelihood={self.log_likelihood:.6g}, status={str(self.status)!r}, {self.network})"

    def title(self) -> str:
        """What was fitted."""
        return "fitted network"

    def facts(self) -> dict[str, str]:
        """The log-likelihood, rows, and values that are missing."""
        return {
            "log-likelihood per row": f"{self.log_likelihood:.6g}",
            "rows": f"{self.num_rows:,}",
            "missing values": f"{self.num_missing:,}",
        }

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame`: of every variable its parents, and the entries of its table."""
        network = self.network
        names = network.variable_names
        parents = [", ".join(names[parent] for parent in of_child) for of_child in network.parents]
        return {"variable": list(names), "parents": parents, "entries": [table.size for table in network.tables]}

    def contents(self) -> dict[str, Any]:
        """The log-likelihood and the graph; the tables are left out."""
        return {
            "log_likelihood": self.log_likelihood,
            "num_rows": self.num_rows,
            "num_missing": self.num_missing,
            "parents": [list(of_child) for of_child in self.network.parents],
        }

    def plot(self, axes: Any = None) -> Any:
        """The log-likelihood of every iteration (Matplotlib, extra ``plot``); the axes come back."""
        values = [entry["log_likelihood"] for entry in self.history] or [self.log_likelihood]
        axes = super().plot(axes)
        axes.plot(np.arange(1, len(values) + 1), values, marker=".")
        axes.set(xlabel="iteration", ylabel="log-likelihood per row")
        return axes


def fit_network(
    data: Any,
    *,
    structure: BayesianNetwork | Mapping[Any, Sequence[Any]] | str = "chow-liu",
    target: int | str | None = None,
    pseudo_count: float = 1.0,
    equivalent_size: float | None = None,
    start: str = "data",
    tol: float = 1e-6,
    max_iter: int = 500,
    memory_limit: float | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> NetworkFit:
    """A Bayesian network fitted to rows of data: Dirichlet counts, with expectation maximization for missing values.

    Parameters
    ----------
    data : frame or array_like (N, n)
        As for :func:`fastmix.learn`; NaN, None and, in arrays, -1 are missing. With a network as the structure, a
        frame may lack columns: these variables are hidden.
    structure : BayesianNetwork, mapping or str
        The graph: of a network, with its names and states; the parents of some variables, by name or number, where all
        others have none; ``chow-liu``, the tree of the largest likelihood; or ``tree-augmented`` naive Bayes for the
        class ``target``.
    target : int or str, optional
        The class, or the root of a tree of Chow and Liu, which is the first variable by default.
    pseudo_count : float
        Added to the count of every entry of a table; 0 gives the largest likelihood, 1 the rule of Laplace.
    equivalent_size : float, optional
        In place of it: rows that are spread evenly over the entries of every table (BDeu).
    start : {"data", "network"}
        Where the iteration begins: at what complete families say, with some noise where there are none, or at the
        tables of the network that is the structure.
    tol : float
        The iteration ends when it gains less than this, in nats per row.
    max_iter : int
        Iterations of expectation maximization.
    memory_limit : float, optional
        Bytes of tables of exact inference; half of the free memory by default.
    seed : int, optional
        Of the noise at the start.
    num_threads : int, optional
    time_limit : float, optional
        Seconds, none by default.
    progress : "auto", None or callable

    Returns
    -------
    NetworkFit

    Raises
    ------
    ModelError
        If the data do not fit the structure, or this is none.
    ResourceError
        If values are missing and exact inference does not fit the memory.

    Notes
    -----
    Expected counts come from one plan of exact inference (:func:`fastmix.prepare`), which is kept over all iterations;
    equal rows are answered once (Lauritzen 1995, "The EM algorithm for graphical association models with missing
    data"). With counts c of the prior each iteration raises the log-likelihood plus ``sum c log(table)``. Rows of a
    table that nothing was counted for are uniform.

    Examples
    --------
    >>> rows = [[0, 0], [0, 0], [0, 1], [1, 1], [1, -1]]
    >>> fit = fit_network(rows, structure={1: [0]}, pseudo_count=0.0, seed=0)
    >>> fit.network.tables[0].round(3).tolist(), fit.network.tables[1].round(3).tolist()
    ([0.6, 0.4], [[0.667, 0.333], [0.0, 1.0]])
    """
    check_choice("start", start, ("data", "network"))
    pseudo_count = check_positive("pseudo_count", pseudo_count, "number", or_zero=True)
    if equivalent_size is not None:
        equivalent_size = check_positive("equivalent_size", equivalent_size, "number of rows", or_zero=True)
    tol = check_positive("tol", tol, "number", or_zero=True)
    max_iter = check_count("max_iter", max_iter, least=1)
    if start == "network" and not isinstance(structure, BayesianNetwork):
        raise ModelError("structure must be a network with tables where start is 'network'")
    limit = available_memory() / 2
    if memory_limit is not None:
        limit = check_positive("memory_limit", memory_limit, "number of bytes")
    options = {"pseudo_count": pseudo_count, "equivalent_size": equivalent_size, "start": start, "tol": tol}
    with open_context(
        "fit network", seed=seed, num_threads=num_threads, time_limit=time_limit, progress=progress, options=options
    ) as context:
        table = _read(data, structure)
        parents = _parents(table, structure, target, context)
        families = families_of(parents, table.num_states)
        prior = [_prior(family, pseudo_count, equivalent_size) / table.num_rows for family in families]
        shell = _shell(table, parents, structure)
        work = _Fit(shell, ExpectedCounts(table.merged()[0], families, limit), prior, context)
        with Ending() as ending:
            work.run(tol, max_iter, shell if start == "network" else None)
        if work.network is None:
            context.raise_nothing(ending.by)
        result = NetworkFit(
            model=work.network.to_model(),
            network=work.network,
            log_likelihood=work.log_likelihood,
            num_rows=table.num_rows,
            num_missing=int((table.states < 0).sum()),
            status=_verdict(ending, work.converged),
            history=work.history,
            stats={"stopped_by": ending.by, "num_iterations": len(work.history)},
        )
        return context.finish(result)


class _Fit:
    """The work of a fit: the network so far, and how it came about."""

    def __init__(
        self, shell: BayesianNetwork, expected: ExpectedCounts, prior: list[FloatArray], context: Context
    ) -> None:
        self.shell = shell
        self.expected = expected
        self.prior = prior
        self.context = context
        self.network: BayesianNetwork | None = None
        self.log_likelihood = -np.inf
        self.converged = False
        self.history: list[dict[str, Any]] = []

    def run(self, tol: float, max_iter: int, start: BayesianNetwork | None) -> None:
        """Count where nothing is missing, else iterate until the objective gains less than a tolerance."""
        expected = self.expected
        clock = self.context.clock
        if not len(expected.rows):
            network = self._with(tables_of(expected.seen, self.prior))
            self.log_likelihood = expected.under(network, clock)[1]
            self.network = network
            self.converged = True
            return
        current = self._with(self._first_tables()) if start is None else start
        before = -np.inf
        for iteration in range(1, max_iter + 1):
            clock.check()
            counts, log_likelihood = expected.under(current, clock, self.context.num_threads)
            objective = log_likelihood + self._log_prior(current)
            self.network = current
            self.log_likelihood = log_likelihood
            entry = {"iteration": iteration, "log_likelihood": log_likelihood, "objective": objective}
            self.history.append(entry)
            clock.report(iteration, max_iter, "iterations")
            if objective - before <= tol:
                self.converged = True
                return
            before = objective
            current = self._with(tables_of(counts, self.prior))

    def _with(self, tables: list[FloatArray]) -> BayesianNetwork:
        """The network with other tables."""
        return replace(self.shell, tables=tuple(tables))

    def _log_prior(self, network: BayesianNetwork) -> float:
        """The part of the prior in the objective, per row."""
        total = 0.0
        for table, before in zip(network.tables, self.prior, strict=True):
            used = before > 0.0
            with np.errstate(divide="ignore"):  # a network to begin with may have zeros, which the prior forbids
                total += float((before[used] * np.log(table[used])).sum())
        return total

    def _first_tables(self) -> list[FloatArray]:
        """What complete families say, with a row of noise spread over each table: hidden states must differ at first.

        All entries are positive, so that every row of the data is possible.
        """
        rng = self.context.rng("start")
        one_row = 1.0 / self.expected.data.num_rows
        noise = [one_row * rng.uniform(0.5, 1.5, size=seen.shape) / seen.shape[-1] for seen in self.expected.seen]
        return tables_of(self.expected.seen, [a + b for a, b in zip(self.prior, noise, strict=True)])


def _read(data: Any, structure: Any) -> Dataset:
    """The rows of the data, for the variables of a network where the structure is one."""
    if not isinstance(structure, BayesianNetwork):
        return read_data(data)
    model = structure.dense().to_model()
    states = read_rows(model, data.states if isinstance(data, Dataset) else data)
    if not len(states):
        raise ModelError("data must have at least one row, got none")
    weights = np.full(len(states), 1.0 / len(states))
    if isinstance(data, Dataset):
        weights = data.weights
    num_rows = data.num_rows if isinstance(data, Dataset) else len(states)
    return Dataset(states, weights, model.num_states, num_rows, model.variable_names, model.state_names)


def _parents(data: Dataset, structure: Any, target: Any, context: Context) -> list[list[int]]:
    """The parents of every variable, as the structure says or as they are found in the data."""
    chosen = None if target is None else data.blank_model().variable_index(target)
    if isinstance(structure, BayesianNetwork):
        return [list(of_child) for of_child in structure.parents]
    if isinstance(structure, Mapping):
        return _given_parents(data.blank_model(), structure)
    if not isinstance(structure, str):
        raise ModelError(
            "structure must be a network, a mapping from variables to their parents, or one of "
            f"{', '.join(FOUND)}, got {describe(structure)}"
        )
    check_choice("structure", structure, FOUND)
    if structure == "chow-liu":
        return chow_liu_tree(data, chosen or 0, context.clock)
    if chosen is None:
        raise ModelError("target must name the class of a tree-augmented network, got None")
    return augmented_tree(data, chosen, context.clock)


def _given_parents(model: MarkovRandomField, structure: Mapping[Any, Any]) -> list[list[int]]:
    """The parents that a mapping has, by number."""
    parents: list[list[int]] = [[] for _ in range(model.num_variables)]
    for child, of_child in structure.items():
        if isinstance(of_child, str) or not isinstance(of_child, Sequence):
            raise ModelError(
                f"structure must map variables to lists of parents, got {describe(of_child)} for {describe(child)}"
            )
        parents[model.variable_index(child)] = [model.variable_index(parent) for parent in of_child]
    return parents


def _prior(family: Family, pseudo_count: float, equivalent_size: float | None) -> FloatArray:
    """The counts of the prior for the table of a family."""
    if equivalent_size is not None:
        pseudo_count = equivalent_size / float(np.prod(family.shape))
    return np.full(family.shape, pseudo_count)


def _shell(data: Dataset, parents: list[list[int]], structure: Any) -> BayesianNetwork:
    """The network that is the structure, or one of this graph with the names of the data and uniform tables."""
    if isinstance(structure, BayesianNetwork):
        return structure.dense()
    counts = data.num_states
    names = data.variable_names or tuple(map(str, range(len(counts))))
    states = data.state_names or tuple(tuple(map(str, range(count))) for count in counts.tolist())
    tables = [np.full(family.shape, 1.0 / family.shape[-1]) for family in families_of(parents, counts)]
    is_plain = data.variable_names is None and data.state_names is None
    return BayesianNetwork(names, states, tuple(map(tuple, parents)), tuple(tables), "fitted", is_plain)


def _verdict(ending: Ending, converged: bool) -> Status:
    """What is said of the fit."""
    if ending.interrupted:
        return Status.INTERRUPTED
    return Status.OK if converged else Status.NOT_CONVERGED
