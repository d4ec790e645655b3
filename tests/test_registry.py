"""The registry behind register_method and its kin: names are taken once, and classes can be defined again."""

from __future__ import annotations

from typing import Any

import pytest

import fastmix
from fastmix._registry import Registry


class Coin:
    """An entry, with the name it is given."""

    def __init__(self, name: Any = "coin") -> None:
        self.name = name


def test_entries_are_found_by_name_in_their_order() -> None:
    registry: Registry[Any] = Registry("coin", "fastmix.coins", reserved=("auto",))
    first = registry.add(Coin())
    second = registry.add(Coin("euro"))
    assert list(registry) == ["coin", "euro"]
    assert (registry["coin"], registry.find("euro"), registry.find("yen"), registry.find(3)) == (
        first, second, None, None
    )  # fmt: skip
    with pytest.raises(KeyError):
        registry["yen"]


def test_reserved_names_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **which: asked.append(which) or ())
    registry: Registry[Any] = Registry("coin", "fastmix.coins", reserved=("auto",))
    assert registry.find("auto") is None
    assert asked == []
    assert registry.find("yen") is None
    assert asked == [{"group": "fastmix.coins", "name": "yen"}]


def test_a_name_is_taken_once_and_a_class_can_be_defined_again() -> None:
    registry: Registry[Any] = Registry("coin", "fastmix.coins", reserved=("auto",))
    registry.add(Coin())
    again = registry.add(Coin())
    assert registry["coin"] is again
    other = type("Other", (), {"name": "coin"})
    for entry in (other, Coin("auto")):
        with pytest.raises(ValueError, match=r"name .*coin"):
            registry.add(entry)
    for entry in (Coin(""), Coin(None), 3):
        with pytest.raises(TypeError, match="coin"):
            registry.add(entry)


@pytest.mark.parametrize("name", [name for name in fastmix.__all__ if name.startswith("register_")])
def test_what_is_no_entry_is_refused(name: str) -> None:
    register = getattr(fastmix, name)
    with pytest.raises((TypeError, ValueError)):
        register(3) if name != "register_answer" else register(3, print)
