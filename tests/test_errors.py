"""Exceptions: what they are besides, what they hold, and texts that no terminal minds."""

from __future__ import annotations

import pytest

import fastmix
from fastmix import errors
from fastmix.errors import MAX_MESSAGE_LENGTH, printable, shortened


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.ModelError, ValueError),
        (errors.ImpossibleEvidenceError, errors.ModelError),
        (errors.ImpossibleModelError, errors.ModelError),
        (errors.FormatError, ValueError),
        (errors.ResourceError, MemoryError),
        (errors.UnfitMethodError, ValueError),
        (errors.NotConvergedError, RuntimeError),
        (errors.BadFileError, errors.FastmixError),
    ],
)
def test_every_error_is_ours_and_one_that_callers_know(kind: type[errors.FastmixError], also: type[Exception]) -> None:
    assert issubclass(kind, also)
    with pytest.raises(fastmix.FastmixError, match=r"^why$"):
        raise kind("why")


def test_an_interrupt_is_no_error() -> None:
    """A loop that passes over errors must not pass over Ctrl-C."""
    assert issubclass(errors.Interrupted, KeyboardInterrupt)
    assert not issubclass(errors.Interrupted, Exception)
    assert errors.Interrupted().result is None
    assert errors.Interrupted("so far", 3).result == 3


def test_what_errors_hold() -> None:
    refused = errors.ResourceError("too large", required_bytes=10, limit_bytes=5, treewidth=3)
    assert (refused.required_bytes, refused.limit_bytes, refused.treewidth) == (10, 5, 3)
    assert errors.ResourceError("too slow").required_bytes is None
    assert errors.NotConvergedError("not yet", "what there is").result == "what there is"
    assert errors.NotConvergedError("not yet").result is None


@pytest.mark.parametrize("kind", [errors.ModelError, errors.ResourceError, errors.NotConvergedError])
def test_long_messages_keep_their_ends(kind: type[errors.FastmixError]) -> None:
    text = "path:3: " + "x" * 10**6 + "; use another"
    said = str(kind(text))
    assert len(said) == MAX_MESSAGE_LENGTH
    assert said.startswith("path:3: x")
    assert said.endswith("; use another")
    assert f"{len(text):,} characters" in said


def test_short_messages_stay() -> None:
    assert shortened("short") == "short"
    exact = "y" * MAX_MESSAGE_LENGTH
    assert shortened(exact) is exact
    assert errors.FastmixError(7).args == (7,)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äö 日本", "plain äö 日本"),
        ("a\x1b[31mred", r"a\x1b[31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\u202eback", r"\u202eback"),
        ("\ud800", r"\ud800"),
        ("\x7f\x85", r"\x7f\x85"),
        ("\ufeff", r"\ufeff"),
    ],
)
def test_nothing_moves_the_cursor(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
