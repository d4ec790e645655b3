"""Numbers that tune conditional random fields; ``benchmarks/crf.py`` measures what they are for."""

from __future__ import annotations

__all__ = [
    "BLOCK_ENTRIES", "DIFFERENCE", "EVALUATION_SECONDS", "EXACT_SECONDS", "GRADIENT_COST", "LBFGS_MEMORY",
    "LINE_SEARCHES", "MAX_ITER", "MOMENTUM", "NUM_CHAINS", "NUM_ROUNDS", "POWER_STEPS", "PREDICTION_SWEEPS",
    "PROJECTION_TOL", "SAMPLED_TOL", "SWEEPS", "TOL", "TOL_WITHIN",
]  # fmt: skip

# -- exact objectives (loss.py, fit.py) --

#: Entries of tables that are laid out at a time where edges have features: 8 MiB, which caches keep.
BLOCK_ENTRIES = 1 << 20
#: Pairs of steps and changes of the gradient that L-BFGS remembers.
LBFGS_MEMORY = 30
#: Largest entry of the scaled gradient at which a fit ends. On the letters the objective is then within some 0.02 nats
#: per word of its least value, and half of the evaluations are saved.
TOL = 1e-2
#: The same within a set, where the objective has kinks.
TOL_WITHIN = 2e-2
#: Iterations of L-BFGS, and how many evaluations there may be for each.
MAX_ITER = 1000
LINE_SEARCHES = 2
#: Seconds of one exact evaluation of all examples with cycles, beyond which moments are sampled (not measured).
EVALUATION_SECONDS = 2.0
#: Seconds of an evaluation of log Z with marginals, free and given labels, in seconds of one of log Z.
GRADIENT_COST = 6.0
#: Seconds that exact inference of one example may take in predictions (not measured).
EXACT_SECONDS = 1.0

# -- a set to stay in (within.py) --

#: Relative gap of the projections that are differentiated: differences of theirs are divided by DIFFERENCE.
PROJECTION_TOL = 1e-13
#: Length of the step of the central difference, relative to the largest entry of the tables.
DIFFERENCE = 1e-4

# -- sampled objectives (sampled.py) --

#: Persistent chains of all examples together.
NUM_CHAINS = 32
#: Rounds of sweeps, each of which gives a gradient, and sweeps of a round.
NUM_ROUNDS = 300
SWEEPS = 2
#: Share of the last step that the next one keeps (heavy ball).
MOMENTUM = 0.9
#: Steps of the power method, by which the length of steps is chosen.
POWER_STEPS = 20
#: Nats per example that may be left to gain.
SAMPLED_TOL = 0.02
#: Sweeps between two draws, and before the first, where predictions sample.
PREDICTION_SWEEPS = 50
