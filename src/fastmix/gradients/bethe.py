"""``BethePartition``: log Z of belief propagation, differentiated at the fixed point.

With h the products of what comes into a variable but for one neighbor, and m the messages to that neighbor, a fixed
point solves ``m = F(m, theta)``. Its Bethe approximation of log Z is stationary in m, so that the gradient is the
beliefs. Their derivative along a direction v of the parameters is that of the messages, ``dm = F_m dm + F_theta v``,
solved by iteration at the fixed point, never by unrolling (Domke, 2013, "Learning graphical model parameters with
approximate marginal inference"). The result is the Hessian of a function, and symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, check_positive, check_share
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ModelError, NotConvergedError, UnfitMethodError
from fastmix.gradients.partition import Partition, Slopes, structure_of
from fastmix.gradients.tuning import BETHE_DAMPING, BETHE_TOL
from fastmix.model.flat import offsets_of

__all__ = ["BethePartition"]


class _Graph(NamedTuple):
    """Where messages, cavities and terms lie.

    A message or cavity belongs to a direction of an edge: from its owner i to its neighbor j. A message has an entry
    for every state of j, a cavity for every state of i. A term of a message is an entry of the table; terms of one
    entry of a message follow each other.
    """

    starts: IntArray  # of the messages, and the end
    node_starts: IntArray  # of the variables' states, and the end
    incoming: Any  # node entries by message entries
    cavity_nodes: IntArray  # the node entry of every cavity entry
    cavity_incoming: Any  # cavity entries by message entries
    places: IntArray  # of the terms: the parameter
    cavities: IntArray  # the entry of the cavity
    first_terms: IntArray  # of every entry of a message
    edge_places: IntArray  # of the entries of edge tables: the parameters
    edge_owner: IntArray  # the entries of the cavities of both ends
    edge_other: IntArray


class _Point(NamedTuple):
    """A fixed point: messages, cavities, weights of the terms within their sums, beliefs and log Z."""

    messages: FloatArray
    cavities: FloatArray
    weights: FloatArray
    node_beliefs: FloatArray
    edge_beliefs: FloatArray
    log_z: FloatArray


@dataclass(frozen=True, eq=False)
class BethePartition(Partition):
    """Log Z of belief propagation on a structure of pairs: exact on trees, approximate on graphs with loops.

    It takes the place of a structure in :mod:`fastmix.torch` and :mod:`fastmix.jax`.

    Parameters
    ----------
    structure : Structure or MarkovRandomField
        Pairs of variables with any numbers of states.
    damping : float
        Share of the last messages in the next, below 1: more of it where messages oscillate.
    tol : float
        Largest change of a message at the end.
    max_iter : int

    Raises
    ------
    UnfitMethodError
        For factors over three or more variables.
    NotConvergedError
        By its methods, if messages, or their derivatives, do not converge: then there is no derivative.

    Notes
    -----
    A fixed point need not be unique, nor the approximation near log Z where couplings are strong:
    :func:`fastmix.bracket` has proven bounds. An iteration takes time in proportion to the entries of all tables.

    Examples
    --------
    >>> import fastmix
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(3, 3, coupling_max=0.3, seed=0)
    >>> bethe = BethePartition(model.structure).values(model.parameters)
    >>> bool(abs(bethe - fastmix.log_z(model).log_z) < 0.01)
    True
    """

    damping: float = BETHE_DAMPING
    tol: float = BETHE_TOL
    max_iter: int = 10_000

    def __post_init__(self) -> None:
        structure = structure_of(self.structure)
        if structure.num_factors:
            raise UnfitMethodError("BethePartition must have a structure of pairs, got factors over more variables")
        object.__setattr__(self, "structure", structure)
        object.__setattr__(self, "damping", check_share("damping", self.damping, least=0.0))
        object.__setattr__(self, "tol", check_positive("tol", self.tol))
        object.__setattr__(self, "max_iter", check_count("max_iter", self.max_iter, least=1))

    def values(self, theta: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> FloatArray:
        """Bethe log Z (..) of finite parameters (.., P)."""
        del num_threads
        return self._solve(self._finite(theta), clock).log_z.reshape(theta.shape[:-1])

    def gradients(self, theta: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> Slopes:
        """Bethe log Z (..) and its gradients (.., P), which are the beliefs of variables and edges."""
        del num_threads
        point = self._solve(self._finite(theta), clock)
        beliefs = np.concatenate([point.node_beliefs, point.edge_beliefs], axis=1)
        return Slopes(point.log_z.reshape(theta.shape[:-1]), beliefs.reshape(theta.shape))

    def hessian_products(
        self, theta: FloatArray, directions: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT
    ) -> Slopes:
        """The same, with the derivatives of the beliefs along directions (.., P)."""
        del num_threads
        rows = self._finite(theta)
        point = self._solve(rows, clock)
        change = self._derivative(point, self._flat(np.broadcast_to(directions, theta.shape)), clock)
        beliefs = np.concatenate([point.node_beliefs, point.edge_beliefs], axis=1)
        log_z = point.log_z.reshape(theta.shape[:-1])
        return Slopes(log_z, beliefs.reshape(theta.shape), change.reshape(theta.shape))

    def _finite(self, theta: FloatArray) -> FloatArray:
        """Rows of parameters, which must be finite."""
        rows = self._flat(theta)
        if not np.isfinite(rows).all():
            raise ModelError("parameters must be finite for the derivatives of belief propagation")
        return rows

    @cached_property
    def _graph(self) -> _Graph:
        """The places of messages, made once."""
        from scipy.sparse import csr_array

        structure = self.structure
        counts = structure.num_states
        directed = structure.directed
        graph = structure.adjacency
        owner = directed.owner
        other = graph.neighbors
        num_unary = int(structure.unary_offsets[-1])
        starts = offsets_of(counts[other])
        cavity_starts = offsets_of(counts[owner])
        # Entries of messages: the direction and the state of the neighbor; of cavities: the state of the owner.
        to_direction = np.repeat(np.arange(len(other)), counts[other])
        to_state = np.arange(starts[-1]) - starts[to_direction]
        from_direction = np.repeat(np.arange(len(owner)), counts[owner])
        from_state = np.arange(cavity_starts[-1]) - cavity_starts[from_direction]
        node_of_message = structure.unary_offsets[other[to_direction]] + to_state
        cavity_nodes = structure.unary_offsets[owner[from_direction]] + from_state
        ones = np.ones(len(to_direction))
        shape = (num_unary, len(to_direction))
        incoming = csr_array((ones, (node_of_message, np.arange(len(to_direction)))), shape=shape)
        # The two directions of an edge have its number.
        order = np.argsort(graph.edge_ids, kind="stable").reshape(-1, 2)
        back = np.empty(len(owner), dtype=np.int64)
        back[order[:, 0]] = order[:, 1]
        back[order[:, 1]] = order[:, 0]
        own = csr_array(
            (np.ones(len(from_direction)), (np.arange(len(from_direction)), starts[back[from_direction]] + from_state)),
            shape=(len(from_direction), len(to_direction)),
        )
        cavity_incoming = csr_array(incoming[cavity_nodes] - own)
        cavity_incoming.eliminate_zeros()
        # Terms: for every entry of a message the states of the owner.
        num_terms = counts[owner[to_direction]]
        first_terms = offsets_of(num_terms)
        entry = np.repeat(np.arange(len(to_direction)), num_terms)
        state = np.arange(first_terms[-1]) - first_terms[entry]
        direction = to_direction[entry]
        places = num_unary + directed.starts[direction] + state * directed.own_steps[direction]
        places += to_state[entry] * directed.other_steps[direction]
        cavities = cavity_starts[direction] + state
        # An edge is read in the direction from its first variable: there terms are sorted by the second's state.
        forward = (owner < other)[direction]
        edge_places = places[forward]
        edge_other = cavity_starts[back[direction[forward]]] + to_state[entry[forward]]
        return _Graph(
            starts, structure.unary_offsets, incoming, cavity_nodes, cavity_incoming, places, cavities,
            first_terms[:-1], edge_places, cavities[forward], edge_other,
        )  # fmt: skip

    def _cavities(self, unary: FloatArray, messages: FloatArray) -> FloatArray:
        """Sums of what comes into the owner of every direction, but from the neighbor; linear."""
        graph = self._graph
        return np.asarray(unary[:, graph.cavity_nodes] + (graph.cavity_incoming @ messages.T).T)

    def _solve(self, theta: FloatArray, clock: Clock) -> _Point:
        """The fixed point of rows of parameters."""
        graph = self._graph
        num_unary = int(graph.node_starts[-1])
        unary = theta[:, :num_unary]
        tables = theta[:, graph.places]
        messages = np.zeros((len(theta), int(graph.starts[-1])))
        for _ in range(self.max_iter):
            clock.check()
            cavities = self._cavities(unary, messages)
            raw = _log_sums(tables + cavities[:, graph.cavities], graph.first_terms)
            new = raw - np.repeat(_log_sums(raw, graph.starts[:-1]), np.diff(graph.starts), axis=1)
            change = np.abs(new - messages).max(initial=0.0)
            messages = self.damping * messages + (1.0 - self.damping) * new
            if change <= self.tol:
                break
        else:
            raise NotConvergedError(
                f"belief propagation did not converge within max_iter={self.max_iter}: take a larger damping"
            )
        return self._read(theta, messages)

    def _read(self, theta: FloatArray, messages: FloatArray) -> _Point:
        """Beliefs and log Z at a fixed point."""
        graph = self._graph
        num_unary = int(graph.node_starts[-1])
        unary = theta[:, :num_unary]
        cavities = self._cavities(unary, messages)
        terms = theta[:, graph.places] + cavities[:, graph.cavities]
        raw = _log_sums(terms, graph.first_terms)
        counts = np.diff(np.append(graph.first_terms, len(graph.places)))
        weights = np.exp(terms - np.repeat(raw, counts, axis=1))
        logs = unary + (graph.incoming @ messages.T).T
        totals = _log_sums(logs, graph.node_starts[:-1])
        nodes = np.exp(logs - np.repeat(totals, np.diff(graph.node_starts), axis=1))
        edge_logs = np.empty((len(theta), theta.shape[1] - num_unary))
        own = cavities[:, graph.edge_owner] + cavities[:, graph.edge_other]
        edge_logs[:, graph.edge_places - num_unary] = theta[:, graph.edge_places] + own
        offsets = self.structure.pairwise_offsets
        edge_totals = _log_sums(edge_logs, offsets[:-1])
        edges = np.exp(edge_logs - np.repeat(edge_totals, np.diff(offsets), axis=1))
        log_z = totals @ (1.0 - self.structure.adjacency.degree) + edge_totals.sum(axis=1)
        return _Point(messages, cavities, weights, nodes, edges, log_z)

    def _derivative(self, point: _Point, directions: FloatArray, clock: Clock) -> FloatArray:
        """Derivatives (N, P) of the beliefs along directions, by iteration on those of the messages."""
        graph = self._graph
        num_unary = int(graph.node_starts[-1])
        d_unary = directions[:, :num_unary]
        d_tables = directions[:, graph.places]
        shares = np.exp(point.messages)
        shares /= np.repeat(_sums(shares, graph.starts[:-1]), np.diff(graph.starts), axis=1)
        d_messages = np.zeros_like(point.messages)
        scale = max(1.0, float(np.abs(directions).max(initial=0.0)))
        for _ in range(self.max_iter):
            clock.check()
            d_cavities = self._cavities(d_unary, d_messages)
            d_raw = _sums(point.weights * (d_tables + d_cavities[:, graph.cavities]), graph.first_terms)
            new = d_raw - np.repeat(_sums(shares * d_raw, graph.starts[:-1]), np.diff(graph.starts), axis=1)
            change = np.abs(new - d_messages).max(initial=0.0)
            d_messages = self.damping * d_messages + (1.0 - self.damping) * new
            if change <= self.tol * scale:
                break
        else:
            raise NotConvergedError("the derivatives of messages did not converge: take a larger damping")
        d_cavities = self._cavities(d_unary, d_messages)
        d_logs = d_unary + (graph.incoming @ d_messages.T).T
        d_edge_logs = np.empty_like(point.edge_beliefs)
        own = d_cavities[:, graph.edge_owner] + d_cavities[:, graph.edge_other]
        d_edge_logs[:, graph.edge_places - num_unary] = directions[:, graph.edge_places] + own
        nodes = _softmax_change(point.node_beliefs, d_logs, graph.node_starts)
        edges = _softmax_change(point.edge_beliefs, d_edge_logs, self.structure.pairwise_offsets)
        return np.concatenate([nodes, edges], axis=1)


def _sums(values: FloatArray, starts: IntArray) -> FloatArray:
    """Sums of the runs of every row that begin at ``starts``."""
    if not len(starts):
        return np.zeros((len(values), 0))
    return np.asarray(np.add.reduceat(values, starts, axis=1))


def _log_sums(logs: FloatArray, starts: IntArray) -> FloatArray:
    """Logs of sums of exponentials of the runs of every row that begin at ``starts``."""
    if not len(starts):
        return np.zeros((len(logs), 0))
    sizes = np.diff(np.append(starts, logs.shape[1]))
    top = np.maximum.reduceat(logs, starts, axis=1)
    sums = np.add.reduceat(np.exp(logs - np.repeat(top, sizes, axis=1)), starts, axis=1)
    return np.asarray(top + np.log(sums))


def _softmax_change(beliefs: FloatArray, d_logs: FloatArray, offsets: IntArray) -> FloatArray:
    """The change of probabilities whose logs change by ``d_logs`` before they are normalized."""
    means = _sums(beliefs * d_logs, offsets[:-1])
    return np.asarray(beliefs * (d_logs - np.repeat(means, np.diff(offsets), axis=1)))
