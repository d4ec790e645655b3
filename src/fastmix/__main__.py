"""``python -m fastmix`` is the command line."""

from fastmix.cli import main

__all__: list[str] = []

main()
