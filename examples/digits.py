"""Ink or paper: noisy digits labeled by a small network, alone and with a field trained through fastmix.

Pixels of scikit-learn's digits (8 x 8, of grays) are ink where they are at least half black; what is seen is the gray
plus normal noise. The network sees 3 x 3 pixels around each. The field joins neighboring pixels: a table for every edge
of the grid, the same for all pictures, projected in every step so that its norm is at most a bound: Gibbs sampling is
proven to mix fast for every picture. It needs the extras ``torch`` and ``sklearn``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

import fastmix
from fastmix.graphs import grid_edges
from fastmix.model import Structure

__all__ = ["Labeler", "Pictures", "certified", "load", "train"]

GRID = Structure.of([2] * 64, grid_edges(8, 8))
NUM_UNARY = 128


class Pictures(NamedTuple):
    """Noisy pictures (N, 1, 8, 8), and where there is ink (N, 64)."""

    noisy: Any
    ink: Any


class Labeler(NamedTuple):
    """A trained network, and the parameters of a field (P,), whose unaries are zero, or None."""

    network: Any
    field: Any

    def unaries(self, noisy: Any) -> Any:
        """Log-odds of the network (N, 64, 2)."""
        return self.network(noisy).permute(0, 2, 3, 1).reshape(-1, 64, 2)

    def label(self, noisy: Any) -> Any:
        """The most probable label of every pixel (N, 64)."""
        with torch.no_grad():
            scores = self.unaries(noisy)
            if self.field is not None:
                scores = fastmix.torch.marginals(GRID, scores, self.field[NUM_UNARY:])[0]
        return scores.argmax(-1)

    def accuracy(self, pictures: Pictures) -> float:
        """Share of the pixels that get the right label."""
        return float((self.label(pictures.noisy) == pictures.ink).double().mean())


def load(seed: int, noise: float = 0.5) -> tuple[Pictures, Pictures]:
    """A thousand pictures to learn from, and 797 others."""
    rng = np.random.default_rng(seed)
    grays = rng.permutation(load_digits().images / 16.0)
    noisy = torch.tensor(grays + noise * rng.normal(size=grays.shape), dtype=torch.float32)[:, None]
    ink = torch.tensor((grays >= 0.5).reshape(-1, 64).astype(np.int64))
    return Pictures(noisy[:1000], ink[:1000]), Pictures(noisy[1000:], ink[1000:])


def train(pictures: Pictures, *, seed: int, norm_bound: float | None = None, num_epochs: int = 20) -> Labeler:
    """The network alone, by its log-loss; with a norm bound, network and field by the likelihood of whole pictures."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 2, 1))
    theta = torch.zeros(NUM_UNARY + 4 * GRID.num_edges, requires_grad=norm_bound is not None)
    weights = [*network.parameters()] if norm_bound is None else [*network.parameters(), theta]
    optimizer = torch.optim.Adam(weights, lr=0.02)
    for _ in range(num_epochs):
        for batch in torch.randperm(len(pictures.ink)).split(250):
            unaries = Labeler(network, None).unaries(pictures.noisy[batch])
            ink = pictures.ink[batch]
            if norm_bound is None:
                loss = torch.nn.functional.cross_entropy(unaries.reshape(-1, 2), ink.reshape(-1))
            else:
                tables = fastmix.torch.project(GRID, theta, norm_bound=norm_bound)[NUM_UNARY:]
                log_z = fastmix.torch.log_z(GRID, unaries, tables)
                loss = (log_z - fastmix.torch.log_weight(GRID, ink, unaries, tables)).mean() / 64
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if norm_bound is None:
        return Labeler(network, None)
    return Labeler(network, fastmix.torch.project(GRID, theta.detach(), norm_bound=norm_bound))


def certified(labeler: Labeler, noisy: Any) -> bool:
    """Whether the model of one picture (1, 1, 8, 8) is certified to mix."""
    with torch.no_grad():
        unaries = labeler.unaries(noisy).reshape(-1)
    zeros = np.zeros(4 * GRID.num_edges)
    model = fastmix.MarkovRandomField(GRID.num_states, np.zeros(NUM_UNARY), GRID.edges, zeros)
    parameters = torch.cat([unaries, labeler.field[NUM_UNARY:]]).double().numpy()
    return bool(fastmix.certify(model.with_parameters(parameters), accuracy=0.01).certified)
