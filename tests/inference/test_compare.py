from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, compare
from fastmix.errors import Interrupted
from fastmix.inference.compare import Row, marginal_errors
from fastmix.inference.projected import Projected
from fastmix.instances import ising_grid
from fastmix.method import METHODS
from fastmix.results import Status
from fastmix.sampling.sample import Gibbs

MODEL = ising_grid(4, 4, coupling_max=1.0, seed=0)


def test_rows_are_in_the_order_asked_for_and_errors_against_exact():
    result = compare(MODEL, methods=["loopy-bp", "mean-field", "gibbs", "exact"], seed=1)
    assert [row.method for row in result.rows] == ["loopy-bp", "mean-field", "gibbs", "exact"]
    assert result.reference == "exact"
    exact = fastmix.infer(MODEL, method="exact").node_marginals
    for row in result.rows:
        error = np.abs(result.results[row.method].node_marginals - exact)[1::2]  # |p(1) - q(1)| of binary variables
        assert row.mean_error == pytest.approx(error.mean())
        assert row.max_error == pytest.approx(error.max())
        assert row.seconds > 0
    assert result.rows[3].mean_error == 0.0
    assert result.rows[2].std_error > 0
    assert "loopy-bp" in repr(result)


def test_all_methods_by_default_and_refusals_with_their_reason():
    hard = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [np.array([[0.0, 0.3], [0.1, -np.inf]])])
    result = compare(hard, seed=1)
    assert [row.method for row in result.rows] == [name for name in METHODS if name not in ("auto", "perfect")]
    refused = {row.method: row.note for row in result.rows if row.status == "refused"}
    assert "projected" in refused
    assert "edge (0, 1)" in refused["projected"]
    assert next(row for row in result.rows if row.method == "loopy-bp").mean_error < 1e-9


def test_reference_without_exact_inference():
    model = ising_grid(6, 6, coupling_max=0.2, seed=0)
    exact = fastmix.infer(model, method="exact").node_marginals
    result = compare(model, methods=["loopy-bp", "gibbs"], memory_limit=2048.0, seed=1)
    assert result.reference == "gibbs"
    assert result.rows[0].mean_error < 0.02
    given = compare(model, methods=["loopy-bp"], memory_limit=2048.0, reference=exact, reference_name="a file", seed=1)
    assert given.reference == "a file"
    none = compare(model, methods=["exact"], memory_limit=2048.0, seed=1)
    assert none.reference is None
    assert none.rows[0].status == "refused"
    assert none.rows[0].mean_error is None
    with pytest.raises(ValueError, match=r"^reference .*\b72\b"):
        compare(model, reference=[0.5])


def test_the_error_of_a_projection_has_a_column_of_its_own():
    model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    result = compare(model, methods=[Gibbs(num_sweeps=500), Projected(divergence="euclidean", num_sweeps=500)], seed=1)
    gibbs, projected = result.to_dict()["rows"]
    assert gibbs["std_error"] > 0
    assert gibbs["projected_std_error"] is None
    assert projected["std_error"] is None
    assert projected["projected_std_error"] > 0
    assert "its errors are not known" in projected["note"]


def test_bad_methods_and_bad_models():
    with pytest.raises(ValueError, match=r"^methods .*'magic'"):
        compare(MODEL, methods=["magic"])
    broken = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [np.full((2, 2), 0.0)])
    with pytest.raises(fastmix.ModelError):
        compare(broken, evidence={7: 0})


def test_files(tmp_path):
    result = compare(MODEL, methods=["exact", "loopy-bp"], seed=1)
    written = result.save(tmp_path / "new")
    assert [path.name for path in written] == ["comparison.csv", "comparison.png", "comparison.svg"]
    with open(written[0], newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(Row.__dataclass_fields__)
    assert float(rows[1]["mean_error"]) == result.rows[1].mean_error
    assert written[1].read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in written[2].read_text()
    axes = result.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["loopy-bp", "exact"]
    assert result.plot(axes) is axes
    frame = result.to_frame()
    assert (list(frame.columns), len(frame)) == (list(Row.__dataclass_fields__), 2)
    assert "<td>loopy-bp</td>" in result._repr_html_()
    assert (result.stats["stopped_by"], result.to_dict()["seconds"] > 0.0) == ("done", True)
    steps = []
    compare(MODEL, methods=["loopy-bp"], seed=1, progress=steps.append)
    assert [(step.what, step.done, step.total) for step in steps] == [("exact", 0, 2), ("loopy-bp", 1, 2)]


def test_a_backend_is_for_the_methods_that_can_have_it():
    result = compare(MODEL, methods=["gibbs", "mean-field"], seed=1, time_limit=0.5, backend="auto")
    backends = {name: answer.provenance["options"]["backend"] for name, answer in result.results.items()}
    assert backends == {"exact": "cpu", "gibbs": "auto", "mean-field": "cpu"}
    with pytest.raises(ValueError, match=r"^backend .*'gpu'$"):
        compare(MODEL, backend="gpu")


def test_marginal_errors_of_more_states():
    model = MarkovRandomField.from_tables([np.zeros(3), np.zeros(2)], [], [])
    errors = marginal_errors(model, np.array([0.2, 0.3, 0.5, 1.0, 0.0]), np.array([0.5, 0.3, 0.2, 0.0, 1.0]))
    assert errors == pytest.approx([0.3, 1.0])
    assert marginal_errors(MarkovRandomField.from_tables([], [], []), np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("how", ["raised", "a result", "too early for a result"])
def test_an_interrupt_ends_the_comparison_with_what_there_is(how, monkeypatch):
    run, ran = fastmix.inference.compare.infer, []

    def infer(model, *, method, **options):
        ran.append(method.name)
        if method.name != "gibbs":
            return run(model, method=method, **options)
        if how == "raised":
            raise KeyboardInterrupt
        if how == "a result":
            raise Interrupted("", dataclasses.replace(run(model, method=method, **options), status=Status.INTERRUPTED))
        raise Interrupted("sampling stopped (interrupt) before the first batch was complete")

    monkeypatch.setattr(fastmix.inference.compare, "infer", infer)
    with pytest.raises(Interrupted) as stopped:
        compare(MODEL, methods=["loopy-bp", "gibbs", "mean-field"], seed=1)
    result = stopped.value.result
    assert ran == ["exact", "loopy-bp", "gibbs"]
    assert result.status == Status.INTERRUPTED
    assert result.to_dict()["status"] == "interrupted"
    assert [row.method for row in result.rows] == ["loopy-bp"] + ["gibbs"] * (how == "a result")


def test_an_interrupt_before_the_first_answer_has_nothing_to_compare(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fastmix.Exact, "run", stop)
    with pytest.raises(Interrupted) as stopped:
        compare(MODEL, methods=["loopy-bp"], seed=1)
    assert stopped.value.result is None


def test_no_methods_are_refused():
    with pytest.raises(ValueError, match=r"^methods must "):
        compare(MODEL, methods=[])


def test_a_method_is_compared_to_itself():
    """A row for each setting, called by what differs; the same settings are one method."""
    methods = [Gibbs(burn_in=0, num_sweeps=50), Gibbs(num_sweeps=500), Gibbs(num_sweeps=500), "gibbs", "loopy-bp"]
    result = compare(MODEL, methods=methods, seed=1, time_limit=2.0)
    labels = ["gibbs(num_sweeps=50, burn_in=0)", "gibbs(num_sweeps=500)", "gibbs", "loopy-bp"]
    assert [row.method for row in result.rows] == labels
    assert [result.results[label].stats["burn_in"] for label in labels[:2]] == [0, 50]
    assert len({row.mean_error for row in result.rows}) == len(labels)
    assert result.reference == "exact"
    assert "gibbs(num_sweeps=500)" in repr(result)


def test_settings_that_look_alike_are_told_apart():
    starts = [np.zeros((4, MODEL.num_variables), dtype=int), np.ones((4, MODEL.num_variables), dtype=int)]
    methods = [Gibbs(num_chains=4, num_sweeps=20, start=start) for start in starts]
    assert len(compare(MODEL, methods=methods, seed=1).rows) == 2


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_has_a_limit_too(seed):
    rng = np.random.default_rng(seed)
    model = ising_grid(int(rng.integers(22, 25)), 60, coupling_max=0.3, seed=seed)  # minutes of exact inference
    result = compare(model, methods=["mean-field", "loopy-bp"], time_limit=0.2, memory_limit=2**33, seed=seed)
    assert [row.method for row in result.rows] == ["mean-field", "loopy-bp"]
    assert result.reference != "exact"
    assert result.stats["seconds"] - result.stats["compile_seconds"] < 5.0  # coarse


@pytest.mark.parametrize("methods", [3, None, "exact", [np.zeros(2)]])
@pytest.mark.parametrize("backend", [np.eye(2), ""])
def test_what_is_no_list_of_methods_or_no_backend_is_refused(methods, backend):
    name, value = ("backend", backend) if methods is None else ("methods", methods)
    with pytest.raises(ValueError, match=f"^{name} must "):
        compare(MODEL, **{name: value})
