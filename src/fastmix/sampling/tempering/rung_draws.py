"""Draws at the rungs of ladders of temperatures, in blocks that are as good as independent, and log Z at each rung."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.host import lane_energies
from fastmix.chains.patches import whole_patch
from fastmix.estimates import MIN_GROUPS
from fastmix.model.reduce import Reduction
from fastmix.sampling.tempering import rungs

if TYPE_CHECKING:
    from fastmix.sampling.tempering.run import LadderRun

__all__ = ["Blocks", "RungDraws", "collect_rung_draws"]

_CHUNK_ROWS = 1 << 14  # configurations whose energies are added up at once (not measured: a few MiB)


@dataclass(frozen=True)
class Blocks:
    """Groups of draws: whole ensembles, or long stretches of them where there are few ensembles.

    Whatever is measured along a ladder is averaged over the same blocks, at all rungs, so that errors of functions of
    several such averages are those of correlated numbers.
    """

    num_ensembles: int
    num_draws: int

    @property
    def stretches(self) -> int:
        """Stretches that every ensemble is cut into."""
        return max(1, min(self.num_draws, -(-MIN_GROUPS // self.num_ensembles)))

    @property
    def length(self) -> int:
        """Draws of a stretch; what is left over is left out, less than one stretch."""
        return self.num_draws // self.stretches

    @property
    def count(self) -> int:
        """Number of blocks G."""
        return self.num_ensembles * self.stretches

    def split(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (R, ladders, draws, ...) of all draws by block: (R, G, M, ...).

        Instead of ladders there may be pairs of them, or whatever else each ensemble has equally many of.
        """
        num_rungs, lanes, _, *rest = values.shape
        together = lanes // self.num_ensembles
        used = values[:, :, : self.stretches * self.length]
        parts = used.reshape(num_rungs, self.num_ensembles, together, self.stretches, self.length, *rest)
        by_block = np.moveaxis(parts, 3, 2)
        return by_block.reshape(num_rungs, self.count, together * self.length, *rest)


@dataclass(frozen=True, eq=False)
class RungDraws:
    """What ladders of temperatures kept.

    Attributes
    ----------
    temperatures : float array (R,)
        Of the rungs, in units of the model asked about.
    states : uint8 array (R, ladders, draws, n)
    energies : float array (R, ladders, draws)
        Minus the log-weights in the model asked about, that of temperature 1; soft evidence counts as a part of it.
    num_ensembles : int
        Ladders of an ensemble follow one another.
    log_z, log_z_left_out : float array (R,) and (G, R)
        Log Z at the temperatures by the acceptance ratios along the whole ladder, and without each block.
    """

    temperatures: FloatArray
    states: NDArray[np.uint8]
    energies: FloatArray
    num_ensembles: int
    log_z: FloatArray
    log_z_left_out: FloatArray

    @property
    def blocks(self) -> Blocks:
        """The blocks that draws fall into."""
        return Blocks(self.num_ensembles, self.states.shape[2])

    @property
    def coldest(self) -> int:
        """The rung of the lowest temperature."""
        return int(self.temperatures.argmin())

    def chains(self, rung: int) -> NDArray[np.uint8]:
        """Draws of one rung in order of time, a chain for every ensemble: (ensembles, ladders * draws, n)."""
        _, ladders, draws, n = self.states.shape
        together = ladders // self.num_ensembles
        parts = self.states[rung].reshape(self.num_ensembles, together, draws, n)
        return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(self.num_ensembles, draws * together, n)

    def expanded(self, reduction: Reduction) -> RungDraws:
        """The draws as configurations of the original model."""
        num_rungs, ladders, draws, _ = self.states.shape
        states = np.empty((num_rungs, ladders, draws, reduction.original.num_variables), dtype=np.uint8)
        for rung, of_rung in enumerate(self.states):
            states[rung] = reduction.expand_states(of_rung)
        return replace(self, states=states)


def collect_rung_draws(run: LadderRun, states: NDArray[np.uint8]) -> RungDraws:
    """What a run of replica exchange kept, with the energies of the draws ``states`` and log Z of all rungs."""
    path = run.ladder.path
    coldest = run.plan.coldest
    assert coldest is not None
    positions = run.ladder.positions[run.kept_rungs]
    with np.errstate(divide="ignore"):
        temperatures = coldest / positions
    for position, given in zip(run.plan.pinned_positions(), run.plan.temperatures or (), strict=True):
        temperatures[positions == position] = given  # as it was written, not as it is rounded
    blocks = Blocks(run.num_ensembles, states.shape[2])
    whole, left_out = _log_z(run, blocks)
    # The constant of the path is that of the coldest model at all rungs; at each temperature it is divided by that.
    constants = (positions - 1.0) * path.model.log_constant + (path.log_z if path.log_z is not None else np.nan)
    return RungDraws(
        temperatures=temperatures,
        states=states,
        energies=-coldest * (_weights(path.thetas.sum(axis=0), run, states) + path.model.log_constant),
        num_ensembles=run.num_ensembles,
        log_z=constants + whole,
        log_z_left_out=constants + left_out,
    )


def _weights(theta: FloatArray, run: LadderRun, states: NDArray[np.uint8]) -> FloatArray:
    """Log-weights (R, ladders, draws) of draws in the coldest model, but for its constant."""
    structure = run.ladder.path.model.structure
    theta = np.where(theta > -np.inf, theta, 0.0)  # no draw has what is forbidden
    whole = whole_patch(structure)
    flat = states.reshape(-1, states.shape[-1])
    weights = np.empty(len(flat))
    for first in range(0, len(flat), _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        lanes = np.ascontiguousarray(flat[rows].T)
        weights[rows] = lane_energies(structure, lanes, theta[None], whole)[0]
    return weights.reshape(states.shape[:-1])


def _log_z(run: LadderRun, blocks: Blocks) -> tuple[FloatArray, FloatArray]:
    """Log-ratios of the normalizers of the kept rungs and the hottest, (R,), and without each block, (G, R)."""
    kept: IntArray = run.kept_rungs
    sums = np.stack(run.bridges)  # (draws, 2, K - 1, ensembles), added up since the first round
    ends = sums[blocks.length - 1 :: blocks.length][: blocks.stretches]
    parts = np.diff(ends, axis=0, prepend=0.0)  # of every stretch
    by_block = parts.transpose(3, 0, 1, 2).reshape(blocks.count, *parts.shape[1:3])  # (G, 2, K - 1)
    total = by_block.sum(axis=0)

    def up_to_rungs(up_and_down: FloatArray) -> FloatArray:
        """Sums of the steps up to every rung that is kept."""
        steps = run.ladder.shifts + rungs.log_ratios(up_and_down[..., 0, :], up_and_down[..., 1, :])
        ladder = np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, axis=-1)], axis=-1)
        return np.asarray(ladder[..., kept])

    return up_to_rungs(total), up_to_rungs(total - by_block)
