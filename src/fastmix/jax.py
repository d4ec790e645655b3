"""Log Z and marginals of JAX, differentiable in the parameters, under ``jit`` and ``vmap`` (extra ``jax``).

The numbers are those of :mod:`fastmix.gradients`, computed in float64 on the CPU, where JAX hands its arrays over
without a copy. Derivatives are taken in reverse (``grad``, ``vjp``, ``jacrev``), twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_threads, require
from fastmix.gradients.layout import parts_of, read_shapes
from fastmix.gradients.log_z import plain_model
from fastmix.gradients.partition import LogPartition, Partition, structure_of

jax = require("jax", extra="jax", purpose="functions that networks are trained through")
jnp = jax.numpy

__all__ = ["log_weight", "log_z", "marginals"]

#: Partitions whose functions are kept, so that they are traced once.
_MAX_KEPT = 64


def log_z(graph: Any, *parameters: Any, num_threads: int | None = None) -> Any:
    """Log Z (..) of parameters (.., P), differentiable twice in reverse.

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

    def call(compute: Callable[..., FloatArray], like: Any, shape: tuple[int, ...], *arrays: Any) -> Any:
        """What a function of NumPy arrays gives, within compiled code too."""

        def on_host(*given: Any) -> Any:
            doubles = [np.asarray(array, dtype=np.float64) for array in given]
            return np.asarray(compute(*doubles), dtype=like.dtype)

        kind = jax.ShapeDtypeStruct(shape, like.dtype)
        return jax.pure_callback(on_host, kind, *arrays, vmap_method="broadcast_all")

    def values(theta: FloatArray) -> FloatArray:
        found: FloatArray = partition.values(theta, num_threads=num_threads)
        return found

    def slopes(theta: FloatArray) -> FloatArray:
        found: FloatArray = partition.gradients(theta, num_threads=num_threads).gradient
        return found

    def products(theta: FloatArray, direction: FloatArray) -> FloatArray:
        found: FloatArray = partition.hessian_products(theta, direction, num_threads=num_threads).product
        return found

    @jax.custom_vjp
    def own_log_z(theta: Any) -> Any:
        return call(values, theta, theta.shape[:-1], theta)

    @jax.custom_vjp
    def own_marginals(theta: Any) -> Any:
        return call(slopes, theta, theta.shape, theta)

    def product(theta: Any, direction: Any) -> Any:
        return call(products, theta, theta.shape, theta, direction)

    own_log_z.defvjp(
        lambda theta: (own_log_z(theta), theta), lambda theta, slope: (slope[..., None] * own_marginals(theta),)
    )
    own_marginals.defvjp(lambda theta: (own_marginals(theta), theta), lambda theta, slope: (product(theta, slope),))
    return _Functions(own_log_z, own_marginals)
