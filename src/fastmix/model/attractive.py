"""The attractive form of a model: Potts couplings above 0, after exchanging the states of some binary variables.

Cluster moves, minimum cuts and couplings from the past work on models that have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.errors import UnfitMethodError
from fastmix.graphs.components import two_sides
from fastmix.model.forms import centered_tables
from fastmix.model.mrf import MarkovRandomField, check_pairwise
from fastmix.model.pattern_forms import POTTS, edge_forms
from fastmix.model.tuning import FORM_TOLERANCE

__all__ = ["AttractiveForm", "attractive_form", "flipped_entries", "is_attractive"]

# Forms that have been found, by the identity of their models, and kept as long as these are in use: finding one takes
# half a second for 2.5 million edges. The hash of a model would take longer where its tables are shared.
_FORMS: dict[int, tuple[ref[MarkovRandomField], AttractiveForm]] = {}


def is_attractive(model: MarkovRandomField) -> bool:
    """Whether the model has an attractive form, so that cluster moves can sample from it."""
    try:
        attractive_form(model)
    except UnfitMethodError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class AttractiveForm:
    """The model as ``sum_i u_i(y_i) + sum_ij J_ij [y_i = y_j]`` with J > 0, for y = x after the flips."""

    heads: NDArray[np.uint32]
    tails: NDArray[np.uint32]
    couplings: FloatArray
    log_unary: FloatArray
    moved: FloatArray  # the part of the unaries that comes from tables, without the flips
    unary_offsets: IntArray
    flips: BoolArray  # whether the states of a binary variable are exchanged, (n,)


def attractive_form(model: MarkovRandomField, what: str = "Swendsen-Wang", *, unit: float = 1.0) -> AttractiveForm:
    """The attractive form of a model; an :class:`UnfitMethodError` says why a model has none.

    Every table must be ``T(a, b) = J [a = b] + r(a) + s(b)`` to rounding (1e-12 of the largest entry or the unit), with
    J >= 0, and equal state counts at both ends unless J = 0. Tables of two binary variables always have this form, and
    may have J < 0 as long as no cycle has an odd number of such edges, because variables can then be relabeled.

    Parameters
    ----------
    model : MarkovRandomField
    what : str
        The method that needs the form, for the error.
    unit : float
        The smallest size that rounding is measured by.

    Notes
    -----
    The form for Swendsen-Wang is found once and kept as long as the model.
    """
    if what != "Swendsen-Wang" or unit != 1.0:
        return _find_form(model, what, unit)
    place = id(model)
    known = _FORMS.get(place)
    if known is not None and known[0]() is model:
        return known[1]
    form = _find_form(model, what, unit)
    _FORMS[place] = ref(model, lambda gone: _forget(place, gone)), form
    return form


def _forget(place: int, gone: ref[MarkovRandomField]) -> None:
    """Drop the form of a model that is gone, unless a new model has taken its place meanwhile."""
    known = _FORMS.get(place)
    if known is not None and known[0] is gone:
        del _FORMS[place]


def _find_form(model: MarkovRandomField, what: str, unit: float) -> AttractiveForm:
    """The attractive form of a model, found anew.

    1. Split every table into J [a = b] and functions of either variable, which join the unaries.
    2. Exchange the states of binary variables so that no coupling is negative.
    """
    check_pairwise(model, "cluster moves" if what == "Swendsen-Wang" else what)
    moved = np.zeros(len(model.log_unary))
    couplings = _couplings(model, moved, what, unit)
    kept = np.flatnonzero(couplings)
    ends = model.edges[kept]
    is_negative = couplings[kept] < 0.0
    # Sides 0 and 1 differ across negative edges; side 2 is that of components in which a cycle stands against it.
    sides = two_sides(model.num_variables, ends, is_negative) if is_negative.any() else np.zeros(model.num_variables)
    is_broken = is_negative & ((model.num_states[ends[:, 0]] > 2) | (sides[ends[:, 0]] > 1))
    if is_broken.any():
        edge = int(kept[is_broken.argmax()])
        reason = f"has the negative coupling {couplings[edge]:.6g}"
        if model.num_states[model.edges[edge, 0]] == 2:
            reason += ", which no exchange of states removes: a cycle connected to it has an odd number of such edges"
        raise _unfit(model, what, edge, reason)
    heads, tails = np.ascontiguousarray(ends.astype(np.uint32).T)
    flips = sides == 1
    log_unary = (model.log_unary + moved)[flipped_entries(model, flips)]
    return AttractiveForm(heads, tails, np.abs(couplings[kept]), log_unary, moved, model.unary_offsets, flips)


def _couplings(model: MarkovRandomField, moved: FloatArray, what: str, unit: float) -> FloatArray:
    """The Potts coupling of every edge, (m,); the rest of the tables is added to ``moved``, an array of unaries."""
    couplings = np.zeros(model.num_edges)
    if not model.num_edges:
        return couplings
    lowest = model.least_of_tables()
    if lowest.min() == -np.inf:
        raise _unfit(model, what, int(lowest.argmin()), "forbids a pair of states (-inf in its table)")
    largest = np.maximum(model.largest_of_tables(), -lowest)
    if model.shared_tables is not None:
        forms = edge_forms(model.shared_tables)
        if (forms.kind == POTTS).all():  # nothing of such tables depends on one variable alone
            is_none = np.abs(forms.step) <= FORM_TOLERANCE * np.maximum(unit, largest)
            return np.where(is_none, 0.0, forms.step)
    for edges, tables, _ in centered_tables(model, moved):
        rows, cols = tables.shape[:2]
        strength = np.zeros(len(edges))
        tolerance = FORM_TOLERANCE * np.maximum(unit, largest[edges])
        with np.errstate(over="ignore", invalid="ignore"):  # entries near the largest number fail the test
            if rows == cols and rows > 1:  # the interaction of J [a = b] is J ([a = b] - 1 / L)
                strength = np.trace(tables) / (rows - 1)
                tables -= (np.eye(rows) - 1.0 / rows)[:, :, None] * strength
            excess = np.abs(tables).max(axis=(0, 1))
        k = int((excess <= tolerance).argmin())
        if not excess[k] <= tolerance[k]:
            if rows == cols:
                rule = "is no Potts table, J on the diagonal plus a function of each variable"
                reason = f"{rule}: it is off by {excess[k]:.3g}"
            else:
                reason = (
                    f"couples variables of {rows} and {cols} states; if forbidden states were dropped, give the "
                    "model with them (reduce_model(..., drop_forbidden=False))"
                )
            raise _unfit(model, what, int(edges[k]), reason)
        couplings[edges] = np.where(np.abs(strength) <= tolerance, 0.0, strength)
    return couplings


def _unfit(model: MarkovRandomField, what: str, edge: int, reason: str) -> UnfitMethodError:
    """The error for a model whose edge stands against an attractive form."""
    i, j = model.edges[edge].tolist()
    rule = f"{what} needs attractive Ising or Potts couplings"
    return UnfitMethodError(f"{rule}, but edge ({i}, {j}) {reason}; use another method")


def flipped_entries(model: MarkovRandomField, flips: BoolArray) -> IntArray:
    """Positions in ``log_unary`` of the entries that replace each one when flipped variables exchange their states."""
    positions = np.arange(len(model.log_unary))
    first = model.unary_offsets[:-1][flips]
    positions[first] += 1
    positions[first + 1] -= 1
    return positions
