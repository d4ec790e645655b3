"""Numbers that denoising is tuned by: how much of a picture is fitted and for how long, and how much work runs are.

They are grouped by the file that uses them.
"""

from __future__ import annotations

__all__ = [
    "BYTES_PER_NUMBER",
    "BYTES_PER_PAIR_OF_LABELS",
    "BYTES_PER_PIXEL",
    "CHAINS_AND_STEPS",
    "CHAINS_AND_STEPS_OF_LARGE",
    "GRAY_LEVELS",
    "LABEL_SECONDS",
    "LARGEST_COUPLING",
    "LARGEST_STRENGTH",
    "LARGE_PICTURE",
    "LEAST_NOISE",
    "LEAST_ROUNDS",
    "MAX_FITTED_PIXELS",
    "MAX_PIXELS",
    "MAX_SWEEPS_PER_STEP",
    "MESSAGE_OPTIONS",
    "MIN_FITTED_PIXELS",
    "NUM_ROUNDS",
    "PAIR_SECONDS",
    "PIXEL_UPDATES",
    "REACH",
    "SHARE_OF_FIT",
    "SWEEPS_PER_ROUND",
]  # fmt: skip

# -- fitting.py. `tests/denoising/test_denoise.py` holds the errors of pictures to what these numbers reach -----------

#: Rounds of drawing labels and fitting parameters to them.
NUM_ROUNDS = 8
#: Sweeps of Gibbs sampling per round.
SWEEPS_PER_ROUND = 4
#: Share of a time limit for fitting.
SHARE_OF_FIT = 0.2
#: Rounds for which a time limit must do: a part of the picture is chosen that is so small. Not measured.
LEAST_ROUNDS = 4
#: Pixels of the part of a picture that is fitted, at most: a second or two.
MAX_FITTED_PIXELS = 60_000
#: The same at least, however short the time.
MIN_FITTED_PIXELS = 1000
#: Seconds per round, per pixel and label. Not measured by a script.
LABEL_SECONDS = 5e-7
#: Seconds per round, per pixel and pair of labels. Not measured by a script.
PAIR_SECONDS = 1.4e-7
#: Largest coupling that is fitted: with it all pixels of a picture agree.
LARGEST_COUPLING = 4.0
#: Least standard deviation of noise that is assumed: half a step of 8 bits.
LEAST_NOISE = 1.0 / 512.0
#: Levels of the scale for a photograph.
GRAY_LEVELS = 12
#: Steps of the scale over which neighbors still agree a little.
REACH = 4.0

# -- denoise.py -----------------------------------------------------------------------------------------------------

#: Options of belief propagation that are enough for a picture of 8 bits.
MESSAGE_OPTIONS = {"tol": 0.01, "max_iter": 60}
#: Pixels from which fewer chains take fewer steps. Not measured by a script.
LARGE_PICTURE = 50_000
#: Chains of each population of the annealing, and steps that they take.
CHAINS_AND_STEPS = (8, 150)
#: The same for large pictures.
CHAINS_AND_STEPS_OF_LARGE = (4, 75)
#: Updates of single pixels for which sweeps per step are chosen: about 10 seconds on one core.
PIXEL_UPDATES = 3e8
#: Sweeps per step, at most: more make no better pictures.
MAX_SWEEPS_PER_STEP = 8

# -- images.py and posterior.py -------------------------------------------------------------------------------------

#: Pixels of a picture that is read from a file without a size: minutes.
MAX_PIXELS = 1_000_000
#: Largest coupling and data weight: log-potentials are a small multiple of them, and at most 1e100.
LARGEST_STRENGTH = 1e99
#: Bytes per number of a picture while it is checked, or noise is added to it.
BYTES_PER_NUMBER = 40.0
#: Bytes per pixel of model, sampler, sums of the chains and the arrays in between, at their largest.
BYTES_PER_PIXEL = 1500
#: Bytes per pixel and pair of labels, for more than two: two tables of K x K for every pixel, a few copies of them;
#: measured at 8 and 16 labels.
BYTES_PER_PAIR_OF_LABELS = 70
