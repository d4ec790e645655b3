"""What is added to an objective: the ridge, the l1 term of whole tables, and a set to stay in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.errors import Interrupted, NotConvergedError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.result import NormBall
from fastmix.learning.scaling import Scaling
from fastmix.model import MarkovRandomField
from fastmix.projection import project

__all__ = ["Ball", "BallProjection", "Penalty", "shrink_tables", "table_norms"]


class Ball(Protocol):
    """From v to the closest v within a set of tables; the rest stays."""

    memory: FloatArray | None  # what the next projection begins with

    def __call__(self, v: FloatArray) -> FloatArray:
        """The closest v within the set."""


@dataclass(frozen=True, eq=False)
class Penalty:
    """``ridge/2 |v|^2 + l1 sum_e |C_e|``, and a set to stay in; never a set and an l1 term together."""

    ridge: float = 0.0
    l1: float = 0.0
    ball: Ball | None = None

    @property
    def is_smooth(self) -> bool:
        """Whether there is but a ridge."""
        return self.ball is None and not self.l1

    def table_cost(self, coordinates: Coordinates, v: FloatArray) -> float:
        """The l1 term at v."""
        return self.l1 * float(table_norms(coordinates, v).sum()) if self.l1 else 0.0

    def into_set(self, v: FloatArray) -> FloatArray:
        """The closest v within the set, or v itself if there is none."""
        return v if self.ball is None else self.ball(v)

    def backward(self, scaling: Scaling, z: FloatArray, lipschitz: float) -> FloatArray:
        """The proximal step from z for the l1 term or the set, after a step of length ``1 / lipschitz``."""
        if self.ball is not None:
            return scaling.from_v(self.ball(scaling.to_v(z)))
        by = self.l1 * scaling.scales[scaling.coordinates.num_contrasts :] / lipschitz
        return shrink_tables(scaling.coordinates, z, by)


def table_norms(coordinates: Coordinates, v: FloatArray) -> FloatArray:
    """Frobenius norm of every table, (m,); ``2 |J|`` for an Ising coupling."""
    squares = v[coordinates.num_contrasts :] ** 2
    return np.sqrt(np.bincount(coordinates.edge_of, squares, coordinates.structure.num_edges))


def shrink_tables(coordinates: Coordinates, v: FloatArray, by: FloatArray | float) -> FloatArray:
    """V with the norms of all tables reduced, to 0 at least, by a number or by one for each entry, equal in a table."""
    norms = table_norms(coordinates, v)[coordinates.edge_of]
    result = v.copy()
    # No quotient where the table vanishes: a small norm would make it overflow.
    shares = np.divide(by, norms, out=np.ones_like(norms), where=norms > by)
    result[coordinates.num_contrasts :] *= 1.0 - shares
    return result


class BallProjection:
    """The Euclidean projection of tables onto a set, begun where the last one ended.

    The centered vectors b of v stay as they are, so that it is Euclidean in (b, C).
    """

    def __init__(self, template: MarkovRandomField, within: NormBall, scaling: Scaling) -> None:
        self.template = template
        self.within = within
        self.scaling = scaling
        self.memory: FloatArray | None = None

    def __call__(self, v: FloatArray) -> FloatArray:
        """The closest v within the set."""
        coordinates = self.scaling.coordinates
        model = self.template.with_parameters(coordinates.to_parameters(v))
        try:
            result = project(
                model, norm_bound=self.within.bound, norm=self.within.norm, warm_start=self.memory, progress=None
            )
        except NotConvergedError as error:
            result = error.result  # inside, but not quite the closest
        except Interrupted:  # whose result is none of this call
            raise KeyboardInterrupt from None
        if result.model is not model:
            self.memory = result.multipliers
        projected, _ = coordinates.from_parameters(result.model.parameters)
        d = coordinates.num_contrasts
        z = self.scaling.from_v(v)
        z[d:] = projected[d:] / self.scaling.scales[d:]
        return self.scaling.to_v(z)
