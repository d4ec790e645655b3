"""Numbers that tune exact inference: sizes at which it changes its ways, budgets, and what its parts cost.

They are grouped by the file that uses them. But for ``EXPECTATION_DRAWS`` none of them changes an answer beyond the
rounding of its last digits; they decide about time and memory. What compiled code uses stands beside that code, because
a compiled file is not made anew when another file changes.
"""

from __future__ import annotations

__all__ = [
    "BATCH_BYTES",
    "CHANGED_SHARES",
    "CHANGE_SCALES",
    "CHEAP_ENTRIES",
    "CUTSET_CANDIDATES",
    "DRAW_BYTES",
    "EXPECTATION_DRAWS",
    "FAR_RATIO",
    "HOPELESS_ENTRIES",
    "JOIN_CANDIDATES",
    "LEAST_CONDITIONED_BYTES",
    "LOST_RATIO",
    "MAX_BATCH_ROWS",
    "MAX_BITSET_CORE",
    "MAX_BOUNDED_CORE",
    "MAX_CANDIDATE_ORDERS",
    "MAX_CASES",
    "MAX_COUNTS",
    "MAX_JOINED_ENTRIES",
    "MAX_JOINT_ENTRIES",
    "MAX_KEPT_VARIABLES",
    "MAX_LOG_RANGE",
    "MAX_OVERSIZE",
    "MAX_PARAMETER_ROWS",
    "MAX_SEARCH_SECONDS",
    "MAX_UNBOUNDED_VARIABLES",
    "MIN_BATCH_ROWS",
    "MIN_COMPILED_LEAVES",
    "MIN_LAYOUT_ENTRIES",
    "MIN_LOOP_ORDER_ENTRIES",
    "MIN_SWEEP_CORE",
    "NOISE_SIZES",
    "NS_COPY",
    "NS_LONG_RUNS",
    "NS_MATRICES",
    "NS_OWN_INSIDE",
    "NS_RUNS",
    "NS_SHARED_INSIDE",
    "NS_SHORT_RUNS",
    "PARAMETER_BYTES",
    "PIECE_ENTRIES",
    "PLAIN_PYTHON_ENTRIES",
    "PLAIN_PYTHON_RUNS",
    "PLANNING_SECONDS_PER_EDGE",
    "PLANNING_SECONDS_PER_VARIABLE",
    "PROGRAM_BYTES_PER_STEP",
    "PROTECTED_RUN_ENTRIES",
    "SCALED_RANGE",
    "SCOPES_PER_CLOCK_CHECK",
    "SCORE_WEIGHTS",
    "SEARCH_SHARE",
    "SEARCH_SHARE_OVER_LIMIT",
    "SECONDS_PER_BYTE",
    "SECONDS_PER_CLIQUE_ENTRY",
    "SECONDS_PER_ENTRY",
    "SECONDS_PER_FACTOR",
    "SECONDS_PER_INPUT_ENTRY",
    "SECONDS_PER_LEAF",
    "SECONDS_PER_LOG_ENTRY",
    "SECONDS_PER_MATRIX_ENTRY",
    "SECONDS_PER_RUN",
    "SECONDS_PER_RUN_VARIABLE",
    "SECONDS_PER_RUN_WORD",
    "SECONDS_PER_STEP",
    "SECONDS_PER_TWIN_TERM",
    "SMALLEST_TOTAL",
    "SMALL_CLIQUE_SHARE",
    "SMALL_CORE",
    "STEPS_PER_CLOCK_CHECK",
    "TERMS_PER_CLOCK_CHECK",
    "TIE_SIZE",
    "UNIFORMS_AT_ONCE",
    "VARIABLES_PER_CLOCK_CHECK",
    "VARIABLES_PER_PLANNING_CHECK",
    "WORDS_PER_SECOND",
]  # fmt: skip

# -- search.py: how long to look for a better order of elimination --------------------------------------------------
# No script measures one of these alone. Their effect is in the columns `seconds` and `planning` of
# `benchmarks/exact.py --files`.

#: Entries of all tables below which an order is not improved: what is left to save is less than a run of the search.
CHEAP_ENTRIES = 1 << 17
#: Entries of all tables beyond which no search is worth it: an hour of work and a hundred terabytes. Derived from the
#: seconds per entry.
HOPELESS_ENTRIES = 1e13
#: Seconds per entry of a clique table, for two passes over it.
SECONDS_PER_CLIQUE_ENTRY = 3e-9
#: Share of the time that the best order so far would take, which a search may take.
SEARCH_SHARE = 0.15
#: The same share where the best order so far is more than the caller can take. The alternative is a refusal,
#: so that a search may take ten times what it saves.
SEARCH_SHARE_OVER_LIMIT = 10.0
#: Seconds that a search takes at most.
MAX_SEARCH_SECONDS = 20.0
#: Seconds per run beside what is counted, which matter where runs are many.
SECONDS_PER_RUN = 1e-4
#: Seconds of a run per variable.
SECONDS_PER_RUN_VARIABLE = 0.3e-6
#: Seconds of a run per variable and word of its row of bits.
SECONDS_PER_RUN_WORD = 0.5e-7
#: Words of rows of bits that a run reads per second, about.
WORDS_PER_SECOND = 3e8
#: Times the entries that the caller can take, beyond which a search is given up once it has stalled, without a gain for
#: as many runs as it took to its last one.
FAR_RATIO = 100.0
#: Times the entries that the caller can take, beyond which a search is given up after one run of each kind. Of
#: linkage_20 with 8 GiB (``benchmarks/engines.py``) the first runs have 520 times as many, and the search 0.9 times.
LOST_RATIO = 1e5
#: Variables of a core up to which its first order needs no compiler: loading one takes half a second
#: (``benchmarks/cold_start.py``).
SMALL_CORE = 64
#: Variables of a core up to which it is searched: its rows of bits take 8 MiB.
MAX_BITSET_CORE = 8192
#: Variables of a core up to which its treewidth is bounded by an order, not by sweeps alone.
MAX_BOUNDED_CORE = 2000
#: Variables of a core beyond which a hopeless sweep is believed without a greedy run, which would take minutes.
#: ``tests/exact/test_search.py`` has the time that it must not take.
MIN_SWEEP_CORE = 100_000
#: Scopes gone through between two looks at the clock: a few milliseconds.
SCOPES_PER_CLOCK_CHECK = 1 << 14
#: Variables eliminated by sets between two looks at the clock: a few milliseconds on sparse graphs.
VARIABLES_PER_CLOCK_CHECK = 1024
#: Best runs whose noise the search goes on changing.
MAX_CANDIDATE_ORDERS = 3
#: Weights of log size, log fill, fill and distance from what is eliminated, in the scores of a run. Fill alone is the
#: best on many graphs of equal state counts, size where they are unequal, the logarithm of the fill on most others, and
#: going on beside what is eliminated on grids. The last row is that of an order given by the ranks of its noise.
SCORE_WEIGHTS = (
    (0.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (0.5, 1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 1e6),
    (0.0, 0.0, 0.0, 0.0),
)
#: Largest random parts of the scores of the first runs.
NOISE_SIZES = (0.01, 1.0, 0.3)
#: Shares of the variables whose noise changes, when a run goes on from one of the best.
CHANGED_SHARES = (0.02, 0.1, 0.4)
#: Sizes of these changes.
CHANGE_SCALES = (0.3, 1.0, 2.0)
#: Part of the scores by which, of equal ones, the variable with more states goes first; small beside all noise.
TIE_SIZE = 1e-3

# -- elimination.py: what a run takes, and when to compile ----------------------------------------------------------

#: Variables of a graph up to which its plan is kept if its tables are small; it may have ten times as many edges. Not
#: measured.
MAX_KEPT_VARIABLES = 1000
#: Variables of hanging trees from which on they are summed out by themselves, compiled. Not
#: measured by a script.
MIN_COMPILED_LEAVES = 2000
#: Variables of a graph up to which no bound on its treewidth is needed before an order is looked for. Not measured.
MAX_UNBOUNDED_VARIABLES = 64
#: Seconds that planning takes at least per variable. Where more is needed the clock ends it.
#: ``benchmarks/limits.py`` shows whether limits are kept with it.
PLANNING_SECONDS_PER_VARIABLE = 2e-5
#: Seconds that planning takes at least per edge. ``benchmarks/limits.py`` as above.
PLANNING_SECONDS_PER_EDGE = 3e-6
#: Bytes per table and per factor, of the program of a run while it is made. Not measured by a script.
PROGRAM_BYTES_PER_STEP = 1800
# CPU seconds that a run takes, all measured on 200 random models (``benchmarks/limits.py``).
#: Seconds per entry of a clique that is visited three times.
SECONDS_PER_ENTRY = 6e-9
#: Seconds per entry of a clique that is visited three times in logarithms.
SECONDS_PER_LOG_ENTRY = 3e-8
#: Seconds per entry of a clique that is visited three times by matrix products.
SECONDS_PER_MATRIX_ENTRY = 1.5e-9
#: Seconds per entry of a table of joined factors, each time that it is visited.
SECONDS_PER_INPUT_ENTRY = 3e-9
#: Seconds per byte of memory touched for the first time.
SECONDS_PER_BYTE = 8e-10
#: Seconds per sum of products.
SECONDS_PER_STEP = 5e-6
#: Seconds per factor.
SECONDS_PER_FACTOR = 1.5e-5
#: Runs of a plan up to which loading a compiler is not worth it: half a second
#: (``benchmarks/cold_start.py``).
PLAIN_PYTHON_RUNS = 2
#: Entries of a plan up to which loading a compiler is not worth it: half a second
#: (``benchmarks/cold_start.py``).
PLAIN_PYTHON_ENTRIES = 1 << 16

# -- leaves.py ------------------------------------------------------------------------------------------------------

#: Seconds that summing one leaf out and back takes. Not measured by a script.
SECONDS_PER_LEAF = 4e-7
#: Random numbers made at a time, 8 MiB. Not measured.
UNIFORMS_AT_ONCE = 1 << 20

# -- planner.py: which products to form, in which layouts -----------------------------------------------------------
# No script measures one of these alone. Their effect is in the column `seconds` of `benchmarks/exact.py`.

#: Entries up to which the factors of one variable are joined beforehand.
MAX_JOINED_ENTRIES = 256
#: The part, one over this, of a clique that its factors may take when joined.
SMALL_CLIQUE_SHARE = 64
#: Tables of one variable, the smallest, among which the pair to be joined is looked for.
JOIN_CANDIDATES = 12
#: Entries of a clique from which on its layouts are chosen with care.
MIN_LAYOUT_ENTRIES = 1 << 15
#: Entries of the innermost run of a table that a new variable does not interrupt.
PROTECTED_RUN_ENTRIES = 64
#: Times the memory that a derivative needs, which it may get from one that is no longer needed.
MAX_OVERSIZE = 4
#: Variables planned between two looks at the clock: a few milliseconds.
VARIABLES_PER_PLANNING_CHECK = 256
#: Entries of a step from which on the order of its loops follows its largest table.
MIN_LOOP_ORDER_ENTRIES = 64
# Nanoseconds per entry of a clique for all three of its sums (forward and two derivatives), by its layout.
#: Nanoseconds per entry with innermost runs of at least 16 entries.
NS_LONG_RUNS = 1.9
#: Nanoseconds per entry with innermost runs of at least 8 entries.
NS_RUNS = 2.8
#: Nanoseconds per entry with shorter runs.
NS_SHORT_RUNS = 6.0
#: Nanoseconds per entry with 16 or more entries of the shared variables innermost.
NS_SHARED_INSIDE = 2.0
#: Nanoseconds per entry with 16 or more entries of one table alone innermost.
NS_OWN_INSIDE = 1.8
#: Nanoseconds per entry by products of matrices.
NS_MATRICES = 0.5
#: Nanoseconds per entry of a table that is copied into another layout.
NS_COPY = 8.0

# -- program.py -----------------------------------------------------------------------------------------------------
# Not measured by a script; the seconds are those of the machine of `benchmarks/README.md`.

#: Entries worked off between two looks at the clock: about 20 ms.
PIECE_ENTRIES = 1 << 22
#: Steps written down between two looks at the clock: a few milliseconds.
STEPS_PER_CLOCK_CHECK = 1024
#: Bytes of the tables of all rows of a block (:mod:`fastmix.exact.batch`), rows in a block at most, and at least: with
#: fewer the loops over rows take longer than the engine for single rows (``benchmarks/questions.py``).
BATCH_BYTES = 1 << 24
MAX_BATCH_ROWS = 64
MIN_BATCH_ROWS = 8
#: The same for rows of parameters (:mod:`fastmix.exact.parameter_rows`), which have no evidence to look up: what a loop
#: over the rows of a block costs beside them is shared by twice as many (``benchmarks/gradients.py``; half of it takes
#: 1.3 times as long for tables of their own and 1.7 times for shared ones, twice of it 1.3 times).
PARAMETER_BYTES = 1 << 25
MAX_PARAMETER_ROWS = 128
#: Tables are scaled when their largest entry leaves this range, so that few are.
SCALED_RANGE = (1e-15, 1e15)
#: Log of the range of positive entries below which a product of tables cannot underflow: the smallest normal double is
#: exp(-708).
MAX_LOG_RANGE = 600.0
#: What derivatives times tables must add up to, so that the quotient has all its digits.
SMALLEST_TOTAL = 1e-200

# -- solver.py ------------------------------------------------------------------------------------------------------

#: Bytes per state of a draw: as drawn, and five 8-byte arrays in mapping it to the original. Counted, not measured.
DRAW_BYTES = 48
#: Independent exact configurations that expectations of a user's function rest on: a standard error of 1 % of the
#: spread.
EXPECTATION_DRAWS = 10_000
#: Entries of a joint table that a result gives, 8 MiB. Not measured.
MAX_JOINT_ENTRIES = 1 << 20

# -- conditioning.py ------------------------------------------------------------------------------------------------

#: Cases of inference by cases at most: a table that is this many times too large is the hope of few.
MAX_CASES = 1024
#: Bytes of a memory limit below which no cases are made: planning takes as much. Not measured.
LEAST_CONDITIONED_BYTES = 2.0**26
#: Variables that are looked at before one of them is fixed: a tenth of a second on a thousand variables. Not measured.
CUTSET_CANDIDATES = 24

# -- twins.py -------------------------------------------------------------------------------------------------------

#: States of a counting variable; more are never worth a table. Not measured.
MAX_COUNTS = 5000
#: Edges, factors or variables between two looks at the clock: some milliseconds. Not measured.
TERMS_PER_CLOCK_CHECK = 1 << 12
#: Seconds per variable, edge or factor that making the model of counts takes. Not measured by a script.
SECONDS_PER_TWIN_TERM = 5e-5
