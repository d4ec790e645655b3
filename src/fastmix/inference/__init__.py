"""Marginals of a model: the choice of a method, comparisons, and projection before sampling."""

__all__: list[str] = []
