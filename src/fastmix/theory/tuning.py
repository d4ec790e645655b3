"""Numbers that tune the theory: budgets of visits and seconds, and sizes at which a faster way is taken.

They are grouped by the file that uses them. None of them can make a bound invalid: they decide how tight a bound is and
how long it takes. What compiled code uses, and margins for rounding, stand in the files that need them.
"""

from __future__ import annotations

__all__ = [
    "ASCENT_PASSES_PER_STEP", "ASCENT_RANK", "BYTES_PER_DENSE_ENTRY", "CHUNK_ENTRIES", "EIGENVALUE_COSTS",
    "EIGENVECTOR_COSTS", "ENTRIES_PER_CLOCK_CHECK", "FEW_COLUMNS", "LANCZOS_BLOCK", "LANCZOS_TOLERANCE",
    "MARGIN_BISECTIONS", "MATRIX_TIME_SHARE", "MAX_ASCENT_ROWS", "MAX_ASCENT_WORK", "MAX_CERTIFICATE_VISITS",
    "MAX_COMPARISONS", "MAX_COMPARISON_STEPS", "MAX_COMPARISON_VISITS", "MAX_DENSE_EIGENVALUE_ROWS",
    "MAX_DENSE_PRODUCT_ROWS", "MAX_EVALUATIONS", "MAX_EVERY_CRITERION_VARIABLES", "MAX_FORBIDDEN_SETS",
    "MAX_JOINT_STATES", "MAX_LANCZOS_STEPS", "MAX_MARGIN_VISITS", "MAX_NEWTON_STEPS", "MAX_NORM_VISITS",
    "MAX_OFFENDING", "MAX_PATH_POINTS", "MAX_PATH_VISITS", "MAX_PROOF_WORK", "MAX_PYTHON_COMPARISONS",
    "MAX_REFRESH_VISITS", "MAX_SPLIT_WORK", "MAX_STORED_LANCZOS_BYTES", "MAX_UPDATES", "MAX_WIDTH_STATES",
    "MIN_COMPARISON_STEPS", "MIN_LANCZOS_STEPS", "PATH_TOLERANCE", "PROBE_REPEATS", "PROBE_ROWS",
    "SECONDS_PER_COUPLING", "SETTLED_CHANGE", "SLACK_AFTER_VISITS", "SPLIT_START_QUANTILE", "SPLIT_STEPS",
    "STALLED_RATIO", "SWEEPS_PER_STALL_CHECK", "VISITS_PER_CLOCK_CHECK",
]  # fmt: skip

# -- bias.py --------------------------------------------------------------------------------------------------------

#: Entries of R visited between two looks at the clock: a tenth of a second. Not measured by a script.
VISITS_PER_CLOCK_CHECK = 5e7

# -- certificates.py and dobrushin.py. `benchmarks/certificates.py --large` has the seconds of whole certificates ---

#: Entries of R that one certificate may visit: about six seconds.
MAX_CERTIFICATE_VISITS = 3e9
#: Entries of R that may be visited for one model that is scaled in the search for the margin: a fifth of a second.
MAX_MARGIN_VISITS = 1e8
#: Share of a time limit for the bound on R; after that, tables of many states get wider bounds. Not measured.
MATRIX_TIME_SHARE = 0.5
#: Sweeps of the iteration between two looks at whether the sum of the biases still falls, where no norm is below 1. Not
#: measured.
SWEEPS_PER_STALL_CHECK = 50
#: Ratio of the sums of the biases after and before these sweeps from which on the iteration counts as stalled. Not
#: measured.
STALLED_RATIO = 0.999
#: Variables with the strongest dependencies that a certificate names.
MAX_OFFENDING = 10
#: Random updates up to which a criterion for them counts as a certificate by default: about a minute of sampling
#: (``benchmarks/certificates.py``, column of seconds).
MAX_UPDATES = 5e9
#: Variables up to which all criteria are asked even where Dobrushin's promises as much as they can at best: a fraction
#: of a second. Not measured by a script.
MAX_EVERY_CRITERION_VARIABLES = 500

# -- criteria.py ----------------------------------------------------------------------------------------------------

#: Steps of the bisection between powers of two that finds the margin: four digits.
MARGIN_BISECTIONS = 14

# -- width_criterion.py ---------------------------------------------------------------------------------------------

#: States of a variable up to which the width is computed: its orthonormal basis has the square of that many numbers,
#: 72 MB.
MAX_WIDTH_STATES = 3000

# -- path_criterion.py. `benchmarks/certificates.py` has the scales certified and, with --large, the seconds ---------

#: Excess of the exponent that is accepted: five per cent of the constant.
PATH_TOLERANCE = 0.05
#: Points at which the bound K is computed at most.
MAX_PATH_POINTS = 500
#: Entries that all bounds K may visit: a few seconds.
MAX_PATH_VISITS = 1.2e9
#: Entries that matrices may have, times 40, to get a vector of their own at every point.
MAX_REFRESH_VISITS = 2e6

# -- split_criterion.py. `benchmarks/certificates.py` has the scales certified ---------------------------------------

#: Steps along the slopes.
SPLIT_STEPS = 40
#: Passes of the ascent behind the width, for every step.
ASCENT_PASSES_PER_STEP = 4
#: Numbers visited by all passes; larger models are not split.
MAX_SPLIT_WORK = 5e8
#: Quantile of the dependencies that the first split leaves to the width.
SPLIT_START_QUANTILE = 0.7

# -- comparison.py --------------------------------------------------------------------------------------------------

#: Relative change of every bound below which the iteration has settled. Every step of it bounds the distances: when it
#: ends decides about tightness only. Not measured.
SETTLED_CHANGE = 1e-8
#: Steps that the iteration may take whatever the size of R. Not measured.
MIN_COMPARISON_STEPS = 200
#: Steps that the iteration takes at most. Not measured.
MAX_COMPARISON_STEPS = 20_000
#: Entries of R that all steps may visit: a few seconds. Not measured by a script.
MAX_COMPARISON_VISITS = 1e9

# -- dense.py -------------------------------------------------------------------------------------------------------

#: Rows of the product of matrices that is timed on this machine: half a millisecond.
PROBE_ROWS = 256
#: Times that it is timed; the fastest counts, because other work on the machine makes some slower.
PROBE_REPEATS = 3
#: All eigenvalues of a symmetric matrix of n rows, times the product of two such matrices: coefficients of n^3 and n^2.
#: Reductions to tridiagonal form take as much memory traffic as operations, and small matrices take relatively longer.
#: Measured for 64 to 2,000 rows on one thread (OpenBLAS), a few tenths above what was seen; no script is kept.
EIGENVALUE_COSTS = (3.2, 700.0)
#: The same with all eigenvectors.
EIGENVECTOR_COSTS = (7.0, 1500.0)

# -- table_groups.py, dependency.py and conditionals.py -------------------------------------------------------------

#: Table entries worked on at once: 2 MiB per temporary array, which stays in the cache. Not measured by a script.
CHUNK_ENTRIES = 1 << 18
#: Columns of tables up to which their sizes take no longer than the ranges of their rows and columns.
FEW_COLUMNS = 4
#: Conditional distributions that an enumeration may compute: a few seconds. Not measured by a script.
MAX_EVALUATIONS = 5e6
#: Entries of pairs of conditional distributions that an enumeration may compare: a few seconds. Not measured by a
#: script.
MAX_COMPARISONS = 4e9
#: Joint states of the neighbors of a variable that are tried for one that leaves it no state. Not measured.
MAX_JOINT_STATES = 1 << 20
#: Sets of states of a variable that its terms can forbid together, up to which they are listed. Not measured.
MAX_FORBIDDEN_SETS = 1 << 16

# -- factors.py -----------------------------------------------------------------------------------------------------

#: Entries that one call of the loop may compare, a twentieth of a second: the clock is read between calls.
ENTRIES_PER_CLOCK_CHECK = 3e7
#: Entries to compare beyond which the loop is compiled. Not measured by a script.
MAX_PYTHON_COMPARISONS = 3e4

# -- intervals.py ---------------------------------------------------------------------------------------------------

#: Steps of Newton's method; quadratic convergence takes about six.
MAX_NEWTON_STEPS = 40

# -- norms.py. No script measures these alone; `benchmarks/certificates.py --large` and `benchmarks/projection.py` ---
# -- have seconds that they decide about -----------------------------------------------------------------------------

#: Relative slack of the spectral norm that is good enough until this many entries were visited: exact to ten digits
#: while that takes a fraction of a second, looser for millions of variables with many eigenvalues near the largest.
SLACK_AFTER_VISITS = ((5e7, 1e-10), (4e8, 1e-8), (1.5e9, 1e-6), (float("inf"), 1e-4))
#: Entries visited, about ten seconds, after which the slack grows until the vector at hand proves something.
MAX_NORM_VISITS = 6e9
#: Rows of a matrix up to which a product with an array takes less time than the call for a sparse one.
MAX_DENSE_PRODUCT_ROWS = 64
#: Bytes per entry of an array that becomes a sparse matrix whose norm is computed. Counted, not measured.
BYTES_PER_DENSE_ENTRY = 48.0
#: Bytes of Lanczos vectors that are kept; beyond that they are computed a second time.
MAX_STORED_LANCZOS_BYTES = 2**27
#: Lanczos vectors that get memory at once, in large pages: page by page it takes longer than what is written there.
LANCZOS_BLOCK = 32
#: Steps of an estimate from below.
MAX_LANCZOS_STEPS = 400
#: Relative change at which an estimate from below ends.
LANCZOS_TOLERANCE = 1e-3
#: Steps taken whatever the clock says: about a second for a million variables, and the norm to a few per cent.
MIN_LANCZOS_STEPS = 24

# -- width.py. `benchmarks/certificates.py --large` has the seconds of the width -------------------------------------

#: Rank of the two factors of the dual; more change the fourth digit.
ASCENT_RANK = 8
#: Coordinates up to which all eigenvalues are computed.
MAX_DENSE_EIGENVALUE_ROWS = 3000
#: Seconds per entry of the matrix B: to build it, and for the few products that any bound takes.
SECONDS_PER_COUPLING = 1e-7
#: Numbers visited by the ascent: a few seconds.
MAX_ASCENT_WORK = 2e9
#: Coordinates beyond which no diagonal is sought.
MAX_ASCENT_ROWS = 400_000
#: Numbers visited by the proof of the norm: a few seconds.
MAX_PROOF_WORK = 2e9
