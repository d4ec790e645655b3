"""Where messages and tables lie on a GPU, and what a backend answers without one. Needs no device and no simulator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

import strategies
from fastmix import MarkovRandomField, UnfitMethodError, cli, infer
from fastmix.chains.cuda.device import cuda_available
from fastmix.instances import ising_grid
from fastmix.io import write_model
from fastmix.methods import cuda_messages
from fastmix.methods.cuda_layout import SLICE, lay_out_messages, lay_out_tables
from fastmix.methods.loopy_bp import loopy_bp

WITHOUT = pytest.mark.skipif(cuda_available()[0], reason="there is a GPU, or its simulator")
TRIANGLE = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], 0.4, [0.3, 0.0, -0.2])


def neighbors_in_order(model, variable):
    """Neighbours and the numbers of the messages from them: e goes to the later end of edge e, m + e to the other."""
    found = []
    for e, (i, j) in enumerate(model.edges.tolist()):
        if variable in (i, j):
            found.append((i, e) if variable == j else (j, model.num_edges + e))
    return sorted(found)


# -- the layout -------------------------------------------------------------------------------------------------------


def check_layout(model, widths):
    layout = lay_out_messages(model, widths)
    kept = [i for i in range(model.num_variables) if neighbors_in_order(model, i)]
    assert sorted(layout.order.tolist()) == kept
    keys = [(-int(widths[i]), -len(neighbors_in_order(model, i)), i) for i in layout.order.tolist()]
    assert keys == sorted(keys)  # equal ones stay in order
    taken = np.zeros(layout.num_entries, dtype=int)
    for place, i in enumerate(layout.order.tolist()):
        which, lane = divmod(place, SLICE)
        received = neighbors_in_order(model, i)
        assert layout.degrees[place] == len(received)
        assert widths[i] <= layout.widths[which]
        for k, (_, number) in enumerate(received):
            assert layout.slots[number] == layout.slot_bases[which] + SLICE * k + lane
            first = layout.entry_bases[which] + SLICE * k * layout.widths[which] + lane
            assert layout.entries[number] == first
            taken[first + SLICE * np.arange(widths[i])] += 1
    assert taken.max(initial=0) <= 1
    assert taken.sum() == sum(widths[i] * len(neighbors_in_order(model, i)) for i in range(model.num_variables))
    m = model.num_edges
    assert layout.opposite.tolist() == [*range(m, 2 * m), *range(m)]
    numbers = np.arange(1, 2 * m + 1)
    assert layout.by_slot(numbers, np.uint32)[layout.slots].tolist() == numbers.tolist()
    return layout


@given(strategies.models(allow_forbidden=False))
def test_every_message_has_a_place_of_its_own(model):
    check_layout(model, np.ones(model.num_variables, dtype=np.int64))
    layout = check_layout(model, model.num_states)
    unary = layout.by_place(model.log_unary, model.unary_offsets[:-1], model.num_states)
    bases = np.concatenate([[0], np.cumsum(SLICE * layout.widths)])
    for place, i in enumerate(layout.order.tolist()):
        at = bases[place // SLICE] + place % SLICE + SLICE * np.arange(model.num_states[i])
        assert unary[at].tolist() == model.log_unary[model.unary_offsets[i] : model.unary_offsets[i + 1]].tolist()
    tables = lay_out_tables(model, layout, model.log_pairwise)
    assert sorted(tables.numbers.tolist()) == list(range(model.num_edges))
    for e, number in enumerate(tables.numbers.tolist()):
        values = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
        at = tables.bases[number // SLICE] + number % SLICE + SLICE * np.arange(len(values))
        assert tables.values[at].tolist() == values.tolist()


def test_several_slices():
    rng = np.random.default_rng(3)
    edges = [(i, j) for i in range(90) for j in range(i + 1, 90) if rng.random() < 0.05]
    counts = rng.integers(2, 5, size=90)
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    model = MarkovRandomField.from_tables([np.zeros(k) for k in counts], edges, tables)
    layout = check_layout(model, model.num_states)
    assert len(layout.widths) >= 3
    placed = lay_out_tables(model, layout, model.log_pairwise).values
    assert sorted(placed[placed != 0].tolist()) == sorted(model.log_pairwise.tolist())


def test_a_grid_has_hardly_any_gaps_and_messages_that_go_out_are_stretches():
    model = ising_grid(50, 50, coupling_max=1.0, seed=0)
    layout = lay_out_messages(model, np.ones(2500, dtype=np.int64))
    assert layout.num_slots <= 1.03 * 2 * model.num_edges
    target = layout.by_slot(layout.slots[layout.opposite], np.int64)
    inner = target[: SLICE * 4 * (48 * 48 // SLICE)].reshape(-1, SLICE)
    # Threads in step write to consecutive slots, but for where a row or a slice ends.
    assert (np.diff(inner, axis=1) == 1).mean() > 0.9


def test_widths_are_checked():
    for widths in (np.ones(2, dtype=np.int64), np.array([1, 0, 1])):
        with pytest.raises(ValueError, match="widths must be 3 positive numbers"):
            lay_out_messages(TRIANGLE, widths)


# -- without a device -------------------------------------------------------------------------------------------------


@WITHOUT
def test_a_device_that_is_not_there(monkeypatch):
    for ask in (lambda: loopy_bp(TRIANGLE, backend="cuda"), lambda: infer(TRIANGLE, method="loopy-bp", backend="cuda")):
        with pytest.raises(UnfitMethodError, match=r"^backend must be cpu here, got cuda: "):
            ask()
    with pytest.raises(UnfitMethodError, match=r"^schedule must be parallel on the GPU, got 'residual'"):
        loopy_bp(TRIANGLE, backend="cuda", schedule="residual")
    plain = loopy_bp(TRIANGLE)
    assert plain.stats["backend"] == plain.provenance["device"] == "cpu"
    small = loopy_bp(TRIANGLE, backend="auto")
    assert small.stats["backend"].startswith("cpu (a model of 6 messages, fewer than ")
    monkeypatch.setattr(cuda_messages, "LEAST_MESSAGES", 6)
    large = loopy_bp(TRIANGLE, backend="auto")
    assert large.stats["backend"].startswith("cpu (backend must be cpu here, got cuda: ")
    assert large.provenance["device"] == "cpu"
    assert np.array_equal(large.node_marginals, plain.node_marginals)
    residual = loopy_bp(TRIANGLE, backend="auto", schedule="residual")
    assert residual.stats["backend"] == "cpu (the residual schedule runs there)"


def test_unknown_backends_are_refused():
    with pytest.raises(ValueError, match="backend must be cpu, cuda or auto, got 'tpu'"):
        loopy_bp(TRIANGLE, backend="tpu")
    with pytest.raises(UnfitMethodError, match="backend must be cpu for Mean-Field, got 'cuda'"):
        infer(TRIANGLE, method="mean-field", backend="cuda")


@WITHOUT
def test_the_command_line_says_so_in_a_sentence(tmp_path, capsys):
    path = tmp_path / "model.npz"
    write_model(TRIANGLE, path)
    capsys.readouterr()
    assert cli._run(["infer", str(path), "--method", "loopy-bp", "--backend", "cuda"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "backend must be cpu here, got cuda" in err


def test_a_small_model_wakes_no_device():
    code = """
import sys
from fastmix import MarkovRandomField
from fastmix.methods.loopy_bp import loopy_bp
loopy_bp(MarkovRandomField.ising([(0, 1)], 0.4), backend="auto")
print(any(name.startswith("numba.cuda.cudadrv") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr
