"""The ways in which people write models down: tables, factors, couplings, pictures, machines, graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _checks
from fastmix.errors import ModelError
from fastmix.graphs import complete_bipartite_edges
from fastmix.model import build

if TYPE_CHECKING:
    from fastmix.model.mrf import MarkovRandomField

__all__ = ["Constructors"]


class Constructors:
    """Those of :class:`fastmix.MarkovRandomField`."""

    @classmethod
    def from_tables(
        cls: Any,
        log_unary: ArrayLike | Sequence[ArrayLike],
        edges: ArrayLike,
        log_pairwise: ArrayLike | Sequence[ArrayLike],
        *,
        log_constant: float = 0.0,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
    ) -> MarkovRandomField:
        """A model from one vector per variable and one table per edge.

        Parameters
        ----------
        log_unary : array (n, L) or sequence of n vectors
            Log-potentials of the states of each variable; their lengths set the state counts.
        edges : array (m, 2)
            Pairs in any direction and order; repeated and reversed pairs are added up.
        log_pairwise : array (m, L, L) or sequence of m tables
            ``log_pairwise[e][a, b]`` belongs to ``x_i = a, x_j = b`` for ``edges[e] = (i, j)`` as given.

        Examples
        --------
        >>> model = MarkovRandomField.from_tables([[0, 0], [0, 0, 1]], [(1, 0)], [[[1, 2], [3, 4], [5, 6]]])
        >>> model.table(0, 1).tolist()
        [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
        """
        num_states, unary = build.flatten_unary(log_unary)
        pairs = _checks.as_edges(edges, len(num_states))
        values = build.flatten_tables(pairs, num_states, log_pairwise)
        _checks.check_log_values("log_pairwise", values)
        merged, tables = build.merge_pairs(num_states, pairs, values)
        return cls(num_states, unary, merged, tables, log_constant, variable_names, state_names)

    @classmethod
    def from_factors(
        cls: Any,
        num_states: ArrayLike,
        factors: Iterable[tuple[Sequence[int], ArrayLike]],
        *,
        variable_names: Sequence[str] | None = None,
        state_names: Sequence[Sequence[str]] | None = None,
    ) -> MarkovRandomField:
        """A model from factors ``(scope, log_table)`` over any number of variables; repeated scopes are added up.

        The axes of a table follow its scope, in whatever order that is given.

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
        parts = build.merge_factors(counts, factors)
        return cls(counts, variable_names=variable_names, state_names=state_names, **parts)

    @classmethod
    def ising(
        cls: Any,
        edges: ArrayLike,
        coupling: ArrayLike,
        field: ArrayLike = 0.0,
        *,
        num_variables: int | None = None,
        variable_names: Sequence[str] | None = None,
    ) -> MarkovRandomField:
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

        Examples
        --------
        >>> MarkovRandomField.ising([(0, 1)], coupling=2.0, field=0.5).table(0, 1).tolist()
        [[2.0, -2.0], [-2.0, 2.0]]
        """
        pairs, fields, n = build.sized_graph(edges, field, num_variables, 2)
        fields = _checks.per_item("field", fields, n, "variable")
        couplings = _checks.per_item("coupling", coupling, len(pairs), "edge")
        unary = np.multiply.outer(fields, [-1.0, 1.0])
        tables = np.multiply.outer(couplings, [[1.0, -1.0], [-1.0, 1.0]])
        return cls.from_tables(unary, pairs, tables, variable_names=variable_names)

    @classmethod
    def potts(
        cls: Any,
        edges: ArrayLike,
        coupling: ArrayLike,
        num_states: int,
        field: ArrayLike = 0.0,
        *,
        num_variables: int | None = None,
        variable_names: Sequence[str] | None = None,
    ) -> MarkovRandomField:
        """The Potts model ``exp(sum_i h_i(x_i) + sum_ij J_ij [x_i = x_j])`` with ``num_states`` states per variable.

        Parameters
        ----------
        edges, coupling, num_variables
            As for :meth:`ising`.
        num_states : int
            States of every variable.
        field : float or array (n, num_states)
            Log-potential of each state of each variable.

        Examples
        --------
        >>> MarkovRandomField.potts([(0, 1)], coupling=2.0, num_states=3).table(0, 1).tolist()
        [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
        """
        num_states = _checks.check_count("num_states", num_states, least=1, error=ModelError)
        pairs, unary, n = build.sized_graph(edges, field, num_variables, num_states)
        if unary.ndim == 0:
            unary = np.full((n, num_states), float(unary))
        elif unary.shape != (n, num_states):
            raise ModelError(f"field must be a number or have shape ({n}, {num_states}), got shape {unary.shape}")
        couplings = _checks.per_item("coupling", coupling, len(pairs), "edge")
        tables = couplings[:, None, None] * np.eye(num_states)
        return cls.from_tables(unary, pairs, tables, variable_names=variable_names)

    @classmethod
    def image(
        cls: Any,
        unary: ArrayLike,
        pairwise: ArrayLike,
        *,
        connectivity: Literal[4, 8] = 4,
        contrast: ArrayLike | None = None,
        contrast_scale: float | None = None,
        state_names: Sequence[str] | None = None,
    ) -> MarkovRandomField:
        """A model of the pixels of a picture: a label for each, neighbors prefer what ``pairwise`` says.

        Parameters
        ----------
        unary : array (H, W, K)
            Log-probability, or any score, of every label at every pixel.
        pairwise : float or array (K, K)
            A Potts coupling, added where neighbors have the same label, or a table for all neighbors, by the labels of
            the pixel further up or left and of the other.
        connectivity : {4, 8}
            Neighbors beside and below only, or also across corners, whose tables are divided by the square root of 2,
            their distance.
        contrast : array (H, W) or (H, W, channels), optional
            The picture itself: tables are multiplied by ``exp(-d / (2 s))``, where d is the squared difference of two
            pixels and s its mean over all neighbors (Boykov and Jolly 2001), so that labels change at its edges.
        contrast_scale : float, optional
            Instead of that mean.
        state_names : sequence of str, optional
            Of the K labels.

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
        scores = _checks.as_float_array("unary", unary)
        if scores.ndim != 3 or 0 in scores.shape:
            raise ModelError(f"unary must have shape (H, W, K), rows, columns and labels, got shape {scores.shape}")
        rows, cols, labels = scores.shape
        if contrast is not None:
            contrast = _checks.as_float_array("contrast", contrast)
        turned = contrast is not None and np.shape(contrast)[:2] == (cols, labels) != (rows, cols)
        if turned or (labels > 32 and 4 * rows <= min(cols, labels)):
            raise ModelError(
                f"unary must have shape (H, W, K) with the labels last, got shape {scores.shape}, where they seem to "
                "come first: numpy.moveaxis(unary, 0, -1) puts them last"
            )
        edges, weights = build.image_edges((rows, cols), connectivity, contrast, contrast_scale)
        table = _checks.as_float_array("pairwise", pairwise)
        if table.ndim == 0:
            table = np.where(np.eye(labels, dtype=bool), table, 0.0)  # no product: the number may be -inf
        elif table.shape != (labels, labels):
            raise ModelError(f"pairwise must be a number or have shape ({labels}, {labels}), got shape {table.shape}")
        build.check_model_memory(rows * cols, scores.size, len(edges), len(edges) * labels**2)
        counts = np.full(rows * cols, labels, dtype=np.int64)
        _checks.check_log_values("pairwise", table)
        with np.errstate(invalid="ignore"):
            tables = np.where(table == -np.inf, -np.inf, weights[:, None, None] * table).reshape(-1)
        names = None
        if state_names is not None:
            names = [tuple(_checks.as_list("state_names", state_names, "a list of names"))] * (rows * cols)
        return cls(counts, scores.reshape(-1), edges, tables, state_names=names, shape=(rows, cols))

    @classmethod
    def from_couplings(
        cls: Any, J: Any, h: ArrayLike = 0.0, *, variable_names: Sequence[str] | None = None
    ) -> MarkovRandomField:
        """The Ising model ``exp(sum_i h_i s_i + sum_{i<j} J_ij s_i s_j)`` of a symmetric matrix, spins -1 and +1.

        Parameters
        ----------
        J : array (n, n) or scipy.sparse matrix
            Symmetric, with zeros on the diagonal; entries that are not 0 are the edges.
        h : float or array (n,)

        Examples
        --------
        >>> model = MarkovRandomField.from_couplings([[0.0, 2.0], [2.0, 0.0]], h=0.5)
        >>> model == MarkovRandomField.ising([(0, 1)], coupling=2.0, field=0.5)
        True
        """
        edges, couplings, n = build.edges_of_matrix(J)
        fields = _checks.per_item("h", h, n, "variable")
        return cls.ising(edges, couplings, fields, num_variables=n, variable_names=variable_names)

    @classmethod
    def rbm(
        cls: Any, W: ArrayLike, b: ArrayLike = 0.0, c: ArrayLike = 0.0, *, variable_names: Sequence[str] | None = None
    ) -> MarkovRandomField:
        """The restricted Boltzmann machine ``exp(v' W h + b' v + c' h)`` of bits v and h.

        Visible variables come first. A variable is 0 or 1, its state; every visible one has an edge to every hidden
        one.

        Parameters
        ----------
        W : array (num_visible, num_hidden)
        b : float or array (num_visible,)
        c : float or array (num_hidden,)
        variable_names : sequence of str, optional
            Of all variables; by default ``v0``, ``v1``, .. and ``hidden 0``, ``hidden 1``, .., which data need not have

        Examples
        --------
        >>> model = MarkovRandomField.rbm([[1.0, -2.0]], b=[0.5], c=[0.0, 3.0])
        >>> model.variable_names, float(model.log_weight([1, 0, 1]))
        (('v0', 'hidden 0', 'hidden 1'), 1.5)
        """
        weights = _checks.as_float_array("W", W)
        if weights.ndim != 2:
            raise ModelError(f"W must be 2-D (visible, hidden), got shape {weights.shape}")
        visible, hidden = weights.shape
        n = visible + hidden
        build.check_model_memory(n, 2 * n, weights.size, 4 * weights.size)
        fields = [_checks.per_item("b", b, visible, "visible variable"), _checks.per_item("c", c, hidden, "hidden one")]
        _checks.per_item("W", weights.reshape(-1), weights.size, "edge")
        unary = np.multiply.outer(np.concatenate(fields), [0.0, 1.0])
        tables = np.multiply.outer(weights.reshape(-1), [[0.0, 0.0], [0.0, 1.0]])
        if variable_names is None:
            variable_names = [*(f"v{i}" for i in range(visible)), *(f"hidden {j}" for j in range(hidden))]
        edges = complete_bipartite_edges(visible, hidden)
        return cls.from_tables(unary, edges, tables, variable_names=variable_names)

    @classmethod
    def from_networkx(cls: Any, graph: Any) -> MarkovRandomField:
        """A model from a networkx graph whose nodes and edges carry their potentials.

        Nodes carry ``log_unary`` (a vector) or ``field`` (a number, Ising; absent means 0). Edges carry
        ``log_pairwise`` (a table; rows belong to the endpoint that comes first in the node order of an undirected
        graph, to the source in a directed one) or ``coupling`` (a number: Ising between binary variables, Potts
        between variables of more states). Node names become variable names.

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
        index = {node: k for k, node in enumerate(graph.nodes)}
        unary = []
        for node, data in graph.nodes(data=True):
            if "log_unary" in data:
                unary.append(_checks.as_float_array(f"log_unary of node {node!r}", data["log_unary"]))
            else:
                h = _checks.as_number(f"field of node {node!r}", data.get("field", 0.0))
                unary.append(np.array([-h, h]))
        pairs, tables = [], []
        for u, v, data in graph.edges(data=True):
            i, j = index[u], index[v]
            if i > j and not graph.is_directed():
                i, j = j, i
            pairs.append((i, j))
            if "log_pairwise" in data:
                tables.append(_checks.as_float_array(f"log_pairwise of edge {(u, v)!r}", data["log_pairwise"]))
                continue
            if "coupling" not in data:
                raise ModelError(f"edge {(u, v)!r} must carry log_pairwise or coupling, got {sorted(map(str, data))}")
            coupling, size = _checks.as_number(f"coupling of edge {(u, v)!r}", data["coupling"]), unary[i].size
            if unary[j].size != size:
                raise ModelError(f"edge {(u, v)!r} joins {size} and {unary[j].size} states: give it log_pairwise")
            build.check_model_memory(len(unary), 0, 1, size**2)
            tables.append(coupling * (np.array([[1.0, -1.0], [-1.0, 1.0]]) if size == 2 else np.eye(size)))
        return cls.from_tables(unary, pairs, tables, variable_names=[str(node) for node in graph.nodes])
