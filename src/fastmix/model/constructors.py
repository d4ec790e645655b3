"""The ways in which people write models down: tables, factors, couplings, pictures, machines, graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _checks
from fastmix._arrays import FloatArray
from fastmix.errors import ModelError
from fastmix.graphs import complete_bipartite_edges
from fastmix.model.inputs import (
    check_labels_last,
    check_model_memory,
    edges_of_matrix,
    flatten_tables,
    flatten_unary,
    image_edges,
    log_of_weights,
    sized_graph,
)
from fastmix.model.merging import merge_factors, merge_pairs
from fastmix.model.shared import SharedTables, weighted
from fastmix.model.sharing import find_shared, pays_to_share, share_patterns

__all__ = ["Constructors"]

_SPINS = [-1.0, 1.0]  # of states 0 and 1
_SPIN_PRODUCTS = [[1.0, -1.0], [-1.0, 1.0]]  # s_i s_j by the states of both


class Constructors:
    """The class methods of :class:`fastmix.MarkovRandomField` that build models, kept apart from the model itself."""

    if TYPE_CHECKING:  # the arrays as a model stores them: the class that inherits these methods takes them

        def __init__(
            self,
            num_states: ArrayLike,
            log_unary: ArrayLike,
            edges: ArrayLike,
            log_pairwise: ArrayLike,
            log_constant: float = 0.0,
            variable_names: Sequence[str] | None = None,
            state_names: Sequence[Sequence[str]] | None = None,
            scope_starts: ArrayLike | None = None,
            scope_variables: ArrayLike | None = None,
            log_factors: ArrayLike = (),
            shape: Sequence[int] | None = None,
            shared_tables: SharedTables | None = None,
        ) -> None: ...

    # -- tables and factors ---------------------------------------------------------------------------------------

    @classmethod
    def from_tables(
        cls,
        log_unary: ArrayLike | Sequence[ArrayLike],
        edges: ArrayLike,
        log_pairwise: ArrayLike | Sequence[ArrayLike],
        *,
        log_constant: float = 0.0,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
        shape: Sequence[int] | None = None,
    ) -> Self:
        """A model from one vector per variable and one table per edge.

        Tables of four states or more that many edges share, up to a factor, are found and kept once
        (:meth:`from_patterns` says outright which they are).

        Parameters
        ----------
        log_unary : array (n, L) or sequence of n vectors
            Log-potentials of the states of each variable; their lengths set the state counts.
        edges : array (m, 2)
            Pairs in any direction and order; repeated and reversed pairs are added up.
        log_pairwise : array (m, L, L) or sequence of m tables
            ``log_pairwise[e][a, b]`` belongs to ``x_i = a, x_j = b`` for ``edges[e] = (i, j)`` as given.
        log_constant : float
            A constant of the log-weight, which counts in log Z.
        variable_names : sequence of str, optional
            One name per variable, all different.
        state_names : sequence of sequences of str, optional
            One name per state of each variable.
        shape : tuple of int, optional
            Of an array whose entries, row by row, the variables are: results have pictures of it.

        Raises
        ------
        ModelError
            If a vector or table has the wrong shape, or holds NaN, +inf or a finite number beyond 1e100.

        Examples
        --------
        >>> model = MarkovRandomField.from_tables([[0, 0], [0, 0, 1]], [(1, 0)], [[[1, 2], [3, 4], [5, 6]]])
        >>> model.table(0, 1).tolist()
        [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
        """
        num_states, unary = flatten_unary(log_unary)
        pairs = _checks.as_edges(edges, len(num_states))
        values = flatten_tables(pairs, num_states, log_pairwise)
        _checks.check_log_values("log_pairwise", values)
        merged, tables = merge_pairs(num_states, pairs, values)
        shared = find_shared(num_states[merged], tables)
        full = tables if shared is None else ()
        names = (variable_names, state_names)
        return cls(num_states, unary, merged, full, log_constant, *names, shape=shape, shared_tables=shared)

    @classmethod
    def from_patterns(
        cls,
        log_unary: ArrayLike | Sequence[ArrayLike],
        edges: ArrayLike,
        patterns: ArrayLike | Sequence[ArrayLike],
        pattern_of_edge: ArrayLike = 0,
        weights: ArrayLike = 1.0,
        *,
        log_constant: float = 0.0,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
        shape: Sequence[int] | None = None,
    ) -> Self:
        """A model whose edges share tables: the table of edge e is ``weights[e] * patterns[pattern_of_edge[e]]``.

        The model holds every pattern once and a few numbers per edge, and is equal to the model of the same tables in
        full.

        Parameters
        ----------
        log_unary : array (n, L) or sequence of n vectors
            Log-potentials of the states of each variable; their lengths set the state counts.
        edges : array (m, 2)
            Pairs in any direction and order; tables of repeated and reversed pairs are added up.
        patterns : array (p, L, L) or sequence of p tables
            The rows of a pattern belong to the first variable of ``edges[e]`` as given: an edge that is given the other
            way round has the transpose.
        pattern_of_edge : int or int array (m,)
            Number of the pattern of each edge.
        weights : float or array (m,)
            Weight of each edge. A weight of 0 gives a table of zeros; patterns that hold -inf take no weight below 0.
        log_constant : float
            A constant of the log-weight, which counts in log Z.
        variable_names : sequence of str, optional
            One name per variable, all different.
        state_names : sequence of sequences of str, optional
            One name per state of each variable.
        shape : tuple of int, optional
            Of an array whose entries, row by row, the variables are.

        Raises
        ------
        ModelError
            If a vector, a pattern or a weight has the wrong shape or holds NaN or an infinity that is not allowed.

        Examples
        --------
        >>> distance = [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]
        >>> model = MarkovRandomField.from_patterns(np.zeros((3, 3)), [(0, 1), (1, 2)], [distance], weights=[1.0, 0.5])
        >>> model.table(1, 2).tolist()
        [[0.0, -0.5, -1.0], [-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]
        """
        num_states, unary = flatten_unary(log_unary)
        pairs = _checks.as_edges(edges, len(num_states))
        merged, shared = share_patterns(num_states, pairs, patterns, pattern_of_edge, weights)
        names = (variable_names, state_names)
        return cls(num_states, unary, merged, (), log_constant, *names, shape=shape, shared_tables=shared)

    @classmethod
    def from_probabilities(
        cls,
        unary: ArrayLike | Sequence[ArrayLike],
        edges: ArrayLike,
        pairwise: ArrayLike | Sequence[ArrayLike],
        *,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
    ) -> Self:
        """A model from probabilities, or any weights of at least 0, in place of log-potentials; 0 forbids.

        Parameters
        ----------
        unary : array (n, L) or sequence of n vectors
            Weights of the states of each variable; they need not add up to 1.
        edges : array (m, 2)
            Pairs in any direction and order; weights of repeated and reversed pairs are multiplied.
        pairwise : array (m, L, L) or sequence of m tables
            Weights ``pairwise[e][a, b]`` of ``x_i = a, x_j = b`` for ``edges[e] = (i, j)``.
        variable_names : sequence of str, optional
            One name per variable, all different.
        state_names : sequence of sequences of str, optional
            One name per state of each variable.

        Raises
        ------
        ModelError
            If a vector or table has the wrong shape, or holds NaN, an infinity or a negative number.

        Examples
        --------
        >>> model = MarkovRandomField.from_probabilities([[0.2, 0.8], [1.0, 1.0]], [(0, 1)], [[[1.0, 0.0], [0.5, 0.5]]])
        >>> model.unary(0).round(4).tolist(), model.table(0, 1).round(4).tolist()
        ([-1.6094, -0.2231], [[0.0, -inf], [-0.6931, -0.6931]])
        """
        num_states, weights = flatten_unary(unary, "unary")
        pairs = _checks.as_edges(edges, len(num_states))
        tables = flatten_tables(pairs, num_states, pairwise, "pairwise")
        log_unary = log_of_weights("unary", weights)
        merged, log_pairwise = merge_pairs(num_states, pairs, log_of_weights("pairwise", tables))
        return cls(num_states, log_unary, merged, log_pairwise, 0.0, variable_names, state_names)

    @classmethod
    def from_factors(
        cls,
        num_states: ArrayLike,
        factors: Iterable[tuple[Sequence[int], ArrayLike]],
        *,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
    ) -> Self:
        """A model from factors ``(scope, log_table)`` over any number of variables; repeated scopes are added up.

        Parameters
        ----------
        num_states : int array (n,)
            Number of states of each variable.
        factors : iterable of pairs (sequence of k ints, array of k axes)
            The numbers of the variables of a factor, in any order, and its log-potentials: the axes of the table
            follow the scope. An empty scope is a constant.
        variable_names : sequence of str, optional
            One name per variable, all different.
        state_names : sequence of sequences of str, optional
            One name per state of each variable.

        Raises
        ------
        ModelError
            If a scope names a variable that does not exist or one of them twice, or a table has the wrong shape.

        Examples
        --------
        >>> model = MarkovRandomField.from_factors([2, 2], [((), 1.5), ((0,), [0, 1]), ((1, 0), [[1, 2], [3, 4]])])
        >>> model.log_constant, model.table(0, 1).tolist()
        (1.5, [[1.0, 3.0], [2.0, 4.0]])
        >>> xor = [[[0, -9], [-9, 0]], [[-9, 0], [0, -9]]]
        >>> MarkovRandomField.from_factors([2, 2, 2], [((2, 0, 1), xor)])
        MarkovRandomField(3 variables of 2 states, 3 edges, 1 factor of 3 variables)
        """
        counts = _checks.as_state_counts(num_states)
        parts = merge_factors(counts, factors)
        return cls(counts, variable_names=variable_names, state_names=state_names, **parts)

    # -- couplings and fields -------------------------------------------------------------------------------------

    @classmethod
    def ising(
        cls,
        edges: ArrayLike,
        coupling: ArrayLike,
        field: ArrayLike = 0.0,
        *,
        num_variables: int | None = None,
        variable_names: Sequence[str] | None = None,
    ) -> Self:
        """The Ising model ``exp(sum_i h_i s_i + sum_ij J_ij s_i s_j)`` with spins s = -1 (state 0) and +1 (state 1).

        Parameters
        ----------
        edges : array (m, 2)
            Pairs in any direction and order; couplings of repeated pairs are added up.
        coupling : float or array (m,)
            J of each edge; positive couplings attract.
        field : float or array (n,)
            h of each variable.
        num_variables : int, optional
            Needed only when ``field`` is a number and the last variables have no edge.
        variable_names : sequence of str, optional
            One name per variable, all different.

        Raises
        ------
        ModelError
            If there is not one finite coupling per edge, or not one finite field per variable.

        Examples
        --------
        >>> MarkovRandomField.ising([(0, 1)], coupling=2.0, field=0.5).table(0, 1).tolist()
        [[2.0, -2.0], [-2.0, 2.0]]
        """
        pairs, given_fields, num_variables = sized_graph(edges, field, num_variables, 2)
        fields = _checks.per_item("field", given_fields, num_variables, "variable")
        couplings = _checks.per_item("coupling", coupling, len(pairs), "edge")
        unary = np.multiply.outer(fields, _SPINS)
        tables = np.multiply.outer(couplings, _SPIN_PRODUCTS)
        return cls.from_tables(unary, pairs, tables, variable_names=variable_names)

    @classmethod
    def potts(
        cls,
        edges: ArrayLike,
        coupling: ArrayLike,
        num_states: int,
        field: ArrayLike = 0.0,
        *,
        num_variables: int | None = None,
        variable_names: Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
    ) -> Self:
        """The Potts model ``exp(sum_i h_i(x_i) + sum_ij J_ij [x_i = x_j])`` with ``num_states`` states per variable.

        Parameters
        ----------
        edges : array (m, 2)
            Pairs in any direction and order; couplings of repeated pairs are added up.
        coupling : float or array (m,)
            J of each edge; positive couplings attract.
        num_states : int
            States of every variable.
        field : float or array (n, num_states)
            Log-potential of each state of each variable.
        num_variables : int, optional
            Needed only when ``field`` is a number and the last variables have no edge.
        variable_names : sequence of str, optional
            One name per variable, all different.
        shape : tuple of int, optional
            Of an array whose entries, row by row, the variables are: results have pictures of it.

        Raises
        ------
        ModelError
            If there is not one finite coupling per edge, or ``field`` has another shape.

        Examples
        --------
        >>> MarkovRandomField.potts([(0, 1)], coupling=2.0, num_states=3).table(0, 1).tolist()
        [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
        """
        num_states = _checks.check_count("num_states", num_states, least=1, error=ModelError)
        pairs, unary, num_variables = sized_graph(edges, field, num_variables, num_states)
        expected = (num_variables, num_states)
        if unary.ndim == 0:
            unary = np.full(expected, float(unary))
        elif unary.shape != expected:
            raise ModelError(f"field must be a number or have shape {expected}, got shape {unary.shape}")
        couplings = _checks.per_item("coupling", coupling, len(pairs), "edge")
        pattern = np.eye(num_states)
        options: dict[str, Any] = {"variable_names": variable_names, "shape": shape}
        if pays_to_share(len(pairs), pattern.size):
            return cls.from_patterns(unary, pairs, [pattern], 0, couplings, **options)
        return cls.from_tables(unary, pairs, couplings[:, None, None] * pattern, **options)

    @classmethod
    def from_couplings(
        cls, coupling: Any, field: ArrayLike = 0.0, *, variable_names: Sequence[str] | None = None
    ) -> Self:
        """The Ising model ``exp(sum_i h_i s_i + sum_{i<j} J_ij s_i s_j)`` of a symmetric matrix, spins -1 and +1.

        Parameters
        ----------
        coupling : array (n, n) or scipy.sparse matrix
            J, symmetric, with zeros on the diagonal; entries that are not 0 are the edges.
        field : float or array (n,)
            h of each variable.
        variable_names : sequence of str, optional
            One name per variable, all different.

        Raises
        ------
        ModelError
            If the matrix is not square, finite and symmetric, or has an entry on its diagonal.

        Examples
        --------
        >>> model = MarkovRandomField.from_couplings([[0.0, 2.0], [2.0, 0.0]], field=0.5)
        >>> model == MarkovRandomField.ising([(0, 1)], coupling=2.0, field=0.5)
        True
        """
        edges, couplings, num_variables = edges_of_matrix("coupling", coupling)
        fields = _checks.per_item("field", field, num_variables, "variable")
        return cls.ising(edges, couplings, fields, num_variables=num_variables, variable_names=variable_names)

    @classmethod
    def rbm(
        cls, W: ArrayLike, b: ArrayLike = 0.0, c: ArrayLike = 0.0, *, variable_names: Sequence[str] | None = None
    ) -> Self:
        """The restricted Boltzmann machine ``exp(v' W h + b' v + c' h)`` of bits v and h.

        Visible variables come first. A variable is 0 or 1, its state; every visible one has an edge to every hidden
        one. The parameters have the names of the formula, because they belong to bits: the couplings and fields of
        spins are others.

        Parameters
        ----------
        W : array (num_visible, num_hidden)
            Weight of each visible variable with each hidden one.
        b : float or array (num_visible,)
            Biases of the visible variables.
        c : float or array (num_hidden,)
            Biases of the hidden variables.
        variable_names : sequence of str, optional
            Names of all variables; by default ``v0``, ``v1``, .. and ``hidden 0``, ``hidden 1``, .., which data need
            not have.

        Raises
        ------
        ModelError
            If an array has the wrong shape or holds a number that is not finite.

        Examples
        --------
        >>> model = MarkovRandomField.rbm([[1.0, -2.0]], b=[0.5], c=[0.0, 3.0])
        >>> model.variable_names, float(model.log_weight([1, 0, 1]))
        (('v0', 'hidden 0', 'hidden 1'), 1.5)
        """
        weights = _checks.as_float_array("W", W)
        if weights.ndim != 2:
            raise ModelError(f"W must be 2-D (visible, hidden), got shape {weights.shape}")
        num_visible, num_hidden = weights.shape
        num_variables = num_visible + num_hidden
        check_model_memory(num_variables, 2 * num_variables, weights.size, 4 * weights.size)
        visible_biases = _checks.per_item("b", b, num_visible, "visible variable")
        hidden_biases = _checks.per_item("c", c, num_hidden, "hidden one")
        _checks.per_item("W", weights.reshape(-1), weights.size, "edge")
        unary = np.multiply.outer(np.concatenate([visible_biases, hidden_biases]), [0.0, 1.0])
        tables = np.multiply.outer(weights.reshape(-1), [[0.0, 0.0], [0.0, 1.0]])
        if variable_names is None:
            variable_names = [*(f"v{i}" for i in range(num_visible)), *(f"hidden {j}" for j in range(num_hidden))]
        edges = complete_bipartite_edges(num_visible, num_hidden)
        return cls.from_tables(unary, edges, tables, variable_names=variable_names)

    # -- pictures and graphs --------------------------------------------------------------------------------------

    @classmethod
    def image(
        cls,
        log_unary: ArrayLike,
        log_pairwise: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        connectivity: Literal[4, 8] = 4,
        contrast: ArrayLike | None = None,
        contrast_scale: float | None = None,
        state_names: Sequence[str] | None = None,
    ) -> Self:
        """A model of the pixels of a picture: a label for each, neighbors prefer what ``log_pairwise`` says.

        Parameters
        ----------
        log_unary : array (H, W, K)
            Log-probability, or any score, of every label at every pixel.
        log_pairwise : float or array (K, K)
            A Potts coupling, added where neighbors have the same label, or a table for all neighbors, by the labels of
            the pixel further up or left and of the other.
        weights : float or array (m,), optional
            By what the tables of neighbors are multiplied, in the order of ``edges``: pixels row by row, and for each
            its neighbors that come later, row by row. They take the place of what distance and contrast give.
        connectivity : {4, 8}
            Neighbors beside and below only, or also across corners, whose tables are divided by the square root of 2,
            their distance.
        contrast : array (H, W) or (H, W, channels), optional
            The picture itself: tables are multiplied by ``exp(-d / (2 s))``, where d is the squared difference of two
            pixels and s its mean over all neighbors (Boykov and Jolly 2001), so that labels change at its edges.
        contrast_scale : float, optional
            The number s, in place of the mean.
        state_names : sequence of str, optional
            Names of the K labels.

        Returns
        -------
        MarkovRandomField
            With ``shape`` (H, W); variable ``row * W + column`` is a pixel.

        Raises
        ------
        ModelError
            If an array has the wrong shape; a first axis that looks like the labels is named.

        Examples
        --------
        >>> model = MarkovRandomField.image(np.zeros((2, 3, 4)), 0.5, connectivity=8)
        >>> model, model.shape
        (MarkovRandomField(6 variables of 4 states, 11 edges), (2, 3))
        """
        scores = _checks.as_float_array("log_unary", log_unary)
        picture = None if contrast is None else _checks.as_float_array("contrast", contrast)
        check_labels_last("log_unary", scores, picture)
        rows, cols, num_labels = scores.shape
        num_pixels = rows * cols
        edges, factors = image_edges((rows, cols), connectivity, picture, contrast_scale)
        if weights is not None:
            if picture is not None:
                raise ModelError("weights must come without contrast, which gives weights itself")
            factors = _checks.per_item("weights", weights, len(edges), "pair of neighbors")
        table = _checks.as_float_array("log_pairwise", log_pairwise)
        if table.ndim == 0:
            table = np.where(np.eye(num_labels, dtype=bool), table, 0.0)  # no product: the number may be -inf
        elif table.shape != (num_labels, num_labels):
            expected = f"({num_labels}, {num_labels})"
            raise ModelError(f"log_pairwise must be a number or have shape {expected}, got shape {table.shape}")
        _checks.check_log_values("log_pairwise", table)
        names = None
        if state_names is not None:
            labels = tuple(_checks.as_list("state_names", state_names, "a list of names"))
            names = [labels] * num_pixels
        counts = np.full(num_pixels, num_labels, dtype=np.int64)
        options: dict[str, Any] = {"state_names": names, "shape": (rows, cols)}
        unary = scores.reshape(-1)
        if pays_to_share(len(edges), table.size):
            _, shared = share_patterns(counts, edges, [table], 0, factors)
            return cls(counts, unary, edges, (), shared_tables=shared, **options)
        check_model_memory(num_pixels, scores.size, len(edges), len(edges) * num_labels**2)
        if (table == -np.inf).any() and (factors < 0.0).any():
            raise ModelError("weights must be at least 0 where log_pairwise holds -inf")
        if (factors == 1.0).all():
            tables = np.tile(table.reshape(-1), len(edges))
        else:
            tables = weighted(table.reshape(-1), factors).reshape(-1)
        return cls(counts, unary, edges, tables, **options)

    @classmethod
    def from_networkx(cls, graph: Any) -> Self:
        """A model from a networkx graph whose nodes and edges carry their potentials.

        Parameters
        ----------
        graph : networkx.Graph or networkx.DiGraph
            Nodes carry ``log_unary`` (a vector) or ``field`` (a number, Ising; absent means 0). Edges carry
            ``log_pairwise`` (a table; rows belong to the endpoint that comes first in the node order of an undirected
            graph, to the source in a directed one) or ``coupling`` (a number: Ising between binary variables, Potts
            between variables of more states). Node names become variable names.

        Raises
        ------
        TypeError
            If it is no graph.
        ModelError
            If an edge carries neither a table nor a coupling, or a table has the wrong shape.

        Examples
        --------
        >>> import networkx as nx
        >>> graph = nx.path_graph(3)
        >>> nx.set_edge_attributes(graph, 0.5, "coupling")
        >>> MarkovRandomField.from_networkx(graph).variable_names
        ('0', '1', '2')
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
            raise TypeError(f"graph must be a graph of networkx, got {_checks.describe(graph)}")
        number_of = {node: k for k, node in enumerate(graph.nodes)}
        unary = [_vector_of_node(node, data) for node, data in graph.nodes(data=True)]
        pairs: list[tuple[int, int]] = []
        tables: list[FloatArray] = []
        for u, v, data in graph.edges(data=True):
            i = number_of[u]
            j = number_of[v]
            if i > j and not graph.is_directed():
                i, j = j, i
            pairs.append((i, j))
            tables.append(_table_of_edge((u, v), data, unary[i].size, unary[j].size, len(unary)))
        return cls.from_tables(unary, pairs, tables, variable_names=[str(node) for node in graph.nodes])


def _vector_of_node(node: Any, data: dict[str, Any]) -> FloatArray:
    """The unary vector that a node of a graph carries."""
    if "log_unary" in data:
        return _checks.as_float_array(f"log_unary of node {node!r}", data["log_unary"])
    field = _checks.as_number(f"field of node {node!r}", data.get("field", 0.0))
    return np.array([-field, field])


def _table_of_edge(
    ends: tuple[Any, Any], data: dict[str, Any], num_rows: int, num_cols: int, num_variables: int
) -> FloatArray:
    """The table that an edge of a graph carries, or that its coupling stands for."""
    if "log_pairwise" in data:
        return _checks.as_float_array(f"log_pairwise of edge {ends!r}", data["log_pairwise"])
    if "coupling" not in data:
        raise ModelError(f"edge {ends!r} must carry log_pairwise or coupling, got {sorted(map(str, data))}")
    coupling = _checks.as_number(f"coupling of edge {ends!r}", data["coupling"])
    if num_cols != num_rows:
        raise ModelError(f"edge {ends!r} joins {num_rows} and {num_cols} states: give it log_pairwise")
    check_model_memory(num_variables, 0, 1, num_rows**2)
    return coupling * (np.array(_SPIN_PRODUCTS) if num_rows == 2 else np.eye(num_rows))
