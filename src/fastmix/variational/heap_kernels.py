"""A compiled heap whose entries can change their keys, largest first. Import it inside functions only: it needs Numba.

``heap`` holds items in the order of the heap, ``place`` the position of every item, ``keys`` the key of every item.
"""

from __future__ import annotations

from fastmix._jit import njit

__all__ = ["order_heap", "settle"]

# Called from compiled code only: no entry point from Python, which saves compilation time.
_inner = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_inner
def _sink(heap, place, keys, at):  # type: ignore[no-untyped-def]
    item = heap[at]
    key = keys[item]
    while 2 * at + 1 < len(heap):
        child = 2 * at + 1
        if child + 1 < len(heap) and keys[heap[child + 1]] > keys[heap[child]]:
            child += 1
        if keys[heap[child]] <= key:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = item
    place[item] = at


@_inner
def order_heap(heap, place, keys):  # type: ignore[no-untyped-def]
    """Bring items in any order into that of a heap; ``place`` is written."""
    for at in range(len(heap)):
        place[heap[at]] = at
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, place, keys, at)


@_inner
def settle(heap, place, keys, item):  # type: ignore[no-untyped-def]
    """Move one item whose key has changed to where it belongs; all others must be in order."""
    at, key = place[item], keys[item]
    while at > 0 and keys[heap[(at - 1) // 2]] < key:
        heap[at] = heap[(at - 1) // 2]
        place[heap[at]] = at
        at = (at - 1) // 2
    heap[at] = item
    _sink(heap, place, keys, at)
