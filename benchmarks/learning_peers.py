"""Time to a largest moment error of 0.01 beside other packages that fit Ising models, on one thread.

    python benchmarks/learning_peers.py [--who fastmix "plain numpy" ..] [--variables 16] [--sets nltcs plants]
        [--packages FOLDER] [--limit 120] [--steps 0.02 0.05 0.2]

Rows are those of DEBD sets, and drawn from random dense Ising models of so many ``--variables``. A fit is judged by the
probabilities of states and pairs under it, exact by enumeration (up to 20 variables) or from 400,000 draws of chains of
ours that begin at the data: their largest difference from those of the data. Iterative fits, ours too, are stopped and
looked at now and then, and looking is not counted; those that maximize a pseudo-likelihood have one answer, whatever
its error. Importing and compiling are not counted either. Peers that leave the length of steps to their user try every
one of ``--steps``, a line each; chains of theirs and fields begin at the data. A peer that is not installed
(``--packages`` has a folder for each, as ``pip install --target`` makes), or fails, is reported with why. coniii needs
NumPy below 2 and is asked for alone, with its folder first on PYTHONPATH. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastmix
from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains
from learning import DATA, read

GOAL, LIMIT, ROWS = 0.01, 600.0, 20_000
CHAINS = 1000  # of peers that leave it to their user


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


Fit = Iterator[tuple[np.ndarray, np.ndarray] | None]  # couplings and fields, again and again; None: compiled now


def by_fastmix(spins: np.ndarray, **options: Any) -> Fit:
    data = ((spins + 1) / 2).astype(np.int8)

    def stop(report: Any) -> None:
        error = report.details.get("moment_error")
        if error is not None and error <= 0.7 * GOAL:  # by its own account
            raise KeyboardInterrupt

    try:
        model = fastmix.learn(data, ridge=1e-4, seed=0, progress=stop, **options).model
    except fastmix.Interrupted as stopped:
        model = stopped.result.model
    n = spins.shape[1]
    couplings, (i, j) = np.zeros((n, n)), model.edges.T
    couplings[i, j] = couplings[j, i] = model.log_pairwise.reshape(-1, 4)[:, 3]
    yield couplings, model.log_unary[1::2]


def by_numpy(spins: np.ndarray, step: float) -> Fit:
    """A plain Boltzmann machine: persistent chains, one sweep per step, moment matching."""
    rng, n = np.random.default_rng(0), spins.shape[1]
    means, products = spins.mean(axis=0), spins.T @ spins / len(spins)
    couplings, field, chains = np.zeros((n, n)), np.arctanh(0.99 * means), spins[:CHAINS].copy()
    while True:
        for _ in range(20):
            for i in range(n):
                odds = 2.0 * (chains @ couplings[i] + field[i])
                chains[:, i] = np.where(rng.random(len(chains)) < 1.0 / (1.0 + np.exp(-odds)), 1.0, -1.0)
            couplings += step * (products - chains.T @ chains / len(chains))
            np.fill_diagonal(couplings, 0.0)
            field += step * (means - chains.mean(axis=0))
        yield couplings, field


def by_dwave(spins: np.ndarray, step: float) -> Fit:
    """Its machine and block sampler, a sweep per step; its ``quasi_objective``, the data's statistics taken once."""
    import torch
    from dwave.plugins.torch.models import GraphRestrictedBoltzmannMachine
    from dwave.plugins.torch.samplers.block_spin_sampler import BlockSampler

    torch.set_num_threads(1)
    n = spins.shape[1]
    machine = GraphRestrictedBoltzmannMachine(range(n), [(i, j) for i in range(n) for j in range(i)])
    rows = torch.tensor(spins, dtype=torch.float32)
    data = machine.sufficient_statistics(rows).mean(dim=0)
    with torch.no_grad():
        machine.linear.copy_(-torch.arctanh(0.99 * rows.mean(dim=0)))
        machine.quadratic.zero_()
    sampler = BlockSampler(machine, lambda node: node, CHAINS, schedule=[1.0], initial_states=rows[:CHAINS], seed=0)
    optimizer = torch.optim.SGD(machine.parameters(), lr=step)
    i, j = machine.edge_idx_i.numpy(), machine.edge_idx_j.numpy()
    while True:
        for _ in range(20):
            optimizer.zero_grad()
            drawn = machine.sufficient_statistics(sampler.sample()).mean(dim=0)
            ((data - drawn) @ machine.theta).backward()
            optimizer.step()
        couplings = np.zeros((n, n))
        couplings[i, j] = couplings[j, i] = -machine.quadratic.detach().numpy()
        yield couplings, -machine.linear.detach().numpy().astype(float)


def by_coniii(spins: np.ndarray, step: float) -> Fit:
    """Its Monte Carlo histograms: 10,000 draws, ten sweeps apart as it recommends, then 50 steps by reweighting."""
    mch = import_coniii().MCH(spins.astype(np.int64), sample_size=10_000, iprint=False, rng=np.random.RandomState(0))
    n = spins.shape[1]
    mch._multipliers = np.concatenate([np.arctanh(0.99 * spins.mean(axis=0)), np.zeros(n * (n - 1) // 2)])
    while True:
        mch.model.generate_sample(10 * n, 100 * n, multipliers=mch._multipliers, parallel=False)
        mch.learn_parameters_mch(mch.calc_observables(mch.model.sample).mean(axis=0), mch.constraints, eta=step)
        yield of_coniii(mch._multipliers, n)


def by_coniii_pseudo(spins: np.ndarray) -> Fit:
    yield of_coniii(import_coniii().Pseudo(spins.astype(np.int64), iprint=False).solve(), spins.shape[1])


def import_coniii() -> Any:
    """The package, for which scipy lacks names that it had once."""
    import scipy

    for name in ("exp", "cosh", "dot"):
        setattr(scipy, name, getattr(np, name))
    import coniii

    return coniii


def of_coniii(multipliers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    couplings, (i, j) = np.zeros((n, n)), np.triu_indices(n, 1)
    couplings[i, j] = couplings[j, i] = multipliers[n:]
    return couplings, multipliers[:n]


def by_pseudolm(spins: np.ndarray) -> Fit:
    """A logistic regression for every variable, the two couplings of a pair averaged; it refuses constant columns."""
    from joblib import Parallel
    from pyplm.inference.pseudolikelihoodmax import plm

    n, varies = spins.shape[1], np.flatnonzero(spins.std(axis=0) > 0.0)
    found = plm(spins[:, varies], Parallel(n_jobs=1))
    couplings, field = np.zeros((n, n)), np.arctanh(0.99 * spins.mean(axis=0))
    couplings[np.ix_(varies, varies)], field[varies] = found, np.diag(found)
    np.fill_diagonal(couplings, 0.0)
    yield couplings, field


def by_adabmdca(spins: np.ndarray, step: float) -> Fit:
    """Its gradient, update and Gibbs sampler of two states, ten sweeps per step as its command line has them."""
    import torch
    from adabmDCA.sampling import prepare_training_sampler
    from adabmDCA.stats import get_freq_single_point, get_freq_two_points
    from adabmDCA.training import update_params

    torch.set_num_threads(1)
    n = spins.shape[1]
    hot = torch.nn.functional.one_hot(torch.tensor((spins > 0).astype(np.int64)), 2).float()
    fi, fij = get_freq_single_point(hot), get_freq_two_points(hot)
    mask = torch.ones(n, 2, n, 2)
    mask[torch.arange(n), :, torch.arange(n), :] = 0.0
    params = {"bias": torch.log(fi.clamp(min=1e-4)), "coupling_matrix": torch.zeros(n, 2, n, 2)}
    chains, sample = hot[:CHAINS].clone(), prepare_training_sampler("gibbs", hot.device)
    while True:
        for _ in range(10):
            chains = sample(chains, params, 10)
            pi, pij = get_freq_single_point(chains), get_freq_two_points(chains)
            update_params(fi=fi, fij=fij, pi=pi, pij=pij, params=params, mask=mask, lr=step)
        tables = params["coupling_matrix"].permute(0, 2, 1, 3).double().numpy()
        couplings = 0.25 * (tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0] + tables[..., 0, 0])
        effects = tables.mean(axis=3)
        bias = params["bias"].double().numpy()
        field = 0.5 * (bias[:, 1] - bias[:, 0]) + 0.5 * (effects[..., 1] - effects[..., 0]).sum(axis=1)
        yield couplings, field


def by_thrml(spins: np.ndarray, step: float) -> Fit:
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
    def update(biases: Any, weights: Any, states: Any, key: Any) -> Any:
        model = IsingEBM(nodes, edges, biases, weights, jnp.array(1.0))
        program = IsingSamplingProgram(model, blocks, [])
        run = SamplingSchedule(1, 1, 1)
        keys = jax.random.split(key, len(states[0]))
        drawn = jax.vmap(lambda k, s: sample_states(k, program, run, s, [], whole))(keys, states)[0][:, 0]
        x = 2.0 * drawn.astype(jnp.float32) - 1.0
        biases = biases + step * (means - x.mean(axis=0))
        weights = weights + step * (products - (x.T @ x / len(x))[i, j])
        return biases, weights, [drawn[:, k : k + 1] for k in range(n)]

    key = jax.random.PRNGKey(0)
    biases, weights = jnp.arctanh(0.99 * means), jnp.zeros(len(edges))
    states = [jnp.asarray(spins[:CHAINS, k : k + 1] > 0) for k in range(n)]
    compiled = update.lower(biases, weights, states, key).compile()
    yield None
    while True:
        for _ in range(20):
            key, other = jax.random.split(key)
            biases, weights, states = compiled(biases, weights, states, other)
        couplings = np.zeros((n, n))
        couplings[i, j] = couplings[j, i] = np.asarray(weights)
        yield couplings, np.asarray(biases, dtype=float)


def by_abess(spins: np.ndarray) -> Fit:
    """Best subsets of neighbors by logistic regressions; it has no fields."""
    from abess.graph import IsingModel

    yield np.array(IsingModel().fit(spins).theta_), np.zeros(spins.shape[1])


PEERS: dict[str, Callable[..., Fit]] = {
    "fastmix": by_fastmix,
    "fastmix, sampled": lambda spins: by_fastmix(spins, moments="sampled"),
    "fastmix, pseudo-likelihood": lambda spins: by_fastmix(spins, objective="pseudo-likelihood"),
    "fastmix, pseudo-likelihood, tol 0.01": lambda spins: by_fastmix(spins, objective="pseudo-likelihood", tol=0.01),
    "plain numpy": by_numpy,
    "dwave-pytorch-plugin": by_dwave,
    "pseudolm": by_pseudolm,
    "adabmDCA": by_adabmdca,
    "thrml": by_thrml,
    "abess": by_abess,
    "coniii": by_coniii,
    "coniii, pseudo-likelihood": by_coniii_pseudo,
}
STEPPED = {"plain numpy", "dwave-pytorch-plugin", "adabmDCA", "thrml", "coniii"}


def timed(fit: Fit, spins: np.ndarray, limit: float) -> dict[str, object]:
    """CPU seconds until a look finds the goal reached, or the limit, in looks a tenth or a third of it apart."""
    goal, spent, best, looks, looked = pairs_of(spins), 0.0, np.inf, 0, -1.0
    apart = 1.1 if spins.shape[1] <= 20 else 1.33  # a look by chains takes seconds
    begin = time.process_time()
    for found in fit:
        spent = 0.0 if found is None else spent + time.process_time() - begin
        if found is not None and (spent > apart * looked or spent > limit):
            looks, looked = looks + 1, spent
            error = float(np.abs(moments(*found, spins) - goal).max())
            best = min(best, error)
            if error <= GOAL or spent > limit:
                break
        begin = time.process_time()
    return {"cpu_seconds": spent, "moment_error": best, "reached": best <= GOAL, "looks": looks}


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
    parser.add_argument("--steps", nargs="+", type=float, default=[0.02, 0.05, 0.2])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, spins in problems(arguments.sets, arguments.variables, arguments.data):
        for who in arguments.who:
            if arguments.packages is not None:
                sys.path.append(str(arguments.packages / who.split(",")[0]))
            for step in arguments.steps if who in STEPPED else [None]:
                line: dict[str, object] = {"who": who, "data": name, "step": step}
                fit = PEERS[who] if step is None else partial(PEERS[who], step=step)
                try:
                    next(fit(spins[:2000]))  # imported, and compiled once
                    line |= timed(fit(spins), spins, arguments.limit)
                except Exception as error:  # a peer that is not there or does not run
                    line["error"] = f"{type(error).__name__}: {error}"
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
