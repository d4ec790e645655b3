"""Numbers that mean field and belief propagation are tuned by: when to damp, when to give up, when to read the clock.

They are grouped by the file that uses them. What compiled code uses stands in the files of the kernels.
"""

from __future__ import annotations

__all__ = [
    "COMPARED_ENTRIES", "DAMPINGS", "ENTRIES_PER_CALL", "LAST_PROGRESS_RATIO", "LAST_WINDOW_ITERATIONS",
    "MAX_GROUPED_TABLES", "MESSAGE_LOG_RANGE", "MIN_ITERATIONS_PER_CALL", "ODDS_LOG_RANGE", "PASSES_PER_CALL",
    "PRODUCT_LOG_RANGE", "PROGRESS_RATIO", "RENEWED_PER_CALL", "ROWS_SIDE_BY_SIDE", "ROW_BYTES", "ROW_PASSES",
    "ROW_TOL", "SHARE_OF_ITERATIONS_PER_CALL", "TAME_LOG_RANGE", "WINDOW_ITERATIONS",
]  # fmt: skip

# -- all of them ----------------------------------------------------------------------------------------------------

#: Table entries between two looks at the clock and the keyboard: a fraction of a second. Not measured by a script.
ENTRIES_PER_CALL = 2e7

# -- damping.py. `benchmarks/loopy_bp.py` has how often messages converge ----------------------------------------------

#: Weights of the old messages that are tried one after another. Where messages converge undamped and damped, undamped
#: ones take half the iterations, but attractive models often swing between two states without damping; going on from
#: the undamped messages gave the better marginals.
DAMPINGS = (0.0, 0.5, 0.75)
#: Iterations without damping and without progress that end a stage; one with damping takes 1 / (1 - damping) times as
#: many.
WINDOW_ITERATIONS = 50
#: Iterations without any progress that show, in the last stage, that the messages cycle.
LAST_WINDOW_ITERATIONS = 500
#: Ratio of the smallest changes of two windows up to which there was progress, for stages that more damping follows.
PROGRESS_RATIO = 0.8
#: The same for the last stage, which nothing but time should end while there is any progress.
LAST_PROGRESS_RATIO = 0.99
#: Iterations between two looks at the progress, at least. Not measured.
MIN_ITERATIONS_PER_CALL = 25
#: The same as a share of the iterations made so far. Not measured.
SHARE_OF_ITERATIONS_PER_CALL = 0.025

# -- loopy_bp.py and odds_messages.py -----------------------------------------------------------------------------

#: Largest log of a product of two odds that are multiplied as they are: doubles end at exp(708), so that two such
#: products stay within their range.
ODDS_LOG_RANGE = 300.0
#: Largest log-odds that an edge may add for messages to be kept as odds. Such messages do not matter beside odds that
#: are out of range, see ``node_products`` of the kernels.
MESSAGE_LOG_RANGE = 100.0

# -- table_messages.py ----------------------------------------------------------------------------------------------

#: Log of the ratio of the largest to the smallest entry of a table up to which its exponentials are used: none of them
#: underflows then, see ``new_message`` of the kernels.
TAME_LOG_RANGE = 300.0
#: Table entries compared at once, to see whether all tables are equal: half a MiB. Not measured.
COMPARED_ENTRIES = 1 << 16

# -- pattern_messages.py --------------------------------------------------------------------------------------------

#: Largest sum of the ranges of the tables around a variable for messages that are multiplied as they are. A belief is
#: then at least exp(-200) somewhere; entries that underflow, at exp(-745), are too small to matter in any message, even
#: where a message of exp(-200) is taken out and the table has a factor of exp(200) for them.
PRODUCT_LOG_RANGE = 200.0
#: Pairs of a pattern and a weight up to which edges are gone through pair by pair, so that exponentials of a table are
#: taken once for all its edges; with more of them, reading messages out of order costs more. Not measured by a script.
MAX_GROUPED_TABLES = 64

# -- residual_messages.py -------------------------------------------------------------------------------------------

#: Messages renewed between two looks at the clock where they are updated one by one: a second or so. Not measured.
RENEWED_PER_CALL = 1 << 21

# -- row_messages.py ------------------------------------------------------------------------------------------------

#: Rows of evidence side by side at most, and bytes of their messages. On grids of 10x10 and 40x40 with two states and
#: of 20x20 with five, rows took 3 to 4 times as long 32 side by side, 10 to 14 times as long 8 side by side, and 1.2 to
#: 1.3 times as long 128 side by side.
ROWS_SIDE_BY_SIDE = 256
ROW_BYTES = 1 << 26
#: Largest change of a message, whose largest entry is 1, in the last pass: the tolerance of ``LoopyBP``.
ROW_TOL = 1e-9
#: Passes over all variables at most, for each of ``DAMPINGS``: few at first, because rows that settle wait for those
#: that do not. Not measured.
ROW_PASSES = (50, 200, 800)
#: Passes between two looks at the clock: even, so that the next begins forward again.
PASSES_PER_CALL = 10
