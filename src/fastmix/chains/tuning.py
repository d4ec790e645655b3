"""Constants of the chains that tune: sizes and times at which another way to do the same work becomes the better one.

They are grouped by the file that reads them. Each says its unit, its reason and what measures it: a benchmark in
parentheses times the code that the constant steers, so that another value can be compared by running it again. None of
them changes what a chain draws, except ``CHUNK_SITES`` and ``CHUNKED_SITES``, which assign streams of random numbers,
and those that choose between kernels, whose conditional probabilities differ in their last bits.

Constants that are compiled into kernels are not here but in the files of these kernels (``LANES_AT_ONCE``,
``FLUSHED_SITES``, ``SCATTERED_STATES``, and those in ``cuda/``): Numba keeps compiled code as long as the file of a
kernel does not change, so that a kernel would go on with the old value of a constant that was changed here.
"""

from __future__ import annotations

__all__ = [
    "ANSWER_REPEATS",
    "ANSWER_SHARE",
    "BLOCK_CHAINS",
    "BLOCK_SITES",
    "BLOCK_THREADS",
    "CHUNKED_SITES",
    "CHUNK_SITES",
    "DENSE_SHARE",
    "DEVICE_UPDATES_PER_STEP",
    "GROUPED_SUMS",
    "HOST_STEP_SECONDS",
    "HOST_UPDATES_PER_STEP",
    "KEPT_NEIGHBORS_PER_CHAIN",
    "LADDER_BLOCKS",
    "LARGE_MODEL",
    "LAYER_BLOCK_CHAINS",
    "LINK_BYTES",
    "MANY_GROUPS",
    "MAX_BATCH_ENERGIES",
    "MAX_BATCH_THREADS",
    "MAX_CODES",
    "MAX_COLOR_ROUNDS",
    "MAX_DENSE_VARIABLES",
    "MAX_DEVICE_TABLE_ENTRIES",
    "MAX_GRID",
    "MAX_GROUPS",
    "MAX_LOG_WEIGHT",
    "MAX_PATCH_WORK",
    "MAX_PYTHON_ENTRIES",
    "MAX_READING_BLOCKS",
    "MAX_SET_TABLE_ENTRIES",
    "MAX_SUMS",
    "MAX_TABLE_ENTRIES",
    "MAX_VALUES",
    "MAX_WORDS_PER_THREAD",
    "MAX_WORKER_TWINS",
    "MIN_ANSWER_SECONDS",
    "MIN_DENSE_VARIABLES",
    "MIN_FIELD_NEIGHBORS",
    "MIN_KEPT_NEIGHBORS",
    "MIN_LAYER",
    "MIN_PACKED_CHAINS",
    "MIN_PIECE_TERMS",
    "MIN_SIDE_BY_SIDE",
    "MIN_SIDE_BY_SIDE_FOUR",
    "MIN_THREADED_UPDATES",
    "MIN_TIMED_PAIRS",
    "POTTS_TOLERANCE",
    "READING_THREADS",
    "ROW_UNIT",
    "SHARED_COLOR_THREADS",
    "SHARED_STEP_SECONDS",
    "SHARED_UPDATES_PER_STEP",
    "SUM_CHUNK_ENTRIES",
    "TERM_BYTES",
    "USABLE_MEMORY",
]

# -- base.py, cuda/chains.py, sharing.py: how much a call of ``sweep`` does -------------------------------------------

#: Updates of all configurations together that are worth a call of the chains of the CPU: about a tenth of a second.
#: Not measured: short enough for the clock and Ctrl-C, long enough that the call costs nothing.
HOST_UPDATES_PER_STEP = 2e7
#: Seconds that a call should take, on the CPU and on a GPU. Not measured: see above.
HOST_STEP_SECONDS = 0.1
#: Updates that are worth a call of the chains of a GPU (benchmarks/gpu.py has its rates).
DEVICE_UPDATES_PER_STEP = 2e10
#: Updates that are worth the way to a worker and back. Not measured: a second or more, beside milliseconds.
SHARED_UPDATES_PER_STEP = 1e9
#: Seconds that a call should take where workers make the sweeps. Not measured: see above.
SHARED_STEP_SECONDS = 1.0

# -- base.py, cpu.py, diagnostics of sampling: sums of all states and chains ------------------------------------------

#: Numbers that are worked on at once: temporaries of 2 MiB stay in the cache, and need no new memory. Not measured by a
#: script: sums of 6 million states and 4 chains took half the time.
SUM_CHUNK_ENTRIES = 1 << 18

# -- cpu.py: the choice of kernels, and blocks ------------------------------------------------------------------------

#: Configurations from which on they go side by side (benchmarks/kernels.py).
MIN_SIDE_BY_SIDE = 8
#: The same for models whose single configurations have the fast kernel ``four`` (benchmarks/kernels.py).
MIN_SIDE_BY_SIDE_FOUR = 16
#: Chains of a block side by side: their numbers and thresholds for one site stay in the nearest cache
#: (benchmarks/kernels.py, with many chains).
BLOCK_CHAINS = 512
#: The same where configurations are two layers of bits (benchmarks/kernels.py).
LAYER_BLOCK_CHAINS = 128
#: Variables of a layer from which on looking up sums of weights pays (benchmarks/kernels.py).
MIN_LAYER = 16
#: Neighbors of a variable on average from which on log-odds are kept and changed on flips, and as many for every chain:
#: the geometric mean of three temperatures breaks even (benchmarks/sweeps.py, random graphs, 1 to 64 chains).
MIN_KEPT_NEIGHBORS = 12
KEPT_NEIGHBORS_PER_CHAIN = 2
#: Neighbors of a variable on average from which on many configurations of binary variables add up log-odds rather than
#: look up thresholds, of which each has a table of 2^neighbors (benchmarks/sweeps.py).
MIN_FIELD_NEIGHBORS = 8
#: Variables from which on configurations side by side do not fit into a cache (benchmarks/kernels.py, Ising 300x300).
LARGE_MODEL = 1 << 16

# -- cuda/chains.py ---------------------------------------------------------------------------------------------------

#: Bytes of a variable or of a direction of an edge in the tables of log-odds: an estimate from above, before memory is
#: allocated. Not measured: the arrays added up.
LINK_BYTES = 96.0

# -- cuda/device.py: the choice of kernels and launches ---------------------------------------------------------------

#: Chains from which on 32 of them in a word cost less than a byte each (benchmarks/gpu.py).
MIN_PACKED_CHAINS = 8
#: Thresholds at most: 128 MiB; beyond, conditionals are computed at every update. Not measured: a limit on memory.
MAX_DEVICE_TABLE_ENTRIES = 1 << 25
#: Thresholds of each of several sets at most: with a hundred sets they take 1.6 GB. Not measured: a limit on memory.
MAX_SET_TABLE_ENTRIES = 4e6
#: Words of 32 chains that a thread updates side by side, given enough of them (benchmarks/gpu.py).
MAX_WORDS_PER_THREAD = 4
#: Threads of a block by kernel; fewer where a thread holds many registers (benchmarks/gpu.py).
BLOCK_THREADS: dict[str, int] = {"packed": 512, "packed-field": 256, "field": 256, "table": 512, "logit": 256}
#: Threads of a block with several sets of parameters, over units of chains and over sites (benchmarks/gpu_temper.py).
LADDER_BLOCKS: dict[str, tuple[int, int]] = {"packed": (4, 64), "packed-field": (1, 32), "table": (32, 16)}
#: Rounds of a block through a color beyond which blocks share the color: they cost as much as waiting for each other
#: (benchmarks/gpu.py, few chains of large models).
MAX_COLOR_ROUNDS = 3
#: Threads of a block where blocks share a color (benchmarks/gpu.py).
SHARED_COLOR_THREADS = 256
#: Share of the free memory that may be used. Not measured: the rest is for compiled kernels and fragments.
USABLE_MEMORY = 0.95
#: Sums of all chains together from which on many chains are added up in groups: reading single sums then takes longer
#: than making them (benchmarks/gpu.py).
GROUPED_SUMS = 1 << 23
#: Sums of all chains together from which on chains are always added up in groups. Not measured: a limit on memory.
MAX_SUMS = 1 << 26
#: Groups that are many: below, single chains are kept for the estimate of errors. Not measured.
MANY_GROUPS = 512

# -- cuda/reading.py --------------------------------------------------------------------------------------------------

#: Blocks of kernels beside the sweeps, at most (benchmarks/gpu_pool.py).
MAX_READING_BLOCKS = 1024
#: Threads of their blocks; the kernels that add up have room for as many, and they must be a power of two.
READING_THREADS = 128
#: Blocks along any axis, one for every term or patch. Not measured: the device takes 2^16 - 1 along y.
MAX_GRID = 1 << 15
#: Terms that a thread adds up, at least (benchmarks/gpu_pool.py).
MIN_PIECE_TERMS = 64
#: Threads that share the terms of a batch, about (benchmarks/gpu_pool.py).
MAX_BATCH_THREADS = 1 << 20
#: Energies of all patches of a batch and all chains: 256 MiB. Not measured: a limit on memory.
MAX_BATCH_ENERGIES = 1 << 25
#: Bytes of a term in the lists of patches, which are up to ``MAX_PATCH_WORK`` times as long as the model: an estimate
#: before memory is allocated. Not measured: the arrays added up.
TERM_BYTES = 400.0

# -- layout.py: what kernels read -------------------------------------------------------------------------------------

#: Sites of one color that the product kernel takes side by side (benchmarks/several_states.py).
BLOCK_SITES = 128
#: Sites that share a stream of random numbers in a large model. Not measured: some chunks of every color for a thread.
CHUNK_SITES = 8192
#: Variables from which on the chunks of a color are shared between threads. Not measured: a color then takes
#: much longer than threads wait for each other.
CHUNKED_SITES = 1 << 16
#: Thresholds of all sets at most: 64 MiB. Not measured: a limit on memory.
MAX_TABLE_ENTRIES = 1 << 24
#: Share of all ordered pairs that are neighbors from which on a flip changes a whole row of log-odds, zeros included,
#: and variables up to which the matrix of weights is laid out for that (benchmarks/sweeps.py).
DENSE_SHARE = 0.25
MAX_DENSE_VARIABLES = 4096
#: Different surroundings of a site at most: codes have 16 bits, which follows from the format.
MAX_CODES = 1 << 16
#: Exponentiated entries of all sets at most: 256 MiB; beyond, logarithms are added up at every update. Not measured: a
#: limit on memory.
MAX_VALUES = 1 << 25
#: Sum of logarithms up to which a product of Potts weights neither under- nor overflows, with room for sums of such
#: products: double precision ends at 709. Not measured: it follows from the number format.
MAX_LOG_WEIGHT = 600.0
#: Relative difference between the entries of a Potts table that rounding makes, some hundred units in the last place.
#: Not measured.
POTTS_TOLERANCE = 1e-13

#: States to whose multiples rows of patterns are filled up: the doubles of a vector register, or some of them; the
#: kernel takes four at a time (benchmarks/shared_tables.py).
ROW_UNIT = 4

# -- host.py: reading -------------------------------------------------------------------------------------------------

#: Variables from which on a product of matrices may count pairs faster than passes over edges. Not measured here.
MIN_DENSE_VARIABLES = 16
#: Entries of tables, of all chains, from which on the clock is asked whether there is time to average pairs over all
#: chains: a twentieth of a second (tests/inference/test_parts_in_time.py has calls that are above it).
MIN_TIMED_PAIRS = 1e7

# -- patches.py -------------------------------------------------------------------------------------------------------

#: Work on patches at most, in passes over the whole graph: beyond it, patches do not pay. Not measured here.
MAX_PATCH_WORK = 16

# -- threads.py -------------------------------------------------------------------------------------------------------

#: Updates below which one thread makes them all: handing work over takes 50 microseconds. Measured once, by hand.
MIN_THREADED_UPDATES = 1 << 15

# -- sharing.py -------------------------------------------------------------------------------------------------------

#: Groups of chains at most that are shared out to workers. Not measured: a few for each worker of a usual machine.
MAX_GROUPS = 32
#: Groups whose chains a worker keeps between calls. Not measured: a limit on its memory.
MAX_WORKER_TWINS = 4
# How long an answer of the workers may take where a clock has a limit: the largest of these three.
#: Share of the time that is left: it leaves time to go on here. Not measured.
ANSWER_SHARE = 0.6
#: Multiple of the longest answer so far. Not measured: batches are cut to fit the time that is left.
ANSWER_REPEATS = 3.0
#: Seconds. Not measured: a moment for the first answers.
MIN_ANSWER_SECONDS = 0.25

# -- conditionals.py ------------------------------------------------------------------------------------------------

#: Entries of hard tables, of all together, up to which their groups are found in Python: a few microseconds each, and
#: the compiler takes half a second to load. Checked by benchmarks/limits.py.
MAX_PYTHON_ENTRIES = 50_000
