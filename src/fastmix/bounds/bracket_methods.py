"""The registry of ways to find a bracket, and the protocol that each of them follows."""

from __future__ import annotations

from typing import Protocol, TypeVar

from fastmix._checks import check_choice, describe
from fastmix._registry import Registry
from fastmix.bounds.bracket_run import BracketRun
from fastmix.bounds.exact_bounds import ExactBounds
from fastmix.bounds.split_bounds import SplitBounds
from fastmix.errors import ResourceError

__all__ = ["AUTO_ORDER", "BRACKETS", "BracketMethod", "check_bracket_method", "register_bracket", "run_bracket_method"]


class BracketMethod(Protocol):
    """A way to find proven bounds on log Z and on marginals."""

    @property
    def name(self) -> str:
        """The word by which ``bracket(method=...)`` knows it."""

    def find(self, run: BracketRun) -> None:
        """Offer bounds to a run, the first ones soon, until its clock is past or nothing is gained.

        Raises
        ------
        ResourceError, UnfitMethodError
            If the method needs more memory or time than there is, or is not for this model.
        """


M = TypeVar("M", bound=BracketMethod)

BRACKETS: Registry[BracketMethod] = Registry("bracket", "fastmix.brackets", reserved=("auto",))

#: What ``auto`` tries, each where those before it take too much memory or time.
AUTO_ORDER = ("exact", "split")


def register_bracket(bracket: M) -> M:
    """Add a way to find a bracket to those that :func:`fastmix.bracket` can be asked for by name.

    Parameters
    ----------
    bracket : BracketMethod
        An object with a ``name`` and a method ``find(run)``, see :class:`BracketMethod`.

    Returns
    -------
    BracketMethod
        The bracket itself.

    Raises
    ------
    TypeError
        If it has no name or nothing to call.
    ValueError
        If another bracket has the name.
    """
    if not callable(getattr(bracket, "find", None)):
        raise TypeError(f"bracket must have a name and a function find, got {describe(bracket)}")
    BRACKETS.add(bracket)
    return bracket


# A new bracket in the package is a file of its own and a line here.
register_bracket(ExactBounds())
register_bracket(SplitBounds())


def check_bracket_method(name: object) -> None:
    """A ValueError where ``bracket(method=...)`` takes no such name; a bracket of another package is loaded for it."""
    BRACKETS.find(name)
    check_choice("method", name, ("auto", *BRACKETS))


def run_bracket_method(name: str, run: BracketRun) -> None:
    """Find bounds by the method of this name; ``auto`` takes the first of :data:`AUTO_ORDER` that fits."""
    if name != "auto":
        BRACKETS[name].find(run)
        return
    for candidate in AUTO_ORDER[:-1]:
        try:
            BRACKETS[candidate].find(run)
        except ResourceError:
            continue
        return
    BRACKETS[AUTO_ORDER[-1]].find(run)
