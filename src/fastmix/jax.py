"""Log Z, marginals and projections of JAX: differentiable, under ``jit`` and ``vmap`` too (extra ``jax``).

The numbers are those of :mod:`fastmix.gradients`, computed in float64 on the CPU, where JAX hands its arrays over
without a copy. Derivatives are taken twice, in reverse (``grad``, ``vjp``, ``jacrev``), forward (``jvp``, ``jacfwd``),
or one after the other (``hessian``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_positive, check_threads, require
from fastmix.gradients.layout import parts_of, read_shapes
from fastmix.gradients.log_z import plain_model
from fastmix.gradients.partition import LogPartition, Partition, structure_of
from fastmix.model import check_pairwise
from fastmix.projection.faces import nearest_with_face

jax = require("jax", extra="jax", purpose="functions that networks are trained through")
jnp = jax.numpy

__all__ = ["log_weight", "log_z", "marginals", "project"]

#: Partitions whose functions are kept, so that they are traced once.
_MAX_KEPT = 64


def log_z(graph: Any, *parameters: Any, num_threads: int | None = None) -> Any:
    """Log Z (..) of parameters (.., P), differentiable twice, forward and in reverse.

    Parameters
    ----------
    graph : Structure, MarkovRandomField or a partition
        A structure gives exact log Z; :class:`fastmix.gradients.BethePartition` and
        :class:`fastmix.gradients.SampledPartition` are approximate.
    *parameters : arrays
        One array (.., P) in the layout of :attr:`fastmix.MarkovRandomField.parameters`; or two, of the unaries, (.., n,
        L) or (.., entries), and of the edge tables, (.., m, L, L), (.., 1, L, L) where all edges share one, or
        (.., entries); or a third (.., entries) of factors over more variables. The axes before are those of a batch.
    num_threads : int, optional
        Blocks of a batch are worked off side by side; all processors by default. It changes no answer.

    Returns
    -------
    array (..)
        NaN where parameters are NaN or +inf, which a compiled function cannot refuse.

    Examples
    --------
    >>> import jax  # doctest: +SKIP
    >>> from fastmix.model import Structure  # doctest: +SKIP
    >>> chain = Structure.of([3] * 5, [(0, 1), (1, 2), (2, 3), (3, 4)])  # doctest: +SKIP
    >>> jax.grad(lambda theta: log_z(chain, theta))(jax.numpy.zeros(51))[:3]  # doctest: +SKIP
    Array([0.33333334, 0.33333334, 0.33333334], dtype=float32)
    """
    partition = _partition_of(graph)
    return _functions(partition, check_threads(num_threads)).log_z(_joined(partition.structure, parameters))


def marginals(graph: Any, *parameters: Any, num_threads: int | None = None) -> Any:
    """Marginals (.., P) of variables, edges and factors in the layout of the parameters, differentiable once.

    Arguments are those of :func:`log_z`.
    """
    partition = _partition_of(graph)
    return _functions(partition, check_threads(num_threads)).marginals(_joined(partition.structure, parameters))


def log_weight(graph: Any, states: Any, *parameters: Any) -> Any:
    """Log-weight (..) of configurations (.., n), a NumPy array of whole numbers: the sum of what they select.

    Less :func:`log_z` it is their log-probability. Arguments are those of :func:`log_z`; axes of a batch of states and
    of parameters are broadcast.
    """
    structure = graph.structure if isinstance(graph, Partition) else structure_of(graph)
    configurations = np.asarray(states)
    model = plain_model(structure)
    model.log_weight(configurations)  # which checks them
    flat = configurations.reshape(-1, structure.num_variables).astype(np.int64)
    offsets = np.cumsum([0, *[part.size for part in parts_of(structure)]])
    positions = model.entry_positions(flat)
    places = np.concatenate([part + start for part, start in zip(positions, offsets, strict=False)], axis=1)
    theta = _joined(structure, parameters)
    index = places.reshape(*configurations.shape[:-1], -1)
    batch = np.broadcast_shapes(index.shape[:-1], theta.shape[:-1])
    chosen = jnp.take_along_axis(
        jnp.broadcast_to(theta, (*batch, theta.shape[-1])), jnp.broadcast_to(index, (*batch, index.shape[-1])), axis=-1
    )
    return chosen.sum(axis=-1)


def project(graph: Any, *parameters: Any, norm_bound: float) -> Any:
    """The closest parameters (.., P) whose dependencies have infinity norm at most ``norm_bound``, differentiable.

    It is the Euclidean projection of :func:`fastmix.project` with ``norm="inf"`` and ``dependency="range"``: below 1,
    Gibbs sampling mixes fast.

    Parameters
    ----------
    graph : Structure or MarkovRandomField
        Pairs of variables with any numbers of states.
    *parameters : arrays
        As for :func:`log_z`.
    norm_bound : float

    Returns
    -------
    array (.., P)
        Unaries as they are, then the projected tables, each row of a batch by itself; NaN in rows that are not finite,
        which a compiled function cannot refuse.

    Notes
    -----
    The projection is piecewise linear; its derivative is exact away from kinks, forward and in reverse, and its second
    derivative zero. Derivatives find the face of the projection once more.

    Examples
    --------
    >>> import jax  # doctest: +SKIP
    >>> model = fastmix.instances.ising_grid(4, 4, coupling_max=2.0, seed=0)  # doctest: +SKIP
    >>> close = fastmix.jax.project(model, jax.numpy.array(model.parameters), norm_bound=0.9)  # doctest: +SKIP
    """
    bound = check_positive("norm_bound", norm_bound)
    structure = structure_of(graph)
    check_pairwise(plain_model(structure), "a projection that is differentiated")
    return _projection(structure, bound)(_joined(structure, parameters))


def _partition_of(graph: Any) -> Any:
    """The partition that an argument is, or exact log Z on the structure that it is or has."""
    return graph if isinstance(graph, Partition) else LogPartition.of(structure_of(graph))


def _joined(structure: Any, parameters: tuple[Any, ...]) -> Any:
    """Parameters as one array (.., P)."""
    arrays = [jnp.asarray(part) for part in parameters]
    if not all(jnp.issubdtype(part.dtype, jnp.floating) for part in arrays):
        raise TypeError(f"parameters must be floating point numbers, got {[str(part.dtype) for part in arrays]}")
    num_own, batch = read_shapes(structure, [part.shape for part in arrays])
    if len(arrays) == 1:
        return arrays[0]
    sizes = [part.size for part in parts_of(structure) if part.size or part.name == "unary"]
    flat = []
    for part, own, size in zip(arrays, num_own, sizes, strict=True):
        outer = part.shape[: part.ndim - own]
        axes = part.shape[part.ndim - own :]
        if own == 3 and axes[0] == 1:  # one table for all edges
            part = jnp.broadcast_to(part, (*outer, size // (axes[1] * axes[2]), *axes[1:]))
        flat.append(jnp.broadcast_to(part.reshape(*outer, size), (*batch, size)))
    return jnp.concatenate(flat, axis=-1)


class _Functions(NamedTuple):
    """Log Z and marginals of one partition, whose derivatives JAX knows."""

    log_z: Callable[[Any], Any]
    marginals: Callable[[Any], Any]


@lru_cache(maxsize=_MAX_KEPT)
def _functions(partition: Any, num_threads: int) -> _Functions:
    """The functions of a partition."""

    def values(theta: FloatArray) -> FloatArray:
        found: FloatArray = partition.values(theta, num_threads=num_threads)
        return found

    def slopes(theta: FloatArray) -> FloatArray:
        found: FloatArray = partition.gradients(theta, num_threads=num_threads).gradient
        return found

    def products(theta: FloatArray, direction: FloatArray) -> FloatArray:
        found: FloatArray = partition.hessian_products(theta, direction, num_threads=num_threads).product
        return found

    @jax.custom_jvp
    def own_log_z(theta: Any) -> Any:
        return _call(values, theta, theta.shape[:-1], theta)

    @jax.custom_jvp
    def own_marginals(theta: Any) -> Any:
        return _call(slopes, theta, theta.shape, theta)

    @own_log_z.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return own_log_z(*primals), (own_marginals(*primals) * tangents[0]).sum(axis=-1)

    @own_marginals.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (theta,) = primals
        return own_marginals(theta), _symmetric(products, _refuse, theta, tangents[0])

    return _Functions(own_log_z, own_marginals)


@lru_cache(maxsize=_MAX_KEPT)
def _projection(structure: Any, norm_bound: float) -> Callable[[Any], Any]:
    """The projection of rows of parameters."""
    model = plain_model(structure)
    first = int(structure.unary_offsets[-1])

    def points(theta: FloatArray) -> FloatArray:
        rows = theta.reshape(-1, theta.shape[-1])
        known = np.asarray(np.isfinite(rows).all(axis=1))
        found = np.where(known[:, None], rows, np.nan)
        found[known, first:], _ = nearest_with_face(model, rows[known, first:], norm_bound)
        return found.reshape(theta.shape)

    def products(theta: FloatArray, direction: FloatArray) -> FloatArray:
        rows = theta.reshape(-1, theta.shape[-1])
        known = np.asarray(np.isfinite(rows).all(axis=1))
        found = np.where(known[:, None], direction.reshape(rows.shape), np.nan)
        _, face = nearest_with_face(model, rows[known, first:], norm_bound)
        if face is not None:
            found[known, first:] = face.product(found[known, first:])
        return found.reshape(theta.shape)

    @jax.custom_jvp
    def own_project(theta: Any) -> Any:
        return _call(points, theta, theta.shape, theta)

    @own_project.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (theta,) = primals
        return own_project(theta), _symmetric(products, _ignore, theta, tangents[0])

    return own_project


def _call(compute: Callable[..., FloatArray], like: Any, shape: tuple[int, ...], *arrays: Any) -> Any:
    """What a function of NumPy arrays gives, within compiled code too."""

    def on_host(*given: Any) -> Any:
        doubles = [np.asarray(array, dtype=np.float64) for array in given]
        return np.asarray(compute(*doubles), dtype=like.dtype)

    kind = jax.ShapeDtypeStruct(shape, like.dtype)
    return jax.pure_callback(on_host, kind, *arrays, vmap_method="broadcast_all")


def _symmetric(
    compute: Callable[..., FloatArray], inverse: Callable[[Any, Any], Any], theta: Any, direction: Any
) -> Any:
    """A symmetric matrix, which depends on theta, times a direction: linear in it, and its own transpose.

    The one linear function that JAX lets a library name the transpose of, within ``vmap`` too, is the solution of a
    linear system. So the product is put as that of the inverse matrix, which JAX asks for only where it differentiates
    the product by theta.
    """
    return jax.lax.custom_linear_solve(
        lambda product: inverse(theta, product),
        direction,
        lambda _, right: _call(compute, right, right.shape, theta, right),
        symmetric=True,
    )


@jax.custom_jvp
def _refuse(theta: Any, product: Any) -> Any:
    """What stands for an inverse that is never computed; its derivative by theta is refused."""
    del theta
    return product


@_refuse.defjvp
def _(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("log_z can be differentiated twice, not three times")


def _ignore(theta: Any, product: Any) -> Any:
    """What stands for an inverse that is never computed, and does not change with theta."""
    del theta
    return product
