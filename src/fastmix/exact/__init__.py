"""Exact inference: enumeration, the junction tree, exact draws."""

from __future__ import annotations

from fastmix.exact.enumeration import Enumeration, enumerate_model
from fastmix.exact.junction_tree import JunctionTree, plan_junction_tree
from fastmix.exact.solver import ExactPlan, ExactResult, draw_exact, infer_exact, plan_exact

__all__ = [
    "Enumeration",
    "ExactPlan",
    "ExactResult",
    "JunctionTree",
    "draw_exact",
    "enumerate_model",
    "infer_exact",
    "plan_exact",
    "plan_junction_tree",
]
