"""Numbers that brackets are tuned by: limits, shares of the time, estimates of speed, and allowances.

They are grouped by the file that uses them. Bounds hold whatever these numbers are, except for the allowances of
``marginal_bounds`` and ``upper_bound``, which only ever make bounds looser; all others decide how tight the bounds are
and how long they take. ``benchmarks/brackets.py`` measures both, on files and grids with little memory.
"""

from __future__ import annotations

__all__ = [
    "CASE_ITERATIONS", "CASE_SWEEPS", "CLUSTER_SWEEPS_PER_TURN", "COVER_ITERATIONS_PER_TURN", "DRAWS_PER_BATCH",
    "FIRST_COVER_NOISE", "FIRST_SWEEPS", "HARD_TIE_STRENGTH", "LATTICE_LOSS_RATIO", "LEAST_EVALUATIONS", "LEAST_GAIN",
    "LEAST_MEMORY", "LEAST_NUM_CASES", "LEAST_SHARE", "LEAST_VARIABLES_FOR_BANDS", "LOG_WEIGHT_GAP", "MAX_CORRECTIONS",
    "MAX_EVALUATION_SECONDS", "MAX_NODES_PER_CALL", "MAX_NUM_CASES", "MAX_PAIRS_OF_STATES", "MAX_PAIR_STATES",
    "MAX_ROOTS_PER_CALL", "MAX_TABLE_ENTRIES", "MAX_VARIABLES_FOR_ELIMINATION", "MAX_WALK_LENGTH", "MEAN_FIELD_STARTS",
    "MIN_CORRECTIONS", "NARROW_INTERVAL", "NODES_PER_SECOND", "NUM_START_DRAWS", "ODDS_SECONDS_PER_ENTRY",
    "OTHER_COVER_NOISE", "PROBABILITY_FLOOR", "RELATIVE_SLACK", "SECONDS_PER_TABLE", "SECONDS_PER_VALUE",
    "SECONDS_PER_VARIABLE", "SHARE_BEFORE_DRAWS", "SHARE_OF_COVER_TURN", "SHARE_OF_EXACT", "SHARE_OF_FIRST_START",
    "SHARE_OF_LOWER", "SHARE_OF_MEAN_FIELD", "SHARE_OF_PLAN", "SHARE_OF_START_TURN", "SHARE_OF_WALKS",
    "SMALLEST_THRESHOLD", "START_SECONDS_PER_ENTRY", "SUM_SLACK", "TABLE_SECONDS_PER_ENTRY", "THRESHOLD_FACTOR",
    "TIGHT_LOG_Z", "UNCOVERED_WORTH", "UNDERFLOW", "WALK_FREE_THRESHOLD", "WALK_GAIN", "WALK_START_THRESHOLD",
    "WALK_TABLE_SECONDS", "WANTED_EVALUATIONS",
]  # fmt: skip

# -- exact_bounds -----------------------------------------------------------------------------------------------------

#: Share of the time left for planning exact inference. Plans of large models take long and are then refused anyway.
#: Measured by ``benchmarks/brackets.py``.
SHARE_OF_PLAN = 0.15
#: Share of the time left that exact inference may take by its estimate, which is on the safe side.
#: Measured by ``benchmarks/brackets.py``.
SHARE_OF_EXACT = 0.7

# -- split_bounds -----------------------------------------------------------------------------------------------------

#: Seconds per entry of a table, for one evaluation of the upper bound. Measured by ``benchmarks/brackets.py``.
TABLE_SECONDS_PER_ENTRY = 4e-9
#: Evaluations of the upper bound wanted in the time there is: the limit on tables follows. Measured by
#: ``benchmarks/brackets.py``: larger tables with fewer evaluations are looser.
WANTED_EVALUATIONS = 40.0
#: Seconds after which more time makes no larger tables. Not measured: by then tables are at ``MAX_TABLE_ENTRIES``.
MAX_EVALUATION_SECONDS = 60.0
#: Entries of the largest table, 8 MiB. Not measured: larger ones leave the caches.
MAX_TABLE_ENTRIES = 2.0**20
#: Seconds per table, of making covers and plans. Measured by ``tests/bounds/test_bracket.py`` (limits of large models).
SECONDS_PER_TABLE = 3e-5
#: Seconds per entry, of making covers and of the first step. Measured by ``tests/bounds/test_bracket.py``.
SECONDS_PER_VALUE = 4e-7
#: Seconds per parameter, of what mean field begins with. Measured by ``tests/bounds/test_bracket.py``.
START_SECONDS_PER_ENTRY = 1e-7
#: Seconds per table, of making the fields that walks go through. Measured by ``tests/bounds/test_bracket.py``.
WALK_TABLE_SECONDS = 2e-6
#: Share of the time left for mean field. Measured by ``benchmarks/brackets.py``.
SHARE_OF_MEAN_FIELD = 0.1
#: Starts of mean field: the uniform one and a random one. Measured by ``benchmarks/brackets.py``.
MEAN_FIELD_STARTS = 2
#: Share of the time for walks, which say nothing about log Z; they also get what is left in the end.
#: Measured by ``benchmarks/brackets.py``.
SHARE_OF_WALKS = 0.1
#: Share of what the covers and a first step leave, for the first lower bound. Measured by ``benchmarks/brackets.py``.
SHARE_OF_LOWER = 0.6
#: Share of that time which the first start of the lower bound may take if there is to be a second one.
#: Not measured: a guard for large models.
SHARE_OF_FIRST_START = 0.3
#: Share of the time for bounds without draws, where there are to be draws. Not measured.
SHARE_BEFORE_DRAWS = 0.6
#: Share of the time left for one turn of the lower bound. Measured by ``benchmarks/brackets.py``.
SHARE_OF_START_TURN = 0.25
#: Share of the time left for one turn of the upper bound. Measured by ``benchmarks/brackets.py``.
SHARE_OF_COVER_TURN = 0.6
#: Bytes that are taken beside the model, whatever the memory limit. Not measured: what a small model needs.
LEAST_MEMORY = 2.0**20
#: Sweeps of the lower bound from its first starts. Not measured.
FIRST_SWEEPS = 20
#: Sweeps of the lower bound in one turn, which mostly converges earlier. Not measured.
CLUSTER_SWEEPS_PER_TURN = 200
#: Iterations of the optimizer in one turn of the upper bound. Measured by ``benchmarks/brackets.py``.
COVER_ITERATIONS_PER_TURN = 30
#: Nats by one turn of the upper bound; where it gains less, cases gain more. Measured by ``benchmarks/brackets.py``.
LEAST_GAIN = 0.3
#: Evaluations in a turn by which its gain is judged. Not measured.
LEAST_EVALUATIONS = 8
#: Configurations drawn for the best of them as a start of the lower bound. Not measured.
NUM_START_DRAWS = 64

# -- reduced_tables ---------------------------------------------------------------------------------------------------

#: Strength of a tie that forbids something, in nats, and the largest that any other counts as. Not measured.
HARD_TIE_STRENGTH = 30.0

# -- tractable_parts --------------------------------------------------------------------------------------------------

#: Factor by which a table counts more that no cover has yet. Measured by ``benchmarks/brackets.py``.
UNCOVERED_WORTH = 20.0
#: Noise on the sizes of tables, by which ties are broken, in the first cover: small, as it should keep most.
#: Not measured.
FIRST_COVER_NOISE = 0.05
#: The same noise in later covers, which should differ. Not measured.
OTHER_COVER_NOISE = 0.5
#: Factor by which bands in the other direction may lose more and still show that the graph is a lattice. Not measured.
LATTICE_LOSS_RATIO = 2.0
#: Variables beyond which bands alone are tried. Measured by ``tests/bounds/test_bracket.py``.
MAX_VARIABLES_FOR_ELIMINATION = 20_000
#: Seconds per variable without which bands alone are tried, too. Measured by ``tests/bounds/test_bracket.py``.
SECONDS_PER_VARIABLE = 1e-3
#: Variables without which there are no bands. Not measured: smaller models are exact.
LEAST_VARIABLES_FOR_BANDS = 9

# -- upper_bound ------------------------------------------------------------------------------------------------------

#: Probability below which a marginal of a cover may have underflown, for bounds on log-weights of states.
PROBABILITY_FLOOR = 1e-280
#: Share of a cover at least, before shares are normalized: its tables are divided by it. Not measured.
LEAST_SHARE = 1e-3
#: Steps that the optimizer remembers at least. Not measured.
MIN_CORRECTIONS = 2
#: Steps that the optimizer remembers at most, where there is memory. Not measured.
MAX_CORRECTIONS = 12

# -- sampled_bounds ---------------------------------------------------------------------------------------------------

#: Draws between two looks at the clock. Not measured.
DRAWS_PER_BATCH = 1000

# -- case_bounds ------------------------------------------------------------------------------------------------------

#: Iterations of the optimizer for every case. Measured by ``benchmarks/brackets.py``.
CASE_ITERATIONS = 10
#: Sweeps of the lower bound for every case. Measured by ``benchmarks/brackets.py``.
CASE_SWEEPS = 10
#: Cases kept at a time, whatever the memory. Not measured.
LEAST_NUM_CASES = 8
#: Cases kept at a time, however much memory there is. Not measured.
MAX_NUM_CASES = 256
#: Weight between the bounds of a case, relative to Z, below which nothing is gained by splitting it.
TIGHT_LOG_Z = 1e-10

# -- marginal_bounds --------------------------------------------------------------------------------------------------

#: Relative slack for the few operations from logarithms to probabilities.
RELATIVE_SLACK = 1e-13
#: Slack of sums of probabilities over the states of a variable, far above their rounding.
SUM_SLACK = 1e-12
#: Probability below which lower bounds are 0; upper bounds are at least as much, because of underflow.
UNDERFLOW = 1e-290
#: Nats between all lower and all upper bounds on log-weights: from there on they say nothing about marginals.
LOG_WEIGHT_GAP = 64.0
#: States of a variable at most for bounds from its neighbors, which compare all pairs of states. Not measured.
MAX_PAIR_STATES = 64
#: Entries of the log-odds of all variables at most for bounds from neighbors, half a GiB. Not measured.
MAX_PAIRS_OF_STATES = 1 << 26
#: Seconds per entry and state, of bounds from neighbors. Measured by ``tests/bounds/test_bracket.py``.
ODDS_SECONDS_PER_ENTRY = 5e-9

# -- walk_bounds ------------------------------------------------------------------------------------------------------

#: Nodes of all trees of one compiled call, between two looks at the clock: tens of milliseconds.
MAX_NODES_PER_CALL = 200_000
#: Trees of one compiled call. Not measured.
MAX_ROOTS_PER_CALL = 256
#: Nodes visited per second. Measured by ``benchmarks/brackets.py``.
NODES_PER_SECOND = 5e6
#: Steps of a walk. Not measured: longer ones have no influence left.
MAX_WALK_LENGTH = 200
#: Influence below which a walk ends, in the first round. Not measured.
WALK_START_THRESHOLD = 0.5
#: Factor of that threshold from round to round. Measured by ``benchmarks/brackets.py``.
THRESHOLD_FACTOR = 0.5
#: Threshold below which there is no further round. Not measured: rounding is larger.
SMALLEST_THRESHOLD = 1e-12
#: Width of an interval that is not worth another round. Not measured.
NARROW_INTERVAL = 1e-9
#: Threshold above which all variables get another round, whatever they have gained. Not measured.
WALK_FREE_THRESHOLD = 0.02
#: Relative gain of a round without which a variable gets no other one. Not measured.
WALK_GAIN = 0.01
