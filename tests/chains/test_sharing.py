from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix import Interrupted, MarkovRandomField, ResourceError, UnfitMethodError, infer, sample, temper
from fastmix.chains.cpu import CpuChains
from fastmix.chains.sharing import Sharing
from fastmix.executors import Pool, as_pool, processes, run_in_order
from fastmix.instances import ising_grid

RNG = np.random.default_rng(0)


class Elsewhere(Executor):
    """Tasks run when they are handed over, on copies as in another process; after some of them everything fails."""

    def __init__(self, tasks: float = np.inf, failure: BaseException | None = None) -> None:
        self.left = tasks
        self.failure = failure or OSError("the network is down")
        self.done = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.left -= 1
        if self.left < 0:
            future.set_exception(self.failure)
        else:
            self.done += 1
            copied = pickle.loads(pickle.dumps((arguments, options)))
            future.set_result(pickle.loads(pickle.dumps(function(*copied[0], **copied[1]))))
        return future


def mixed_states(n: int = 7) -> MarkovRandomField:
    """A cycle with chords, of two to four states."""
    edges = [(i, (i + 1) % n) for i in range(n)] + [(0, 3), (1, 5)]
    states = [2 + i % 3 for i in range(n)]
    tables = [RNG.normal(size=(states[i], states[j])) for i, j in edges]
    return MarkovRandomField.from_tables([RNG.normal(size=k) for k in states], edges, tables)


def with_factors() -> MarkovRandomField:
    scopes = [(0, 1, 2), (1, 3), (2, 3, 4)]
    return MarkovRandomField.from_factors([2] * 5, [(s, np.exp(RNG.normal(size=[2] * len(s)))) for s in scopes])


GRID = ising_grid(4, 5, coupling_max=0.7, seed=1)
ATTRACTIVE = ising_grid(4, 4, coupling_max=0.6, attractive=True, seed=2)
LAYERS = MarkovRandomField.rbm(RNG.normal(size=(40, 36)) / 20, RNG.normal(size=40), RNG.normal(size=36))
COUPLINGS = RNG.normal(size=(40, 40)) / 20
DENSE = MarkovRandomField.from_couplings(COUPLINGS + COUPLINGS.T - 2 * np.diag(np.diag(COUPLINGS)))
FORBIDDEN = MarkovRandomField.from_tables(
    RNG.normal(size=(4, 3)), [(0, 1), (1, 2), (2, 3)], [np.where(np.eye(3) > 0, -np.inf, 0.3)] * 3
)

RUNS: dict[str, tuple[MarkovRandomField, dict[str, Any]]] = {
    "four": (GRID, {"num_chains": 5}),
    "table": (GRID, {"num_chains": 70, "num_draws": 3, "edge_marginals": True}),
    "several states": (mixed_states(), {"num_chains": 20, "estimator": "counts", "edge_marginals": True}),
    "few chains of several states": (mixed_states(), {"num_chains": 3}),
    "layers": (LAYERS, {"num_chains": 70}),
    "field": (DENSE, {"num_chains": 20}),
    "factors": (with_factors(), {"num_chains": 9}),
    "forbidden pairs": (FORBIDDEN, {"num_chains": 17}),
    "random": (GRID, {"num_chains": 6, "schedule": "random"}),
    "random burn-in": (GRID, {"num_chains": 18, "schedule": "random-burn-in"}),
    "swendsen-wang": (ATTRACTIVE, {"num_chains": 11, "method": "swendsen-wang", "num_draws": 5}),
    "swendsen-wang, several states": (
        MarkovRandomField.potts([(0, 1), (1, 2), (0, 2)], coupling=0.4, num_states=3),
        {"num_chains": 6, "method": "swendsen-wang"},
    ),
    "no edges": (MarkovRandomField.from_tables([[0.0, 1.0], [0.0, 0.5, 1.0]], [], []), {"num_chains": 5}),
    "nothing left": (GRID, {"num_chains": 40, "evidence": dict.fromkeys(range(20), 1), "num_draws": 2}),
    "evidence": (GRID, {"num_chains": 64, "evidence": {0: 1, 7: 0}, "history_at": [10, 100]}),
}
FIELDS = ("node_marginals", "edge_marginals", "std_error", "ess", "r_hat", "states", "draws")


def assert_same(one: Any, other: Any, *more: str) -> None:
    """The same bits in all that is estimated."""
    for name in (*FIELDS, *more):
        assert np.array_equal(getattr(one, name, None), getattr(other, name, None)), name
    assert (one.status, one.stats.get("note")) == (other.status, other.stats.get("note"))


@pytest.mark.parametrize("name", RUNS)
def test_shared_chains_have_the_same_bits(name: str) -> None:
    model, options = RUNS[name]
    options = {"num_sweeps": 300, "seed": 3, "progress": None, **options}
    elsewhere = Elsewhere()
    alone, shared = sample(model, **options), sample(model, executor=elsewhere, **options)
    assert_same(alone, shared)
    assert elsewhere.done > 1
    assert "shared with an executor" in shared.stats["backend"]
    assert len(alone.history) == len(shared.history)
    for one, other in zip(alone.history, shared.history, strict=True):
        assert one["sweep"] == other["sweep"]
        assert np.array_equal(one["marginals"], other["marginals"])


LADDERS: dict[str, tuple[MarkovRandomField, dict[str, Any]]] = {
    "pairs of ladders": (GRID, {"num_ensembles": 5, "edge_marginals": True}),
    "all moves": (ATTRACTIVE, {"num_ensembles": 4}),
    "no moves": (mixed_states(), {"moves": (), "num_ensembles": 3}),
    "factors": (with_factors(), {}),
    "dense": (DENSE, {"num_ensembles": 3, "num_replicas": 4}),
}


@pytest.mark.usefixtures("little_work_by_threads")
@pytest.mark.parametrize("name", LADDERS)
def test_shared_ladders_have_the_same_bits(name: str) -> None:
    model, options = LADDERS[name]
    options = {"num_sweeps": 400, "seed": 3, "progress": None, "num_threads": 2, **options}
    elsewhere = Elsewhere()
    alone, shared = temper(model, **options), temper(model, executor=elsewhere, **options)
    assert_same(alone, shared, "positions", "rejection", "round_trips", "log_z", "log_z_std_error", "log_z_lower")
    assert elsewhere.done > 1
    assert "shared with an executor" in shared.stats["backend"]


@pytest.mark.parametrize("tasks", [0, 3, 20])
def test_when_the_executor_is_lost_this_process_goes_on(tasks: int, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"num_chains": 64, "num_sweeps": 300, "seed": 3, "progress": None}
    lost = sample(GRID, executor=Elsewhere(tasks), **options)
    assert_same(sample(GRID, **options), lost)
    assert "OSError: the network is down), and this process went on" in lost.stats["backend"]
    assert "this process goes on" in caplog.text
    options = {"num_sweeps": 300, "seed": 3, "progress": None}
    lost = temper(ATTRACTIVE, executor=Elsewhere(tasks), **options)
    assert_same(temper(ATTRACTIVE, **options), lost, "log_z", "round_trips")
    assert "this process went on" in lost.stats["backend"]


def test_a_checkpoint_goes_from_one_to_the_other(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_chains": 20, "num_sweeps": 20_000, "seed": 5, "progress": None}
    path = str(tmp_path / "run.checkpoint")
    with pytest.raises(Interrupted):
        sample(GRID, checkpoint=path, executor=Elsewhere(20, KeyboardInterrupt()), **options)
    assert os.path.getsize(path) > 0
    assert_same(sample(GRID, **options), sample(GRID, checkpoint=path, **options))


def test_workers_of_which_some_die() -> None:  # one worker alone: test_batches_and_chains_by_workers
    options: dict[str, Any] = {"num_chains": 20, "num_sweeps": 200, "seed": 3, "progress": None}
    alone = sample(GRID, **options)
    with processes(3) as executor:
        assert_same(alone, sample(GRID, executor=executor, **options))
        for worker in executor._workers[:2]:  # type: ignore[attr-defined]
            os.kill(worker.pid, 9)
        assert_same(alone, sample(GRID, executor=executor, **options))
        assert_same(
            temper(GRID, num_sweeps=200, seed=1, progress=None),
            temper(GRID, num_sweeps=200, seed=1, progress=None, executor=executor),
        )


def test_infer_shares_what_has_chains() -> None:
    elsewhere = Elsewhere()
    shared = infer(GRID, method="gibbs", num_sweeps=100, seed=1, executor=elsewhere, progress=None)
    assert_same(infer(GRID, method="gibbs", num_sweeps=100, seed=1, progress=None), shared)
    assert infer(GRID, executor=elsewhere).method == "exact"
    with pytest.raises(UnfitMethodError, match=r"executor.*mean-field"):
        infer(GRID, method="mean-field", executor=elsewhere)
    with pytest.raises(ValueError, match=r"executor.*got int"):
        sample(GRID, executor=3)
    with pytest.raises(ValueError, match=r"executor.*backend"):
        sample(GRID, executor=elsewhere, backend="auto")


def test_chains_that_kill_their_process_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = CpuChains(GRID.structure, num_chains=2, seed=0)
    pool = Pool(1)
    monkeypatch.setattr(chains, "pack", lambda first, last: None)
    crash = partial(run_in_order, os._exit, [9], pool)
    monkeypatch.setattr("fastmix.chains.sharing.run_in_order", lambda *_, **_options: crash())
    with pytest.raises(ResourceError, match="died twice"):
        Sharing(pool, abs, 1).call(chains, "sweep", 1)
    pool.close(now=True)


def test_groups_do_not_depend_on_workers() -> None:
    pool = as_pool(Elsewhere())
    assert Sharing(pool, abs, 64, least=8).bounds == list(range(0, 65, 8))
    assert Sharing(pool, abs, 5).bounds == [0, 1, 2, 3, 4, 5]
    assert Sharing(pool, abs, 100).bounds == [*range(0, 100, 4), 100]
    assert as_pool(pool) is pool
