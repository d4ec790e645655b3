"""``Loss``: the objective of a fit as a function of the weights, summed over blocks of examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.crf.design import Design, Layout
from fastmix.crf.examples import Examples
from fastmix.crf.objectives import ExactLikelihood, Objective, PseudoLikelihood, TreeLikelihood
from fastmix.crf.tuning import BLOCK_ENTRIES, EVALUATION_SECONDS
from fastmix.crf.within import SetOfModels
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.learning import NormBall

__all__ = ["Block", "Loss", "Moments", "ObjectiveName", "make_loss"]

ObjectiveName = Literal["likelihood", "pseudo-likelihood"]
Moments = Literal["auto", "exact", "sampled"]


@dataclass(eq=False)
class Block:
    """Some examples, what is minimized for them, and the set that their models are projected onto."""

    design: Design
    objective: Objective
    within: SetOfModels | None

    def evaluate(self, w: FloatArray, clock: Clock) -> tuple[float, FloatArray]:
        """The value at weights w, a sum over the examples, and its derivative (size,)."""
        design = self.design
        unary, tables = design.potentials(w)
        if self.within is None:
            value, for_unary, for_tables = self.objective.evaluate(unary, tables, design.table_of, clock)
            return value, design.pull(for_unary, for_tables)
        own = tables[design.table_of]
        projected = self.within.project(unary, own, clock)
        each = np.arange(len(own))
        value, for_unary, for_edges = self.objective.evaluate(unary, projected, each, clock)
        for_edges = self.within.pull(unary, own, for_edges, clock)
        for_tables = np.zeros_like(tables)
        np.add.at(for_tables, design.table_of, for_edges)
        return value, design.pull(for_unary, for_tables)


@dataclass(eq=False)
class Loss:
    """``mean over the examples of the objective + ridge/2 |w|^2``.

    Attributes
    ----------
    blocks : list of Block
        Of the examples whose objective is computed; others are sampled.
    sampled : Design or None
        The examples whose moments are sampled, if any.
    sampled_codes : int array
        Their labels.
    methods : str
        How moments are found, in words.
    """

    layout: Layout
    blocks: list[Block]
    num_examples: int
    ridge: float
    methods: str
    sampled: Design | None = None
    sampled_codes: IntArray | None = None
    sampled_within: SetOfModels | None = None

    def evaluate(self, w: FloatArray, clock: Clock) -> tuple[float, FloatArray]:
        """The value at weights w (size,), ridge included, and its derivative; without examples that are sampled."""
        value = 0.0
        gradient = np.zeros(self.layout.size)
        for block in self.blocks:
            clock.check()
            part, derivative = block.evaluate(w, clock)
            value += part
            gradient += derivative
        value = value / self.num_examples + 0.5 * self.ridge * float(w @ w)
        return value, gradient / self.num_examples + self.ridge * w

    @property
    def projection_seconds(self) -> float:
        """Seconds that projections took so far."""
        sets = [block.within for block in self.blocks if block.within is not None]
        sets += [] if self.sampled_within is None else [self.sampled_within]
        return sum(one.seconds for one in sets)


def make_loss(
    examples: Examples,
    codes: IntArray,
    layout: Layout,
    *,
    objective: ObjectiveName,
    moments: Moments,
    within: NormBall | None,
    ridge: float,
) -> Loss:
    """The objective of a fit; a :class:`ResourceError` where exact moments are asked for and do not fit."""
    trees = np.flatnonzero(examples.is_tree)
    others = np.flatnonzero(~examples.is_tree)
    loss = Loss(layout, [], len(examples), ridge, "none")

    def add(chosen: IntArray, make: Callable[[Examples, IntArray], Objective]) -> None:
        """Add examples in blocks, whose tables caches keep."""
        for part in _parts(examples, chosen, layout, every_edge=within is not None):
            some = examples.take(part)
            own = codes[Examples.places(examples.node_starts, part)]
            design = Design(some, layout)
            loss.blocks.append(Block(design, make(some, own), _set_of(design, within)))

    if objective == "pseudo-likelihood":
        add(np.arange(len(examples)), PseudoLikelihood)
        counted = sum(block.objective.num_counted for block in loss.blocks)  # type: ignore[attr-defined]
        if not counted:
            raise UnfitMethodError(
                "the pseudo-likelihood counts nodes whose label and neighbors' labels are known, and there is none: "
                "use objective='likelihood'"
            )
        return loss
    if moments == "sampled":
        trees, others = trees[:0], np.arange(len(examples))
    elif len(others):
        try:
            add(others, partial(ExactLikelihood, num_states=layout.num_states))
            objectives = [block.objective for block in loss.blocks if isinstance(block.objective, ExactLikelihood)]
            fits = moments == "exact" or sum(one.seconds() for one in objectives) <= EVALUATION_SECONDS
        except ResourceError:
            if moments == "exact":
                raise
            fits = False
        if fits:
            others = others[:0]
        else:
            loss.blocks.clear()
    if len(trees):
        add(trees, TreeLikelihood)
    loss.methods = "exact" if loss.blocks and not len(others) else "sampled"
    if len(others):
        loss.methods = "exact and sampled" if loss.blocks else "sampled"
        loss.sampled = Design(examples.take(others), layout)
        loss.sampled_codes = codes[Examples.places(examples.node_starts, others)]
        loss.sampled_within = _set_of(loss.sampled, within)
    return loss


def _set_of(design: Design, within: NormBall | None) -> SetOfModels | None:
    """The set that the models of some examples are projected onto."""
    if within is None:
        return None
    k = design.layout.num_states
    blank = np.zeros((len(design.examples.edges), k, k))
    template = Design.model_of(design.examples, np.zeros((design.examples.num_nodes, k)), blank)
    return SetOfModels(template, within)


def _parts(examples: Examples, chosen: IntArray, layout: Layout, *, every_edge: bool) -> list[IntArray]:
    """The examples in blocks: all of them where edges of a kind share tables."""
    if not len(chosen) or (examples.edge_features is None and not every_edge):
        return [chosen] if len(chosen) else []
    entries = np.diff(examples.edge_starts)[chosen] * layout.num_states**2
    block = (np.cumsum(entries) - entries) // BLOCK_ENTRIES
    return np.split(chosen, np.flatnonzero(np.diff(block)) + 1)
