"""Compiled simulated annealing of spins, with the gain of every flip kept up to date.

A spin glass that cools down soon flips few spins of a sweep: to look at a spin costs one comparison then, and only a
flip costs a step for each neighbor.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit
from fastmix.chains.random_kernels import next_uniform

__all__ = ["fill_gains", "sweep_gains"]

#: A flip whose probability is below exp(-40) is not drawn for: it would happen once in 10^17 looks.
_LEAST_LOG_PROBABILITY = -40.0
#: A flip that changes the log-weight by less is made with probability 1/2: were it always made, a sweep would carry the
#: walls between domains of a ring around it together, and they would never meet.
_NOTHING = 1e-9


@njit(error_model="numpy")
def fill_gains(spins, fields, indptr, neighbors, couplings, gains):
    """Fill in by how much the flip of each spin raises the log-weight."""
    for i in range(len(spins)):
        field = fields[i]
        for k in range(indptr[i], indptr[i + 1]):
            field += couplings[k] * spins[neighbors[k]]
        gains[i] = -2.0 * spins[i] * field


@njit(error_model="numpy")
def sweep_gains(spins, gains, scales, indptr, neighbors, couplings, stream, best, value, best_value):
    """The log-weight after a Metropolis sweep at each inverse temperature, and the largest of them so far.

    ``spins`` and ``gains`` move on in place, as do the words (4,) of ``stream``. Wherever a sweep ends at a log-weight
    above ``best_value``, ``best`` gets the spins. ``value`` is the log-weight before the first sweep.
    """
    s0 = stream[0]
    s1 = stream[1]
    s2 = stream[2]
    s3 = stream[3]
    for scale in scales:
        least = _LEAST_LOG_PROBABILITY / scale
        for i in range(len(spins)):
            gain = gains[i]
            if gain <= least:
                continue
            exponent = scale * gain
            if exponent < _NOTHING:
                probability = math.exp(exponent) if exponent <= -_NOTHING else 0.5
                uniform, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
                if probability <= uniform:
                    continue
            value += gain
            old = spins[i]
            spins[i] = np.int8(-old)
            gains[i] = -gain
            for k in range(indptr[i], indptr[i + 1]):
                j = neighbors[k]
                gains[j] += 4.0 * old * couplings[k] * spins[j]
        if value > best_value:
            best_value = value
            best[:] = spins
    stream[0] = s0
    stream[1] = s1
    stream[2] = s2
    stream[3] = s3
    return value, best_value
