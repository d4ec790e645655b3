"""Proven bounds on log Z and on marginals that need no mixing."""

__all__: list[str] = []
