"""Time to a largest moment error of 0.01 beside other packages that fit Ising models, on one thread.

    python benchmarks/learning_peers.py [--who fastmix "plain numpy" ..] [--variables 16] [--sets nltcs plants]
        [--packages FOLDER] [--limit 120]

Rows are those of DEBD sets, and drawn from random dense Ising models of so many ``--variables``. A fit is judged by the
probabilities of states and pairs under it, exact by enumeration (up to 20 variables) or from 400,000 draws of chains of
ours that begin at the data: their largest difference from those of the data. Iterative fits, ours too, are stopped and
looked at now and then, and looking is not counted; those that maximise a pseudo-likelihood have one answer, whatever
its error. The length of steps is ``--step`` for peers that leave it to their user. A peer that is not
installed (``--packages`` has a folder for each, as ``pip install --target`` makes), or fails, is reported with why.
Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastmix
from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains
from learning import DATA, read

GOAL, LIMIT, ROWS, STEP = 0.01, 600.0, 20_000, 0.2


def pairs_of(spins: np.ndarray) -> np.ndarray:
    """The probabilities of states and pairs that moment errors are about."""
    return probabilities(spins.mean(axis=0), spins.T @ spins / len(spins))


def probabilities(means: np.ndarray, products: np.ndarray) -> np.ndarray:
    """The same from means and products of spins."""
    i, j = np.triu_indices(len(means), 1)
    return np.concatenate([0.5 * (1 + means), 0.25 * (1 + means[i] + means[j] + products[i, j])])


def moments(couplings: np.ndarray, field: np.ndarray, spins: np.ndarray) -> np.ndarray:
    model = MarkovRandomField.from_couplings(couplings, field)
    if len(field) <= 20:
        bits = (np.arange(1 << len(field))[:, None] >> np.arange(len(field))) & 1
        logs = np.asarray(model.log_weight(bits))
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        all_spins = 2.0 * bits - 1.0
        return probabilities(weights @ all_spins, all_spins.T @ (weights[:, None] * all_spins))
    chains = CpuChains(model.structure, num_chains=4000, seed=1)
    chains.load(model.parameters)
    chains.set_states((np.resize(spins, (4000, len(field))) > 0).astype(np.int64))
    chains.sweep(200)
    total = []
    for _ in range(100):
        chains.sweep(5)
        total.append(pairs_of(2.0 * chains.get_states() - 1.0))
    return np.mean(total, axis=0)


Fit = Iterator[tuple[np.ndarray, np.ndarray]]  # couplings and fields, again and again


def by_fastmix(spins: np.ndarray, **options: Any) -> Fit:
    data = ((spins + 1) / 2).astype(np.int8)

    def stop(report: Any) -> None:
        error = report.details.get("moment_error")
        if error is not None and error <= 0.9 * GOAL:  # by its own account
            raise KeyboardInterrupt

    model = fastmix.learn(data, ridge=1e-4, seed=0, progress=stop, **options).model
    n = spins.shape[1]
    couplings, (i, j) = np.zeros((n, n)), model.edges.T
    couplings[i, j] = couplings[j, i] = model.log_pairwise.reshape(-1, 4)[:, 3]
    yield couplings, model.log_unary[1::2]


def by_numpy(spins: np.ndarray) -> Fit:
    """A plain Boltzmann machine: persistent chains, one sweep per step, moment matching."""
    rng, n = np.random.default_rng(0), spins.shape[1]
    means, products = spins.mean(axis=0), spins.T @ spins / len(spins)
    couplings, field, chains = np.zeros((n, n)), np.arctanh(0.99 * means), spins[:1000].copy()
    while True:
        for _ in range(20):
            for i in range(n):
                odds = 2.0 * (chains @ couplings[i] + field[i])
                chains[:, i] = np.where(rng.random(len(chains)) < 1.0 / (1.0 + np.exp(-odds)), 1.0, -1.0)
            couplings += STEP * (products - chains.T @ chains / len(chains))
            np.fill_diagonal(couplings, 0.0)
            field += STEP * (means - chains.mean(axis=0))
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
    optimiser = torch.optim.SGD(machine.parameters(), lr=STEP)
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


def by_adabmdca(spins: np.ndarray) -> Fit:
    """Its gradient, update and Gibbs sampler of two states, ten sweeps per step as its command line has them."""
    import torch
    from adabmDCA.sampling import gibbs_sampling
    from adabmDCA.stats import get_freq_single_point, get_freq_two_points
    from adabmDCA.training import update_params

    torch.set_num_threads(1)
    n = spins.shape[1]
    hot = torch.nn.functional.one_hot(torch.tensor((spins > 0).astype(np.int64)), 2).float()
    fi, fij = get_freq_single_point(hot), get_freq_two_points(hot)
    mask = torch.ones(n, 2, n, 2)
    mask[torch.arange(n), :, torch.arange(n), :] = 0.0
    params = {"bias": torch.log(fi.clamp(min=1e-4)), "coupling_matrix": torch.zeros(n, 2, n, 2)}
    chains = hot[:1000].clone()
    while True:
        for _ in range(10):
            chains = gibbs_sampling(chains, params, 10)
            pi, pij = get_freq_single_point(chains), get_freq_two_points(chains)
            update_params(fi=fi, fij=fij, pi=pi, pij=pij, params=params, mask=mask, lr=STEP)
        tables = params["coupling_matrix"].permute(0, 2, 1, 3).double().numpy()
        couplings = 0.25 * (tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0] + tables[..., 0, 0])
        effects = tables.mean(axis=3)
        bias = params["bias"].double().numpy()
        field = 0.5 * (bias[:, 1] - bias[:, 0]) + 0.5 * (effects[..., 1] - effects[..., 0]).sum(axis=1)
        yield couplings, field


def by_thrml(spins: np.ndarray) -> Fit:
    """Its estimate of the gradient, from chains that go on, a node per block because all are joined."""
    import jax
    import jax.numpy as jnp
    from thrml import Block, SamplingSchedule, SpinNode, sample_states
    from thrml.models import IsingEBM, IsingSamplingProgram

    n = spins.shape[1]
    nodes = [SpinNode() for _ in range(n)]
    i, j = np.triu_indices(n, 1)
    edges = [(nodes[a], nodes[b]) for a, b in zip(i, j, strict=True)]
    blocks, whole = [Block([node]) for node in nodes], [Block(nodes)]
    means, products = jnp.asarray(spins.mean(axis=0)), jnp.asarray((spins.T @ spins / len(spins))[i, j])

    @jax.jit
    def step(biases: Any, weights: Any, states: Any, key: Any) -> Any:
        model = IsingEBM(nodes, edges, biases, weights, jnp.array(1.0))
        program = IsingSamplingProgram(model, blocks, [])
        run = SamplingSchedule(1, 1, 1)
        keys = jax.random.split(key, len(states[0]))
        drawn = jax.vmap(lambda k, s: sample_states(k, program, run, s, [], whole))(keys, states)[0][:, 0]
        x = 2.0 * drawn.astype(jnp.float32) - 1.0
        biases = biases + STEP * (means - x.mean(axis=0))
        weights = weights + STEP * (products - (x.T @ x / len(x))[i, j])
        return biases, weights, [drawn[:, k : k + 1] for k in range(n)]

    key = jax.random.PRNGKey(0)
    biases, weights = jnp.arctanh(0.99 * means), jnp.zeros(len(edges))
    states = [jnp.asarray(spins[:1000, k : k + 1] > 0) for k in range(n)]
    step.lower(biases, weights, states, key).compile()
    while True:
        for _ in range(20):
            key, other = jax.random.split(key)
            biases, weights, states = step(biases, weights, states, other)
        couplings = np.zeros((n, n))
        couplings[i, j] = couplings[j, i] = np.asarray(weights)
        yield couplings, np.asarray(biases, dtype=float)


def by_abess(spins: np.ndarray) -> Fit:
    """Best subsets of neighbors by logistic regressions; it has no fields."""
    from abess.graph import IsingModel

    yield np.array(IsingModel().fit(spins).theta_), np.zeros(spins.shape[1])


PEERS: dict[str, Callable[[np.ndarray], Fit]] = {
    "fastmix": by_fastmix,
    "fastmix, sampled": lambda spins: by_fastmix(spins, moments="sampled"),
    "fastmix, pseudo-likelihood": lambda spins: by_fastmix(spins, objective="pseudo-likelihood"),
    "plain numpy": by_numpy,
    "dwave-pytorch-plugin": by_dwave,
    "pseudolm": by_pseudolm,
    "adabmDCA": by_adabmdca,
    "thrml": by_thrml,
    "abess": by_abess,
}


def problems(sets: list[str], sizes: list[int], folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and spins (rows, n)."""
    for n in sizes:
        rng = np.random.default_rng(n)
        true = np.triu(rng.standard_normal((n, n)) * 0.8 / np.sqrt(n), 1)
        model = MarkovRandomField.from_couplings(true + true.T, 0.3 * rng.standard_normal(n))
        chains = CpuChains(model.structure, num_chains=ROWS, seed=0)
        chains.load(model.parameters)
        chains.sweep(500)
        yield f"{n} variables", 2.0 * chains.get_states() - 1.0
    for name in sets:
        yield name, 2.0 * read(folder, name, "train") - 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--who", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--sets", nargs="*", default=["nltcs", "plants"])
    parser.add_argument("--variables", nargs="*", type=int, default=[16])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--step", type=float, default=STEP)
    arguments = parser.parse_args()
    globals()["STEP"] = arguments.step
    for name, spins in problems(arguments.sets, arguments.variables, arguments.data):
        goal = pairs_of(spins)
        for who in arguments.who:
            line: dict[str, object] = {"who": who, "data": name, "step": arguments.step}
            if arguments.packages is not None:
                sys.path.append(str(arguments.packages / who))
            try:
                if who.startswith("fastmix"):
                    next(PEERS[who](spins[:2000]))  # compiled once
                spent, error, looks = 0.0, np.inf, 0
                begin = time.process_time()
                for couplings, field in PEERS[who](spins):
                    spent += time.process_time() - begin
                    looks += 1
                    error = float(np.abs(moments(couplings, field, spins) - goal).max())
                    if error <= GOAL or spent > arguments.limit:
                        break
                    begin = time.process_time()
                line |= {"cpu_seconds": spent, "moment_error": error, "reached": error <= GOAL, "looks": looks}
            except Exception as error:  # a peer that is not there or does not run
                line["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
