"""Models from graphs of networkx."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest

from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField

INF = math.inf
NAN = math.nan


# -- networkx -------------------------------------------------------------------------------------------------------


class TestNetworkx:
    def test_ising_attributes(self) -> None:
        graph = nx.Graph()
        graph.add_node("a", field=0.5)
        graph.add_node("b")
        graph.add_node("c", field=-1.0)
        graph.add_edge("b", "a", coupling=0.25)
        graph.add_edge("c", "b", coupling=2)
        expected = MarkovRandomField.ising([(0, 1), (1, 2)], [0.25, 2.0], [0.5, 0.0, -1.0], variable_names=list("abc"))
        assert MarkovRandomField.from_networkx(graph) == expected

    def test_potts_attributes(self) -> None:
        graph = nx.path_graph(2)
        nx.set_node_attributes(graph, {0: [0, 1, 2], 1: [3, 4, 5]}, "log_unary")
        graph.edges[0, 1]["coupling"] = 1.5
        expected = MarkovRandomField.potts([(0, 1)], 1.5, 3, [[0, 1, 2], [3, 4, 5]], variable_names=["0", "1"])
        assert MarkovRandomField.from_networkx(graph) == expected

    @pytest.mark.parametrize("swap", [False, True])
    def test_rows_belong_to_the_earlier_node_of_an_undirected_graph(self, swap: bool) -> None:
        graph = nx.Graph()
        graph.add_node("x", log_unary=[0, 0])
        graph.add_node("y", log_unary=[0, 0, 0])
        table = np.arange(6.0).reshape(2, 3)
        graph.add_edge(*(("y", "x") if swap else ("x", "y")), log_pairwise=table)
        assert MarkovRandomField.from_networkx(graph).table("x", "y").tolist() == table.tolist()

    def test_rows_belong_to_the_source_of_a_directed_edge(self) -> None:
        graph = nx.DiGraph()
        graph.add_node("x", log_unary=[0, 0])
        graph.add_node("y", log_unary=[0, 0, 0])
        table = np.arange(6.0).reshape(3, 2)
        graph.add_edge("y", "x", log_pairwise=table)
        assert MarkovRandomField.from_networkx(graph).table("y", "x").tolist() == table.tolist()

    def test_parallel_and_opposite_edges_are_added_up(self) -> None:
        multi = nx.MultiGraph()
        multi.add_edges_from([(0, 1, {"coupling": 1.0}), (1, 0, {"coupling": 2.0})])
        directed = nx.DiGraph()
        directed.add_edges_from([(0, 1, {"coupling": 1.0}), (1, 0, {"coupling": 2.0})])
        expected = MarkovRandomField.ising([(0, 1)], 3.0, variable_names=["0", "1"])
        assert MarkovRandomField.from_networkx(multi) == MarkovRandomField.from_networkx(directed) == expected

    def test_empty_graph(self) -> None:
        assert MarkovRandomField.from_networkx(nx.Graph()).num_variables == 0

    @pytest.mark.parametrize(
        ("nodes", "edge", "message"),
        [
            ({}, {}, r"^edge \('a', 'b'\) .*got \[\]"),
            ({}, {"weight": 1.0}, r"^edge \('a', 'b'\) .*got \['weight'\]"),
            ({}, {"coupling": "x"}, r"^coupling of edge \('a', 'b'\) .*got 'x'"),
            ({}, {"coupling": INF}, r"^coupling of edge \('a', 'b'\) .*got inf"),
            ({}, {"coupling": [1.0]}, r"^coupling of edge \('a', 'b'\) .*got \[1\.0\]"),
            ({"field": NAN}, {"coupling": 1.0}, r"^field of node 'a' .*got nan"),
            ({"log_unary": 1.0}, {"coupling": 1.0}, r"^edge \('a', 'b'\) .* 1 and 2 states.*log_pairwise"),
            (
                {"log_unary": [0, 0, 0]},
                {"coupling": 1.0},
                r"^edge \('a', 'b'\) .* 3 and 2 states.*log_pairwise",
            ),
            ({"log_unary": ["x"]}, {"coupling": 1.0}, r"^log_unary of node 'a' .*got \['x'\]"),
            ({}, {"log_pairwise": [[0, 0]]}, r"^log_pairwise\[0\] .*edge \(0, 1\) .*\(2, 2\)"),
            ({}, {"log_pairwise": "x"}, r"^log_pairwise of edge \('a', 'b'\) .*got 'x'"),
        ],
    )
    def test_refusals(self, nodes: dict[str, object], edge: dict[str, object], message: str) -> None:
        graph = nx.Graph()
        graph.add_node("a", **nodes)
        graph.add_edge("a", "b", **edge)
        with pytest.raises(ModelError, match=message):
            MarkovRandomField.from_networkx(graph)

    def test_infinite_potts_coupling(self) -> None:
        graph = nx.path_graph(2)
        nx.set_node_attributes(graph, [0.0, 0.0, 0.0], "log_unary")
        graph.edges[0, 1]["coupling"] = INF
        with pytest.raises(ModelError, match=r"^coupling .*got inf"):
            MarkovRandomField.from_networkx(graph)

    def test_self_loop(self) -> None:
        graph = nx.Graph([(0, 0, {"coupling": 1.0})])
        with pytest.raises(ModelError, match=r"^edges .*\(0, 0\)"):
            MarkovRandomField.from_networkx(graph)

    def test_names_that_read_the_same(self) -> None:
        graph = nx.Graph([(1, "1", {"coupling": 1.0})])
        with pytest.raises(ModelError, match=r"^variable_names .*got '1'"):
            MarkovRandomField.from_networkx(graph)
