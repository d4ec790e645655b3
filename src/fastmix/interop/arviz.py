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
    """Draws as the data object of ArviZ, with the variable ``x`` in the group ``posterior``.

    Parameters
    ----------
    draws : int array (C, S, n)
        States of every variable after S sweeps of C chains.
    model : MarkovRandomField
        Its variable names, or numbers, become the coordinate ``variable``.

    Returns
    -------
    arviz.InferenceData, or xarray.DataTree
        The latter from ArviZ 1.0 on.

    Raises
    ------
    ModelError
        If the draws are not states of the model, or not of three dimensions.
    ImportError
        If ArviZ is not installed.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    >>> data = to_arviz(np.zeros((4, 100, 2), dtype=int), model)  # doctest: +SKIP
    >>> data.posterior["x"].sizes["draw"]  # doctest: +SKIP
    100
    """
    flat, shape = model._as_states(draws)
    if len(shape) != 2:
        expected = f"(chains, sweeps, {model.num_variables})"
        raise ModelError(f"draws must have shape {expected}, got shape {(*shape, model.num_variables)}")
    values = flat.reshape(*shape, model.num_variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # versions before 1.0 announce it at every import
        arviz = require("arviz", extra="interop", purpose="conversions", library="ArviZ")
    names = list(model.variable_names or range(model.num_variables))
    labels: dict[str, Any] = {"coords": {"variable": names}, "dims": {"x": ["variable"]}}
    if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before 1.0
        return arviz.from_dict(posterior={"x": values}, **labels)
    return arviz.from_dict({"posterior": {"x": values}}, **labels)
