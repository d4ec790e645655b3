"""Messages between binary variables, kept as one number each: the odds m(1) / m(0)."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.model.forms import IsingForm
from fastmix.variational.messages import (
    Advance,
    Beliefs,
    PairTables,
    Receivers,
    factor_tables,
    incoming_messages,
    table_work,
)
from fastmix.variational.tuning import ODDS_LOG_RANGE

__all__ = ["OddsMessages"]


class OddsMessages:
    """Messages of a binary model without extreme couplings, in its Ising form; they start at odds of 1."""

    kernel = "odds"

    def __init__(self, model: MarkovRandomField, form: IsingForm) -> None:
        self.model = model
        self.form = form
        num_messages = 2 * model.num_edges
        self.entries_per_iteration = table_work(model)
        self._messages = np.ones(num_messages)
        fields = 2.0 * form.field
        couplings = 2.0 * form.coupling
        # Edges add 2 |J| to the log-odds at most, so this bounds every product of odds.
        reach = np.abs(fields)
        for end in model.edges.T:
            reach += np.bincount(end, np.abs(couplings), minlength=model.num_variables)
        is_wide = reach > ODDS_LOG_RANGE
        odds = np.where(is_wide, fields, np.exp(np.where(is_wide, 0.0, fields)))
        # Numbers without a sign: kernels would check others for counting from the end.
        kind = np.uint32 if num_messages < 2**32 else np.uint64
        self._arguments = (
            odds,
            is_wide,
            model.adjacency.indptr.astype(kind),
            incoming_messages(model).astype(kind),
            np.exp(couplings),
            self._messages,
            np.ones(num_messages),
            np.ones(num_messages),
        )

    def advance(
        self,
        num_iterations: int,
        damping: float,
        tol: float,
        clock: Clock = NO_LIMIT,  # noqa: ARG002 (iterations are short)
    ) -> Advance:
        """Renew all messages at once, at most so many times."""
        from fastmix.variational.odds_kernels import odds_rounds

        num_made, change, has_converged = odds_rounds(*self._arguments, damping, tol, num_iterations)
        return Advance(int(num_made), float(change), bool(has_converged))

    def beliefs(
        self,
        *,
        every_edge: bool = True,  # noqa: ARG002 (all edges carry messages)
        pairs: bool = True,
    ) -> Beliefs:
        """Marginals and log Z from the messages as vectors of logs, beside the tables of the Ising form."""
        from fastmix.variational.belief_kernels import node_beliefs, table_beliefs

        model = self.model
        unary = np.outer(self.form.field, [-1.0, 1.0]).ravel()
        tables = np.outer(self.form.coupling, [1.0, -1.0, -1.0, 1.0]).ravel()
        logs = np.zeros(2 * len(self._messages))
        logs[1::2] = np.log(self._messages)
        starts = np.arange(0, len(logs) + 1, 2)
        receivers = read_only_fields(
            Receivers(unary, model.unary_offsets, model.adjacency.indptr, incoming_messages(model))
        )
        nodes = np.empty(len(unary))
        if not pairs:
            node_beliefs(receivers, starts, logs, nodes)
            return Beliefs(nodes, np.zeros(0), math.nan)
        edges = np.empty(len(tables))
        no_tables = np.zeros(0)
        no_truths = np.zeros(0, dtype=np.bool_)
        pair_tables = read_only_fields(
            PairTables(model.edges, model.pairwise_offsets[:-1], tables, no_tables, no_truths)
        )
        log_z = table_beliefs(receivers, pair_tables, factor_tables(model), starts, logs, nodes, edges, no_tables)
        return Beliefs(nodes, edges, self.form.constant + float(log_z))
