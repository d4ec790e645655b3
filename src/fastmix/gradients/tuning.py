"""Numbers that tune derivatives of log Z; each says its unit, the reason for its value, and what measures it."""

from __future__ import annotations

__all__ = ["BETHE_DAMPING", "BETHE_TOL", "BURN_IN", "MIN_SHARED_ROWS", "NUM_CHAINS", "SWEEPS_PER_CALL"]

# -- bethe.py ---------------------------------------------------------------------------------------------------------

#: Share of the last messages, and of their last derivatives, in the next: what stops most oscillations, at a quarter
#: more iterations elsewhere. Not measured on its own; tested by tests/gradients/test_bethe.py.
BETHE_DAMPING = 0.25
#: Largest change of a message at a fixed point, so that beliefs have ten digits. Derived.
BETHE_TOL = 1e-12

# -- sampled.py -------------------------------------------------------------------------------------------------------

#: Chains of every row of parameters: standard errors of at most 0.03 for every probability. Derived.
NUM_CHAINS = 256
#: Sweeps before the first derivatives. Not measured.
BURN_IN = 100
#: Sweeps for derivatives after the parameters have changed: persistent chains follow small steps. Not measured.
SWEEPS_PER_CALL = 10

# -- torch/functions.py -----------------------------------------------------------------------------------------------

#: Rows of unaries from which on tables that they share are worked with as such: fewer are faster one by one, as
#: ``MIN_BATCH_ROWS`` of exact/tuning.py says (``benchmarks/gradients.py`` has a thousand).
MIN_SHARED_ROWS = 8
