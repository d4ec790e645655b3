"""Log Z and its gradient: fastmix in NumPy and PyTorch beside torch-struct and pytorch-crf, in one process.

    pip install -e ".[torch]" torch-struct pytorch-crf
    python benchmarks/gradients.py [--repeat 7]

A 16x16 grid, a chain of 1,000 variables with 26 states, and 1,000 chains of 8 variables with 26 states: with tables of
their own, and with one table for all, as pytorch-crf has it. CPU milliseconds on one thread, the best of the repeats:
log Z alone (no gradient wanted), and log Z with its gradient. Peers get the same numbers, in float64 as fastmix
computes, and in float32. Ratio is the second over the first, times how long the gradient takes beside that of the first
row; the last column is the largest difference to the gradient of the first row.

Then the projection as a layer, a hundred rows of parameters in a batch: milliseconds a row, alone and with the backward
pass, and how many of the rows the bound changes.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import torch
import torch_struct
from torchcrf import CRF

import fastmix
from fastmix.gradients import LogPartition
from fastmix.graphs import grid_edges
from fastmix.instances import ising_grid
from fastmix.model import Structure

torch.set_num_threads(1)

LETTERS = 26


class Row(NamedTuple):
    """A line of the table: who, log Z alone, log Z with its gradient, and how the gradient is read to compare it."""

    name: str
    value: Callable[[], Any]
    both: Callable[[], Any]
    read: Callable[[Any], Any] = lambda found: found


def milliseconds(run: Callable[[], Any], repeat: int) -> float:
    """CPU milliseconds of the best of some runs, after one that is not counted."""
    run()
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        run()
        found.append(1e3 * (time.process_time() - begun))
    return min(found)


def in_numpy(structure: Structure, theta: np.ndarray) -> Row:
    """fastmix on arrays."""
    partition = LogPartition.of(structure)
    return Row("fastmix, NumPy", lambda: partition.values(theta), lambda: partition.gradients(theta).gradient)


def in_torch(name: str, log_z: Callable[..., Any], *arrays: np.ndarray, dtype: Any = torch.float64) -> Row:
    """A function of tensors, and its sum's gradients by the backward pass."""
    tensors = [torch.tensor(array, dtype=dtype, requires_grad=True) for array in arrays]

    def value() -> Any:
        with torch.no_grad():
            return log_z(*tensors)

    def both() -> Any:
        for tensor in tensors:
            tensor.grad = None
        log_z(*tensors).sum().backward()
        return np.concatenate([tensor.grad.numpy().reshape(len(arrays[0]), -1) for tensor in tensors], axis=1)

    return Row(name, value, both)


def normalizer(tags: CRF) -> Callable[..., Any]:
    """Log Z of pytorch-crf from unaries (N, n, L), its own transitions the table."""

    def log_z(unary: Any) -> Any:
        emissions = unary.transpose(0, 1)
        mask = torch.ones(emissions.shape[:2], dtype=torch.bool)
        return tags._compute_normalizer(emissions, mask)

    return log_z


def chain(length: int) -> Structure:
    """A chain of letters."""
    return Structure.of([LETTERS] * length, [(i, i + 1) for i in range(length - 1)])


def own_tables(length: int, count: int, rng: np.random.Generator) -> Iterator[Row]:
    """Chains with tables of their own; torch-struct has no unaries, so that they are zero and not differentiated."""
    structure = chain(length)
    pairwise = rng.normal(size=(count, length - 1, LETTERS, LETTERS))
    unary = np.zeros((count, length, LETTERS))
    theta = np.concatenate([unary.reshape(count, -1), pairwise.reshape(count, -1)], axis=1)
    partition = LogPartition.of(structure)
    first = unary[0].size
    yield Row("fastmix, NumPy", lambda: partition.values(theta), lambda: partition.gradients(theta).gradient[:, first:])
    fixed = torch.tensor(unary)
    yield in_torch("fastmix, torch", lambda p: fastmix.torch.log_z(structure, fixed, p, num_threads=1), pairwise)

    def log_z(edges: Any) -> Any:
        return torch_struct.LinearChainCRF(edges).partition

    # Its tables have the later variable first.
    turned = pairwise.swapaxes(-1, -2).copy()
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        row = in_torch(f"torch-struct, {name}", log_z, turned, dtype=dtype)
        yield row._replace(read=lambda found: found.reshape(turned.shape).swapaxes(-1, -2).reshape(count, -1))


def one_table(length: int, count: int, rng: np.random.Generator) -> Iterator[Row]:
    """Chains with one table: gradients by the unaries, and in the torch rows by the table too."""
    structure = chain(length)
    unary = rng.normal(size=(count, length, LETTERS))
    table = rng.normal(size=(LETTERS, LETTERS))
    shared = torch.tensor(table[None], requires_grad=True)
    yield in_torch("fastmix, torch", lambda u: fastmix.torch.log_z(structure, u, shared, num_threads=1), unary)
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        tags = CRF(LETTERS).to(dtype)
        with torch.no_grad():
            tags.transitions.copy_(torch.tensor(table))
            tags.start_transitions.zero_()
            tags.end_transitions.zero_()
        yield in_torch(f"pytorch-crf, {name}", normalizer(tags), unary, dtype=dtype)


def projections(repeat: int) -> None:
    """A line for every graph: 100 rows of normal parameters, projected onto the norm 0.9."""
    rng = np.random.default_rng(1)
    for side, num_states in ((8, 2), (16, 2), (6, 3), (6, 4)):
        structure = Structure.of([num_states] * side**2, grid_edges(side, side))
        num_unary = side**2 * num_states
        rows = rng.normal(size=(100, num_unary + structure.num_edges * num_states**2))
        row = in_torch("", lambda t, s=structure: fastmix.torch.project(s, t, norm_bound=0.9), rows)
        value = milliseconds(row.value, repeat) / len(rows)
        both = milliseconds(row.both, repeat) / len(rows)
        with torch.no_grad():
            close = fastmix.torch.project(structure, torch.tensor(rows), norm_bound=0.9).numpy()
        moved = float((close != rows).any(axis=1).mean())
        print(f"  {f'{side}x{side}, {num_states} states':<24}{value:>10.3f}{both:>14.3f}{moved:>8.0%}", flush=True)


def show(title: str, rows: list[Row], repeat: int) -> None:
    """A part of the table."""
    print(title)
    expected = None
    first = None
    for row in rows:
        gradient = row.read(row.both())
        expected = gradient if expected is None else expected
        difference = float(np.abs(gradient - expected).max())
        value = milliseconds(row.value, repeat)
        both = milliseconds(row.both, repeat)
        first = both if first is None else first
        print(
            f"  {row.name:<24}{value:>10.2f}{both:>14.2f}{both / value:>8.2f}{both / first:>8.2f}{difference:>12.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print("CPU milliseconds, one thread    log Z  with gradient   ratio   times  difference")
    grid = ising_grid(16, 16, coupling_max=1.5, seed=0)
    theta = grid.parameters[None]
    rows = [in_numpy(grid.structure, theta)]
    rows.append(in_torch("fastmix, torch", lambda t: fastmix.torch.log_z(grid, t, num_threads=1), theta))
    show("grid of 16x16", rows, options.repeat)
    show("a chain of 1,000 x 26, own tables", list(own_tables(1000, 1, rng)), options.repeat)
    show("1,000 chains of 8 x 26, own tables", list(own_tables(8, 1000, rng)), options.repeat)
    show("1,000 chains of 8 x 26, one table", list(one_table(8, 1000, rng)), options.repeat)
    print("projections, ms a row        project  with gradient   moved")
    projections(options.repeat)


if __name__ == "__main__":
    main()
