"""Learning on NVIDIA GPUs."""

__all__: list[str] = []
