"""Libraries that only some parts need."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str) -> Any:
    """The module of that name.

    Raises
    ------
    ImportError
        If it is not installed; one line that names the extra to install.

    Examples
    --------
    >>> require("no_such_module", extra="plot", purpose="figures")
    Traceback (most recent call last):
        ...
    ImportError: figures need no_such_module: pip install 'fastmix[plot]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # it is installed, and something it needs is not
        root = module.split(".")[0]
        raise ImportError(f"{purpose} need {root}: pip install 'fastmix[{extra}]'", name=root) from None
