"""Many configurations side by side: the engines of all samplers, on the CPU and on NVIDIA GPUs."""

__all__: list[str] = []
