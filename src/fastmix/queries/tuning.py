"""Numbers that tune the answers for rows of evidence; ``benchmarks/questions.py`` measures what they are for."""

from __future__ import annotations

__all__ = [
    "ANNEALING_SWEEPS", "COLDEST", "FIRST_SWEEPS", "JOINT_ENTRIES", "LARGEST_ERROR", "MAX_KEPT_PLANS",
    "MAX_PLANNED_PATTERNS", "MAX_ROW_SWEEPS", "MAX_SINGLE_ROWS", "ONE_HOT_ENTRIES", "PATTERN_SECONDS", "ROWS_OF_CHAINS",
    "ROWS_PER_REPORT", "SWEEPS_PER_DRAW", "SWEEP_GROWTH",
]  # fmt: skip

#: Seconds a row from which on rows that observe the same variables get a plan of their own, without these variables: a
#: plan takes some milliseconds to make.
PATTERN_SECONDS = 5e-3
#: Plans for sets of observed variables that are kept for the next rows (not measured: some MB of integers in all).
MAX_KEPT_PLANS = 256
#: Rows that are answered between two looks at the clock, and two reports of progress, where all rows share a plan.
ROWS_PER_REPORT = 4096
#: Entries of the joint tables of rows that are kept at once while expected counts are added up: 64 MB (not measured).
JOINT_ENTRIES = 1 << 23
#: Entries of rows written as ones and zeros that are multiplied at once: 32 MB (not measured).
ONE_HOT_ENTRIES = 1 << 22

#: Rows up to which those that do not fit are answered one by one, by the method that suits each best; of more, chains
#: answer all at once (not measured: a call of ``infer`` may take a minute).
MAX_SINGLE_ROWS = 8

# -- api.py and gap_chains.py -----------------------------------------------------------------------------------------

#: Sets of observed variables up to which every one gets a plan of its own, some milliseconds each.
MAX_PLANNED_PATTERNS = 100
#: Rows whose chains are swept together: their configurations are some MB.
ROWS_OF_CHAINS = 2048
#: Sweeps of the first round of a row, by how much they grow for rows that need more, and those of the last round.
FIRST_SWEEPS = 128
SWEEP_GROWTH = 4
MAX_ROW_SWEEPS = 8192
#: Standard error of a contrast, from the halves of two chains, up to which a row is ``ok``: 0.028 of a probability of
#: two states.
LARGEST_ERROR = 0.04
#: Sweeps before every draw.
SWEEPS_PER_DRAW = 16
#: Sweeps in which chains are cooled down, and times the parameters at their end.
ANNEALING_SWEEPS = 48
COLDEST = 16.0
#: Bytes of parameters and of marginals that conditional marginals are computed in at a time (not measured).
CONDITIONAL_BYTES = 1 << 26
