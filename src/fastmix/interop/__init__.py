"""Models of neighboring packages: :func:`convert` to and from them; one small file for each, imported when used.

A module here has ``read(object, **options)``, which gives a :class:`fastmix.MarkovRandomField` or a
:class:`fastmix.model.network.BayesianNetwork`, and ``write(model, **options)``, which takes one of the two.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastmix._checks import check_choice, describe
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = ["NEIGHBORS", "convert"]

NEIGHBORS = ("pgmpy", "pyagrum", "dimod", "networkx")


def convert(source: Any, *, to: str = "fastmix", **options: Any) -> Any:
    """A model of a neighboring package as one of fastmix, or the other way round.

    Parameters
    ----------
    source : object
        Of pgmpy (``DiscreteMarkovNetwork``, ``DiscreteBayesianNetwork``), pyAgrum (``MarkovRandomField``,
        ``BayesNet``), dimod (``BinaryQuadraticModel``) or networkx (a graph, see
        :meth:`fastmix.MarkovRandomField.from_networkx`); or a model or Bayesian network of fastmix. A model that was
        made of a network, by its ``to_model`` or read from a file, counts as that network.
    to : {"fastmix", "network", "pgmpy", "pyagrum", "dimod", "networkx"}
        What to make: a :class:`fastmix.MarkovRandomField`; ``network`` keeps a Bayesian network one
        (:class:`fastmix.BayesianNetwork`); or an object of the package named.
    **options
        ``temperature`` (1.0) from and to dimod, whose energies have the opposite sign of our log-potentials:
        ``p(x) = exp(-energy(x) / temperature) / Z``.

    Returns
    -------
    MarkovRandomField, BayesianNetwork or an object of the package
        Names of variables and of states are kept.

    Raises
    ------
    TypeError
        If no neighbor knows the object.
    ModelError
        If the other side cannot hold it: dimod has binary variables and pairs only.
    ImportError
        If the package asked for is not installed.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = convert(MarkovRandomField.ising([(0, 1)], coupling=0.5), to="networkx")
    >>> convert(graph).table(0, 1).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    >>> coin = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.5, 0.5]])
    >>> convert(coin.to_model(), to="network")
    BayesianNetwork(1 variable, 0 arcs, 2 table entries)
    """
    check_choice("to", to, ("fastmix", "network", *NEIGHBORS))
    if isinstance(source, MarkovRandomField | BayesianNetwork):
        found: Any = source
    else:
        roots = {base.__module__.partition(".")[0].lower() for base in type(source).__mro__}
        names = [name for name in NEIGHBORS if name in roots]
        if not names:
            raise TypeError(
                f"convert needs a model of {', '.join(NEIGHBORS)} or fastmix, got {describe(source)}, "
                f"a {type(source).__module__}.{type(source).__qualname__}"
            )
        found = import_module(f"fastmix.interop.{names[0]}").read(source, **options)
        options = {}
    if to == "fastmix":
        return found.to_model() if isinstance(found, BayesianNetwork) else found
    if to != "dimod" and isinstance(found, MarkovRandomField) and found.network is not None:
        found = found.network
    if to == "network":
        if not isinstance(found, BayesianNetwork):
            raise TypeError(f"to must be fastmix for a model that is no Bayesian network, got {to!r}")
        return found
    if isinstance(found, BayesianNetwork):
        found = found.dense()
    return import_module(f"fastmix.interop.{to}").write(found, **options)
