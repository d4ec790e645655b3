"""Compiled belief propagation that renews the most changed message first. Import it inside functions only."""

from __future__ import annotations

from fastmix._jit import outer
from fastmix.modes.heap_kernels import order_heap, settle
from fastmix.variational.message_kernels import distance, mix, node_total, renew

__all__ = ["table_residual"]


@outer
def table_residual(
    receivers, pairs, starts, messages, pending, totals, cavity, work, heap, place, keys, damping, tol, num_updates,
    num_renewed,
):  # fmt: skip
    """Updates made of one message at a time, the largest change of a log still pending, and whether it is within tol.

    The message with the largest change is next: ``pending`` has what each would become, ``keys`` by how much that
    differs, ``heap`` and ``place`` the order, where ``heap[0] < 0`` says that it is still to be made. An update renews
    all that the receiver sends: the run ends early when ``num_renewed`` messages are, with a receiver of many neighbors
    at once.
    """
    unary, unary_starts, indptr, incoming = receivers
    edges, table_starts, tables, weights, tame = pairs
    m = len(edges)
    if heap[0] < 0:
        for i in range(len(unary_starts) - 1):
            node_total(i, unary, unary_starts, indptr, incoming, starts, messages, totals)
        for d in range(len(heap)):
            renew(
                d, edges, table_starts, tables, weights, tame, unary_starts, totals, starts, messages, cavity, work,
                pending,
            )  # fmt: skip
            keys[d] = distance(pending, messages, starts[d], starts[d + 1] - starts[d])
            heap[d] = d
        order_heap(heap, place, keys)
    for num_made in range(num_updates):
        d = heap[0]
        if keys[d] <= tol:
            return num_made, keys[d], True
        count = starts[d + 1] - starts[d]
        mix(messages, pending, 1.0 - damping, starts[d], count)
        keys[d] = distance(pending, messages, starts[d], count) if damping > 0.0 else 0.0
        settle(heap, place, keys, d)
        receiver = edges[d, 1] if d < m else edges[d - m, 0]
        # Summed afresh: differences added up over millions of updates would drift.
        node_total(receiver, unary, unary_starts, indptr, incoming, starts, messages, totals)
        for p in range(indptr[receiver], indptr[receiver + 1]):
            received = incoming[p]
            if received == d:
                continue  # what goes back to the sender does not depend on its message
            sent = received + m if received < m else received - m
            renew(
                sent, edges, table_starts, tables, weights, tame, unary_starts, totals, starts, messages, cavity, work,
                pending,
            )  # fmt: skip
            keys[sent] = distance(pending, messages, starts[sent], starts[sent + 1] - starts[sent])
            settle(heap, place, keys, sent)
        num_renewed -= indptr[receiver + 1] - indptr[receiver]
        if num_renewed < 0:
            return num_made + 1, keys[heap[0]], keys[heap[0]] <= tol
    return num_updates, keys[heap[0]], keys[heap[0]] <= tol
