"""Numbers that tune learning: how many chains and rounds, when to stop, and what things take.

They are grouped by the file that uses them. What compiled code uses stands beside that code, because a compiled file is
not made anew when another file changes. Where nothing else is said, no script measures a number alone; test
log-likelihoods and seconds of whole fits are those of ``benchmarks/learning.py``.
"""

from __future__ import annotations

import math

__all__ = [
    "ACTIVITY_RATE", "ACTIVITY_WIDTH", "ANNEALED_CHAINS", "ANNEALED_SITES_PER_SECOND", "ANNEALED_TIME_SHARE",
    "AXIS_STEPS", "BOUNDS_MEMORY_PART", "BOUNDS_TIME_SHARE", "BURN_IN_GROWTH", "BYTES_PER_ANNEALED_SITE",
    "BYTES_PER_CELL", "BYTES_PER_CONTRAST_PAIR", "BYTES_PER_EDGE", "BYTES_PER_HIDDEN_VARIABLE",
    "BYTES_PER_MIXTURE_ENTRY", "BYTES_PER_STATE", "BYTES_PER_TABLE_ENTRY", "BYTES_PER_TEXT_CELL",
    "BYTES_PER_TREE_ENTRY", "BYTES_PER_VARIABLE_PAIR", "CAUTION", "CENTER_SHARE", "CHANCE_SHARE", "CHECKED_CHAINS",
    "CHECKED_SWEEPS", "CHUNK_NUMBERS", "COMPLETION_ITERATIONS", "COMPLETION_RIDGE", "COMPLETION_ROUNDS",
    "COMPLETION_SWEEPS", "COMPONENT_SMOOTHING", "CORRELATED", "DECIDED_RESIDUAL", "DEVICE_ANNEALED_CHAINS",
    "DEVICE_CHAINS", "DEVICE_RBM_PRODUCTS_PER_CALL", "EDGE_GROWTH", "EIGENVALUE_MARGIN", "EIGENVALUE_STEPS",
    "EIGENVALUE_TOLERANCE", "EXACT_TIME_SHARE", "FEW_COMPLETIONS", "FEW_CONTRASTS", "FINAL_SOLVER_STEPS",
    "FIRST_BURN_IN", "FIRST_MODELS", "FIRST_PASSES", "FIRST_RUNGS", "FIRST_SHARE_STEPS", "FIRST_SWEEPS",
    "FIRST_TIME_SHARE", "FIRST_TREES", "FIT_TIME_SHARE", "GROWING_CAUTION", "GROWING_CHAINS", "GROWING_DAMPING",
    "GROWING_RIDGE", "GROWING_SNAPSHOTS", "GROWING_STEPS", "GROWTH_PART", "HELD_OUT_SHARE", "HIDDEN_START_SPREAD",
    "HOPELESS_GAP", "INACTIVE_SHARE", "INFINITE_PARAMETER", "ITERATIONS_PER_SCORE", "ITERATIONS_PER_TREE",
    "L1_HALVINGS", "LAGS", "LARGE_MODEL_CONTRASTS", "LARGE_MODEL_SWEEPS", "LBFGS_MEMORY", "LEAST_SAMPLED_TOLERANCE",
    "LIPSCHITZ_DECAY",
    "LIPSCHITZ_GROWTH", "MANY_CHAINS", "MASS_TIME_SHARE", "MAX_BIAS_STEP", "MAX_BURN_IN", "MAX_CATEGORIES",
    "MAX_CHOSEN_COMPONENTS", "MAX_COMPLETED_CONTRASTS", "MAX_COMPLETE_VARIABLES", "MAX_COMPLETIONS", "MAX_COMPONENTS",
    "MAX_CONFIGURATIONS", "MAX_CONFIRMING_SWEEPS", "MAX_COUNTED_STATES", "MAX_CURVATURE", "MAX_DENSE_VARIABLES",
    "MAX_DISAGREEMENT", "MAX_EM_ITERATIONS", "MAX_EXACT_SECONDS", "MAX_GAIN", "MAX_GROWING_GAIN",
    "MAX_GROWING_VARIABLES", "MAX_GUARDED_VARIABLES", "MAX_HESSIAN_DATA_ROWS", "MAX_HESSIAN_NUMBERS",
    "MAX_HESSIAN_ROWS", "MAX_ITERATIONS", "MAX_MIXTURE_COMPONENTS", "MAX_MODELS", "MAX_ONE_HOT_ENTRIES", "MAX_PENALTY",
    "MAX_RIDGE_BESIDE_L1", "MAX_ROUGH_TOLERANCE", "MAX_ROUNDS", "MAX_SCORE_DIFFERENCE", "MAX_SECONDS_PER_GAP",
    "MAX_STD_ERROR", "MAX_SUBSAMPLES", "MAX_SWEEPS", "MAX_TAME_ROWS", "MAX_TREE_BYTES", "MAX_TREE_ENTRIES",
    "MEAN_FIELD_STEPS", "MIN_CHAINS",
    "MIN_CLAMPED_PAIRS", "MIN_DENSE_TERMS", "MIN_DENSITY", "MIN_EDGE_GAIN", "MIN_EFFECTIVE_SHARE", "MIN_EM_GAIN",
    "MIN_GAIN_VARIANCE", "MIN_GUARDED_ROWS", "MIN_LADDERS", "MIN_ROWS_PER_PARAMETER", "MIN_SAMPLED_TOLERANCE",
    "MIN_SIZE_GAIN", "MIN_STEP_SHARE", "MIN_TIMED_NORM_ENTRIES", "MIN_VARIANCE", "NORM_TIME_SHARE", "NOT_MIXED",
    "NUM_COMPLETIONS", "NUM_GROUPS", "NUM_STARTS", "NUM_TRIALS", "PAIRS_PER_SECOND", "PAIRS_TIME_SHARE",
    "PAIR_SMOOTHING", "PATH_RIDGE", "PATIENCE", "PILOT_MODELS", "PILOT_ROUNDS", "PRIOR_VARIANCE",
    "PSEUDO_PENALTY_SCALE",
    "PSEUDO_TIME_SHARE", "RBM_CHAINS", "RBM_FORGET", "RBM_FORGET_SQUARES", "RBM_MIN_GRADIENT", "RBM_MIN_VARIANCE",
    "RBM_PASSES", "RBM_PRODUCTS_PER_CALL", "RBM_STEP", "RIDGES", "ROUGH_FACTOR", "ROUGH_VALIDATION_ERROR",
    "ROUNDING_TOLERANCE", "ROWS_PER_PARAMETER", "SCORES_WITHOUT_GAIN", "SCORE_CAUTION", "SECONDS_PER_CONTRAST_PAIR",
    "SECONDS_PER_DENSE_ENTRY", "SECONDS_PER_EDGE", "SECONDS_PER_ENTRY_TO_MAKE", "SECONDS_PER_MATRIX_ENTRY",
    "SECONDS_PER_NORM_ENTRY", "SECONDS_PER_PRODUCT", "SECONDS_PER_STATE_PAIR", "SECONDS_PER_STATE_PAIR_AND_ROW",
    "SECONDS_PER_TABLE_ENTRY", "SECONDS_PER_TREE_ENTRY", "SECONDS_PER_VARIABLE_PAIR", "SET_BOUNDS", "SHORTEST_BRIDGE",
    "SHRINKAGE", "SIZES_WITHOUT_GAIN", "SMALLEST_GROWTH", "SMALL_CHANCE_SHARE", "SMALL_MODEL_CHAINS",
    "SMALL_MODEL_CONTRASTS", "SOLVER_STEPS", "SOLVER_TOLERANCE", "SPARSE_ACTIVITY", "SPARSE_PRODUCT_FACTOR",
    "SPARSE_SHARE", "SPREAD_SHARE",
    "STABILITY_TOLERANCE", "STALE_REJECTION", "START_ITERATIONS", "STEP_ROUNDING", "SUSPECT_GROWTH",
    "SUSPECT_PARAMETER", "SWEEP_TIME_SHARE", "TAME_ITERATIONS", "TAME_L1_FACTOR", "TAME_RIDGE", "TAME_SMALL_TOLERANCE",
    "TAME_TOLERANCE", "TOLERANCE", "TREES_OF_GAPS", "TREE_ENTRIES_PER_SECOND", "TREE_ITERATIONS", "TREE_SMOOTHING",
    "TREE_TIME_SHARE", "TRIAL_SHARE", "TRIAL_TIME_SHARE",
    "UMBRELLA_ROUNDS", "UNSEEN_COUNT", "USUAL_RIDGE", "VALIDATION_ERROR", "VALUE_ROUNDING",
]  # fmt: skip

# -- dataset.py, categories.py, data.py, files.py ---------------------------------------------------------------------

#: Different values of a column up to which they are states; with more it is most likely a measured quantity.
MAX_CATEGORIES = 1000
#: Bytes per value while a table of numbers is read. Counted, not measured.
BYTES_PER_CELL = 16.0
#: Bytes per state of a variable, in parameters and their copies. Counted, not measured.
BYTES_PER_STATE = 64.0
#: Bytes of a hidden variable, in its name and states beside the rows. Counted, not measured.
BYTES_PER_HIDDEN_VARIABLE = 256.0
#: Bytes of a cell of a text file as a string in a list. Counted, not measured.
BYTES_PER_TEXT_CELL = 80.0

# -- independent.py and chow_liu.py -----------------------------------------------------------------------------------

#: States of data counted at a time: 32 MiB of places.
MAX_COUNTED_STATES = 1 << 22
#: Entries of one-hot rows, and of probabilities of pairs, at once: 128 MiB.
MAX_ONE_HOT_ENTRIES = 1 << 24
#: Bytes per pair of variables: mutual informations and weights, and their sorting. Counted, not measured.
BYTES_PER_VARIABLE_PAIR = 80.0
#: Bytes per entry of a table of the tree, with its copies. Counted, not measured.
BYTES_PER_TREE_ENTRY = 50.0
#: Seconds per pair of variables. ``benchmarks/limits.py`` shows whether limits are kept with these three.
SECONDS_PER_VARIABLE_PAIR = 2e-7
#: Seconds per pair of states.
SECONDS_PER_STATE_PAIR = 3e-8
#: Seconds per pair of states and row.
SECONDS_PER_STATE_PAIR_AND_ROW = 1e-10
#: Times that, per pair of values of a row that are not the first state, where these are few.
SPARSE_PRODUCT_FACTOR = 100.0

# -- mixture.py, tree_mixture.py and mixture_trees.py -----------------------------------------------------------------
# Choices were made by validation scores of nltcs, msnbc and plants with ``benchmarks/mixtures.py``.

#: Share of the time for the model without hidden variables where mixtures are tried beside it.
PAIRS_TIME_SHARE = 0.5
#: Components of a mixture that may be asked for.
MAX_MIXTURE_COMPONENTS = 1 << 16
#: Components up to which ``auto`` doubles them.
MAX_COMPONENTS = 512
#: Gain of the validation score, in nats per row, without which twice as many components are no better.
MIN_SIZE_GAIN = 1e-3
#: Sizes in a row without it that end the search.
SIZES_WITHOUT_GAIN = 2
#: Starts of which the best is followed, for sizes up to so many components, and iterations of each before.
NUM_STARTS = 4
MAX_CHOSEN_COMPONENTS = 32
START_ITERATIONS = 6
#: Iterations of expectation maximization for one size.
MAX_EM_ITERATIONS = 150
#: Relative gain of the mean log-likelihood at which an iteration is the last.
MIN_EM_GAIN = 1e-6
#: Iterations from one score of the validation data to the next, and scores in a row without a gain that end it.
ITERATIONS_PER_SCORE = 3
SCORES_WITHOUT_GAIN = 3
#: Iterations in which the tree is chosen anew: some early ones, then every so many.
FIRST_TREES = (3, 6, 10)
ITERATIONS_PER_TREE = 16
#: Rows added to every component.
COMPONENT_SMOOTHING = 0.5
#: Rows added to every pair of states of all components together, before these smooth single components.
UNSEEN_COUNT = 0.5
#: Rows, spread evenly over the pairs of states of two variables, that smooth their mutual information.
PAIR_SMOOTHING = 1.0
#: Share of its first distributions that a component has from the row it begins at.
CENTER_SHARE = 0.5
#: Share of values beside the first states below which products of indicators are those of sparse matrices.
SPARSE_SHARE = 0.05
#: Bytes per entry of the tables of a mixture: tables, their logarithms, counts and copies. Counted, not measured.
BYTES_PER_MIXTURE_ENTRY = 64.0

# -- gaps.py ----------------------------------------------------------------------------------------------------------
# Chosen by how close couplings of a dense Ising model with a tenth of the values missing come to those of whole rows.

#: Iterations for a tree of rows with missing values, and those in which it is looked for anew.
TREE_ITERATIONS = 16
TREES_OF_GAPS = (0, 2, 4, 7)
#: Draws, at least, that stand for a row with missing values.
NUM_COMPLETIONS = 4
#: Contrasts of all columns up to which these are drawn by a pairwise model, which is fitted in so many rounds.
MAX_COMPLETED_CONTRASTS = 400
COMPLETION_ROUNDS = 6
#: Steps of every fit, its ridge, and sweeps of the chains before each draw.
COMPLETION_ITERATIONS = 15
COMPLETION_RIDGE = 2e-3
COMPLETION_SWEEPS = 10

# -- moment_check.py --------------------------------------------------------------------------------------------------

#: Chains, and their sweeps at least, of which moments are compared with those of data (not measured).
CHECKED_CHAINS = 256
CHECKED_SWEEPS = 400

# -- edge_gains.py and graph_search.py --------------------------------------------------------------------------------

#: Variance of a contrast at least, so that a constant column promises nothing.
MIN_GAIN_VARIANCE = 1e-12
#: Rows, spread evenly over all pairs of states, by which trees are smoothed.
TREE_SMOOTHING = 1.0
#: Ridge of the fits that a graph grows by, where the ridge is chosen later.
GROWING_RIDGE = 1e-3
#: The part, one over this, of its edges that a graph grows by at a time.
GROWTH_PART = 10

# -- activity.py and growth.py (``benchmarks/learning_sets.py``) -------------------------------------------------------

#: Share of the chains that are spread over all activities; the others are where the model is.
SPREAD_SHARE = 0.5
#: Standard deviation, at activity 0, of what counts as about the same activity; it grows by an eighth of the activity.
ACTIVITY_WIDTH = 0.5
#: Part of the logarithm of what is wanted over what is found by which the bias moves, and the largest such logarithm.
ACTIVITY_RATE = 0.3
MAX_BIAS_STEP = 1.5
#: Effective share of the chains below which a move of the parameters is made in shorter steps, and the shortest.
MIN_EFFECTIVE_SHARE = 0.5
SHORTEST_BRIDGE = 1e-3
#: Mean share of variables that are not in their usual state, below which data are sparse, so that graphs are grown.
SPARSE_ACTIVITY = 0.08
#: Variables of a model that is grown: the smoothing over activities is a dense matrix.
MAX_GROWING_VARIABLES = 3000
#: Chains, steps for every graph, and looks at the chains in each, two sweeps apart.
GROWING_CHAINS = 2048
GROWING_STEPS = 16
GROWING_SNAPSHOTS = 8
#: Variance that noise adds to every feature for the length of steps, in those of one effective draw.
GROWING_CAUTION = 1.0
#: Rounds that spread the chains over all activities at the tree.
UMBRELLA_ROUNDS = 150
#: Times its edges, those of a tree at least, that a graph has after growing.
EDGE_GROWTH = 1.6
#: Share of its edges by which a graph still grows; it becomes less where a graph was worse than the one before.
SMALLEST_GROWTH = 0.1
#: Gain that an edge must promise, in parts of a row: chance promises half a one.
MIN_EDGE_GAIN = 1.0
#: Steps that go all the way, before the noise of the others is averaged; and the gain that one may promise, in nats.
FIRST_SHARE_STEPS = 2
MAX_GROWING_GAIN = 0.3
#: What is added to the Hessian, times its diagonal.
GROWING_DAMPING = 0.05
#: Variance of couplings that the ridge stands for where it is to be chosen.
PRIOR_VARIANCE = 2.0
#: Difference of the scores by the chains and by annealing, beside four standard errors, from which on they disagree.
MAX_SCORE_DIFFERENCE = 0.05

# -- set_path.py ------------------------------------------------------------------------------------------------------

#: Bounds on the spectral norm of the sets on the path; the first two mix provably.
SET_BOUNDS = (0.5, 0.95, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
#: Ridge of the fits on the path where it is not given: the set does what ridges do elsewhere.
PATH_RIDGE = 1e-4
#: Share of a bound below which the norm of a model shows that the set holds nothing back.
INACTIVE_SHARE = 0.98

# -- cheap.py (``benchmarks/learning_sets.py``) ------------------------------------------------------------------------

#: Standard errors of log Z by which a score may be too good, where it is compared with an exact one.
SCORE_CAUTION = 2.0
#: Share of the rows that mixtures are compared on where there are no validation data.
HELD_OUT_SHARE = 0.1
#: The same for other models, whose fits are made again without them; how often at most; and the share of a time limit
#: for the first time.
TRIAL_SHARE = 0.2
NUM_TRIALS = 3
TRIAL_TIME_SHARE = 0.6
#: Share of the time for the tree of rows with missing values, which what is learnt must not be worse than.
TREE_TIME_SHARE = 0.8
#: Ridge that a call has where none was given: larger ones hold models back because they were asked to.
USUAL_RIDGE = 1e-3
#: Rows, at least, of which a part tells anything.
MIN_GUARDED_ROWS = 20
#: Rows per parameter, from which on what chance makes of a fit is known by the number of parameters.
MIN_ROWS_PER_PARAMETER = 10.0
#: Variables up to which a tree is looked for in a graph that was given.
MAX_GUARDED_VARIABLES = 1000

# -- learn.py, stability.py, penalty_search.py ------------------------------------------------------------------------

#: Penalty that may be asked for: parameters are then 0 up to rounding, and squares of steps far from overflowing.
MAX_PENALTY = 1e12
#: Subsamples of a stability: shares are then known to 0.0005, and every one is a fit.
MAX_SUBSAMPLES = 1_000_000
#: Tolerance of their fits, of which only the edges count.
STABILITY_TOLERANCE = 1e-4
#: Ridges that ``auto`` tries, in this order.
RIDGES = (1e-1, 1e-2, 1e-3, 1e-4)
#: Ridge up to which it tries them beside an l1 term, which makes tables small already.
MAX_RIDGE_BESIDE_L1 = 1e-3
#: Halvings of the least l1 term that leaves no edge, for those that ``auto`` tries before 0.
L1_HALVINGS = range(2, 9)
#: Times the penalties of the likelihood, for those of the pseudo-likelihood with the same effect: a table is in the
#: conditionals of both of its variables.
PSEUDO_PENALTY_SCALE = 2.0

# -- problem.py: what a fit takes, the model, its coordinates, twenty gradients and the norms -------------------------
# ``benchmarks/limits.py`` shows whether limits of time and memory are kept with them.

#: Variables of a complete graph.
MAX_COMPLETE_VARIABLES = 5000
#: Seconds per edge.
SECONDS_PER_EDGE = 4e-7
#: Seconds per entry of a table.
SECONDS_PER_TABLE_ENTRY = 5e-8
#: Seconds per pair of contrasts on an edge.
SECONDS_PER_CONTRAST_PAIR = 1e-7
#: Seconds per pair of contrasts at all: matrices are dense.
SECONDS_PER_MATRIX_ENTRY = 2e-8
#: Seconds per pair of contrasts and row.
SECONDS_PER_PRODUCT = 1e-10
#: Bytes per edge.
BYTES_PER_EDGE = 100.0
#: Bytes per entry of a table.
BYTES_PER_TABLE_ENTRY = 50.0
#: Bytes per pair of contrasts on an edge.
BYTES_PER_CONTRAST_PAIR = 500.0

# -- fit.py -----------------------------------------------------------------------------------------------------------

#: Largest entry of the gradient of an exact objective, in scaled coordinates, at which it has converged.
TOLERANCE = 1e-5
#: Iterations of an exact objective.
MAX_ITERATIONS = 1000
#: Standard deviation of the first tables of hidden variables, which must differ to become different.
HIDDEN_START_SPREAD = 0.02
#: Entries of tables beyond which their norms are not begun without the time for them.
MIN_TIMED_NORM_ENTRIES = 80_000
#: Seconds per entry of a table that its norms take (``benchmarks/limits.py``).
SECONDS_PER_NORM_ENTRY = 5e-8
#: Share of a time limit after which histories have no norms.
NORM_TIME_SHARE = 0.3
#: Entry of a table beyond which an unpenalized optimum is at infinity.
INFINITE_PARAMETER = 40.0
#: Entry of a table from which on that is looked into.
SUSPECT_PARAMETER = 5.0
#: By how much an entry grows with a hundredth of the tolerance if the optimum is at infinity.
SUSPECT_GROWTH = 0.5
#: Residual below which the state of a variable has more than half of the probability.
DECIDED_RESIDUAL = 0.5

# -- scaling.py and minimize.py ---------------------------------------------------------------------------------------

#: Variance of a contrast, at least, for its scale: constant columns would have infinite scales.
MIN_VARIANCE = 1e-2
#: Steps that L-BFGS remembers.
LBFGS_MEMORY = 20
#: Times the tolerance: gradients up to it count as zero where rounding allows no further decrease.
ROUNDING_TOLERANCE = 1e3
#: Curvature, times that of the ridge, that no rounding explains: steps get no shorter beyond it.
MAX_CURVATURE = 1e12
#: Relative rounding of values.
VALUE_ROUNDING = 1e-13
#: By which a bound on the curvature grows where a step was too long, and shrinks after every step.
LIPSCHITZ_GROWTH = 2.0
LIPSCHITZ_DECAY = 0.9

# -- model_moments.py, data_moments.py and pseudo_likelihood.py, masses.py --------------------------------------------

#: Configurations of a model that is enumerated: 32 MiB, a few hundredths of a second.
MAX_CONFIGURATIONS = 1 << 22
#: Entries of a junction tree that is run at every step, a few tenths of a second, where nothing was asked for: there
#: are about a hundred steps, and chains are through with models of 25 variables in fewer seconds than that.
MAX_TREE_ENTRIES = 2e7
#: Bytes that its tables may take, where nothing was asked for.
MAX_TREE_BYTES = 1e9
#: Its entries per second that is left, so that it can be run about a hundred times.
TREE_ENTRIES_PER_SECOND = 1e6
#: Seconds per entry of a run of it.
SECONDS_PER_TREE_ENTRY = 1e-8
#: Joint states of missing values that depend on each other, which are listed.
MAX_COMPLETIONS = 1 << 16
#: Seconds per row that elimination may take where they have more; it is the only way then.
MAX_SECONDS_PER_GAP = 0.1
#: Steps of mean field for the bounds on rows with more than that.
MEAN_FIELD_STEPS = 24
#: Their joint states up to which a list takes no longer than chains do.
FEW_COMPLETIONS = 1 << 12
#: Numbers of a temporary array: 32 MiB.
CHUNK_NUMBERS = 1 << 22
#: Variables up to which couplings make a dense matrix in any case.
MAX_DENSE_VARIABLES = 2000
#: Share of all pairs that are edges, from which on they make one.
MIN_DENSITY = 0.1
#: Edges times rows from which on that is worth it for the masses of rows.
MIN_DENSE_TERMS = 1 << 24
#: Seconds that such a matrix takes, or a sparse one, per entry of a table.
SECONDS_PER_DENSE_ENTRY = 5e-8

# -- likelihood.py and score.py ---------------------------------------------------------------------------------------

#: Standard error of log Z of a validation.
VALIDATION_ERROR = 0.01
#: The same where penalties are chosen.
ROUGH_VALIDATION_ERROR = 0.03
#: Chains that find it.
ANNEALED_CHAINS = 1024
#: The same on a GPU, where more of them take little longer.
DEVICE_ANNEALED_CHAINS = 1 << 13
#: Share of a time limit for the masses of rows.
MASS_TIME_SHARE = 0.5
#: Share of the rest for pseudo-likelihoods.
PSEUDO_TIME_SHARE = 0.3

# -- sampled_fit.py: where sampled fits begin, and when they are good enough ------------------------------------------

#: Share of a time limit for a fit that is validated afterwards.
FIT_TIME_SHARE = 0.7
#: Ridge, at least, of the pseudo-likelihood where the sampled likelihood begins.
TAME_RIDGE = 1e-2
#: Times the l1 term, for that pseudo-likelihood.
TAME_L1_FACTOR = 2.0
#: Tolerance of its search; for small models, whose ridge is as given.
TAME_TOLERANCE = 0.03
TAME_SMALL_TOLERANCE = 1e-3
#: Iterations of its search.
TAME_ITERATIONS = 200
#: Rows that it is made for.
MAX_TAME_ROWS = 1 << 16
#: Rounds of sweeps.
MAX_ROUNDS = 200
#: Gain in the log-likelihood that is small enough, per parameter, as a share of what chance makes of it.
CHANCE_SHARE = 0.1
#: The same of models of up to ``FEW_CONTRASTS`` contrasts, where it is cheap.
SMALL_CHANCE_SHARE = 0.01
FEW_CONTRASTS = 64
#: Gain, per parameter, that is small enough however many rows there are, unless the first share asks for less.
MIN_SAMPLED_TOLERANCE = 2e-6
#: Gain, per parameter, that is small enough in any case: what chance makes of a million rows. Sweeps are in proportion.
LEAST_SAMPLED_TOLERANCE = 5e-7
#: Times the tolerance where penalties are chosen, and the largest that this makes.
ROUGH_FACTOR = 5.0
MAX_ROUGH_TOLERANCE = 0.01
#: Contrasts of a small model, and chains for it.
SMALL_MODEL_CONTRASTS = 32
SMALL_MODEL_CHAINS = 1024
#: Chains of other models, beyond which rounds can be short as well.
MANY_CHAINS = 4096
#: Chains on a GPU, where more of them take little longer.
DEVICE_CHAINS = 1 << 14
#: Chains at least, where there is little time.
MIN_CHAINS = 64
#: Share of a time limit that a sweep of all chains may take.
SWEEP_TIME_SHARE = 0.02
#: Pairs of neighbors that a core is through with in a second at most.
PAIRS_PER_SECOND = 2e9

# -- sampled.py -------------------------------------------------------------------------------------------------------

#: Times a promise by the quadratic model: little data make objectives that are far from quadratic.
CAUTION = 4.0
#: Sweeps of a round.
MAX_SWEEPS = 1 << 16
#: Sweeps of a round where as little is promised as is asked for.
MAX_CONFIRMING_SWEEPS = 1 << 10
#: Share of a step below which it is not made shorter.
MIN_STEP_SHARE = 0.05
#: Gain that a step may promise, in nats; it is made shorter beyond.
MAX_GAIN = 1.0
#: Rounds in which chains do not follow, after which replica exchange takes over.
PATIENCE = 3

# -- sampled_gradient.py, persistent.py, clamped.py -------------------------------------------------------------------

#: Sweeps of the first round; more are an even number too.
FIRST_SWEEPS = 8
#: The same of large models, whose steps take longer, and the contrasts beyond which they are large.
LARGE_MODEL_SWEEPS = 32
LARGE_MODEL_CONTRASTS = 64
#: Sweeps before the first round.
FIRST_BURN_IN = 4
#: Times by which the burn-in grows until the bias is small enough, and sweeps where that ends.
BURN_IN_GROWTH = 1.25
MAX_BURN_IN = 100_000
#: Configurations for the Hessian: per parameter, and in all.
ROWS_PER_PARAMETER = 8
MAX_HESSIAN_ROWS = 1 << 16
#: Contrasts of all of them: 1 GiB.
MAX_HESSIAN_NUMBERS = 1 << 28
#: Sweeps at which correlations of the energies are measured.
LAGS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Correlation of energies below which chains have reached changed parameters.
CORRELATED = 0.2
#: Correlation after the longest lag from which on chains do not follow.
NOT_MIXED = 0.3
#: Rungs of the first ladders, rounds that find better ones, and ladders at least.
FIRST_RUNGS = 16
PILOT_ROUNDS = 64
MIN_LADDERS = 256
#: Rejection between neighbors that asks for other rungs.
STALE_REJECTION = 0.8
#: Pairs of chains given the data, at least, so that a correlation over them means something.
MIN_CLAMPED_PAIRS = 256

# -- newton.py --------------------------------------------------------------------------------------------------------

#: Rows of the data for the Hessian.
MAX_HESSIAN_DATA_ROWS = 8192
#: What is added to the diagonal of the Hessian, times the square of the rows per parameter.
SHRINKAGE = 1.5
#: Steps of the power method for the direction in which configurations differ most.
AXIS_STEPS = 3
#: Steps of the power method for the largest eigenvalue, the relative change that ends it, and a margin for the rest.
EIGENVALUE_STEPS = 30
EIGENVALUE_TOLERANCE = 0.01
EIGENVALUE_MARGIN = 1.1
#: Steps of conjugate gradients, and in the end; twice as many proximal ones.
SOLVER_STEPS = 60
FINAL_SOLVER_STEPS = 240
#: Relative residual that ends conjugate gradients.
SOLVER_TOLERANCE = math.sqrt(1e-3)
#: Relative rounding of products with the Hessian, which are in single precision.
STEP_ROUNDING = 1e-4

# -- rbm.py (``benchmarks/rbm.py``) -----------------------------------------------------------------------------------

#: Chains, and as many rows at a time.
RBM_CHAINS = 128
#: Passes through the data.
RBM_PASSES = 30
#: The first steps, in standard deviations of the features.
RBM_STEP = 0.02
#: How much the running means of the gradient, and of its squares, keep at every step.
RBM_FORGET = 0.5
RBM_FORGET_SQUARES = 0.995
#: Gradient below which steps get no longer.
RBM_MIN_GRADIENT = 1e-4
#: Variance of a visible bit, at least, for the scale of its steps.
RBM_MIN_VARIANCE = 1e-2
#: Products of a call for several steps: some hundredths of a second.
RBM_PRODUCTS_PER_CALL = 1e9
#: The same on a GPU.
DEVICE_RBM_PRODUCTS_PER_CALL = 2e11

# -- exact_log_z.py and annealed_log_z.py -----------------------------------------------------------------------------

#: Share of a time limit for proven bounds on log Z, and the part of the free memory for them.
BOUNDS_TIME_SHARE = 0.1
BOUNDS_MEMORY_PART = 8.0
#: Updates and pairs of neighbors that a core is through with in a second of annealing: fewer chains are made where a
#: limit is short.
ANNEALED_SITES_PER_SECOND = 1e8
#: Models of the pilot and of the first round together, for all ways and directions.
FIRST_PASSES = 600
#: Seconds that exact log Z may take, as it is estimated, where nothing was asked for.
MAX_EXACT_SECONDS = 20.0
#: Share of a time limit that planning and running may take; twice as much if the estimate is wrong.
EXACT_TIME_SHARE = 0.3
#: Groups of chains, for standard errors.
NUM_GROUPS = 32
#: Models on the way of the first, short run, which finds where to put those of the next.
PILOT_MODELS = 60
#: Models of the next run at most.
FIRST_MODELS = 300
#: Models beyond which there is no further round.
MAX_MODELS = 10_000
#: Share of a time limit after which no longer round is begun.
ANNEALED_TIME_SHARE = 0.3
#: Share of the time left that the first round may take, by the time of the pilot.
FIRST_TIME_SHARE = 0.5
#: Seconds that it takes to make chains, per entry of a table.
SECONDS_PER_ENTRY_TO_MAKE = 2e-7
#: Bytes of a chain per variable, with all copies that are made of its states. Counted, not measured.
BYTES_PER_ANNEALED_SITE = 24.0
#: By which log Z of a way is smaller than that of another for it to be left out.
HOPELESS_GAP = 20.0
#: Standard errors between the two directions from which on they do not agree.
MAX_DISAGREEMENT = 4.0
#: Standard error of log Z above which a status cannot be ok.
MAX_STD_ERROR = 0.1
