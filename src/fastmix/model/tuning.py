"""Sizes, tolerances and limits of the room of models, by the file that uses them.

They choose between ways to the same arrays, or say how much rounding is allowed: none changes what an answer means.
"""

from __future__ import annotations

__all__ = [
    "ENTRIES_BETWEEN_CLOCKS", "FACTOR_TOLERANCE", "FORM_TOLERANCE", "GATHERED_ENTRIES", "GATHERED_TABLE_ENTRIES",
    "LARGE_ENTRY", "MAX_COLUMN_BLOCK", "MAX_CUT_PATTERNS", "MAX_EQUAL_RUNS", "MAX_FOUND_PATTERNS",
    "MAX_PATTERN_ENTRY", "MAX_PYTHON_ENTRIES", "MAX_PYTHON_SUPPORTS", "MIN_SHARED_EDGES", "MIN_SHARED_ENTRIES",
    "MIN_SHARED_TABLE", "MOST_PLAUSIBLE_LABELS", "OFFSET_SPREADS", "PATTERN_DIGITS", "SAMPLED_TABLES",
    "SYMMETRY_TOLERANCE", "UNSEEN_OFFSET",
]  # fmt: skip

# -- flat.py ----------------------------------------------------------------------------------------------------------

#: Runs of tables of one size up to which each run is reduced as one block; with more of them ``reduceat`` is as fast.
#: Not measured by a script of the repository.
MAX_EQUAL_RUNS = 16

#: Entries of a table up to which a block is reduced column by column, which is several times as fast as row by row.
#: Not measured by a script of the repository.
MAX_COLUMN_BLOCK = 32

# -- inputs.py --------------------------------------------------------------------------------------------------------

#: Relative difference of two entries (i, j) and (j, i) of a matrix that counts as symmetric: a few roundings.
#: Not measured: it follows from the precision of doubles.
SYMMETRY_TOLERANCE = 1e-12

#: Labels of a picture beyond which an axis four times as long as the first is taken for a misplaced one.
#: Not measured: label sets of pictures are small (tests/test_estimates.py has both sides of the rule).
MOST_PLAUSIBLE_LABELS = 32

# -- sharing.py -------------------------------------------------------------------------------------------------------

#: Edges from which on it pays that they share a table. Not measured: fewer save nothing.
MIN_SHARED_EDGES = 8

#: Entries of a table from which on finding out that edges share it pays: a weight and a pattern number per edge take as
#: much as a table of 2 x 2, and tables of 3 x 3 are quick to read (benchmarks/shared_tables.py).
MIN_SHARED_TABLE = 16

#: Entries of all tables together from which on it pays: 128 KiB.
#: Not measured: smaller models are built and read in no time either way.
MIN_SHARED_ENTRIES = 1 << 14

#: Patterns at most that are looked for by content: each is a pass over the tables that none before it fits.
#: Not measured: it bounds the time.
MAX_FOUND_PATTERNS = 16

#: Tables that show at which scale a pattern fits, or that tables are all different.
#: Not measured: enough to see one pattern among as many as are looked for.
SAMPLED_TABLES = 64

#: Digits after the point of the plain numbers that patterns are often made of: the rounding of a product and a quotient
#: stays below. Not measured: it follows from the precision of doubles.
PATTERN_DIGITS = 12

#: Entries up to which a pattern is tried in units of its least entry. Not measured: larger ones have no such digits.
MAX_PATTERN_ENTRY = 1e3

#: Relative difference between a table and a pattern times a weight that rounding makes, four units in the last place.
#: Not measured: it follows from the precision of doubles.
FACTOR_TOLERANCE = 1e-15

# -- mrf.py -----------------------------------------------------------------------------------------------------------

#: Entries that methods for many configurations gather at once: 32 MiB per temporary array.
#: Not measured: it bounds memory.
GATHERED_ENTRIES = 1 << 22

# -- forms.py and attractive.py ---------------------------------------------------------------------------------------

#: Nats: the size of an entry up to which its rounding, 1e-14, is not seen, so that its table keeps a constant.
#: Not measured: it follows from the precision of doubles.
UNSEEN_OFFSET = 64.0

#: A constant leaves its table where it is larger than this many times what the entries differ by. At least 2, so that
#: subtracting is exact. A smaller constant costs no more digits than the differences do.
#: Not measured: it follows from the precision of doubles.
OFFSET_SPREADS = 8.0

#: Table entries that are centered at once: 8 MiB per temporary array.
#: Not measured: it bounds memory.
GATHERED_TABLE_ENTRIES = 1 << 20

#: By how much a table may miss its form, relative to its largest entry or to 1. Sums of a few rounded terms, and
#: logarithms of numbers written with 17 digits, stay far below, and no sampler could show the difference.
#: Not measured: it follows from the precision of doubles.
FORM_TOLERANCE = 1e-12

# -- factor_forms.py --------------------------------------------------------------------------------------------------

#: Entries of factors up to which the loop over them runs in Python: loading the compiled one takes longer.
#: Not measured by itself: benchmarks/cold_start.py has the seconds that loading takes.
MAX_PYTHON_ENTRIES = 2000

#: Different parts of patterns at most that are left where forbidden states are dropped; with more of them tables are
#: laid out in full. Not measured: it bounds the time of a loop in Python.
MAX_CUT_PATTERNS = 4096

# -- reduce.py and supports.py ----------------------------------------------------------------------------------------

#: Nats: the rounding of larger entries is worth a reduction, which takes constants out of what is left of tables.
#: Not measured: it follows from the precision of doubles.
LARGE_ENTRY = 1e4

#: Table entries that are read between two looks at the clock: a tenth of a second.
#: Not measured: a time limit is kept to much less than a second.
ENTRIES_BETWEEN_CLOCKS = 1 << 24

#: Table entries times variables up to which the search for supports runs in Python: loading the compiled one takes
#: longer. Not measured by itself: benchmarks/cold_start.py has the seconds that loading takes.
MAX_PYTHON_SUPPORTS = 20_000
