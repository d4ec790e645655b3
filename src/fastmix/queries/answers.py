"""``RowAnswers``: what :meth:`fastmix.PreparedModel.ask` gives, for every row of evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix.results import Result, Status

__all__ = ["RowAnswers", "Wanted"]


@dataclass(frozen=True)
class Wanted:
    """What is asked about every row."""

    marginals: bool
    most_probable: bool
    num_draws: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RowAnswers(Result):
    """Answers for rows of evidence, in their order.

    Attributes
    ----------
    rows : int array (N, n)
        The evidence: numbers of observed states, -1 where a row leaves a variable open.
    node_marginals : float array (N, states of all variables) or None
        :meth:`marginal` has those of one variable. NaN in rows whose evidence is impossible.
    row_log_z : float array (N,)
        Log of the sum of the weights of all configurations that agree with the row; -inf where the evidence is
        impossible, NaN where it is not known.
    log_evidence : float array (N,) or None
        Log-probability of the evidence: ``row_log_z`` less that of the model. None where that is not known.
    completions : int array (N, n) or None
        The most probable configuration that agrees with each row; -1 in impossible rows.
    draws : int array (N, num_draws, n) or None
        Configurations drawn given each row; -1 in impossible rows.
    joints : mapping
        Joint distributions (N, states, states, ..) by the sets of variables that were asked for.
    row_status : array of text (N,)
        The verdict on every row. Answers that are exact are ``ok``, also where they say that a row is impossible.
    status : Status
        ``ok`` where all rows are, else that of the first row that is not.
    """

    rows: IntArray
    node_marginals: FloatArray | None
    row_log_z: FloatArray
    log_evidence: FloatArray | None
    completions: IntArray | None = None
    draws: IntArray | None = None
    joints: Mapping[tuple[int, ...], FloatArray] = field(default_factory=dict)
    row_status: NDArray[np.str_]

    def __repr__(self) -> str:
        return f"RowAnswers({len(self.rows):,} rows, status={str(self.status)!r}, {self.model})"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def impossible(self) -> NDArray[np.bool_]:
        """Whether no configuration agrees with a row, by row."""
        return self.row_log_z == -np.inf

    def marginal(self, variable: int | str) -> FloatArray:
        """Probabilities (N, states) of the states of a variable, given each row."""
        if self.node_marginals is None:
            raise ValueError("marginals were not asked for: ask(marginals=True)")
        v = self.model.variable_index(variable)
        first, end = self.model.unary_offsets[v : v + 2]
        return self.node_marginals[:, first:end]

    @property
    def best_states(self) -> IntArray:
        """What was observed, and elsewhere the most probable state by its own marginal (N, n); -1 where none is known.

        States that are most probable together are ``completions``.
        """
        if self.node_marginals is None:
            raise ValueError("marginals were not asked for: ask(marginals=True)")
        filled = self.rows.copy()
        known = np.isfinite(self.node_marginals).all(axis=1)
        for v in range(self.model.num_variables):
            is_open = known & (filled[:, v] < 0)
            filled[is_open, v] = self.marginal(v)[is_open].argmax(axis=1)
        return filled

    def joint(self, *variables: int | str) -> FloatArray:
        """Joint probabilities (N, states, states, ..) of variables that were named as one of the ``queries``."""
        numbers = tuple([self.model.variable_index(variable) for variable in variables])
        for known, table in self.joints.items():
            if sorted(known) == sorted(numbers):
                axes = [1 + known.index(v) for v in numbers]
                return table.transpose(0, *axes)
        names = ", ".join(map(str, variables))
        raise ValueError(f"variables must be a set that the model was prepared for, got {names}: prepare(queries=[..])")

    def title(self) -> str:
        """How many rows were answered."""
        return f"answers for {len(self.rows):,} rows"

    def facts(self) -> dict[str, str]:
        """Counts of rows, and the mean log-probability of the evidence that is possible."""
        possible = ~self.impossible
        found = {
            "rows": f"{len(self.rows):,}",
            "observed": f"{float((self.rows >= 0).mean() if self.rows.size else 0):.3g}",
        }
        if not possible.all():
            found["impossible rows"] = f"{int((~possible).sum()):,}"
        if self.log_evidence is not None and possible.any():
            found["mean log evidence"] = f"{float(np.mean(self.log_evidence[possible])):.6g}"
        return found

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file: a line for every row, a column for every probability.

        A column of probabilities is named ``variable=state``; completions have the names of the variables.
        """
        found: dict[str, Any] = {
            "row": np.arange(len(self.rows)),
            "status": self.row_status,
            "row_log_z": self.row_log_z,
        }
        if self.log_evidence is not None:
            found["log_evidence"] = self.log_evidence
        shown = self.model.num_shown
        names = self.model.names_of_variables()[:shown]
        states = self.model.names_of_states()[:shown]
        if self.completions is not None:
            for v, name in enumerate(names):
                labels = np.array([*states[v], ""], dtype=object)
                found[name] = labels[self.completions[:, v]]
        if self.node_marginals is not None:
            labels_of = [f"{name}={state}" for name, of in zip(names, states, strict=True) for state in of]
            found.update(zip(labels_of, self.node_marginals.T, strict=False))
        return found

    def contents(self) -> dict[str, Any]:
        """All answers by row; a number that is not known, or not finite, is None."""
        return {
            "row_status": self.row_status.tolist(),
            "row_log_z": self.row_log_z,
            "log_evidence": self.log_evidence,
            "rows": self.rows,
            "marginals": self._marginals_by_row(),
            "completions": self.completions,
            "draws": self.draws,
            "joints": [{"variables": list(key), "probabilities": table} for key, table in self.joints.items()],
            "variable_names": self.model.variable_names,
            "state_names": self.model.state_names,
        }

    def _marginals_by_row(self) -> list[list[list[float]] | None] | None:
        """Marginals by row and variable; None for impossible rows."""
        if self.node_marginals is None:
            return None
        offsets = self.model.unary_offsets[1:-1]
        return [
            None if gone else [part.tolist() for part in np.split(row, offsets)[: self.model.num_shown]]
            for row, gone in zip(self.node_marginals, self.impossible, strict=True)
        ]

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The first rows with their verdicts and log-probabilities, for notebooks."""
        count = min(len(self.rows), 10)
        evidence = self.row_log_z if self.log_evidence is None else self.log_evidence
        rows = [(k, str(self.row_status[k]), f"{evidence[k]:.6g}") for k in range(count)]
        return ("row", "status", "log z" if self.log_evidence is None else "log evidence"), rows

    def plot(self, axes: Any = None) -> Any:
        """How often rows have which log-probability (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        values = self.row_log_z if self.log_evidence is None else self.log_evidence
        possible = values[np.isfinite(values)]
        mean = float(possible.mean()) if len(possible) else 0.0
        what = "log z of a row" if self.log_evidence is None else "log-probability of a row"
        return _show.counts(axes, possible, mean, label=what)


def worst_status(row_status: NDArray[np.str_]) -> Status:
    """``ok`` where all rows are, else the status of the first row that is not."""
    bad = np.flatnonzero(row_status != str(Status.OK))
    return Status(str(row_status[bad[0]])) if len(bad) else Status.OK
