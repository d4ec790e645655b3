"""Numbers that the search for the most probable configuration is tuned by: budgets, temperatures, looks at the clock.

They are grouped by the file that uses them. None of them can make a bound invalid, but for those that say how exactly
sums are known. What compiled code uses stands in the files of the kernels.
"""

from __future__ import annotations

__all__ = [
    "ARCS_PER_CALL", "BLOCK_BITS_LADDER", "BLOCK_MOVES", "BLOCK_NOISE", "BUCKET_BITS", "BUCKET_BYTES_PER_ENTRY",
    "BUCKET_SECONDS_PER_ENTRY", "CHOICES_PER_SECOND", "CLIMBS_WITHOUT_GAIN", "COLDEST", "COLDEST_SPINS",
    "COST_ROUNDING", "COUPLING_TOLERANCE", "DESCENT_SECONDS", "DUAL_WINDOW", "EDGES_AT_ONCE", "ENTRIES_PER_CALL",
    "ENTRIES_PER_SECOND", "FEW_BLOCK_MOVES", "FEW_SWEEPS_PER_CALL", "FIRST_SWEEPS_OF_SPINS", "HOTTEST", "HOTTEST_SPINS",
    "LEAST_BLOCK_BITS", "LEAST_DUAL_GAIN", "LEAST_ENGINE_BYTES", "LEAST_GAP_SHARE", "LEAST_MOVE_GAIN",
    "LEAST_SLACK_SHARE", "LOOKS_PER_CALL", "MAX_BLOCK_CANDIDATES", "MAX_BLOCK_ENTRIES", "MAX_BUCKET_TABLES",
    "MAX_CHECKED_NUMBERS", "MAX_CONSTANT_STARTS", "MAX_COST_ENTRIES", "MAX_DESCENT_SWEEPS", "MAX_DUAL_PASSES",
    "MAX_LATTICE_ROOM", "MAX_LATTICE_STEPS", "MAX_MODES", "MAX_OPEN_CASES", "MAX_PART_BYTES", "MAX_PART_VARIABLES",
    "MAX_POLISHES", "MAX_PRICE_ROUNDS", "MAX_REGION_SHARE", "MAX_RESTARTS", "MAX_SHARE_OF_READ", "MAX_STATES_OF_CHAINS",
    "MAX_SUM_OF_COSTS", "MAX_SUPPORT_CHOICES", "MAX_WEIGHT_RATIO", "METRIC_SLACK", "MIN_TOULBAR2_SECONDS",
    "MOST_BLOCK_BITS", "NEGLIGIBLE_MISS", "NUM_CHAINS", "NUM_TEMPERATURES", "OVERRUN", "PART_GROWTHS",
    "READS_PER_LENGTH", "REHEATED", "SECONDS_PER_SPLIT_ENTRY", "SHARE_BEFORE_HURRY", "SHARE_OF_BUCKETS",
    "SHARE_OF_CHECK", "SHARE_OF_CLIMBS", "SHARE_OF_DOUBTFUL_ELIMINATION", "SHARE_OF_ELIMINATION",
    "SHARE_OF_ELIMINATION_OF_SOME", "SHARE_OF_EXPANSION", "SHARE_OF_FIRST_SOLUTION", "SHARE_OF_MESSAGES",
    "SHARE_OF_PARTS", "SHARE_OF_PLAN", "SHARE_OF_PRICED_SEARCH", "SHARE_OF_TOULBAR2", "SHARE_OF_WHOLE_MOVES",
    "STEPS_OF_SIMPLE_TABLES", "SUM_ROUNDING", "SWEEPS_PER_TEMPERATURE", "UPDATES_PER_CALL",
]  # fmt: skip

# -- mode_run.py ----------------------------------------------------------------------------------------------------

#: Rounding of sums of log-potentials, relative to the sum of their magnitudes. A bound, not measured.
SUM_ROUNDING = 1e-12
#: Sweeps of a descent at most, which mostly ends after ten. Not measured.
MAX_DESCENT_SWEEPS = 100
#: Table entries that a descent looks at before the clock is read: tenths of a second. Not measured.
ENTRIES_PER_CALL = 1 << 26

# -- exact_route.py. `benchmarks/most_probable.py` has the models solved and the seconds ------------------------------

#: Factor by which the estimated seconds of exact inference may be more than those left, for it to be tried: the
#: estimate is on the safe side.
OVERRUN = 3.0
#: Share of the time left for each of the two steps of planning exact inference.
SHARE_OF_PLAN = 0.25
#: Share of the time left for exact inference that fits by its estimate.
SHARE_OF_ELIMINATION = 0.9
#: The same where the estimate says that it does not fit, and might be wrong: a search must have its time, too.
SHARE_OF_DOUBTFUL_ELIMINATION = 0.6

# -- expansion_route.py. `benchmarks/most_probable.py` has the gaps of pictures ---------------------------------------

#: Share of the time left for the check that all tables are attractive.
SHARE_OF_CHECK = 0.2
#: Share of the time left for expansion moves, where a search follows.
SHARE_OF_EXPANSION = 0.5

# -- pattern_arrays.py, dual_messages.py, message_route.py. `benchmarks/most_probable.py` has gaps by time ------------

#: Factor by which the penalty on what is forbidden may be smaller where the weight of the edge is. Not measured.
MAX_WEIGHT_RATIO = 1e3
#: Table entries that are looked at in the time that a message through a Potts or a truncated linear table takes, for
#: each of its states. Decides when the clock is read.
STEPS_OF_SIMPLE_TABLES = 4
#: Passes of messages, there and back, at most.
MAX_DUAL_PASSES = 2000
#: Passes between two looks at what they have gained.
DUAL_WINDOW = 10
#: Share of the gap that a window of passes must close for another one to follow.
LEAST_GAP_SHARE = 0.01
#: The same for the bound, relative to itself, where no configuration is known.
LEAST_DUAL_GAIN = 1e-6
#: Share of the time left for passes of messages, where expansion moves and a search follow: on pictures drawn at random
#: (`benchmarks/message_share.py`) 0.9 is better than 0.75, but leaves large stereo pictures too little for moves.
SHARE_OF_MESSAGES = 0.85

# -- local_bounds.py. `benchmarks/labels.py` has the gaps -------------------------------------------------------------

#: Share of the gap above which what a term falls short by makes it part of a place to look at. Not measured: all terms
#: below it are a small part of the gap.
LEAST_SLACK_SHARE = 1e-7
#: Edges away from such terms that parts reach, in turn.
PART_GROWTHS = (2, 4, 6, 8, 12)
#: Variables of a part at most, and bytes of its tables. Not measured: hundredths of a second for a part.
MAX_PART_VARIABLES = 400
MAX_PART_BYTES = 2.0**24
#: Share of the time left for parts, where chains that cool down follow. Not measured.
SHARE_OF_PARTS = 0.5
#: Edges looked at at once: some MB of temporaries. Not measured.
EDGES_AT_ONCE = 1 << 13
#: Seconds for an entry of the unaries, and of a message, to write a pass as terms: an estimate on the safe side.
SECONDS_PER_SPLIT_ENTRY = 1e-7

# -- toulbar2_route.py. `benchmarks/engines.py` has the files proven, and the values ----------------------------------

#: Rounding of all costs together, in units of the log-weight, up to which an optimum of rounded costs counts as one.
#: A choice: seven digits of a ratio of probabilities.
COST_ROUNDING = 1e-6
#: Sum of all costs at most: a quarter of the whole numbers that float64 holds without gaps.
MAX_SUM_OF_COSTS = float(2**51)
#: Table entries that toulbar2 is given at most: handing them over takes some seconds. Not measured by a script.
MAX_COST_ENTRIES = 5_000_000
#: Bytes that its process may allocate at least: a limit on exact inference may be far smaller. Not measured.
LEAST_ENGINE_BYTES = 2.0**30
#: Seconds that must be left for it to be started: its process takes half of one. Not measured by a script.
MIN_TOULBAR2_SECONDS = 0.5
#: Share of the time left for it, where a search follows.
SHARE_OF_TOULBAR2 = 0.7
#: Share of its own time after which it is told to come to an end. Not measured.
SHARE_BEFORE_HURRY = 0.9

# -- search_route.py. `benchmarks/most_probable.py` has the models solved and the gaps --------------------------------

#: Chains that cool down side by side.
NUM_CHAINS = 16
#: Temperatures that they go through.
NUM_TEMPERATURES = 32
#: Inverse temperature at the start, over the largest sum of log-potentials around a variable.
HOTTEST = 0.5
#: Inverse temperature at the end, over the range of a usual table.
COLDEST = 20.0
#: Sweeps at every temperature in the first round; each round that takes little of the time has four times as many.
SWEEPS_PER_TEMPERATURE = 8
#: States of all chains together, at most: 8 MiB, less than the messages of a picture (`benchmarks/labels.py`).
MAX_STATES_OF_CHAINS = 1 << 20
#: Updates of single variables between two looks at the clock: tenths of a second. Not measured.
UPDATES_PER_CALL = 1 << 24

# -- cooling.py. `benchmarks/cuts.py` has the cuts of random graphs --------------------------------------------------

#: Inverse temperature at the start, over the usual deviation of the field at a spin.
HOTTEST_SPINS = 0.6
#: Inverse temperatures at the end, over the usual deviation of the field at a spin, and over the usual coupling.
COLDEST_SPINS = (8.0, 2.5)
#: Sweeps of the first reads.
FIRST_SWEEPS_OF_SPINS = 64
#: Reads of one length.
READS_PER_LENGTH = 8
#: Where a read from the best configuration begins on the way from the hottest to the coldest inverse temperature: on 12
#: random graphs better than 0 on 6, equal on 4, worse on 2.
REHEATED = 0.4
#: Share of the time limit that a read may take at most.
MAX_SHARE_OF_READ = 0.03
#: Looks at single spins between two looks at the clock: tenths of a second. Not measured.
LOOKS_PER_CALL = 1 << 24

# -- descents.py. `benchmarks/sampling.py` has what sampling gains by starts at modes ---------------------------------

#: Local maxima that are looked for.
MAX_MODES = 16
#: Descents that begin with all variables in the same state, at most.
MAX_CONSTANT_STARTS = 32
#: Descents from states that are not taken yet, at most.
MAX_RESTARTS = 3
#: Sweeps of a descent between two looks at the clock. Not measured.
FEW_SWEEPS_PER_CALL = 5
#: Table entries that descents, and chains, look at per second.
ENTRIES_PER_SECOND = 3e8
#: Seconds that all descents together may take, if each made ten sweeps.
DESCENT_SECONDS = 1.0

# -- flows.py. `benchmarks/labels.py` has the seconds of minimum cuts -------------------------------------------------

#: Arcs looked at before the clock is: about a tenth of a second. Not measured by a script.
ARCS_PER_CALL = 1 << 23
#: What may be missed by rounding, relative to the sum of all capacities. A bound, not measured.
NEGLIGIBLE_MISS = 1e-13
#: Different distances between the numbers of neighbors, at most, for a graph to count as a lattice: as many as those
#: of a grid of three dimensions with all diagonals.
MAX_LATTICE_STEPS = 13
#: Arcs that a lattice has room for, at most, for each of those that are there.
MAX_LATTICE_ROOM = 4

# -- cuts.py --------------------------------------------------------------------------------------------------------

#: A coupling this small, relative to the largest entry of its table, is rounding. A bound, not measured.
COUPLING_TOLERANCE = 1e-12

# -- label_moves.py, expansion_route.py, swap_route.py. `benchmarks/labels.py` has energies and seconds ---------------

#: By how much a table may miss being a metric, relative to its entries: rounding.
METRIC_SLACK = 1e-9
#: Relative gain of a log-weight from which on a move counts: more than rounding.
LEAST_MOVE_GAIN = 1e-12
#: Numbers at once in the check of moves: hundredths of a second. Not measured.
MAX_CHECKED_NUMBERS = 1 << 24

# -- allowed.py -----------------------------------------------------------------------------------------------------

#: Choices of a search for an allowed configuration, beyond ten per variable: a second or so. Not measured by a script.
MAX_SUPPORT_CHOICES = 100_000
#: Choices made per second. Not measured by a script.
CHOICES_PER_SECOND = 5e5

# -- marginal_map.py. `benchmarks/network_tasks.py` has seconds of small ones ----------------------------------------

#: Bytes that an entry of a table takes while it is eliminated: the product, its exponentials and the sums.
BUCKET_BYTES_PER_ENTRY = 32.0
#: Seconds for an entry, on the safe side.
BUCKET_SECONDS_PER_ENTRY = 4e-8
#: Share of the time left for the exact answer, where a search follows if it does not end by then. Not measured.
SHARE_OF_ELIMINATION_OF_SOME = 0.4
#: Share of the time left for climbs from further starts, before cases are branched on. Not measured.
SHARE_OF_CLIMBS = 0.3
#: Cases that wait at most while one after another is branched on: some 100 MB. Not measured.
MAX_OPEN_CASES = 500_000

# -- solutions.py ----------------------------------------------------------------------------------------------------

#: Share of the time left for the best solution, where several are asked for one by one. Not measured.
SHARE_OF_FIRST_SOLUTION = 0.5
#: Prices that are tried for a solution, each by a search of its own: each halves the range. Not measured.
MAX_PRICE_ROUNDS = 12
#: Share of the time left of a solution for the search at one price. Not measured.
SHARE_OF_PRICED_SEARCH = 0.3
#: Changes of single variables at most that make a solution better. Not measured.
MAX_POLISHES = 100

# -- blocks.py. `benchmarks/blocks.py` has values of drawn families of models -----------------------------------------

#: Bits of the entries of a table at most in the first moves of a climb, and how many more in those after it.
LEAST_BLOCK_BITS = 6.0
BLOCK_BITS_LADDER = (0.0, 3.0, 6.0, 9.0)
#: Bits of the entries of a table at most in any move.
MOST_BLOCK_BITS = 20.0
#: Entries of all tables of a move together, at most: about a tenth of a second, and 32 MB.
MAX_BLOCK_ENTRIES = 1 << 22
#: Variables at most among which a block is chosen: 5 ms of bits for the graph between them.
MAX_BLOCK_CANDIDATES = 4096
#: Noise on the logs of entries by which the next variable of a block is chosen. Not measured.
BLOCK_NOISE = 1.0
#: Share of the moves that choose a block among all variables; others do so among those around one of them.
SHARE_OF_WHOLE_MOVES = 0.5
#: Moves in a row without a gain that end one step of a climb.
BLOCK_MOVES = 6
#: The same for moves of the largest blocks.
FEW_BLOCK_MOVES = 3
#: Climbs in a row, from the best configuration with a region drawn anew, that gain nothing before one begins elsewhere.
CLIMBS_WITHOUT_GAIN = 6
#: Share of the variables that are drawn anew, at most.
MAX_REGION_SHARE = 0.1

# -- bucket_bounds.py -------------------------------------------------------------------------------------------------

#: Bits of the entries of a product at most, one bound after another; the last takes a second or so.
BUCKET_BITS = (10, 14, 18)
#: Tables of a model at most: a step of elimination in Python looks at all of them. Not measured.
MAX_BUCKET_TABLES = 20_000
#: Share of the time left for these bounds. Not measured.
SHARE_OF_BUCKETS = 0.1
