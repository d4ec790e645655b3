"""Configurations of large probability: allowed ones, local maxima, and the most probable of all."""

__all__: list[str] = []
