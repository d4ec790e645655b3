"""The command line: ``python -m fastmix`` and the command ``fastmix`` both begin here."""

from fastmix._stopping import ignore, listen

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interrupt while it loads ends the process without a traceback."""
    listen()  # before the imports, which take a moment
    try:
        from fastmix.cli import main as run

        run()
    finally:
        ignore()  # the answer is out, and the exit code is known


if __name__ == "__main__":
    main()
