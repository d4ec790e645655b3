"""Random models: the paper's Ising and Potts grids and random graphs, and others of the same kind.

Every function takes a ``seed`` and gives the same model for the same arguments. Fields are drawn before couplings, and
both are scaled uniform numbers, so a sweep over ``coupling_max`` at one seed keeps the graph, the fields and the
pattern of the couplings, and changes their strength alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fastmix import graphs
from fastmix._arrays import IntArray
from fastmix._checks import as_array, as_edges, as_state_counts, check_count, check_flag, check_positive, check_seed
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.model.inputs import check_model_memory

__all__ = [
    "ising_bipartite", "ising_grid", "ising_random", "ising_regular", "ising_tree", "potts_grid", "random_tables",
]  # fmt: skip


def ising_grid(
    rows: int,
    cols: int,
    *,
    coupling_max: float,
    attractive: bool = False,
    field_max: float = 1.0,
    torus: bool = False,
    seed: int,
) -> MarkovRandomField:
    """An Ising model on a four-neighbor grid with uniform random fields and couplings.

    Parameters
    ----------
    rows, cols : int
        Size of the grid, at least 1; variable ``r * cols + c`` is at row r and column c.
    coupling_max : float
        Couplings J are uniform on [-coupling_max, coupling_max].
    attractive : bool
        Draw couplings from [0, coupling_max] instead.
    field_max : float
        Fields h are uniform on [-field_max, field_max].
    torus : bool
        Join the last row to the first and the last column to the first.
    seed : int
        Seed of the generator, at least 0.

    Raises
    ------
    ValueError
        If a size is below 1, a maximum is negative or not finite, or the seed is not a whole number from 0.

    Notes
    -----
    The synthetic grids of the paper are 16x16 with ``field_max=1`` and ``coupling_max`` from 0 to 4.

    Examples
    --------
    >>> ising_grid(16, 16, coupling_max=1.5, attractive=True, seed=0)
    MarkovRandomField(256 variables of 2 states, 480 edges)
    >>> model = ising_grid(2, 2, coupling_max=1.5, seed=0)
    >>> model == ising_grid(2, 2, coupling_max=1.5, seed=0), bool(abs(model.log_pairwise).max() <= 1.5)
    (True, True)
    """
    rows = check_count("rows", rows, least=1)
    cols = check_count("cols", cols, least=1)
    edges = graphs.grid_edges(rows, cols, torus=torus)
    return _random_model(edges, rows * cols, None, coupling_max, attractive, field_max, seed)


def potts_grid(
    rows: int,
    cols: int,
    *,
    num_states: int = 3,
    coupling_max: float,
    attractive: bool = False,
    field_max: float = 1.0,
    torus: bool = False,
    seed: int,
) -> MarkovRandomField:
    """A Potts model on a four-neighbor grid (in the paper 8x8) with uniform random unaries and couplings.

    Parameters
    ----------
    rows, cols, coupling_max, attractive, torus, seed
        As for :func:`ising_grid`, errors too; J is the log-weight of equal neighbors.
    num_states : int
        States of every variable, at least 1.
    field_max : float
        The log-potential of each state of each variable is uniform on [-field_max, field_max].

    Examples
    --------
    >>> potts_grid(8, 8, coupling_max=2.0, seed=0)
    MarkovRandomField(64 variables of 3 states, 112 edges)
    """
    rows = check_count("rows", rows, least=1)
    cols = check_count("cols", cols, least=1)
    num_states = check_count("num_states", num_states, least=1)
    edges = graphs.grid_edges(rows, cols, torus=torus)
    return _random_model(edges, rows * cols, num_states, coupling_max, attractive, field_max, seed)


def ising_random(
    num_variables: int,
    *,
    edge_probability: float,
    coupling_max: float,
    attractive: bool = False,
    field_max: float = 1.0,
    seed: int,
) -> MarkovRandomField:
    """An Ising model on an Erdős–Rényi graph with uniform random fields and couplings; some may have no edge.

    Parameters
    ----------
    num_variables : int
        Number of variables, at least 1.
    edge_probability : float
        Probability of each of the n (n - 1) / 2 edges, from 0 to 1; the paper takes 0.3, 0.5 and 0.7 of 10 variables.
    coupling_max, attractive, field_max, seed
        As for :func:`ising_grid`, errors too.

    Examples
    --------
    >>> model = ising_random(10, edge_probability=0.5, coupling_max=1.0, seed=0)
    >>> model.num_variables, model.num_edges <= 45
    (10, True)
    """
    n = check_count("num_variables", num_variables, least=1)
    probability = check_positive("edge_probability", edge_probability, or_zero=True)
    if probability > 1.0:
        raise ValueError(f"edge_probability must be from 0 to 1, got {edge_probability!r}")
    edges = graphs.erdos_renyi_edges(n, probability, seed=_graph_seed(seed))
    return _random_model(edges, n, None, coupling_max, attractive, field_max, seed)


def ising_bipartite(
    left: int, right: int, *, coupling_max: float, attractive: bool = False, field_max: float = 1.0, seed: int
) -> MarkovRandomField:
    """An Ising model on a complete bipartite graph, as of a restricted Boltzmann machine.

    Parameters
    ----------
    left, right : int
        Variables on each side, at least 1; those on the left come first.
    coupling_max, attractive, field_max, seed
        As for :func:`ising_grid`, errors too.

    Examples
    --------
    >>> ising_bipartite(4, 3, coupling_max=1.0, seed=0)
    MarkovRandomField(7 variables of 2 states, 12 edges)
    """
    left = check_count("left", left, least=1)
    right = check_count("right", right, least=1)
    edges = graphs.complete_bipartite_edges(left, right)
    return _random_model(edges, left + right, None, coupling_max, attractive, field_max, seed)


def ising_regular(
    num_variables: int, degree: int, *, coupling_max: float, attractive: bool = False, field_max: float = 1.0, seed: int
) -> MarkovRandomField:
    """An Ising model on a random graph in which every variable has the same number of neighbors.

    Parameters
    ----------
    num_variables, degree : int
        Number of variables, at least 1, and neighbors of each, below it; their product must be even.
    coupling_max, attractive, field_max, seed
        As for :func:`ising_grid`, errors too.

    Examples
    --------
    >>> ising_regular(10, 3, coupling_max=1.0, seed=0)
    MarkovRandomField(10 variables of 2 states, 15 edges)
    """
    n = check_count("num_variables", num_variables, least=1)
    edges = graphs.random_regular_edges(n, degree, seed=_graph_seed(seed))
    return _random_model(edges, n, None, coupling_max, attractive, field_max, seed)


def ising_tree(
    num_variables: int, *, coupling_max: float, attractive: bool = False, field_max: float = 1.0, seed: int
) -> MarkovRandomField:
    """An Ising model on a random tree, with arguments and errors as for :func:`ising_grid`.

    Examples
    --------
    >>> ising_tree(10, coupling_max=1.0, seed=0)
    MarkovRandomField(10 variables of 2 states, 9 edges)
    """
    n = check_count("num_variables", num_variables, least=1)
    edges = graphs.random_tree_edges(n, seed=_graph_seed(seed))
    return _random_model(edges, n, None, coupling_max, attractive, field_max, seed)


def random_tables(edges: ArrayLike, num_states: int | Sequence[int], *, scale: float, seed: int) -> MarkovRandomField:
    """A model with independent normal unary and table entries on a given graph.

    Parameters
    ----------
    edges : int array (m, 2)
        Pairs of variables in any direction and order; a repeated or reversed pair counts once.
    num_states : int or sequence of n ints
        States of every variable, or of each one. With an int the edges tell the number of variables, so a graph
        whose last variables have no edge needs the sequence.
    scale : float
        Standard deviation of every entry, at least 0.
    seed : int
        Seed of the generator, at least 0.

    Raises
    ------
    ValueError
        If an edge, a state count, the scale or the seed is not valid.

    Examples
    --------
    >>> random_tables([(0, 1), (2, 1)], [2, 3, 4], scale=0.5, seed=0)
    MarkovRandomField(3 variables of 2 to 4 states, 2 edges)
    """
    pairs = as_edges(edges)
    if as_array("num_states", num_states, "be a number or a vector of whole numbers").ndim == 0:
        states = check_count("num_states", num_states, least=1)
        count = int(pairs.max()) + 1 if len(pairs) else 0
        check_model_memory(count, count * states, len(pairs), len(pairs) * states**2)
        counts = np.full(count, states, dtype=np.int64)
    else:
        counts = as_state_counts(num_states)
        pairs = as_edges(pairs, len(counts))
    distinct = np.unique(np.sort(pairs, axis=1), axis=0)
    num_entries = offsets_of(counts)[-1], offsets_of(counts[distinct[:, 0]] * counts[distinct[:, 1]])[-1]
    check_model_memory(len(counts), int(num_entries[0]), len(distinct), int(num_entries[1]))
    deviation = check_positive("scale", scale, or_zero=True)
    rng = np.random.default_rng(check_seed(seed))
    with np.errstate(over="ignore"):  # infinite entries are refused by the model
        unary = deviation * rng.standard_normal(num_entries[0])
        tables = deviation * rng.standard_normal(num_entries[1])
    return MarkovRandomField(counts, unary, distinct, tables)


def _random_model(
    edges: IntArray, n: int, potts: int | None, coupling_max: float, attractive: bool, field_max: float, seed: int
) -> MarkovRandomField:
    """A Potts model of some states, or an Ising model, with uniform fields and couplings on a graph."""
    states = potts or 2
    attractive = check_flag("attractive", attractive)
    check_model_memory(n, n * states, len(edges), len(edges) * states**2)
    rng = np.random.default_rng(check_seed(seed))
    # Scaled from [0, 1) by hand: Generator.uniform overflows when the width of the interval does.
    fields = 2.0 * rng.random((n, states) if potts else n) - 1.0
    fields *= check_positive("field_max", field_max, or_zero=True)
    couplings = rng.random(len(edges)) if attractive else 2.0 * rng.random(len(edges)) - 1.0
    couplings *= check_positive("coupling_max", coupling_max, or_zero=True)
    if potts:
        return MarkovRandomField.potts(edges, couplings, states, fields)
    return MarkovRandomField.ising(edges, couplings, fields)


def _graph_seed(seed: int) -> int:
    """The seed of a random graph: with the plain seed, graph and fields would be read off the same numbers."""
    return int(np.random.SeedSequence(check_seed(seed), spawn_key=(1,)).generate_state(1, np.uint64)[0])
