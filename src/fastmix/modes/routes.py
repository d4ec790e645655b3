"""The routes to the most probable configuration: their registry, and the protocol that each of them follows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Protocol, TypeVar

import numpy as np

from fastmix._checks import check_choice, describe
from fastmix._clock import OutOfTimeError
from fastmix._registry import Registry
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.modes.cut_route import CutRoute
from fastmix.modes.exact_route import ExactRoute
from fastmix.modes.expansion_route import ExpansionRoute
from fastmix.modes.message_route import MessageRoute
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.search_route import SearchRoute
from fastmix.modes.swap_route import SwapRoute
from fastmix.modes.toulbar2_route import Toulbar2Route

__all__ = ["AUTO_ORDER", "ROUTES", "Route", "check_route", "find_by_route", "register_route"]


class Route(Protocol):
    """A way to find a configuration of large probability, and a bound on the largest."""

    @property
    def name(self) -> str:
        """The word by which ``most_probable(method=...)`` knows it."""

    @property
    def is_final(self) -> bool:
        """Whether ``auto`` ends with what the route finds; otherwise it goes on from there."""

    def find(self, run: ModeRun) -> None:
        """Offer configurations and bounds to a run, which has one to begin with, until that is over.

        Raises
        ------
        UnfitMethodError, ResourceError
            If the route is not for this model, or needs more memory or time than there is.
        OutOfTimeError
            If the time is over before there is anything to offer.
        """


R = TypeVar("R", bound=Route)

ROUTES: Registry[Route] = Registry("route", "fastmix.routes", reserved=("auto",))

#: What ``auto`` tries, one after another.
AUTO_ORDER = ("cut", "exact", "messages", "toulbar2", "expansion", "swap", "search")


def register_route(route: R) -> R:
    """Add a route to those that :func:`fastmix.most_probable` can be asked for by name.

    Parameters
    ----------
    route : Route
        An object with ``name``, ``is_final`` and a method ``find(run)``, see :class:`Route`.

    Returns
    -------
    Route
        The route itself.

    Raises
    ------
    TypeError
        If it has no name or nothing to call.
    ValueError
        If another route has the name.
    """
    if not callable(getattr(route, "find", None)):
        raise TypeError(f"route must have a name and a function find, got {describe(route)}")
    ROUTES.add(route)
    return route


# A new route in the package is a file of its own and a line here.
register_route(ExactRoute())
register_route(CutRoute())
register_route(MessageRoute())
register_route(Toulbar2Route())
register_route(ExpansionRoute())
register_route(SwapRoute())
register_route(SearchRoute())


def check_route(name: object) -> None:
    """A ValueError where ``most_probable(method=...)`` takes no such name; routes of other packages are loaded."""
    ROUTES.find(name)
    check_choice("method", name, ("auto", *ROUTES))


def find_by_route(name: str, run: ModeRun, *, without: Collection[str] = ()) -> str:
    """The name of the route by which a configuration was found: the one asked for, or that with which ``auto`` ended.

    All begin with the best states of the unaries and, but for a cut, which is fast, with a descent from there, so that
    there is an answer when the time is over. ``auto`` leaves out the routes ``without``.
    """
    if not run.model.num_variables:
        run.settle(np.zeros(0, dtype=np.int64))
        return "exact"
    run.is_alone = name != "auto"
    run.begin()
    if run.is_alone:
        if name != "cut":
            run.start_descent()
        with contextlib.suppress(OutOfTimeError):  # what the descent found is the answer then
            ROUTES[name].find(run)
        return name
    for candidate in AUTO_ORDER[:-1]:
        if candidate in without:
            continue
        route = ROUTES[candidate]
        if candidate != "cut":
            run.start_descent()
        try:
            route.find(run)
        except (OutOfTimeError, UnfitMethodError, ResourceError):
            continue
        if route.is_final or run.is_over:
            return candidate
    ROUTES[AUTO_ORDER[-1]].find(run)
    return AUTO_ORDER[-1]
