"""Conditional random fields: labels of the nodes of chains, grids and other graphs, from features."""

from __future__ import annotations

from fastmix.crf.conditional_random_field import ConditionalRandomField
from fastmix.crf.graph import Graph
from fastmix.crf.result import ConditionalFit

__all__ = ["ConditionalFit", "ConditionalRandomField", "Graph"]
