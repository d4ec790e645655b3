"""Constants of inference that tune: thresholds of the automatic choice, shares of a time limit, sizes and tolerances.

They are grouped by the file that uses them. The thresholds of the choice are explained in docs/choosing.md.
"""

from __future__ import annotations

__all__ = [
    "CERTIFICATE_SHARE", "CERTIFIED_ACCURACY", "COUNTED_MARGINALS_SHARE", "COUNTING_PATIENCE", "DENSE_SHARE",
    "DEPENDENCY_SHARE", "EXACT_ESTIMATE_SHARE", "EXACT_RUN_SHARE", "FEW_WEIGHTS", "FIRST_SUPPORT_SHARE",
    "HARD_SHARE", "MANY_NEIGHBORS", "MAX_COUNTED_VARIABLES", "MAX_CUBE_ENTRIES", "MAX_ENCODED_ENTRIES",
    "MAX_NORM_VARIABLES", "MAX_SUPPORT_SECONDS", "MAX_WEIGHED_STATES", "MAX_WIDE_VARIABLES", "MAX_WIDTH_VARIABLES",
    "MIN_BRACKET_SECONDS", "MIN_SUPPORT_SECONDS", "NORM_BOUND", "NUM_WEIGHTS", "PLAIN_PROJECTION_SHARE",
    "PROJECTION_SHARE", "SECONDS_PER_DEPENDENCY", "STRONG_DEPENDENCIES", "SUPPORT_GROWTH", "SUPPORT_SHARE",
    "TEMPERED_EXCESS", "TEMPERED_SHARE", "TOLERANCE", "TRIAL_SHARE", "UPDATES_PER_SECOND", "USELESS_SUPPORT",
    "WEAK_DEPENDENCIES", "WIDE_PROJECTION_SHARE", "WIDE_UNARIES", "WIDE_UNARIES_OF_TWO_STATES", "WIDTH_BOUND",
]  # fmt: skip

# -- auto.py and choice.py: the automatic choice ---------------------------------------------------------------------

#: Share of the time limit that the estimate for exact inference may take for it to be chosen. Not measured.
EXACT_ESTIMATE_SHARE = 0.8

#: Share of the time that is left after which exact inference makes room for another method: the estimate may be wrong.
#: Not measured.
EXACT_RUN_SHARE = 0.7

#: Share of the time that is left for Gibbs sampling to show that it mixes, where replica exchange would be taken.
#: Measured by benchmarks/choice.py.
TRIAL_SHARE = 0.15

#: Share of the time that round trips of replica exchange may take by their estimate. Measured by benchmarks/choice.py.
TEMPERED_SHARE = 0.5

#: By how many times a model can be too large for replica exchange, which is still more accurate than other methods.
#: Measured by benchmarks/choice.py.
TEMPERED_EXCESS = 4.0

#: Updates of single variables per second that the estimate for replica exchange counts with, on a model of few
#: neighbors, and neighbors beyond which an update takes longer in proportion. Not measured by a committed script.
UPDATES_PER_SECOND = 3e8
MANY_NEIGHBORS = 40.0

#: Dependencies per variable on average up to which plain Gibbs sampling is more accurate than replica exchange, and
#: beyond which it is less accurate than replica exchange without time for its round trips.
#: Measured by benchmarks/choice.py.
WEAK_DEPENDENCIES = 2.3
STRONG_DEPENDENCIES = 3.0

#: Span of the log-unaries on average, beyond which Gibbs sampling beats cluster moves: with two states, and with more.
#: Measured by benchmarks/choice.py, and by benchmarks/wide_unaries.py on models drawn at random.
WIDE_UNARIES_OF_TWO_STATES = 0.7
WIDE_UNARIES = 1.0

#: Variables up to which there is time for a certificate of the width. Not measured.
MAX_WIDTH_VARIABLES = 100_000

#: Seconds of a table entry for every pair of variables that a factor holds, to find the dependencies.
#: Checked by benchmarks/limits.py.
SECONDS_PER_DEPENDENCY = 4e-9

#: Share of the time beyond which dependencies, which samplers need several times, are not found. Not measured.
DEPENDENCY_SHARE = 0.25

# -- infer.py --------------------------------------------------------------------------------------------------------

#: Seconds for bounds beside an answer that took all of the time. Not measured.
MIN_BRACKET_SECONDS = 1e-3

# -- support.py: bounds that support the answer of a method without guarantee ----------------------------------------

#: Largest error of a marginal (total variation) for which an answer is called ``ok``, and of log Z where it was asked
#: for. A choice, not a measurement: two decimals of a probability hardly change.
TOLERANCE = 0.05

#: Share of the time that is left, and seconds at most where no limit was asked for. Not measured.
SUPPORT_SHARE = 0.5
MAX_SUPPORT_SECONDS = 10.0

#: Seconds for one search of bounds, at least. Not measured.
MIN_SUPPORT_SECONDS = 1e-3

#: Share of that time for the first bounds, which show whether more time is worth it, and the factor by which every
#: further search has more. Not measured.
FIRST_SUPPORT_SHARE = 0.05
SUPPORT_GROWTH = 4.0

#: Mean error bound after more time, as a fraction of that before, at which the search is given up. Not measured.
USELESS_SUPPORT = 0.8

# -- projected.py ----------------------------------------------------------------------------------------------------

#: Norm of the projected model by default: the practical choice of the paper (Liu and Domke, 2014).
NORM_BOUND = 2.5

#: Width of the projected model by default: certified, since it is below 1.
WIDTH_BOUND = 0.95

#: Variables at most, and edges at least as a share of all pairs, for which a bound on the width is tried: it is fast
#: there. Measured by benchmarks/width.py.
MAX_WIDE_VARIABLES = 1000
DENSE_SHARE = 0.1

#: Variables beyond which norms other than the cheapest take seconds. Checked by benchmarks/certificates.py.
MAX_NORM_VARIABLES = 100_000

#: Shares of the time: for the projections that decide between the norms, for the one that is sampled, and for the
#: certificate. Not measured.
PLAIN_PROJECTION_SHARE = 0.1
WIDE_PROJECTION_SHARE = 0.3
PROJECTION_SHARE = 0.5
CERTIFICATE_SHARE = 0.1

#: Accuracy (total variation) that the certificate of a projected model is asked for, as by default. Not measured.
CERTIFIED_ACCURACY = 0.01

#: Draws of the projected model that are weighed by the original one, and their states together at most. Not measured.
NUM_WEIGHTS = 1024
MAX_WEIGHED_STATES = 1 << 21

#: Share of the weights that is effective, below which draws of the projected model are hardly ones of the original.
#: Not measured.
FEW_WEIGHTS = 0.1

# -- weighted_formula.py ---------------------------------------------------------------------------------------------

#: Cubes of a table, among which those that are needed are looked for: hundredths of a second. Not measured.
MAX_CUBE_ENTRIES = 1 << 17

# -- ganak.py, and its part of choice.py. `benchmarks/engines.py` has the files counted, and the seconds --------------

#: Table entries that are encoded at most: about ten seconds. Not measured by a script.
MAX_ENCODED_ENTRIES = 1_000_000
#: Share of the time left for counting marginals; the rest is for beliefs where they are not counted. Not measured.
COUNTED_MARGINALS_SHARE = 0.9
#: Share of the time within which ``auto`` gives up counting, so that another method can answer: mostly belief
#: propagation, which needs little. Not measured.
COUNTING_PATIENCE = 0.8
#: Share of all edges and factors that must forbid something, for ``auto`` to count. Not measured.
HARD_SHARE = 0.5
#: Variables at most, for ``auto`` to count: lattices of more forbid much, too, and chains do better. Not measured.
MAX_COUNTED_VARIABLES = 5000
