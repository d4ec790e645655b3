"""Functions of PyTorch: their derivatives by finite differences, shapes, types, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix.gradients import BethePartition, SampledPartition
from fastmix.instances import ising_grid
from fastmix.model import MarkovRandomField, Structure

pytestmark = pytest.mark.extras("torch")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "train.md"
LOOP = Structure.of([3] * 4, [(0, 1), (0, 3), (1, 2), (2, 3)])
UNEVEN = Structure.of([2, 3, 1, 2], [(0, 1), (1, 2), (1, 3)])


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """Numbers that a gradient is wanted for."""
    import torch

    return torch.tensor(np.random.default_rng(seed).normal(size=shape) * scale, requires_grad=True)


@pytest.mark.parametrize("structure", [LOOP, UNEVEN])
@pytest.mark.parametrize("batch", [(), (3,), (2, 5)])
def test_log_z_is_differentiable_twice(structure: Structure, batch: tuple[int, ...]) -> None:
    import torch

    num_parameters = int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1])
    theta = draw(*batch, num_parameters)
    values = fastmix.torch.log_z(structure, theta)
    np.testing.assert_allclose(values.detach(), fastmix.log_z(structure, theta.detach().numpy()).log_z)
    assert torch.autograd.gradcheck(lambda t: fastmix.torch.log_z(structure, t), (theta,))
    assert torch.autograd.gradgradcheck(lambda t: fastmix.torch.log_z(structure, t), (theta,))
    assert torch.autograd.gradcheck(lambda t: fastmix.torch.marginals(structure, t), (theta,))


def test_many_rows_side_by_side() -> None:
    """More rows than a block is worth: derivatives of all of them."""
    import torch

    theta = draw(20, 48, seed=1)
    found = fastmix.torch.log_z(LOOP, theta)
    found.sum().backward()
    np.testing.assert_allclose(theta.grad, fastmix.log_z(LOOP, theta.detach().numpy()).gradient(), atol=1e-13)
    assert torch.autograd.gradgradcheck(lambda t: fastmix.torch.log_z(LOOP, t), (draw(9, 48),), fast_mode=True)


def test_parts_are_broadcast() -> None:
    """Unaries of a batch, and one table for all edges and rows."""
    import torch

    unary = draw(5, 4, 3)
    table = draw(1, 3, 3, seed=1)
    joined = fastmix.torch.join(LOOP, unary, table)
    assert joined.shape == (5, 48)
    assert torch.autograd.gradcheck(lambda u, t: fastmix.torch.log_z(LOOP, u, t), (unary, table))
    assert torch.autograd.gradgradcheck(lambda u, t: fastmix.torch.log_z(LOOP, u, t), (unary, table))
    nodes, edges = fastmix.torch.marginals(LOOP, unary, table)
    assert (nodes.shape, edges.shape) == ((5, 4, 3), (5, 4, 3, 3))
    np.testing.assert_allclose(edges.sum(dim=(-1, -2)).detach(), np.ones((5, 4)))
    flat = fastmix.torch.log_z(LOOP, unary.reshape(5, 12), table.expand(4, 3, 3).reshape(36))
    np.testing.assert_allclose(flat.detach(), fastmix.torch.log_z(LOOP, unary, table).detach())


def test_many_rows_beside_one_table() -> None:
    """Tables that all rows share are worked with once: the same numbers as with rows of all parameters."""
    import torch

    unary = draw(3, 4, 4, 3)
    for table in (draw(1, 3, 3, seed=1), draw(4, 3, 3, seed=2), draw(1, 1, 4, 3, 3, seed=3)):
        weights = torch.as_tensor(np.random.default_rng(4).normal(size=(3, 4)))
        found = fastmix.torch.log_z(LOOP, unary, table)
        joined = fastmix.torch.log_z(LOOP, fastmix.torch.join(LOOP, unary, table))
        np.testing.assert_allclose(found.detach(), joined.detach())
        own = torch.autograd.grad((weights * found).sum(), (unary, table))
        expected = torch.autograd.grad((weights * joined).sum(), (unary, table))
        for one, other in zip(own, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)
    assert torch.autograd.gradcheck(lambda u, t: fastmix.torch.log_z(LOOP, u, t), (unary, table), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda u, t: fastmix.torch.log_z(LOOP, u, t), (unary, table), fast_mode=True)


def test_factors_and_forbidden_states() -> None:
    import torch

    model = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    theta = torch.tensor(model.parameters, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: fastmix.torch.log_z(model, t), (theta,))
    hard = model.parameters
    hard[1] = -np.inf
    theta = torch.tensor(hard, requires_grad=True)
    fastmix.torch.log_z(model, theta).backward()
    assert theta.grad[:2].tolist() == [1.0, 0.0]


def test_log_weight_selects_and_is_normalized_by_log_z() -> None:
    import torch

    theta = draw(48)
    states = np.array(list(np.ndindex(3, 3, 3, 3)))
    log_p = fastmix.torch.log_weight(LOOP, states, theta) - fastmix.torch.log_z(LOOP, theta)
    assert float(log_p.detach().exp().sum()) == pytest.approx(1.0)
    rows = torch.as_tensor(states[:5])
    assert torch.autograd.gradcheck(lambda t: fastmix.torch.log_weight(LOOP, rows, t), (draw(5, 48),))
    with pytest.raises(fastmix.ModelError):
        fastmix.torch.log_weight(LOOP, states + 1, theta)


def test_memory_is_shared_and_types_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from fastmix.gradients import LogPartition

    seen = []
    values = LogPartition.values

    def listening(self: LogPartition, theta: np.ndarray, **options: Any) -> np.ndarray:
        seen.append(theta)
        return values(self, theta, **options)

    monkeypatch.setattr(LogPartition, "values", listening)
    theta = torch.zeros(4, 48, dtype=torch.float64)
    fastmix.torch.log_z(LOOP, theta)
    assert np.shares_memory(seen[0], theta.numpy())
    single = torch.zeros(4, 48, dtype=torch.float32, requires_grad=True)
    found = fastmix.torch.log_z(LOOP, single)
    found.sum().backward()
    assert (found.dtype, single.grad.dtype) == (torch.float32, torch.float32)


def test_belief_propagation_at_its_fixed_point() -> None:
    import torch

    bethe = BethePartition(LOOP)
    theta = draw(2, 48, scale=0.5)
    assert torch.autograd.gradcheck(lambda t: fastmix.torch.log_z(bethe, t), (theta,))
    assert torch.autograd.gradgradcheck(lambda t: fastmix.torch.log_z(bethe, t), (theta,))


def test_chains_give_gradients_with_errors() -> None:
    sampled = SampledPartition(LOOP, num_chains=5000, seed=0)
    theta = draw(48, scale=0.3)
    fastmix.torch.log_z(sampled, theta).backward()
    exact = fastmix.log_z(LOOP, theta.detach().numpy()).gradient()
    assert (np.abs(theta.grad.numpy() - exact) <= 6 * sampled.std_error).all()


def test_what_is_refused() -> None:
    import torch

    with pytest.raises(fastmix.ModelError, match="parameters"):
        fastmix.torch.log_z(LOOP, torch.zeros(7))
    with pytest.raises(fastmix.ModelError, match="unary"):
        fastmix.torch.log_z(LOOP, torch.zeros(7), torch.zeros(1, 3, 3))
    with pytest.raises(fastmix.ModelError, match="batch"):
        fastmix.torch.log_z(LOOP, torch.zeros(5, 4, 3), torch.zeros(7, 4, 3, 3))
    with pytest.raises(fastmix.ModelError, match="NaN"):
        fastmix.torch.log_z(LOOP, torch.full((48,), torch.nan))
    with pytest.raises(TypeError, match="tensors"):
        fastmix.torch.log_z(LOOP, np.zeros(48))
    with pytest.raises(TypeError, match="structure"):
        fastmix.torch.log_z("chain", torch.zeros(48))
    theta = draw(48)
    (first,) = torch.autograd.grad(fastmix.torch.log_z(LOOP, theta), theta, create_graph=True)
    (second,) = torch.autograd.grad(first[0], theta, create_graph=True)
    with pytest.raises(RuntimeError):
        second[0].backward()


@pytest.mark.parametrize("seed", range(6))
def test_projections_are_differentiable_away_from_kinks(seed: int) -> None:
    """Two states, and any numbers of them; within a piece the projection is linear, so that gradgradcheck holds."""
    import torch

    rng = np.random.default_rng(seed)
    counts = [2] * 4 if seed < 3 else rng.integers(2, 5, size=4)
    structure = Structure.of(counts, [(0, 1), (0, 3), (1, 2), (2, 3)])
    theta = draw(2, int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1]), seed=seed)
    assert torch.autograd.gradcheck(lambda t: fastmix.torch.project(structure, t, norm_bound=0.5), (theta,))
    assert torch.autograd.gradgradcheck(lambda t: fastmix.torch.project(structure, t, norm_bound=0.5), (theta,))


def test_projections_of_a_batch_are_those_of_its_rows() -> None:
    """Axes of a batch, rows within the bound among them, and parts of the parameters."""
    import torch

    structure = Structure.of([2, 3, 1, 4], [(0, 1), (0, 3), (1, 2), (1, 3)])
    num_parameters = int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1])
    sizes = torch.tensor([0.01, 1.0, 5.0], dtype=torch.float64)
    rows = (draw(2, 3, num_parameters, seed=3).detach() * sizes[:, None]).requires_grad_()
    weights = draw(2, 3, num_parameters, seed=4).detach()
    found = fastmix.torch.project(structure, rows, norm_bound=0.6)
    (slopes,) = torch.autograd.grad((weights * found).sum(), rows)
    assert torch.equal(found[:, 0], rows[:, 0])
    assert torch.equal(slopes[:, 0], weights[:, 0])
    for place in np.ndindex(2, 3):
        row = rows[place].detach().requires_grad_()
        alone = fastmix.torch.project(structure, row, norm_bound=0.6)
        (slope,) = torch.autograd.grad((weights[place] * alone).sum(), row)
        np.testing.assert_allclose(found[place].detach(), alone.detach(), atol=1e-9)
        np.testing.assert_allclose(slopes[place], slope, atol=1e-9)
    unary = draw(5, 4, 3)
    table = draw(1, 3, 3, seed=1)
    assert torch.autograd.gradcheck(lambda u, t: fastmix.torch.project(LOOP, u, t, norm_bound=0.5), (unary, table))
    empty = fastmix.torch.project(structure, torch.zeros(0, num_parameters), norm_bound=0.5)
    assert empty.shape == (0, num_parameters)


def test_projected_models_are_certified_at_every_step() -> None:
    """Maximum likelihood through the layer: every step of it is a model within the bound."""
    import torch

    model = ising_grid(3, 3, coupling_max=2.0, seed=0)
    rows = torch.as_tensor(np.asarray(fastmix.draw_exact(model, num_draws=200, seed=0)))
    theta = torch.zeros(model.num_parameters, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=0.1)
    losses = []
    for _ in range(15):
        close = fastmix.torch.project(model, theta, norm_bound=0.8)
        loss = fastmix.torch.log_z(model, close) - fastmix.torch.log_weight(model, rows, close).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        fitted = model.with_parameters(close.detach().numpy())
        assert fastmix.certify(fitted, accuracy=0.1).certified
    assert losses[-1] < losses[0] - 0.1
    with pytest.raises(fastmix.ModelError, match="finite"):
        fastmix.torch.project(model, torch.full_like(theta, -torch.inf), norm_bound=0.8)


def test_the_field_of_the_gallery_adds_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noisy digits, with fewer epochs than on the page."""
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import digits

    learned, others = digits.load(0)
    alone = digits.train(learned, seed=0, num_epochs=5)
    field = digits.train(learned, seed=0, norm_bound=0.9, num_epochs=5)
    assert field.accuracy(others) > alone.accuracy(others) + 0.015
    assert digits.certified(field, others.noisy[:1])


def test_the_page_runs() -> None:
    blocks = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "torch" in block]
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # the page's own code
    assert len(blocks) >= 2
