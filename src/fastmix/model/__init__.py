"""The model: its structure, its parameters, how it is built, and how evidence makes it smaller."""

from fastmix.model.mrf import Evidence, MarkovRandomField, check_model, check_pairwise
from fastmix.model.structure import Structure

__all__ = ["Evidence", "MarkovRandomField", "Structure", "check_model", "check_pairwise"]
