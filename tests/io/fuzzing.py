"""Damage to files, and the agreement of a fast reader with a slow one on what is left of them."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fastmix.errors import FormatError
from oracle import RefusedError


def mutate(
    data: bytes, rng: random.Random, pool: Sequence[bytes], *, words: bytes, letters: bytes, mark: bytes
) -> bytes:
    """The data with words, bytes or lines lost, doubled, exchanged or replaced; ``mark`` begins a comment."""
    pieces = re.findall(words, data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.randrange(9)
        k = rng.randrange(len(pieces)) if pieces else 0
        if kind == 0 and pieces:
            del pieces[k]
        elif kind == 1 and pieces:
            pieces.insert(k, pieces[k])
        elif kind in (2, 3) and pieces:
            pieces[k] = rng.choice(pool)
        elif kind == 4:
            pieces.insert(k, b" " + rng.choice(pool) + b" ")
        elif kind == 5 and pieces:
            j = rng.randrange(len(pieces))
            pieces[k], pieces[j] = pieces[j], pieces[k]
        elif kind == 6:
            whole = b"".join(pieces)
            pieces = [whole[: rng.randrange(len(whole) + 1)]]
        elif kind == 7:
            changed = bytearray(b"".join(pieces))
            if changed:
                changed[rng.randrange(len(changed))] = rng.choice(letters)
            pieces = [bytes(changed)]
        else:
            lines = b"".join(pieces).splitlines(keepends=True)
            if lines:
                line = rng.randrange(len(lines))
                lines[line : line + 1] = rng.choice([[], [lines[line]] * 2, [mark + lines[line]]])
            pieces = lines
    return b"".join(pieces)


def agree(
    slow: Callable[[], Any],
    fast: Callable[[], Any],
    assert_same: Callable[[Any, Any], None],
    *,
    message: str,
    refusals: tuple[type[Exception], ...] = (FormatError,),
) -> tuple[Any, str]:
    """What the fast reader gives and says, None if both refuse; an AssertionError if they disagree."""
    expected, found, said = None, None, ""
    with contextlib.suppress(RefusedError):
        expected = slow()
    try:
        found = fast()
    except refusals as error:
        said = str(error)
    if found is None:
        assert expected is None, f"refused by the fast reader only: {said}"
        assert re.match(message, said), said
        return None, said
    assert expected is not None, "accepted by the fast reader only"
    assert_same(expected, found)
    return found, said


def assert_can_fail(
    check: Callable[[bytes], bool], data: bytes, wrong: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check takes the data and refuses them with a word more; with another reader at ``place`` it fails."""
    assert check(data)
    assert not check(data + b"1")
    monkeypatch.setattr(place, lambda *_: wrong)
    with pytest.raises(AssertionError):
        check(data)
    with pytest.raises(AssertionError, match=r"accepted.* fast"):
        check(data + b"1")

    def refuse(*_: object) -> None:
        raise FormatError("f.bif:1: no")

    monkeypatch.setattr(place, refuse)
    with pytest.raises(AssertionError, match=r"refused.* fast"):
        check(data)
