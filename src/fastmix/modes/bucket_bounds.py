"""Upper bounds on the log-weight by elimination whose products are split where they are too large (mini-buckets)."""

from __future__ import annotations

from fastmix._clock import OutOfTimeError
from fastmix.exact.buckets import Table, eliminate
from fastmix.exact.elimination import model_factors
from fastmix.exact.search import find_order
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import BUCKET_BITS, MAX_BUCKET_TABLES, SHARE_OF_BUCKETS

__all__ = ["tighten_by_buckets"]


def tighten_by_buckets(run: ModeRun) -> None:
    """Lower the upper bound of a run by mini-buckets (Dechter and Rish 2003), of more and more entries.

    Models of pairs, which have bounds by messages, and those of very many tables are left alone.
    """
    model = run.model
    num_tables = model.num_variables + model.num_edges + model.num_factors
    if run.is_over or not model.num_factors or num_tables > MAX_BUCKET_TABLES:
        return
    clock = run.clock.part(SHARE_OF_BUCKETS)
    rounding = run.rounding
    factors = model_factors(model)
    everything = frozenset(range(model.num_variables))
    try:
        order = find_order(factors.num_states, factors.scopes, clock=clock, effort=0.1).order.tolist()
        tables = [Table(tuple(scope), values) for scope, values in model.terms()]
        for bits in BUCKET_BITS:
            _, bound, is_whole = eliminate(
                tables, order, everything, num_states=model.num_states.tolist(), limit=2.0**bits, clock=clock
            )
            run.count("eliminations with split products")
            run.lower_bound(bound + model.log_constant, rounding)
            if is_whole or run.is_over:
                return
    except OutOfTimeError:
        return
