"""How strongly variables depend on each other, and what follows from it: certificates and intervals."""

__all__: list[str] = []
