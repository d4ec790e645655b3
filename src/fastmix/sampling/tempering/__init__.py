"""Replica exchange: marginals and log Z of models in which single chains get stuck."""

__all__: list[str] = []
