"""Constants of the command line that tune: sizes of tables, patience, and the effort of draws along a network."""

from __future__ import annotations

__all__ = [
    "MAX_DRAWN_STATES",
    "MAX_NETWORK_DRAWS",
    "MAX_SHOWN_STATES",
    "MAX_SHOWN_VARIABLES",
    "MAX_TASKS_AHEAD",
    "MIN_NETWORK_DRAWS",
    "PIPED_TABLE_COLUMNS",
    "PIPE_NOTICE_SECONDS",
    "PIPE_PATIENCE_SECONDS",
    "PLANNING_TIME_SHARE",
    "USABLE_TIME_SHARE",
    "WORKER_GRACE_SECONDS",
]

# -- tables.py and console.py -----------------------------------------------------------------------------------------

#: Variables that a terminal shows before the rest is only counted; a pipe gets all (not measured: one screen).
MAX_SHOWN_VARIABLES = 25
#: States of a variable that a terminal shows in its line; a pipe gets all (not measured: fits 100 columns).
MAX_SHOWN_STATES = 8
#: Columns of a wide table that goes to a pipe, so that no cell is cut (not measured: beyond all names in use).
PIPED_TABLE_COLUMNS = 10_000

# -- files.py: where draws along the order of a network stand in for exact inference ----------------------------------

#: Share of the time limit in which exact inference is planned (not measured: planning is cheap beside the answer).
PLANNING_TIME_SHARE = 0.3
#: Share of what is left that exact inference may be estimated to take (not measured: estimates err by up to twice).
USABLE_TIME_SHARE = 0.5
#: Draws at most, where the standard error of a probability is at most 0.002.
MAX_NETWORK_DRAWS = 100_000
#: Draws at least, where the standard error of a probability is at most 0.05.
MIN_NETWORK_DRAWS = 100
#: States drawn in all, draws times variables (not measured in a script: a second or two of ancestral sampling).
MAX_DRAWN_STATES = 20_000_000

# -- files.py: pipes ---------------------------------------------------------------------------------------------------

#: Seconds that a named pipe is read without a word (not measured: longer than a writer beside it needs to begin).
PIPE_NOTICE_SECONDS = 2.0

# -- batch.py ---------------------------------------------------------------------------------------------------------

#: Models that are read before their turn (not measured: bounds the memory of a batch).
MAX_TASKS_AHEAD = 256
#: Seconds for somebody to write to a named pipe; folders may hold pipes that nobody writes to (not measured).
PIPE_PATIENCE_SECONDS = 3.0
#: Seconds beyond twice the time limit of a file after which workers count as frozen: they start, read and compile
#: (not measured: several times what a cold start takes).
WORKER_GRACE_SECONDS = 60.0
