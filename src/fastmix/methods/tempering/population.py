"""Independent configurations that move along a path together: the first ladder, and annealed importance sampling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix.chains.generator import make_streams
from fastmix.methods.tempering.path import Energies, TemperingPath
from fastmix.methods.tempering.sweeps import Sweeps

__all__ = ["Population", "anneal", "next_position"]

FloatArray = NDArray[np.float64]

_HARD_SWEEPS = 20  # at the start of a path with forbidden pairs


class Population:
    """N configurations, all at the same position of a path, which starts at 0 with exact draws.

    (With forbidden pairs, with configurations after some sweeps: the start of such a path is not known exactly.)

    Parameters
    ----------
    path : TemperingPath
    sweeps : Sweeps
        Of the path.
    energies : Energies
        Of the path.
    size, seed : int

    Attributes
    ----------
    x : uint8 array (n, N)
    position : float
    """

    def __init__(self, path: TemperingPath, sweeps: Sweeps, energies: Energies, *, size: int, seed: int) -> None:
        model = path.model
        self.path, self.size = path, size
        self._sweeps, self._energies = sweeps, energies
        rng = np.random.default_rng([seed, 2])
        start = np.floor(rng.random((size, model.num_variables)) * model.num_states)
        self.x = np.ascontiguousarray(start.T.astype(np.uint8))
        self._streams = make_streams(seed, 0, size)
        self._rung = np.zeros(size, dtype=np.uint32)
        self._sums = np.zeros((int((model.num_states - 1).sum()), 0), dtype=np.uint32)
        self.set_positions([0.0])
        # Without tables every update is a draw from the unary alone, so that one sweep leaves exact draws.
        self.move(0, 1 if path.forbidden is None else _HARD_SWEEPS)

    def set_positions(self, positions: ArrayLike) -> None:
        """Positions that :meth:`move` can go to."""
        self._positions = np.asarray(positions, dtype=np.float64)
        self._arguments = self._sweeps.arguments(self.path.coefficients(self._positions))

    def move(self, k: int, num_sweeps: int = 1) -> None:
        """Go to position number k and run Gibbs sweeps there."""
        self.position = float(self._positions[k])
        self._rung[...] = k
        self._sweeps.sweep(self.x, self._rung, self._arguments, self._streams, self._sums, num_sweeps)

    def energies(self) -> FloatArray:
        """Energies (components of the path, N)."""
        return self._energies(self.x)


def anneal(
    population: Population,
    *,
    rejection: float,
    num_sweeps: int,
    most: int,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[FloatArray, list[NDArray[np.uint8]]]:
    """Positions along the path about as far apart as exchanges allow, and configurations (n, N) at each.

    Goes from where the population is to the end of the path, as far each time as exchanges would be rejected at the
    given rate, and makes ``num_sweeps`` sweeps there: a first ladder, whose replicas are roughly where they belong.
    Gives up after ``most`` positions, or when ``stop()`` says so, and goes to the end at once.
    """
    positions, states = [population.position], [population.x.copy()]
    while positions[-1] < 1.0:
        if len(positions) >= most - 1 or stop():
            position = 1.0
        else:
            energies = population.energies()
            position = next_position(population.path, positions[-1], energies, rejection=rejection)
        population.set_positions([position])
        population.move(0, num_sweeps)
        positions.append(position)
        states.append(population.x.copy())
    return np.array(positions), states


def next_position(path: TemperingPath, position: float, energies: FloatArray, *, rejection: float) -> float:
    """The furthest position to which exchanges from here would be rejected at about a given rate.

    When D, the difference of the log-weights, is normal with variance v at both ends, exchanges are rejected at the
    rate erf(sqrt(v) / 2), and the weights exp(D) have the relative effective sample size ``E[w]^2 / E[w^2] = exp(-v)``,
    which can be estimated from configurations at one end.
    """
    from scipy.special import erfinv

    least = math.exp(-((2.0 * float(erfinv(rejection))) ** 2))
    here = path.coefficients([position])[0]

    def effective(s: float) -> float:
        d = (path.coefficients([s])[0] - here) @ energies
        w = np.exp(d - d.max())
        return float(w.mean() ** 2 / np.mean(w * w))

    if effective(1.0) >= least:
        return 1.0
    low, high = position, 1.0
    # Strong models have their first rungs close to 0: halve until the step is known to a hundredth of itself.
    while high - low > 1e-2 * (high - position):
        middle = 0.5 * (low + high)
        if effective(middle) >= least:
            low = middle
        else:
            high = middle
    return high
