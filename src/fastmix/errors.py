"""The exceptions of fastmix, all derived from :class:`FastmixError`."""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "BadFileError", "FastmixError", "FormatError", "ImpossibleEvidenceError", "ImpossibleModelError", "Interrupted",
    "ModelError", "NotConvergedError", "ResourceError", "UnfitMethodError", "printable", "shortened",
]  # fmt: skip

# What moves the cursor, colors or reorders a terminal's text, and half characters that it cannot be sent.
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

_LONGEST = 1000  # characters of a message


def printable(text: str) -> str:
    """Text from outside (names of files, variables and states) as it may be shown: control characters are escaped."""
    return _NOT_SHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shortened(text: str) -> str:
    """A message of a length that can be read: the middle of one of more than 1,000 characters is left out.

    What is wrong and where stands at its ends; long names, which files may have of any length, stand between.

    Examples
    --------
    >>> len(shortened(100_000 * "a"))
    1000
    """
    if len(text) <= _LONGEST:
        return text
    gap = f" .. {len(text):,} characters .. "
    tail = _LONGEST // 4
    return text[: _LONGEST - len(gap) - tail] + gap + text[-tail:]


class FastmixError(Exception):
    """Base of every error that fastmix raises on purpose; its message is cut to a length that can be read."""

    def __init__(self, message: object = "", *others: Any) -> None:
        super().__init__(shortened(message) if isinstance(message, str) else message, *others)


class ModelError(FastmixError, ValueError):
    """A model, or an argument that describes one, is not valid."""


class ImpossibleEvidenceError(ModelError):
    """The evidence has probability zero under the model."""


class ImpossibleModelError(ModelError):
    """No configuration of the model has positive probability, Z = 0: there is nothing to draw or to maximize over.

    :func:`fastmix.infer` by a method without draws returns that as its answer (``log_z_kind`` is ``zero``).
    """


class BadFileError(FastmixError):
    """The command line cannot use an input file; the message says which and why."""


class FormatError(FastmixError, ValueError):
    """A file does not follow its format; the message starts with ``path:line``."""


class ResourceError(FastmixError, MemoryError):
    """A request needs more memory or time than allowed; nothing was allocated.

    Attributes
    ----------
    required_bytes, limit_bytes : int or None
        What the request would need and what was allowed.
    treewidth : int or None
        Width of the elimination order behind the estimate, for exact inference.
    """

    def __init__(
        self,
        message: str,
        *,
        required_bytes: int | None = None,
        limit_bytes: int | None = None,
        treewidth: int | None = None,
    ) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.limit_bytes = limit_bytes
        self.treewidth = treewidth


class UnfitMethodError(FastmixError, ValueError):
    """What was asked for cannot be done with this model; the message says why and what to use instead."""


class NotConvergedError(FastmixError, RuntimeError):
    """An iteration stopped before its guarantee held.

    Attributes
    ----------
    result : object
        The best result reached, of the type the call would have returned.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class Interrupted(KeyboardInterrupt):  # no error: the user's wish
    """Ctrl-C ended a run; a loop over models stops, and what there was is not lost.

    Attributes
    ----------
    result : object
        The result so far, of the type the call would have returned, with the status ``interrupted``; None where
        there was nothing to report yet.
    """

    def __init__(self, message: str = "interrupted", result: Any = None) -> None:
        super().__init__(message)
        self.result = result
