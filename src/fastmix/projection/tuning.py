"""Numbers that tune the projections: how accurate, how often, how large, how long.

Each says its unit, the reason for its value, and what measures it. "Not measured" is said where the value is a round
number that nobody has compared with others. Numbers inside compiled functions stay with these: their cache is made anew
when their own file changes, not when this one does.
"""

from __future__ import annotations

__all__ = [
    "ACCEPTED_SHARE_OF_SLOPE", "BYTES_PER_POTENTIAL", "DESCENT_START_SHARE", "FACE_PASSES", "FACE_ROUNDS", "FACE_TOL",
    "FACE_ZERO", "FACTOR_OF_STALLED_STEP", "HUGE_ENTRIES",
    "INF_RELAXATION", "ISING_TABLES_AT_ONCE", "KNOTS_PER_CALL", "LARGEST_STEP", "LBFGS_MEMORY", "LEAST_MARGINAL",
    "LEAST_SETTLE_SHARE", "LEAST_VARIANCE", "MAX_CONTRASTS", "MAX_HALVINGS", "MAX_MERGED_BYTES", "MAX_RESTARTS",
    "MAX_SHRINKS", "MAX_WHOLE_PATCH", "NORM_BEFORE_SHARE", "NOTICED_EXCESS", "PAPER_LBFGS_MEMORY", "PASSES_PER_CHECK",
    "PATCH_REACH", "POOL_UPDATES_PER_SECOND", "RECORDED_ENTRIES", "RESTART_NOISE", "ROUNDING_MARGIN", "SAME_CURVATURE",
    "SETTLE_SHARE", "SHRINKS_BEFORE_CENTERING", "SMALLEST_STEP", "SPECTRAL_BLOCK", "SPECTRAL_MEMORY",
    "SPECTRAL_NORM_SHARE", "SPECTRAL_NORM_SLACK", "SPECTRAL_NUMBERS_PER_CALL", "SPECTRAL_RANK", "SPECTRAL_STEP_SHARE",
    "TRIAL_STEP_SIZE", "WIDTH_BEFORE_SHARE", "WIDTH_HASTE", "WIDTH_LARGE_TOL", "WIDTH_LEAST_DENSITY",
    "WIDTH_MAX_DENSE", "WIDTH_NORM_SHARE", "WIDTH_RANK", "WIDTH_RELAXATION", "WIDTH_SPARSE_TOL",
    "WIDTH_STEPS_PER_ITERATION", "WIDTH_STEP_SHARE",
]  # fmt: skip

# -- projector.py ---------------------------------------------------------------------------------------------------

#: Multiple of the norm bound. Beyond it, what nothing bounds is moved out of the tables: the rounding of such entries
#: is a billionth of the bound. Tested by tests/projection/test_huge_tables.py.
HUGE_ENTRIES = 1e6

#: Share of the time that is left for the norm of the model before anything is changed. Not measured: most of the time
#: is for the projection.
NORM_BEFORE_SHARE = 0.2

#: Share of the time that is left for the Euclidean projection that a descent begins with. Not measured: the descent
#: has as much.
DESCENT_START_SHARE = 0.5

# -- feasible.py ----------------------------------------------------------------------------------------------------

#: Number of attempts to move a model into the set. Each takes at least half of what is left above the bound, or 16
#: digits. Tested by tests/projection/test_huge_tables.py.
MAX_SHRINKS = 100

#: Number of shrinks without success after which parts of one variable leave the tables, whose rounding may be more than
#: what the bound leaves. Not measured: most models need one or two shrinks.
SHRINKS_BEFORE_CENTERING = 20

#: Multiple of the norm bound: a result above it was not over the bound by rounding. Not measured: rounding is below
#: 1e-9.
NOTICED_EXCESS = 1.001

#: Share of the time that is left for every measurement of the result. Not measured.
SETTLE_SHARE = 0.3

#: Share of the whole limit that a measurement of the result has in any case, after the limit is over. Not measured.
LEAST_SETTLE_SHARE = 0.05

# -- coordinates.py -------------------------------------------------------------------------------------------------

#: Smallest variance in ``fisher`` coordinates, relative to the uniform distribution: a limit to how much longer steps
#: get. Not measured on its own; the coordinates are in benchmarks/divergences.py.
LEAST_VARIANCE = 0.05

# -- descent.py -----------------------------------------------------------------------------------------------------

#: Share of the decrease that the slope promises which a step of the line search must reach (Armijo's condition). The
#: usual value; not measured.
ACCEPTED_SHARE_OF_SLOPE = 1e-4

#: Number of fractions of a direction that the line search tries; after it nothing goes down but by rounding. Not
#: measured.
MAX_HALVINGS = 30

#: Smallest and largest length of a step of the line search. Not measured: they catch divisions by almost zero.
SMALLEST_STEP = 1e-6
LARGEST_STEP = 1e6

#: Factor of the length after a step along which the gradient did not grow. Not measured.
FACTOR_OF_STALLED_STEP = 4.0

# -- edges.py -------------------------------------------------------------------------------------------------------

#: Number of contrasts of one table beyond which its path is not attempted: 25 x 25 states have 90,000 under ``range``,
#: and the time of a path grows with the square of the number. Not measured.
MAX_CONTRASTS = 100_000

#: Entries of the tables at the knots of a path that are kept at first: 32 MiB, enough for 30 states; a longer path is
#: followed once more. Not measured.
RECORDED_ENTRIES = 1 << 22

#: Relative difference of curvatures that rounding makes: the costs of patterns are then one quadratic function.
#: Not measured: it follows from the precision of doubles.
SAME_CURVATURE = 1e-12

#: Number of knots that one compiled call may write: the clock is read between calls. Not measured.
KNOTS_PER_CALL = 1 << 18

#: Number of tables of two states each that are moved at once: half a MiB per temporary array, which stays in the
#: cache. Measured by benchmarks/projection.py.
ISING_TABLES_AT_ONCE = 1 << 14

#: Sizes of the random change of a table whose path could not be followed, relative to its largest entry, in the order
#: in which they are tried. The first is nearly always enough. Not measured.
RESTART_NOISE = (1e-11, 1e-10, 1e-9, 1e-8, 1e-7)

# -- solution.py ----------------------------------------------------------------------------------------------------

#: Room for rounding between what a solver aims at and what is promised, relative to the bound; the objective moves by
#: as little. Tested by tests/projection/test_project.py.
ROUNDING_MARGIN = 1e-12

#: Pairs of vectors that L-BFGS-B keeps when it climbs a dual. Not measured.
LBFGS_MEMORY = 20

# -- euclidean.py ---------------------------------------------------------------------------------------------------

#: Over-relaxation of the passes over nodes, between 1 and 2. On attractive 16x16 and 300x300 grids 1.5 to 1.7 took 40
#: to 100 passes where 1.0 took 100 to 460. The passes are measured by benchmarks/projection.py.
INF_RELAXATION = 1.6

#: Passes over all nodes between two looks at the gap. Not measured.
PASSES_PER_CHECK = 10

# -- spectral.py ----------------------------------------------------------------------------------------------------

#: Columns of the factor V of the multiplier: enough unless more eigenvalues than that meet at the bound. Times are
#: measured by benchmarks/projection.py.
SPECTRAL_RANK = 8

#: Pairs of vectors that L-BFGS keeps. Not measured.
SPECTRAL_MEMORY = 8

#: Steps of L-BFGS between two looks at the norm. Not measured.
SPECTRAL_BLOCK = 50

#: Relative difference that two safe upper bounds on the norms of nearly equal matrices can have. Tested by
#: tests/projection/test_project.py.
SPECTRAL_NORM_SLACK = 2e-10

#: Share of the time for steps; the rest is for norms, of which the one at the end takes longest. Not measured.
SPECTRAL_STEP_SHARE = 0.6

#: Share of the time that is left for one norm between steps: a measurement of the result comes after it. Not measured.
SPECTRAL_NORM_SHARE = 0.3

#: Numbers that one compiled call may go through: the clock is read between calls. About a second; not measured.
SPECTRAL_NUMBERS_PER_CALL = 5e8

# -- width.py and width_solvers.py ----------------------------------------------------------------------------------

#: Coordinates (states of all variables but one of each) up to which matrices are decomposed. Not measured.
WIDTH_MAX_DENSE = 3000

#: Share of all pairs of coordinates that are entries of edges; below it the splitting takes hundreds of steps, and the
#: dual of low rank is solved instead. Not measured.
WIDTH_LEAST_DENSITY = 0.1

#: Over-relaxation of the splitting, below 2: complete graphs take half as many steps as with 1. Not measured by a
#: committed script.
WIDTH_RELAXATION = 1.6

#: Columns of U and of V in the dual of low rank. More columns change the sixth digit of the distance, on a 3-regular
#: graph of 200 variables. Not measured by a committed script.
WIDTH_RANK = 8

#: Steps of L-BFGS that count as one iteration, and that there are at least between two looks at the norm. Not measured.
WIDTH_STEPS_PER_ITERATION = 20

#: Relative gap of the dual of low rank at best: its last digits take ten times as long, because the distance to the set
#: falls with the square root of the error of the dual. Tested by tests/projection/test_width.py.
WIDTH_SPARSE_TOL = 1e-3

#: Relative gap at best beyond ``WIDTH_MAX_DENSE`` coordinates, where the norm is proved to 2e-3. Tested by
#: tests/projection/test_width.py.
WIDTH_LARGE_TOL = 5e-3

#: Share of the time that is left for the width of the model before anything is changed. Not measured.
WIDTH_BEFORE_SHARE = 0.2

#: Multiple of the time that is left which the matrix of the couplings may be estimated to take; beyond it the largest
#: row sum stands in for the norm. Checked by benchmarks/limits.py.
WIDTH_HASTE = 2.0

#: Share of the time for steps; the rest is for norms. Not measured.
WIDTH_STEP_SHARE = 0.6

#: Share of the time that is left for an estimate of the norm between steps. Not measured.
WIDTH_NORM_SHARE = 0.3

# -- paper_dual.py --------------------------------------------------------------------------------------------------

#: Pairs of vectors that L-BFGS-B keeps. Not measured.
PAPER_LBFGS_MEMORY = 20

#: Restarts of one smoothed step, each with the values measured from a nearer point. Not measured.
MAX_RESTARTS = 10

# -- kl.py and forest.py --------------------------------------------------------------------------------------------

#: Bytes of merged tables beyond which single rows and columns are taken instead of pairs of lines. Not measured: a
#: quarter of a GiB fits every machine.
MAX_MERGED_BYTES = 2.0**28

#: Bytes per potential of a forest: two index arrays and two matrices over it, its marginal, its message. Counted from
#: the types of these arrays.
BYTES_PER_POTENTIAL = 80

# -- reversed_kl.py -------------------------------------------------------------------------------------------------

#: Factor of the gradient in the trial steps from every start. Not measured on its own; the default settings are in
#: benchmarks/divergences.py.
TRIAL_STEP_SIZE = 0.1

#: Variables and edges of chains that are gone through per second: a guess, by which a descent that would give no value
#: in time is not begun. A slow core does about as much; measured by benchmarks/gpu_pool.py.
POOL_UPDATES_PER_SECOND = 2e8

#: Variables up to which a model is one patch. Not measured.
MAX_WHOLE_PATCH = 400

#: Edges around a patch within which energies count in its covariances. Not measured on its own; patches are tested by
#: tests/projection/test_reversed_kl.py.
PATCH_REACH = 4

#: Smallest marginal taken from a population: a state that no chain is in is rare, not impossible. Not measured.
LEAST_MARGINAL = 0.01

# -- faces.py -------------------------------------------------------------------------------------------------------

#: Relative gap at which multipliers tell the face of a projection: the bounds are found exactly afterwards. A hundred
#: times the rounding that the gap itself has; tested by tests/projection/test_faces.py.
FACE_TOL = 1e-10

#: Most passes over the nodes of a row. Grids of 16x16 take 50 to 170; not measured on its own.
FACE_PASSES = 100_000

#: Share of the largest multiplier, bound or contrast below which one is taken for zero: the root of that gap.
FACE_ZERO = 1e-6

#: Times that a face is told anew from the bounds on it. Two do nearly always; not measured on its own.
FACE_ROUNDS = 30
