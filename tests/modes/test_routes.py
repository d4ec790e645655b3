"""The registry of routes to the most probable configuration; one from outside is in tests/outsiders."""

from __future__ import annotations

from typing import Any

import pytest

import fastmix
from fastmix.modes.exact_route import ExactRoute
from fastmix.modes.routes import AUTO_ORDER, ROUTES


@pytest.mark.parametrize("route", [3, object(), type("Nameless", (ExactRoute,), {"name": ""})()])
def test_what_is_no_route_is_refused(route: Any) -> None:
    with pytest.raises(TypeError, match="route"):
        fastmix.register_route(route)


@pytest.mark.parametrize("name", ["auto", "exact"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        fastmix.register_route(type("Other", (ExactRoute,), {"name": name})())


def test_auto_tries_every_route() -> None:
    assert set(AUTO_ORDER) == set(ROUTES)
