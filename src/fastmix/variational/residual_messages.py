"""Messages that are renewed one at a time, always the one that would change most (Elidan, McGraw and Koller, 2006)."""

from __future__ import annotations

import numpy as np

from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.variational.messages import Advance
from fastmix.variational.table_messages import TableMessages
from fastmix.variational.tuning import RENEWED_PER_CALL

__all__ = ["ResidualMessages"]


class ResidualMessages(TableMessages):
    """Messages as vectors of logs, for models without larger factors.

    An iteration is as many updates as there are messages. The new form of every message is kept beside it, and a heap
    has the messages in the order of how much these two differ.
    """

    def __init__(self, model: MarkovRandomField) -> None:
        super().__init__(model)
        self.kernel = "residual"
        self._num_messages = 2 * model.num_edges
        self._num_updates = 0  # of an iteration that is not complete
        self._heap = np.full(self._num_messages, -1, dtype=np.int64)  # -1 first: not yet made
        self._place = np.empty(self._num_messages, dtype=np.int64)
        self._keys = np.empty(self._num_messages)

    def advance(
        self,
        num_iterations: int,
        damping: float,
        tol: float,
        clock: Clock = NO_LIMIT,  # noqa: ARG002 (a number of messages ends a call)
    ) -> Advance:
        """Renew messages one after another; an iteration that is not complete is gone on with by the next call."""
        if self._num_messages == 0:
            return Advance(1, 0.0, True)
        wanted = num_iterations * self._num_messages - self._num_updates
        num_updates, change, has_converged = self.update(wanted, damping, tol)
        num_iterations, self._num_updates = divmod(self._num_updates + num_updates, self._num_messages)
        if has_converged and self._num_updates:
            num_iterations += 1
            self._num_updates = 0
        return Advance(num_iterations, change, has_converged)

    def update(self, num_updates: int, damping: float, tol: float) -> tuple[int, float, bool]:
        """Updates made, at most so many, the largest change that is still to be made, and whether it is within tol."""
        from fastmix.variational.residual_kernels import table_residual

        num_made, change, has_converged = table_residual(
            self.receivers, self.pairs, self.starts, self.messages, self.spare, self.totals, self.cavity, self.work,
            self._heap, self._place, self._keys, damping, tol, num_updates, RENEWED_PER_CALL,
        )  # fmt: skip
        return int(num_made), float(change), bool(has_converged)
