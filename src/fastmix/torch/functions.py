"""``log_z``, ``marginals`` and ``log_weight`` of PyTorch: differentiable in the parameters, any axes of a batch first.

The numbers are those of :mod:`fastmix.gradients`; PyTorch is told the derivatives. Tensors of float64 on the CPU are
read where they are, others are copied.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastmix._checks import check_threads, describe, require
from fastmix.errors import ModelError
from fastmix.gradients.layout import parts_of, read_shapes
from fastmix.gradients.log_z import plain_model
from fastmix.gradients.partition import LogPartition, Partition, structure_of
from fastmix.gradients.tuning import MIN_SHARED_ROWS

torch = require("torch", extra="torch", purpose="functions that networks are trained through")

__all__ = ["as_array", "as_tensor", "join", "log_weight", "log_z", "marginals"]


def log_z(graph: Any, *parameters: Any, num_threads: int | None = None) -> Any:
    """Log Z (..) of parameters (.., P), differentiable twice.

    Parameters
    ----------
    graph : Structure, MarkovRandomField or a partition
        A structure gives exact log Z. :class:`fastmix.gradients.BethePartition` is log Z of belief propagation, which
        is approximate where the graph has loops; with :class:`fastmix.gradients.SampledPartition` the derivatives come
        from chains that it keeps.
    *parameters : tensors
        One tensor (.., P) in the layout of :attr:`fastmix.MarkovRandomField.parameters`; or two, of the unaries,
        (.., n, L) or (.., entries), and of the edge tables, (.., m, L, L), (.., 1, L, L) where all edges share one, or
        (.., entries); or a third (.., entries) of factors over more variables. The axes before are those of a batch,
        and are broadcast.
    num_threads : int, optional
        Blocks of a batch are worked off side by side; as many as PyTorch uses by default.

    Returns
    -------
    tensor (..)
        On the device and of the type of the parameters; computed in float64 on the CPU.

    Notes
    -----
    The gradient is the marginals and is computed with the value where it will be needed; its derivative is a product
    with the Hessian, one pass with tangents. Third derivatives are refused.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from fastmix.model import Structure  # doctest: +SKIP
    >>> chain = Structure.of([3] * 5, [(0, 1), (1, 2), (2, 3), (3, 4)])  # doctest: +SKIP
    >>> unary = torch.zeros(8, 5, 3, requires_grad=True)  # doctest: +SKIP
    >>> log_z(chain, unary, torch.zeros(1, 3, 3)).sum().backward()  # doctest: +SKIP
    >>> unary.grad[0, 0]  # doctest: +SKIP
    tensor([0.3333, 0.3333, 0.3333])
    """
    partition = _partition_of(graph)
    if _is_shared(partition, parameters):
        unary, tables = _flat_parts(partition.structure, parameters)
        for part in (unary, tables):
            _check_numbers(part)
        wants_slopes = torch.is_grad_enabled() and (unary.requires_grad or tables.requires_grad)
        return _SharedLogZ.apply(unary, tables.reshape(-1), partition, _threads(num_threads), wants_slopes)
    theta = _checked(partition, parameters)
    wants_slopes = torch.is_grad_enabled() and theta.requires_grad
    return _LogZ.apply(theta, partition, _threads(num_threads), wants_slopes)


def marginals(graph: Any, *parameters: Any, num_threads: int | None = None) -> Any:
    """Marginals of variables, edges and factors, differentiable once, in the shapes of the parameters.

    Arguments are those of :func:`log_z`. One tensor (.., P) comes back for one, a tuple of tensors for several; tables
    that all edges share get the marginals of every edge.
    """
    partition = _partition_of(graph)
    theta = _checked(partition, parameters)
    found = _Marginals.apply(theta, None, partition, _threads(num_threads))
    if len(parameters) == 1:
        return found
    structure = partition.structure
    pieces = []
    start = 0
    num_own, batch = read_shapes(structure, [tuple(part.shape) for part in parameters])
    parts = [part for part in parts_of(structure) if part.size or part.name == "unary"]
    for part, own in zip(parts, num_own, strict=True):
        piece = found[..., start : start + part.size]
        start += part.size
        pieces.append(piece.reshape(*batch, *part.axes) if own > 1 and part.axes is not None else piece)
    return tuple(pieces)


def log_weight(graph: Any, states: Any, *parameters: Any) -> Any:
    """Log-weight (..) of configurations (.., n) of whole numbers: the sum of the parameters that they select.

    Less :func:`log_z` it is their log-probability. Arguments are those of :func:`log_z`; axes of a batch of states and
    of parameters are broadcast.
    """
    structure = graph.structure if isinstance(graph, Partition) else structure_of(graph)
    configurations = torch.as_tensor(states).cpu().numpy()
    offsets = np.cumsum([0, *[part.size for part in parts_of(structure)]])
    shape = configurations.shape[:-1]
    model = plain_model(structure)
    model.log_weight(configurations)  # which checks them
    flat = configurations.reshape(-1, structure.num_variables).astype(np.int64)
    positions = model.entry_positions(flat)
    places = np.concatenate([part + start for part, start in zip(positions, offsets, strict=False)], axis=1)
    theta = join(structure, *parameters)
    index = torch.from_numpy(places.reshape(*shape, -1)).to(theta.device)
    batch = torch.broadcast_shapes(shape, theta.shape[:-1])
    return theta.expand(*batch, -1).gather(-1, index.expand(*batch, -1)).sum(-1)


def join(graph: Any, *parameters: Any) -> Any:
    """One tensor (.., P) of parameters that come in parts, as :func:`log_z` takes them; one tensor as it is."""
    structure = graph.structure if isinstance(graph, Partition) else structure_of(graph)
    for part in parameters:
        if not isinstance(part, torch.Tensor) or not part.is_floating_point():
            raise TypeError(f"parameters must be tensors of floating point numbers, got {describe(part)}")
    if len(parameters) == 1:
        read_shapes(structure, [tuple(parameters[0].shape)])
        return parameters[0]
    flat = _flat_parts(structure, parameters)
    batch = torch.broadcast_shapes(*[part.shape[:-1] for part in flat])
    return torch.cat([part.expand(*batch, part.shape[-1]) for part in flat], dim=-1)


def _flat_parts(structure: Any, parameters: tuple[Any, ...]) -> list[Any]:
    """Parts of the parameters with one axis (.., entries) after those of the batch."""
    num_own, _ = read_shapes(structure, [tuple(part.shape) for part in parameters])
    sizes = [part.size for part in parts_of(structure) if part.size or part.name == "unary"]
    flat = []
    for part, own, size in zip(parameters, num_own, sizes, strict=True):
        outer = part.shape[: part.dim() - own]
        axes = part.shape[part.dim() - own :]
        if own == 3 and axes[0] == 1:  # one table for all edges
            part = part.expand(*outer, size // (axes[1] * axes[2]), *axes[1:])
        flat.append(part.reshape(*outer, size))
    return flat


def _partition_of(graph: Any) -> Any:
    """The partition that an argument is, or exact log Z on the structure that it is or has."""
    return graph if isinstance(graph, Partition) else LogPartition.of(structure_of(graph))


def _threads(num_threads: int | None) -> int:
    """How many threads to use: as many as PyTorch by default."""
    return check_threads(torch.get_num_threads() if num_threads is None else num_threads)


def _checked(partition: Any, parameters: tuple[Any, ...]) -> Any:
    """Parameters as one tensor (.., P) of numbers or -inf."""
    theta = join(partition.structure, *parameters)
    _check_numbers(theta)
    return theta


def _check_numbers(theta: Any) -> None:
    """Refuse NaN and +inf."""
    # The largest is +inf or NaN exactly where some entry is.
    if theta.numel() and not bool(theta.detach().max() < torch.inf):
        raise ModelError("parameters must hold finite numbers or -inf, got NaN or +inf")


def _is_shared(partition: Any, parameters: tuple[Any, ...]) -> bool:
    """Whether these are rows of unaries beside tables that are the same in all rows, worked with as such."""
    if len(parameters) != 2 or not isinstance(partition, LogPartition) or partition.structure.num_factors:
        return False
    if not all(isinstance(part, torch.Tensor) and part.is_floating_point() for part in parameters):
        return False
    if parameters[0].dtype != parameters[1].dtype or parameters[0].device != parameters[1].device:
        return False
    (of_unary, of_table), _ = read_shapes(partition.structure, [tuple(part.shape) for part in parameters])
    rows = parameters[0].shape[: parameters[0].dim() - of_unary]
    sets = parameters[1].shape[: parameters[1].dim() - of_table]
    return math.prod(sets) == 1 and len(sets) <= len(rows) and math.prod(rows) >= MIN_SHARED_ROWS


def as_array(tensor: Any) -> Any:
    """A tensor as an array of float64, without a copy where it is one on the CPU."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).contiguous().numpy()


def as_tensor(array: Any, like: Any) -> Any:
    """An array as a tensor on the device and of the type of another, without a copy where these are the CPU's."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device=like.device, dtype=like.dtype)


class _LogZ(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Log Z, whose derivative is the marginals."""

    @staticmethod
    def forward(ctx: Any, theta: Any, partition: Any, num_threads: int, wants_slopes: bool) -> Any:
        """Log Z, and the marginals with it where a gradient will be asked for."""
        ctx.partition = partition
        ctx.num_threads = num_threads
        known = None
        if wants_slopes:
            found = partition.gradients(as_array(theta), num_threads=num_threads)
            values = found.log_z
            known = as_tensor(found.gradient, theta)
        else:
            values = partition.values(as_array(theta), num_threads=num_threads)
        ctx.save_for_backward(theta, known)
        return as_tensor(values, theta)

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        """The slope times the marginals."""
        theta, known = ctx.saved_tensors
        found = _Marginals.apply(theta, known, ctx.partition, ctx.num_threads)
        return slope.unsqueeze(-1) * found, None, None, None


class _SharedLogZ(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Log Z of rows of unaries (.., U) beside tables (S,), whose gradients are added up over the rows at once."""

    @staticmethod
    def forward(ctx: Any, unary: Any, tables: Any, partition: Any, num_threads: int, wants_slopes: bool) -> Any:
        """Log Z; and what gradients are made of, where one will be asked for and need not know its weights."""
        ctx.partition = partition
        ctx.num_threads = num_threads
        ctx.answer = partition.shared_answer(as_array(unary), as_array(tables)) if wants_slopes else None
        ctx.save_for_backward(unary, tables)
        if ctx.answer is not None:
            return as_tensor(ctx.answer.log_z, unary)
        return as_tensor(partition.shared_values(as_array(unary), as_array(tables)), unary)

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        """The slopes times the marginals; by way of rows of all parameters where they are to be differentiated."""
        unary, tables = ctx.saved_tensors
        if torch.is_grad_enabled():
            theta = torch.cat([unary, tables.expand(*unary.shape[:-1], len(tables))], dim=-1)
            found = slope.unsqueeze(-1) * _Marginals.apply(theta, None, ctx.partition, ctx.num_threads)
            by_tables = found[..., unary.shape[-1] :].reshape(-1, len(tables)).sum(dim=0)
            return found[..., : unary.shape[-1]], by_tables, None, None, None
        if ctx.answer is None:
            gradients = ctx.partition.shared_gradients(as_array(unary), as_array(tables), as_array(slope))
            own, shared = gradients.own, gradients.shared
        else:
            own = ctx.answer.own
            shared = ctx.answer.by_tables(as_array(slope).reshape(-1)) if ctx.needs_input_grad[1] else None
        by_unary = slope.unsqueeze(-1) * as_tensor(own, unary)
        return by_unary, None if shared is None else as_tensor(shared, tables), None, None, None


class _Marginals(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Marginals, whose derivative is a product with the covariance."""

    @staticmethod
    def forward(ctx: Any, theta: Any, known: Any, partition: Any, num_threads: int) -> Any:
        """The marginals, which may be known."""
        ctx.partition = partition
        ctx.num_threads = num_threads
        ctx.save_for_backward(theta)
        if known is not None:
            return known.view_as(known)
        return as_tensor(partition.gradients(as_array(theta), num_threads=num_threads).gradient, theta)

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        """The covariance times the slope."""
        (theta,) = ctx.saved_tensors
        return _Product.apply(theta, slope, ctx.partition, ctx.num_threads), None, None, None


class _Product(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """The covariance times a direction, linear in the direction; its derivative by the parameters is refused."""

    @staticmethod
    def forward(ctx: Any, theta: Any, direction: Any, partition: Any, num_threads: int) -> Any:
        """The product."""
        ctx.partition = partition
        ctx.num_threads = num_threads
        ctx.save_for_backward(theta)
        found = partition.hessian_products(as_array(theta), as_array(direction), num_threads=num_threads)
        return as_tensor(found.product, theta)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Any) -> Any:
        """The covariance is symmetric: the same product."""
        if ctx.needs_input_grad[0]:
            raise NotImplementedError("log_z can be differentiated twice, not three times")
        (theta,) = ctx.saved_tensors
        found = ctx.partition.hessian_products(as_array(theta), as_array(slope), num_threads=ctx.num_threads)
        return None, as_tensor(found.product, theta), None, None
