"""Samplers of configurations: Gibbs, Swendsen-Wang, perfect draws, annealing and replica exchange."""

__all__: list[str] = []
