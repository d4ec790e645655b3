"""Where the messages and tables of a model lie on a GPU, so that consecutive threads find consecutive numbers.

A thread has one variable. Variables are put in the order of their state counts and numbers of neighbours, and cut into
slices of 32, as many as threads work in step. Within a slice, number k of all its variables lie side by side, for every
k: what the 32 threads read at once is one stretch of memory. Equal variables in a slice leave hardly any gaps, and on
grids, where the order of equal ones stays, the messages that go out are stretches too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.methods.messages import incoming_messages
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["SLICE", "MessageLayout", "TableLayout", "lay_out_messages", "lay_out_tables"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SLICE = 32  # variables, or edges, whose numbers lie side by side


@dataclass(frozen=True, eq=False)
class MessageLayout:
    """Places of the messages. A slot is a message that a variable receives; its numbers are ``SLICE`` apart.

    Attributes
    ----------
    order : int array (places,)
        The variables that have neighbours, as threads take them.
    degrees : int array (places,)
        Their numbers of neighbours.
    widths : int array (slices,)
        Numbers of a message in each slice.
    slot_bases, entry_bases : int array (slices + 1,)
        The first slot, and the first number, of each slice. Slot k of the variable at place p is
        ``slot_bases[s] + 32 k + p % 32`` with s = p // 32, and its first number
        ``entry_bases[s] + 32 k widths[s] + p % 32``.
    slots, entries : int array (2 m,)
        Slot and first number of every message, by its number on the host.
    """

    order: IntArray
    degrees: IntArray
    widths: IntArray
    slot_bases: IntArray
    entry_bases: IntArray
    slots: IntArray
    entries: IntArray

    @property
    def num_slots(self) -> int:
        """Slots, with those that stay empty."""
        return int(self.slot_bases[-1])

    @property
    def num_entries(self) -> int:
        """Numbers of all messages, with gaps."""
        return int(self.entry_bases[-1])

    @property
    def opposite(self) -> IntArray:
        """For every message its number the other way, (2 m,)."""
        m = len(self.slots) // 2
        return np.roll(np.arange(2 * m), m)

    def by_slot(self, values: NDArray[Any], dtype: type) -> NDArray[Any]:
        """Numbers given by message (2 m,), written to its slot; 0 where there is none."""
        result: NDArray[Any] = np.zeros(self.num_slots, dtype=dtype)
        result[self.slots] = values
        return result

    def by_place(self, values: FloatArray, starts: IntArray, counts: IntArray) -> FloatArray:
        """Vectors of the variables (``counts[i]`` numbers from ``starts[i]`` on), one slot a variable."""
        bases = offsets_of(SLICE * self.widths)
        place = np.arange(len(self.order))
        first = bases[place // SLICE] + place % SLICE
        counts = counts[self.order]
        within = np.arange(counts.sum()) - np.repeat(offsets_of(counts)[:-1], counts)
        result = np.zeros(int(bases[-1]))
        result[np.repeat(first, counts) + SLICE * within] = values[np.repeat(starts[self.order], counts) + within]
        return result


def lay_out_messages(model: MarkovRandomField, widths: IntArray) -> MessageLayout:
    """A layout for messages of ``widths[i]`` numbers to each variable i.

    Raises
    ------
    ValueError
        If ``widths`` does not have a positive number for every variable.

    Notes
    -----
    Linear in the number of edges, but for a sort of the variables.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], 0.5)
    >>> layout = lay_out_messages(model, np.ones(3, dtype=np.int64))
    >>> layout.order.tolist(), layout.slots.tolist(), layout.num_slots
    ([1, 0, 2], [0, 2, 1, 32], 64)
    """
    if len(widths) != model.num_variables or (widths < 1).any():
        raise ValueError(f"widths must be {model.num_variables} positive numbers, got {widths!r}")
    graph = model.adjacency
    degree = graph.degree
    key = widths * (1 + graph.max_degree) + degree
    key = key.max(initial=0) - key
    # Numbers of two bytes are sorted by counting.
    ranked = np.argsort(key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key, kind="stable")
    order = ranked[degree[ranked] > 0]
    heads = np.arange(0, len(order), SLICE)
    slice_degrees = np.maximum.reduceat(degree[order], heads) if len(order) else np.zeros(0, dtype=np.int64)
    slice_widths = np.maximum.reduceat(widths[order], heads) if len(order) else np.zeros(0, dtype=np.int64)
    slot_bases, entry_bases = offsets_of(SLICE * slice_degrees), offsets_of(SLICE * slice_degrees * slice_widths)
    place = np.zeros(model.num_variables, dtype=np.int64)
    place[order] = np.arange(len(order))
    owner = np.repeat(place, degree)
    nth = np.arange(len(owner)) - np.repeat(graph.indptr[:-1], degree)
    which, lane = owner // SLICE, owner % SLICE
    slots, entries = np.empty(len(owner), dtype=np.int64), np.empty(len(owner), dtype=np.int64)
    number = incoming_messages(model)
    slots[number] = slot_bases[which] + SLICE * nth + lane
    entries[number] = entry_bases[which] + SLICE * nth * slice_widths[which] + lane
    return MessageLayout(order, degree[order], slice_widths, slot_bases, entry_bases, slots, entries)


@dataclass(frozen=True, eq=False)
class TableLayout:
    """Places of the tables of edges, which both of their messages read.

    Attributes
    ----------
    numbers : int array (m,)
        New number of every edge.
    bases : int array (slices + 1,)
        Entry r of the table of the edge with new number e is at ``bases[e // 32] + e % 32 + 32 r``.
    values : float array
    """

    numbers: IntArray
    bases: IntArray
    values: FloatArray


def lay_out_tables(model: MarkovRandomField, layout: MessageLayout, values: FloatArray) -> TableLayout:
    """Tables (aligned with ``model.log_pairwise``) in slices of 32 edges, in the order in which threads come by.

    An edge is numbered by the slot of that of its two messages which lies further in front: the thread of that variable
    reads stretches, and on grids the other one does as well.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], [0.5, 0.7])
    >>> tables = lay_out_tables(model, lay_out_messages(model, model.num_states), model.log_pairwise)
    >>> tables.numbers.tolist(), tables.values[:34].nonzero()[0].tolist()
    ([0, 1], [0, 1, 32, 33])
    """
    m = model.num_edges
    front = np.minimum(layout.slots[:m], layout.slots[m:])
    order = np.argsort(front, kind="stable")
    numbers = np.empty(m, dtype=np.int64)
    numbers[order] = np.arange(m)
    sizes = np.diff(model.pairwise_offsets)
    most = np.maximum.reduceat(sizes[order], np.arange(0, m, SLICE)) if m else np.zeros(0, dtype=np.int64)
    bases = offsets_of(SLICE * most)
    first = bases[numbers // SLICE] + numbers % SLICE
    within = np.arange(len(values)) - np.repeat(model.pairwise_offsets[:-1], sizes)
    placed = np.zeros(int(bases[-1]))
    placed[np.repeat(first, sizes) + SLICE * within] = values
    return TableLayout(numbers, bases, placed)
