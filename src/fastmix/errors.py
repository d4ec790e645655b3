"""The exceptions of fastmix, all derived from :class:`FastmixError`."""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "BadFileError", "FastmixError", "FormatError", "ImpossibleEvidenceError", "ImpossibleModelError", "Interrupted",
    "ModelError", "NotConvergedError", "ResourceError", "UnfitMethodError", "printable", "shortened",
]  # fmt: skip

# Characters that move the cursor, color or reorder the text of a terminal, and lone surrogates, which cannot be shown.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

MAX_MESSAGE_LENGTH = 1000  #: characters of a message


def printable(text: str) -> str:
    """The text with control characters escaped, so that names from files cannot disturb a terminal."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shortened(text: str) -> str:
    """The message, without its middle if it has more than 1,000 characters.

    The beginning and the end say what is wrong and where; the middle may hold names from files, which can be of any
    length.

    Examples
    --------
    >>> len(shortened(100_000 * "a"))
    1000
    """
    if len(text) <= MAX_MESSAGE_LENGTH:
        return text
    gap = f" .. {len(text):,} characters .. "
    tail = MAX_MESSAGE_LENGTH // 4
    head = MAX_MESSAGE_LENGTH - len(gap) - tail
    return text[:head] + gap + text[-tail:]


class FastmixError(Exception):
    """Base of every error that fastmix raises on purpose; long messages lose their middle."""

    def __init__(self, message: object = "", *others: Any) -> None:
        super().__init__(shortened(message) if isinstance(message, str) else message, *others)


class ModelError(FastmixError, ValueError):
    """A model, or an argument that describes one, is not valid."""


class ImpossibleEvidenceError(ModelError):
    """The evidence has probability zero under the model."""


class ImpossibleModelError(ModelError):
    """No configuration of the model has positive probability (Z = 0), so there is nothing to draw or to maximize.

    Methods of :func:`fastmix.infer` that need no draws return this as their answer instead: ``log_z_kind`` is ``zero``.
    """


class BadFileError(FastmixError):
    """The command line cannot use an input file; the message says which file and why."""


class FormatError(FastmixError, ValueError):
    """A file does not follow its format; the message starts with ``path:line``."""


class ResourceError(FastmixError, MemoryError):
    """A request needs more memory or time than allowed; nothing was allocated.

    Attributes
    ----------
    required_bytes, limit_bytes : int or None
        Bytes that the request would need, and bytes that were allowed.
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
    """The method cannot be used with this model; the message says why and what to use instead."""


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


class Interrupted(KeyboardInterrupt):  # not an Exception, so that a loop over models stops too
    """Ctrl-C ended a run; the exception holds the result so far.

    Attributes
    ----------
    result : object
        The result so far, of the type the call would have returned, with the status ``interrupted``; None if there
        was nothing to report yet.
    """

    def __init__(self, message: str = "interrupted", result: Any = None) -> None:
        super().__init__(message)
        self.result = result
