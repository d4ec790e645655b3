"""Numbers that tune the answers for rows of evidence; ``benchmarks/questions.py`` measures what they are for."""

from __future__ import annotations

__all__ = ["JOINT_ENTRIES", "MAX_KEPT_PLANS", "ONE_HOT_ENTRIES", "PATTERN_SECONDS", "ROWS_PER_REPORT"]

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
