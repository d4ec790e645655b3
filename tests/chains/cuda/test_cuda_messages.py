"""Belief propagation on a CUDA device against that of the CPU: every iteration, fixed points, verdicts, refusals.

They run in the CUDA simulator (``test_cuda_simulator.py`` starts it), or on the device where there is one.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from cuda_checks import dense_binary, lopsided, lopsided_binary

from fastmix import MarkovRandomField, ResourceError, Status, UnfitMethodError, infer
from fastmix.chains.cuda.device import check_memory, cuda_available
from fastmix.exact import infer_exact
from fastmix.graphs import complete_edges
from fastmix.instances import ising_grid, potts_grid
from fastmix.io import write_model
from fastmix.methods import cuda_messages
from fastmix.methods.cuda_messages import make_cuda_messages
from fastmix.methods.loopy_bp import loopy_bp
from fastmix.methods.messages import make_messages
from fastmix.methods.preparation import reduce_to_supported
from fastmix.testing import conformance_models

USABLE, DEVICE = cuda_available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"run in the simulator by test_cuda_simulator.py; here {DEVICE}")

SIDE = 3 if "simulator" in DEVICE else 300  # of grids: many blocks on a device
NEVER = -1.0  # a tolerance that no change meets


def star(leaves: int = 9) -> MarkovRandomField:
    """More neighbours than are held in registers."""
    rng = np.random.default_rng(1)
    return MarkovRandomField.ising(
        [(3, i) for i in range(leaves + 1) if i != 3], rng.normal(size=leaves), rng.normal(size=leaves + 1)
    )


def random_tables(counts: list[int], seed: int = 2) -> MarkovRandomField:
    """A cycle with a chord."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


def strong_tables() -> MarkovRandomField:
    """Three states, of tables with entries up to 1e3 and a zero: some are kept as exponentials and some as logs."""
    model = random_tables([3, 3, 3, 3])
    tables = model.log_pairwise.reshape(-1, 3, 3).copy()
    tables[0] *= 1e3
    tables[3][1, 2] = -np.inf
    return MarkovRandomField.from_tables(model.log_unary.reshape(-1, 3), model.edges, tables)


MODELS = {
    "binary": lopsided_binary(),
    "binary, many neighbours": dense_binary(),
    "binary, very many neighbours": star(),
    "binary, couplings of a thousand": ising_grid(3, 3, coupling_max=1e3, seed=0),
    "binary, a thousand and very many neighbours": star().replace(log_pairwise=1e3 * star().log_pairwise),
    "three states": random_tables([3, 3, 3, 3]),
    "nine states": random_tables([9, 9, 9, 9]),
    "mixed states and a zero": lopsided(),
    "mixed states": random_tables([2, 5, 3, 2]),
    "three states, a thousand and a zero": strong_tables(),
}  # fmt: skip
KERNELS = {
    "binary": "cuda odds", "binary, couplings of a thousand": "cuda log-odds", "three states": "cuda tables",
}  # fmt: skip


def assert_same(ours, theirs, atol=1e-9):
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)
    assert ours[2] == pytest.approx(theirs[2], rel=1e-11, abs=1e-9)


def check_iterations(model: MarkovRandomField, calls: list[int], damping: float = 0.0, messages=None) -> None:
    small = reduce_to_supported(model, None).model
    cpu = make_messages(small, schedule="parallel", damping=damping)
    device = make_cuda_messages(small, damping=damping) if messages is None else messages
    assert device.kernel == f"cuda {cpu.kernel}"
    scale = max(1.0, float(np.abs(small.log_pairwise[np.isfinite(small.log_pairwise)]).max(initial=0.0)))
    for count in calls:
        expected, got = cpu.advance(count, damping, NEVER), device.advance(count, damping, NEVER)
        if small.num_edges:
            assert got[0] == count
            assert not got[2]
        # Where changes have come down to rounding errors, the errors differ.
        assert got[1] == pytest.approx(expected[1], rel=1e-6, abs=1e-12 * scale)
        assert_same(device.beliefs(), cpu.beliefs())


# -- every iteration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_iterations_are_those_of_the_cpu(name):
    check_iterations(MODELS[name], [1, 2, 1])
    if name in KERNELS:
        assert make_cuda_messages(MODELS[name], damping=None).kernel == KERNELS[name]


@pytest.mark.parametrize("damping", [0.75, 0.3])
@pytest.mark.parametrize("name", ["binary", "mixed states and a zero", "three states"])
def test_damped_iterations_are_those_of_the_cpu(name, damping):
    check_iterations(MODELS[name], [1, 2], damping)


def test_many_blocks():
    for model in (ising_grid(SIDE, SIDE, coupling_max=1.0, seed=1), potts_grid(SIDE, SIDE, coupling_max=1.0, seed=1)):
        check_iterations(model, [1, 2])


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 3, 3), (2, 4, 3)])
def test_several_slices(counts):
    rng = np.random.default_rng(5)
    states = [counts[i % 3] for i in range(45)]
    pairs = [(i, (i + 1) % 45) for i in range(45)] + [(0, 20), (10, 44)]
    tables = [rng.normal(size=(states[i], states[j])) for i, j in pairs]
    check_iterations(MarkovRandomField.from_tables([rng.normal(size=k) for k in states], pairs, tables), [2])


@pytest.mark.parametrize("name", [name for name, _ in conformance_models()])
def test_conformance(name):
    check_iterations(dict(conformance_models())[name], [3])


def test_a_wrong_weight_is_noticed():
    for name, array in (("binary", "weights"), ("three states", "tables")):
        model = MODELS[name]
        messages = make_cuda_messages(model, damping=None)
        values = messages._arrays[array].copy_to_host()
        values[0] *= 1.001
        messages._arrays[array].copy_to_device(values)
        with pytest.raises(AssertionError):
            check_iterations(model, [3], messages=messages)


# -- fixed points and verdicts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "damping"),
    [
        ("binary", None), ("binary", 0.5), ("binary, couplings of a thousand", None), ("three states", None),
        ("mixed states and a zero", None), ("mixed states", 0.3),
    ],
)  # fmt: skip
def test_fixed_points_are_those_of_the_cpu(name, damping):
    model = MODELS[name]
    cpu = loopy_bp(model, damping=damping, tol=1e-10, edge_marginals=True)
    device = loopy_bp(model, damping=damping, tol=1e-10, edge_marginals=True, backend="cuda")
    assert device.status == cpu.status == Status.OK
    # Rounding may end an iteration earlier or later.
    assert abs(device.stats["iterations"] - cpu.stats["iterations"]) <= 1
    assert device.largest_change <= 1e-10
    assert_same(
        (device.node_marginals, device.edge_marginals, device.log_z),
        (cpu.node_marginals, cpu.edge_marginals, cpu.log_z),
    )
    assert (device.stats["backend"], device.provenance["device"]) == (f"cuda ({DEVICE})", DEVICE)
    assert device.to_dict()["stats"]["kernel"].startswith("cuda ")


def test_damping_comes_when_it_does_on_the_cpu():
    model = MarkovRandomField.ising(complete_edges(4), coupling=-1.0, field=[0.3] * 4)
    cpu, device = loopy_bp(model), loopy_bp(model, backend="cuda")
    assert cpu.stats["damping"] == device.stats["damping"] == 0.5
    assert cpu.stats["iterations"] == pytest.approx(device.stats["iterations"], abs=1)
    assert [n for n, _ in device.stats["history"]][:4] == [n for n, _ in cpu.stats["history"]][:4] == [25, 50, 75, 100]
    np.testing.assert_allclose(device.node_marginals, cpu.node_marginals, rtol=0, atol=1e-8)


def test_limits_are_verdicts():
    model = MarkovRandomField.ising(complete_edges(4), coupling=-1.0, field=[0.3] * 4)
    cpu, device = loopy_bp(model, max_iter=7), loopy_bp(model, max_iter=7, backend="cuda")
    assert device.status == Status.NOT_CONVERGED
    assert device.stats["iterations"] == 7
    assert device.largest_change == pytest.approx(cpu.largest_change, rel=1e-9)
    np.testing.assert_allclose(device.node_marginals, cpu.node_marginals, rtol=0, atol=1e-9)
    limited = loopy_bp(model, backend="cuda", time_limit=1e-9)
    assert (limited.status, limited.stats["stopped_by"]) == (Status.NOT_CONVERGED, "time_limit")
    assert limited.stats["iterations"] == 25


def test_evidence_and_trees():
    model = MarkovRandomField.ising([(0, 1), (1, 2), (1, 3)], [0.8, -0.4, 1.2], [0.3, 0.0, -0.2, 0.1])
    result = infer(model, method="loopy-bp", evidence={3: 1}, backend="cuda")
    exact = infer_exact(model, evidence={3: 1})
    np.testing.assert_allclose(result.node_marginals, exact.node_marginals, rtol=0, atol=1e-9)
    assert result.log_z == pytest.approx(exact.log_z, abs=1e-9)


# -- where it runs ----------------------------------------------------------------------------------------------------


def test_auto_takes_the_device_for_large_models(monkeypatch):
    model = MODELS["binary"]
    assert loopy_bp(model, backend="auto").stats["backend"].startswith("cpu (a model of 10 messages")
    monkeypatch.setattr(cuda_messages, "LEAST_MESSAGES", 10)
    assert loopy_bp(model, backend="auto", max_iter=1).stats["backend"] == f"cuda ({DEVICE})"
    monkeypatch.setattr(cuda_messages, "_MOST_NEIGHBORS", 3)
    result = loopy_bp(model, backend="auto", max_iter=1)
    assert result.stats["backend"].startswith("cpu (a variable with 4 neighbours, more than 3,")
    assert result.provenance["device"] == "cpu"


def test_what_the_device_does_not_take_is_refused(monkeypatch):
    with pytest.raises(UnfitMethodError, match=r"^schedule must be parallel on the GPU, got 'residual'"):
        loopy_bp(MODELS["binary"], schedule="residual", backend="cuda")
    wide = MarkovRandomField.from_tables([np.zeros(65), np.zeros(2)], [(0, 1)], [np.zeros((65, 2))])
    with pytest.raises(UnfitMethodError, match=r"^backend must be cpu for variables of more than 64 states, got cuda"):
        loopy_bp(wide, backend="cuda")
    monkeypatch.setattr(cuda_messages, "LEAST_MESSAGES", 1)
    assert loopy_bp(wide, backend="auto").stats["backend"].startswith("cpu (backend must be cpu for")
    monkeypatch.setattr(cuda_messages, "_MOST_NUMBERS", 64)
    with pytest.raises(ResourceError, match=r"fewer than 2\^32 numbers"):
        loopy_bp(MODELS["three states"], backend="cuda")


def test_too_little_memory_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(cuda_messages, "check_memory", lambda cuda, n, **words: check_memory(cuda, n, 100.0, **words))
    with pytest.raises(ResourceError, match=r"^belief propagation on the GPU needs .* use the CPU$") as caught:
        loopy_bp(MODELS["binary"], backend="cuda")
    assert caught.value.limit_bytes == 100
    assert caught.value.required_bytes > 100


def test_command_line(tmp_path, capsys):
    cli = pytest.importorskip("fastmix.cli", reason="needs the packages of the command line")
    path = tmp_path / "model.npz"
    write_model(MODELS["three states"], path)
    capsys.readouterr()
    code = cli._run(["infer", str(path), "--method", "loopy-bp", "--backend", "cuda", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["status"], answer["stats"]["backend"]) == (0, "ok", DEVICE)
    expected = loopy_bp(MODELS["three states"]).node_marginals
    np.testing.assert_allclose(np.concatenate(answer["marginals"]), expected, rtol=0, atol=1e-8)
