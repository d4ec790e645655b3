"""Clique tables visited slice by slice, without ever being stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Visitor"]

FloatArray = NDArray[np.float64]


class Visitor:
    """Visits clique tables slice by slice; keeps its work space, because fresh memory costs as much as the sums.

    Parameters
    ----------
    log : bool
        Whether the tables hold logarithms.
    capacity : int
        Entries of the largest set of inputs and outputs of one visit.
    """

    def __init__(self, *, log: bool, capacity: int) -> None:
        from fastmix.exact import kernels

        self.write_program = kernels.write_program
        self.run = kernels.run_log if log else kernels.run
        self.zero = -np.inf if log else 0.0
        self.pool = np.empty(capacity + 3 * kernels.SLICE)

    def visit(
        self,
        sizes: Sequence[int],
        inputs: Sequence[FloatArray],
        output_sizes: Sequence[int],
        here: Sequence[Sequence[bool]],
    ) -> list[FloatArray]:
        """Sums of a product of tables over the axes that each output lacks.

        Parameters
        ----------
        sizes : sequence of int
            Axes of the clique table, outermost first.
        inputs : sequence of flat tables
            The tables to multiply.
        output_sizes : sequence of int
            Entries of the outputs.
        here : sequence of presences
            Which axes each input, and then each output, has.

        Returns
        -------
        list of flat tables
            Views of the work space, good until the next visit.
        """
        program, strides, outer, length = self.write_program(np.array(sizes), np.array(here), len(inputs))
        offsets = np.zeros(len(strides) + 1, dtype=np.int64)
        np.cumsum([t.size for t in inputs] + list(output_sizes) + [length] * 3, out=offsets[1:])
        if len(self.pool) < offsets[-1]:  # a variable with more states than a slice has entries
            self.pool = np.empty(int(offsets[-1]))
        ends = offsets.tolist()
        for k, table in enumerate(inputs):
            self.pool[ends[k] : ends[k + 1]] = table
        first, last = len(inputs), len(inputs) + len(output_sizes)
        self.pool[ends[first] : ends[last]] = self.zero
        self.run(self.pool, offsets[:-1].copy(), strides, outer, program)
        return [self.pool[ends[k] : ends[k + 1]] for k in range(first, last)]
