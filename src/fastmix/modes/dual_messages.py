"""Upper bounds on the log-weight by messages: sequential tree-reweighted message passing (Kolmogorov 2006)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fastmix._arrays import FloatArray, read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.model.pattern_forms import ANY, LINEAR, EdgeForms, edge_forms
from fastmix.model.shared import SharedTables
from fastmix.modes.pattern_arrays import Variables, pattern_tables, variables_of
from fastmix.modes.tuning import ENTRIES_PER_CALL, STEPS_OF_SIMPLE_TABLES

__all__ = ["DualMessages"]

_EPS = float(np.finfo(np.float64).eps)


class DualMessages:
    """Messages between the variables of a model of pairs, which bound its largest log-weight; all 0 at first.

    Parameters
    ----------
    model : MarkovRandomField
        Without factors over three or more variables. Tables may be shared: those of Potts and of truncated linear form
        take as many steps as there are states, others as many as they have entries.

    Attributes
    ----------
    states : int array (n,)
        The configuration that the latest pass has led to.
    log_weight : float
        Its log-weight, up to rounding.
    rounding : float
        By how much rounding can make a bound too small.
    went_forward : bool
        Whether the latest pass went forward. The next one should go back: messages would go to waste otherwise.
    """

    def __init__(self, model: MarkovRandomField) -> None:
        ends = model.num_states[model.edges].reshape(-1, 2)
        starts = offsets_of(ends.max(axis=1, initial=1))
        num_entries = int(starts[-1])
        check_memory(8.0 * num_entries + 90.0 * model.num_edges, "the messages of a bound", "use method='cut'")
        self.states = np.zeros(model.num_variables, dtype=np.int64)
        self.log_weight = -math.inf
        self.went_forward = False
        self._values = np.zeros(num_entries)
        self._variables = variables_of(model)
        self._tables, shared = pattern_tables(model)
        self._forms = read_only_fields(_forms_of_maxima(shared))
        self._constant = model.log_constant + float(self._forms.level.sum())
        self.rounding = _rounding(model, self._variables, shared, self._forms) + 8.0 * _EPS * abs(self._constant)
        widest = int(model.num_states.max(initial=1))
        self._room = (np.empty(widest), np.empty(widest), np.empty(widest))
        self._starts = starts
        self._parts = _parts_of_pass(model, self._forms)

    @property
    def values(self) -> FloatArray:
        """The messages: one for every edge, the latest, in whichever direction that went, one after another."""
        return self._values

    @property
    def levels(self) -> FloatArray:
        """What is taken out of the table of every edge, and in the bound for good (m,)."""
        return self._forms.level

    def make_pass(self, *, forward: bool, clock: Clock = NO_LIMIT) -> float:
        """The upper bound on the log-weight after messages in one direction; inf where the time was over before."""
        from fastmix.modes.dual_kernels import dual_pass

        bound = self._constant
        log_weight = self._constant
        self.went_forward = forward
        for begin, end in pairwise(self._parts):
            if begin and clock.past():
                return math.inf
            more, weight = dual_pass(
                forward, begin, end, self._variables, self._tables, self._forms, self._starts, self._values,
                self.states, self._room,
            )  # fmt: skip
            bound += float(more)
            log_weight += float(weight)
        self.log_weight = log_weight
        return bound


def _forms_of_maxima(tables: SharedTables) -> EdgeForms:
    """The forms of tables by which maxima are found fast: those that reward distance are of any form then."""
    forms = edge_forms(tables)
    fits = (forms.kind != LINEAR) | (forms.step <= 0.0)
    numbers = (np.where(fits, values, 0.0) for values in forms[1:])
    return EdgeForms(np.where(fits, forms.kind, ANY).astype(np.uint8), *numbers)


def _rounding(model: MarkovRandomField, variables: Variables, tables: SharedTables, forms: EdgeForms) -> float:
    """By how much rounding can make the bound of a pass too small.

    All numbers around a variable are at most the sum S of its largest unary and of twice the largest entries of its
    tables. Its belief is a sum of d + 1 of them; each message to and from it takes at most six operations more. What a
    table differs from its form by counts as another four. Sums over all variables are compensated.
    """
    sizes = np.maximum.reduceat(np.abs(variables.unary), model.unary_offsets[:-1]) if model.num_variables else 0.0
    of_tables = 3.0 * tables.largest_entries()
    scale = sizes + sum(np.bincount(end, of_tables, minlength=model.num_variables) for end in model.edges.T)
    total = float(((8.0 * model.adjacency.degree + 16.0) * scale).sum())
    return _EPS * (total + 40.0 * float(np.abs(forms.level).sum()))


def _parts_of_pass(model: MarkovRandomField, forms: EdgeForms) -> list[int]:
    """Numbers of variables between which a pass is cut, so that the clock is read between calls of the kernel."""
    first, second = model.num_states[model.edges].reshape(-1, 2).T
    simple = STEPS_OF_SIMPLE_TABLES * (first + second)
    steps = np.where(forms.kind == ANY, first * second, simple).sum() + len(model.log_unary)
    num_parts = max(1, min(math.ceil(steps / ENTRIES_PER_CALL), model.num_variables))
    return np.linspace(0, model.num_variables, num_parts + 1).astype(np.int64).tolist()
