"""Time to a largest moment error of 0.01 beside other packages that fit Ising models, on one thread.

    python benchmarks/learning_peers.py [--who fastmix "plain numpy" ..] [--variables 16 40]

Rows are drawn from random dense Ising models. A fit is judged by the probabilities of states and pairs under it, exact
by enumeration (16 variables) or from 400,000 chains of ours (more): its largest difference from those of the data.
Iterative peers are stopped and looked at now and then, and looking is not counted; those that maximise a
pseudo-likelihood have one answer, whatever its error. A peer that is not installed, or fails, is reported with why.
Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator

import numpy as np

import fastmix
from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains

GOAL, LIMIT, ROWS = 0.01, 600.0, 20_000


def pairs_of(spins: np.ndarray) -> np.ndarray:
    """Means and products of spins as the probabilities that moment errors are about."""
    means = spins.mean(axis=0)
    products = spins.T @ spins / len(spins)
    i, j = np.triu_indices(spins.shape[1], 1)
    return np.concatenate([0.5 * (1 + means), 0.25 * (1 + means[i] + means[j] + products[i, j])])


def moments(couplings: np.ndarray, field: np.ndarray) -> np.ndarray:
    model = MarkovRandomField.from_couplings(couplings, field)
    if len(field) <= 20:
        bits = (np.arange(1 << len(field))[:, None] >> np.arange(len(field))) & 1
        logs = np.asarray(model.log_weight(bits))
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        spins = 2.0 * bits - 1.0
        means, products = weights @ spins, spins.T @ (weights[:, None] * spins)
        i, j = np.triu_indices(len(field), 1)
        return np.concatenate([0.5 * (1 + means), 0.25 * (1 + means[i] + means[j] + products[i, j])])
    chains = CpuChains(model.structure, num_chains=4000, seed=1)
    chains.load(model.parameters)
    chains.sweep(200)
    total = []
    for _ in range(100):
        chains.sweep(5)
        total.append(pairs_of(2.0 * chains.get_states() - 1.0))
    return np.mean(total, axis=0)


Fit = Iterator[tuple[np.ndarray, np.ndarray]]  # couplings and fields, again and again


def by_fastmix(spins: np.ndarray, objective: str = "likelihood") -> Fit:
    data = ((spins + 1) / 2).astype(np.int8)
    # A moment error of 0.01 asks for no more than a rough optimum.
    options = {"moments": "sampled", "tol": 0.004} if objective == "likelihood" else {"objective": objective}
    model = fastmix.learn(data, ridge=1e-4, seed=0, **options).model
    n = spins.shape[1]
    couplings, (i, j) = np.zeros((n, n)), model.edges.T
    couplings[i, j] = couplings[j, i] = model.log_pairwise.reshape(-1, 4)[:, 3]
    yield couplings, model.log_unary[1::2]


def by_numpy(spins: np.ndarray) -> Fit:
    """A plain Boltzmann machine: persistent chains, one sweep per step, moment matching with momentum."""
    rng, n = np.random.default_rng(0), spins.shape[1]
    means, products = spins.mean(axis=0), spins.T @ spins / len(spins)
    couplings, field, chains = np.zeros((n, n)), np.arctanh(0.99 * means), spins[:1000].copy()
    while True:
        for _ in range(20):
            for i in range(n):
                odds = 2.0 * (chains @ couplings[i] + field[i])
                chains[:, i] = np.where(rng.random(len(chains)) < 1.0 / (1.0 + np.exp(-odds)), 1.0, -1.0)
            couplings += 0.05 * (products - chains.T @ chains / len(chains))
            np.fill_diagonal(couplings, 0.0)
            field += 0.05 * (means - chains.mean(axis=0))
        yield couplings, field


def by_dwave(spins: np.ndarray) -> Fit:
    import torch
    from dwave.plugins.torch.models import GraphRestrictedBoltzmannMachine
    from dwave.plugins.torch.samplers.block_spin_sampler import BlockSampler

    torch.set_num_threads(1)
    n = spins.shape[1]
    edges = [(i, j) for i in range(n) for j in range(i)]
    machine = GraphRestrictedBoltzmannMachine(range(n), edges)
    sampler = BlockSampler(machine, lambda node: node, num_chains=1000, schedule=[1.0])
    rows = torch.tensor(spins, dtype=torch.float32)
    optimiser = torch.optim.SGD(machine.parameters(), lr=0.05)
    while True:
        for _ in range(20):
            optimiser.zero_grad()
            machine.quasi_objective(rows, sampler.sample()).backward()
            optimiser.step()
        couplings = np.zeros((n, n))
        for (i, j), value in zip(machine.edges, machine.quadratic.detach().numpy(), strict=True):
            couplings[i, j] = couplings[j, i] = -value
        yield couplings, -machine.linear.detach().numpy().astype(float)


def by_pseudolm(spins: np.ndarray) -> Fit:
    from joblib import Parallel
    from pyplm.inference.pseudolikelihoodmax import plm

    found = plm(spins, Parallel(n_jobs=1))
    couplings = 0.5 * (found + found.T)
    field = np.diag(found).copy()
    np.fill_diagonal(couplings, 0.0)
    yield couplings, field


PEERS: dict[str, Callable[[np.ndarray], Fit]] = {
    "fastmix": by_fastmix,
    "fastmix, pseudo-likelihood": lambda spins: by_fastmix(spins, "pseudo-likelihood"),
    "plain numpy": by_numpy,
    "dwave-pytorch-plugin": by_dwave,
    "pseudolm": by_pseudolm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--who", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--variables", nargs="+", type=int, default=[16, 40])
    parser.add_argument("--limit", type=float, default=LIMIT)
    arguments = parser.parse_args()
    for n in arguments.variables:
        rng = np.random.default_rng(n)
        true = np.triu(rng.standard_normal((n, n)) * 0.8 / np.sqrt(n), 1)
        model = MarkovRandomField.from_couplings(true + true.T, 0.3 * rng.standard_normal(n))
        chains = CpuChains(model.structure, num_chains=ROWS, seed=0)
        chains.load(model.parameters)
        chains.sweep(500)
        spins = 2.0 * chains.get_states() - 1.0
        goal = pairs_of(spins)
        for who in arguments.who:
            line: dict[str, object] = {"who": who, "variables": n}
            try:
                if who.startswith("fastmix"):
                    next(PEERS[who](spins[:2000]))  # compiled once
                spent, error = 0.0, np.inf
                begin = time.process_time()
                for couplings, field in PEERS[who](spins):
                    spent += time.process_time() - begin
                    error = float(np.abs(moments(couplings, field) - goal).max())
                    if error <= GOAL or spent > arguments.limit:
                        break
                    begin = time.process_time()
                line |= {"cpu_seconds": spent, "moment_error": error, "reached": error <= GOAL}
            except Exception as error:  # a peer that is not there or does not run
                line["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
