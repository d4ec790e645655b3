"""Constants of the experiments that tune: sizes, effort, what the words of the paper are taken to mean, what is shown.

None of them was measured by a committed script: they follow the paper, or are round numbers of the right size.
"""

from __future__ import annotations

__all__ = [
    "CLEAR_DIFFERENCE", "CLOSE_ERROR", "COMPETITIVE_FACTOR", "CONVERGED_SHARE", "FEW_ITERATIONS", "FEW_TRIALS",
    "LEAST_SHOWN_ERROR", "LONG_SWEEPS", "MAX_TRIALS", "MIN_TRIALS", "MUCH_FASTER", "NUM_SWEEPS", "PHOTOGRAPH_SIZE",
    "POINTS_PER_DECADE", "QUICK_LONG_SWEEPS", "QUICK_PHOTOGRAPH_SIZE", "QUICK_TRUTH_EFFORT", "SHORT_AXIS",
    "SHOWN_FAILURES", "SHOWN_PHOTOGRAPHS", "SMALL_LOSS", "STRONG_COUPLINGS", "TRUTH_EFFORT",
]  # fmt: skip

# -- plan.py, specs.py: how much is run ------------------------------------------------------------------------------

#: Trials of an experiment at most: every one is planned before the first is run.
MAX_TRIALS = 1_000_000

#: Sweeps after a projection, of a long run, and of that in a quick experiment. The first two are the paper's.
NUM_SWEEPS = 30_000
LONG_SWEEPS = 1_000_000
QUICK_LONG_SWEEPS = 100_000

# -- trials.py: instances and their truth ----------------------------------------------------------------------------

#: Width and height of photographs in pixels, and in a quick experiment.
PHOTOGRAPH_SIZE = (120, 80)
QUICK_PHOTOGRAPH_SIZE = (60, 40)

#: Options of annealing for the true marginals of a photograph, and in a quick experiment. Each row tells the error
#: that they leave (``truth_error``).
TRUTH_EFFORT = {"num_populations": 2, "num_chains": 64, "num_steps": 150, "sweeps_per_step": 16}
QUICK_TRUTH_EFFORT = {"num_populations": 2, "num_chains": 16, "num_steps": 75, "sweeps_per_step": 16}

#: Points for every factor of ten in the number of sweeps at which errors are noted.
POINTS_PER_DECADE = 4

# -- findings.py: what decides a verdict -----------------------------------------------------------------------------

#: Trials that a verdict needs, and below which it is called a hint.
MIN_TRIALS = 2
FEW_TRIALS = 10

#: Standard errors that a difference must exceed to decide anything.
CLEAR_DIFFERENCE = 2.0

#: "Few" iterations: the paper says "around 5".
FEW_ITERATIONS = 10

#: "Much faster", as a ratio of seconds: the paper's own table has 8 to 50.
MUCH_FASTER = 5.0

#: "A small loss" of mean error.
SMALL_LOSS = 0.03

#: "Competitive": at most so many times the error of the best baseline.
COMPETITIVE_FACTOR = 1.25

#: "Converged": the share of the error that may still go away.
CONVERGED_SHARE = 0.1

#: Strengths of interaction from which the methods differ at all.
STRONG_COUPLINGS = 1.0

#: Mean error of a chain that has reached the truth.
CLOSE_ERROR = 0.02

# -- figures.py, report.py: what is shown ----------------------------------------------------------------------------

#: Photographs in the figures of pictures: a page.
SHOWN_PHOTOGRAPHS = 3

#: Failures listed on the page; all are in the files.
SHOWN_FAILURES = 10

#: Least mean error on a logarithmic axis: a method that is exact would squeeze all others into a corner.
LEAST_SHOWN_ERROR = 1e-4

#: Ratio of the ends of a logarithmic axis below which powers of ten are too few marks.
SHORT_AXIS = 50.0
