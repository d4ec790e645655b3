"""Limits, tolerances and sizes of the room of files, by the file that uses them.

What a format fixes (magic bytes, words, patterns) stands in the file of the format.
"""

from __future__ import annotations

__all__ = [
    "BIF_CHARACTER_BYTES",
    "BIF_ENTRY_BYTES",
    "BLOCK_BYTES",
    "CONSTANT_PIECE",
    "ERGO_CHARACTER_BYTES",
    "FREE_STATES",
    "MAX_CONSTANT_PIECES",
    "MAX_ROW_ERROR",
    "MAX_SHOWN_CHARACTERS",
    "MEMORY_SHARE",
    "NUMBERS_PER_CHUNK",
    "NUMBER_BYTES",
    "PIPE_POLL_SECONDS",
    "PROBABILITY_SLACK",
    "QUBO_ENTRY_BYTES",
    "QUBO_VARIABLE_BYTES",
    "ROW_ERROR_PER_ENTRY",
    "RUDY_EDGE_BYTES",
    "RUDY_VERTEX_BYTES",
    "SPOOL_BYTES",
    "STATES_PER_WORD",
    "TABLES_PER_CHUNK",
    "XMLBIF_BYTE_BYTES",
    "XZ_MEMORY_BYTES",
]  # fmt: skip

# -- files.py ---------------------------------------------------------------------------------------------------------

#: Bytes read at a time; the size of a file is checked after each block.
#: Not measured: anything from a megabyte on is as fast.
BLOCK_BYTES = 1 << 22

#: Bytes of memory for unpacking xz, which the header of a file asks for; ``xz -9`` needs half of them.
#: Not measured: it follows from xz.
XZ_MEMORY_BYTES = 1 << 27

#: Bytes of output for a stream that are held in memory; beyond them it is held on disk.
#: Not measured: it bounds memory.
SPOOL_BYTES = 1 << 26

#: Seconds between two looks whether somebody writes to a pipe: no user sees them.
#: Not measured.
PIPE_POLL_SECONDS = 0.02

#: Share of the free memory that the content of a file may take; messages say "an eighth".
#: Not measured: reading takes a few times the content (see the bytes per number and per character below).
MEMORY_SHARE = 1 / 8

#: Characters of a word of a file that a message shows.
#: Not measured: longer words make messages unreadable.
MAX_SHOWN_CHARACTERS = 40

# -- tokens.py --------------------------------------------------------------------------------------------------------

# A variable in a table has at least one entry per state, but a variable in no table costs a single word, whatever its
# number of states. The states of all variables together are limited, so that memory stays in proportion to the file.

#: States that the variables of every file may have together.
#: Not measured: 8 MiB per array of states.
FREE_STATES = 1 << 20

#: Further states for each word of the file.
#: Not measured: half a kilobyte per array of states and word.
STATES_PER_WORD = 64

#: Bytes of memory at the peak for each number of a file, in reading and using it.
#: tests/io/test_io_uai_reading.py measures the part of reading.
NUMBER_BYTES = 100.0

#: Words that are Python objects at a time: about 10 MiB.
#: Not measured: it bounds memory.
NUMBERS_PER_CHUNK = 1 << 17

# -- uai.py -----------------------------------------------------------------------------------------------------------

#: By how much the sum of a row of a network may differ from 1 for each of its entries, which have two digits or more.
#: Not measured: it follows from the rounding of printed numbers.
ROW_ERROR_PER_ENTRY = 0.005

#: By how much the sum of a row of a network may differ from 1 at most.
#: Not measured: a few percent are no conditional probabilities any more.
MAX_ROW_ERROR = 0.05

#: Nats: the size of the pieces of a constant that one double cannot hold, whose logarithm is at most 709.78.
#: Not measured: it follows from the range of doubles.
CONSTANT_PIECE = 700.0

#: Pieces that a constant is written in; a larger one is a power of ten, which few programs read.
#: Not measured: more factors than a model that has such a constant.
MAX_CONSTANT_PIECES = 10_000

#: Tables that are text at a time: a few megabytes.
#: Not measured: it bounds memory.
TABLES_PER_CHUNK = 1 << 15

# -- bif.py, xmlbif.py and ergo.py ------------------------------------------------------------------------------------

#: Bytes of memory for each entry of a table, with the working arrays of its check.
#: Not measured by a script: the sum of the arrays and objects that there are at the peak.
BIF_ENTRY_BYTES = 64.0

#: Bytes of memory at the peak for each character of a BIF file, if each second one is a word.
#: Not measured by a script: the sum of the arrays and objects that there are at the peak.
BIF_CHARACTER_BYTES = 40.0

#: Bytes of memory at the peak for each character of the names in an Ergo file, if each second one is a word.
#: Not measured by a script: the sum of the arrays and objects that there are at the peak.
ERGO_CHARACTER_BYTES = 40.0

#: Bytes of memory at the peak for each vertex and each edge of a graph in rudy format, the model included, a million of
#: each; not measured by a script.
RUDY_VERTEX_BYTES = 100.0
RUDY_EDGE_BYTES = 350.0

#: The same for each variable and each entry of a QUBO file.
QUBO_VARIABLE_BYTES = 100.0
QUBO_ENTRY_BYTES = 350.0

#: Bytes of memory at the peak for each byte of an XMLBIF file.
#: Not measured by a script: the sum of the arrays and objects that there are at the peak.
XMLBIF_BYTE_BYTES = 100.0

# -- competition.py ---------------------------------------------------------------------------------------------------

#: By how much a printed probability may exceed 1, by rounding.
#: Not measured: solvers print six digits.
PROBABILITY_SLACK = 1e-6
