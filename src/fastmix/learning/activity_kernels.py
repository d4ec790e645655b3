"""Compiled sweeps of binary chains whose number of ones is steered by a bias, on graphs with few edges.

Fields are kept up to date, so that an update that changes nothing, as most do in sparse data, looks at no neighbor.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import outer
from fastmix.chains.random_kernels import next_uniform
from fastmix.chains.threshold_kernels import copy_values

__all__ = ["activity_sweeps", "log_ways_to_zero"]


#: Log-odds below which a one has less than the probability after it.
UNLIKELY = -4.0
UNLIKELY_SHARE = 0.02
#: Log-odds beyond which ``log(1 + exp(x))`` is x.
CERTAIN = 36.0


@outer
def activity_sweeps(states, fields, activity, starts, neighbors, couplings, bias, streams, num_sweeps):
    """Draw every variable of every chain anew, one after another given the others, ``num_sweeps`` times.

    ``fields`` (C, n) are the log-odds of a one without the bias; the edges of variable i go to
    ``neighbors[starts[i]:starts[i + 1]]``. States, fields, ``activity`` (ones of every chain) and streams move on.
    """
    num_variables = states.shape[1]
    for c in range(len(states)):
        s0 = streams[0, c]
        s1 = streams[1, c]
        s2 = streams[2, c]
        s3 = streams[3, c]
        count = activity[c]
        for _ in range(num_sweeps):
            for i in range(num_variables):
                state = np.int64(states[c, i])
                others = count - state
                log_odds = fields[c, i] + bias[others + 1] - bias[others]
                u, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
                new = np.int64(0)
                if (log_odds > UNLIKELY or u < UNLIKELY_SHARE) and u * (1.0 + math.exp(-log_odds)) < 1.0:
                    new = np.int64(1)
                if new != state:
                    states[c, i] = new
                    count = others + new
                    for e in range(starts[i], starts[i + 1]):
                        fields[c, neighbors[e]] += (new - state) * couplings[e]
        activity[c] = count
        streams[0, c] = s0
        streams[1, c] = s1
        streams[2, c] = s2
        streams[3, c] = s3


@outer
def log_ways_to_zero(states, fields, starts, neighbors, couplings, out):
    """The log-probability that a sweep without the bias, from the states of a chain, makes all of them 0; into ``out``.

    Its mean over draws of the model is the probability that all are 0.
    """
    own = np.empty(states.shape[1])
    for c in range(len(states)):
        copy_values(own, fields[c])
        total = 0.0
        for i in range(len(own)):
            field = own[i]
            total -= field if field > CERTAIN else math.log1p(math.exp(field))
            if states[c, i]:
                for e in range(starts[i], starts[i + 1]):
                    own[neighbors[e]] -= couplings[e]
        out[c] = total
