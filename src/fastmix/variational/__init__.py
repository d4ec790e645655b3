"""Mean field and loopy belief propagation."""

__all__: list[str] = []
