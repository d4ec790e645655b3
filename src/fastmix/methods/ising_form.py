"""Models of binary variables without forbidden pairs, written with spins: fields, couplings and a constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix.model import MarkovRandomField

__all__ = ["IsingForm", "ising_form"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class IsingForm:
    """``log_weight(x) = constant + sum_i field_i s_i + sum_ij coupling_ij s_i s_j`` with s = 2 x - 1.

    Attributes
    ----------
    field : float array (n,)
    coupling : float array (m,), aligned with ``model.edges``
    constant : float
    """

    field: FloatArray
    coupling: FloatArray
    constant: float


def ising_form(model: MarkovRandomField) -> IsingForm | None:
    """A model in spins, or None where it has none: other state counts, or a forbidden entry.

    Every table of two by two finite numbers is ``c + f s_i + g s_j + J s_i s_j``; f and g join the fields. The
    distribution is the same, and so are the fixed points of belief propagation and mean field.

    Examples
    --------
    >>> model = MarkovRandomField.from_tables([[0.0, 1.0], [0.0, 0.0]], [(0, 1)], [[[2.0, 0.0], [0.0, 0.0]]])
    >>> form = ising_form(model)
    >>> form.field.tolist(), form.coupling.tolist(), form.constant
    ([0.0, -0.5], [0.5], 1.0)
    """
    if not (model.num_states == 2).all() or model.has_forbidden:
        return None
    unary = model.log_unary.reshape(-1, 2)
    t00, t01, t10, t11 = np.ascontiguousarray(0.25 * model.log_pairwise.reshape(-1, 4).T)
    n = model.num_variables
    field = 0.5 * (unary[:, 1] - unary[:, 0])
    if model.num_edges:
        i, j = model.edges.T
        field += np.bincount(i, (t10 - t00) + (t11 - t01), minlength=n)
        field += np.bincount(j, (t01 - t00) + (t11 - t10), minlength=n)
    coupling = (t00 - t01) + (t11 - t10)
    constant = model.log_constant + float(0.5 * unary.sum() + (t00 + t01 + t10 + t11).sum())
    return IsingForm(field, coupling, constant)
