"""Exact inference: enumeration, the junction tree, exact draws."""

from __future__ import annotations

from fastmix.exact.draw_exact import draw_exact
from fastmix.exact.elimination import ModelElimination, plan_model_elimination
from fastmix.exact.enumeration import Enumeration, enumerate_model
from fastmix.exact.solver import ExactPlan, ExactResult, infer_exact, plan_exact

__all__ = [
    "Enumeration",
    "ExactPlan",
    "ExactResult",
    "ModelElimination",
    "draw_exact",
    "enumerate_model",
    "infer_exact",
    "plan_exact",
    "plan_model_elimination",
]
