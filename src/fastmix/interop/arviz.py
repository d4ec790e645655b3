"""ArviZ: draws as its data object, before and after version 1.0."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from numpy.typing import ArrayLike

from fastmix._checks import require
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField

__all__ = ["to_arviz"]


def to_arviz(draws: ArrayLike, model: MarkovRandomField) -> Any:
    """Draws (chains, sweeps, n) as the data object of ArviZ, with the variable ``x`` in the group ``posterior``.

    Names of variables, or their numbers, are its coordinate ``variable``. It is an ``arviz.InferenceData``, and from
    ArviZ 1.0 on an ``xarray.DataTree``. A :class:`ModelError` if the draws are not such states of the model.
    """
    flat, shape = model._as_states(draws)
    if len(shape) != 2:
        expected = f"(chains, sweeps, {model.num_variables})"
        raise ModelError(f"draws must have shape {expected}, got shape {(*shape, model.num_variables)}")
    values = flat.reshape(*shape, model.num_variables)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # before 1.0, which is announced
        arviz = require("arviz", extra="interop", purpose="conversions", library="ArviZ")
    names = list(model.variable_names or range(model.num_variables))
    labels: dict[str, Any] = {"coords": {"variable": names}, "dims": {"x": ["variable"]}}
    if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before 1.0
        return arviz.from_dict(posterior={"x": values}, **labels)
    return arviz.from_dict({"posterior": {"x": values}}, **labels)
