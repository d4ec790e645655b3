"""A compiled heap of items whose keys change, largest key first. Import it inside functions only: it needs Numba.

``heap`` holds the items in the order of the heap, ``place`` the position of every item in it, ``keys`` the key of every
item. Every item has four children: half the levels of a heap of two, and those of one item lie side by side.
"""

from __future__ import annotations

from fastmix._jit import inner

__all__ = ["order_heap", "settle"]


@inner
def _sink(heap, place, keys, at):
    """Move the item at a position down to where no child of it has a larger key."""
    item = heap[at]
    key = keys[item]
    while 4 * at + 1 < len(heap):
        child = 4 * at + 1
        largest = keys[heap[child]]
        for k in range(4 * at + 2, min(4 * at + 5, len(heap))):
            if keys[heap[k]] > largest:
                child = k
                largest = keys[heap[k]]
        if largest <= key:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = item
    place[item] = at


@inner
def order_heap(heap, place, keys):
    """Bring items in any order into that of a heap; ``place`` is written."""
    for at in range(len(heap)):
        place[heap[at]] = at
    for at in range((len(heap) + 2) // 4 - 1, -1, -1):
        _sink(heap, place, keys, at)


@inner
def settle(heap, place, keys, item):
    """Move one item whose key has changed to where it belongs; all others must be in order."""
    at = place[item]
    key = keys[item]
    while at > 0 and keys[heap[(at - 1) // 4]] < key:
        heap[at] = heap[(at - 1) // 4]
        place[heap[at]] = at
        at = (at - 1) // 4
    heap[at] = item
    _sink(heap, place, keys, at)
