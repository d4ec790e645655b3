"""``project`` of PyTorch: the closest model with a bounded norm as a layer, so that what is trained stays certified."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmix._checks import check_positive, require
from fastmix.errors import ModelError
from fastmix.gradients.log_z import plain_model
from fastmix.gradients.partition import structure_of
from fastmix.projection.faces import Face, nearest_with_face
from fastmix.torch.functions import as_array, as_tensor, join

torch = require("torch", extra="torch", purpose="functions that networks are trained through")

__all__ = ["project"]


def project(graph: Any, *parameters: Any, norm_bound: float) -> Any:
    """The closest parameters (.., P) whose dependencies have infinity norm at most ``norm_bound``, differentiable.

    It is the Euclidean projection of :func:`fastmix.project` with ``norm="inf"`` and ``dependency="range"``: below 1,
    Gibbs sampling mixes fast, and a network trained through the layer gives such models at every step.

    Parameters
    ----------
    graph : Structure or MarkovRandomField
        Pairs of variables with any numbers of states.
    *parameters : tensors
        As for :func:`fastmix.torch.log_z`; finite numbers.
    norm_bound : float

    Returns
    -------
    tensor (.., P)
        Unaries as they are, then the projected tables, each row of a batch by itself.

    Raises
    ------
    NotConvergedError
        If the face that a row is projected onto is not found.

    Notes
    -----
    The projection is piecewise linear. Its derivative is exact away from kinks, where it is the orthogonal projection
    onto the tangent space of the active constraints: one sparse least-squares problem for all rows together. At a kink
    it is that of one of the pieces.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> model = fastmix.instances.ising_grid(4, 4, coupling_max=2.0, seed=0)  # doctest: +SKIP
    >>> theta = torch.tensor(model.parameters, requires_grad=True)  # doctest: +SKIP
    >>> close = fastmix.torch.project(model, theta, norm_bound=0.9)  # doctest: +SKIP
    >>> fastmix.certify(model.with_parameters(close.detach().numpy()), accuracy=0.1).certified  # doctest: +SKIP
    True
    """
    bound = check_positive("norm_bound", norm_bound)
    structure = structure_of(graph)
    theta = join(structure, *parameters)
    if theta.numel() and not bool(theta.detach().abs().max() < torch.inf):
        raise ModelError("parameters must be finite to be projected")
    return _Projection.apply(theta, plain_model(structure), bound)


class _Projection(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """The projection of every row, whose derivative is that onto its face."""

    @staticmethod
    def forward(ctx: Any, theta: Any, model: Any, norm_bound: float) -> Any:
        """Projected rows; their faces are kept."""
        first = int(model.unary_offsets[-1])
        found = np.array(as_array(theta)).reshape(-1, theta.shape[-1])
        found[:, first:], ctx.face = nearest_with_face(model, found[:, first:].copy(), norm_bound)
        ctx.first = first
        return as_tensor(found.reshape(theta.shape), theta)

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        """The Jacobians, which are symmetric, times the slopes."""
        return _FaceProduct.apply(slope, ctx.face, ctx.first), None, None


class _FaceProduct(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Jacobians of projections times directions: linear in these, and constant within a piece."""

    @staticmethod
    def forward(ctx: Any, direction: Any, face: Face | None, first: int) -> Any:
        """The products."""
        ctx.face = face
        ctx.first = first
        if face is None:
            return direction.view_as(direction)
        found = np.array(as_array(direction)).reshape(-1, direction.shape[-1])
        found[:, first:] = face.product(found[:, first:].copy())
        return as_tensor(found.reshape(direction.shape), direction)

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        """The same products."""
        return _FaceProduct.apply(slope, ctx.face, ctx.first), None, None
