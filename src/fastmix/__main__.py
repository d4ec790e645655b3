"""``python -m fastmix`` is the command line, and so is the command ``fastmix``."""

from fastmix._stopping import listen

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interrupt while it is loaded, which takes a moment, is no traceback."""
    listen()
    from fastmix.cli import main as run

    run()


if __name__ == "__main__":
    main()
